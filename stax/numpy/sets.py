"""Sets held in arrays: distinct elements, unions, intersections, differences, membership.

How many elements a result has depends on values, so they must be known, or `size` be given: then
the result is cut to that length, or filled up, and the function works under jit.  Everything starts
from a sort, which marks where a new element begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import ArgumentValueError, ConcretizationTypeError, TracerArrayConversionError
from stax.extent import product
from stax.numpy.arguments import array, static_int
from stax.numpy.elementwise import nonzero
from stax.numpy.reductions import any as any_of, cumsum, sum as sum_of
from stax.numpy.sorting import searchsorted
from stax.numpy.taking import take
from stax.operators import elementwise as ops, sort as sorts
from stax.operators.arithmetic import promote_operands
from stax.operators.elementwise import convert, like, select
from stax.operators.reshape import expand_dims, move_axis, reshape
from stax.operators.shape import broadcast_in_dim, broadcast_to, concatenate, iota, slice_in_dim
from stax.trace import full
from stax.types import canonical_axis

# From so many test elements on, membership is found by a binary search.
SEARCH_FROM = 24


class UniqueAll(NamedTuple):
    """What `unique_all` returns."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What `unique_counts` returns."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What `unique_inverse` returns."""

    values: Any
    inverse_indices: Any


# --- distinct elements ---


class _Distinct(NamedTuple):
    """Elements along the first axis in order: the places they come from, where each starts."""

    rows: Any
    places: Any
    starts: Any

    @property
    def count(self) -> Any:
        """How many different elements there are."""
        return sum_of(convert(self.starts, types.int_dtype()))


def _distinct(a: Any, axis: int, equal_nan: bool) -> _Distinct:
    """Sort the elements of `a` along `axis`, which is moved to the front."""
    moved = move_axis(a, axis, 0)
    length, rest = moved.shape[0], product(moved.shape[1:])
    flat = reshape(moved, (length, rest))
    columns = [reshape(slice_in_dim(flat, i, i + 1, 1, 1), (length,)) for i in range(int(rest))]
    order = sorts.sort_order(tuple(columns), 0)
    rows = take(moved, order, axis=0, mode="clip")
    before, after = slice_in_dim(rows, 0, length - 1), slice_in_dim(rows, 1, length)
    differ = ops.ne(before, after)
    if equal_nan and types.is_inexact(a.dtype):
        one_is_number = ops.or_(ops.eq(before, before), ops.eq(after, after))
        differ = ops.and_(differ, one_is_number)
    differ = any_of(differ, tuple(range(1, differ.ndim))) if differ.ndim > 1 else differ
    starts = concatenate([full((1,), True, types.bool_), differ], 0)
    return _Distinct(rows, order, starts)


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
    """Return the sorted distinct elements of an array; with `size`, so many of them.

    Also returned, if asked for: where each is first, for each element of `ar` the number of its
    equal, and how often each occurs.  Missing elements are filled with `fill_value`, or the
    smallest.  `sorted` is accepted and changes nothing.  Raises ConcretizationTypeError for a
    traced array without `size`.
    """
    a = array("unique", ar)
    flags = return_index, return_inverse, return_counts
    if size is None:
        return _known("unique", _unique_of_known, a, *flags, axis, equal_nan)
    shape = a.shape
    flat = reshape(a, (-1,)) if axis is None else a
    where = canonical_axis(axis or 0, flat.ndim)
    found = _unique(flat, where, equal_nan, static_int("unique", "size", size), fill_value)
    values, first, inverse, counts = found
    inverse = reshape(inverse, shape) if axis is None else inverse
    extra = [x for x, wanted in zip((first, inverse, counts), flags, strict=True) if wanted]
    return (values, *extra) if extra else values


def _unique(a: Any, axis: int, equal_nan: bool, size: int, fill: Any) -> tuple[Any, ...]:
    """Return `size` distinct elements, their places, the inverse, and how often they occur."""
    dtype, length = types.int_dtype(), a.shape[axis]
    if not all(a.shape):
        return _unique_of_empty(a, axis, size, fill)
    order = _distinct(a, axis, equal_nan)
    (first,) = nonzero(order.starts, size=size)
    values = take(order.rows, first, axis=0, mode="clip")
    places = iota(dtype, (size,))
    held = ops.lt(places, broadcast_to(order.count, (size,)))
    if fill is not None:
        mask = broadcast_in_dim(held, values.shape, (0,))
        values = select(mask, values, broadcast_to(convert(asarray(fill), a.dtype), values.shape))
    number = ops.sub(cumsum(convert(order.starts, dtype)), full((length,), 1, dtype))
    inverse = full((length,), 0, dtype).at[order.places].set(number, unique_indices=True)
    (ends,) = nonzero(order.starts, size=size + 1, fill_value=length)
    counts = ops.sub(slice_in_dim(ends, 1, size + 1), slice_in_dim(ends, 0, size))
    indices = convert(take(order.places, first, mode="clip"), dtype)
    return move_axis(values, 0, axis), indices, inverse, counts


def _unique_of_empty(a: Any, axis: int, size: int, fill: Any) -> tuple[Any, ...]:
    dtype, length = types.int_dtype(), a.shape[axis]
    if size and not length and fill is None:
        raise ArgumentValueError(
            "unique: an empty array has no element to fill the result with.",
            advice="Pass fill_value, or size=0.",
        )
    shape = [size if i == axis else n for i, n in enumerate(a.shape)]
    values = broadcast_to(convert(asarray(0 if fill is None else fill), a.dtype), tuple(shape))
    none = full((size,), 0, dtype)
    counts = none if not length else none.at[0].set(length)
    return values, none, full((length,), 0, dtype), counts


def _unique_of_known(values: np.ndarray, *options: Any) -> Any:
    *flags, axis, equal_nan = options
    find: Any = np.unique
    found = find(values, *flags, axis, equal_nan=equal_nan)
    parts = list(found) if isinstance(found, tuple) else [found]
    result = [asarray(p if i == 0 else p.astype(types.int_dtype())) for i, p in enumerate(parts)]
    return tuple(result) if len(result) > 1 else result[0]


def _known(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """Apply a function of NumPy arrays; raises for traced ones, which have no values."""
    try:
        known = [np.asarray(x) if hasattr(x, "dtype") else x for x in args]
    except TracerArrayConversionError as error:
        raise ConcretizationTypeError(
            f"{name}: how many elements there are is not known while tracing.",
            values=error.values,
            doing=error.doing,
            advice=f"Give the length of the result: {name}(..., size=n).",
        ) from None
    return function(*known)


def unique_all(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueAll:
    """Return distinct elements, their first places, the inverse and counts; no NaN equals one."""
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueAll(*unique(x, True, True, True, **options))


def unique_counts(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueCounts:
    """Return the distinct elements and how often each occurs; no NaN equals another."""
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueCounts(*unique(x, False, False, True, **options))


def unique_inverse(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> UniqueInverse:
    """Return the distinct elements and for each element the number of its equal."""
    options: Any = {"equal_nan": False, "size": size, "fill_value": fill_value}
    return UniqueInverse(*unique(x, False, True, False, **options))


def unique_values(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the distinct elements; no NaN equals another."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


# --- membership ---


def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Any:
    """Return whether each element is among `test_elements`, or is not if `invert`.

    Methods are "compare_all", "binary_search", "sort" (which is the second here) and "auto".
    `assume_unique` is accepted and changes nothing.
    """
    if method not in ("auto", "compare_all", "binary_search", "sort"):
        raise ArgumentValueError(
            f"isin: {method!r} is not a method.",
            advice="Use 'auto', 'compare_all', 'binary_search' or 'sort'.",
        )
    element, tests = array("isin", element), reshape(array("isin", test_elements), (-1,))
    count = tests.shape[0]
    search = method in ("binary_search", "sort") or (method == "auto" and count >= SEARCH_FROM)
    if search and element.size and count and not types.is_complex(tests.dtype):
        found = _is_among(element, tests)
    else:
        pairs = promote_operands("isin", expand_dims(element, element.ndim), tests)
        found = any_of(ops.eq(*pairs), -1)
    return ops.not_(found) if invert else found


def _is_among(element: Any, tests: Any) -> Any:
    """Return whether elements are among others, by a search in those in order."""
    dtype = types.promote(element.type, tests.type)[0]
    element, tests = convert(element, dtype), sorts.sort(convert(tests, dtype), 0)
    place = searchsorted(tests, element)
    return ops.eq(element, take(tests, place, mode="clip"))


# --- combinations of two sets ---


def _flat_pair(name: str, ar1: Any, ar2: Any, strong: bool = True) -> tuple[Any, Any]:
    """Return two arrays as vectors of one dtype, which is not weak if it is to be `strong`."""
    first, second = array(name, ar1), array(name, ar2)
    dtype, weak = types.promote(first.type, second.type)
    weak = weak and not strong
    return tuple(reshape(convert(x, dtype, weak), (-1,)) for x in (first, second))


def _members(a: Any) -> tuple[Any, Any, Any]:
    """Return the distinct elements of a vector, as many as it has, which of them count, places."""
    length = a.shape[0]
    if length == 0:
        return a, full((0,), True, types.bool_), full((0,), 0, types.int_dtype())
    values, indices, _, counts = _unique(a, 0, True, length, None)
    return values, ops.gt(counts, like(counts, 0)), indices


def union1d(ar1: Any, ar2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Return the sorted distinct elements of two arrays; with `size`, so many, as `unique` does."""
    both = concatenate(list(_flat_pair("union1d", ar1, ar2, strong=False)), 0)
    return unique(both, size=size, fill_value=fill_value)


def intersect1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the sorted distinct elements that two arrays share; with `size`, so many of them.

    With `return_indices`, also their first places in each array.  Missing elements are filled with
    `fill_value` or the smallest, missing places with one that is out of bounds.
    """
    first, second = _flat_pair("intersect1d", ar1, ar2)
    if size is None:
        found = _known("intersect1d", np.intersect1d, first, second, assume_unique, True)
        shared, *spots = found
        if not return_indices:
            return asarray(shared)
        return asarray(shared), *(asarray(p.astype(types.int_dtype())) for p in spots)
    values, held, places = _members(first)
    shared = (
        ops.and_(held, isin(values, second))
        if second.shape[0]
        else full(held.shape, False, types.bool_)
    )
    picked, found = _picked(values, shared, size, fill_value)
    if not return_indices:
        return picked
    return (
        picked,
        _placed(places, shared, size, first.shape[0]),
        _first_place(second, picked, found),
    )


def _picked(values: Any, held: Any, size: int, fill: Any) -> tuple[Any, Any]:
    """Return the first `size` values where a mask holds, filled up; and which are not filled."""
    size = static_int("set", "size", size)
    (places,) = nonzero(held, size=size)
    total = sum_of(convert(held, types.int_dtype()))
    found = ops.lt(iota(types.int_dtype(), (size,)), broadcast_to(total, (size,)))
    filler = asarray(0 if fill is None else fill)
    rest = broadcast_to(convert(filler, values.dtype, filler.weak_type), (size,))
    if not values.shape[0] or not size:
        return rest, found
    taken = take(values, places, mode="clip")
    if fill is None:  # the smallest of those found, which comes first; 0 if there is none
        is_any = broadcast_to(ops.gt(total, like(total, 0)), (size,))
        rest = select(is_any, broadcast_to(slice_in_dim(taken, 0, 1), (size,)), rest)
    return select(found, taken, rest), found


def _placed(places: Any, held: Any, size: int, outside: int) -> Any:
    """Return the first `size` places where a mask holds, filled up with one out of bounds."""
    (spots,) = nonzero(held, size=size, fill_value=held.shape[0])
    return take(places, spots, mode="fill", fill_value=outside)


def _first_place(a: Any, values: Any, found: Any) -> Any:
    """Return where in a vector its elements `values` are first; out of bounds if not `found`."""
    outside = full(found.shape, a.shape[0], types.int_dtype())
    if not a.shape[0]:
        return outside
    order = sorts.sort_order((a,), 0)
    spot = searchsorted(take(a, order, mode="clip"), values)
    place = convert(take(order, spot, mode="clip"), types.int_dtype())
    return select(found, place, outside)


def setdiff1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the distinct elements of one array that another does not have; with `size`, so many.

    Missing ones are filled with `fill_value`, or 0.  `assume_unique` says that no element occurs
    twice in either; then they stay in the order of `ar1`.
    """
    first = reshape(array("setdiff1d", ar1), (-1,))
    second = reshape(array("setdiff1d", ar2), (-1,))
    if size is None:
        return asarray(_known("setdiff1d", np.setdiff1d, first, second, assume_unique))
    values, held = first, full(first.shape, True, types.bool_)
    if not assume_unique:
        values, held, _ = _members(first)
    apart = ops.and_(held, isin(values, second, invert=True))
    return _picked(values, apart, size, 0 if fill_value is None else fill_value)[0]


def setxor1d(
    ar1: Any,
    ar2: Any,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the sorted elements that are in one of two arrays only; with `size`, so many of them.

    Missing ones are filled with `fill_value`, or the smallest.
    """
    first, second = _flat_pair("setxor1d", ar1, ar2)
    if size is None:
        return asarray(_known("setxor1d", np.setxor1d, first, second, assume_unique))
    masks, elements = [], []
    for one, other in ((first, second), (second, first)):
        values, held, _ = _members(one)
        masks.append(ops.and_(held, isin(values, other, invert=True)))
        elements.append(values)
    held, both = concatenate(masks, 0), concatenate(elements, 0)
    _, both, held = sorts.sort((ops.not_(held), both, held), 0, num_keys=2)
    return _picked(both, held, size, fill_value)[0]
