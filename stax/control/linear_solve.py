"""`custom_linear_solve`: the solution of a linear equation, differentiated as what it solves."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from stax.control.call import Call
from stax.control.held import (
    HoldsGraphs,
    blank,
    check_arguments,
    instantiated,
    rearranged,
    sections,
)
from stax.errors import ArgumentError, MissingRule
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.op import Batch, Linear
from stax.operators.broadcast import lead_all
from stax.operators.elementwise import neg, sub
from stax.trace import bind, results, zeros
from stax.types import ArrayType, TupleType


class Parts(NamedTuple):
    """Operands, or flags of them: what each graph closes over, and the right hand side."""

    matvec: list[Any]
    vecmat: list[Any]
    solve: list[Any]
    transpose_solve: list[Any]
    b: list[Any]


@dataclass(frozen=True, eq=False)
class LinearSolve(HoldsGraphs):
    """Apply `solve` to the right hand side `b`, to find the x of which `matvec` is `b`.

    Operands are what the four graphs close over, of which each takes its own first, so many as
    `counts` says; and then `b`.  `solve` returns x and then auxiliary values without derivatives.
    """

    matvec: Graph
    vecmat: Graph | None
    solve: Graph
    transpose_solve: Graph | None
    counts: tuple[int, int, int, int]
    name: ClassVar[str] = "linear_solve"

    def parts(self, values: Sequence[Any]) -> Parts:
        """Return the operands, or flags of them, by kind."""
        return Parts(*sections(values, *self.counts))

    @property
    def _size(self) -> int:
        return len(self.matvec.outputs)

    @functools.cached_property
    def applied(self) -> Graph:
        """The graph `solve`, of all operands."""
        others = [self.matvec, self.vecmat, None, self.transpose_solve]
        unread = [
            [blank(x.type) for x in graph.inputs[:n]] if graph else []
            for graph, n in zip(others, self.counts, strict=True)
        ]
        own, b = sections(self.solve.inputs, self.counts[2])
        inputs = [*unread[0], *unread[1], *own, *unread[3], *b]
        return rearranged(self.solve, inputs, self.solve.outputs)

    @property
    def linear_after(self) -> int:
        return sum(self.counts)

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        check_arguments(self.name, self.applied, types)
        return TupleType(self.solve.output_types)

    def evaluate(self, *arrays: Any) -> Any:
        return tuple(evaluate(self.applied, arrays))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self._pushed(primals, tangents, Call(self.matvec).pushforward)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return self._pushed(primals, tangents, Call(self.matvec).linearize)

    def _pushed(
        self, primals: Sequence[Any], tangents: Sequence[Any], push: Callable[..., Any]
    ) -> tuple[Any, Any]:
        """From A x = b follows A dx = db - dA x, an equation of the same kind."""
        found = results(bind(self, *primals))
        x, known = found[: self._size], primals[: sum(self.counts)]
        dots = self.parts(tangents)
        rhs = dots.b
        if any(t is not None for t in dots.matvec):
            operands = [*self.parts(primals).matvec, *x]
            _, moved = push(operands, [*dots.matvec, *[None] * self._size])
            rhs = [_less(a, b) for a, b in zip(rhs, moved, strict=True)]
        if all(t is None for t in rhs):
            return found, [None] * len(found)
        rhs = instantiated(x, rhs, [True] * self._size)
        solved = results(bind(self, *known, *rhs))[: self._size]
        return found, [*solved, *[None] * (len(found) - self._size)]

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        if self.transpose_solve is None or self.vecmat is None:
            raise ArgumentError(
                "custom_linear_solve: reverse mode needs transpose_solve.",
                advice="Pass transpose_solve=, or symmetric=True if the equation is.",
            )
        known, _ = sections(inputs, sum(self.counts))
        if any(isinstance(x, Linear) for x in known):
            raise MissingRule(
                "custom_linear_solve is linear in b alone.", advice="Linearize the function first."
            )
        given = self.parts(inputs)
        a, b, c, d = self.counts
        back = LinearSolve(self.vecmat, self.matvec, self.transpose_solve, self.solve, (b, a, d, c))
        types = self.matvec.output_types
        cts = [zeros(t) if y is None else y for y, t in zip(ct, types, strict=False)]
        operands = [*given.vecmat, *given.matvec, *given.transpose_solve, *given.solve, *cts]
        found = results(bind(back, *operands))[: self._size]
        linear = [y if isinstance(x, Linear) else None for x, y in zip(given.b, found, strict=True)]
        return [*[None] * len(known), *linear]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        marks, known = self.parts(flags), sum(self.counts)

        def mapped(graph: Graph | None, closed: Sequence[bool]) -> Any:
            if graph is None:
                return None
            every = [*closed, *[True] * self._size]
            return batch(graph, batch_, every, [True] * len(graph.outputs))[0]

        op = LinearSolve(
            mapped(self.matvec, marks.matvec),
            mapped(self.vecmat, marks.vecmat),
            mapped(self.solve, marks.solve),
            mapped(self.transpose_solve, marks.transpose_solve),
            self.counts,
        )
        b = lead_all(batch_, marks.b, inputs[known:])
        found = results(bind(op, *inputs[:known], *b))
        return found, [True] * len(found)


def _less(a: Any | None, b: Any | None) -> Any | None:
    """Return a - b, where None is zero."""
    if b is None:
        return a
    return neg(b) if a is None else sub(a, b)
