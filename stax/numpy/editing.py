"""Elements picked out, left out, put in: delete, insert, compress, extract, choose, put_along_axis.

Where the size of a result depends on values, those values must be known, or `size` given; what is
deleted or inserted where is static.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.numpy.arguments import array, arrays, promoted, refuse_out
from stax.numpy.elementwise import nonzero
from stax.numpy.joining import concatenate, stack
from stax.numpy.manipulation import broadcast_arrays
from stax.numpy.taking import take
from stax.operators import elementwise as ops
from stax.operators.arithmetic import add, floor_divide, multiply, remainder
from stax.operators.dynamic import from_start
from stax.operators.elementwise import convert, like, select
from stax.operators.index import ScatterDimensionNumbers, scatter
from stax.operators.reshape import expand_dims, move_axis, reshape
from stax.operators.shape import broadcast_to
from stax.types import canonical_axis


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the places of the elements of the flattened array that are not zero."""
    return nonzero(reshape(array("flatnonzero", a), (-1,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the index of each element that is not zero, one in a row."""
    a = array("argwhere", a)
    flat = a if a.ndim else reshape(a, (1,))
    found = stack(nonzero(flat, size=size, fill_value=fill_value), 1)
    return found if a.ndim else reshape(found, (found.shape[0], 0)) if not found.shape[0] else found


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """Return the elements of `arr` where `condition` holds, as a vector."""
    condition, arr = broadcast_arrays(condition, arr)
    return compress(
        reshape(condition, (-1,)), reshape(arr, (-1,)), size=size, fill_value=fill_value
    )


def compress(
    condition: Any,
    a: Any,
    axis: int | None = None,
    *,
    size: int | None = None,
    fill_value: Any = 0,
    out: Any = None,
) -> Any:
    """Return the slices of `a` along `axis` for which the vector `condition` holds."""
    refuse_out("compress", out)
    a = array("compress", a)
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    length = a.shape[canonical_axis(axis, a.ndim)]
    places = flatnonzero(condition, size=size, fill_value=length)
    return take(a, places, axis=axis, fill_value=fill_value if size is not None else None)


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """Return, for each place, the element of the choice whose number is in `a`.

    Modes are "clip" and "wrap"; "raise" takes concrete numbers.
    """
    refuse_out("choose", out)
    a, *rows = broadcast_arrays(a, *promoted("choose", choices))
    count = len(rows)
    if mode == "raise" and ((np.asarray(a) < 0) | (np.asarray(a) >= count)).any():
        raise ArgumentValueError(
            f"choose: a number is not one of {count} choices.",
            advice="Use mode='clip' or mode='wrap' for numbers out of range.",
        )
    if mode == "wrap":
        a = remainder(a, count)
    result = rows[-1]
    for number in range(count - 2, -1, -1):
        result = select(ops.le(a, like(a, number)), rows[number], result)
    return result


def _removed(obj: Any, length: int) -> np.ndarray:
    """Return which places of an axis remain once those that `obj` names are deleted."""
    kept = np.ones(length, bool)
    if isinstance(obj, slice):
        kept[obj] = False
        return kept
    places = np.asarray(obj)
    kept[places if places.dtype == bool else places.astype(np.int64)] = False
    return kept


def delete(
    arr: Any, obj: Any, axis: int | None = None, *, assume_unique_indices: bool = False
) -> Any:
    """Return `arr` without the places along `axis` that `obj` (static) names.

    `assume_unique_indices` is accepted and changes nothing: a place is deleted once.
    """
    arr = array("delete", arr)
    if axis is None:
        arr, axis = reshape(arr, (-1,)), 0
    axis = canonical_axis(axis, arr.ndim)
    places = np.flatnonzero(_removed(obj, arr.shape[axis])).astype(np.int32)
    return take(arr, places, axis=axis, mode="clip")


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Return `arr` with `values` put before the places along `axis` that `obj` (static) names."""
    arr, values = arrays("insert", arr, values)
    if axis is None:
        arr, axis = reshape(arr, (-1,)), 0
    axis = canonical_axis(axis, arr.ndim)
    length = arr.shape[axis]
    places = np.arange(length)[obj] if isinstance(obj, slice) else np.asarray(obj)
    scalar = places.ndim == 0
    places = np.where(places < 0, places + length, places)
    if scalar and values.ndim:
        # One place takes all the values; the new axis of numpy.insert is the first.
        values = move_axis(values, 0, axis) if values.ndim == arr.ndim else values
        count = values.shape[axis] if values.ndim == arr.ndim else 1
        places = np.full(count, places)
    places = np.atleast_1d(places)
    shape = (*arr.shape[:axis], len(places), *arr.shape[axis + 1 :])
    new = broadcast_to(convert(values, arr.dtype), shape)
    slots = np.sort(places, kind="stable") + np.arange(len(places))
    order = np.zeros(length + len(places), np.int32)
    old = np.ones(len(order), bool)
    old[slots] = False
    order[old] = np.arange(length)
    order[slots] = length + np.argsort(places, kind="stable")
    return take(concatenate([arr, new], axis), order, axis=axis, mode="clip")


def put_along_axis(
    arr: Any, indices: Any, values: Any, axis: int | None, inplace: bool = True, *, mode: Any = None
) -> Any:
    """Return `arr` with the elements that `indices` names along `axis` replaced by `values`.

    Arrays are immutable, so `inplace=False` must be passed, as in JAX.
    """
    if inplace:
        raise ArgumentValueError("put_along_axis: arrays are immutable; pass inplace=False.")
    arr, indices, values = arrays("put_along_axis", arr, indices, values)
    if axis is None:
        flat = put_along_axis(reshape(arr, (-1,)), indices, values, 0, False, mode=mode)
        return reshape(flat, arr.shape)
    axis = canonical_axis(axis, arr.ndim)
    others = tuple(i for i in range(arr.ndim) if i != axis)
    shape = tuple(indices.shape[i] if i == axis else n for i, n in enumerate(arr.shape))
    indices = broadcast_to(indices, shape)
    places = from_start(indices, arr.shape[axis])
    numbers = ScatterDimensionNumbers((), (axis,), (axis,), others, others)
    updates = broadcast_to(convert(values, arr.dtype), shape)
    return scatter(arr, expand_dims(places, arr.ndim), updates, numbers, mode=mode or "drop")


# --- indices of flattened arrays ---


def unravel_index(indices: Any, shape: Any) -> tuple[Any, ...]:
    """Return the index, an array for each axis, of places in the flattened array; clipped."""
    rest = array("unravel_index", indices)
    dtype = rest.dtype
    extents = types.canonical_shape(shape)
    size = int(np.prod([int(n) for n in extents]))
    rest = from_start(rest, size)
    rest = ops.minimum(ops.maximum(rest, like(rest, 0)), like(rest, max(size - 1, 0)))
    result: list[Any] = []
    for n in reversed(extents):
        result.append(convert(remainder(rest, int(n)), dtype))
        rest = floor_divide(rest, int(n))
    return tuple(reversed(result))


def ravel_multi_index(
    multi_index: Any,
    dims: Sequence[int],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: Any = None,
) -> Any:
    """Return the places in the flattened array of indices given as an array for each axis.

    Modes are "clip" and "wrap"; "raise" takes concrete numbers.
    """
    parts = arrays("ravel_multi_index", *multi_index)
    if len(parts) != len(dims) or any(not types.is_integer(p.dtype) for p in parts):
        raise DTypeError(
            f"ravel_multi_index: {len(dims)} arrays of integers are needed.",
            advice="Give one array of indices for each axis.",
        )
    axes = list(zip(parts, dims, strict=True))
    total: Any = None
    for part, n in axes if order == "C" else reversed(axes):
        if mode == "raise" and ((np.asarray(part) < 0) | (np.asarray(part) >= n)).any():
            raise ArgumentValueError(
                f"ravel_multi_index: an index is outside an axis of {n}.",
                advice="Use mode='clip' or mode='wrap'.",
            )
        if mode == "wrap":
            part = remainder(part, n)
        elif mode == "clip":
            part = ops.minimum(ops.maximum(part, like(part, 0)), like(part, n - 1))
        total = part if total is None else add(multiply(total, n), part)
    return total if dtype is None else convert(total, types.check_dtype(dtype))


def ix_(*args: Any) -> tuple[Any, ...]:
    """Return vectors shaped so that indexing with all of them takes their grid."""
    result = []
    for i, x in enumerate(arrays("ix_", *args)):
        x = nonzero(x)[0] if types.is_bool(x.dtype) else x
        result.append(reshape(x, [-1 if a == i else 1 for a in range(len(args))]))
    return tuple(result)
