"""Sorting, searching, and what follows from a sorted array: medians and quantiles.

NaN is sorted last.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError
from stax.numpy.arguments import array
from stax.numpy.elementwise import where as choose
from stax.numpy.taking import take
from stax.operators import elementwise as ops, sort as sorts
from stax.operators.arithmetic import greater
from stax.operators.elementwise import convert, like, select
from stax.operators.reshape import reshape, rev
from stax.operators.shape import broadcast_in_dim
from stax.types import canonical_axis


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
    """Return places that partition `a` at `kth`, those that sort it; as int32, as in JAX."""
    _check_kth("argpartition", a, kth, axis)
    return convert(argsort(a, axis), types.int32)


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

    "left" is before equal elements, "right" after them; NaN comes last, and complex numbers are
    ordered by real, then by imaginary parts.  `method` names JAX's ways
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
    n = a.shape[0]
    low, high = (
        broadcast_in_dim(convert(array("searchsorted", end), types.int32), v.shape, ())
        for end in (0, n)
    )
    for _ in range(math.ceil(math.log2(n + 1)) if isinstance(n, int) else _ROUNDS):
        middle = ops.shift_right_logical(ops.add(low, high), like(low, 1))
        element = take(a, middle, mode="clip")
        further = ops.and_(_before(element, v, side), ops.lt(low, high))
        low = select(further, ops.add(middle, like(low, 1)), low)
        high = select(further, high, select(ops.lt(low, high), middle, high))
    return low


# Halves any array whose length is not known to one element.
_ROUNDS = 31


def _before(element: Any, v: Any, side: str) -> Any:
    """Return whether the place of `v` comes after `element`."""
    if types.is_complex(element.dtype):
        a, b = ops.real(element), ops.real(v)
        same = ops.and_(_before(a, b, "right"), _before(b, a, "right"))
        by_imag = _before(ops.imag(element), ops.imag(v), side)
        return ops.or_(_before(a, b, "left"), ops.and_(same, by_imag))
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
    falling = greater(take(bins, np.int32(0)), take(bins, np.int32(bins.shape[0] - 1)))
    other = searchsorted(rev(bins, 0), x, side)
    down = ops.sub(like(other, bins.shape[0]), other)
    return choose(falling, down, searchsorted(bins, x, side))


# --- quantiles ---
