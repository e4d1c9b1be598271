"""Matrices of special form: each element a function of its row and column, or of a vector.

Where they are made of vectors, axes before the last are a batch.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import ArgumentValueError
from stax.numpy.arguments import array, arrays, inexact, promoted
from stax.numpy.creation import ones, zeros
from stax.numpy.elementwise import where
from stax.numpy.joining import concatenate
from stax.numpy.manipulation import flip
from stax.numpy.taking import take
from stax.operators import elementwise as ops
from stax.operators.arithmetic import remainder
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import convert
from stax.operators.matrices import conj, matmul, transposed
from stax.operators.reshape import expand_dims
from stax.operators.shape import iota, pad, slice_in_dim
from stax.trace import full


def _vector(name: str, x: Any) -> Any:
    x = array(name, x)
    return expand_dims(x, 0) if not x.ndim else x


def _places(rows: int, columns: int) -> tuple[Any, Any]:
    """Return for each element its row and its column."""
    return iota(types.int32, (rows, columns), 0), iota(types.int32, (rows, columns), 1)


def _counts(n: int) -> tuple[Any, Any]:
    """Return rows and columns as numbers of the default floating type."""
    i, j = _places(n, n)
    return convert(i, types.float_dtype()), convert(j, types.float_dtype())


# --- made of vectors ---


def block_diag(*arrs: Any) -> Any:
    """Return a matrix with the given matrices along its diagonal; a vector is a row."""
    given = promoted("block_diag", arrs or [zeros((1, 0))])
    if any(x.ndim > 2 for x in given):
        raise ArgumentValueError(
            "block_diag takes matrices.", advice="Use vmap for a batch of them."
        )
    blocks = [expand_dims(x, range(2 - x.ndim)) if x.ndim < 2 else x for x in given]
    width, start, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        after = width - start - x.shape[1]
        rows.append(pad(x, full((), 0, x.dtype), [(0, 0, 0), (start, after, 0)]))
        start += x.shape[1]
    return concatenate(rows, 0)


def toeplitz(c: Any, r: Any = None) -> Any:
    """Return matrices with constant diagonals: `c` is the first column, `r` the first row.

    `r` is the conjugate of `c` unless given; its first element is not read.
    """
    column = _vector("toeplitz", c)
    row = conj(column) if r is None else _vector("toeplitz", r)
    batch = types.broadcast_shapes(column.shape[:-1], row.shape[:-1])
    both = promoted("toeplitz", [column, row])
    column, row = (broadcast_to(x, (*batch, x.shape[-1])) for x in both)
    m, n = column.shape[-1], row.shape[-1]
    if not m or not n:
        return zeros((*batch, m, n), column.dtype)
    # The last row backwards, the first column without its first element after it.
    values = concatenate([flip(column, -1), slice_in_dim(row, 1, n, 1, len(batch))], -1)
    i, j = _places(m, n)
    return take(values, ops.add(ops.sub(j, i), ops.like(i, m - 1)), -1, mode="clip")


def hankel(c: Any, r: Any = None) -> Any:
    """Return matrices with constant antidiagonals: `c` is the first column, `r` the last row.

    `r` is zero unless given; its first element is not read.
    """
    column = array("hankel", c)
    row = zeros(column.shape, column.dtype) if r is None else array("hankel", r)
    if not column.ndim or not row.ndim:
        raise ArgumentValueError("hankel takes vectors, not numbers.", advice="Add an axis.")
    return flip(toeplitz(flip(column, -1), _joined_ends(column, row)), -2)


def _joined_ends(column: Any, row: Any) -> Any:
    """Return the last row of a Hankel matrix, which starts with the last element of its column."""
    batch = types.broadcast_shapes(column.shape[:-1], row.shape[:-1])
    both = promoted("hankel", [column, row])
    column, row = (broadcast_to(x, (*batch, x.shape[-1])) for x in both)
    m, n = column.shape[-1], row.shape[-1]
    axis = len(batch)
    first = slice_in_dim(column, max(m - 1, 0), m, 1, axis)
    return concatenate([first, slice_in_dim(row, 1, max(n, 1), 1, axis)], -1)


def circulant(c: Any) -> Any:
    """Return matrices with first column `c` whose columns are rolled down by one, one by one."""
    c = _vector("circulant", c)
    n = c.shape[-1]
    i, j = _places(n, n)
    return take(c, remainder(ops.sub(i, j), max(n, 1)), -1, mode="clip")


def convolution_matrix(a: Any, n: int, mode: str = "full") -> Any:
    """Return the matrix that convolves vectors of length `n` with `a`; modes are convolve's."""
    a, count = array("convolution_matrix", a), operator.index(n)
    if count < 1 or not a.ndim or not a.shape[-1] or mode not in ("full", "valid", "same"):
        raise ArgumentValueError(
            f"convolution_matrix: {a.type}, n={n} and {mode=} describe no convolution.",
            advice="Vectors are not empty, n is at least 1; modes are 'full', 'same' and 'valid'.",
        )
    m = a.shape[-1]
    i, j = _places(m + count - 1, count)
    gap = ops.sub(i, j)
    inside = ops.and_(ops.ge(gap, ops.like(gap, 0)), ops.lt(gap, ops.like(gap, m)))
    values = take(a, gap, -1, mode="clip")
    whole = where(inside, values, 0)
    trim = min(count, m) - 1
    start = {"full": 0, "same": trim // 2, "valid": trim}[mode]
    stop = {"full": 0, "same": trim - trim // 2, "valid": trim}[mode]
    return slice_in_dim(whole, start, m + count - 1 - stop, 1, whole.ndim - 2)


def companion(a: Any) -> Any:
    """Return companion matrices: their characteristic polynomials have coefficients `a`."""
    a = inexact("companion", _vector("companion", a))
    n = a.shape[-1]
    if n < 2:
        raise ArgumentValueError(
            f"companion: {a.type} has less than two coefficients.", advice="Give at least two."
        )
    axis = a.ndim - 1
    first = ops.neg(slice_in_dim(a, 1, n, 1, axis)) / slice_in_dim(a, 0, 1, 1, axis)
    return _first_row_and_subdiagonal(first, ones((*a.shape[:-1], n - 2), a.dtype))


def leslie(f: Any, s: Any) -> Any:
    """Return Leslie matrices: fecundities `f` in the first row, survival `s` below the diagonal."""
    f, s = promoted("leslie", [_vector("leslie", x) for x in arrays("leslie", f, s)])
    if f.shape[-1] < 2 or s.shape[-1] != f.shape[-1] - 1:
        raise ArgumentValueError(
            f"leslie: {f.type} and {s.type} do not fit.",
            advice="f has at least two elements, s one less than f.",
        )
    batch = types.broadcast_shapes(f.shape[:-1], s.shape[:-1])
    return _first_row_and_subdiagonal(*(broadcast_to(x, (*batch, x.shape[-1])) for x in (f, s)))


def _first_row_and_subdiagonal(row: Any, below: Any) -> Any:
    """Return matrices with a first row and a subdiagonal, one element shorter."""
    *batch, n = row.shape
    i, j = _places(n, n)
    longer = pad(below, full((), 0, below.dtype), [(0, 0, 0)] * len(batch) + [(0, 1, 0)])
    wide = broadcast_to(expand_dims(longer, len(batch)), (*batch, n, n))
    is_below = broadcast_to(ops.eq(i, ops.add(j, ops.like(j, 1))), wide.shape)
    is_first = broadcast_to(ops.eq(i, ops.like(i, 0)), wide.shape)
    first = broadcast_to(expand_dims(row, len(batch)), wide.shape)
    return where(is_first, first, where(is_below, wide, 0))


def fiedler(a: Any) -> Any:
    """Return matrices of the distances between the elements of vectors."""
    a = _vector("fiedler", a)
    return ops.abs_(expand_dims(a, a.ndim) - expand_dims(a, a.ndim - 1))


def fiedler_companion(a: Any) -> Any:
    """Return pentadiagonal companion matrices of the polynomials with coefficients `a`.

    M. Fiedler, "A note on companion matrices" (Linear Algebra Appl. 372, 2003).
    """
    a = inexact("fiedler_companion", _vector("fiedler_companion", a))
    n = a.shape[-1] - 1
    if n < 0:
        raise ArgumentValueError(
            f"fiedler_companion: {a.type} has no coefficients.", advice="Give at least one."
        )
    if n == 0:
        return zeros((*a.shape[:-1], 0, 0), a.dtype)
    monic = ops.neg(a / slice_in_dim(a, 0, 1, 1, a.ndim - 1))
    if n < 2:
        return expand_dims(slice_in_dim(monic, 1, n + 1, 1, a.ndim - 1), a.ndim - 1)
    i, j = _places(n, n)
    even = ops.eq(ops.and_(i, ops.like(i, 1)), ops.like(i, 0))
    gap = ops.sub(j, i)
    first = ops.eq(ops.add(i, j), ops.like(i, 0))
    ahead, behind = (ops.eq(gap, ops.like(gap, k)) for k in (1, -1))
    second, back = (ops.eq(gap, ops.like(gap, k)) for k in (2, -2))
    below = ops.and_(ops.eq(i, ops.like(i, 1)), ops.eq(j, ops.like(j, 0)))
    ones_ = ops.or_(ops.and_(even, second), ops.or_(ops.and_(ops.not_(even), back), below))
    later = take(monic, ops.add(i, ops.like(i, 2)), -1, mode="clip")
    near = take(monic, ops.add(i, ops.like(i, 1)), -1, mode="clip")
    is_near = ops.or_(first, ops.and_(even, behind))
    return where(is_near, near, where(ops.and_(even, ahead), later, where(ones_, 1, 0)))


# --- made of a size ---


def dft(n: int, scale: str | None = None, *, dtype: Any = None) -> Any:
    """Return the matrix of the discrete Fourier transform, divided by `n` or its root if asked."""
    if scale not in (None, "sqrtn", "n"):
        raise ArgumentValueError(
            f"dft: scale={scale!r} is no scale.", advice="It is None, 'sqrtn' or 'n'."
        )
    kind = types.complex_dtype() if dtype is None else types.check_dtype(dtype)
    if not types.is_complex(kind):
        raise ArgumentValueError(f"dft: {kind} is not complex.", advice="Use complex64.")
    i, j = _places(n, n)
    # The exponent is reduced exactly first: it grows with the square of n.
    turns = convert(remainder(ops.mul(i, j), max(n, 1)), types.real_part(kind))
    angles = turns * (-2 * math.pi / max(n, 1))
    found = ops.complex_(ops.cos(angles), ops.sin(angles))
    return found / {None: 1.0, "sqrtn": math.sqrt(n), "n": float(n)}[scale]


def hadamard(n: int, dtype: Any = int) -> Any:
    """Return the Hadamard matrix of size `n`, a power of 2: the sign of a bit count."""
    if n < 1 or n & (n - 1):
        raise ArgumentValueError(f"hadamard: {n} is no power of 2.", advice="Use 1, 2, 4, 8, ...")
    i, j = _places(n, n)
    bits = ops.and_(i, j)
    for shift in (16, 8, 4, 2, 1):
        bits = ops.xor(bits, ops.shift_right_logical(bits, ops.like(bits, shift)))
    odd = ops.and_(bits, ops.like(bits, 1))
    return convert(ops.sub(ops.like(odd, 1), ops.add(odd, odd)), types.check_dtype(dtype))


def helmert(n: int, full: bool = False) -> Any:
    """Return the Helmert matrix, without its first row unless `full`; its rows are orthonormal."""
    if n < 1:
        raise ArgumentValueError(f"helmert: {n} is no size.", advice="It is at least 1.")
    i, j = _counts(n)
    length = ops.sqrt(i * (i + 1))
    found = where(ops.lt(j, i), 1 / length, where(ops.eq(i, j), -i / length, 0.0))
    found = where(ops.eq(i, ops.like(i, 0)), 1 / math.sqrt(n), found)
    return found if full else slice_in_dim(found, 1, n, 1, 0)


def hilbert(n: int) -> Any:
    """Return the matrix with elements 1 / (i + j + 1)."""
    i, j = _counts(n)
    return 1 / (i + j + 1)


def invhilbert(n: int) -> Any:
    """Return the inverse of the matrix `hilbert(n)`, whose elements are integers."""
    return _of_integers(
        n,
        lambda i, j: (
            (-1) ** (i + j)
            * (i + j + 1)
            * math.comb(n + i, n - j - 1)
            * math.comb(n + j, n - i - 1)
            * math.comb(i + j, i) ** 2
        ),
    )


def pascal(n: int, kind: str | None = None) -> Any:
    """Return the matrix of binomial coefficients: symmetric, or the "lower" or "upper" triangle."""
    return _binomial("pascal", n, kind, lambda i, j: math.comb(i, j), types.float32)


def invpascal(n: int, kind: str | None = None) -> Any:
    """Return the inverse of the matrix `pascal(n, kind)`."""
    signed = _binomial_sign
    return _binomial("invpascal", n, kind, signed, types.float_dtype())


def _binomial_sign(i: int, j: int) -> int:
    return (-1) ** (i + j) * math.comb(i, j)


def _binomial(
    name: str, n: int, kind: str | None, element: Callable[[int, int], int], dtype: Any
) -> Any:
    if kind not in (None, "symmetric", "lower", "upper"):
        raise ArgumentValueError(
            f"{name}: kind={kind!r} is no kind.", advice="It is 'symmetric', 'lower' or 'upper'."
        )
    lower = convert(_of_integers(n, element), dtype)
    if kind == "lower":
        return lower
    if kind == "upper":
        return transposed(lower)
    pair = (lower, transposed(lower))
    return matmul(*(pair if name == "pascal" else pair[::-1]))


def _of_integers(n: int, element: Callable[[int, int], int]) -> Any:
    """Return the matrix of known integers, in the default floating type."""
    rows = [[float(element(i, j)) for j in range(n)] for i in range(n)]
    return asarray(np.array(rows, types.float_dtype()).reshape(n, n))
