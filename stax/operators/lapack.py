"""LAPACK and BLAS for one matrix at a time, as the reference evaluator calls them.

Failure is NaN and no exception, as in JAX: a matrix that is not positive definite has a Cholesky
factor of NaN.  The routines are scipy's; they are loaded at their first use, because loading them
takes longer than most programs.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

PREFIXES = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


@functools.cache
def _module(name: str) -> Any:
    return importlib.import_module(f"scipy.{name}")


def _routine(name: str, x: np.ndarray, hermitian: str = "") -> Any:
    """Return the routine for the dtype of `x`; some have another name for complex matrices."""
    library = _module("linalg.blas" if name == "trsm" else "linalg.lapack")
    spelled = hermitian if hermitian and x.dtype.kind == "c" else name
    return getattr(library, PREFIXES[x.dtype.name] + spelled)


def _or_nan(info: int, *results: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the results, or NaN in all of them where the routine failed."""
    if info:
        for x in results:
            x[...] = np.nan
    return results


def cholesky(a: np.ndarray) -> np.ndarray:
    """Return the lower factor of a positive matrix, of which the lower triangle is read."""
    factor, info = _routine("potrf", a)(a, lower=1, clean=1)
    if info:
        factor = np.where(np.tri(*a.shape) > 0, np.nan, 0).astype(a.dtype)
    return factor


def triangular_solve(
    a: np.ndarray, b: np.ndarray, left: bool, lower: bool, transposed: bool, conjugated: bool,
    unit: bool,
) -> np.ndarray:  # fmt: skip
    """Return `b` divided by the triangle of `a`, from the left or the right."""
    turned = (2 if conjugated else 1) if transposed else 0
    a = np.conj(a) if conjugated and not transposed else a
    solve = _routine("trsm", a)
    return solve(1, a, b, side=int(not left), lower=int(lower), trans_a=turned, diag=int(unit))


def lu(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return both factors in one matrix, the row that each was exchanged with, and the order."""
    factors, pivots, _ = _routine("getrf", a)(a)
    return factors, pivots, pivots_to_permutation(pivots, len(a))


def pivots_to_permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    """Return the order of rows that exchanging row `i` with row `pivots[i]` in turn makes."""
    order = np.arange(size, dtype=np.int32)
    for i, j in enumerate(pivots):
        order[i], order[j] = order[j], order[i]
    return order


def qr_factors(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return R with the reflectors that make Q below it, and their scales."""
    reflectors, scales, _, _ = _routine("geqrf", a)(a)
    return reflectors, scales


def qr_pivoted(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the factors of the matrix with its columns sorted by norm, and their order."""
    reflectors, pivots, scales, _, _ = _routine("geqp3", a)(a)
    return reflectors, scales, pivots - 1


def reflected(reflectors: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Return the orthogonal columns that reflectors make of those of the identity."""
    if not scales.size:
        return np.eye(*reflectors.shape, dtype=reflectors.dtype)
    found, _, _ = _routine("orgqr", reflectors, "ungqr")(reflectors, scales)
    return found


def qr(a: np.ndarray, full: bool, pivoting: bool) -> Sequence[np.ndarray]:
    """Return Q, R and where `pivoting` the order of the columns."""
    rows, columns = a.shape
    reflectors, scales, *order = qr_pivoted(a) if pivoting else qr_factors(a)
    width = rows if full else min(rows, columns)
    wide = np.zeros((rows, width), a.dtype)
    wide[:, : min(width, columns)] = reflectors[:, :width]
    return reflected(wide, scales), np.triu(reflectors[:width]), *order


def eigh(a: np.ndarray, lower: bool) -> Sequence[np.ndarray]:
    """Return the eigenvalues of a symmetric matrix, ascending, and its eigenvectors as columns."""
    values, vectors, info = _routine("syevd", a, "heevd")(a, compute_v=1, lower=int(lower))
    return _or_nan(info, values, vectors)


def svd(a: np.ndarray, full: bool, vectors: bool) -> Sequence[np.ndarray]:
    """Return the singular values, descending, and where wanted U and V's adjoint."""
    if not np.isfinite(a).all():  # some versions never end
        a, bad = np.zeros_like(a), 1
    else:
        bad = 0
    u, s, vt, info = _routine("gesdd", a)(a, compute_uv=int(vectors), full_matrices=int(full))
    return _or_nan(info or bad, *((s, u, vt) if vectors else (s,)))


def eig(a: np.ndarray, left: bool, right: bool) -> Sequence[np.ndarray]:
    """Return complex eigenvalues, then left and right eigenvectors as columns where wanted."""
    wide = np.complex64 if a.dtype.itemsize == (4 if a.dtype.kind == "f" else 8) else np.complex128
    found = _routine("geev", a)(a, compute_vl=int(left), compute_vr=int(right))
    *values, lefts, rights, info = found
    if len(values) == 2:
        turning = values[1]
        values = [values[0] + 1j * turning.astype(wide)]
        lefts, rights = (
            _joined_pairs(v, turning, wide) if wanted else v
            for v, wanted in ((lefts, left), (rights, right))
        )
    kept = [values[0].astype(wide)]
    kept += [v.astype(wide) for v, wanted in ((lefts, left), (rights, right)) if wanted]
    return _or_nan(info, *kept)


def _joined_pairs(vectors: np.ndarray, turning: np.ndarray, dtype: Any) -> np.ndarray:
    """Return complex eigenvectors: of a pair, LAPACK gives real and imaginary part as columns."""
    found = vectors.astype(dtype)
    for j in np.flatnonzero(turning > 0):
        found[:, j] = vectors[:, j] + 1j * vectors[:, j + 1]
        found[:, j + 1] = np.conj(found[:, j])
    return found


def schur(a: np.ndarray, vectors: bool) -> Sequence[np.ndarray]:
    """Return the (quasi-)triangular factor and where wanted the orthogonal one."""
    outcome = _routine("gees", a)(lambda *_: None, a, compute_v=int(vectors))
    triangle, basis, info = outcome[0], outcome[-3], outcome[-1]
    return _or_nan(info, *((triangle, basis) if vectors else (triangle,)))


def hessenberg(a: np.ndarray) -> Sequence[np.ndarray]:
    """Return the Hessenberg form with reflectors below it, and their scales."""
    form, scales, info = _routine("gehrd", a)(a, lo=0, hi=len(a) - 1)
    return _or_nan(info, form, scales)


def tridiagonal(a: np.ndarray, lower: bool) -> Sequence[np.ndarray]:
    """Return reflectors, diagonal, off-diagonal and scales of a symmetric matrix."""
    form, main, off, scales, info = _routine("sytrd", a, "hetrd")(a, lower=int(lower))
    return _or_nan(info, form, main, off, scales)


def tridiagonal_solve(
    below: np.ndarray, main: np.ndarray, above: np.ndarray, b: np.ndarray
) -> np.ndarray:
    """Return `b` divided by a tridiagonal matrix, given by three vectors of one length."""
    *_, found, info = _routine("gtsv", main)(below[1:], main, above[:-1], b)
    return _or_nan(info, found)[0]


def complex_schur(t: np.ndarray, z: np.ndarray) -> Sequence[np.ndarray]:
    """Return a triangular form and its vectors, where the one given has blocks of two rows."""
    found: Sequence[np.ndarray] = _module("linalg").rsf2csf(t, z)
    return found


def square_root(a: np.ndarray) -> np.ndarray:
    """Return the principal square root."""
    return np.asarray(_module("linalg").sqrtm(a))
