"""Eigenvalues, eigenvectors and singular values.

The derivatives hold where the values are distinct: M. Giles, "An extended collection of matrix
derivative results for forward and reverse mode algorithmic differentiation" (2008), section 3.
Eigenvectors are unique up to a factor; LAPACK's choice of it is differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import MissingRule
from stax.operators import elementwise as ops, lapack
from stax.operators.broadcast import reduce_sum
from stax.operators.elementwise import convert, like, select
from stax.operators.linalg import solve
from stax.operators.matrices import (
    MatrixOp,
    adjoint,
    check_square,
    columns_by,
    conj,
    diagonal,
    extents,
    matmul,
    on_diagonal,
    real,
    rows_by,
    scale_columns,
    scale_rows,
)
from stax.operators.qr import Step
from stax.operators.reduce import argmax
from stax.operators.shape import iota
from stax.trace import Proxy, bind, results, type_of
from stax.types import ArrayType, real_part


def _inverse_gaps(x: Any) -> Any:
    """Return 1 / (x_j - x_i), and 0 on the diagonal."""
    n = type_of(x).shape[-1]
    gaps = ops.sub(columns_by(x, n), rows_by(x, n))
    here = on_diagonal(gaps)
    inverse = ops.div(like(gaps, 1), select(here, like(gaps, 1), gaps))
    return select(here, like(gaps, 0), inverse)


@dataclass(frozen=True, eq=False)
class Eigh(MatrixOp):
    """Eigenvalues of symmetric matrices, ascending, and eigenvectors as columns; one triangle is
    read."""

    is_lower: bool
    name: ClassVar[str] = "eigh"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        check_square("eigh", a)
        return ArrayType(real_part(a.dtype), a.shape[:1]), a

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.eigh(arrays[0], self.is_lower)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        values, vectors = results(out)
        inner = matmul(matmul(adjoint(vectors), tangents[0]), vectors)
        turns = ops.mul(convert(_inverse_gaps(values), type_of(inner).dtype), inner)
        return [real(diagonal(inner)), matmul(vectors, turns)]


def eigh(a: Any, lower: bool = True) -> tuple[Any, Any]:
    """Return eigenvalues, ascending, and eigenvectors of symmetric (Hermitian) matrices."""
    return results(bind(Eigh(lower), a))


@dataclass(frozen=True, eq=False)
class Svd(MatrixOp):
    """Singular values, descending, and where `vectors` U and V*, square where `full_matrices`."""

    full_matrices: bool
    vectors: bool
    name: ClassVar[str] = "svd"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        rows, columns = a.shape
        n = min(rows, columns)
        values = ArrayType(real_part(a.dtype), (n,))
        if not self.vectors:
            return (values,)
        left, right = (rows, columns) if self.full_matrices else (n, n)
        return values, ArrayType(a.dtype, (rows, left)), ArrayType(a.dtype, (right, columns))

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.svd(arrays[0], self.full_matrices, self.vectors)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (a,), (t,) = primals, tangents
        rows, columns = extents(a)[-2:]
        if self.vectors and self.full_matrices and rows != columns:
            raise MissingRule(
                f"svd of {a.type} with full matrices has no derivative.",
                advice="Its last vectors are any basis; use full_matrices=False.",
            )
        found = results(out) if self.vectors else svd(a, False)
        if not self.vectors:
            _, left, right = found
            return real(diagonal(matmul(matmul(adjoint(left), t), adjoint(right))))
        return _svd_tangents(found[0], found[1], found[2], t)


def _svd_tangents(s: Any, u: Any, vh: Any, t: Any) -> Sequence[Any]:
    """Return the tangents of S, U and V*."""
    v, dtype = adjoint(vh), type_of(t).dtype
    inner = matmul(matmul(adjoint(u), t), v)
    gaps = convert(_inverse_gaps(ops.mul(s, s)), dtype)
    right_scaled, left_scaled = scale_columns(inner, s), scale_rows(inner, s)
    turn_u = ops.mul(gaps, ops.add(right_scaled, adjoint(right_scaled)))
    turn_v = ops.mul(gaps, ops.add(left_scaled, adjoint(left_scaled)))
    zero = ops.eq(s, like(s, 0))
    inverse = select(zero, like(s, 0), ops.div(like(s, 1), select(zero, like(s, 1), s)))
    if types.is_complex(dtype):  # a common phase of both vectors is free; U takes all of it
        phase = scale_columns(ops.sub(inner, adjoint(inner)), inverse)
        half = select(on_diagonal(phase), ops.mul(phase, like(phase, 0.5)), like(phase, 0))
        turn_u = ops.add(turn_u, half)
    t_u, t_v = matmul(u, turn_u), matmul(v, turn_v)
    rows, columns = type_of(u).shape[-2], type_of(v).shape[-2]
    divided = ops.div(like(s, 1), s)
    if rows > columns:
        t_u = ops.add(t_u, scale_columns(_outside(u, matmul(t, v)), divided))
    if columns > rows:
        t_v = ops.add(t_v, scale_columns(_outside(v, matmul(adjoint(t), u)), divided))
    return [real(diagonal(inner)), t_u, adjoint(t_v)]


def _outside(basis: Any, x: Any) -> Any:
    """Return what of `x` is orthogonal to the columns of `basis`."""
    return ops.sub(x, matmul(basis, matmul(adjoint(basis), x)))


def svd(a: Any, full_matrices: bool = True, vectors: bool = True) -> tuple[Any, ...]:
    """Return singular values, descending, and where `vectors` U and V*."""
    return results(bind(Svd(full_matrices, vectors), a))


def _complex_of(a: ArrayType) -> Any:
    return types.complex64 if real_part(a.dtype) == types.float32 else types.complex128


@dataclass(frozen=True, eq=False)
class Eig(MatrixOp):
    """Complex eigenvalues, then left and right eigenvectors as columns, where wanted.

    `differentiable` says whether eigenvectors have derivatives: only where the values are distinct,
    which nobody checks.
    """

    left: bool
    right: bool
    differentiable: bool
    name: ClassVar[str] = "eig"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        check_square("eig", a)
        wide = _complex_of(a)
        vectors = ArrayType(wide, a.shape)
        return ArrayType(wide, a.shape[:1]), *[vectors] * (self.left + self.right)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.eig(arrays[0], self.left, self.right)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        if (self.left or self.right) and not self.differentiable:
            raise MissingRule(
                "eigenvectors of matrices that are not symmetric have no derivative, unless their "
                "eigenvalues are distinct.",
                advice="If they are, use lax.linalg.eig with enable_eigvec_derivs=True.",
            )
        (a,) = primals
        # What eigenvalues depend on does not change with the factors of the vectors.
        found = results(bind(Eig(self.left, True, True), a))
        values, vectors = found[0], found[-1]
        t = convert(tangents[0], type_of(values).dtype)
        inner = matmul(solve(vectors, t), vectors)
        if not (self.left or self.right):
            return diagonal(inner)
        moved = [diagonal(inner)]
        if self.left:
            left, t_h = found[1], adjoint(t)
            turned = matmul(solve(left, t_h), left)
            moved.append(_eigenvector_tangents(conj(values), left, turned))
        if self.right:
            moved.append(_eigenvector_tangents(values, vectors, inner))
        return moved


def _eigenvector_tangents(values: Any, vectors: Any, inner: Any) -> Any:
    """Return the tangents of eigenvectors of length 1 whose largest element is real.

    The equation A v = w v gives them up to a multiple of v, and the two conditions its factor.
    """
    moved = matmul(vectors, ops.mul(_inverse_gaps(values), inner))
    axis = type_of(vectors).ndim - 2
    largest = argmax(ops.abs_(vectors), axis)
    rows = iota(types.int32, type_of(vectors).shape, axis)
    marked = ops.eq(rows, columns_by(largest, type_of(vectors).shape[axis]))

    def at_largest(x: Any) -> Any:
        return reduce_sum(select(marked, x, like(x, 0)), (axis,))

    along = reduce_sum(ops.mul(conj(vectors), moved), (axis,))
    turn = ops.div(ops.imag(at_largest(moved)), real(at_largest(vectors)))
    factor = ops.complex_(ops.neg(real(along)), ops.neg(turn))
    return ops.add(moved, scale_columns(vectors, factor))


def eig(
    a: Any, left: bool = False, right: bool = True, differentiable: bool = False
) -> tuple[Any, ...]:
    """Return eigenvalues, then left and right eigenvectors where wanted."""
    return results(bind(Eig(left, right, differentiable), a))


@dataclass(frozen=True, eq=False)
class SquareRoot(Step):
    """The principal square root, complex."""

    name: ClassVar[str] = "sqrtm"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        check_square("sqrtm", operands[0])
        return (ArrayType(_complex_of(operands[0]), operands[0].shape),)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return (lapack.square_root(*arrays),)


@dataclass(frozen=True, eq=False)
class ComplexSchur(Step):
    """The complex Schur form and vectors, of those in quasi-triangular form."""

    name: ClassVar[str] = "rsf2csf"
    ranks: ClassVar[tuple[int, ...]] = (2, 2)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        for x in operands:
            check_square("rsf2csf", x)
        return tuple(ArrayType(_complex_of(x), x.shape) for x in operands)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.complex_schur(*arrays)


def complex_schur(t: Any, z: Any) -> tuple[Any, Any]:
    """Return the complex Schur form and vectors for those in quasi-triangular form."""
    return results(bind(ComplexSchur(), t, z))


def square_root(a: Any) -> Any:
    """Return the principal square roots of square matrices, as complex numbers."""
    return bind(SquareRoot(), a)
