"""`jax.lax.linalg`: factorizations of matrices, as the ops have them.

Operands are arrays of a floating or complex type of 32 bits or more, matrices in the last two axes;
what takes several operands takes them in one dtype, with the same leading axes.  Choices of an
implementation are accepted for JAX programs and change nothing: it is LAPACK.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.lax.polar import qdwh
from stax.numpy.arguments import array, inexact
from stax.operators import elementwise as ops, linalg, qr as qrs, spectral
from stax.operators.elementwise import convert, like
from stax.operators.matrices import (
    adjoint,
    diagonal,
    lower_part,
    matmul,
    scale_rows,
    symmetrized,
    transposed,
    upper_part,
    zeros_of,
)
from stax.operators.reshape import expand_dims, squeeze
from stax.operators.shape import concatenate
from stax.trace import bind, results

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update", "eig",
    "eigh", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr", "qdwh",
    "qr", "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal",
    "tridiagonal_solve",
]  # fmt: skip


class EigImplementation(enum.Enum):
    """Libraries that JAX chooses from for `eig`."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Algorithms that JAX chooses from for `eigh`."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """Algorithms that JAX chooses from for `svd`."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _refuse_subset(name: str, subset: Any) -> None:
    if subset is not None:
        raise UnsupportedError(
            f"{name}: subset_by_index is not supported.", advice="Slice the result instead."
        )


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Any:
    """Return lower triangular L with L L* = `x`, NaN where `x` is not positive definite.

    Without `symmetrize_input` only the lower triangle is read.
    """
    x = array("cholesky", x)
    return linalg.cholesky(symmetrized(x) if symmetrize_input else x)


def cholesky_update(r_matrix: Any, w_vector: Any) -> Any:
    """Return the upper triangular factor of R* R + w w*, given R and w."""
    r, w = array("cholesky_update", r_matrix), array("cholesky_update", w_vector)
    row = expand_dims(w if not types.is_complex(w.dtype) else ops.conj(w), w.ndim - 1)
    _, found = qrs.qr(concatenate([upper_part(r), row], r.ndim - 2), False)
    signs = ops.sign(diagonal(found))
    signs = ops.select(ops.eq(signs, like(signs, 0)), like(signs, 1), signs)
    return scale_rows(found, signs if not types.is_complex(signs.dtype) else ops.conj(signs))


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
    use_magma: Any = None,
) -> list[Any]:
    """Return complex eigenvalues, then left and right eigenvectors as columns where asked for.

    Eigenvectors have derivatives only with `enable_eigvec_derivs`, which promises that the
    eigenvalues are distinct.
    """
    sides = compute_left_eigenvectors, compute_right_eigenvectors
    return list(spectral.eig(array("eig", x), *sides, enable_eigvec_derivs))


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: Any = None,
    implementation: Any = None,
) -> tuple[Any, Any]:
    """Return eigenvectors as columns and the eigenvalues, which are sorted in any case.

    Without `symmetrize_input` only one triangle is read.
    """
    _refuse_subset("eigh", subset_by_index)
    x = array("eigh", x)
    values, vectors = spectral.eigh(symmetrized(x) if symmetrize_input else x, lower)
    return vectors, values


def hessenberg(a: Any) -> tuple[Any, Any]:
    """Return the Hessenberg form of square matrices with reflectors below it, and their scales."""
    return results(bind(qrs.Hessenberg(), array("hessenberg", a)))


def householder_product(a: Any, taus: Any) -> Any:
    """Return the product of the reflectors below the diagonal of `a`, with scales `taus`."""
    a, taus = array("householder_product", a), array("householder_product", taus)
    return bind(qrs.HouseholderProduct(), a, taus)


def lu(x: Any) -> tuple[Any, Any, Any]:
    """Return both factors in one matrix, the row each was exchanged with, and the order of rows."""
    return linalg.lu(array("lu", x))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Any:
    """Return the order of rows that exchanging row `i` with row `pivots[i]`, in turn, makes."""
    pivots = convert(array("lu_pivots_to_permutation", pivots), types.int32)
    if not pivots.ndim or pivots.shape[-1] > permutation_size:
        raise ArgumentValueError(
            f"lu_pivots_to_permutation: {pivots.type} exchanges more than {permutation_size} rows.",
            advice="permutation_size is the number of rows.",
        )
    return linalg.pivots_to_permutation(pivots, permutation_size)


def ormqr(a: Any, taus: Any, c: Any, *, left: bool = True, transpose: bool = False) -> Any:
    """Return `c` multiplied by the square Q of the reflectors below the diagonal of `a`.

    Q stands on the left of `c` or on the right; `transpose` takes its adjoint.
    """
    a, taus, c = (array("ormqr", x) for x in (a, taus, c))
    rows, columns = a.shape[-2:]
    if rows > columns:
        a = concatenate([a, zeros_of(a, rows, rows - columns)], a.ndim - 1)
    q = householder_product(a, taus)
    q = adjoint(q) if transpose else q
    return matmul(q, c) if left else matmul(c, q)


def qr(
    x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: Any = None
) -> tuple[Any, ...]:
    """Return Q and R with Q R = `x`; with `pivoting` also the order in which its columns are."""
    return qrs.qr(array("qr", x), full_matrices, pivoting)


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[Any, ...]:
    """Return (quasi-)triangular T, and where asked for unitary Q with Q T Q* = `x`.

    `sort_eig_vals` and `select_callable` change nothing, as in JAX.
    """
    return results(bind(qrs.Schur(compute_schur_vectors), array("schur", x)))


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: Any = None,
    algorithm: Any = None,
) -> Any:
    """Return U, the singular values in descending order and V*; without `compute_uv` the values."""
    _refuse_subset("svd", subset_by_index)
    values, *vectors = spectral.svd(array("svd", x), full_matrices, compute_uv)
    return (vectors[0], values, vectors[1]) if compute_uv else values


def symmetric_product(
    a_matrix: Any,
    c_matrix: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    symmetrize_output: bool = False,
) -> Any:
    """Return `alpha` A A^T + `beta` C; with `symmetrize_output` the upper triangle is mirrored."""
    a, c = array("symmetric_product", a_matrix), array("symmetric_product", c_matrix)
    product = matmul(a, transposed(a))
    found = ops.add(ops.mul(product, like(product, alpha)), ops.mul(c, like(c, beta)))
    if not symmetrize_output:
        return found
    return ops.add(lower_part(found), transposed(lower_part(found, strict=True)))


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
    """Return x with op(`a`) x = `b`, or x op(`a`) = `b` without `left_side`.

    Only one triangle of `a` is read, and its diagonal counts as ones with `unit_diagonal`.  `b` may
    be one vector for each matrix.  Raises ShapeError if sizes do not fit.
    """
    a, b = array("triangular_solve", a), array("triangular_solve", b)
    vectors = b.ndim == a.ndim - 1
    if vectors:
        b = expand_dims(b, b.ndim if left_side else b.ndim - 1)
    found = linalg.triangular_solve(
        a,
        b,
        left_side=left_side,
        lower=lower,
        transpose_a=transpose_a,
        conjugate_a=conjugate_a,
        unit_diagonal=unit_diagonal,
    )
    return squeeze(found, found.ndim - (1 if left_side else 2)) if vectors else found


def tridiagonal(a: Any, *, lower: bool = True) -> tuple[Any, Any, Any, Any]:
    """Return reflectors, diagonal, off-diagonal and scales of symmetric matrices.

    The reflectors stand beyond the off-diagonal of the triangle that is read.
    """
    return results(bind(qrs.Tridiagonal(lower), array("tridiagonal", a)))


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Any:
    """Return x with T x = `b`: `dl[i]` is T[i, i-1], `d[i]` T[i, i] and `du[i]` T[i, i+1].

    The first element of `dl` and the last one of `du` are not read.
    """
    if perturb_singular:
        raise UnsupportedError(
            "tridiagonal_solve: perturb_singular is not supported.",
            advice="Add a small number to the diagonal.",
        )
    operands = [inexact("tridiagonal_solve", x) for x in (dl, d, du, b)]
    return bind(qrs.TridiagonalSolve(), *operands)
