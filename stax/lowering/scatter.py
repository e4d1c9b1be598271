"""Scatter: a kernel that writes the operand to the result, and one that puts the updates in.

Updates go in one after the other, in the order of their indices, so with `set` the last one wins
and sums do not depend on threads.  What runs in parallel never meets: examples of a batch, and
blocks of columns of the windows, each of which goes through all updates.  Of shorter
rows each thread goes through all updates as well, but puts in those of its part of the result.
"""

from __future__ import annotations

from collections.abc import Mapping

from stax.extent import Dimension, product
from stax.graph import Constant, Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel, KernelBuilder
from stax.lowering.element import THREADS, length_of, static_size, symbol_var, symbols_of
from stax.lowering.fuse import Fusion, Region
from stax.lowering.schedule import Layout, Schedule
from stax.operators.index import GatherScatterMode, Scatter
from stax.types import is_bool, uint64

# Elements of the operand that one task copies.
BLOCK = 4096
# Columns of a window that one task takes, where windows are at least twice as wide; whole lines of
# the cache, so that tasks do not write to the same ones; and into how many blocks they are cut.
COLUMNS, LINE, MOST_BLOCKS = 256, 16, 8
# Rows of at least so many columns are put into one part of the result by each thread.
PART_COLUMNS = 16
# Single elements that are put in one after the other without a branch back, of at least so many.
AT_ONCE, MANY = 4, 64
# Elements worth handing to another thread.
TASK = 20_000

_COMBINE = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}
_BOOL_COMBINE = {"add": "or", "mul": "and", "min": "and", "max": "or"}


def scatter_kernels(
    fusion: Fusion, node: Node, name: str, labels: Mapping[Node, str]
) -> tuple[BuiltKernel, BuiltKernel]:
    """Return the kernels of a scatter."""
    operand = fusion.root_of(node.inputs[0])
    return (
        _begin(node, operand, f"{name}_begin", labels),
        _Updates(fusion, node, name, labels).build(),
    )


def _begin(node: Node, operand: Node, name: str, labels: Mapping[Node, str]) -> BuiltKernel:
    """Return the kernel that makes the result equal to the operand."""
    shape, dtype = node.type.shape, node.type.dtype
    size = length_of(product(shape))
    block = max(1, min(BLOCK, size)) if isinstance(size, int) else BLOCK
    blocks = ir.floordiv(ir.add(ir.index(size), block - 1), block)
    result = ir.Buffer(labels[node], dtype, (size,))
    x, p = _var("x0"), _var("p0")
    start: ir.Expr = ir.mul(p, block)
    width = ir.index(block)
    if not isinstance(size, int):
        width = ir.apply("minimum", width, ir.sub(size, _var("base0")))
    elif size % block:
        start = ir.apply("minimum", start, ir.index(size - block))
    place = (ir.add(_var("base0"), x),)
    params, values = (result,), (node,)
    if isinstance(operand.op, Constant):
        element: ir.Expr = ir.Const(operand.op.value, dtype)
    else:
        source = ir.Buffer(labels[operand], dtype, (size,))
        params, values = (source, *params), (operand, *values)  # type: ignore[assignment]
        element = ir.Load(source, place)
    across = ir.For(x, width, "vector", (ir.Store(result, place, element),))
    loop = ir.For(p, blocks, "parallel", (ir.Let(_var("base0"), start), across))
    symbols = tuple(map(symbol_var, symbols_of(shape)))
    kernel = ir.Kernel(name, params, symbols, (loop,), (result.name,))
    return BuiltKernel(kernel, values, blocks, max(1, 8 * TASK // block))


class _Updates(KernelBuilder):
    """Builds the kernel that puts updates into the result.

    Indices and updates are computed here where they are not in memory.
    """

    def __init__(self, fusion: Fusion, node: Node, name: str, labels: Mapping[Node, str]) -> None:
        assert isinstance(node.op, Scatter)
        region = Region(-1, fusion.level[node], ())
        super().__init__(fusion, Schedule(region, Layout.MAP), name, dict(labels))
        self.op, self.node = node.op, node
        _, self.indices, self.updates = node.inputs
        self.shape, self.update_shape = node.type.shape, self.updates.type.shape
        self.window = node.op.window
        self.sizes = node.op.sizes(node.type, self.updates.type)
        self.inner = self.window.inner
        self.outer = self.window.outer(len(self.update_shape))
        self.result = self.buffer(node)
        self.stored_here.add(self.result.name)
        # Where the loops are, for each axis of the updates.
        self.at: dict[int, ir.Expr] = {}
        self.batch = [self.outer[b] for b in self.window.paired_indices]
        self.serial = [a for a in self.outer if a not in self.batch]
        self.columns = self.update_shape[self.inner[-1]] if self.inner else 1
        self.block = self._block()
        self.in_parts = self._is_in_parts()

    def _block(self) -> Dimension:
        """Return how many columns of its windows one task takes."""
        columns = self.columns
        if not isinstance(columns, int) or not self.inner or not self._has_fixed_columns():
            return columns
        wide = -(-columns // (MOST_BLOCKS * LINE)) * LINE
        return max(COLUMNS, wide) if columns >= 2 * COLUMNS else columns

    def _is_in_parts(self) -> bool:
        """Say whether each thread has a part of the result, along the first axis of indices.

        What is put where, and in which order, does not depend on the parts.
        """
        is_static = all(isinstance(n, int) for n in (*self.shape, *self.update_shape))
        if not (is_static and self.inner and self.window.starts and self._is_contiguous()):
            return False
        is_one = self.sizes[self.window.starts[0]] == 1
        is_whole = self.block is self.columns and not self.batch
        large = static_size(self.update_shape) >= 2 * TASK
        return is_one and is_whole and large and static_size((self.columns,)) >= PART_COLUMNS

    def build(self) -> BuiltKernel:
        """Return the kernel."""
        if self.in_parts:
            with self.loop("p", THREADS, "parallel") as p:
                self._part(p)
            return self.finished(THREADS, 1)
        is_cut = self.block is not self.columns
        blocks = -(-self.columns // self.block) if is_cut else 1
        examples = product(tuple(self.update_shape[a] for a in self.batch))
        extent = examples * blocks if product(self.update_shape) != 0 else 0
        with self.loop("p", extent, "parallel") as p:
            self._task(p, blocks)
        size = max(1, static_size(self.update_shape))
        return self.finished(self.extent(extent), max(1, TASK * static_size((extent,)) // size))

    def _task(self, p: ir.Var, blocks: int) -> None:
        """Write what one example and block of columns does."""
        rest: ir.Expr = ir.floordiv(p, blocks)
        for axis in reversed(self.batch):
            length = self.update_shape[axis] or 1
            self.at[axis] = self.let(ir.mod(rest, self.extent(length)), "b", 1)
            rest = ir.floordiv(rest, self.extent(length))
        self.start = self.let(ir.mul(ir.mod(p, blocks), self.extent(self.block)), "base", 1)
        self._along(list(self.serial))

    def _part(self, p: ir.Var) -> None:
        """Write what a thread does: the windows that begin in its part of the result."""
        length = self.extent(self.shape[self.window.starts[0]])
        self.start = ir.index(0)
        bounds = [ir.floordiv(ir.mul(q, length), THREADS) for q in (p, ir.add(p, 1))]
        self.first = self.let(bounds[0], "first", 1)
        self.part_length = self.let(ir.sub(bounds[1], self.first), "part", 1)
        self._along(list(self.serial))

    def _along(self, axes: list[int]) -> None:
        """Write the loops over the windows; of single elements some come at once."""
        if not axes:
            self._one_window()
            return
        length = self.update_shape[axes[0]]
        if len(axes) > 1 or self.inner or not isinstance(length, int) or length < MANY:
            with self.loop("w", length, "serial") as w:
                self.at[axes[0]] = w
                self._along(axes[1:])
            return
        with (
            self.loop("w", length // AT_ONCE, "serial") as w,
            self.loop("u", AT_ONCE, "unroll") as u,
        ):
            self.at[axes[0]] = self.let(ir.add(ir.mul(w, AT_ONCE), u), "w")
            self._one_window()
        if length % AT_ONCE:
            with self.loop("w", length % AT_ONCE, "serial") as w:
                self.at[axes[0]] = self.let(ir.add(w, length // AT_ONCE * AT_ONCE), "w")
                self._one_window()

    def _one_window(self) -> None:
        """Write what is done for one index: find the window, and go through it if it is inside."""
        starts: dict[int, ir.Expr] = {}
        inside: ir.Expr | None = None
        where = tuple(self.at[a] for a in self.outer)
        for component, axis in enumerate(self.window.starts):
            element = self.value(self.indices, (*where, ir.index(component)))
            raw = self.let(ir.convert(element, ir.INDEX), "s")
            room = self.extent(self.shape[axis] - self.sizes[axis])
            starts[axis] = raw
            if self.op.mode is GatherScatterMode.CLIP:
                least = ir.apply("maximum", raw, ir.index(0))
                starts[axis] = self.let(ir.apply("minimum", least, room), "s")
            # Negative numbers are large ones without their sign.
            if self.in_parts and not component:
                within = ir.bitcast(ir.sub(starts[axis], self.first), uint64)
                here = ir.apply("lt", within, ir.bitcast(self.part_length, uint64))
            elif self.op.mode is GatherScatterMode.CLIP:
                continue
            else:
                here = ir.apply("le", ir.bitcast(raw, uint64), ir.bitcast(room, uint64))
            inside = here if inside is None else ir.apply("and", inside, here)
        if inside is None:
            self._within(list(self.inner), starts)
            return
        # A loop of one trip or none: a branch.
        with self.loop("g", ir.apply("select", inside, ir.index(1), ir.index(0)), "serial"):
            self._within(list(self.inner), starts)

    def _within(self, axes: list[int], starts: dict[int, ir.Expr]) -> None:
        """Write the loops over the elements of a window."""
        if not axes:
            self._combine(starts)
            return
        axis, is_last = axes[0], len(axes) == 1
        extent: Dimension | ir.Expr = self.update_shape[axis]
        if is_last and self.block is not self.columns:
            extent = self.block
            if self.columns % self.block:
                left = ir.sub(self.extent(self.columns), self.start)
                extent = self.let(ir.apply("minimum", self.extent(self.block), left), "n", 1)
        kind = "vector" if is_last and self._is_contiguous() else "serial"
        with self.loop("k", extent, kind) as k:
            self.at[axis] = self.let(ir.add(self.start, k), "c") if is_last else k
            self._within(axes[1:], starts)

    def _has_fixed_columns(self) -> bool:
        """Say whether windows that are inside have the same columns, so that blocks never meet."""
        axis = self.window.kept(len(self.shape))[-1]
        return axis not in self.window.starts or self.sizes[axis] == self.shape[axis]

    def _is_contiguous(self) -> bool:
        """Say whether elements along the last axis of a window are next to each other."""
        return self.window.kept(len(self.shape))[-1] == len(self.shape) - 1

    def _combine(self, starts: dict[int, ir.Expr]) -> None:
        """Write the statement that puts one element of an update into the result."""
        ndim, kind = len(self.shape), self.op.kind
        places: list[ir.Expr] = [starts.get(a, ir.index(0)) for a in range(ndim)]
        for a, b in zip(self.window.paired, self.window.paired_indices, strict=True):
            places[a] = self.at[self.outer[b]]
        for a, b in zip(self.window.kept(ndim), self.inner, strict=True):
            places[a] = ir.add(places[a], self.at[b])
        place = tuple(places)
        value = self.value(self.updates, tuple(self.at[a] for a in range(len(self.update_shape))))
        if kind == "set":
            self.emit(ir.Store(self.result, place, value))
            return
        names = _BOOL_COMBINE if is_bool(self.result.dtype) else _COMBINE
        before: ir.Expr = ir.Load(self.result, place)
        self.emit(ir.Store(self.result, place, ir.apply(names[kind], before, value)))


def _var(name: str) -> ir.Var:
    return ir.Var(name, ir.INDEX)
