"""A call with a rule of the user's for vmap.

The batch rule of the op applies the user's, traced as a graph for the axis and for the arguments
that are mapped.  Derivatives are ops with rules too: tangents have the derivative of the user's
rule, and cotangents its transpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from stax.control.call import Call
from stax.control.held import marked, rearranged, repeated, sections, spread
from stax.custom import Rule
from stax.errors import MissingRule
from stax.graph import Graph, live
from stax.interpreters.batch import batch
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import separated
from stax.interpreters.masks import Masked, are_masked, flat
from stax.interpreters.transpose import Transposed, transpose_masked
from stax.op import Batch, Linear
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
        """Return the results and, by an op of its own, their tangents: it is given the primals, as
        the parts of a linearized rule have other residuals than those of the function."""
        flags = [t is not None for t in tangents]
        graph, has_tangent = jvp(repeated(self.graph), flags)
        between = len(flags) - self.leaves - self.closed
        moved, others_moved = sections(flags, self.leaves)
        linear = _tangents(graph, [*[False] * len(flags), *[True] * sum(flags)], len(has_tangent))
        inner, dotted = sections(linear.inputs, len(flags))
        joint = rearranged(linear, self._joined(inner, dotted, sum(moved), between), linear.outputs)
        rule = _linear_part(self.rule, moved, has_tangent, any(others_moved))
        op = CustomVmap(joint, rule, self.leaves + sum(moved), self.closed)
        operands = self._joined(primals, marked(tangents, flags), sum(moved), between)
        return results(bind(self, *primals)), spread(results(bind(op, *operands)), has_tangent)

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        flags = [isinstance(x, Linear) for x in inputs]
        linear, others = sections(flags, self.leaves)
        back = _transposed(self.graph, flags, cts, marked(care, flags))
        known = [not f for f in linear].count(True), len(others) - others.count(True) - self.closed
        given = flat(cts)
        args, between, behind, backward = sections(back.graph.inputs, *known, self.closed)
        graph = rearranged(back.graph, [*args, *backward, *between, *behind], back.graph.outputs)
        rule = _pulled(self, linear, cts, marked(care, flags), any(others))
        op = CustomVmap(graph, rule, len(args) + len(given), self.closed)
        args, between, behind = sections(marked(inputs, [not f for f in flags]), *known)
        found = results(bind(op, *args, *given, *between, *behind))
        return spread(back.spread(found), flags)


def _tangents(graph: Graph, flags: Sequence[bool], outputs: int) -> Graph:
    """Return the graph of the outputs after the first ones, tangents that are linear in the inputs
    flagged, so that it can be transposed."""
    dots = graph.outputs[outputs:]
    return separated(Graph(graph.name, graph.inputs, live(graph.nodes, dots), dots), flags)


def _transposed(
    graph: Graph, flags: Sequence[bool], cts: Sequence[Masked | None], care: Sequence[bool]
) -> Transposed:
    """Return the transpose of a graph, with all cotangents and the masks that matter as results."""
    return transpose_masked(graph, flags, [True] * sum(flags), are_masked(cts), care, care)


def _pulled(
    op: CustomVmap,
    linear: Sequence[bool],
    cts: Sequence[Masked | None],
    care: Sequence[bool],
    closes: bool,
) -> Rule:
    """Return the rule of the transpose of `op`, in the arguments that are flagged."""

    def make(key: Any) -> Batched:
        _check_closed(op.rule, closes)
        axis, *given = key
        known, backward = sections(given, list(linear).count(False))
        mapped = any(known)
        rest = iter(known)
        made = op.rule((axis, *(mapped if f else next(rest) for f in linear)))
        behind = len(made.graph.inputs) - len(linear)
        flags = [*[False] * behind, *linear]
        if not mapped:  # at one point: the rule is told of nothing
            back = _transposed(made.graph, flags, cts, care).graph
            return Batched(*batch(back, axis, [*[False] * (behind + len(known)), *backward]))
        back = _transposed(_led(made, axis), flags, cts, care).graph
        expanded = [*[True] * (behind + len(known)), *backward]
        return Batched(_expanding(back, expanded, axis), [True] * len(back.outputs))

    return Rule(op.rule.__name__, make)


def _led(made: Batched, axis: Batch) -> Graph:
    """Return the graph of a rule with the axis in front of each result."""
    with Trace(made.graph.name, "vmap") as trace:
        outs = inline(made.graph, [trace.input(x.type, x.label) for x in made.graph.inputs])
        return trace.finish(
            [
                y if f else expand_leading(y, axis.size)
                for y, f in zip(outs, made.flags, strict=True)
            ]
        )


def _expanding(graph: Graph, given: Sequence[bool], axis: Batch) -> Graph:
    """Return `graph` of inputs without the axis in front where those are not `given` with it."""
    with Trace(graph.name, "vmap") as trace:
        values = [
            trace.input(x.type, x.label)
            if g
            else expand_leading(trace.input(x.type.without_leading(), x.label), axis.size)
            for x, g in zip(graph.inputs, given, strict=True)
        ]
        return trace.finish(inline(graph, values))


def _check_closed(rule: Rule, closes: bool) -> None:
    """Raise MissingRule if a value that is closed over is differentiated, which a rule ignores."""
    if closes:
        raise MissingRule(
            f"custom_vmap: {rule.__name__} closes over a value that is differentiated and is "
            "not told of it.",
            advice="Pass the value as an argument.",
        )


def _linear_part(
    rule: Rule, moving: Sequence[bool], has_tangent: Sequence[bool], closes: bool
) -> Rule:
    """Return the derivative of a rule without its results: tangents alone."""
    whole = _derivative(rule, moving, has_tangent, closes)

    def make(key: Any) -> Batched:
        made = whole(key)
        graph = repeated(made.graph)
        known = len(graph.inputs) - sum(moving)
        flags = [*[False] * known, *[True] * sum(moving)]
        return Batched(_tangents(graph, flags, len(has_tangent)), made.flags[len(has_tangent) :])

    return Rule(rule.__name__, make)


def _derivative(
    rule: Rule, moving: Sequence[bool], has_tangent: Sequence[bool], closes: bool
) -> Rule:
    """Return the derivative of a rule in the arguments that are flagged, of results that are.

    With `closes`, values that are closed over are differentiated too, of which it says nothing.
    """

    def make(key: Any) -> Batched:
        _check_closed(rule, closes)
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
