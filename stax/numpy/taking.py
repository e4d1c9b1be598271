"""Elements named by indices: take, take_along_axis, diagonals and triangles.

An index out of bounds reads NaN (or the dtype's extreme), as in JAX's default mode "fill"; "clip"
reads the nearest element and "wrap" counts around.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError, ShapeError, UnsupportedError
from stax.extent import Extent
from stax.numpy.arguments import array, refuse_out
from stax.operators import elementwise as ops
from stax.operators.arithmetic import remainder
from stax.operators.dynamic import from_start
from stax.operators.elementwise import convert, like, select
from stax.operators.index import GatherDimensionNumbers, gather
from stax.operators.reduce import reduce_sum
from stax.operators.reshape import expand_dims, move_axis, reshape
from stax.operators.shape import broadcast_in_dim, broadcast_to, iota, pad, slice_
from stax.trace import full
from stax.types import Shape, canonical_axis, check_dtype


def _indices(name: str, indices: Any) -> Any:
    """Return indices as an array of at least 32 bits, in which every length fits."""
    found = array(name, indices)
    if not types.is_integer(found.dtype):
        raise DTypeError(
            f"{name}: indices must be integers, got {found.type}.",
            advice="Convert them with astype(int).",
        )
    narrow = found.dtype.itemsize < 4
    return convert(found, types.int32) if narrow else found


def take(
    a: Any,
    indices: Any,
    axis: int | None = None,
    out: Any = None,
    mode: Any = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: Any = None,
) -> Any:
    """Return the elements of `a` at `indices` along `axis`, or of the flattened array.

    The axes of `indices` take the place of `axis`.  `indices_are_sorted` is accepted and changes
    nothing.
    """
    refuse_out("take", out)
    a, indices = array("take", a), _indices("take", indices)
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    axis = canonical_axis(axis, a.ndim)
    length = a.shape[axis]
    indices, how = _wrapped(indices, length, mode)
    shape = (*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :])
    if _is_empty(shape):
        return full(shape, 0, a.dtype, a.weak_type)
    after = range(axis + indices.ndim, a.ndim - 1 + indices.ndim)
    numbers = GatherDimensionNumbers((*range(axis), *after), (axis,), (axis,))
    sizes = tuple(1 if i == axis else n for i, n in enumerate(a.shape))
    places = expand_dims(indices, indices.ndim)
    return gather(
        a, places, numbers, sizes, unique_indices=unique_indices, mode=how, fill_value=fill_value
    )


def _is_empty(shape: Shape) -> bool:
    return any(isinstance(n, int) and n == 0 for n in shape)


def _wrapped(indices: Any, length: Any, mode: Any) -> tuple[Any, Any]:
    """Return places within an axis, as far as `mode` brings them there, and the gather's mode."""
    if isinstance(length, int) and length == 0 and indices.size:
        raise ArgumentValueError(
            "take: there is nothing to take from an empty axis.", advice="Test the length first."
        )
    if mode == "wrap":
        return convert(remainder(indices, length), indices.dtype), "clip"
    if mode == "raise":
        raise UnsupportedError(
            "take: mode='raise' is not supported, because indices may be traced.",
            advice="Use 'fill', 'clip' or 'wrap'.",
        )
    mode = "fill" if mode is None else mode
    return (indices if mode == "clip" else from_start(indices, length)), mode


def take_along_axis(
    arr: Any,
    indices: Any,
    axis: int | None = -1,
    mode: Any = None,
    fill_value: Any = None,
    *,
    wrap_negative_indices: bool = True,
) -> Any:
    """Return `arr[..., indices[..., i, ...], ...]`: an index for each element of the result.

    The other axes of `arr` and `indices` broadcast.
    """
    arr, indices = array("take_along_axis", arr), _indices("take_along_axis", indices)
    if axis is None:
        if indices.ndim != 1:
            raise ArgumentValueError(
                "take_along_axis: with axis=None indices have one axis.",
                advice="Flatten the indices, or name the axis.",
            )
        arr, axis = reshape(arr, (-1,)), 0
    if arr.ndim != indices.ndim:
        raise ArgumentValueError(
            f"take_along_axis: {arr.type} and indices {indices.type} differ in their axes.",
            advice="Add axes to the indices with expand_dims.",
        )
    axis = canonical_axis(axis, arr.ndim)
    others = tuple(i for i in range(arr.ndim) if i != axis)
    shared = types.broadcast_shapes(*(tuple(x.shape[i] for i in others) for x in (arr, indices)))
    length, count = arr.shape[axis], indices.shape[axis]
    if _is_empty((*shared, count)):
        return full((*shared[:axis], count, *shared[axis:]), 0, arr.dtype, arr.weak_type)
    arr = broadcast_to(arr, (*shared[:axis], length, *shared[axis:]))
    indices = broadcast_to(indices, (*shared[:axis], count, *shared[axis:]))
    if 0 in arr.shape:
        return full(indices.shape, 0, arr.dtype)
    how = "fill" if mode is None else mode
    if wrap_negative_indices or mode == "wrap":
        indices, how = _wrapped(indices, length, mode)
    numbers = GatherDimensionNumbers((), (axis,), (axis,), others, others)
    places = expand_dims(indices, indices.ndim)
    return gather(arr, places, numbers, (1,) * arr.ndim, mode=how, fill_value=fill_value)


# --- diagonals and triangles ---


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return diagonal number `offset` of the matrices in two axes, along a new last axis."""
    a = array("diagonal", a)
    if a.ndim < 2:
        raise ArgumentValueError(
            f"diagonal takes an array with at least two axes, not {a.type}.",
            advice="Use diag for a matrix made of a vector.",
        )
    first, second = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    if first == second:
        raise ArgumentValueError(
            "diagonal: axis1 and axis2 are the same.", advice="A matrix lies in two different axes."
        )
    a = move_axis(move_axis(a, first, -1), second - (first < second), -1)
    *rest, rows, columns = a.shape
    start_row, start_column = min(rows, max(0, -offset)), min(columns, max(0, offset))
    length = max(0, min(rows - start_row, columns - start_column))
    # In the flattened square, the elements of the diagonal are `length + 1` apart.
    zeros = [0] * len(rest)
    ends = [*rest, start_row + length, start_column + length]
    square = slice_(a, [*zeros, start_row, start_column], ends)
    if isinstance(length, Extent):  # steps of a length that is not known are no slice
        numbers = iota(types.int32, (length,), 0)
        places = broadcast_in_dim(numbers, (*rest, length, 1), (len(rest),))
        return reshape(take_along_axis(square, places, -1), (*rest, length))
    flat = reshape(square, (*rest, length * length))
    return slice_(flat, [*zeros, 0], flat.shape, [*(1 for _ in rest), length + 1])


def diag(v: Any, k: int = 0) -> Any:
    """Return diagonal number `k` of a matrix, or the matrix with a vector on that diagonal."""
    v = array("diag", v)
    if v.ndim == 2:
        return diagonal(v, k)
    if v.ndim != 1:
        raise ArgumentValueError(
            f"diag takes a vector or a matrix, not {v.type}.",
            advice="Use diagonal for matrices in two axes, diagflat to flatten first.",
        )
    size = v.shape[0] + abs(k)
    before = max(0, k)
    row = pad(v, _zero(v), [(before, size - before - v.shape[0], 0)])
    rows, columns = (iota(types.int32, (size, size), axis) for axis in (0, 1))
    on = ops.eq(ops.add(rows, like(rows, k)), columns)
    spread = broadcast_to(row, (size, size))
    return select(on, spread, like(spread, 0))


def _zero(x: Any) -> Any:
    """Return the number 0 in the dtype of `x`."""
    return convert(array("pad", 0), x.dtype, x.weak_type)


def diagflat(v: Any, k: int = 0) -> Any:
    """Return the matrix with the elements of `v`, flattened, on diagonal number `k`."""
    v = array("diagflat", v)
    return diag(convert(reshape(v, (-1,)), v.dtype), k)


def trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    """Return the sum of diagonal number `offset` of the matrices in two axes."""
    refuse_out("trace", out)
    found = diagonal(a, offset, axis1, axis2)
    if dtype is not None:
        found = convert(found, check_dtype(dtype))
    elif types.is_bool(found.dtype):
        found = convert(found, types.int_dtype())
    elif types.is_integer(found.dtype) and found.dtype.itemsize < types.int_dtype().itemsize:
        wide = types.check_dtype(f"{found.dtype.kind}{types.int_dtype().itemsize}")
        found = convert(found, wide)
    return reduce_sum(found, (found.ndim - 1,))


def _triangle(found: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    return tuple(array("indices", x.astype(types.int_dtype())) for x in found)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """Return rows and columns of the elements at and below diagonal `k` of an `n` by `m` matrix."""
    return _triangle(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Any, ...]:
    """Return rows and columns of the elements at and above diagonal `k` of an `n` by `m` matrix."""
    return _triangle(np.triu_indices(n, k, m))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """Return `tril_indices` for the shape of a matrix."""
    n, m = arr.shape
    return tril_indices(n, k, m)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[Any, ...]:
    """Return `triu_indices` for the shape of a matrix."""
    n, m = arr.shape
    return triu_indices(n, k, m)


def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """Return the index of the diagonal of an array with `ndim` axes of length `n`."""
    return (iota(types.int_dtype(), (n,)),) * ndim


def diag_indices_from(arr: Any) -> tuple[Any, ...]:
    """Return `diag_indices` for the shape of an array whose axes have one length."""
    if len(set(arr.shape)) > 1:
        raise ShapeError(
            f"diag_indices_from: the axes of {arr.shape} differ in length.",
            advice="Only arrays whose axes have one length have this diagonal.",
        )
    return diag_indices(arr.shape[0], len(arr.shape))
