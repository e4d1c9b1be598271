"""Running sums, products, maxima and minima: one kernel, in which each element follows the last.

Along memory the dependency from element to element sets the pace, so one task takes several rows
at a time, each with a running value of its own.  Along another axis the running values of a block
of columns are kept in scratch and vectors go across it.  Elements are combined strictly in order,
which is what `evaluate` does, so the results are the same bit for bit.  Where lengths are symbolic
and there is no block of known size, a task takes one row.
"""

from __future__ import annotations

from collections.abc import Mapping

from stax.extent import Dimension, product
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.lowering.element import length_of, static_size, symbol_var, symbols_of
from stax.lowering.schedule import column_block
from stax.operators.reduce import Cumulative
from stax.types import is_bool

# Rows that a task takes side by side: enough to hide the latency of an addition.
ROWS = 8
# Elements worth handing to another thread.
TASK = 30_000
# Maxima and minima of truth values.
_BOOL_OPS = {"maximum": "or", "minimum": "and"}


def running_kernel(node: Node, source: Node, name: str, labels: Mapping[Node, str]) -> BuiltKernel:
    """Return the kernel of a cumulative op that reads `source`, the value that is in memory."""
    return _Running(node, source, name, labels).build()


class _Running:
    """The kernel for an array seen as (outer, length, inner), running along the middle axis."""

    def __init__(self, node: Node, source: Node, name: str, labels: Mapping[Node, str]) -> None:
        op, shape, dtype = node.op, node.type.shape, node.type.dtype
        assert isinstance(op, Cumulative)
        self.name = name
        self.values = source, node
        self.outer = product(shape[: op.axis])
        self.length = shape[op.axis]
        self.inner = product(shape[op.axis + 1 :])
        self.symbols = tuple(map(symbol_var, symbols_of(shape)))
        self.reverse = op.reverse
        self.combine = _BOOL_OPS.get(op.combine, op.combine) if is_bool(dtype) else op.combine
        self.wide = op.wide(dtype)
        extents = tuple(map(length_of, (self.outer, self.length, self.inner)))
        self.source = ir.Buffer(labels[source], dtype, extents)
        self.result = ir.Buffer(labels[node], dtype, extents)
        self.start = ir.Const(ir.identity_value(self.combine, self.wide), self.wide)

    def build(self) -> BuiltKernel:
        """Return the kernel."""
        extent, block, body = self._body()
        points = block * static_size((self.length,))
        count = ir.index(length_of(extent))
        loop = ir.For(_var("p0"), count, "parallel", body)
        params = (self.source, self.result)
        kernel = ir.Kernel(self.name, params, self.symbols, (loop,), (self.result.name,))
        return BuiltKernel(kernel, self.values, count, max(1, TASK // max(1, points)))

    def _body(self) -> tuple[Dimension, int, tuple[ir.Stmt, ...]]:
        """Return the extent of the parallel loop, the rows that a task takes, and its body."""
        outer, inner = self.outer, self.inner
        if outer * self.length * inner == 0:
            return 0, 1, self._rows(1)
        if not isinstance(inner, int) or (inner == 1 and not isinstance(outer, int)):
            return outer * inner, 1, self._rows(1)
        if inner == 1:
            assert isinstance(outer, int)
            block = min(ROWS, outer)
            return -(-outer // block), block, self._rows(block)
        block = column_block(inner)
        blocks = -(-inner // block)
        return outer * blocks, block, self._columns(block, blocks)

    def _place(self) -> ir.Expr:
        """Return the place along the running axis in step j0."""
        step, last = _var("j0"), ir.sub(ir.index(length_of(self.length)), 1)
        return ir.sub(last, step) if self.reverse else step

    def _next(self, running: ir.Expr, element: ir.Expr) -> ir.Expr:
        return ir.apply(self.combine, running, ir.convert(element, self.wide))

    def _rows(self, block: int) -> tuple[ir.Stmt, ...]:
        """Run along `block` rows side by side."""
        first, at, zero = _var("base0"), _var("i0"), _var("x0")
        running = [ir.Var(f"acc{k}", self.wide) for k in range(block)]
        elements = [ir.Var(f"v{k}", self.source.dtype) for k in range(block)]
        places = [(ir.add(first, k), at, zero) for k in range(block)]
        # All rows are loaded before one is stored: rows a multiple of 4 KiB apart look like the
        # same address to the processor, which then makes a load wait for the store before it.
        steps: list[ir.Stmt] = [ir.Let(at, self._place())]
        for element, place in zip(elements, places, strict=True):
            steps.append(ir.Let(element, ir.Load(self.source, place)))
        for total, element in zip(running, elements, strict=True):
            steps.append(ir.Set(total, self._next(total, element)))
        for total, place in zip(running, places, strict=True):
            steps.append(ir.Store(self.result, place, ir.convert(total, self.result.dtype)))
        across = ir.index(length_of(self.inner))
        row = _block_start(_var("p0"), block, self.outer)
        return (
            ir.Let(first, row if self.inner == 1 else ir.floordiv(row, across)),
            ir.Let(zero, ir.index(0) if self.inner == 1 else ir.mod(row, across)),
            *(ir.Init(total, self.start) for total in running),
            ir.For(_var("j0"), ir.index(length_of(self.length)), "serial", tuple(steps)),
        )

    def _columns(self, block: int, blocks: int) -> tuple[ir.Stmt, ...]:
        """Run down a block of columns."""
        scratch = ir.Buffer("running0", self.wide, (block,))
        first, row, at, x = _var("base0"), _var("o0"), _var("i0"), _var("x0")
        total, place = ir.Var("v0", self.wide), (row, at, ir.add(first, x))
        step = (
            ir.Let(total, self._next(ir.Load(scratch, (x,)), ir.Load(self.source, place))),
            ir.Store(scratch, (x,), total),
            ir.Store(self.result, place, ir.convert(total, self.result.dtype)),
        )
        down = (
            ir.Let(at, self._place()),
            ir.For(x, ir.index(block), "vector", step),
        )
        begin = (ir.Store(scratch, (x,), self.start),)
        return (
            ir.Alloc(scratch),
            ir.Let(first, _block_start(ir.mod(_var("p0"), blocks), block, self.inner)),
            ir.Let(row, ir.floordiv(_var("p0"), blocks)),
            ir.For(x, ir.index(block), "vector", begin),
            ir.For(_var("j0"), ir.index(length_of(self.length)), "serial", down),
        )


def _block_start(number: ir.Expr, block: int, length: Dimension) -> ir.Expr:
    """Return where a block begins; the last is moved back to end with the axis.

    Some elements are then computed twice, with the same result.
    """
    start = ir.mul(number, block)
    if block == 1 or not isinstance(length, int) or length % block == 0:
        return start
    return ir.apply("minimum", start, ir.index(length - block))


def _var(name: str) -> ir.Var:
    return ir.Var(name, ir.INDEX)
