"""Factorizations of matrices: Cholesky, QR, eigenvalues, singular values."""

from __future__ import annotations

from typing import Any, NamedTuple

from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.numpy.arguments import inexact
from stax.numpy.taking import take_along_axis
from stax.operators import elementwise as ops, linalg, qr as qrs, spectral
from stax.operators.elementwise import convert
from stax.operators.matrices import (
    adjoint,
    check_square,
    scale_columns,
    symmetrized,
    transposed,
)
from stax.operators.reshape import expand_dims, rev
from stax.operators.shape import iota
from stax.operators.sort import sort
from stax.types import int32


class EigResult(NamedTuple):
    """What `eig` returns."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What `qr` returns."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Any
    S: Any
    Vh: Any


def matrices(name: str, x: Any) -> Any:
    """Return `x` as an array of a floating type with at least two axes; raises ShapeError."""
    x = inexact(name, x)
    if x.ndim < 2:
        raise ShapeError(
            f"{name} takes matrices, in the last two axes, not {x.type}.",
            advice="Add an axis, or reshape.",
        )
    return x


def square(name: str, x: Any) -> Any:
    """Return `x` as an array of square matrices of a floating type; raises ShapeError."""
    x = inexact(name, x)
    check_square(name, x.type)
    return x


def cholesky(a: Any, *, upper: bool = False, symmetrize_input: bool = True) -> Any:
    """Return the lower triangular factor L with L L* = `a`, or with `upper` its adjoint.

    It is NaN where `a` is not positive definite.  Without `symmetrize_input` only the lower
    triangle is read, and tangents must be symmetric themselves.
    """
    a = square("cholesky", a)
    factor = linalg.cholesky(symmetrized(a) if symmetrize_input else a)
    return adjoint(factor) if upper else factor


def qr(a: Any, mode: str = "reduced") -> Any:
    """Return Q with orthonormal columns and upper triangular R with Q R = `a`.

    In mode "complete" Q is square; "r" returns R alone, "raw" LAPACK's reflectors, transposed, and
    their scales.
    """
    a = matrices("qr", a)
    if mode == "raw":
        reflectors, scales = qrs.qr_factors(a)
        return QRResult(transposed(reflectors), scales)
    if mode not in ("reduced", "r", "full", "complete"):
        raise ArgumentValueError(
            f"qr: {mode!r} is no mode.", advice="Modes are 'reduced', 'complete', 'r' and 'raw'."
        )
    q, r = qrs.qr(a, mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Any:
    """Return U, the singular values S in descending order, and Vh, with (U * S) Vh = `a`.

    U and Vh are square, or without `full_matrices` as narrow as S is long; without `compute_uv` S
    alone is returned.  `hermitian` says that `a` is symmetric, which is faster.
    """
    a = matrices("svd", a)
    if subset_by_index is not None:
        raise UnsupportedError(
            "svd: subset_by_index is not supported.", advice="Slice the result instead."
        )
    if hermitian:
        return _svd_by_eigh(square("svd", a), compute_uv)
    if not compute_uv:
        return spectral.svd(a, full_matrices, False)[0]
    s, u, vh = spectral.svd(a, full_matrices)
    return SVDResult(u, s, vh)


def _svd_by_eigh(a: Any, compute_uv: bool) -> Any:
    """Return the singular value decomposition of symmetric matrices."""
    values, vectors = spectral.eigh(symmetrized(a))
    last = values.ndim - 1
    sizes = ops.abs_(values)
    if not compute_uv:
        return rev(sort(sizes, last), (last,))
    places = iota(int32, sizes.shape, last)
    s, order, signs = (rev(x, (last,)) for x in sort((sizes, places, ops.sign(values)), last))
    u = take_along_axis(vectors, expand_dims(order, last), -1)
    return SVDResult(u, s, adjoint(scale_columns(u, convert(signs, u.dtype))))


def svdvals(x: Any, /) -> Any:
    """Return the singular values of matrices, in descending order."""
    return svd(x, compute_uv=False)


def eigh(a: Any, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Return the eigenvalues of symmetric (Hermitian) matrices, in ascending order, and
    eigenvectors as columns.

    Without `symmetrize_input` only the lower triangle is read, or with `UPLO` "U" the upper one.
    Derivatives are right where the eigenvalues are distinct.
    """
    a = square("eigh", a)
    if UPLO not in (None, "L", "U"):
        raise ArgumentValueError(
            f"eigh: UPLO={UPLO!r} names no triangle.", advice="It is 'L' for lower, 'U' for upper."
        )
    a = symmetrized(a) if symmetrize_input else a
    return EighResult(*spectral.eigh(a, UPLO != "U"))


def eigvalsh(a: Any, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Any:
    """Return the eigenvalues of symmetric (Hermitian) matrices, in ascending order; see `eigh`."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues


def eig(a: Any) -> EigResult:
    """Return the complex eigenvalues of square matrices, and eigenvectors of length 1 as columns.

    The eigenvectors have no derivative; `lax.linalg.eig` gives them one on demand.
    """
    return EigResult(*spectral.eig(square("eig", a)))


def eigvals(a: Any) -> Any:
    """Return the complex eigenvalues of square matrices."""
    return spectral.eig(square("eigvals", a), right=False)[0]
