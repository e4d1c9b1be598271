"""Kernels without reductions: which loops run over the points of the nest, in which order.

*Flat* where every access is at the point itself: one loop over all of memory.  *Repeating* where
the last axis is short and what is not at the point itself is one value per row or per column: flat
as well, with those values laid out in scratch as memory sees them.  *Tiled* where another axis
than the last runs along the memory of something read: small blocks of both, so that each cache
line is used up while it is there; *turned* where a block of it is transposed in scratch first.
Else *plain*: vectors along the last axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from stax.extent import Extent
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import static_size
from stax.lowering.schedule import BLOCK, SHORT_AXIS

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
        if plan.staged:
            return _Turned(builder, *plan.tile).write()
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
    block, blocks, covered = blocks_along(builder, last, BLOCK)
    with builder.parallel(leading, blocks) as (b, extent):
        base, length = builder.block_start(last, block, b)
        with builder.loop("x", length, "vector") as x:
            axis = 0 if is_flat else len(shape) - 1
            builder.axis_index[axis] = builder.let(ir.add(base, x), "i")
            builder.store_all(builder.region.targets)
    return extent, covered


def blocks_along(builder: KernelBuilder, last: Any, most: int) -> tuple[int, Any, int]:
    """Return the length of a block along an axis, how many blocks, and the points in one."""
    if isinstance(last, int):
        if last <= most:
            return last, 1, max(last, 1)
        return most, -(-last // most), most
    length = builder.extent(last) if isinstance(last, Extent) else last
    return most, ir.floordiv(ir.add(length, most - 1), most), most


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
            kind = "unroll" if height <= SHORT_AXIS else "serial"
            with builder.loop("y", height, kind) as y:
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


class _Turned:
    """Blocks of two axes, where what is read along the other one is turned in scratch first."""

    def __init__(self, builder: KernelBuilder, across: int, along: int) -> None:
        self.builder, self.across, self.along = builder, across, along
        self.shape: tuple[Any, ...] = builder.region.shape
        self.height = evenly(static_size((self.shape[across],)), TILE, LINE)
        self.width = evenly(static_size((self.shape[along],)), TILE, LINE)

    def write(self) -> tuple[ir.Expr, int]:
        """Write the loops."""
        builder, across, along = self.builder, self.across, self.along
        height, width = self.height, self.width
        rows, columns = -(-self.shape[across] // height), -(-self.shape[along] // width)
        leading = [a for a in range(len(self.shape)) if a not in (across, along)]
        with builder.parallel(leading, rows * columns) as (b, extent):
            top, _ = builder.block_start(self.shape[across], height, ir.floordiv(b, columns))
            left, _ = builder.block_start(self.shape[along], width, ir.mod(b, columns))
            for node, axes in builder.plan.staged:
                self._turn(node, axes, top, left)
            with builder.loop("y", height, "serial") as y:
                builder.axis_index[across] = builder.let(ir.add(top, y), "i")
                with builder.loop("x", width, "vector") as x:
                    builder.axis_index[along] = builder.let(ir.add(left, x), "i")
                    builder.store_all(builder.region.targets)
        return extent, height * width

    def _turn(self, node: Node, axes: tuple[int, ...], top: ir.Expr, left: ir.Expr) -> None:
        """Lay a block of `node`, which is read at these axes of the nest, out as it is read."""
        builder, height, width = self.builder, self.height, self.width
        computed = self._computed(node, axes, top, left)
        buffer = ir.Buffer(builder.fresh("turned"), node.type.dtype, (height, width))
        builder.emit(ir.Alloc(buffer))
        with builder.loop("z", -(-width // LINE), "serial") as z:
            start: ir.Expr = ir.mul(z, LINE)
            if width % LINE:
                start = builder.let(ir.apply("minimum", start, ir.index(width - LINE)), "i")
            with builder.loop("x", height, "vector") as x, builder.loop("u", LINE, "unroll") as u:
                k = builder.let(ir.add(start, u), "i")
                value: ir.Expr
                if computed is None:
                    place = {self.along: builder.let(ir.add(left, k), "i")}
                    place[self.across] = builder.let(ir.add(top, x), "i")
                    value = builder.element_at(node, axes, place)
                else:
                    value = ir.Load(computed, (k, x))
                builder.emit(ir.Store(buffer, (x, k), value))

        def read() -> ir.Expr:
            index = builder.axis_index
            return ir.Load(
                buffer, (ir.sub(index[self.across], top), ir.sub(index[self.along], left))
            )

        builder.staged.append((node, axes, read))

    def _computed(
        self, node: Node, axes: tuple[int, ...], top: ir.Expr, left: ir.Expr
    ) -> ir.Buffer | None:
        """Compute a block of a value that is not in memory."""
        builder = self.builder
        if builder.fusion.in_memory(node, builder.region):
            return None
        shape = (self.width, self.height)
        buffer = ir.Buffer(builder.fresh("computed"), node.type.dtype, shape)
        builder.emit(ir.Alloc(buffer))
        with builder.loop("k", self.width, "serial") as k:
            place = {self.along: builder.let(ir.add(left, k), "i")}
            with builder.loop("x", self.height, "vector") as x:
                place[self.across] = builder.let(ir.add(top, x), "i")
                builder.emit(ir.Store(buffer, (k, x), builder.element_at(node, axes, place)))
        return buffer


def evenly(count: int, most: int, multiple: int) -> int:
    """Return the length of blocks of one size, of at most `most`, that hardly overlap."""
    blocks = -(-count // most)
    return min(count, -(-count // (blocks * multiple)) * multiple)


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
