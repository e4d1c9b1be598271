"""Reducing in two steps what one loop could not do well.

A reduction with few results has few independent rows, so one processor would walk all of memory,
and results that are a few columns fill no vector.  Such a reduction is cut: the reduced axis of
length N becomes (chunks, length), each chunk is reduced by itself, and then the chunks.  A few
columns are first laid side by side, `group` rows as one, so that a row is some vectors wide.  What
the cut leaves over is reduced apart and joined at the end.

What is reduced should not be stored first, so the cut is taken to the operands: an element-wise
value that only cut reductions read is computed in the new shape (*folded*) and nowhere else.

How a reduction is cut is a function of shapes alone, hence so is the order of its terms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.extent import Dimension
from stax.graph import Constant, Graph, Node
from stax.lowering.decisions import decided
from stax.lowering.element import is_unit
from stax.op import Op
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select, convert
from stax.operators.reshape import reshape
from stax.operators.shape import slice_in_dim
from stax.trace import Proxy, Trace, bind, full
from stax.types import ArrayType, Shape, accumulator
from stax.verify import verified

# A reduction to fewer rows than this is cut when it reads at least that many elements.
FEW_ROWS = 8
MANY_ELEMENTS = 1 << 15
# From this many columns on, blocks of columns are enough to do at the same time.
FEW_COLUMNS = 128
# Columns side by side, at least and at most: a few vectors, a multiple of any vector.
NARROW, VECTOR = 32, 16
CHUNKS = 64
# Lengths that are no multiple of CHUNKS are cut without a rest into a number of chunks near it.
CHUNK_RANGE = range(32, 129)
# A last axis at least this long is reduced by itself first.
LONG = 64

_POINTWISE = (Elementwise, Select, Convert, IntegerPow)


@dataclass(frozen=True, eq=False)
class Copy(Op):
    """The operand in memory of its own."""

    name: ClassVar[str] = "copy"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]

    def evaluate(self, *arrays: Any) -> Any:
        return arrays[0].copy()

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


@dataclass(frozen=True)
class Fold:
    """A cut of the axes `first` to `last` of arrays of one `shape`, which are read as one."""

    shape: Shape
    first: int
    last: int
    chunks: int
    length: int
    group: int = 1

    @property
    def total(self) -> int:
        """The length of the cut axes taken as one."""
        return math.prod(self.shape[self.first : self.last + 1])  # type: ignore[arg-type]

    @property
    def covered(self) -> int:
        """How much of it the chunks hold; the rest is reduced apart."""
        return self.chunks * self.length * self.group

    @property
    def tail(self) -> Shape:
        """The axes after the cut ones."""
        return self.shape[self.last + 1 :]

    @property
    def merged(self) -> Shape:
        """The shape with the cut axes as one."""
        return (*self.shape[: self.first], self.total, *self.tail)

    @property
    def folded(self) -> Shape:
        """The shape of what the chunks hold."""
        head = (*self.shape[: self.first], self.chunks, self.length)
        return (*head, _size(self.tail) * self.group) if self.group > 1 else (*head, *self.tail)

    def part(self, x: Any, is_rest: bool) -> Any:
        """Return what the chunks hold of an array of the whole shape, or what they leave over."""
        # A slice of rows laid end to end is still a stretch of memory; one of rows is not.
        width = _size(self.tail) if self.group > 1 else 1
        merged = self.merged if width == 1 else (*self.shape[: self.first], self.total * width)
        end = self.covered * width
        start, limit = (end, None) if is_rest else (0, end)
        found = slice_in_dim(reshape(x, merged), start, limit, axis=self.first)
        return reshape(found, self.part_shape(is_rest))

    def broadcast(self, op: Broadcast, x: Any, is_rest: bool) -> Any:
        """Return that part of `op` applied to `x`: a part of `x`, broadcast, where it can be."""
        axes = [a for a, n in enumerate(x.type.shape) if not is_unit(n)]
        wide = [op.broadcast_dimensions[a] for a in axes]
        crossing = [d for d in wide if self.first <= d <= self.last]
        if self.group > 1 and wide and not is_rest:
            return self._side_by_side(op, x, wide)
        if (self.group > 1 or self.first < self.last) and crossing:
            return self.part(bind(op, x), is_rest)
        x = reshape(x, tuple(x.type.shape[a] for a in axes))
        moved = 0 if is_rest else 1
        places: list[int] = []
        for d in wide:
            is_cut = d == self.first and crossing
            places += [d, d + moved][: 1 + moved] if is_cut else [self._moved(d, is_rest)]
        if crossing:
            x = self._cut(x, wide.index(self.first), is_rest)
        return bind(Broadcast(self.part_shape(is_rest), tuple(places)), x)

    def _side_by_side(self, op: Broadcast, x: Any, wide: list[int]) -> Any:
        """Broadcast columns to rows of `group` times as many, which are stored for that."""
        if any(d <= self.last for d in wide):
            return self.part(bind(op, x), False)
        x = reshape(x, tuple(n for n in x.type.shape if not is_unit(n)))
        tiled = bind(Broadcast((self.group, *self.tail), tuple(d - self.last for d in wide)), x)
        row = bind(Copy(), reshape(tiled, self.folded[-1:]))
        return bind(Broadcast(self.folded, (len(self.folded) - 1,)), row)

    def _moved(self, axis: int, is_rest: bool) -> int:
        """Return where an axis that is not cut is in a part."""
        if axis < self.first:
            return axis
        return axis - (self.last - self.first) + (not is_rest)

    def _cut(self, x: Any, axis: int, is_rest: bool) -> Any:
        """Return a part of an array along one axis that is cut as this one."""
        shape = x.type.shape
        return Fold(shape, axis, axis, self.chunks, self.length).part(x, is_rest)

    def part_shape(self, is_rest: bool) -> Shape:
        """Return the shape of a part."""
        if not is_rest:
            return self.folded
        return (*self.shape[: self.first], self.total - self.covered, *self.tail)


def fold_of(node: Node, may_group: bool = True) -> Fold | None:
    """Return how a reduction is cut, or None if it is not."""
    op, shape = node.op, node.inputs[0].type.shape
    assert isinstance(op, Reduction)
    if not all(isinstance(n, int) for n in shape) or _size(shape) < MANY_ELEMENTS:
        return None
    last = max(a for a in op.axes if not is_unit(shape[a]))
    first = last
    while first - 1 in op.axes:
        first -= 1
    if any(a < first and not is_unit(shape[a]) for a in op.axes):
        return None
    rows, columns = _size(shape[:first]), _size(shape[last + 1 :])
    if rows >= FEW_ROWS or columns >= FEW_COLUMNS:
        return None
    total, group = _size(shape[first : last + 1]), 1
    if 1 < columns < VECTOR and may_group:
        step = VECTOR // math.gcd(VECTOR, columns)
        group = step * max(1, -(-NARROW // (step * columns)))
    chunks, length = _chunks(total // group)
    return Fold(shape, first, last, chunks, length, group) if length > 1 else None


def _size(shape: tuple[Dimension, ...]) -> int:
    return math.prod(shape)  # type: ignore[arg-type]


def _chunks(total: int) -> tuple[int, int]:
    """Return into how many chunks `total` is cut, and their length."""
    wanted = sorted(CHUNK_RANGE, key=lambda n: abs(n - CHUNKS))
    chunks = next((n for n in wanted if total % n == 0), CHUNKS)
    return chunks, total // chunks


def split_reductions(graph: Graph) -> Graph:
    """Return `graph` with reductions cut where that is faster."""
    graph = _by_axes(graph)
    cuts = {n: fold_of(n) for n in graph.nodes if isinstance(n.op, Reduction)}
    if not any(cuts.values()):
        return graph
    with Trace(graph.name, "split") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        rewriter = _Rewriter(graph, _chosen(graph, cuts), args)
        result = trace.finish(rewriter.run(trace))
    return verified(result, "split")


class _Rewriter:
    """Writes a graph with its cuts: `values` are whole, `parts` those that are folded."""

    def __init__(self, graph: Graph, cuts: dict[Node, Fold], args: list[Proxy]) -> None:
        self.graph = graph
        self.cuts = cuts
        self.folded = _folded(graph, cuts)
        self.values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
        self.parts: dict[tuple[Node, bool], Any] = {}

    def run(self, trace: Trace) -> list[Any]:
        for node in self.graph.nodes:
            trace.source, trace.scope = node.source, node.scope
            if node in self.cuts:
                self.values[node] = self._reduction(node, self.cuts[node])
            elif node in self.folded:
                fold = self.folded[node]
                for is_rest in (False, True)[: 1 + (fold.covered < fold.total)]:
                    inputs = [self._part(x, fold, is_rest) for x in node.inputs]
                    self.parts[node, is_rest] = bind(node.op, *inputs)
            else:
                self.values[node] = bind(node.op, *(self.values[x] for x in node.inputs))
        trace.source, trace.scope = None, None
        return [self.values[x] for x in self.graph.outputs]

    def _part(self, x: Node, fold: Fold, is_rest: bool) -> Any:
        if (x, is_rest) in self.parts:
            return self.parts[x, is_rest]
        if isinstance(x.op, Constant):
            shape = fold.part_shape(is_rest) if x.type.shape else ()
            return full(shape, x.op.value, x.type.dtype, x.type.weak)
        if not x.type.shape:
            return self.values[x]
        if isinstance(x.op, Broadcast):
            return fold.broadcast(x.op, self.values[x.inputs[0]], is_rest)
        return fold.part(self.values[x], is_rest)

    def _reduction(self, node: Node, fold: Fold) -> Any:
        """Reduce the chunks, and what is left over; rounded to a narrow type once."""
        cls: Any = type(node.op)
        (x,), dtype, at = node.inputs, node.type.dtype, fold.first
        wide = accumulator(dtype)
        how = f"in {fold.chunks} chunks of {fold.length}, then those: it has few results"
        decided(f"{node.op.name} of {x.type!r} {how}", node.source)
        total = bind(cls((at + 1,)), convert(self._part(x, fold, False), wide))
        total = bind(cls((at,)), total)
        if fold.group > 1:
            apart = (*fold.shape[:at], fold.group, *fold.tail)
            total = bind(cls((at,)), reshape(total, apart))
        if fold.covered < fold.total:
            rest = convert(self._part(x, fold, True), wide)
            rest = bind(cls((at,)), rest) if fold.total - fold.covered > 1 else rest
            rest = reshape(rest, total.type.shape)
            total = bind(Elementwise(cls.combine), total, rest)
        return convert(reshape(total, node.type.shape), dtype, node.type.weak)


def _chosen(graph: Graph, cuts: dict[Node, Fold | None]) -> dict[Node, Fold]:
    """Return the cuts, without groups of rows where a value per row is broadcast into them.

    Such a value would have to be repeated for each column in memory.
    """
    known = {n: c for n, c in cuts.items() if c is not None}
    across = {
        fold
        for node, fold in (*known.items(), *_folded(graph, known).items())
        if fold.group > 1 and any(_is_per_row(x, fold) for x in node.inputs)
    }
    again = {n: fold_of(n, c not in across) for n, c in known.items()}
    return {n: c for n, c in again.items() if c is not None}


def _is_per_row(x: Node, fold: Fold) -> bool:
    if not isinstance(x.op, Broadcast):
        return False
    lengths = zip(x.inputs[0].type.shape, x.op.broadcast_dimensions, strict=True)
    return any(d <= fold.last and not is_unit(n) for n, d in lengths)


def _folded(graph: Graph, cuts: dict[Node, Fold]) -> dict[Node, Fold]:
    """Return the element-wise values that nothing but reductions with one same cut reads."""
    wanted: dict[Node, Fold | None] = dict.fromkeys(graph.outputs)
    folded: dict[Node, Fold] = {}
    for node in reversed(graph.nodes):
        fold = cuts.get(node)
        if fold is None and isinstance(node.op, _POINTWISE):
            fold = wanted.get(node)
            if fold is not None:
                folded[node] = fold
        for x in node.inputs:
            fits = fold is not None and x.type.shape == fold.shape
            wanted[x] = fold if fits and wanted.get(x, fold) == fold else None
    return folded


def _by_axes(graph: Graph) -> Graph:
    """Reduce several axes one after the other where the last is long, or short and few are kept.

    A long last axis gives many rows, and a short one as many columns.
    """
    kinds = {n: _order(n.op, n.inputs[0].type) for n in graph.nodes if isinstance(n.op, Reduction)}
    if not any(kinds.values()):
        return graph
    with Trace(graph.name, "split") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
        for node in graph.nodes:
            trace.source, trace.scope = node.source, node.scope
            first = kinds.get(node)
            inputs = [values[x] for x in node.inputs]
            if first:
                axes = ", ".join(map(str, first))
                decided(f"{node.op.name} along {axes} first: that gives more rows", node.source)
            values[node] = _after(node.op, inputs[0], first) if first else bind(node.op, *inputs)
        trace.source, trace.scope = None, None
        return verified(trace.finish([values[x] for x in graph.outputs]), "split")


def _order(op: Op, x: ArrayType) -> tuple[int, ...] | None:
    """Return the axes that are reduced first, or None for all at once."""
    assert isinstance(op, Reduction)
    long_axes = [a for a in op.axes if not is_unit(x.shape[a])]
    if not all(isinstance(n, int) for n in x.shape) or _size(x.shape) < MANY_ELEMENTS:
        return None
    kept = _size(tuple(n for a, n in enumerate(x.shape) if a not in op.axes))
    last = long_axes[-1]
    is_inner = _size(x.shape[last + 1 :]) == 1
    if len(long_axes) < 2 or kept >= FEW_ROWS or not is_inner:
        return None
    if x.shape[last] >= LONG:
        return (last,)
    return tuple(a for a in op.axes if a != last)


def _after(op: Any, x: Any, first: tuple[int, ...]) -> Any:
    """Reduce the axes `first`, then the others of `op`; rounded to a narrow type once."""
    cls, dtype, weak = type(op), x.type.dtype, x.type.weak
    partial = bind(cls(first), convert(x, accumulator(dtype)))
    rest = tuple(a - sum(b < a for b in first) for a in op.axes if a not in first)
    return convert(bind(cls(rest), partial), dtype, weak)
