"""`scan`: a graph applied along the leading axis of arrays, carrying values from step to step.

In reverse mode the primal loop also returns what each step leaves behind for the backward loop.  A
residual that is the same in every step is computed once, outside; one that is an element of an
input is read there again; only the others are stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stax.control.accumulate import accumulating
from stax.control.held import (
    HoldsGraphs,
    check_arguments,
    fixed_point,
    given,
    instantiated,
    leading,
    marked,
    rearranged,
    sections,
    spread,
)
from stax.errors import MissingRule, ShapeError
from stax.extent import Dimension, Extent
from stax.graph import Graph, Node, live
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import Linearized, linearize, split
from stax.interpreters.transpose import dependents, transpose
from stax.op import Batch, Linear
from stax.operators.broadcast import splat
from stax.operators.elementwise import add
from stax.operators.reshape import move_axis
from stax.trace import Trace, bind, full, results, zeros
from stax.types import ArrayType, TupleType, storage


class Parts(NamedTuple):
    """What the operands, or the flags of the operands, are: fixed, carried, an element a step."""

    consts: list[Any]
    carry: list[Any]
    xs: list[Any]


@dataclass(frozen=True, eq=False)
class Scan(HoldsGraphs):
    """Apply `body` for each of `length` elements along the leading axis of the last operands.

    Operands are `consts` values that every step is given, `carry` initial values, and arrays.
    `body` takes the same, an element in place of each array, and returns the carry and then
    results, which are stacked; `reverse` goes from the last element to the first.
    """

    body: Graph
    length: Dimension
    reverse: bool
    consts: int
    carry: int
    name: ClassVar[str] = "scan"

    def parts(self, values: Sequence[Any]) -> Parts:
        """Return the operands, or flags of the operands, by kind."""
        return Parts(*sections(values, self.consts, self.carry))

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        consts, carry, xs = self.parts(types)
        for t in xs:
            if not t.shape or t.shape[0] != self.length:
                raise ShapeError(f"scan: {t} has no leading axis of length {self.length}.")
        check_arguments("scan", self.body, [*consts, *carry, *(t.without_leading() for t in xs)])
        new, ys = sections(self.body.output_types, self.carry)
        for before, after in zip(carry, new, strict=True):
            if before.strong() is not after.strong():
                raise ShapeError(f"scan: a step carries {after} where it was given {before}.")
        return TupleType([*new, *(t.with_leading(self.length) for t in ys)])

    def evaluate(self, *arrays: Any) -> Any:
        consts, carry, xs = self.parts(arrays)
        types = self.body.output_types[self.carry :]
        length = int(self.length) if not isinstance(self.length, Extent) else len(xs[0])
        ys = [np.empty((length, *map(int, t.shape)), storage(t.dtype)) for t in types]
        for i in reversed(range(length)) if self.reverse else range(length):
            found = evaluate(self.body, [*consts, *carry, *(x[i] for x in xs)])
            carry = found[: self.carry]
            for y, value in zip(ys, found[self.carry :], strict=True):
                y[i] = value
        return (*map(np.asarray, carry), *ys)

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = self._flags([t is not None for t in tangents], lambda f: jvp(self.body, f)[1])
        graph, has_tangent = jvp(self.body, flags, self._wanted(flags))
        moved = self.parts(flags)
        inner, dotted = sections(graph.inputs, len(flags))
        c_dot, k_dot, x_dot = sections(dotted, sum(moved.consts), sum(moved.carry))
        c, k, x = self.parts(inner)
        outs, out_dots = sections(graph.outputs, len(self.body.outputs))
        new, ys = sections(outs, self.carry)
        new_dot, ys_dot = sections(out_dots, sum(moved.carry))
        joint = rearranged(
            graph,
            [*c, *c_dot, *k, *k_dot, *x, *x_dot],
            [*new, *new_dot, *ys, *ys_dot],
        )
        (c, k, x), (c_dot, k_dot, x_dot) = self.parts(primals), self._dots(primals, tangents, flags)
        found = scan(joint, [*c, *c_dot], [*k, *k_dot], [*x, *x_dot], self.length, self.reverse)
        new, new_dot, ys, ys_dot = sections(found, len(k), len(k_dot), len(ys))
        return (*new, *ys), spread([*new_dot, *ys_dot], has_tangent)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = self._flags([t is not None for t in tangents], lambda f: jvp(self.body, f)[1])
        cut = linearize(self.body, flags, self._wanted(flags))
        kept = _Residuals(self, cut, flags, primals)
        consts, carry, xs = self.parts(primals)
        found = scan(kept.primal, consts, carry, xs, self.length, self.reverse)
        outs, stacked = sections(found, len(self.body.outputs))
        c_dot, k_dot, x_dot = self._dots(primals, tangents, flags)
        fixed, each = kept.values(stacked)
        moved = scan(
            kept.linear, [*fixed, *c_dot], k_dot, [*each, *x_dot], self.length, self.reverse
        )
        return tuple(outs), spread(moved, cut.has_tangent)

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        flags = self._linear([isinstance(x, Linear) for x in inputs])
        linear = self.parts(flags)
        for x, f in zip(self.parts(inputs).carry, linear.carry, strict=True):
            # Tangents that start as zero are carried too, though they depend on nothing linear.
            if f and not isinstance(x, Linear) and splat(x) != 0:
                raise MissingRule(
                    f"scan: {self.body.name} adds a value to what it is linear in.",
                    advice="Linearize the function first: stax.linearize, stax.vjp or stax.grad.",
                )
        if not all(linear.carry):
            return self._transpose_of_rest(flags, ct, inputs)
        known = self.parts([None if f else x for x, f in zip(inputs, flags, strict=True)])
        back = self._transposed(flags)
        types = self.abstract_eval(*(x.type for x in inputs)).items
        cts = [zeros(t) if c is None else c for c, t in zip(ct, types, strict=True)]
        carried, ys = sections(cts, self.carry)
        sums = [
            zeros(x.type)
            for x, f in zip(self.parts(inputs).consts, linear.consts, strict=True)
            if f
        ]
        found = scan(
            back,
            given(known.consts),
            [*carried, *sums],
            [*given(known.xs), *ys],
            self.length,
            not self.reverse,
        )
        carried, sums, xs = sections(found, self.carry, len(sums))
        return [*spread(sums, linear.consts), *carried, *spread(xs, linear.xs)]

    def _linear(self, flags: Sequence[bool]) -> list[bool]:
        """Return which operands are linear: those flagged, and what is carried and made of them."""

        def after(now: list[bool]) -> list[bool]:
            roots = marked(self.body.inputs, now)
            found = dependents(self.body.nodes, roots)
            return [x in found for x in self.body.outputs]

        return self._flags(flags, after)

    def _transpose_of_rest(self, flags: Sequence[bool], ct: Any, inputs: Sequence[Any]) -> Any:
        """Transpose a loop that carries values, a counter say, beside what it is linear in.

        A loop of its own computes the values; the linear one is given them element by element.
        """
        cut = split(self.body, flags)
        linear, known = self.parts(flags), self.parts([not f for f in flags])
        consts, carry, xs = self.parts(inputs)
        outs = scan(
            cut.known,
            marked(consts, known.consts),
            marked(carry, known.carry),
            marked(xs, known.xs),
            self.length,
            self.reverse,
        )
        residuals = outs[sum(cut.is_known) :]
        kept, moving = sections(cut.unknown.inputs, len(residuals))
        c, k, x = sections(moving, sum(linear.consts), sum(linear.carry))
        body = rearranged(cut.unknown, [*c, *k, *kept, *x], cut.unknown.outputs)
        rest = Scan(body, self.length, self.reverse, len(c), len(k))
        given_ = [*marked(consts, linear.consts), *marked(carry, linear.carry)]
        operands = [*given_, *residuals, *marked(xs, linear.xs)]
        cts = marked(ct, [not f for f in cut.is_known])
        found = rest.transpose(cts, *operands)
        return spread([*found[: len(given_)], *found[len(given_) + len(residuals) :]], flags)

    def _transposed(self, flags: Sequence[bool]) -> Graph:
        """Return the body of the backward loop, which carries cotangents and sums of them."""
        back, _ = transpose(self.body, flags, [True] * sum(flags))
        linear = self.parts(flags)
        known = sections(back.inputs, linear.consts.count(False), linear.xs.count(False))
        with Trace(self.body.name, "transpose") as trace:
            consts = [trace.input(x.type, x.label) for x in known[0]]
            carried = [trace.input(x.type, "ct") for x in known[2][: self.carry]]
            sums = [
                trace.input(x.type, "sum")
                for x in marked(self.body.inputs[: self.consts], linear.consts)
            ]
            xs = [trace.input(x.type, x.label) for x in known[1]]
            ys = [trace.input(x.type, "ct") for x in known[2][self.carry :]]
            found = inline(back, [*consts, *xs, *carried, *ys])
            grown, carried, xs = sections(found, len(sums), self.carry)
            totals = [add(a, b) for a, b in zip(sums, grown, strict=True)]
            return accumulating(trace.finish([*carried, *totals, *xs]))

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        starts = self.parts(flags).carry
        flags = self._flags(flags, lambda f: batch(self.body, batch_, f)[1])
        graph, batched = batch(self.body, batch_, flags, self._wanted(flags))
        consts, carry, xs = self.parts(inputs)
        mapped = self.parts(flags)
        carry = leading(batch_, carry, starts, mapped.carry)
        xs = [move_axis(x, 0, 1) if f else x for x, f in zip(xs, mapped.xs, strict=True)]
        found = scan(graph, consts, carry, xs, self.length, self.reverse)
        carry, ys = sections(found, self.carry)
        ys = [
            move_axis(y, 1, 0) if f else y for y, f in zip(ys, batched[self.carry :], strict=True)
        ]
        return (*carry, *ys), batched

    def _flags(self, flags: Sequence[bool], outcome: Any) -> list[bool]:
        return fixed_point(flags, self.consts, self.carry, outcome)

    def _wanted(self, flags: Sequence[bool]) -> list[bool]:
        """Return which results of the body have to be there: what it carries on."""
        return [*self.parts(flags).carry, *[False] * (len(self.body.outputs) - self.carry)]

    def _dots(
        self, primals: Sequence[Any], tangents: Sequence[Any], flags: Sequence[bool]
    ) -> Parts:
        """Return the flagged tangents by kind."""
        triples = zip(self.parts(primals), self.parts(tangents), self.parts(flags), strict=True)
        return Parts(*(instantiated(p, t, f) for p, t, f in triples))


class _Residuals:
    """The residuals of a step, sorted by where the backward loop finds them: `fixed` are the same
    in every step, `read` are elements of the inputs, `stacked` the primal loop has to keep."""

    def __init__(
        self, op: Scan, cut: Linearized, flags: Sequence[bool], primals: Sequence[Any]
    ) -> None:
        graph, count = cut.primal, len(op.body.outputs)
        outs, residuals = sections(graph.outputs, count)
        inputs, moved = op.parts(graph.inputs), op.parts(flags)
        varying = dependents(graph.nodes, [*inputs.carry, *inputs.xs])
        self.fixed = [x for x in residuals if x not in varying]
        self.read = [x for x in residuals if x in inputs.xs]
        self.stacked = [x for x in residuals if x in varying and x not in inputs.xs]
        self.known = dict(zip(graph.inputs, primals, strict=True))
        self._compute_once(graph, inputs.consts, op.parts(primals).consts)
        kept = [*outs, *self.stacked]
        self.primal = Graph(graph.name, graph.inputs, live(graph.nodes, kept), kept)
        places, dots = sections(cut.linear.inputs, len(residuals))
        place = dict(zip(residuals, places, strict=True))
        c_dot, k_dot, x_dot = sections(dots, sum(moved.consts), sum(moved.carry))
        fixed, each = ([place[x] for x in xs] for xs in (self.fixed, [*self.read, *self.stacked]))
        self.linear = rearranged(
            cut.linear, [*fixed, *c_dot, *k_dot, *each, *x_dot], cut.linear.outputs
        )

    def _compute_once(self, graph: Graph, inputs: Sequence[Node], consts: Sequence[Any]) -> None:
        """Compute, outside of the loop, residuals that depend on its constants only."""
        wanted = [x for x in self.fixed if x not in self.known]
        once = Graph(f"{graph.name}_once", inputs, live(graph.nodes, wanted), wanted)
        self.known |= zip(wanted, inline(once, consts), strict=True)

    def values(self, stacked: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the residuals that are fixed, and arrays of those of each step."""
        found = self.known | dict(zip(self.stacked, stacked, strict=True))
        return [found[x] for x in self.fixed], [found[x] for x in (*self.read, *self.stacked)]


def scan(
    body: Graph,
    consts: Sequence[Any],
    carry: Sequence[Any],
    xs: Sequence[Any],
    length: Dimension,
    reverse: bool = False,
) -> tuple[Any, ...]:
    """Apply `body` to each element of `xs` as one node; returns the carry and the results."""
    op = Scan(body, length, reverse, len(consts), len(carry))
    if isinstance(length, int) and not length:
        _, ys = sections(body.output_types, len(carry))
        return (*carry, *(full((0, *t.shape), 0, t.dtype, t.weak) for t in ys))
    return results(bind(op, *consts, *carry, *xs))
