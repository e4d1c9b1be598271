"""Ops that are kernels of their own: large matrix products, sorts, running sums, scatters.

They read and write whole buffers, so fusion stops at them.  A matrix product is described to the
run time's `gemm` by extents and strides; operands transposed in memory stay where they are.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

from stax.control import HoldsGraphs, Scan
from stax.errors import LoweringError
from stax.graph import Constant, Node, Project
from stax.lowering.lane_step import operands_in_memory
from stax.lowering.paired import is_library_op
from stax.operators.bits import Late
from stax.operators.contract import DotGeneral
from stax.operators.index import Scatter
from stax.operators.reduce import Cumulative
from stax.operators.reshape import Reshape, Transpose
from stax.operators.sort import Sort, TopK
from stax.types import float32, float64

# Below this many multiplications a fused loop beats a call of BLAS: in all, or for one product of
# a batch whose sides are not thin.
GEMM_FROM, ONE_GEMM_FROM, THIN = 1 << 15, 1 << 12, 8
GEMM_NAMES = {float32: "gemm_f32", float64: "gemm_f64"}


def is_own_kernel(node: Node) -> bool:
    """Say whether `node` is computed by a kernel of its own."""
    if isinstance(node.op, DotGeneral):
        return not no_gemm(node)
    own = Sort | TopK | Cumulative | Scatter | Project | HoldsGraphs | Late
    return isinstance(node.op, own) or is_library_op(node.op)


def no_gemm(node: Node) -> str:
    """Say why a product is not worth a call of BLAS; nothing if it is."""
    lhs, rhs = (x.type for x in node.inputs)
    if node.type.dtype not in GEMM_NAMES or lhs.dtype != node.type.dtype or rhs.dtype != lhs.dtype:
        return "BLAS has no product of these types"
    op = node.op
    assert isinstance(op, DotGeneral)
    summed = [lhs.shape[a] for a in op.contracting[0]]
    if not all(isinstance(e, int) for e in (*node.type.shape, *summed)):
        return "a length is symbolic"
    free = op.free(lhs.ndim, rhs.ndim)
    rows, columns = [lhs.shape[a] for a in free.lhs], [rhs.shape[a] for a in free.rhs]
    sides = [math.prod(lengths) for lengths in (rows, columns, summed)]
    is_one = min(sides) >= THIN and math.prod(sides) >= ONE_GEMM_FROM
    count = math.prod((*node.type.shape, *summed))
    return "" if is_one or count >= GEMM_FROM else f"{count} multiplications are too few"


class View(NamedTuple):
    """A stored value seen with other axes: the value, and for each axis its length and stride."""

    root: Node
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def view_of(node: Node) -> View:
    """Look through transposes and reshapes that only renumber memory."""
    match node.op:
        case Transpose(permutation=permutation):
            inner = view_of(node.inputs[0])
            shape = tuple(inner.shape[a] for a in permutation)
            return View(inner.root, shape, tuple(inner.strides[a] for a in permutation))
        case Reshape():
            inner = view_of(node.inputs[0])
            strides = _reshaped(inner, node.type.shape)
            if strides is not None:
                return View(inner.root, node.type.shape, strides)
    return View(node, node.type.shape, row_major(node.type.shape))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides, in elements, of a contiguous array."""
    return tuple(math.prod(shape[a + 1 :]) for a in range(len(shape)))


def _reshaped(view: View, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return strides for `shape` over the memory of `view`, or None where it has to be copied."""
    if view.strides == row_major(view.shape):
        return row_major(shape)
    ours = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    wanted = [n for n in shape if n != 1]
    if wanted != [n for n, _ in ours]:
        return None
    strides = iter(s for _, s in ours)
    return tuple(0 if n == 1 else next(strides) for n in shape)


class Gemm(NamedTuple):
    """A (batched) product of row-major matrices, in the run time's terms; lengths in elements."""

    batch: int
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
    accumulate: int = 0


class Matrix(NamedTuple):
    """One operand as batches of rows by columns, with strides."""

    batch: int
    rows: int
    columns: int
    batch_stride: int
    row_stride: int
    column_stride: int

    @property
    def transposed(self) -> int:
        """1 where consecutive elements of a row are not next to each other."""
        return int(self.column_stride != 1 and self.columns != 1)

    @property
    def leading(self) -> int:
        """The distance of rows (of columns, where transposed) as BLAS wants it: never too small."""
        stride = self.column_stride if self.transposed else self.row_stride
        return max(stride, self.rows if self.transposed else self.columns, 1)


def matrix_of(
    view: View, batch: tuple[int, ...], rows: tuple[int, ...], columns: tuple[int, ...]
) -> Matrix | None:
    """Return `view` as matrices, if its axes can be merged and one of the sides is contiguous."""
    merged = [_merged(view, axes) for axes in (batch, rows, columns)]
    if None in merged:
        return None
    (b, bs), (r, rs), (c, cs) = merged  # type: ignore[misc]
    if c != 1 and r != 1 and 1 not in (rs, cs):
        return None
    return Matrix(b, r, c, bs, rs, cs)


def _merged(view: View, axes: tuple[int, ...]) -> tuple[int, int] | None:
    """Return the length and stride of several axes taken as one."""
    long_axes = [a for a in axes if view.shape[a] != 1]
    for a, b in itertools.pairwise(long_axes):
        if view.strides[a] != view.strides[b] * view.shape[b]:
            return None
    length = math.prod(view.shape[a] for a in axes)
    return length, view.strides[long_axes[-1]] if long_axes else 1


def operand_matrix(node: Node, side: int) -> tuple[Node, Matrix] | None:
    """Return the stored value behind an operand of a product and how it is read, or None."""
    op, x = node.op, node.inputs[side]
    assert isinstance(op, DotGeneral)
    free = op.free(node.inputs[0].type.ndim, node.inputs[1].type.ndim)[side]
    batch, summed = op.batching[side], op.contracting[side]
    rows, columns = (free, summed) if side == 0 else (summed, free)
    view = view_of(x)
    for candidate in (view, View(x, x.type.shape, row_major(x.type.shape))):
        matrix = matrix_of(candidate, tuple(batch), tuple(rows), tuple(columns))
        if matrix is not None:
            return candidate.root, matrix
    return None


def gemm(node: Node) -> Gemm:
    """Describe a product whose operands are both readable as matrices."""
    (_, a), (_, b) = _matrices(node)
    m, n, k = a.rows, b.columns, a.columns
    return Gemm(
        a.batch, m, n, k, a.transposed, b.transposed, a.leading, b.leading, max(n, 1),
        a.batch_stride if a.batch > 1 else 0, b.batch_stride if a.batch > 1 else 0, m * n,
    )  # fmt: skip


def _matrices(node: Node) -> list[tuple[Node, Matrix]]:
    found = [operand_matrix(node, side) for side in (0, 1)]
    if None in found:
        raise LoweringError("dot_general: an operand has no matrix form.")
    return found  # type: ignore[return-value]


def stored_operands(node: Node) -> list[Node]:
    """Return what must be in memory for a kernel of its own: its operands, or what they view."""
    if isinstance(node.op, Scatter) and isinstance(node.inputs[0].op, Constant):
        return list(node.inputs[1:])  # one number is written, not copied
    if isinstance(node.op, Scan):
        return operands_in_memory(node)
    if not isinstance(node.op, DotGeneral):
        return list(node.inputs)
    return [root for root, _ in _matrices(node)]
