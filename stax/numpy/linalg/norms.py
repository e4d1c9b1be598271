"""Norms, condition numbers and ranks.

Norms are differentiated with a safe square root: where the norm is 0, so is its gradient, and
`norm(x)**2` has the right derivative there.
"""

from __future__ import annotations

import math
from typing import Any

from stax import types
from stax.dtypes import finfo
from stax.errors import ArgumentValueError
from stax.numpy import reductions
from stax.numpy.arguments import Axis, axes_list, inexact
from stax.numpy.elementwise import isnan, where
from stax.numpy.linalg.factors import matrices, square, svd, svdvals
from stax.numpy.linalg.solutions import inv
from stax.numpy.manipulation import moveaxis
from stax.operators import elementwise as ops
from stax.operators.arithmetic import greater, logical_and, logical_not, multiply, power
from stax.operators.elementwise import convert, like
from stax.operators.matrices import conj, real
from stax.operators.reshape import expand_dims, reshape


def norm(x: Any, ord: Any = None, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return the norm over `axis`: of vectors over one axis (or all), of matrices over two.

    `ord` is as in NumPy.
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
    is_complex = types.is_complex(x.dtype)
    squares = real(ops.mul(x, conj(x))) if is_complex else ops.integer_pow(x, 2)
    squared = reductions.sum(squares, tuple(axes), keepdims=keepdims)
    zero = ops.eq(squared, like(squared, 0))
    # At 0 the gradient is 0.  There is no second derivative, and the power gives NaN for it, where
    # a branch that is smooth would make the Hessian of norm(x)**2 finite and wrong.
    at_zero = ops.power(squared, like(squared, 1.5))
    return ops.select(zero, at_zero, ops.sqrt(squared))


def _vector_norm(x: Any, ord: Any, axes: list[int], keepdims: bool) -> Any:
    axis = tuple(axes)
    if ord == 2:
        return _euclidean(x, axes, keepdims)
    if ord == math.inf:
        return reductions.max(ops.abs_(x), axis, keepdims=keepdims)
    if ord == -math.inf:
        return reductions.min(ops.abs_(x), axis, keepdims=keepdims)
    if isinstance(ord, str):
        raise ArgumentValueError(
            f"norm: order {ord!r} is not a norm of vectors.",
            advice="Orders of vectors are numbers, inf and -inf.",
        )
    if ord == 0:
        nonzero = convert(ops.ne(x, like(x, 0)), types.real_part(x.dtype))
        return reductions.sum(nonzero, axis, keepdims=keepdims)
    if ord == 1:
        return reductions.sum(ops.abs_(x), axis, keepdims=keepdims)
    total = reductions.sum(power(ops.abs_(x), ord), axis, keepdims=keepdims)
    return power(total, 1.0 / ord)


def _matrix_norm(x: Any, ord: Any, axes: list[int], keepdims: bool) -> Any:
    row, column = axes
    if ord in ("fro", "f"):
        return _euclidean(x, axes, keepdims)
    if ord in ("nuc", 2, -2):
        return _spectral_norm(x, ord, axes, keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentValueError(
            f"norm: order {ord!r} is not a norm of matrices.",
            advice="Orders of matrices are 'fro', 'nuc', 1, -1, 2, -2, inf and -inf.",
        )
    summed, other = (row, column) if ord in (1, -1) else (column, row)
    sums = reductions.sum(ops.abs_(x), summed, keepdims=True)
    return _without_axes(_extreme(sums, ord > 0, other), axes, keepdims)


def _extreme(x: Any, largest: bool, axis: int) -> Any:
    """Return the largest of numbers of at least 0, or the smallest; of none, the largest is 0."""
    if largest:
        return reductions.max(x, axis, keepdims=True, initial=0)
    return reductions.min(x, axis, keepdims=True)


def _without_axes(x: Any, axes: list[int], keepdims: bool) -> Any:
    return x if keepdims else reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


def _spectral_norm(x: Any, ord: Any, axes: list[int], keepdims: bool) -> Any:
    values = svdvals(moveaxis(x, axes, (-2, -1)))
    if ord == "nuc":
        found = reductions.sum(values, -1)
    else:
        found = reshape(_extreme(values, ord > 0, values.ndim - 1), values.shape[:-1])
    return expand_dims(found, axes) if keepdims else found


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Return the norm of the vector of all elements over `axis`."""
    x = inexact("vector_norm", x)
    return _vector_norm(x, ord, axes_list(axis, x.ndim), keepdims)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Return the norm of the matrices in the last two axes."""
    x = inexact("matrix_norm", x)
    return _matrix_norm(x, ord, [x.ndim - 2, x.ndim - 1], keepdims)


def matrix_rank(M: Any, rtol: Any = None, *, hermitian: bool = False, tol: Any = None) -> Any:
    """Return how many singular values exceed a bound, for each matrix in the last two axes.

    The bound is `rtol` (another name of it is `tol`), or the largest singular value times the
    larger side of the matrix times the precision of its dtype.  Numbers and vectors have rank 0 if
    they are zero, else 1.  `hermitian` says that the matrices are symmetric.
    """
    if tol is not None and rtol is not None:
        raise ArgumentValueError("matrix_rank: rtol and tol are one argument.", advice="Pass one.")
    x = inexact("matrix_rank", M)
    if x.ndim < 2:
        return convert(reductions.any(ops.ne(x, like(x, 0))), types.int32)
    bound = tol if rtol is None else rtol
    values = svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if bound is None:
        largest = _extreme(values, True, values.ndim - 1)
        bound = multiply(largest, max(x.shape[-2:]) * float(finfo(x.dtype).eps))
    else:
        bound = inexact("matrix_rank", bound)
        bound = expand_dims(bound, bound.ndim)
    return reductions.sum(greater(values, bound), -1)


def cond(x: Any, p: Any = None) -> Any:
    """Return the condition numbers norm(x, p) norm(inv(x), p) of the matrices in the last two axes.

    For `p` None, 2 and -2 it is a ratio of singular values, and the matrices need not be square.
    """
    a = matrices("cond", x)
    if 0 in a.shape[-2:]:
        raise ArgumentValueError(
            f"cond: {a.type} has empty matrices, which have no condition number.",
            advice="Test the shape first.",
        )
    if p in (None, 2, -2):
        values = svdvals(a)
        largest, smallest = values[..., 0], values[..., -1]
        if p != -2:
            return ops.div(largest, smallest)
        ratio = ops.div(smallest, largest)
    else:
        square("cond", a)
        ratio = multiply(matrix_norm(a, ord=p), matrix_norm(inv(a), ord=p))
    known = logical_not(reductions.any(isnan(a), (-2, -1)))
    return where(logical_and(isnan(ratio), known), like(ratio, math.inf), ratio)
