"""Sorting, searching, and what follows from a sorted array: medians, quantiles, sets.

NaN is sorted last.  Functions whose result has a size that depends on values (`unique`) take
concrete arrays: under jit they raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import ArgumentError, ArgumentValueError
from stax.extent import product
from stax.numpy.arguments import Axis, array, inexact, refuse_out
from stax.numpy.elementwise import where as choose
from stax.numpy.reductions import any as any_of, sum as sum_of
from stax.numpy.taking import take, take_along_axis
from stax.operators import elementwise as ops, sort as sorts
from stax.operators.arithmetic import add, multiply, promote_operands, subtract
from stax.operators.elementwise import convert, like, select
from stax.operators.reshape import expand_dims, reshape, rev, transpose
from stax.operators.shape import broadcast_in_dim, broadcast_to
from stax.types import canonical_axes, canonical_axis


def _along(name: str, a: Any, axis: int | None) -> tuple[Any, int]:
    a = array(name, a)
    if axis is None:
        return reshape(a, (-1,)), 0
    return a, canonical_axis(axis, a.ndim)


def _refuse_options(name: str, kind: Any, order: Any) -> None:
    """Raise for arguments of NumPy's that JAX refuses too."""
    if kind is not None:
        raise ArgumentError(f"{name}: kind is not supported.", advice="Use stable=True or False.")
    if order is not None:
        raise ArgumentError(
            f"{name}: order is not supported: arrays have no fields.", advice="Use lexsort."
        )


def sort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: Any = None,
    order: Any = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    """Return `a` sorted along `axis` (flattened if None), NaN last."""
    _refuse_options("sort", kind, order)
    a, where = _along("sort", a, axis)
    result = sorts.sort(a, where, is_stable=stable)
    return rev(result, where) if descending else result


def argsort(
    a: Any,
    axis: int | None = -1,
    *,
    kind: Any = None,
    order: Any = None,
    stable: bool = True,
    descending: bool = False,
    dtype: Any = None,
) -> Any:
    """Return the places from which a sort along `axis` takes its elements, stably."""
    _refuse_options("argsort", kind, order)
    a, where = _along("argsort", a, axis)
    wanted = types.int_dtype() if dtype is None else types.check_dtype(dtype)
    return convert(places(a, where, descending), wanted)


def places(a: Any, axis: int, descending: bool = False) -> Any:
    """Return the places from which a stable sort of `a` along `axis` takes its elements."""
    if not descending:
        return sorts.argsort(a, axis)
    # Sorted backwards and read backwards, elements that tie keep their order.
    found = rev(sorts.argsort(rev(a, axis), axis), axis)
    return ops.sub(like(found, a.shape[axis] - 1), found)


def lexsort(keys: Any, axis: int = -1) -> Any:
    """Return the places of a sort by several keys, the last of them foremost."""
    rows = [array("lexsort", k) for k in keys]
    where = canonical_axis(axis, rows[0].ndim)
    return convert(sorts.sort_order(tuple(rows[::-1]), where), types.int_dtype())


def partition(a: Any, kth: int, axis: int = -1) -> Any:
    """Return `a` with element number `kth` in its sorted place, smaller ones before it.

    All elements are sorted, which is one such order.
    """
    _check_kth("partition", a, kth, axis)
    return sort(a, axis)


def argpartition(a: Any, kth: int, axis: int = -1) -> Any:
    """Return places that partition `a` at `kth`: those that sort it."""
    _check_kth("argpartition", a, kth, axis)
    return argsort(a, axis)


def _check_kth(name: str, a: Any, kth: int, axis: int) -> None:
    a, where = _along(name, a, axis)
    length = a.shape[where]
    if not -length <= kth < length:
        raise ArgumentValueError(
            f"{name}: there is no element number {kth} along an axis of length {length}.",
            advice="kth counts from 0, or from the end if negative.",
        )


def searchsorted(
    a: Any, v: Any, side: str = "left", sorter: Any = None, *, method: str = "scan"
) -> Any:
    """Return where each element of `v` would be inserted into the sorted vector `a`.

    "left" is before equal elements, "right" after them; NaN comes last.  `method` names JAX's ways
    to search and changes nothing: this is a binary search, unrolled.
    """
    if side not in ("left", "right"):
        raise ArgumentValueError(f"searchsorted: side is 'left' or 'right', not {side!r}.")
    a, v = array("searchsorted", a), array("searchsorted", v)
    if a.ndim != 1:
        raise ArgumentValueError(
            f"searchsorted: a must be a vector, got {a.type}.",
            advice="Use vmap to search in several vectors.",
        )
    a = a if sorter is None else take(a, sorter)
    dtype = types.promote(types.ArrayType(a.dtype, ()), types.ArrayType(v.dtype, ()))[0]
    a, v = convert(a, dtype), convert(v, dtype)
    low = broadcast_in_dim(convert(array("searchsorted", 0), types.int32), v.shape, ())
    high = like(low, a.shape[0])
    for _ in range(math.ceil(math.log2(a.shape[0] + 1))):
        middle = ops.shift_right_logical(ops.add(low, high), like(low, 1))
        element = take(a, middle, mode="clip")
        further = ops.and_(_before(element, v, side), ops.lt(low, high))
        low = select(further, ops.add(middle, like(low, 1)), low)
        high = select(further, high, select(ops.lt(low, high), middle, high))
    return convert(low, types.int_dtype())


def _before(element: Any, v: Any, side: str) -> Any:
    """Return whether the place of `v` comes after `element`."""
    first = ops.lt(element, v) if side == "left" else ops.le(element, v)
    if not types.is_float(element.dtype):
        return first
    is_nan, v_nan = ops.ne(element, element), ops.ne(v, v)
    last = ops.not_(is_nan) if side == "left" else ops.eq(v, v)
    return ops.or_(first, ops.and_(v_nan, last if side == "left" else ops.or_(is_nan, v_nan)))


def digitize(x: Any, bins: Any, right: bool = False, *, method: Any = None) -> Any:
    """Return the number of the bin that each element of `x` is in; `bins` rise or fall.

    `method` is that of `searchsorted`.
    """
    x, bins = array("digitize", x), array("digitize", bins)
    if bins.ndim != 1:
        raise ArgumentValueError(
            f"digitize: bins must be a vector, got {bins.type}.",
            advice="Use vmap for several sets of bins.",
        )
    side = "left" if right else "right"
    if bins.shape[0] < 2:
        return searchsorted(bins, x, side)
    falling = ops.gt(take(bins, np.int32(0)), take(bins, np.int32(bins.shape[0] - 1)))
    other = searchsorted(rev(bins, 0), x, side)
    down = ops.sub(like(other, bins.shape[0]), other)
    return choose(falling, down, searchsorted(bins, x, side))


# --- quantiles ---


def quantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the `q`-th quantiles (q between 0 and 1) over `axis`; the axes of `q` come first.

    Methods are "linear", "lower", "higher", "midpoint" and "nearest"; `overwrite_input` is accepted
    and changes nothing.
    """
    refuse_out("quantile", out)
    return _over_axes("quantile", _quantiles, a, q, axis, method, keepdims)


_METHODS = {"linear", "lower", "higher", "midpoint", "nearest"}


def _over_axes(
    name: str,
    along_last: Callable[..., Any],
    a: Any,
    q: Any,
    axis: Axis,
    method: str,
    keepdims: bool,
) -> Any:
    """Return the quantiles over `axis` by a function that finds them along the last axis."""
    a, q = inexact(name, a), inexact(name, q)
    if method not in _METHODS:
        raise ArgumentValueError(f"{name}: method {method!r} is not one of {sorted(_METHODS)}.")
    axes = canonical_axes(axis, a.ndim)
    result = along_last(_merged(a, axes), q, method)
    if keepdims and axes:
        result = expand_dims(result, [i + q.ndim for i in axes])
    return convert(result, a.dtype)


def _share(name: str, percent: Any) -> Any:
    """Return percent as a share of 1."""
    percent = inexact(name, percent)
    return ops.div(percent, like(percent, 100))


def _merged(a: Any, axes: tuple[int, ...]) -> Any:
    """Return `a` with `axes` merged into one last axis."""
    kept = [i for i in range(a.ndim) if i not in axes]
    moved = transpose(a, (*kept, *axes))
    merged = product(tuple(a.shape[i] for i in axes))
    return reshape(moved, (*(a.shape[i] for i in kept), merged))


def _between(at: Callable[[Any], Any], place: Any, method: str) -> Any:
    """Return the element at a place between two, which `at` reads, as `method` says."""
    if method == "nearest":
        return at(ops.round_(place))
    low, high = ops.floor(place), ops.ceil(place)
    if method in ("lower", "higher"):
        return at(low if method == "lower" else high)
    first, second = at(low), at(high)
    if method == "midpoint":
        return multiply(add(first, second), 0.5)
    weight = subtract(place, low)
    return add(multiply(first, subtract(1.0, weight)), multiply(second, weight))


def _quantiles(a: Any, q: Any, method: str) -> Any:
    """Return the quantiles along the last axis of `a`, one for each element of `q`, in front."""
    last = a.ndim - 1
    count = a.shape[last]
    if count == 0:
        shape = (*q.shape, *a.shape[:last])
        return broadcast_in_dim(convert(array("quantile", math.nan), a.dtype), shape, ())
    wide = types.accumulator(a.dtype)
    # A NaN anywhere makes every quantile NaN.
    spoiled = any_of(ops.ne(a, a), -1, keepdims=True)
    a = convert(choose(spoiled, math.nan, sorts.sort(a, last)), wide)
    place = multiply(convert(q, wide), count - 1.0)

    def at(spot: Any) -> Any:
        picked = take(a, convert(reshape(spot, q.shape), types.int32), axis=last, mode="clip")
        return transpose(picked, (*range(last, last + q.ndim), *range(last)))

    return _between(at, reshape(place, (*q.shape, *(1 for _ in range(last)))), method)


def percentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the `q`-th percentiles (q between 0 and 100) over `axis`."""
    return quantile(a, _share("percentile", q), axis, out, overwrite_input, method, keepdims)


def median(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """Return the median over `axis`; of an even number of elements, the mean of the middle two."""
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def nanquantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the quantiles over `axis` of the elements that are not NaN; NaN if there is none."""
    refuse_out("nanquantile", out)
    return _over_axes("nanquantile", _present_quantiles, a, q, axis, method, keepdims)


def _present_quantiles(a: Any, q: Any, method: str) -> Any:
    """Return the quantiles along the last axis of `a` without NaN, those of each `q` in front."""
    wide, last = types.accumulator(a.dtype), a.ndim - 1
    count = sum_of(convert(ops.eq(a, a), wide), -1)
    a = convert(sorts.sort(a, last), wide)
    highest = ops.maximum(ops.sub(count, like(count, 1)), like(count, 0))
    outer = reshape(convert(q, wide), (*q.shape, *(1 for _ in count.shape)))
    place = multiply(outer, highest)

    def at(spot: Any) -> Any:
        spread = broadcast_to(a, (*spot.shape, a.shape[last]))
        picked = take_along_axis(spread, expand_dims(convert(spot, types.int32), spot.ndim), -1)
        return reshape(picked, spot.shape)

    return _between(at, place, method)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the percentiles over `axis` of the elements that are not NaN."""
    share = _share("nanpercentile", q)
    return nanquantile(a, share, axis, out, overwrite_input, method, keepdims)


def nanmedian(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """Return the median over `axis` of the elements that are not NaN."""
    return nanquantile(a, 0.5, axis, out, overwrite_input, "linear", keepdims)


# --- sets, whose sizes depend on values ---


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: Any = None,
    sorted: bool = True,
) -> Any:
    """Return the sorted distinct elements of a concrete array; with `size`, so many of them.

    Missing ones are filled with `fill_value`, or the smallest.  `sorted` is accepted and changes
    nothing.
    """
    values = np.asarray(array("unique", ar))
    find: Any = np.unique
    found = find(values, return_index, return_inverse, return_counts, axis, equal_nan=equal_nan)
    parts = list(found) if isinstance(found, tuple) else [found]
    if size is not None:
        inverse = 1 + return_index if return_inverse else None  # as many as elements of `ar`
        parts[0] = _resized(parts[0], size, fill_value, axis or 0)
        parts[1:] = [
            p if i == inverse else _resized(p, size, 0, 0) for i, p in enumerate(parts[1:], 1)
        ]
    result = [asarray(p if i == 0 else p.astype(types.int_dtype())) for i, p in enumerate(parts)]
    return tuple(result) if len(result) > 1 else result[0]


def _resized(values: np.ndarray, size: int, fill: Any, axis: int) -> np.ndarray:
    """Return the first `size` of `values`, with `fill` (None: the first one) for missing ones."""
    kept = np.take(values, range(min(size, values.shape[axis])), axis)
    missing = size - kept.shape[axis]
    if missing <= 0:
        return kept
    if fill is None and values.shape[axis]:
        filler = np.take(values, [0], axis)
    else:
        shape = [1 if a == axis else n for a, n in enumerate(values.shape)]
        filler = np.full(shape, fill or 0, values.dtype)
    return np.concatenate([kept, np.repeat(filler, missing, axis)], axis)


def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Any:
    """Return whether each element is among `test_elements`, or is not if `invert`.

    `assume_unique` and `method` are accepted and change nothing: every pair is compared.
    """
    element, tests = array("isin", element), array("isin", test_elements)
    element, tests = expand_dims(element, element.ndim), reshape(tests, (-1,))
    element, tests = promote_operands("isin", element, tests)
    found = any_of(ops.eq(element, tests), -1)
    return ops.not_(found) if invert else found


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the sorted distinct elements of two concrete arrays."""
    both = np.union1d(np.asarray(array("union1d", ar1)), np.asarray(array("union1d", ar2)))
    return asarray(both if size is None else _resized(both, size, fill_value, 0))


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the sorted distinct elements that two concrete arrays share; with `size`, so many.

    With `return_indices`, also their first places in each array.  Missing elements are filled with
    `fill_value` or the smallest, missing places with one that is out of bounds.
    """
    first, second = (np.asarray(array("intersect1d", x)) for x in (ar1, ar2))
    found: tuple[np.ndarray, ...] = np.intersect1d(
        first, second, assume_unique, return_indices=True
    )
    if size is not None:
        fills = (fill_value, first.size, second.size)
        found = tuple(_resized(x, size, fill, 0) for x, fill in zip(found, fills, strict=True))
    shared, *spots = found
    if not return_indices:
        return asarray(shared)
    return asarray(shared), *(asarray(p.astype(types.int_dtype())) for p in spots)


def setdiff1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the distinct elements of one concrete array that another does not have."""
    first, second = (np.asarray(array("setdiff1d", x)) for x in (ar1, ar2))
    found = np.setdiff1d(first, second, assume_unique)
    return asarray(found if size is None else _resized(found, size, fill_value, 0))
