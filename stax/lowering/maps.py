"""Kernels without reductions: which loops run over the points of the nest, in which order.

*Flat* where every access is at the point itself: one loop over all of memory.  *Repeating* where
the last axis is short and what is not at the point itself is one value per row or per column: flat
as well, with those values laid out in scratch as memory sees them.  *Tiled* where another axis
than the last runs along the memory of something read: small blocks of both, so that each cache
line is used up while it is there.  Else *plain*: vectors along the last axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stax.extent import Extent
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.schedule import BLOCK

if TYPE_CHECKING:
    from stax.lowering.build import KernelBuilder

# Rows of a repeating map for which scratch is laid out at a time.
ROWS = 32
# The sides of a tile, and how much of one a vector loop takes: a cache line of most types.
TILE, LINE = 64, 16


def map_loops(builder: KernelBuilder) -> tuple[ir.Expr, int]:
    """Write the loops; returns their number and the points of one."""
    plan = builder.plan
    if not builder.region.shape:
        return _single(builder)
    if plan.period:
        return _Repeating(builder).write()
    if plan.tile is not None:
        return _tiled(builder, *plan.tile)
    return _plain(builder)


def _single(builder: KernelBuilder) -> tuple[ir.Expr, int]:
    with builder.parallel(()) as (_, extent):
        builder.store_all(builder.region.targets)
    return extent, 1


def _plain(builder: KernelBuilder) -> tuple[ir.Expr, int]:
    """Vectors along the last axis, or along all of memory."""
    shape, is_flat = builder.region.shape, builder.plan.is_flat
    if is_flat:
        total = builder.points(shape)
        known = ir.static(total)
        last: Any = total if known is None else known
        leading: list[int] = []
    else:
        last, leading = shape[-1], list(range(len(shape) - 1))
    block, blocks, covered = _blocks(builder, last)
    with builder.parallel(leading, blocks) as (b, extent):
        base, length = builder.block_start(last, block, b)
        with builder.loop("x", length, "vector") as x:
            axis = 0 if is_flat else len(shape) - 1
            builder.axis_index[axis] = builder.let(ir.add(base, x), "i")
            builder.store_all(builder.region.targets)
    return extent, covered


def _blocks(builder: KernelBuilder, last: Any) -> tuple[int, Any, int]:
    """Return the length of a block along the last axis, how many, and the points in one."""
    if isinstance(last, int):
        if last <= BLOCK:
            return last, 1, max(last, 1)
        return BLOCK, -(-last // BLOCK), BLOCK
    length = builder.extent(last) if isinstance(last, Extent) else last
    return BLOCK, ir.floordiv(ir.add(length, BLOCK - 1), BLOCK), BLOCK


def _tiled(builder: KernelBuilder, across: int, along: int) -> tuple[ir.Expr, int]:
    """Blocks of two axes: vectors along one, and the other in the loop around them."""
    shape: Any = builder.region.shape
    height = min(TILE, shape[across])
    width = min(shape[along], max(TILE, BLOCK // height // LINE * LINE))
    line = LINE if width % LINE == 0 else width
    rows, columns = -(-shape[across] // height), -(-shape[along] // width)
    leading = [a for a in range(len(shape)) if a not in (across, along)]
    with builder.parallel(leading, rows * columns) as (b, extent):
        top, _ = builder.block_start(shape[across], height, ir.floordiv(b, columns))
        left, _ = builder.block_start(shape[along], width, ir.mod(b, columns))

        def rows_of(start: ir.Expr) -> None:
            with builder.loop("y", height, "serial") as y:
                builder.axis_index[across] = builder.let(ir.add(top, y), "i")
                with builder.loop("x", line, "vector") as x:
                    builder.axis_index[along] = builder.let(ir.add(start, x), "i")
                    builder.store_all(builder.region.targets)

        if line == width:
            rows_of(left)
        else:
            with builder.loop("z", width // line, "serial") as z:
                rows_of(ir.add(left, ir.mul(z, line)))
    return extent, height * width


class _Repeating:
    """The loops of a map whose last axis is short, a number of rows at a time."""

    def __init__(self, builder: KernelBuilder) -> None:
        self.builder = builder
        self.period = builder.plan.period
        self.rows = ir.static(builder.points(builder.region.shape[:-1])) or 0
        self.steps = min(max(1, BLOCK // (self.period * ROWS)), self.rows // ROWS)
        self.repeated = builder.plan.repeated
        self.scratch: dict[Node, ir.Buffer] = {}

    def write(self) -> tuple[ir.Expr, int]:
        """Write the loops."""
        builder, block = self.builder, self.steps * ROWS
        with builder.parallel((), -(-self.rows // block)) as (b, extent):
            base, _ = builder.block_start(self.rows, block, b)
            for node, is_per_row in self.repeated.items():
                self._allocate(node)
                if not is_per_row:
                    self._repeat_columns(node)
            with builder.loop("y", self.steps, "serial") as y:
                first = builder.let(ir.add(base, ir.mul(y, ROWS)), "i")
                for node, is_per_row in self.repeated.items():
                    if is_per_row:
                        self._repeat_rows(node, first)
                with builder.loop("x", ROWS * self.period, "vector") as x:
                    place = ir.add(ir.mul(first, self.period), x)
                    builder.axis_index[0] = builder.let(place, "i")
                    for node, buffer in self.scratch.items():
                        builder.laid_out[node] = builder.let(ir.Load(buffer, (x,)))
                    builder.store_all(builder.region.targets)
        return extent, block * self.period

    def _allocate(self, node: Node) -> None:
        name, size = self.builder.fresh("repeated"), ROWS * self.period
        self.scratch[node] = ir.Buffer(name, node.type.dtype, (size,))
        self.builder.emit(ir.Alloc(self.scratch[node]))

    def _repeat_columns(self, node: Node) -> None:
        """Write the values of one row into scratch for every row."""
        builder, source = self.builder, self.builder.buffer(node)
        with builder.loop("r", ROWS, "serial") as r, builder.loop("c", self.period, "vector") as c:
            place = (ir.add(ir.mul(r, self.period), c),)
            value = ir.Load(source, (c,))  # a flat view, like every buffer here
            builder.emit(ir.Store(self.scratch[node], place, value))

    def _repeat_rows(self, node: Node, first: ir.Expr) -> None:
        """Write one value per row into scratch for every column."""
        builder = self.builder
        with builder.loop("r", ROWS, "serial") as r:
            value = builder.let(ir.Load(builder.buffer(node), (ir.add(first, r),)))
            with builder.loop("u", self.period, "unroll") as u:
                place = (ir.add(ir.mul(r, self.period), u),)
                builder.emit(ir.Store(self.scratch[node], place, value))
