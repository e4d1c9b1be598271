"""Matrix products by BLAS: how operands and results lie in memory, without copies.

A product is described to the run time's `gemm` by lengths and strides.  Operands are views of what
is stored: transposes, reshapes and slices that only renumber memory stay where they are, and up to
two batch axes have strides of their own, as the heads of an attention do.  A transpose of a product
is written as the product in another order of memory (`Laid`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stax.errors import LoweringError
from stax.graph import Graph, Input, Node, Project
from stax.interpreters.interpret import interpret
from stax.lowering.decisions import decided
from stax.operators.contract import DotGeneral
from stax.operators.reshape import Reshape, Transpose
from stax.operators.shape import Slice
from stax.trace import Proxy, Trace, bind
from stax.types import ArrayType, float32, float64
from stax.verify import verified

# Below this many multiplications a fused loop beats a call of BLAS: in all, or for one product of
# a batch whose sides are not thin; and however many there are, where each has fewer than FEW.
GEMM_FROM, ONE_GEMM_FROM, FEW, THIN, WIDE = 1 << 15, 1 << 12, 1 << 8, 8, 32
GEMM_NAMES = {float32: "gemm_f32", float64: "gemm_f64"}

Ints = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Laid(DotGeneral):
    """A product whose axes are stored in another order: axis i is axis order[i] of the product."""

    order: Ints = ()

    def plain(self) -> DotGeneral:
        """Return the product in its own order."""
        return DotGeneral(self.contracting, self.batching, self.dtype, self.precision)

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        found = super().abstract_eval(*operands)
        return found.with_shape(tuple(found.shape[a] for a in self.order))

    def evaluate(self, *arrays: Any) -> Any:
        return super().evaluate(*arrays).transpose(self.order)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return super().lower(kernel, _before(index, self.order), *operands)


def no_gemm(node: Node) -> str:
    """Say why a product is not worth a call of BLAS; nothing if it is."""
    lhs, rhs = (x.type for x in node.inputs)
    if node.type.dtype not in GEMM_NAMES or lhs.dtype != node.type.dtype or rhs.dtype != lhs.dtype:
        return "BLAS has no product of these types"
    assert isinstance(node.op, DotGeneral)
    return _too_few(node.op, lhs, rhs)


def _too_few(op: DotGeneral, lhs: ArrayType, rhs: ArrayType) -> str:
    """Say why a product of some lengths is not worth a call of BLAS; nothing if it is."""
    if not all(isinstance(e, int) for e in (*lhs.shape, *rhs.shape)):
        return "a length is symbolic"
    free = op.free(lhs.ndim, rhs.ndim)
    groups = ((lhs, free.lhs), (rhs, free.rhs), (lhs, op.contracting[0]))
    sides = [math.prod(t.shape[a] for a in axes) for t, axes in groups]
    each = math.prod(sides)
    count = each * math.prod(lhs.shape[a] for a in op.batching[0])
    if 1 in sides[:2] or (op.batching[0] and each < FEW):
        return f"each product has {each} multiplications, which are too few"
    is_one = min(sides) >= THIN and each >= ONE_GEMM_FROM
    return "" if is_one or count >= GEMM_FROM else f"{count} multiplications are too few"


def exact_float(op: DotGeneral, lhs: ArrayType, rhs: ArrayType) -> Any:
    """Return the floats in which a large product of short integers is exact; None if in none."""
    out = op.abstract_eval(lhs, rhs)
    if any(t.dtype.kind not in "iu" for t in (lhs, rhs, out)) or _too_few(op, lhs, rhs):
        return None
    if max(lhs.dtype.itemsize, rhs.dtype.itemsize) > 2:
        return None
    largest = math.prod(1 << 8 * t.dtype.itemsize - (t.dtype.kind == "i") for t in (lhs, rhs))
    most = largest * math.prod(lhs.shape[a] for a in op.contracting[0])
    if most <= 1 << 24:
        return float32
    return float64 if most <= 1 << 53 else None


# --- views ---


class View(NamedTuple):
    """A stored value seen with other axes: for each its length and stride, and where it begins."""

    root: Node
    shape: Ints
    strides: Ints
    offset: int = 0


def view_of(node: Node) -> View:
    """Look through ops that only renumber memory."""
    if all(isinstance(n, int) for n in node.type.shape):
        match node.op:
            case Transpose(permutation=permutation):
                inner = view_of(node.inputs[0])
                shape, strides = (_order(x, permutation) for x in (inner.shape, inner.strides))
                return View(inner.root, shape, strides, inner.offset)
            case Reshape():
                inner = view_of(node.inputs[0])
                reshaped = _reshaped(inner, node.type.shape)
                if reshaped is not None:
                    return View(inner.root, node.type.shape, reshaped, inner.offset)
            case Slice(starts=starts, strides=steps):
                inner = view_of(node.inputs[0])
                if _lies_in_memory(inner.root):
                    offset = sum(int(a) * s for a, s in zip(starts, inner.strides, strict=True))
                    strides = tuple(a * s for a, s in zip(steps, inner.strides, strict=True))
                    return View(inner.root, node.type.shape, strides, inner.offset + offset)
    return whole(node)


def whole(node: Node) -> View:
    """Return a value as it is stored."""
    return View(node, node.type.shape, row_major(node.type.shape))


def row_major(shape: Ints) -> Ints:
    """Return the strides, in elements, of a contiguous array."""
    return tuple(math.prod(shape[a + 1 :]) for a in range(len(shape)))


def _lies_in_memory(node: Node) -> bool:
    """Say whether a value is stored whole, whoever reads it."""
    is_product = isinstance(node.op, DotGeneral) and not no_gemm(node)
    return is_product or isinstance(node.op, Input | Project)


def _reshaped(view: View, shape: Ints) -> Ints | None:
    """Return strides for `shape` over the memory of `view`, or None where it has to be copied."""
    if 0 in shape:
        return row_major(shape)
    ours = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    strides = [0] * len(shape)
    wanted = [a for a, n in enumerate(shape) if n != 1]
    while ours:
        # As few axes of both as have the same number of elements.
        old, new = [ours.pop(0)], [wanted.pop(0)]
        while (have := math.prod(n for n, _ in old)) != (want := math.prod(shape[a] for a in new)):
            if have < want:
                old.append(ours.pop(0))
            else:
                new.append(wanted.pop(0))
        if any(s != n * t for (_, s), (n, t) in itertools.pairwise(old)):
            return None
        stride = old[-1][1]
        for a in reversed(new):
            strides[a] = stride
            stride *= shape[a]
    return tuple(strides)


def _order(items: Any, permutation: Ints) -> Any:
    return tuple(items[a] for a in permutation)


def _before(items: Any, permutation: Ints) -> Any:
    """Return items in the order that they had before a transpose."""
    found = dict(zip(permutation, items, strict=True))
    return tuple(found[a] for a in range(len(permutation)))


# --- descriptions ---


class Gemm(NamedTuple):
    """A (batched) product of row-major matrices, in the run time's terms; lengths in elements."""

    batch: int
    inner: int
    m: int
    n: int
    k: int
    transpose_a: int
    transpose_b: int
    lda: int
    ldb: int
    ldc: int
    stride_a: int
    stride_b: int
    stride_c: int
    inner_a: int
    inner_b: int
    inner_c: int
    offset_a: int
    offset_b: int
    accumulate: int = 0


class Product(NamedTuple):
    """A product as BLAS computes it: its first and second operand, and how they lie."""

    first: Node
    second: Node
    gemm: Gemm


# An axis, or several that are one in memory: its length, and its strides in some arrays.
Axis = tuple[int, ...]


def product_of(node: Node) -> Product:
    """Describe a product that BLAS computes."""
    op, order = node.op, range(node.type.ndim)
    assert isinstance(op, DotGeneral)
    lhs, rhs = node.inputs
    found = _product(op, lhs, rhs, op.order if isinstance(op, Laid) else tuple(order))
    if found is None:
        raise LoweringError("dot_general: an operand has no matrix form.")
    return found


def _product(op: DotGeneral, lhs: Node, rhs: Node, order: Ints) -> Product | None:
    """Describe a product stored in an order of its axes; operands are copied where they must."""
    for a, b in itertools.product((view_of(lhs), whole(lhs)), (view_of(rhs), whole(rhs))):
        found = _described(op, a, b, order)
        if found is not None:
            return found
    return None


def _described(op: DotGeneral, a: View, b: View, order: Ints) -> Product | None:
    free = op.free(len(a.shape), len(b.shape))
    lengths = (
        *(a.shape[i] for i in (*op.batching[0], *free.lhs)),
        *(b.shape[i] for i in free.rhs),
    )
    c = _before(row_major(_order(lengths, order)), order)
    batches, split = len(op.batching[0]), len(op.batching[0]) + len(free.lhs)
    batch = _merged(
        [
            (a.shape[i], a.strides[i], b.strides[j], s)
            for i, j, s in zip(*op.batching, c[:batches], strict=True)
        ],
        3,
    )
    rows = _merged([(a.shape[i], a.strides[i], c[batches + r]) for r, i in enumerate(free.lhs)], 2)
    columns = _merged([(b.shape[j], b.strides[j], c[split + r]) for r, j in enumerate(free.rhs)], 2)
    pairs = zip(*op.contracting, strict=True)
    terms = [(a.shape[i], a.strides[i], b.strides[j]) for i, j in pairs]
    summed = _merged(sorted(terms, key=lambda axis: (-axis[1], -axis[2])), 2)
    (m, a_row, c_row), (n, b_column, c_column) = rows[-1], columns[-1]
    # Rows that are not one axis in memory make a batch, if each of its products is large enough.
    spread = [(k, s, 0, t) for k, s, t in rows[:-1]] + [(k, 0, s, t) for k, s, t in columns[:-1]]
    if spread:
        batch = [axis for axis in (*batch, *spread) if axis[0] != 1]
    if len(batch) > 2 or len(summed) > 1 or (spread and min(m, n) < WIDE):
        return None
    k, a_term, b_term = summed[0]
    first, second = (a.root, a.offset), (b.root, b.offset)
    outer, inner = batch if len(batch) == 2 else (batch[0], (1, 0, 0, 0))
    if n != 1 and c_column != 1:
        # By columns: the transpose of the product, with its operands exchanged.
        m, a_row, a_term, c_row, n, b_column, b_term, c_column = (
            n, b_column, b_term, c_column, m, a_row, a_term, c_row,
        )  # fmt: skip
        first, second = second, first
        outer, inner = ((x[0], x[2], x[1], x[3]) for x in (outer, inner))
    sides = (
        _leading((m, a_row), (k, a_term)),
        _leading((k, b_term), (n, b_column)),
        _leading((m, c_row), (n, c_column)),
    )
    if None in sides or sides[2][0]:  # type: ignore[index]
        return None
    (ta, lda), (tb, ldb), (_, ldc) = sides  # type: ignore[misc]
    found = Gemm(
        outer[0] * inner[0], inner[0], m, n, k, ta, tb, lda, ldb, ldc, outer[1], outer[2], outer[3],
        inner[1], inner[2], inner[3], first[1], second[1],
    )  # fmt: skip
    return Product(first[0], second[0], found)


def _merged(axes: Sequence[Axis], arrays: int) -> list[Axis]:
    """Return axes with those that are one in memory as one; one of length 1 if there are none."""
    found: list[Axis] = []
    for length, *strides in axes:
        if length == 1:
            continue
        if found and all(s == length * t for s, t in zip(found[-1][1:], strides, strict=True)):
            found[-1] = (found[-1][0] * length, *strides)
        else:
            found.append((length, *strides))
    return found or [(1, *[0] * arrays)]


def _leading(rows: tuple[int, int], columns: tuple[int, int]) -> tuple[int, int] | None:
    """Return whether a matrix lies by columns, and the distance of its rows (or of its columns).

    None where neither side is contiguous, or lines overlap; BLAS wants distances that are not too
    small even where there is one line.
    """
    for turned, (line, apart), (width, step) in ((0, rows, columns), (1, columns, rows)):
        if step != 1 and width != 1:
            continue
        if line <= 1:
            return turned, max(width, 1)
        if apart >= width:
            return turned, apart
    return None


# --- results in another order ---


def laid_out(graph: Graph) -> Graph:
    """Return `graph` with transposes of products as products that are stored in that order."""
    uses = graph.uses()
    chosen: dict[Node, Laid] = {}
    for node in graph.nodes:
        match node:
            case Node(Transpose(order), (Node(DotGeneral() as op, (lhs, rhs)) as product,)):
                is_single = uses[product] == 1 and not isinstance(op, Laid)
                if is_single and not no_gemm(product) and _is_as_good(op, lhs, rhs, order):
                    chosen[node] = Laid(op.contracting, op.batching, op.dtype, op.precision, order)
    if not chosen:
        return graph

    def rule(node: Node, inputs: list[Any]) -> Any:
        if node not in chosen:
            return bind(node.op, *inputs)
        decided("transpose of a product: the product is stored in that order", node.source)
        return bind(chosen[node], *(Proxy(x, trace) for x in inputs[0].node.inputs))

    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.op.label) for x in graph.inputs]  # type: ignore[attr-defined]
        result = trace.finish(interpret(graph, args, rule))
    return verified(result, "prepare")


def _is_as_good(op: DotGeneral, lhs: Node, rhs: Node, order: Ints) -> bool:
    """Say whether a product can be stored in an order, and is not cut into smaller ones by that."""
    turned = _product(op, lhs, rhs, order)
    plain = _product(op, lhs, rhs, tuple(range(len(order))))
    return turned is not None and (plain is None or turned.gemm.batch <= plain.gemm.batch)
