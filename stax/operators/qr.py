"""QR, and the factorizations that are only steps to others: reflectors, Hessenberg, tridiagonal.

Q is a product of Householder reflectors, one per column, kept below the diagonal of R in LAPACK's
form.  The derivative of Q and R: S. Walter and L. Lehmann, "Algorithmic differentiation of linear
algebra functions with application in optimum experimental design" (arXiv:1001.1654).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import MissingRule, ShapeError
from stax.extent import same_shape
from stax.op import Linear
from stax.operators import elementwise as ops, lapack
from stax.operators.elementwise import convert, like, select
from stax.operators.linalg import triangular_solve
from stax.operators.matrices import (
    MatrixOp,
    adjoint,
    check_square,
    extents,
    lower_part,
    matmul,
    on_diagonal,
    permuted_rows,
    real,
    rows_by,
    transposed,
)
from stax.operators.shape import concatenate, pad, slice_
from stax.trace import Proxy, bind, full, results, type_of
from stax.types import ArrayType, real_part


@dataclass(frozen=True, eq=False)
class Qr(MatrixOp):
    """Orthonormal Q and upper triangular R with Q R = a; `pivoting` sorts the columns of a first,
    and gives their order.  `full_matrices` makes Q square."""

    full_matrices: bool
    pivoting: bool
    name: ClassVar[str] = "qr"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        rows, columns = a.shape
        width = rows if self.full_matrices else min(rows, columns)
        found = ArrayType(a.dtype, (rows, width)), ArrayType(a.dtype, (width, columns))
        return (*found, ArrayType(types.int32, (columns,))) if self.pivoting else found

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.qr(arrays[0], self.full_matrices, self.pivoting)

    def nothing(self, *outs: ArrayType) -> Sequence[np.ndarray]:
        q, r, *order = super().nothing(*outs)
        return q, np.zeros_like(r), *(np.arange(len(p)) for p in order)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        q, r, *order = results(out)
        (t,) = tangents
        for p in order:
            t = transposed(permuted_rows(transposed(t), p))
        rows, columns = extents(primals[0])[-2:]
        if self.full_matrices and rows > columns:
            raise MissingRule(
                f"qr of {primals[0].type} with full matrices has no derivative.",
                advice="Q's last columns are any basis; use mode='reduced'.",
            )
        if rows >= columns:
            return [*_thin_tangents(q, r, t), *(None for _ in order)]
        # The first columns make Q; the others of R are Q* A.
        t_q, t_left = _thin_tangents(q, _columns(r, 0, rows), _columns(t, 0, rows))
        right, t_right = _columns(r, rows, columns), _columns(t, rows, columns)
        moved = matmul(adjoint(t_q), matmul(q, right))
        t_right = ops.add(moved, matmul(adjoint(q), t_right))
        t_r = concatenate([t_left, t_right], type_of(r).ndim - 1)
        return [t_q, t_r, *(None for _ in order)]


def _thin_tangents(q: Any, r: Any, t: Any) -> tuple[Any, Any]:
    """Return the tangents of Q and R where R is square.

    dA R^-1 = dQ + Q dR R^-1, where Q* dQ is skew and dR R^-1 upper triangular: their sum Q* dA R^-1
    gives both, the skew part from below the diagonal.
    """
    moved = triangular_solve(r, t)
    both = matmul(adjoint(q), moved)
    below = lower_part(both, strict=True)
    skew = ops.sub(below, adjoint(below))
    if types.is_complex(type_of(both).dtype):  # the diagonal of R is real
        turn = ops.sub(both, convert(real(both), type_of(both).dtype))
        skew = ops.add(skew, select(on_diagonal(both), turn, like(turn, 0)))
    t_q = ops.add(matmul(q, ops.sub(skew, both)), moved)
    return t_q, matmul(ops.sub(both, skew), r)


def _columns(x: Any, start: int, stop: int) -> Any:
    *rest, _ = extents(x)
    return slice_(x, [*[0] * len(rest), start], [*rest, stop])


def qr(x: Any, full_matrices: bool, pivoting: bool = False) -> tuple[Any, ...]:
    """Return Q and R, and where `pivoting` the order of columns."""
    return results(bind(Qr(full_matrices, pivoting), x))


class Step(MatrixOp):
    """Base of what is only a step to something else, and has no derivative by itself."""

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        raise MissingRule(
            f"{self.name} has no derivative.",
            advice="Differentiate what it is a step to: qr, eigh or eig.",
        )


@dataclass(frozen=True, eq=False)
class QrFactors(Step):
    """R with the reflectors that make Q below it, and their scales."""

    name: ClassVar[str] = "geqrf"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        return a, ArrayType(a.dtype, (min(a.shape),))

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.qr_factors(*arrays)


def qr_factors(x: Any) -> tuple[Any, ...]:
    """Return R with the reflectors that make Q below it, and their scales."""
    return results(bind(QrFactors(), x))


@dataclass(frozen=True, eq=False)
class HouseholderProduct(Step):
    """The product of reflectors, applied to the first columns of the identity."""

    name: ClassVar[str] = "householder_product"
    ranks: ClassVar[tuple[int, ...]] = (2, 1)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        a, scales = operands
        if not scales.shape[0] <= a.shape[1] <= a.shape[0]:
            raise ShapeError(
                f"householder_product: {scales} does not fit {a}.",
                advice="There are at most as many scales as columns, as many of those as rows.",
            )
        return (a,)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return (lapack.reflected(*arrays),)


@dataclass(frozen=True, eq=False)
class Hessenberg(Step):
    """The Hessenberg form with reflectors below it, and their scales."""

    name: ClassVar[str] = "hessenberg"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        check_square("hessenberg", a)
        return a, ArrayType(a.dtype, (max(a.shape[0] - 1, 0),))

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.hessenberg(*arrays)


@dataclass(frozen=True, eq=False)
class Tridiagonal(Step):
    """Reflectors, diagonal, off-diagonal and scales of symmetric matrices; reads one triangle."""

    is_lower: bool
    name: ClassVar[str] = "tridiagonal"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        check_square("tridiagonal", a)
        rows, off = a.shape[0], max(a.shape[0] - 1, 0)
        main = real_part(a.dtype)
        return a, ArrayType(main, (rows,)), ArrayType(main, (off,)), ArrayType(a.dtype, (off,))

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.tridiagonal(arrays[0], self.is_lower)


@dataclass(frozen=True, eq=False)
class Schur(Step):
    """Triangular T, or for real matrices quasi-triangular, and where wanted Q with Q T Q* = a."""

    vectors: bool
    name: ClassVar[str] = "schur"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        check_square("schur", operands[0])
        return operands * 2 if self.vectors else operands

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.schur(arrays[0], self.vectors)


@dataclass(frozen=True, eq=False)
class TridiagonalSolve(MatrixOp):
    """`b` divided by tridiagonal matrices, given by the vectors below, on and above the diagonal.

    The vectors have one length: the first element below and the last one above are not read.
    """

    name: ClassVar[str] = "tridiagonal_solve"
    ranks: ClassVar[tuple[int, ...]] = (1, 1, 1, 2)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        *vectors, b = operands
        if not all(same_shape(v.shape, b.shape[:1]) for v in vectors):
            raise ShapeError(
                f"tridiagonal_solve: diagonals {', '.join(map(repr, vectors))} do not fit {b}.",
                advice="Each is as long as b has rows.",
            )
        return (b,)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return (lapack.tridiagonal_solve(*arrays),)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        right, columns = tangents[3], type_of(out).shape[-1]
        for by, t in zip((1, 0, -1), tangents[:3], strict=True):
            if t is not None:
                moved = ops.neg(ops.mul(rows_by(t, columns), _shifted(out, by, 2)))
                right = moved if right is None else ops.add(right, moved)
        return bind(self, *primals[:3], right)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        below, main, above, _ = inputs
        if any(isinstance(x, Linear) for x in inputs[:3]):
            raise self._missing("transpose")
        # The element above the diagonal in row i is below it in row i + 1 of the transpose.
        b = bind(self, _shifted(above, 1, 1), main, _shifted(below, -1, 1), ct)
        return None, None, None, b


def _shifted(x: Any, by: int, axis: int) -> Any:
    """Return `x` with the elements along an axis, counted from the end, moved by one place."""
    if not by:
        return x
    n = type_of(x).ndim
    moves = [(by, -by, 0) if a == n - axis else (0, 0, 0) for a in range(n)]
    return pad(x, full((), 0, type_of(x).dtype), moves)
