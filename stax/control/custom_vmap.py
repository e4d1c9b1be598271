"""A call with a rule of the user's for vmap.

The batch rule of the op applies the user's, traced as a graph for the axis and for the arguments
that are mapped.  In forward mode the op stays one with a rule: the derivative of the user's rule.
In reverse mode it is an ordinary call, which vmap then refuses: the rule says nothing of a
transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from stax.control.call import Call
from stax.control.held import given, marked, rearranged, sections, spread
from stax.custom import Rule
from stax.errors import MissingRule
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.op import Batch
from stax.operators.broadcast import expand_leading
from stax.trace import Trace, bind, results


class Batched(NamedTuple):
    """A rule for an axis, as a graph: of what is closed over and the arguments, with the axis in
    front where they are mapped, to the results; and which of those have the axis in front."""

    graph: Graph
    flags: list[bool]


@dataclass(frozen=True, eq=False)
class CustomVmap(Call):
    """A call with a rule that makes a `Batched` for an axis and flags of the arguments.

    Operands are `leaves` arguments, what the function closes over, and `closed` values that only
    the rule closes over.
    """

    rule: Rule
    leaves: int
    closed: int
    name: ClassVar[str] = "custom_vmap"

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        args, others = sections(flags, self.leaves)
        if any(others):
            raise MissingRule(
                f"custom_vmap: {self.graph.name} or its rule closes over a mapped array, of which "
                "the rule is not told.",
                advice="Pass the value as an argument.",
            )
        made = self.rule((batch_, *args))
        behind = inputs[len(inputs) - self.closed :]
        return tuple(inline(made.graph, [*behind, *inputs[: self.leaves]])), made.flags

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = [t is not None for t in tangents]
        graph, has_tangent = jvp(self.graph, flags)
        between = len(flags) - self.leaves - self.closed
        moved, others_moved = sections(flags, self.leaves)
        inner, dotted = sections(graph.inputs, len(flags))
        joint = rearranged(graph, self._joined(inner, dotted, sum(moved), between), graph.outputs)
        rule = _derivative(self.rule, moved, has_tangent, any(others_moved))
        op = CustomVmap(joint, rule, self.leaves + sum(moved), self.closed)
        operands = self._joined(primals, marked(tangents, flags), sum(moved), between)
        outs, out_dots = sections(results(bind(op, *operands)), len(has_tangent))
        return tuple(outs), spread(out_dots, has_tangent)

    def _joined(
        self, primals: Sequence[Any], dots: Sequence[Any], moved: int, between: int
    ) -> list[Any]:
        """Return primals and their tangents in the order of operands, arguments first.

        `moved` of the tangents are those of arguments, and `between` values are closed over.
        """
        args, others, behind = sections(primals, self.leaves, between)
        return [*args, *dots[:moved], *others, *dots[moved:], *behind]

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        primal, linear, has_tangent = linearize(self.graph, [t is not None for t in tangents])
        outs, residuals = sections(self._unmapped(primal, primals), len(has_tangent))
        out_dots = self._unmapped(linear, [*residuals, *given(tangents)])
        return tuple(outs), spread(out_dots, has_tangent)

    def _unmapped(self, graph: Graph, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Apply a graph of reverse mode, of which the rule says nothing, so that vmap fails."""
        refused = self.rule if isinstance(self.rule, _Refused) else _Refused(self.graph.name)
        return results(bind(CustomVmap(graph, refused, len(operands), 0), *operands))


class _Refused(Rule):
    """The rule of what is left of a function in reverse mode: there is none."""

    def __init__(self, function: str) -> None:
        super().__init__(function, self._refuse)

    def _refuse(self, _: Any) -> Batched:
        raise MissingRule(
            f"custom_vmap: {self.__name__} is differentiated in reverse mode inside of vmap, and "
            "its rule is for the function alone.",
            advice=(
                "Give it a rule with custom_vjp too, around the function with custom_vmap; or map "
                "first: grad of vmap goes through the rule, and so does forward mode."
            ),
        )


def _derivative(
    rule: Rule, moving: Sequence[bool], has_tangent: Sequence[bool], closes: bool
) -> Rule:
    """Return the derivative of a rule in the arguments that are flagged, of results that are.

    With `closes`, values that are closed over are differentiated too, of which it says nothing.
    """

    def make(key: Any) -> Batched:
        if closes:
            raise MissingRule(
                f"custom_vmap: {rule.__name__} closes over a value that is differentiated and is "
                "not told of it.",
                advice="Pass the value as an argument.",
            )
        axis, *flags = key
        args, dots = sections(flags, len(moving))
        if not any(args):
            return _of_mapped_tangents(rule, axis, dots, moving, has_tangent)
        return _of_mapped_pairs(rule, axis, args, dots, moving, has_tangent)

    return Rule(rule.__name__, make)


def _linearized(made: Batched, moving: Sequence[bool], has_tangent: Sequence[bool]) -> Graph:
    """Return the graph of a rule that also pushes tangents forward to the flagged results."""
    behind = len(made.graph.inputs) - len(moving)
    graph, found = jvp(made.graph, [*[False] * behind, *moving], has_tangent)
    outs, dots = sections(graph.outputs, len(found))
    return rearranged(graph, graph.inputs, [*outs, *marked(spread(dots, found), has_tangent)])


def _of_mapped_tangents(
    rule: Rule,
    axis: Batch,
    dots: Sequence[bool],
    moving: Sequence[bool],
    has_tangent: Sequence[bool],
) -> Batched:
    """Return the derivative at one point along mapped tangents: the rule is told of nothing."""
    graph = _linearized(rule((axis, *[False] * len(moving))), moving, has_tangent)
    known = len(graph.inputs) - len(dots)
    return Batched(*batch(graph, axis, [*[False] * known, *dots]))


def _of_mapped_pairs(
    rule: Rule,
    axis: Batch,
    args: Sequence[bool],
    dots: Sequence[bool],
    moving: Sequence[bool],
    has_tangent: Sequence[bool],
) -> Batched:
    """Return the derivative where arguments are mapped; each then is so with its tangent."""
    told = [a or d is True for a, d in zip(args, spread(dots, moving), strict=True)]
    made = rule((axis, *told))
    graph = _linearized(made, moving, has_tangent)
    behind, inputs = sections(graph.inputs, len(made.graph.inputs) - len(args))
    wanted, given = [*told, *marked(told, moving)], [*args, *dots]
    with Trace(graph.name, "vmap") as trace:
        values = [trace.input(x.type, x.label) for x in behind]
        for x, w, g in zip(inputs, wanted, given, strict=True):
            alone = w and not g
            value = trace.input(x.type.without_leading() if alone else x.type, x.label)
            values.append(expand_leading(value, axis.size) if alone else value)
        whole = trace.finish(inline(graph, values))
    return Batched(whole, [*made.flags, *marked(made.flags, has_tangent)])
