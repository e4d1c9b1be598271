"""From a scheduled region to a kernel in loop IR.

A `KernelBuilder` walks the stages of a schedule and asks for values at indices.  `value` is the
heart: the element of a node at an index is a local of the nest, an element of a stored array, or
what the op's `lower` rule makes of its operands.  Each value is named once, in the outermost loop
in which everything it needs is known, so what does not depend on a loop stands outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stax.errors import InternalError
from stax.extent import Dimension, Extent
from stax.graph import Constant, Node
from stax.lowering import loop_ir as ir, sums
from stax.lowering.columns import columns, identity_of
from stax.lowering.element import (
    SYMBOL_PREFIX,
    ElementBuilder,
    Index,
    Operand,
    canonical,
    is_unit,
    spread,
    static_size,
    symbol_var,
)
from stax.lowering.fuse import Fusion, is_free
from stax.lowering.maps import map_loops
from stax.lowering.paired import Pairs, nest_shape
from stax.lowering.schedule import SHORT_AXIS, Layout, Schedule
from stax.lowering.short_rows import short_rows
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.reshape import Reshape
from stax.types import Shape, accumulator


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel, the value behind each of its buffers, and how its parallel loop is handed out.

    `over` names pairs of buffers, one read and one written, that may be the same memory as it is.
    """

    kernel: ir.Kernel
    values: tuple[Node, ...]
    extent: ir.Expr
    grain: int
    over: tuple[tuple[str, str], ...] = ()


@dataclass
class _Scope:
    """An open loop body: its statements, and the values that are named in it."""

    statements: list[ir.Stmt] = field(default_factory=list)
    values: dict[Any, ir.Expr] = field(default_factory=dict)


class KernelBuilder(ElementBuilder):
    """Builds one kernel, which computes each element `once`, or no matter how often."""

    def __init__(
        self,
        fusion: Fusion,
        plan: Schedule,
        name: str,
        labels: dict[Node, str],
        once: bool = False,
    ) -> None:
        self.once = once
        self.fusion = fusion
        self.plan = plan
        self.region = plan.region
        self.name = name
        self.labels = labels
        self.buffers: dict[Any, tuple[ir.Buffer, Node]] = {}
        self.stored_here: set[str] = set()
        self.scopes = [_Scope()]
        self.depth: dict[str, int] = {}
        self.axis_index: dict[int, ir.Expr] = {}
        self.ready: dict[Node, Callable[[], ir.Expr]] = {}
        # What a repeating map reads of values that it has laid out in scratch.
        self.laid_out: dict[Node, ir.Expr] = {}
        # Values of which blocks are laid out in scratch, the axes they are read at, and how.
        self.staged: list[tuple[Node, tuple[int, ...], Callable[[], ir.Expr]]] = []
        self.current = 0
        self.count = 0

    # --- naming and scopes ---

    def fresh(self, prefix: str) -> str:
        """Return a name that is not taken."""
        self.count += 1
        return f"{prefix}{self.count}"

    def emit(self, statement: ir.Stmt) -> None:
        """Append a statement to the innermost open loop."""
        self.scopes[-1].statements.append(statement)

    @contextmanager
    def loop(self, prefix: str, extent: Dimension | ir.Expr, kind: Any) -> Iterator[ir.Var]:
        """Open a loop for a `with` block and give its variable."""
        var = ir.Var(self.fresh(prefix), ir.INDEX)
        self.scopes.append(_Scope())
        self.depth[var.name] = len(self.scopes) - 1
        before, self.current = self.current, len(self.scopes) - 1
        yield var
        self.current = before
        body = self.scopes.pop().statements
        length = self.extent(extent) if isinstance(extent, int | Extent) else extent
        self.emit(ir.For(var, length, kind, tuple(body)))

    def depth_of(self, *expressions: ir.Expr | None) -> int:
        """Return the innermost loop that an expression depends on, the parallel one at least."""
        depth = self.depth
        pending: list[ir.Node] = [e for e in expressions if e is not None]
        deepest, seen = 1, set()
        while pending:
            e = pending.pop()
            if type(e) is ir.Var:
                deepest = max(deepest, depth.get(e.name, 0))
            elif type(e) is not ir.Const and id(e) not in seen:
                seen.add(id(e))
                pending += ir.children(e)
        return deepest

    def let(self, value: ir.Expr, prefix: str = "v", depth: int | None = None) -> ir.Expr:
        """Name a value in the loop where it belongs."""
        if isinstance(value, ir.Var | ir.Const):
            return value
        at = self.depth_of(value) if depth is None else depth
        var = ir.Var(self.fresh(prefix), value.dtype)
        self.depth[var.name] = at
        self.scopes[at].statements.append(ir.Let(var, value))
        return var

    def named(self, x: ir.Expr) -> ir.Expr:
        return self.let(x)

    # --- memory ---

    def buffer(self, node: Node) -> ir.Buffer:
        """Return the buffer through which a stored value is seen with the shape of `node`."""
        root, shape = self.fusion.root_of(node), node.type.shape
        is_made = isinstance(node.op, Pairs) and self.fusion.home.get(node) is self.region
        shape = shape[:-1] if is_made else shape
        lengths: tuple[Any, ...] = tuple(
            self.extent(n) if isinstance(n, Extent) else n for n in shape
        )
        if self.plan.is_flat and canonical(shape):
            lengths = (
                static_size(shape)
                if all(isinstance(n, int) for n in shape)
                else self.points(shape),
            )
        lengths = (*lengths, 2) if is_made else lengths
        key = (root, lengths)
        if key not in self.buffers:
            label = self.labels[root]
            taken = sum(1 for _, r in self.buffers.values() if r is root)
            name = label if not taken else f"{label}_view{taken}"
            self.buffers[key] = ir.Buffer(name, node.type.dtype, lengths), root
        return self.buffers[key][0]

    def points(self, shape: Sequence[Dimension]) -> ir.Expr:
        """Return the number of elements of a shape."""
        total: ir.Expr = ir.index(1)
        for extent in shape:
            total = ir.mul(total, self.extent(extent))
        return total

    def store(self, node: Node) -> None:
        """Store the value of `node` at the place the open loops are at."""
        buffer = self.buffer(node)
        self.stored_here.add(buffer.name)
        index = self.place(node)
        if isinstance(node.op, Pairs):
            values = [self.operand(x, None)(index) for x in node.inputs]
            for which, value in enumerate(values):
                self.emit(ir.Store(buffer, (*index, ir.index(which)), value))
            return
        self.emit(ir.Store(buffer, index, self.value(node, index)))

    # --- values ---

    def place(self, node: Node) -> Index:
        """Return the index of `node` that the open loops are at."""
        if self.plan.is_flat:
            shape = nest_shape(node)
            return (self.axis_index[0],) if canonical(shape) else spread(shape, ())
        full = self.region.holds_full(node)
        reduced = () if full else self.region.axes or ()
        axes = [a for a in range(len(self.region.shape)) if a not in reduced]
        if any(a not in self.axis_index for a in axes):
            return ()
        return spread(nest_shape(node), [self.axis_index[a] for a in axes])

    def value(self, node: Node, index: Index, mask: ir.Expr | None = None) -> ir.Expr:
        """Return the element of `node` at `index`; where `mask` is false it may be anything."""
        if is_free(node):
            return self._free(node, index)
        key, depth = (node, index, mask), self.depth_of(*index, mask)
        for scope in self.scopes[: depth + 1]:
            if key in scope.values:
                return scope.values[key]
        is_local = self.fusion.home.get(node) is self.region and index == self.place(node)
        if is_local and node in self.ready:
            return self.ready[node]()
        before, self.current = self.current, depth
        staged = self._staged(node, index) if self.staged and not is_local else None
        if staged is not None:
            result = staged
        elif not is_local and self.fusion.in_memory(node, self.region):
            result = ir.Load(self.buffer(node), self._in_memory(node, index), mask)
        elif isinstance(node.op, Reduction) and is_local:
            raise InternalError(f"build: {node!r} is read before its loop.")
        else:
            result = node.op.lower(self, index, *(self.operand(x, mask) for x in node.inputs))
        result = self.let(result)
        self.current = before
        self.scopes[max(depth, self.depth_of(result))].values[key] = result
        return result

    def element_at(self, node: Node, axes: Sequence[int], place: Mapping[int, ir.Expr]) -> ir.Expr:
        """Return the element of `node`, read at some axes, where `place` and open loops are."""
        given = iter([place[a] if a in place else self.axis_index[a] for a in axes])
        lengths = node.type.shape
        return self.value(node, tuple(ir.index(0) if is_unit(n) else next(given) for n in lengths))

    def _staged(self, node: Node, index: Index) -> ir.Expr | None:
        """Return an element of what is laid out in scratch, if it is read where that holds it."""
        pairs = zip(index, node.type.shape, strict=True)
        place = [component for component, length in pairs if not is_unit(length)]
        for source, axes, read in self.staged:
            if self.fusion.root_of(node) is self.fusion.root_of(source):
                wanted = [self.axis_index.get(a) for a in axes]
                if place == wanted:
                    return read()
        return None

    def _in_memory(self, node: Node, index: Index) -> Index:
        """Return an index as the buffer of `node` takes it, which is flat in a flat map."""
        if not self.plan.is_flat or len(index) < 2 or not canonical(node.type.shape):
            return index
        return (ir.flat_index(node.type.shape, index),)

    def operand(self, node: Node, outer_mask: ir.Expr | None) -> Operand:
        """Return the operand of a rule that reads `node`."""

        def read(index: Index, mask: ir.Expr | None) -> ir.Expr:
            if outer_mask is not None:
                mask = outer_mask if mask is None else self.both(mask, outer_mask)
            if isinstance(mask, ir.Const):
                if not mask.value:
                    return ir.Const(0, node.type.dtype)
                mask = None
            # What is read at one fixed place, such as a key, is not laid out as the map is.
            is_fixed = all(isinstance(i, ir.Const) for i in index)
            x = self._flat_source(node) if self.plan.is_flat and not is_fixed else node
            if self.laid_out and (root := self.fusion.root_of(x)) in self.laid_out:
                return self.laid_out[root]
            if x is not node:
                index = self.place(x) if canonical(x.type.shape) else spread(x.type.shape, ())
            named = tuple(self.let(i, "j") if isinstance(i, ir.Apply) else i for i in index)
            mask = self.let(mask, "m") if mask is not None else None
            return self.value(x, named, mask)

        return Operand(node.type, read)

    def _flat_source(self, node: Node) -> Node:
        """Look through the reshapes and broadcasts of a flat map, which change no place."""
        while (
            isinstance(node.op, Broadcast | Reshape)
            and node not in self.fusion.home
            and not self.fusion.in_memory(node, self.region)
        ):
            node = node.inputs[0]
        return node

    def _free(self, node: Node, index: Index) -> ir.Expr:
        if isinstance(node.op, Constant):
            return ir.Const(node.op.value, node.type.dtype)
        return self.let(node.op.lower(self, index))

    def reduce(
        self, kind: str, extents: Sequence[Dimension], body: Callable[..., Any], dtype: np.dtype
    ) -> ir.Expr:
        """Combine `body` over `extents` in loops inside the loop that is being worked on."""
        # Values that need this loop's variable must land inside it, whatever loops are open.
        held = self.scopes[self.current + 1 :]
        del self.scopes[self.current + 1 :]
        total = ir.Var(self.fresh("acc"), dtype)
        self.depth[total.name] = self.current
        self.emit(ir.Init(total, ir.Const(identity_of(kind, dtype), dtype)))
        self._nested(tuple(extents), [], lambda r: self.emit(ir.Update(kind, total, body(r))))
        self.scopes += held
        return total

    def _nested(self, extents: Shape, index: list[ir.Expr], body: Callable[..., None]) -> None:
        if not extents:
            body(tuple(index))
            return
        is_short = all(isinstance(n, int) for n in extents) and static_size(extents) <= SHORT_AXIS
        with self.loop("r", extents[0], "unroll" if is_short else "serial") as r:
            self._nested(extents[1:], [*index, r], body)

    # --- kernels ---

    def build(self) -> BuiltKernel:
        """Return the kernel of the region."""
        match self.plan.layout:
            case Layout.ROWS:
                extent, inner = self._rows()
            case Layout.SHORT_ROWS:
                extent, inner = short_rows(self)
            case Layout.COLUMNS:
                extent, inner = columns(self)
            case _:
                extent, inner = map_loops(self)
        return self.finished(extent, self.plan.grain(inner))

    def finished(self, extent: ir.Expr, grain: int) -> BuiltKernel:
        """Return the kernel of what has been written, whose parallel loop has that extent."""
        buffers = list(self.buffers.values())
        lengths = (e for b, _ in buffers for e in b.shape if not isinstance(e, int))
        symbols = sorted(set(_symbols((*self.scopes[0].statements, *lengths))))
        kernel = ir.Kernel(
            self.name,
            tuple(b for b, _ in buffers),
            tuple(symbol_var(s) for s in symbols),
            tuple(self.scopes[0].statements),
            tuple(b.name for b, _ in buffers if b.name in self.stored_here),
        )
        return BuiltKernel(kernel, tuple(n for _, n in buffers), extent, grain)

    @contextmanager
    def parallel(
        self, axes: Sequence[int], blocks: Dimension | ir.Expr = 1
    ) -> Iterator[tuple[ir.Expr, ir.Expr]]:
        """Open the parallel loop over `axes` and then `blocks`; gives the block and the extent."""
        shape = [self.region.shape[a] for a in axes]
        count = self.extent(blocks) if isinstance(blocks, int | Extent) else blocks
        extent = ir.mul(self.points(shape), count)
        with self.loop("p", extent, "parallel") as p:
            block = self.let(ir.mod(p, count), "b", 1) if ir.static(count) != 1 else ir.index(0)
            rest = ir.floordiv(p, count)
            for a, length in reversed(list(zip(axes, map(self.extent, shape), strict=True))):
                is_first = a == axes[0]
                self.axis_index[a] = self.let(rest if is_first else ir.mod(rest, length), "i", 1)
                rest = ir.floordiv(rest, length)
            yield block, extent

    def block_start(self, last: Any, block: int, b: ir.Expr) -> tuple[ir.Expr, Any]:
        """Return where a block starts and its length.

        The last block of a known length is moved back to end with the axis; it computes some
        elements twice, with the same result, and needs no code of its own.  It is shorter where
        the elements are computed once.
        """
        if isinstance(last, int) and last == block:
            return ir.index(0), block
        if isinstance(last, int) and not (self.once and last % block):
            start = ir.mul(b, block)
            if last % block:
                start = ir.apply("minimum", start, ir.index(last - block))
            return self.let(start, "base"), block
        start = self.let(ir.mul(b, block), "base")
        length = self.extent(last) if isinstance(last, Extent) else last
        rest = ir.apply("minimum", ir.index(block), ir.sub(length, start))
        return start, self.let(rest, "rest")

    def store_all(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            self.store(node)

    # --- by rows ---

    def _rows(self) -> tuple[ir.Expr, int]:
        plan, shape = self.plan, self.region.shape
        reduced = list(self.region.axes or ())
        outer = [a for a in range(len(shape)) if a not in reduced]
        inner_shape = tuple(shape[a] for a in reduced)
        scratch = self._allocate_rows(inner_shape)
        with self.parallel(outer) as (_, extent):
            for buffer in scratch.values():
                self.emit(ir.Alloc(buffer))
            for stage in plan.stages:
                self.row_stage(stage, reduced, scratch)
            self.store_all(plan.outer_targets())
        return extent, static_size(inner_shape)

    def _allocate_rows(self, inner: tuple[Dimension, ...]) -> dict[Node, ir.Buffer]:
        """Return scratch for the values that are kept and not stored anyway."""
        return {
            n: ir.Buffer(self.fresh("row"), n.type.dtype, inner)  # type: ignore[arg-type]
            for n in self.plan.kept
            if n not in self.region.targets
        }

    def row_stage(self, stage: int, reduced: list[int], scratch: dict[Node, ir.Buffer]) -> None:
        """One pass along the row."""
        plan = self.plan
        reductions, targets = plan.reductions(stage), plan.full_targets(stage)
        kept = [n for n, first in plan.kept.items() if first == stage and n in scratch]
        if not reductions and not targets:
            return
        found = None
        if plan.layout is Layout.ROWS and any(map(sums.is_sum, reductions)):
            lengths = [self.region.shape[a] for a in reduced]
            found = sums.cut(lengths, sums.ROW_CHUNK, plan.work <= sums.COPIED)
        totals = [sums.Total(self, n, found is not None) for n in reductions]

        def body() -> None:
            for node in kept:
                index = tuple(self.axis_index[a] for a in reduced)
                self.emit(ir.Store(scratch[node], index, self.value(node, self.place(node))))
            for total in totals:
                total.take(self.term(total.node))
            self.store_all(targets)

        self._row_loops(0, reduced, body, found, totals)
        for total in totals:
            self.finish(total.node, total.result())
        for node in [*kept, *(n for n in targets if n in plan.kept)]:
            self.keep(node, scratch.get(node), reduced)

    def _row_loops(
        self,
        number: int,
        axes: list[int],
        body: Callable[[], None],
        cut: sums.Cut | None,
        totals: Sequence[sums.Total],
    ) -> None:
        """Write the loops along `axes` from that of a number on, one of which may be cut."""
        if number == len(axes):
            body()
            return
        length, is_last = self.region.shape[axes[number]], number + 1 == len(axes)
        is_short = self.plan.layout is Layout.SHORT_ROWS
        kind = "unroll" if is_short else "vector" if is_last else "serial"

        def steps(start: ir.Expr, count: Dimension) -> None:
            with self.loop("x" if is_last else "y", count, kind) as x:
                self.axis_index[axes[number]] = self.let(ir.add(start, x), "i")
                self._row_loops(number + 1, axes, body, cut, totals)
                del self.axis_index[axes[number]]

        if cut is None or cut.loop != number or not isinstance(length, int):
            steps(ir.index(0), length)
            return
        with self.loop("c", length // cut.steps, "serial") as c, sums.chunk(totals):
            steps(ir.mul(c, cut.steps), cut.steps)
        if length % cut.steps:
            with sums.chunk(totals):
                steps(ir.index(length - length % cut.steps), length % cut.steps)

    def keep(self, node: Node, buffer: ir.Buffer | None, reduced: list[int]) -> None:
        """From here on, read `node` back from where it was written."""

        def read() -> ir.Expr:
            if buffer is None:
                return self.let(ir.Load(self.buffer(node), self.place(node)))
            return self.let(ir.Load(buffer, tuple(self.axis_index[a] for a in reduced)))

        self.ready[node] = read

    def begin(self, node: Node) -> ir.Var:
        """Begin the running value of a reduction."""
        kind, dtype = node.op.combine, accumulator(node.type.dtype)  # type: ignore[attr-defined]
        total = ir.Var(self.fresh("acc"), dtype)
        self.depth[total.name] = len(self.scopes) - 1
        self.emit(ir.Init(total, ir.Const(identity_of(kind, dtype), dtype)))
        return total

    def term(self, node: Node) -> ir.Expr:
        """Return the element that a reduction takes in at the place the loops are at."""
        x = node.inputs[0]
        element = self.operand(x, None)(self._reduced_place(x))
        return ir.convert(element, accumulator(node.type.dtype))

    def _reduced_place(self, x: Node) -> Index:
        return spread(x.type.shape, [self.axis_index[a] for a in range(len(self.region.shape))])

    def finish(self, node: Node, total: ir.Expr) -> None:
        """Take a reduction's result as its value from here on."""
        result = self.let(ir.convert(total, node.type.dtype))
        self.ready[node] = lambda: result


def _symbols(nodes: Sequence[Any]) -> Iterator[str]:
    """Yield the names of the symbolic lengths in statements and expressions."""
    for node in ir.walk(*nodes):
        if isinstance(node, ir.Var) and node.name.startswith(SYMBOL_PREFIX):
            yield node.name.removeprefix(SYMBOL_PREFIX)
