"""Factorizations and what is solved with them: Cholesky, LU, QR; determinants and inverses.

The derivatives are those of M. Giles, "An extended collection of matrix derivative results for
forward and reverse mode algorithmic differentiation" (2008), and for Cholesky of I. Murray,
"Differentiation of the Cholesky decomposition" (arXiv:1602.07527).  Only tangents are written down;
cotangents come from transposing them.

A solution, a determinant and an inverse are computed from the factors of the matrix, but their
derivatives are not those of the computation: they are `Carried`, with the factors at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import ShapeError
from stax.extent import same_shape
from stax.op import Batch, Linear
from stax.operators import elementwise as ops, lapack
from stax.operators.broadcast import broadcast_in_dim, lead_all, reduce_sum
from stax.operators.elementwise import convert, like, select
from stax.operators.matrices import (
    Carried,
    MatrixOp,
    adjoint,
    block,
    check_square,
    conj,
    diagonal,
    extents,
    identity_like,
    inverse_permutation,
    lower_part,
    matmul,
    on_diagonal,
    permuted_rows,
    real,
    transposed,
    upper_part,
    zeros_of,
)
from stax.operators.reduce import reduce_prod
from stax.operators.reshape import reshape, transpose
from stax.operators.shape import concatenate, iota
from stax.trace import Proxy, bind, results, type_of
from stax.types import ArrayType


def _sum_of(*terms: Any) -> Any:
    """Return the sum of the terms that are there, None if none is."""
    total = None
    for term in terms:
        if term is not None:
            total = term if total is None else ops.add(total, term)
    return total


# --- Cholesky ---


@dataclass(frozen=True, eq=False)
class Cholesky(MatrixOp):
    """The lower triangular factor of positive definite matrices; reads their lower triangle."""

    name: ClassVar[str] = "cholesky"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        check_square("cholesky", operands[0])
        return operands

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return (lapack.cholesky(*arrays),)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        # A = L L* gives L^-1 dL + (L^-1 dL)* = L^-1 dA L^-*, and L^-1 dL is lower triangular: it is
        # the lower half of the right side, with half of the diagonal.
        (t,) = tangents
        right = triangular_solve(out, t, lower=True, transpose_a=True, conjugate_a=True)
        both = triangular_solve(out, right, left_side=True, lower=True)
        half = select(on_diagonal(both), ops.mul(both, like(both, 0.5)), both)
        return matmul(out, lower_part(half))


def cholesky(x: Any) -> Any:
    """Return lower triangular L with L L* = `x`, NaN where `x` is not positive definite."""
    return bind(Cholesky(), x)


# --- triangular matrices ---


@dataclass(frozen=True, eq=False)
class TriangularSolve(MatrixOp):
    """`b` divided by the triangle of `a`, or its transpose, from the left or from the right.

    The other triangle is not read; with `unit_diagonal` neither is the diagonal, which counts as
    ones.  `conjugate_a` conjugates `a`, whether or not it is transposed.
    """

    left_side: bool
    is_lower: bool
    transpose_a: bool
    conjugate_a: bool
    unit_diagonal: bool
    name: ClassVar[str] = "triangular_solve"
    ranks: ClassVar[tuple[int, ...]] = (2, 2)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        a, b = operands
        check_square("triangular_solve", a)
        side = 0 if self.left_side else 1
        if not same_shape((b.shape[side],), a.shape[:1]):
            raise ShapeError(
                f"triangular_solve: {b} has not as many {('rows', 'columns')[side]} as {a}.",
                advice="left_side says on which side of the unknowns the matrix stands.",
            )
        return (b,)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        a, b = arrays
        side, turned = self.left_side, (self.transpose_a, self.conjugate_a)
        return (lapack.triangular_solve(a, b, side, self.is_lower, *turned, self.unit_diagonal),)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        t_a, t_b = tangents
        if t_a is not None:
            part = (lower_part if self.is_lower else upper_part)(t_a, strict=self.unit_diagonal)
            part = transposed(part) if self.transpose_a else part
            part = conj(part) if self.conjugate_a else part
            moved = matmul(part, out) if self.left_side else matmul(out, part)
            t_b = _sum_of(t_b, ops.neg(moved))
        return bind(self, primals[0], t_b)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        a, b = inputs
        if isinstance(a, Linear) or not isinstance(b, Linear):
            raise self._missing("transpose")
        op = TriangularSolve(
            self.left_side,
            self.is_lower,
            not self.transpose_a,
            self.conjugate_a,
            self.unit_diagonal,
        )
        return None, bind(op, a, ct)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        a, b = inputs
        if flags[0] or type_of(a).ndim > 2:
            return bind(self, *lead_all(batch, flags, inputs))
        # One matrix for all: the right sides become one wide (or long) one.
        n, rows, columns = type_of(b).shape
        if not self.left_side:
            return reshape(bind(self, a, reshape(b, (n * rows, columns))), (n, rows, columns))
        wide = reshape(transpose(b, (1, 0, 2)), (rows, n * columns))
        return transpose(reshape(bind(self, a, wide), (rows, n, columns)), (1, 0, 2))


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Any:
    """Return `b` divided by the triangle of `a`; both are matrices, or batches of one shape."""
    conjugate_a = conjugate_a and types.is_complex(type_of(a).dtype)
    return bind(TriangularSolve(left_side, lower, transpose_a, conjugate_a, unit_diagonal), a, b)


# --- LU ---


@dataclass(frozen=True, eq=False)
class Lu(MatrixOp):
    """L below and U on and above the diagonal of one matrix; the row that each row was exchanged
    with, in turn; and the order of rows that results: a[order] = L U."""

    name: ClassVar[str] = "lu"
    ranks: ClassVar[tuple[int, ...]] = (2,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        (a,) = operands
        rows, columns = a.shape
        return a, ArrayType(types.int32, (min(rows, columns),)), ArrayType(types.int32, (rows,))

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return lapack.lu(*arrays)

    def nothing(self, *outs: ArrayType) -> Sequence[np.ndarray]:
        rows: Any = outs[2].shape[0]
        return (*super().nothing(*outs[:2]), np.arange(rows))

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        # L^-1 P dA U^-1 = L^-1 dL + dU U^-1: the first is strictly lower, the second upper.  What a
        # factor lacks to be square is completed by the identity.
        both, _, order = results(out)
        rows, columns = extents(both)[-2:]
        n = min(rows, columns)
        left = _completed(lower_part(block(both, rows, n), strict=True), rows, rows, 0)
        right = _completed(upper_part(block(both, n, columns)), columns, columns, n)
        x = permuted_rows(tangents[0], order)
        x = triangular_solve(left, x, left_side=True, lower=True, unit_diagonal=True)
        x = triangular_solve(right, x)
        unit = ops.add(left, identity_like(left))
        t = ops.add(matmul(unit, lower_part(x, strict=True)), matmul(upper_part(x), right))
        return [t, None, None]


def _completed(x: Any, rows: int, columns: int, start: int) -> Any:
    """Return matrices filled up to a size: with ones on the diagonal from `start` on where that is
    the old size, else with zeros."""
    *_, old_rows, old_columns = type_of(x).shape
    last = type_of(x).ndim - 1
    if columns > old_columns:
        x = concatenate([x, zeros_of(x, old_rows, columns - old_columns)], last)
    if rows > old_rows:
        x = concatenate([x, zeros_of(x, rows - old_rows, columns)], last - 1)
    if start and start < rows:
        places = iota(types.int32, type_of(x).shape, last)
        new = ops.and_(on_diagonal(x), ops.ge(places, like(places, start)))
        x = select(new, like(x, 1), x)
    return x


def lu(x: Any) -> tuple[Any, Any, Any]:
    """Return both factors of `x` in one matrix, the pivots and the order of rows."""
    return results(bind(Lu(), x))


@dataclass(frozen=True, eq=False)
class PivotsToPermutation(MatrixOp):
    """The order of `size` rows that exchanging row `i` with row `pivots[i]`, in turn, makes."""

    size: int
    name: ClassVar[str] = "lu_pivots_to_permutation"
    ranks: ClassVar[tuple[int, ...]] = (1,)
    accepts: ClassVar[tuple[np.dtype, ...]] = (types.int32,)

    def item_types(self, *operands: ArrayType) -> tuple[ArrayType, ...]:
        return (ArrayType(types.int32, (self.size,)),)

    def item(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        return (lapack.pivots_to_permutation(arrays[0], self.size),)

    def nothing(self, *outs: ArrayType) -> Sequence[np.ndarray]:
        return (np.arange(self.size, dtype=np.int32),)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None


def pivots_to_permutation(pivots: Any, size: int) -> Any:
    """Return the order of `size` rows that the exchanges `pivots` make."""
    return bind(PivotsToPermutation(size), pivots)


def lu_solve(factors: Any, order: Any, b: Any, trans: int = 0) -> Any:
    """Return `b` divided by the matrix with these factors (1: its transpose, 2: its adjoint)."""
    if not trans:
        x = permuted_rows(b, order)
        x = triangular_solve(factors, x, left_side=True, lower=True, unit_diagonal=True)
        return triangular_solve(factors, x, left_side=True)
    how = {"left_side": True, "transpose_a": True, "conjugate_a": trans == 2}
    x = triangular_solve(factors, b, **how)
    x = triangular_solve(factors, x, lower=True, unit_diagonal=True, **how)
    return permuted_rows(x, inverse_permutation(order))


# --- solutions ---


@dataclass(frozen=True, eq=False)
class Solution(Carried):
    """x with a x = b, given x, a, b, and the factors of a and the order of its rows."""

    name: ClassVar[str] = "solution"

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        _, a, _, factors, order = primals
        _, t_a, t_b, _, _ = tangents
        moved = None if t_a is None else ops.neg(matmul(t_a, out))
        right = _sum_of(t_b, moved)
        return None if right is None else _solution(a, right, factors, order)


def _solution(a: Any, b: Any, factors: Any, order: Any) -> Any:
    return bind(Solution(), lu_solve(factors, order, b), a, b, factors, order)


def solve(a: Any, b: Any) -> Any:
    """Return x with `a` x = `b` for square matrices `a`; both have the same leading axes."""
    check_square("solve", type_of(a))
    factors, _, order = lu(a)
    return _solution(a, b, factors, order)


def inverse(a: Any) -> Any:
    """Return the inverses of square matrices."""
    check_square("inv", type_of(a))
    return solve(a, identity_like(a))


# --- determinants ---


@dataclass(frozen=True, eq=False)
class Determinant(Carried):
    """det a, given it, a, and its factors, pivots and order of rows."""

    name: ClassVar[str] = "determinant"

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        _, _, factors, pivots, order = primals
        t = tangents[1]
        return None if t is None else _trace(_adjugate_times(factors, pivots, order, t))


@dataclass(frozen=True, eq=False)
class LogDeterminant(Carried):
    """log |det a|, or where `sign` det a / |det a|, given it, a, its factors and order of rows."""

    sign: bool
    name: ClassVar[str] = "log_determinant"

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        _, a, factors, order = primals
        t = tangents[1]
        if t is None or (self.sign and not types.is_complex(a.type.dtype)):
            return None
        slope = _trace(_solution(a, t, factors, order))
        if not self.sign:
            return real(slope)
        return ops.mul(ops.sub(slope, convert(real(slope), slope.type.dtype)), out)


def _trace(x: Any) -> Any:
    return reduce_sum(diagonal(x), (type_of(x).ndim - 2,))


def _signed_diagonal(factors: Any, pivots: Any) -> Any:
    """Return the diagonal of U, with the sign changed where rows were exchanged."""
    pivot_values = diagonal(factors)
    places = iota(types.int32, type_of(pivots).shape, -1)
    exchanged = ops.ne(pivots, places)
    return select(exchanged, ops.neg(pivot_values), pivot_values)


def _product(x: Any) -> Any:
    return reduce_prod(x, (type_of(x).ndim - 1,))


def _adjugate_times(factors: Any, pivots: Any, order: Any, b: Any) -> Any:
    """Return adj(a) b, from the factors of a, which may be singular in its last pivot.

    With U = [[T, c], [0, d]], adj(U) = det(T) [[T, c], [0, 1]]^-1 diag(d, ..., d, 1), which needs
    no division by d.
    """
    rows = iota(types.int32, type_of(factors).shape, -2)
    is_last = ops.eq(rows, like(rows, extents(factors)[-1] - 1))
    corner = ops.and_(is_last, on_diagonal(factors))
    last = reduce_sum(select(corner, factors, like(factors, 0)), _last_axes(factors))
    regular = select(corner, like(factors, 1), factors)
    x = permuted_rows(b, order)
    x = triangular_solve(factors, x, left_side=True, lower=True, unit_diagonal=True)
    x = select(is_last, x, ops.mul(x, _spread(last, x)))
    x = triangular_solve(regular, x, left_side=True)
    return ops.mul(x, _spread(_product(_signed_diagonal(regular, pivots)), x))


def _last_axes(x: Any) -> tuple[int, int]:
    return type_of(x).ndim - 2, type_of(x).ndim - 1


def _spread(x: Any, matrices: Any) -> Any:
    """Return one number per matrix in the shape of the matrices."""
    return broadcast_in_dim(x, type_of(matrices).shape, range(type_of(x).ndim))


def determinant(a: Any) -> Any:
    """Return the determinants of square matrices; their derivative is that of the polynomial, so
    that it is right for singular matrices too."""
    check_square("det", type_of(a))
    factors, pivots, order = lu(a)
    value = _product(_signed_diagonal(factors, pivots))
    return bind(Determinant(), value, a, factors, pivots, order)


def log_determinant(a: Any) -> tuple[Any, Any]:
    """Return det a / |det a| and log |det a| of square matrices; 0 and -inf where singular."""
    check_square("slogdet", type_of(a))
    factors, pivots, order = lu(a)
    pivot_values = _signed_diagonal(factors, pivots)
    sizes = ops.log(ops.abs_(pivot_values))
    found = _product(ops.sign(pivot_values)), reduce_sum(sizes, (type_of(sizes).ndim - 1,))
    sign, size = (
        bind(LogDeterminant(is_sign), x, a, factors, order)
        for is_sign, x in zip((True, False), found, strict=True)
    )
    return sign, size


# --- the pseudo-inverse ---


@dataclass(frozen=True, eq=False)
class PseudoInverse(Carried):
    """The Moore-Penrose inverse, given it and the matrix.

    Its derivative is that of G. Golub and V. Pereyra (SIAM J. Numer. Anal. 10, 1973, 4.12), which
    holds where the rank does not change.
    """

    name: ClassVar[str] = "pseudo_inverse"

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        _, a = primals
        t = tangents[1]
        if t is None:
            return None
        t_h, p_h = adjoint(t), adjoint(out)
        right = ops.sub(t_h, matmul(matmul(t_h, a), out))  # dA* (I - A P)
        left = ops.sub(t_h, matmul(out, matmul(a, t_h)))  # (I - P A) dA*
        inner = matmul(matmul(out, t), out)
        return ops.sub(
            ops.add(matmul(matmul(out, p_h), right), matmul(left, matmul(p_h, out))), inner
        )


def pseudo_inverse(value: Any, a: Any) -> Any:
    """Return `value`, the pseudo-inverse of `a`, with its derivative."""
    return bind(PseudoInverse(), value, a)
