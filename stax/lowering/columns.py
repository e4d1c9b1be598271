"""Kernels that run by columns: reductions over axes before the last.

A task takes a block of columns of the last axis and goes down the rows, with vectors across the
block.  Running values are kept in scratch, one per column, and several rows are taken per step so
that each is loaded and stored once for all of them.  The rows of a step are added by themselves
first, and many steps in chunks (see `sums`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stax.graph import Node
from stax.lowering import loop_ir as ir, sums
from stax.lowering.element import static_size
from stax.lowering.paired import Pairs
from stax.lowering.schedule import column_block, unrolling
from stax.operators.broadcast import Reduction
from stax.types import accumulator, is_bool, is_float

if TYPE_CHECKING:
    from stax.lowering.build import KernelBuilder


def identity_of(kind: str, dtype: np.dtype) -> Any:
    """Return the number that leaves others alone under the combination `kind`."""
    if kind in ("add", "or", "xor"):
        return False if is_bool(dtype) else 0
    if kind in ("mul", "and"):
        return True if is_bool(dtype) else -1 if kind == "and" else 1
    low = kind == "maximum"
    if is_bool(dtype):
        return not low
    if is_float(dtype):
        return -np.inf if low else np.inf
    limits = np.iinfo(dtype)
    return limits.min if low else limits.max


def columns(builder: KernelBuilder) -> tuple[ir.Expr, int]:
    """Write the loops; returns their number and the points of one."""
    shape, reduced = builder.region.shape, list(builder.region.axes or ())
    outer = [a for a in range(len(shape)) if a not in reduced]
    leading, last = outer[:-1], shape[outer[-1]]
    block = column_block(last)
    blocks: Any = (
        -(-last // block)
        if isinstance(last, int)
        else ir.floordiv(ir.add(builder.extent(last), block - 1), block)
    )
    with builder.parallel(leading, blocks) as (b, extent):
        base, width = builder.block_start(last, block, b)
        block_plan = _Columns(builder, outer[-1], base, width, block)
        for stage in builder.plan.stages:
            block_plan.stage(stage, reduced)
    return extent, block * static_size(tuple(shape[a] for a in reduced))


@dataclass(frozen=True)
class _Total:
    """The running values of one reduction; of a sum in chunks also `lost` and those of a chunk."""

    node: Node
    whole: ir.Buffer
    lost: ir.Buffer | None = None
    part: ir.Buffer | None = None

    @property
    def combine(self) -> str:
        return self.node.op.combine  # type: ignore[attr-defined]

    @property
    def running(self) -> ir.Buffer:
        """What the rows are taken into."""
        return self.part or self.whole

    def start(self) -> ir.Const:
        """Return the running value before any row."""
        return ir.Const(identity_of(self.combine, self.whole.dtype), self.whole.dtype)


class _Columns:
    """The stages of one by-columns kernel, for one block of columns."""

    def __init__(
        self, builder: KernelBuilder, axis: int, base: ir.Expr, width: Any, block: int
    ) -> None:
        self.builder = builder
        self.axis = axis
        self.base = base
        self.width = width
        self.block = block
        # What the present stage computes for later ones, and the scratch for that.
        self.held: dict[Node, ir.Buffer] = {}

    def allocate(self, dtype: np.dtype) -> ir.Buffer:
        """Return scratch of one element per column."""
        buffer = ir.Buffer(self.builder.fresh("column"), dtype, (self.block,))
        self.builder.emit(ir.Alloc(buffer))
        return buffer

    @contextmanager
    def across(self) -> Iterator[ir.Var]:
        """Open the vector loop across the columns of the block."""
        builder = self.builder
        with builder.loop("x", self.width, "vector") as x:
            builder.axis_index[self.axis] = builder.let(ir.add(self.base, x), "i")
            yield x
            del builder.axis_index[self.axis]

    def stage(self, stage: int, reduced: list[int]) -> None:
        """One pass down the rows."""
        builder, plan = self.builder, self.builder.plan
        reductions, targets = plan.reductions(stage), plan.full_targets(stage)
        if stage == 0:
            self._outer(0)
        if not reductions and not targets:
            return
        cut = self._cut(reduced) if any(map(sums.is_sum, reductions)) else None
        totals = [self._total(node, cut) for node in reductions]
        self._fill([(b, t.start()) for t in totals for b in (t.whole, t.lost) if b])
        self._hold(stage, reduced)
        self._down(0, reduced, cut, totals, targets)
        for node, buffer in self.held.items():
            self._read_back(node, buffer, reduced)
        self._settle(totals)
        for total in totals:
            self._ready(total.node, total.whole)
        for node in targets:
            if node in plan.kept:
                builder.keep(node, None, reduced)
        self._outer(stage + 1)

    def _hold(self, stage: int, reduced: list[int]) -> None:
        """Reserve scratch for the values of this stage that are kept for later ones."""
        builder, lengths = self.builder, self.builder.region.shape
        targets = builder.region.targets
        nodes = [n for n, s in builder.plan.kept.items() if s == stage and n not in targets]
        shape: Any = (*(lengths[a] for a in reduced), self.block)
        self.held = {n: ir.Buffer(builder.fresh("held"), n.type.dtype, shape) for n in nodes}
        for buffer in self.held.values():
            builder.emit(ir.Alloc(buffer))

    def _read_back(self, node: Node, buffer: ir.Buffer, reduced: list[int]) -> None:
        builder = self.builder

        def read() -> ir.Expr:
            column = ir.sub(builder.axis_index[self.axis], self.base)
            place = (*(builder.axis_index[a] for a in reduced), column)
            return builder.let(ir.Load(buffer, place))

        builder.ready[node] = read

    def _ready(self, node: Node, total: ir.Buffer) -> None:
        builder = self.builder

        def read() -> ir.Expr:
            place = ir.sub(builder.axis_index[self.axis], self.base)
            return builder.let(ir.convert(ir.Load(total, (place,)), node.type.dtype))

        builder.ready[node] = read

    def _rows_per_step(self, reduced: list[int]) -> int:
        return unrolling(self.builder.region.shape[reduced[-1]], self.builder.plan.work)

    def _cut(self, reduced: list[int]) -> sums.Cut | None:
        """Return how the loops over steps are cut into chunks."""
        *lengths, rows = [self.builder.region.shape[a] for a in reduced]
        steps = rows // self._rows_per_step(reduced) if isinstance(rows, int) else rows
        return sums.cut((*lengths, steps), sums.COLUMN_CHUNK)

    def _total(self, node: Node, cut: sums.Cut | None) -> _Total:
        dtype = accumulator(node.type.dtype)
        count = 3 if cut and sums.is_sum(node) else 1
        if count == 3:
            sums.tell(node)
        return _Total(node, *(self.allocate(dtype) for _ in range(count)))

    def _fill(self, buffers: Sequence[tuple[ir.Buffer, ir.Expr]]) -> None:
        if buffers:
            with self.across() as x:
                for buffer, value in buffers:
                    self.builder.emit(ir.Store(buffer, (x,), value))

    def _down(
        self,
        number: int,
        axes: list[int],
        cut: sums.Cut | None,
        totals: list[_Total],
        targets: list[Node],
    ) -> None:
        """Write the serial loops along `axes` from that of a number on, one of which may be cut."""
        builder, axis, is_last = self.builder, axes[number], number + 1 == len(axes)
        length = builder.region.shape[axis]
        step = self._rows_per_step(axes) if is_last else 1
        count: Any = length // step if isinstance(length, int) else length

        def steps(start: ir.Expr, count: Any) -> None:
            with builder.loop("y", count, "serial") as y:
                at = ir.mul(ir.add(start, y), step)
                if is_last:
                    self._step(axis, at, step, totals, targets)
                    return
                builder.axis_index[axis] = builder.let(at, "i")
                self._down(number + 1, axes, cut, totals, targets)
                del builder.axis_index[axis]

        if cut and cut.loop == number:
            with builder.loop("c", -(-count // cut.steps), "serial") as c, self._chunk(totals):
                start, most = builder.let(ir.mul(c, cut.steps), "i"), ir.index(cut.steps)
                left = ir.apply("minimum", most, ir.sub(count, start))
                steps(start, builder.let(left, "left") if count % cut.steps else most)
        else:
            steps(ir.index(0), count)
        if is_last and isinstance(length, int) and length % step:
            with self._chunk(totals) if cut and cut.loop == number else nullcontext():
                self._step(axis, ir.index(count * step), length % step, totals, targets)

    def _step(
        self, axis: int, first: ir.Expr, rows: int, totals: list[_Total], targets: list[Node]
    ) -> None:
        """Take some rows, from the first on."""
        builder = self.builder
        with self.across() as x:
            running = []
            for total in totals:
                var = ir.Var(builder.fresh("acc"), total.whole.dtype)
                builder.depth[var.name] = len(builder.scopes) - 1
                start: ir.Expr = ir.Load(total.running, (x,))
                if sums.is_sum(total.node):
                    start = ir.Const(ir.identity_value("add", var.dtype), var.dtype)
                builder.emit(ir.Init(var, start))
                running.append(var)
            with builder.loop("u", rows, "unroll") as u:
                builder.axis_index[axis] = builder.let(ir.add(first, u), "i")
                for node, buffer in self.held.items():
                    place = (*(builder.axis_index[a] for a in builder.region.axes or ()), x)
                    value = builder.value(node, builder.place(node))
                    builder.emit(ir.Store(buffer, place, value))
                for total, var in zip(totals, running, strict=True):
                    builder.emit(ir.Update(total.combine, var, builder.term(total.node)))
                builder.store_all(targets)
                del builder.axis_index[axis]
            for total, var in zip(totals, running, strict=True):
                value = var
                if sums.is_sum(total.node):
                    value = ir.apply("add", ir.Load(total.running, (x,)), var)
                builder.emit(ir.Store(total.running, (x,), value))

    @contextmanager
    def _chunk(self, totals: list[_Total]) -> Iterator[None]:
        """Take the rows of a `with` block as a chunk."""
        parts = [(t, t.lost, t.part) for t in totals if t.lost and t.part]
        self._fill([(part, total.start()) for total, _, part in parts])
        yield
        with self.across() as x:
            for total, lost, part in parts:
                before, still, new = (
                    self.builder.let(ir.Load(b, (x,))) for b in (total.whole, lost, part)
                )
                after, still = sums.add_losing(before, still, new, self.builder.let)
                self.builder.emit(ir.Store(total.whole, (x,), after))
                self.builder.emit(ir.Store(lost, (x,), still))

    def _settle(self, totals: list[_Total]) -> None:
        """Add what was lost."""
        cut = [(t.whole, t.lost) for t in totals if t.lost]
        if cut:
            with self.across() as x:
                for whole, lost in cut:
                    loads = [self.builder.let(ir.Load(b, (x,))) for b in (whole, lost)]
                    self.builder.emit(ir.Store(whole, (x,), sums.settled(*loads)))

    def _outer(self, stage: int) -> None:
        """Compute what follows from finished reductions, once per column."""
        builder, plan = self.builder, self.builder.plan
        found = [
            n
            for n in builder.region.nodes
            if n in plan.needed and not plan.is_full(n) and plan.stage[n] == stage
        ]
        stored = [n for n in found if n in builder.region.targets]
        held = [n for n in found if not isinstance(n.op, Reduction | Pairs)]
        if not stored and not held:
            return
        buffers = [self.allocate(n.type.dtype) for n in held]
        with self.across() as x:
            for node, buffer in zip(held, buffers, strict=True):
                builder.emit(ir.Store(buffer, (x,), builder.value(node, builder.place(node))))
            builder.store_all(stored)
        for node, buffer in zip(held, buffers, strict=True):
            self._ready(node, buffer)
