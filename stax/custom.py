"""Ops with derivative rules of the user's.

Such an op is a call of the traced function that also holds its rules.  A rule is a graph, made
from the user's function when a transform first needs it, once for each choice of operands that
have derivatives.  Arrays that the function closes over are held by that graph; traced values that
it closes over are the last operands of the op, and the first inputs of the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from stax import named_axes
from stax.control.call import Call, call
from stax.control.held import (
    HoldsGraphs,
    blank,
    check_arguments,
    has_results,
    instantiated,
    marked,
    rearranged,
    sections,
    spread,
    without,
)
from stax.control.linearity import offence
from stax.errors import MissingRule, ShapeError, Value
from stax.graph import Graph, live
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.linearize import separated
from stax.interpreters.transpose import transpose
from stax.op import Batch, Linear
from stax.operators.broadcast import lead_all, reduce_sum
from stax.trace import Trace, bind, results, zeros
from stax.types import ArrayType, TupleType, is_inexact

Flags = tuple[bool, ...]


class Rule:
    """A rule of the user's: what `make` returns for flags of what has a derivative (for vmap: for
    the axis and flags of what is mapped).

    A rule that knows no symbolic zeros is given `every` derivative, zeros too, whatever the flags.
    It may use names of axes that are bound where it is given.
    """

    def __init__(
        self, name: str, make: Callable[[Flags], Any], every: Sequence[bool] | None = None
    ) -> None:
        self.__name__ = name  # as it is printed
        self.every = every
        self._make = make
        self._made: dict[Flags, Any] = {}
        self._axes = named_axes.in_force()

    def __repr__(self) -> str:
        return self.__name__

    def taken(self, flags: Sequence[Any]) -> Flags:
        """Return which derivatives the rule is given."""
        return tuple(flags if self.every is None else self.every)

    def __call__(self, flags: Sequence[Any]) -> Any:
        key = self.taken(flags)
        if key not in self._made:
            with named_axes.restored(self._axes):
                self._made[key] = self._make(key)
        return self._made[key]

    def names_axis(self, axis_name: Any) -> bool:
        """Say whether what is made for `every` derivative refers to an axis by name."""
        if self.every is None or axis_name is None or axis_name not in dict(self._axes):
            return False
        try:
            parts = tuple(self(self.every))
        except Exception:
            return False  # it fails again where it is needed
        nodes = [node for part in parts if isinstance(part, Graph) for node in part.nodes]
        return any(node.op.names_axis(axis_name) for node in nodes) or any(
            part.names_axis(axis_name) for part in parts if isinstance(part, Rule)
        )

    def forget(self) -> None:
        """Make everything anew when it is needed next."""
        self._made.clear()


class Pushed(NamedTuple):
    """A rule for tangents, as a graph: of what is closed over, the arguments and the tangents taken
    to the results and the tangents of those results that have one."""

    graph: Graph
    has_tangent: list[bool]


class Forward(NamedTuple):
    """The first part of a rule for cotangents, as a graph: of what is closed over and the arguments
    to results and residuals; and the second part, a rule that makes a `Backward`."""

    graph: Graph
    backward: Rule


class Backward(NamedTuple):
    """The second part of a rule for cotangents, as a graph: of what is closed over, residuals and
    the cotangents taken to those cotangents of arguments with derivatives that are not zero."""

    graph: Graph
    has_ct: list[bool]


@dataclass(frozen=True, eq=False)
class _Custom(Call):
    """A call with a rule.  Operands are `leaves` arguments, what the function closes over, and
    `closed` values that only the rule closes over."""

    rule: Rule
    leaves: int
    closed: int

    def names_axis(self, axis_name: Any) -> bool:
        return super().names_axis(axis_name) or self.rule.names_axis(axis_name)

    def _behind(self, operands: Sequence[Any]) -> list[Any]:
        """Return what the rule closes over."""
        return list(operands[len(operands) - self.closed :])

    def _check_captures(self, tangents: Sequence[Any]) -> None:
        """Raise MissingRule if a value that the function closes over is differentiated.

        One that only the rule closes over may be: the function does not depend on it.
        """
        pairs = list(zip(self.graph.inputs, tangents, strict=True))[self.leaves :]
        moving = [x for x, t in pairs if t is not None]
        uses = self.graph.uses() if moving else {}
        if any(uses[x] for x in moving):
            raise MissingRule(
                f"{self.name}: {self.graph.name} closes over a value that is differentiated, of "
                "which its rule says nothing.",
                advice="Pass the value as an argument; closure_convert makes arguments of them.",
            )


@dataclass(frozen=True, eq=False)
class CustomJvp(_Custom):
    """A call with a rule for its tangents, which makes a `Pushed`."""

    name: ClassVar[str] = "custom_jvp"

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        self._check_captures(tangents)
        made, operands, dots = self._pushed(primals, tangents)
        found = inline(made.graph, [*operands, *dots])
        outs, out_dots = sections(found, len(self.graph.outputs))
        return tuple(outs), spread(out_dots, made.has_tangent)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        self._check_captures(tangents)
        made, operands, dots = self._pushed(primals, tangents)
        outs, ends = sections(made.graph.outputs, len(self.graph.outputs))
        flags = [i >= len(operands) for i in range(len(made.graph.inputs))]
        results_of, dots_of = (
            Graph(made.graph.name, made.graph.inputs, live(made.graph.nodes, xs), xs)
            for xs in (outs, ends)
        )
        apart = separated(dots_of, flags)
        if apart is dots_of:
            return self.pushforward(primals, tangents)
        # Results are computed by themselves, lest they seem to depend on tangents.
        found = inline(results_of, [*operands, *(zeros(x.type) for x in dots)])
        return tuple(found), spread(inline(apart, [*operands, *dots]), made.has_tangent)

    def _pushed(
        self, primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[Pushed, list[Any], list[Any]]:
        """Return the rule for these tangents, what it is given, and the tangents it takes."""
        args, dots = primals[: self.leaves], tangents[: self.leaves]
        flags = [t is not None for t in dots]
        taken = instantiated(args, dots, self.rule.taken(flags))
        return self.rule(flags), [*self._behind(primals), *args], taken

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        every = [True] * len(self.graph.outputs)
        graph, _ = batch(self.graph, batch_, flags, every)

        def make(taken: Flags) -> Pushed:
            made = self.rule(taken)
            args = list(flags[: self.leaves])
            marks = [*self._behind(flags), *args, *marked(args, self.rule.taken(taken))]
            pushed, _ = batch(made.graph, batch_, marks, [True] * len(made.graph.outputs))
            return Pushed(pushed, made.has_tangent)

        rule = Rule(self.rule.__name__, make, self.rule.every)
        return results(bind(CustomJvp(graph, rule, self.leaves, self.closed), *inputs)), every


@dataclass(frozen=True, eq=False)
class CustomVjp(_Custom):
    """A call with a rule for its cotangents, which makes a `Forward`.

    With `has_jvp`, forward mode differentiates the function, which has a rule for that.
    """

    has_jvp: bool = False
    name: ClassVar[str] = "custom_vjp"

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        if self.has_jvp:
            return Call(self.graph).pushforward(primals, tangents)
        outs, op, operands = self._forward(primals, tangents)
        return outs, spread(call(op.applied, *operands), _differentiable(self.graph))

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs, op, operands = self._forward(primals, tangents)
        return outs, spread(results(bind(op, *operands)), _differentiable(self.graph))

    def _forward(
        self, primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[tuple[Any, ...], CustomPullback, list[Any]]:
        """Return the results, the linear map of the tangents, and its operands."""
        self._check_captures(tangents)
        args, dots = primals[: self.leaves], tangents[: self.leaves]
        made = self.rule([t is not None for t in dots])
        found = inline(made.graph, [*self._behind(primals), *args])
        outs, residuals = sections(found, len(self.graph.outputs))
        moving = [is_inexact(x.type.dtype) for x in args]
        dots = instantiated(args, dots, moving)
        known = self.closed + len(residuals)
        in_types = _tangents([x.type for x in args])
        op = CustomPullback(made.backward, known, in_types, _tangents(self.graph.output_types))
        return tuple(outs), op, [*self._behind(primals), *residuals, *dots]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        every = [True] * len(self.graph.outputs)
        graph, _ = batch(self.graph, batch_, flags, every)

        def make(taken: Flags) -> Forward:
            return self._batched(batch_, flags, self.rule(taken))

        rule = Rule(self.rule.__name__, make, self.rule.every)
        op = CustomVjp(graph, rule, self.leaves, self.closed, self.has_jvp)
        return results(bind(op, *inputs)), every

    def _batched(self, axis: Batch, flags: Sequence[bool], rule: Forward) -> Forward:
        """Return both parts of a rule, mapped; the cotangent of what is not mapped is a sum."""
        count = len(self.graph.outputs)
        closed, args = self._behind(flags), flags[: self.leaves]
        wanted = [i < count for i in range(len(rule.graph.outputs))]
        graph, marks = batch(rule.graph, axis, [*closed, *args], wanted)
        moving = [is_inexact(t.dtype) for t in self.graph.input_types[: self.leaves]]

        def make(taken: Flags) -> Backward:
            made = rule.backward(taken)
            cts = [True] * sum(rule.backward.taken(taken))
            back, _ = batch(
                made.graph,
                axis,
                [*closed, *marks[count:], *cts],
                [True] * len(made.graph.outputs),
            )
            return Backward(_summed(back, marked(marked(args, moving), made.has_ct)), made.has_ct)

        return Forward(graph, Rule(rule.backward.__name__, make, rule.backward.every))


def _summed(graph: Graph, flags: Sequence[bool]) -> Graph:
    """Return `graph` with the results that are not flagged summed over their leading axis."""
    if all(flags):
        return graph
    with Trace(graph.name, "vmap") as trace:
        outs = inline(graph, [trace.input(x.type, x.label) for x in graph.inputs])
        return trace.finish(
            [y if f else reduce_sum(y, (0,)) for y, f in zip(outs, flags, strict=True)]
        )


@dataclass(frozen=True, eq=False)
class CustomPullback(HoldsGraphs):
    """The linear map whose transpose is `backward`, a rule that makes a `Backward`.

    Operands are `known` values, which the rule closes over or keeps, and tangents of `in_types`;
    results are tangents of `out_types`.  Reverse mode applies the rule; to push tangents forward it
    is transposed, which fails unless the rule is linear in its cotangents; effects of the rule do
    not happen then.
    """

    backward: Rule
    known: int
    in_types: tuple[ArrayType, ...]
    out_types: tuple[ArrayType, ...]
    name: ClassVar[str] = "custom_pullback"

    @property
    def linear_after(self) -> int:
        return self.known

    def names_axis(self, axis_name: Any) -> bool:
        return self.backward.names_axis(axis_name)

    @functools.cached_property
    def applied(self) -> Graph:
        """The map itself, of the operands."""
        made, count = self.backward([True] * len(self.out_types)), len(self.out_types)
        back = without(made.graph, lambda node: not has_results(node))
        flags = [i >= self.known for i in range(len(back.inputs))]
        found = offence(back, flags)
        if found is not None:
            raise self._not_linear(f": {found.node.op.name} {found.reason}", [found.row])
        try:
            graph, _ = transpose(separated(back, flags), flags, [True] * count)
        except MissingRule as error:
            raise self._not_linear() from error
        known, dots = sections(graph.inputs, self.known)
        pairs = zip(spread(dots, made.has_ct), self.in_types, strict=True)
        every = [blank(t) if x is None else x for x, t in pairs]
        return rearranged(graph, [*known, *every], graph.outputs)

    def _not_linear(self, why: str = "", values: Sequence[Value] = ()) -> MissingRule:
        return MissingRule(
            f"custom_vjp: forward mode needs a backward rule that is linear in its cotangents, "
            f"and {self.backward.__name__} is not{why}.",
            values=values,
            advice="Write it with linear operations, or use custom_jvp.",
        )

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        for found, wanted in zip(types[self.known :], self.in_types, strict=True):
            if found.strong() is not wanted.strong():
                raise ShapeError(f"{self.name}: a tangent is {found} where {wanted} is needed.")
        return TupleType(self.out_types)

    def evaluate(self, *arrays: Any) -> Any:
        return tuple(evaluate(self.applied, arrays))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return Call(self.applied).pushforward(primals, tangents)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return Call(self.applied).linearize(primals, tangents)

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        known, dots = sections(inputs, self.known)
        flags = [c is not None for c in ct]
        made, taken = self.backward(flags), self.backward.taken(flags)
        cts = [zeros(t) if c is None else c for c, t in zip(ct, self.out_types, strict=True)]
        found = spread(inline(made.graph, [*known, *marked(cts, taken)]), made.has_ct)
        linear = [c if isinstance(x, Linear) else None for c, x in zip(found, dots, strict=True)]
        return [*[None] * len(known), *linear]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        known = flags[: self.known]
        dots = lead_all(batch_, flags[self.known :], inputs[self.known :])

        def make(taken: Flags) -> Backward:
            made = self.backward(taken)
            marks = [*known, *[True] * sum(self.backward.taken(taken))]
            back, _ = batch(made.graph, batch_, marks, [True] * len(made.graph.outputs))
            return Backward(back, made.has_ct)

        rule = Rule(self.backward.__name__, make, self.backward.every)
        wide = [[t.with_leading(batch_.size) for t in x] for x in (self.in_types, self.out_types)]
        op = CustomPullback(rule, self.known, *map(tuple, wide))
        found = results(bind(op, *inputs[: self.known], *dots))
        return found, [True] * len(found)


@dataclass(frozen=True, eq=False)
class LinearCall(HoldsGraphs):
    """A graph that is linear in its operands after the first `known`, applied; its transpose is
    given: `back` is a graph of the same known operands and then cotangents."""

    graph: Graph
    back: Graph
    known: int
    name: ClassVar[str] = "linear_call"

    @property
    def linear_after(self) -> int:
        return self.known

    @property
    def applied(self) -> Graph:
        return self.graph

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        check_arguments(self.name, self.graph, types)
        return TupleType(self.graph.output_types)

    def evaluate(self, *arrays: Any) -> Any:
        return tuple(evaluate(self.graph, arrays))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        if any(t is not None for t in tangents[: self.known]):
            raise MissingRule(
                f"linear_call: {self.graph.name} is differentiated in an argument in which it is "
                "not linear.",
                advice="Pass such values through stop_gradient, or use custom_jvp.",
            )
        outs = results(bind(self, *primals))
        known, args = primals[: self.known], primals[self.known :]
        dots = instantiated(args, tangents[self.known :], [True] * len(args))
        return outs, list(results(bind(self, *known, *dots)))

    linearize = pushforward

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        known, args = sections(inputs, self.known)
        types = self.graph.output_types
        cts = [zeros(t) if c is None else c for c, t in zip(ct, types, strict=True)]
        found = results(bind(LinearCall(self.back, self.graph, self.known), *known, *cts))
        linear = [c if isinstance(x, Linear) else None for c, x in zip(found, args, strict=True)]
        return [*[None] * len(known), *linear]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        args = lead_all(batch_, flags[self.known :], inputs[self.known :])

        def mapped(graph: Graph) -> Graph:
            marks = [*flags[: self.known], *[True] * (len(graph.inputs) - self.known)]
            return batch(graph, batch_, marks, [True] * len(graph.outputs))[0]

        op = LinearCall(mapped(self.graph), mapped(self.back), self.known)
        found = results(bind(op, *inputs[: self.known], *args))
        return found, [True] * len(found)


def _tangents(types: Sequence[ArrayType]) -> tuple[ArrayType, ...]:
    """Return the types of the tangents of those that have any."""
    return tuple([t.tangent() for t in types if is_inexact(t.dtype)])


def _differentiable(graph: Graph) -> list[bool]:
    return [is_inexact(t.dtype) for t in graph.output_types]
