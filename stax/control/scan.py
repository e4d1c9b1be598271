"""`scan`: a graph applied along the leading axis of arrays, carrying values from step to step.

In reverse mode the primal loop also returns what each step leaves behind for the backward loop; a
minimum cut per step chooses what that is (`remat`).  A residual that is the same in every step is
computed once, outside; one that is an element of an input, or a result, is read there again; only
the others are stacked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stax.control.backward import BackwardStep
from stax.control.call import without_calls
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
    unused,
)
from stax.control.lanes import may_not_end
from stax.control.ragged import closed
from stax.control.switch import switch
from stax.errors import MissingRule, ShapeError
from stax.extent import Dimension
from stax.graph import Graph, Input, Node, live
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import Linearized, linearize, split
from stax.interpreters.masks import Masked
from stax.interpreters.remat import STANDARD, There, fewer_residuals, report
from stax.interpreters.transpose import dependents, masks_matter
from stax.op import Batch, Linear
from stax.operators.broadcast import broadcast_in_dim, splat
from stax.operators.elementwise import convert, select
from stax.operators.reshape import move_axis
from stax.trace import Trace, bind, full, results, zeros
from stax.types import ArrayType, TupleType, bool_, int32, storage


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

    With a `length` of None there are as many steps as the operands have elements, and the first of
    those is a bool: vmap makes it differ from lane to lane, and where it is false a step changes
    nothing.
    """

    body: Graph
    length: Dimension | None
    reverse: bool
    consts: int
    carry: int
    name: ClassVar[str] = "scan"
    loops: ClassVar[bool] = True

    def parts(self, values: Sequence[Any]) -> Parts:
        """Return the operands, or flags of the operands, by kind."""
        return Parts(*sections(values, self.consts, self.carry))

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        consts, carry, xs = self.parts(types)
        length = self.steps(types)
        for t in xs:
            if not t.shape or t.shape[0] != length:
                raise ShapeError(f"scan: {t} has no leading axis of length {length}.")
        check_arguments("scan", self.body, [*consts, *carry, *(t.without_leading() for t in xs)])
        new, ys = sections(self.body.output_types, self.carry)
        for before, after in zip(carry, new, strict=True):
            if before.strong() is not after.strong():
                raise ShapeError(f"scan: a step carries {after} where it was given {before}.")
        return TupleType([*new, *(t.with_leading(length) for t in ys)])

    def steps(self, types: Sequence[ArrayType]) -> Dimension:
        """Return the number of steps for operands of these types."""
        if self.length is not None:
            return self.length
        extent: Dimension = types[self.consts + self.carry].shape[0]
        return extent

    def evaluate(self, *arrays: Any) -> Any:
        consts, carry, xs = self.parts(arrays)
        types = self.body.output_types[self.carry :]
        length = self.length if isinstance(self.length, int) else len(xs[0])
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
        (c, k, x), (c_dot, k_dot, x_dot) = self.parts(primals), self.dots(primals, tangents, flags)
        found = scan(joint, [*c, *c_dot], [*k, *k_dot], [*x, *x_dot], self.length, self.reverse)
        new, new_dot, ys, ys_dot = sections(found, len(k), len(k_dot), len(ys))
        return (*new, *ys), spread([*new_dot, *ys_dot], has_tangent)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = self._flags([t is not None for t in tangents], lambda f: jvp(self.body, f)[1])
        kept, has_tangent = self.residuals(flags, primals)
        consts, carry, xs = self.parts(primals)
        found = scan(kept.primal, consts, carry, xs, self.length, self.reverse)
        outs, stacked = sections(found, len(self.body.outputs))
        dots = self.dots(primals, tangents, flags)
        moved = self.linear_loop(kept, [*outs[self.carry :], *stacked], dots, xs[:1])
        return tuple(outs), spread(moved, has_tangent)

    def residuals(
        self, flags: Sequence[bool], primals: Sequence[Any]
    ) -> tuple[Residuals, list[bool]]:
        """Linearize a step in what is flagged; returns its parts, and which results have tangents.

        Values of `primals` that a step does not keep may be None.
        """
        cut = linearize(self.body, flags, self._wanted(flags))
        return Residuals(self, self._minimal(cut), flags, primals), cut.has_tangent

    def linear_loop(
        self, kept: Residuals, stacked: Sequence[Any], dots: Parts, going: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Apply the linear part of a step along what the primal loop stacked."""
        fixed, each = kept.values(stacked)
        linear = kept.linear
        if self.length is None:
            at = len(fixed) + len(dots.consts) + len(dots.carry)
            fresh = Node(Input("going"), (), ArrayType(bool_, going[0].type.shape[1:]))
            linear = rearranged(
                linear, [*linear.inputs[:at], fresh, *linear.inputs[at:]], linear.outputs
            )
            each = [*going, *each]
        consts, xs = [*fixed, *dots.consts], [*each, *dots.xs]
        return scan(linear, consts, dots.carry, xs, self.length, self.reverse)

    def _minimal(self, cut: Linearized) -> Linearized:
        """Return the parts of the body with the residuals between them that cost least."""
        count = len(self.body.outputs)
        cut = Linearized(*closed(without_calls(cut.primal), count, cut.linear), cut.has_tangent)
        graph = cut.primal
        inputs = self.parts(graph.inputs)
        varying = _varying(graph, inputs)
        fixed = [x for x in (*graph.inputs, *graph.nodes) if x not in varying]
        there = dict.fromkeys(fixed, There("the same in every step"))
        there |= dict.fromkeys(inputs.carry, There("carried into the step", STANDARD.byte, False))
        there |= dict.fromkeys(inputs.xs, There("an element of an argument"))
        there |= dict.fromkeys(graph.outputs[self.carry : count], There("a result of the step"))
        found = fewer_residuals(graph, cut.linear, count, there)
        steps = self.length if isinstance(self.length, int) else 1
        which = f"each of {self.length} steps" if self.length is steps else "each step"
        report(f"{self.body.name}, {which}", found.cut, graph.outputs[count:], steps)
        return Linearized(found.known, found.unknown, cut.has_tangent)

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        flags = self.linear_flags([isinstance(x, Linear) for x in inputs])
        linear = self.parts(flags)
        for x, f in zip(self.parts(inputs).carry, linear.carry, strict=True):
            # Tangents that start as zero are carried too, though they depend on nothing linear.
            if f and not isinstance(x, Linear) and splat(x) != 0:
                raise MissingRule(
                    f"scan: {self.body.name} adds a value to what it is linear in.",
                    advice="Linearize the function first: stax.linearize, stax.vjp or stax.grad.",
                )
        if not all(linear.carry):
            return self._pull_of_rest(flags, cts, care, inputs)
        known = self.parts([None if f else x for x, f in zip(inputs, flags, strict=True)])
        back = BackwardStep(self, flags, cts, self._caring(flags, care))
        found = scan(
            back.graph,
            given(known.consts),
            back.carry(),
            [*given(known.xs), *back.elements()],
            self.length,
            not self.reverse,
        )
        return spread(back.spread(found), flags)

    def masks_matter(self, flags: Sequence[bool], care: Sequence[bool]) -> Sequence[bool]:
        flags = self.linear_flags(flags)
        return masks_matter(self.body, flags, self._caring(flags, care))

    def _caring(self, flags: Sequence[bool], care: Sequence[bool]) -> list[bool]:
        """Return for which inputs of the body masks matter: by `care`, and by what is carried."""
        return self._flags(care, lambda now: masks_matter(self.body, flags, now))

    def linear_flags(self, flags: Sequence[bool]) -> list[bool]:
        """Return which operands are linear: those flagged, and what is carried and made of them."""

        def after(now: list[bool]) -> list[bool]:
            roots = marked(self.body.inputs, now)
            found = dependents(self.body.nodes, roots)
            return [x in found for x in self.body.outputs]

        return self._flags(flags, after)

    def _pull_of_rest(
        self, flags: Sequence[bool], cts: Any, care: Sequence[bool], inputs: Sequence[Any]
    ) -> Any:
        """Transpose a loop that carries values, a counter say, beside what it is linear in.

        A loop of its own computes the values; the linear one is given them element by element.
        """
        cut = split(self.body, flags)
        early, late = closed(cut.known, sum(cut.is_known), cut.unknown)
        linear, known = self.parts(flags), self.parts([not f for f in flags])
        consts, carry, xs = self.parts(inputs)
        outs = scan(
            early,
            marked(consts, known.consts),
            marked(carry, known.carry),
            marked(xs, known.xs),
            self.length,
            self.reverse,
        )
        residuals = list(outs[sum(cut.is_known) :])
        kept, moving = sections(late.inputs, len(residuals))
        c, k, x = sections(moving, sum(linear.consts), sum(linear.carry))
        if self.length is None:
            kept, residuals = (
                [unused(self.parts(self.body.inputs).xs[0]), *kept],
                [xs[0], *residuals],
            )
        body = rearranged(late, [*c, *k, *kept, *x], late.outputs)
        rest = Scan(body, self.length, self.reverse, len(c), len(k))
        given_ = [*marked(consts, linear.consts), *marked(carry, linear.carry)]
        operands = [*given_, *residuals, *marked(xs, linear.xs)]
        cts = marked(cts, [not f for f in cut.is_known])
        before, after = sections(marked(care, flags), len(given_))
        care = [*before, *[False] * len(residuals), *after]
        found = rest.pull(cts, care, *operands)
        return spread([*found[: len(given_)], *found[len(given_) + len(residuals) :]], flags)

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        going = self.body.inputs[self.consts + self.carry] if self.length is None else None
        by_lane = going is not None and self.parts(flags).xs[0] and not going.type.shape
        return (self._by_lane() if by_lane else self)._batch(batch_, flags, inputs)

    def _batch(self, batch_: Batch, flags: Sequence[bool], inputs: Sequence[Any]) -> Any:
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

    def _by_lane(self) -> Scan:
        """Return the loop with steps that change nothing where the first element is false."""
        with Trace(self.body.name, "vmap") as trace:
            args = [trace.input(x.type, x.label) for x in self.body.inputs]
            _, carry, xs = self.parts(args)
            if may_not_end(self.body):  # a branch that is not taken is not run for nothing
                index = convert(xs[0], int32)
                outs = list(switch(index, [self._nothing(), self.body], *args))
            else:
                new, ys = sections(inline(self.body, args), self.carry)
                old = [*carry, *(zeros(y.type) for y in ys)]
                outs = [
                    select(broadcast_in_dim(xs[0], y.type.shape, ()), y, x)
                    for x, y in zip(old, [*new, *ys], strict=True)
                ]
            body = trace.finish(outs)
        return Scan(body, self.length, self.reverse, self.consts, self.carry)

    def _nothing(self) -> Graph:
        """Return a step that changes nothing."""
        with Trace(f"{self.body.name}_skipped", "vmap") as trace:
            args = [trace.input(x.type, x.label) for x in self.body.inputs]
            ys = [zeros(t) for t in self.body.output_types[self.carry :]]
            return trace.finish([*self.parts(args).carry, *ys])

    def _flags(self, flags: Sequence[bool], outcome: Any) -> list[bool]:
        return fixed_point(flags, self.consts, self.carry, outcome)

    def _wanted(self, flags: Sequence[bool]) -> list[bool]:
        """Return which results of the body have to be there: what it carries on."""
        return [*self.parts(flags).carry, *[False] * (len(self.body.outputs) - self.carry)]

    def dots(self, primals: Sequence[Any], tangents: Sequence[Any], flags: Sequence[bool]) -> Parts:
        """Return the flagged tangents by kind."""
        triples = zip(self.parts(primals), self.parts(tangents), self.parts(flags), strict=True)
        return Parts(*(instantiated(p, t, f) for p, t, f in triples))


def _varying(graph: Graph, inputs: Parts) -> set[Node]:
    """Return the values of a step that are not the same in every step."""
    effects = [x for x in graph.nodes if x.op.effect is not None]
    return dependents(graph.nodes, [*inputs.carry, *inputs.xs, *effects])


class Residuals:
    """The residuals of a step, sorted by where the backward loop finds them: `fixed` are the same
    in every step, `read` are elements of the inputs or results, `stacked` the primal loop has to
    keep."""

    def __init__(
        self, op: Scan, cut: Linearized, flags: Sequence[bool], primals: Sequence[Any]
    ) -> None:
        graph, count = cut.primal, len(op.body.outputs)
        outs, residuals = sections(graph.outputs, count)
        inputs, moved = op.parts(graph.inputs), op.parts(flags)
        varying = _varying(graph, inputs)
        self.fixed = [x for x in residuals if x not in varying]
        self.ys = outs[op.carry :]
        there = {*inputs.xs, *self.ys}
        self.read = [x for x in residuals if x in varying and x in there]
        self.stacked = [x for x in residuals if x in varying and x not in there]
        values = op.parts(primals)
        self.known = dict(zip(inputs.consts, values.consts, strict=True))
        self._compute_once(graph, inputs.consts, values.consts)
        self.known |= zip(inputs.xs, values.xs, strict=True)
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
        pure = [x for x in graph.nodes if x.op.effect is None]
        once = Graph(f"{graph.name}_once", inputs, live(pure, wanted), wanted)
        self.known |= zip(wanted, inline(once, consts), strict=True)

    def values(self, stacked: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return the residuals that are fixed, and arrays of those of each step."""
        found = dict(zip((*self.ys, *self.stacked), stacked, strict=True)) | self.known
        return [found[x] for x in self.fixed], [found[x] for x in (*self.read, *self.stacked)]


def scan(
    body: Graph,
    consts: Sequence[Any],
    carry: Sequence[Any],
    xs: Sequence[Any],
    length: Dimension | None,
    reverse: bool = False,
) -> tuple[Any, ...]:
    """Apply `body` to each element of `xs` as one node; returns the carry and the results."""
    op = Scan(body, length, reverse, len(consts), len(carry))
    if isinstance(length, int) and not length:
        new, ys = sections(body.output_types, len(carry))
        same = [convert(x, t.dtype, t.weak) for x, t in zip(carry, new, strict=True)]
        return (*same, *(full((0, *t.shape), 0, t.dtype, t.weak) for t in ys))
    return results(bind(op, *consts, *carry, *xs))
