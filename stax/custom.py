"""Ops with derivative rules of the user's.

Such an op is a call of the traced function that also holds its rules.  A rule is a graph, made
from the user's function when a transform first needs it; what the function closes over becomes
further inputs of that graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.call import Call, call
from stax.control.held import (
    HoldsGraphs,
    check_arguments,
    instantiated,
    marked,
    sections,
    spread,
)
from stax.errors import MissingRule
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.transpose import transpose
from stax.op import Batch, Linear
from stax.operators.broadcast import lead_all
from stax.trace import bind, results, zeros
from stax.types import ArrayType, TupleType, is_inexact

Closed = int | Any  # an array that a rule closes over, or the number of the operand that holds it


class Rule:
    """A rule of the user's: graphs, and for each what it closes over, its last inputs.

    `make` returns pairs of them; it is called when a transform first needs the rule.
    """

    def __init__(self, make: Callable[[], Sequence[tuple[Graph, Sequence[Closed]]]]) -> None:
        self._make = make

    @functools.cached_property
    def traced(self) -> Sequence[tuple[Graph, Sequence[Closed]]]:
        """The graphs, and what they close over."""
        return self._make()


def _values(closed: Sequence[Closed], operands: Sequence[Any]) -> list[Any]:
    """Return what a rule closes over, given the operands of the op that has the rule."""
    return [operands[x] if isinstance(x, int) else x for x in closed]


def _flags(closed: Sequence[Closed], flags: Sequence[bool]) -> list[bool]:
    return [isinstance(x, int) and flags[x] for x in closed]


@dataclass(frozen=True, eq=False)
class CustomJvp(Call):
    """A call with a rule for its tangents: a graph from the arguments and tangents of those that
    have derivatives to results and tangents of those that have.

    The first `leaves` operands are the arguments; the others are what is closed over.
    """

    rule: Rule
    leaves: int
    name: ClassVar[str] = "custom_jvp"

    @property
    def moving(self) -> list[bool]:
        """Which arguments have derivatives."""
        return [is_inexact(t.dtype) for t in self.graph.input_types[: self.leaves]]

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        _check_captures(self, tangents)
        ((graph, closed),) = self.rule.traced
        args = primals[: self.leaves]
        dots = instantiated(args, tangents[: self.leaves], self.moving)
        found = inline(graph, [*args, *dots, *_values(closed, primals)])
        outs, out_dots = sections(found, len(self.graph.outputs))
        return tuple(outs), spread(out_dots, _differentiable(self.graph))

    linearize = pushforward

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        every = [True] * len(self.graph.outputs)
        graph, _ = batch(self.graph, batch_, flags, every)

        def make() -> list[tuple[Graph, Sequence[Closed]]]:
            ((rule, closed),) = self.rule.traced
            args = list(flags[: self.leaves])
            given = [*args, *marked(args, self.moving), *_flags(closed, flags)]
            return [(batch(rule, batch_, given, [True] * len(rule.outputs))[0], closed)]

        return results(bind(CustomJvp(graph, Rule(make), self.leaves), *inputs)), every


@dataclass(frozen=True, eq=False)
class CustomVjp(Call):
    """A call with a rule for its cotangents: a graph from the arguments to results and residuals,
    and one from residuals and cotangents of the results that have derivatives to cotangents of the
    arguments that have.

    The first `leaves` operands are the arguments; the others are what is closed over.
    """

    rule: Rule
    leaves: int
    name: ClassVar[str] = "custom_vjp"

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs, op, operands = self._forward(primals, tangents)
        return outs, spread(call(op.applied, *operands), _differentiable(self.graph))

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        outs, op, operands = self._forward(primals, tangents)
        return outs, spread(results(bind(op, *operands)), _differentiable(self.graph))

    def _forward(
        self, primals: Sequence[Any], tangents: Sequence[Any]
    ) -> tuple[tuple[Any, ...], CustomPullback, list[Any]]:
        """Return the results, the linear map of the tangents, and its operands."""
        _check_captures(self, tangents)
        (forward, closed), (backward, behind) = self.rule.traced
        args = primals[: self.leaves]
        found = inline(forward, [*args, *_values(closed, primals)])
        outs, residuals = sections(found, len(self.graph.outputs))
        moving = [is_inexact(x.type.dtype) for x in args]
        dots = instantiated(args, tangents[: self.leaves], moving)
        op = CustomPullback(backward, len(residuals), len(behind))
        return tuple(outs), op, [*residuals, *_values(behind, primals), *dots]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        every = [True] * len(self.graph.outputs)
        graph, _ = batch(self.graph, batch_, flags, every)

        def make() -> list[tuple[Graph, Sequence[Closed]]]:
            (forward, closed), (backward, behind) = self.rule.traced
            given = [*flags[: self.leaves], *_flags(closed, flags)]
            rest = [False] * (len(forward.outputs) - len(every))
            ahead, marks = batch(forward, batch_, given, [*every, *rest])
            cts = [True] * (len(backward.inputs) - len(rest) - len(behind))
            given = [*marks[len(every) :], *cts, *_flags(behind, flags)]
            back, _ = batch(backward, batch_, given, [True] * len(backward.outputs))
            return [(ahead, closed), (back, behind)]

        return results(bind(CustomVjp(graph, Rule(make), self.leaves), *inputs)), every


@dataclass(frozen=True, eq=False)
class CustomPullback(HoldsGraphs):
    """The linear map whose transpose is `backward`, a rule of the user's.

    Operands are `residuals` values and `closed` ones that the rule closes over, then tangents.
    Reverse mode applies the rule; to push tangents forward it is transposed, which fails unless the
    rule is linear in its cotangents.
    """

    backward: Graph  # of residuals, cotangents, and what it closes over
    residuals: int
    closed: int
    name: ClassVar[str] = "custom_pullback"

    @functools.cached_property
    def applied(self) -> Graph:
        """The map itself, of the operands."""
        inputs = self.backward.inputs
        count = len(inputs) - self.residuals - self.closed
        flags = [self.residuals <= i < self.residuals + count for i in range(len(inputs))]
        try:
            graph, _ = transpose(self.backward, flags, [True] * count)
        except MissingRule as error:
            raise MissingRule(
                "custom_vjp: forward mode needs a backward rule that is linear in its cotangents.",
                advice="Write it with linear operations, or use custom_jvp.",
            ) from error
        return graph

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        known = self.residuals + self.closed
        check_arguments(
            self.name,
            self.backward,
            [*types[: self.residuals], *self._cotangents, *types[self.residuals : known]],
        )
        return TupleType(self._cotangents)

    @property
    def _cotangents(self) -> tuple[ArrayType, ...]:
        types = self.backward.input_types
        return types[self.residuals : len(types) - self.closed]

    def evaluate(self, *arrays: Any) -> Any:
        return tuple(evaluate(self.applied, arrays))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return Call(self.applied).pushforward(primals, tangents)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return Call(self.applied).linearize(primals, tangents)

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        known = inputs[: self.residuals + self.closed]
        cts = [zeros(t) if c is None else c for c, t in zip(ct, self._cotangents, strict=True)]
        residuals, closed = sections(known, self.residuals)
        found = inline(self.backward, [*residuals, *cts, *closed])
        flags = [isinstance(x, Linear) for x in inputs[len(known) :]]
        return [
            *[None] * len(known),
            *(c if f else None for c, f in zip(found, flags, strict=True)),
        ]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        known = self.residuals + self.closed
        dots = lead_all(batch_, flags[known:], inputs[known:])
        cts = [True] * len(self._cotangents)
        marks = [*flags[: self.residuals], *cts, *flags[self.residuals : known]]
        graph, _ = batch(self.backward, batch_, marks, [True] * len(self.backward.outputs))
        op = CustomPullback(graph, self.residuals, self.closed)
        found = results(bind(op, *inputs[:known], *dots))
        return found, [True] * len(found)


def _differentiable(graph: Graph) -> list[bool]:
    return [is_inexact(t.dtype) for t in graph.output_types]


def _check_captures(op: CustomJvp | CustomVjp, tangents: Sequence[Any]) -> None:
    """Raise MissingRule if a value that the function closes over is differentiated.

    One that only the rule closes over may be: the function does not depend on it.
    """
    moving = [x for x, t in zip(op.graph.inputs, tangents, strict=True) if t is not None][
        sum(t is not None for t in tangents[: op.leaves]) :
    ]
    uses = op.graph.uses() if moving else {}
    if any(uses[x] for x in moving):
        raise MissingRule(
            f"{op.name}: {op.graph.name} closes over a value that is differentiated, of which its "
            "rule says nothing.",
            advice="Pass the value as an argument.",
        )
