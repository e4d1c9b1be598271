"""Linear algebra: norms and the products of arrays.

Norms are differentiated with a safe square root: where the norm is 0, so is its gradient, and
`norm(x)**2` has the right derivative there.
"""

from __future__ import annotations

import math
from typing import Any

from stax import types
from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.numpy import linear, reductions
from stax.numpy.arguments import Axis, array, arrays, axes_list, inexact
from stax.numpy.linear import vecdot as vecdot
from stax.numpy.manipulation import matrix_transpose as matrix_transpose
from stax.numpy.taking import diagonal as _diagonal, trace as _trace
from stax.operators import elementwise as ops
from stax.operators.arithmetic import power
from stax.operators.elementwise import convert, like
from stax.operators.reshape import reshape
from stax.operators.shape import iota

__all__ = [
    "cross", "diagonal", "matmul", "matrix_norm", "matrix_power", "matrix_transpose", "norm",
    "outer", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return the norm over `axis`: of vectors over one axis (or all), of matrices over two.

    `ord` is as in NumPy; the spectral and nuclear norms of matrices are not supported.
    """
    x = inexact("norm", x)
    if axis is None:
        if ord is None:
            return _euclidean(x, list(range(x.ndim)), keepdims)
        axes = list(range(x.ndim))
    else:
        axes = axes_list(axis, x.ndim)
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, "fro" if ord is None else ord, axes, keepdims)
    raise ArgumentValueError(
        f"norm: {axis=} names neither vectors nor matrices in {x.type}.",
        advice="Name one axis for vectors, two for matrices.",
    )


def _euclidean(x: Any, axes: list[int], keepdims: bool) -> Any:
    squared = reductions.sum(ops.integer_pow(x, 2), tuple(axes), keepdims=keepdims)
    zero = ops.eq(squared, like(squared, 0))
    # At 0 the gradient is 0.  There is no second derivative, and the power gives NaN for it, where
    # a branch that is smooth would make the Hessian of norm(x)**2 finite and wrong.
    at_zero = ops.power(squared, like(squared, 1.5))
    return ops.select(zero, at_zero, ops.sqrt(squared))


def _vector_norm(x: Any, ord: Any, axes: list[int], keepdims: bool) -> Any:
    where = tuple(axes)
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    if ord == math.inf:
        return reductions.max(ops.abs_(x), where, keepdims=keepdims)
    if ord == -math.inf:
        return reductions.min(ops.abs_(x), where, keepdims=keepdims)
    if isinstance(ord, str):
        raise ArgumentValueError(
            f"norm: order {ord!r} is not a norm of vectors.",
            advice="Orders of vectors are numbers, inf and -inf.",
        )
    if ord == 0:
        nonzero = convert(ops.ne(x, like(x, 0)), x.dtype)
        return reductions.sum(nonzero, where, keepdims=keepdims)
    if ord == 1:
        return reductions.sum(ops.abs_(x), where, keepdims=keepdims)
    total = reductions.sum(power(ops.abs_(x), ord), where, keepdims=keepdims)
    return power(total, 1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: list[int], keepdims: bool) -> Any:
    row, column = axes
    if ord in ("fro", "f"):
        return _euclidean(x, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        summed, other = (row, column) if ord in (1, -1) else (column, row)
        sums = reductions.sum(ops.abs_(x), summed, keepdims=True)
        extreme = (reductions.max if ord > 0 else reductions.min)(sums, other, keepdims=True)
        kept = [n for i, n in enumerate(extreme.shape) if i not in axes]
        return extreme if keepdims else reshape(extreme, kept)
    raise UnsupportedError(
        f"norm: order {ord!r} of matrices is not supported.",
        advice="Orders are 'fro', 1, -1, inf and -inf.",
    )


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return the norm of the vector of all elements over `axis`."""
    x = inexact("vector_norm", x)
    return _vector_norm(x, ord, axes_list(axis, x.ndim), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of the matrices in the last two axes."""
    x = inexact("matrix_norm", x)
    return _matrix_norm(x, ord, [x.ndim - 2, x.ndim - 1], keepdims)


def matrix_power(a: Any, n: int) -> Any:
    """Return the matrices in the last two axes raised to the power `n`, at least 0."""
    a = array("matrix_power", a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ArgumentValueError(
            f"matrix_power takes square matrices, not {a.type}.",
            advice="Its last two axes must have one length.",
        )
    if n < 0:
        raise UnsupportedError(
            "matrix_power: negative powers are not supported.", advice="Invert the matrix first."
        )
    if n == 0:
        places = [iota(types.int32, a.shape, a.ndim - i) for i in (2, 1)]
        return convert(ops.eq(*places), a.dtype)
    result, square = None, a
    while n:
        if n & 1:
            result = square if result is None else matmul(result, square)
        n >>= 1
        square = matmul(square, square) if n else square
    return result


def matmul(
    x1: Any, x2: Any, /, *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Return the matrix product; see `stax.numpy.matmul`."""
    return linear.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the product summed over `axes`; see `stax.numpy.tensordot`."""
    return linear.tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type
    )


def outer(x1: Any, x2: Any, /) -> Any:
    """Return the products of each element of the vector `x1` with each of `x2`."""
    x1, x2 = arrays("outer", x1, x2)
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(
            f"linalg.outer takes vectors, not {x1.type} and {x2.type}.",
            advice="stax.numpy.outer flattens its arguments.",
        )
    return linear.outer(x1, x2)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """Return the cross products of the vectors of length 3 along `axis`."""
    x1, x2 = arrays("cross", x1, x2)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(
            f"linalg.cross takes vectors of length 3 along {axis=}, not {x1.type} and {x2.type}.",
            advice="stax.numpy.cross also takes vectors of length 2.",
        )
    return linear.cross(x1, x2, axis=axis)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """Return the diagonals of the matrices in the last two axes."""
    return _diagonal(x, offset, -2, -1)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """Return the sums of the diagonals of the matrices in the last two axes."""
    return _trace(x, offset, -2, -1, dtype)
