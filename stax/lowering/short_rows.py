"""Kernels that reduce short rows: vectors go across rows, along the last axis that is kept.

Rows that fill no vector are unrolled.  What is read along a row then lies a row apart from lane to
lane; where many rows of another axis read the same, as in all differences of two sets of points, a
block of it is *staged*: laid out in scratch as the vectors want it, once for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import static_size
from stax.lowering.maps import blocks_along, evenly
from stax.lowering.schedule import BLOCK, SHORT_REDUCED, UNROLLED
from stax.lowering.sums import Total

if TYPE_CHECKING:
    from stax.lowering.build import KernelBuilder

# Bytes of a block that is staged, and its sides: rows that share it, and lanes.
STAGED_BYTES = 24 << 10
HEIGHT, NARROWEST, WIDEST = 128, 32, 256
# Terms of a sum that are added side by side.
SIDE_BY_SIDE = 8


def short_rows(builder: KernelBuilder) -> tuple[ir.Expr, int]:
    """Write the loops; returns their number and the points of one."""
    if builder.plan.staged:
        return _Staged(builder).write()
    plan, shape = builder.plan, builder.region.shape
    reduced = list(builder.region.axes or ())
    *leading, across = [a for a in range(len(shape)) if a not in reduced]
    block, blocks, covered = blocks_along(builder, shape[across], BLOCK // SHORT_REDUCED)
    with builder.parallel(leading, blocks) as (b, extent):
        base, length = builder.block_start(shape[across], block, b)
        with builder.loop("x", length, "vector") as x:
            builder.axis_index[across] = builder.let(ir.add(base, x), "i")
            for stage in plan.stages:
                builder.row_stage(stage, reduced, {})
            builder.store_all(plan.outer_targets())
    return extent, covered * static_size(tuple(shape[a] for a in reduced))


class _Staged:
    """The loops where what rows share is staged; one axis is reduced, in one pass."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder, self.shape = builder, builder.region.shape
        *self.leading, self.lead, self.across, self.reduced = range(len(self.shape))
        self.length: Any = self.shape[self.reduced]
        self.totals: list[list[Total]] = []

    def write(self) -> tuple[ir.Expr, int]:
        """Write the loops."""
        builder, shape = self.builder, self.shape
        rows, columns = (static_size((shape[a],)) for a in (self.lead, self.across))
        size = max(n.type.dtype.itemsize for n, _ in builder.plan.staged)
        fitting = STAGED_BYTES // (self.length * size) // NARROWEST * NARROWEST
        width = evenly(columns, max(NARROWEST, min(WIDEST, fitting)), NARROWEST // 2)
        height = evenly(rows, HEIGHT, 1)
        across = -(-columns // width)
        with builder.parallel(self.leading, -(-rows // height) * across) as (b, extent):
            top, lines = builder.block_start(rows, height, ir.floordiv(b, across))
            left, lanes = builder.block_start(columns, width, ir.mod(b, across))
            for node, axes in builder.plan.staged:
                self._stage(node, axes, (left, lanes, width))
            with builder.loop("y", lines, "serial") as y:
                builder.axis_index[self.lead] = builder.let(ir.add(top, y), "i")
                with builder.loop("x", lanes, "vector") as x:
                    builder.axis_index[self.across] = builder.let(ir.add(left, x), "i")
                    self._row()
                    builder.store_all(builder.plan.outer_targets())
        return extent, height * width * self.length

    def _stage(self, node: Node, axes: tuple[int, ...], block: tuple[ir.Expr, Any, int]) -> None:
        """Lay a block of `node`, which is read at these axes of the nest, out in scratch."""
        builder, (left, lanes, width) = self.builder, block
        buffer = ir.Buffer(builder.fresh("staged"), node.type.dtype, (self.length, width))
        builder.emit(ir.Alloc(buffer))
        with builder.loop("k", self.length, "serial") as k, builder.loop("x", lanes, "vector") as x:
            place = {self.across: builder.let(ir.add(left, x), "i"), self.reduced: k}
            builder.emit(ir.Store(buffer, (k, x), builder.element_at(node, axes, place)))
        builder.staged.append((node, axes, lambda: self._read(buffer, left)))

    def _read(self, buffer: ir.Buffer, left: ir.Expr) -> ir.Expr:
        index = self.builder.axis_index
        return ir.Load(buffer, (index[self.reduced], ir.sub(index[self.across], left)))

    def _row(self) -> None:
        """Reduce the rows of the lanes, several terms of each side by side."""
        builder, plan, reduced = self.builder, self.builder.plan, self.reduced
        count = min(SIDE_BY_SIDE, self.length)
        nodes = plan.reductions(0)
        self.totals = [[Total(builder, n, False) for _ in range(count)] for n in nodes]
        is_small = builder.region.weight * self.length <= UNROLLED
        with builder.loop("k", self.length // count, "unroll" if is_small else "serial") as k:
            for j in range(count):
                place = ir.add(ir.mul(k, count), ir.index(j))
                builder.axis_index[reduced] = builder.let(place, "i")
                self._take(j)
        for j in range(self.length - self.length % count, self.length):
            builder.axis_index[reduced] = ir.index(j)
            self._take(j % count)
        del builder.axis_index[reduced]
        for node, totals in zip(nodes, self.totals, strict=True):
            parts = [total.result() for total in totals]
            while len(parts) > 1:
                pairs = list(zip(parts[::2], parts[1::2], strict=False))
                combine = node.op.combine  # type: ignore[attr-defined]
                sums = [builder.let(ir.apply(combine, *pair)) for pair in pairs]
                parts = sums + parts[2 * len(pairs) :]
            builder.finish(node, parts[0])

    def _take(self, side: int) -> None:
        for totals in self.totals:
            totals[side].take(self.builder.term(totals[side].node))
