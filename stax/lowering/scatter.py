"""Scatter: a kernel that writes the operand to the result, and one that puts the updates in.

Updates go in one after the other, in the order of their indices, so with `set` the last one wins
and sums do not depend on threads.  What runs in parallel never meets: examples of a batch, and
blocks of columns of the windows, each of which goes through all updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stax.extent import product
from stax.graph import Constant, Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.lowering.element import length_of, static_size, symbol_var, symbols_of
from stax.operators.index import GatherScatterMode, Scatter
from stax.types import ArrayType, is_bool

# Elements of the operand that one task copies.
BLOCK = 4096
# Columns of a window that one task takes, where windows are at least twice as wide.
COLUMNS = 256
# Elements worth handing to another thread.
TASK = 20_000

_COMBINE = {"add": "add", "mul": "mul", "min": "minimum", "max": "maximum"}
_BOOL_COMBINE = {"add": "or", "mul": "and", "min": "and", "max": "or"}


def scatter_kernels(
    node: Node, sources: Sequence[Node], name: str, labels: Mapping[Node, str]
) -> tuple[BuiltKernel, BuiltKernel]:
    """Return the kernels of a scatter; `sources` are operand, indices and updates in memory."""
    operand, indices, updates = sources
    return (
        _begin(node, operand, f"{name}_begin", labels),
        _Updates(node, indices, updates, name, labels).build(),
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


class _Updates:
    """Builds the kernel that puts updates into the result."""

    def __init__(
        self, node: Node, indices: Node, updates: Node, name: str, labels: Mapping[Node, str]
    ) -> None:
        assert isinstance(node.op, Scatter)
        self.op, self.name = node.op, name
        _, places, source = (x.type for x in node.inputs)
        self.shape, self.update_shape = node.type.shape, source.shape
        self.window = node.op.window
        self.sizes = node.op.sizes(node.type, source)
        self.inner = self.window.inner
        self.outer = self.window.outer(source.ndim)
        self.symbols = symbols_of((*self.shape, *self.update_shape, *places.shape))
        self.result = _buffer(labels[node], node.type)
        # One array may be both, seen with two shapes.
        name_of_indices = f"{labels[indices]}_view1" if indices is updates else labels[indices]
        self.indices = _buffer(name_of_indices, places)
        self.updates = _buffer(labels[updates], source)
        self.values = node, indices, updates
        # Where the loops are, for each axis of the updates.
        self.at: dict[int, ir.Expr] = {}
        self.batch = [self.outer[b] for b in self.window.paired_indices]
        self.serial = [a for a in self.outer if a not in self.batch]
        self.columns = self.update_shape[self.inner[-1]] if self.inner else 1
        self.is_wide = (
            isinstance(self.columns, int)
            and self.columns >= 2 * COLUMNS
            and self._has_fixed_columns()
        )
        self.block = COLUMNS if self.is_wide else self.columns

    def build(self) -> BuiltKernel:
        """Return the kernel."""
        blocks = -(-self.columns // self.block) if self.is_wide else 1
        examples = product(tuple(self.update_shape[a] for a in self.batch))
        extent = examples * blocks if product(self.update_shape) != 0 else 0
        body = tuple(self._task(blocks))
        count = ir.index(length_of(extent))
        loop = ir.For(_var("p0"), count, "parallel", body)
        params = (self.result, self.indices, self.updates)
        symbols = tuple(map(symbol_var, self.symbols))
        kernel = ir.Kernel(self.name, params, symbols, (loop,), (self.result.name,))
        size = max(1, static_size(self.update_shape))
        grain = max(1, TASK * static_size((extent,)) // size)
        return BuiltKernel(kernel, self.values, count, grain)

    def _task(self, blocks: int) -> list[ir.Stmt]:
        """Return what one example and block of columns does."""
        lets: list[ir.Stmt] = []
        rest: ir.Expr = ir.floordiv(_var("p0"), blocks)
        for axis in reversed(self.batch):
            length = length_of(self.update_shape[axis]) or 1
            lets.append(ir.Let(_var(f"b{axis}"), ir.mod(rest, length)))
            rest = ir.floordiv(rest, length)
            self.at[axis] = _var(f"b{axis}")
        start: ir.Expr = ir.mul(ir.mod(_var("p0"), blocks), self.block)
        lets.append(ir.Let(_var("base0"), start))
        for axis in self.serial:
            self.at[axis] = _var(f"w{axis}")
        statements: tuple[ir.Stmt, ...] = tuple(self._one_window())
        for axis in reversed(self.serial):
            extent = ir.index(length_of(self.update_shape[axis]))
            statements = (ir.For(_var(f"w{axis}"), extent, "serial", statements),)
        return [*lets, *statements]

    def _one_window(self) -> list[ir.Stmt]:
        """Return what is done for one index: find the window, and go through it if it is inside."""
        found: list[ir.Stmt] = []
        starts: dict[int, ir.Expr] = {}
        inside: ir.Expr | None = None
        where = tuple(self.at[a] for a in self.outer)
        for component, axis in enumerate(self.window.starts):
            raw = ir.convert(ir.Load(self.indices, (*where, ir.index(component))), ir.INDEX)
            room = ir.index(length_of(self.shape[axis] - self.sizes[axis]))
            start = _var(f"s{axis}")
            starts[axis] = start
            if self.op.mode is GatherScatterMode.CLIP:
                raw = ir.apply("minimum", ir.apply("maximum", raw, ir.index(0)), room)
                found.append(ir.Let(start, raw))
                continue
            found.append(ir.Let(start, raw))
            here = ir.apply("and", ir.apply("ge", start, ir.index(0)), ir.apply("le", start, room))
            inside = here if inside is None else ir.apply("and", inside, here)
        through = self._through_window(starts)
        if inside is None:
            return [*found, *through]
        # A loop of one trip or none: a branch.
        once = ir.apply("select", inside, ir.index(1), ir.index(0))
        return [*found, ir.For(_var("g0"), once, "serial", tuple(through))]

    def _through_window(self, starts: dict[int, ir.Expr]) -> tuple[ir.Stmt, ...]:
        """Return the loops over the elements of a window."""
        within = {a: _var(f"k{a}") for a in self.inner}
        if self.inner:
            last = self.inner[-1]
            within[last] = ir.add(_var("base0"), _var(f"k{last}"))  # type: ignore[assignment]
        self.at.update(within)
        statements: tuple[ir.Stmt, ...] = (self._combine(starts),)
        for axis in reversed(self.inner):
            extent = ir.index(length_of(self.update_shape[axis]))
            is_last = axis == self.inner[-1]
            if is_last and self.is_wide:
                left = ir.sub(ir.index(self.columns), _var("base0"))
                extent = ir.apply("minimum", ir.index(self.block), left)
                if self.columns % self.block == 0:
                    extent = ir.index(self.block)
            kind: ir.LoopKind = "vector" if is_last and self._is_contiguous() else "serial"
            statements = (ir.For(_var(f"k{axis}"), extent, kind, statements),)
        return statements

    def _has_fixed_columns(self) -> bool:
        """Say whether windows that are inside have the same columns, so that blocks never meet."""
        axis = self.window.kept(len(self.shape))[-1]
        return axis not in self.window.starts or self.sizes[axis] == self.shape[axis]

    def _is_contiguous(self) -> bool:
        """Say whether elements along the last axis of a window are next to each other."""
        return self.window.kept(len(self.shape))[-1] == len(self.shape) - 1

    def _combine(self, starts: dict[int, ir.Expr]) -> ir.Stmt:
        """Return the statement that puts one element of an update into the result."""
        ndim, kind = len(self.shape), self.op.kind
        place: list[ir.Expr] = [starts.get(a, ir.index(0)) for a in range(ndim)]
        for a, b in zip(self.window.paired, self.window.paired_indices, strict=True):
            place[a] = self.at[self.outer[b]]
        for a, b in zip(self.window.kept(ndim), self.inner, strict=True):
            place[a] = ir.add(place[a], self.at[b])
        update = tuple(self.at[a] for a in range(len(self.update_shape)))
        value: ir.Expr = ir.Load(self.updates, update)
        if kind != "set":
            names = _BOOL_COMBINE if is_bool(self.result.dtype) else _COMBINE
            value = ir.apply(names[kind], ir.Load(self.result, tuple(place)), value)
        return ir.Store(self.result, tuple(place), value)


def _buffer(name: str, type_: ArrayType) -> ir.Buffer:
    return ir.Buffer(name, type_.dtype, tuple(map(length_of, type_.shape)))


def _var(name: str) -> ir.Var:
    return ir.Var(name, ir.INDEX)
