"""Linear equations, inverses and determinants.

A solution is differentiated as what it is, and not as the computation it comes from: the
derivative of `solve` solves with the same factors.
"""

from __future__ import annotations

import math
import operator
from typing import Any, NamedTuple

from stax import types
from stax.dtypes import finfo
from stax.errors import ArgumentValueError, ShapeError
from stax.numpy import reductions
from stax.numpy.arguments import array, inexact, promoted
from stax.numpy.creation import zeros
from stax.numpy.elementwise import where
from stax.numpy.linalg.factors import matrices, square, svd
from stax.numpy.manipulation import moveaxis
from stax.operators import elementwise as ops, linalg
from stax.operators.arithmetic import divide, greater, greater_equal, logical_and, multiply
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import convert
from stax.operators.matrices import adjoint, check_square, matmul, scale_rows, symmetrized
from stax.operators.reshape import expand_dims, reshape, squeeze, transpose


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Any
    logabsdet: Any


# --- equations ---


def solve(a: Any, b: Any) -> Any:
    """Return x with `a` x = `b`: for a vector `b`, or for matrices in its last two axes.

    The leading axes of both broadcast.  Singular matrices give inf or NaN.  Raises ShapeError.
    """
    a, b = (inexact("solve", x) for x in promoted("solve", [a, b]))
    check_square("solve", a.type)
    if not b.ndim or (b.shape[-2:-1] or b.shape)[0] != a.shape[-1]:
        raise ShapeError(
            f"solve: {b.type} does not have as many rows as {a.type}.",
            advice="b is one vector or an array of matrices; vectors of a batch need b[..., None].",
        )
    if b.ndim == 1:
        return squeeze(solve(a, expand_dims(b, 1)), a.ndim - 1)
    if a.ndim == 2 and b.ndim > 2:
        return _one_for_all(a, b)
    batch = types.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return linalg.solve(*(broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b)))


def _one_for_all(a: Any, b: Any) -> Any:
    """Solve with one matrix for a batch of right sides: they are columns of one matrix."""
    n = b.ndim
    rows_first = transpose(b, (n - 2, *range(n - 2), n - 1))
    found = linalg.solve(a, reshape(rows_first, (b.shape[-2], -1) if b.size else (b.shape[-2], 0)))
    return transpose(reshape(found, rows_first.shape), (*range(1, n - 1), 0, n - 1))


def inv(a: Any) -> Any:
    """Return the inverses of square matrices; singular ones give inf or NaN."""
    return linalg.inverse(square("inv", a))


def lstsq(
    a: Any, b: Any, rcond: Any = None, *, numpy_resid: bool = False
) -> tuple[Any, Any, Any, Any]:
    """Return x that makes `a` x - `b` smallest, its squared length, the rank and singular values.

    Singular values below `rcond` times the largest count as zero.  With `numpy_resid` the squared
    length is empty where NumPy's is, which takes known values.
    """
    a, b = (inexact("lstsq", x) for x in promoted("lstsq", [a, b]))
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise ShapeError(
            f"lstsq takes a matrix and a vector or matrix with as many rows, not {a.type} and "
            f"{b.type}.",
            advice="Use vmap for a batch.",
        )
    rows, columns = a.shape
    right = expand_dims(b, 1) if b.ndim == 1 else b
    if not a.size:
        x, s = zeros((columns, right.shape[1]), a.dtype), zeros((0,), a.dtype)
        rank = zeros((), int)
    else:
        x, rank, s = _shortest(a, right, rcond)
    if numpy_resid and (rows <= columns or int(rank) < columns):
        left = zeros((0,))
    else:
        rest = ops.sub(right, matmul(a, x))
        left = reductions.sum(ops.integer_pow(ops.abs_(rest), 2), 0)
    return reshape(x, (-1,)) if b.ndim == 1 else x, left, rank, s


def _shortest(a: Any, b: Any, rcond: Any) -> tuple[Any, Any, Any]:
    """Return the shortest solution of least squares, the rank and the singular values."""
    precision = float(finfo(a.dtype).eps)
    bound = precision * max(a.shape) if rcond is None else rcond
    if rcond is not None:
        bound = where(array("lstsq", rcond) < 0, precision, rcond)
    u, s, vh = svd(a, full_matrices=False)
    bound = convert(array("lstsq", bound), s.dtype)
    counted = logical_and(greater(s, 0), greater_equal(s, multiply(bound, s[0])))
    inverse = where(counted, divide(1, where(counted, s, 1)), 0)
    x = matmul(adjoint(vh), scale_rows(matmul(adjoint(u), b), inverse))
    return x, reductions.sum(counted), s


def pinv(a: Any, rtol: Any = None, hermitian: bool = False, *, rcond: Any = None) -> Any:
    """Return the Moore-Penrose inverses of matrices.

    Singular values up to `rtol` (another name of it is `rcond`) times the largest count as zero;
    it is ten times the larger side times the precision of the dtype unless given.  `hermitian` says
    that the matrices are symmetric.
    """
    if rcond is not None and rtol is not None:
        raise ArgumentValueError("pinv: rtol and rcond are one argument.", advice="Pass one.")
    a, bound = matrices("pinv", a), rcond if rtol is None else rtol
    rows, columns = a.shape[-2:]
    if not rows or not columns:
        return zeros((*a.shape[:-2], columns, rows), a.dtype)
    if bound is None:
        bound = 10 * max(rows, columns) * float(finfo(a.dtype).eps)
    given = symmetrized(a) if hermitian else a
    u, s, vh = svd(given, full_matrices=False, hermitian=hermitian)
    bound = convert(array("pinv", bound), s.dtype)
    cutoff = multiply(expand_dims(bound, bound.ndim), s[..., 0:1])
    inverse = divide(1, where(greater(s, cutoff), s, math.inf))
    return linalg.pseudo_inverse(matmul(adjoint(vh), scale_rows(adjoint(u), inverse)), given)


def tensorinv(a: Any, ind: int = 2) -> Any:
    """Return the inverse of `a` as a map of tensors: of its axes from `ind` on to those before."""
    a, count = array("tensorinv", a), operator.index(ind)
    rows, columns = a.shape[:count], a.shape[count:]
    if count <= 0 or math.prod(rows) != math.prod(columns):
        raise ArgumentValueError(
            f"tensorinv: {a.type} with ind={ind} is not a square map.",
            advice="The axes before ind, at least one, have as many elements as those after.",
        )
    flat = reshape(a, (math.prod(rows), math.prod(columns)))
    return reshape(inv(flat), (*columns, *rows))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Return x with tensordot(`a`, x, x.ndim) = `b`; `axes` of `a` are moved to its end first."""
    a, b = array("tensorsolve", a), array("tensorsolve", b)
    if axes is not None:
        a = moveaxis(a, axes, [a.ndim - 1] * len(axes))
    shape = a.shape[b.ndim :]
    if a.shape[: b.ndim] != b.shape or b.size != math.prod(shape):
        raise ArgumentValueError(
            f"tensorsolve: {a.type} does not map tensors to {b.type}.",
            advice="a has the axes of b first, then as many elements again.",
        )
    flat = reshape(a, (b.size, math.prod(shape)))
    return reshape(solve(flat, reshape(b, (-1,))), shape)


# --- determinants ---


def det(a: Any) -> Any:
    """Return the determinants of square matrices."""
    a = square("det", a)
    n = a.shape[-1]
    if n == 0:
        return reductions.prod(a, (-2, -1))
    if n <= 3:
        return _expanded(a, n)
    return linalg.determinant(a)


def _expanded(a: Any, n: int) -> Any:
    """Return the determinants of matrices of up to three rows, by their first row."""
    if n == 1:
        return a[..., 0, 0]

    def minor(i: int, j: int) -> Any:
        return ops.sub(
            ops.mul(a[..., n - 2, i], a[..., n - 1, j]), ops.mul(a[..., n - 2, j], a[..., n - 1, i])
        )

    if n == 2:
        return minor(0, 1)
    terms = [ops.mul(a[..., 0, k], minor(*(i for i in range(3) if i != k))) for k in range(3)]
    return ops.add(ops.sub(terms[0], terms[1]), terms[2])


def slogdet(a: Any, *, method: str | None = None) -> SlogdetResult:
    """Return the sign (for complex matrices, the phase) of determinants and the logarithms of
    their absolute values; 0 and -inf for singular matrices.

    `method` is "lu" or "qr" in JAX; here both are computed from the pivots of LU.
    """
    a = square("slogdet", a)
    if method not in (None, "lu", "qr"):
        raise ArgumentValueError(
            f"slogdet: {method!r} is no method.", advice="Methods are 'lu' and 'qr'."
        )
    return SlogdetResult(*linalg.log_determinant(a))
