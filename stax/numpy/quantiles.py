"""Quantiles, percentiles and medians: places in the sorted array, and what lies between two.

Everything works along one last axis into which the axes asked for are merged.  The quantile by
"inverted_cdf" is the first element at which the running weight reaches its share of the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.extent import product
from stax.numpy.arguments import Axis, array, inexact, promoted, refuse_out
from stax.numpy.elementwise import isnan, where as choose
from stax.numpy.manipulation import sliced
from stax.numpy.reductions import any as any_of, sum as sum_of
from stax.numpy.taking import take, take_along_axis
from stax.operators import elementwise as ops, sort as sorts
from stax.operators.arithmetic import add, maximum, minimum, multiply, subtract
from stax.operators.elementwise import convert, like, select
from stax.operators.reduce import cumsum
from stax.operators.reshape import expand_dims, reshape, transpose
from stax.operators.shape import broadcast_in_dim, broadcast_to
from stax.types import canonical_axes

_METHODS = {"linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf"}


def quantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """Return the `q`-th quantiles (q between 0 and 1) over `axis`; the axes of `q` come first.

    Methods are "linear", "lower", "higher", "midpoint", "nearest" and "inverted_cdf", the only one
    that takes `weights`, of the shape of `a` or of the axes.  `overwrite_input` is accepted and
    changes nothing.  NaN makes a quantile NaN, and so does a weight that is negative or NaN.
    """
    refuse_out("quantile", out)
    return _over_axes("quantile", _quantiles, a, q, axis, method, keepdims, weights)


def nanquantile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """Return the quantiles over `axis` of the elements that are not NaN; NaN if there is none."""
    refuse_out("nanquantile", out)
    return _over_axes("nanquantile", _present_quantiles, a, q, axis, method, keepdims, weights)


def percentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Return the `q`-th percentiles (q between 0 and 100) over `axis`; see `quantile`."""
    share = _share("percentile", q)
    return quantile(a, share, axis, out, overwrite_input, method, keepdims, weights=weights)


def nanpercentile(
    a: Any,
    q: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    method: str = "linear",
    keepdims: bool = False,
    *,
    weights: Any = None,
) -> Any:
    """Return the percentiles over `axis` of the elements that are not NaN; see `quantile`."""
    share = _share("nanpercentile", q)
    return nanquantile(a, share, axis, out, overwrite_input, method, keepdims, weights=weights)


def median(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """Return the median over `axis`; of an even number of elements, the mean of the middle two."""
    return quantile(a, 0.5, axis, out, overwrite_input, "midpoint", keepdims)


def nanmedian(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    overwrite_input: bool = False,
    keepdims: bool = False,
) -> Any:
    """Return the median over `axis` of the elements that are not NaN."""
    return nanquantile(a, 0.5, axis, out, overwrite_input, "linear", keepdims)


def _share(name: str, percent: Any) -> Any:
    """Return percent as a share of 1."""
    percent = inexact(name, percent)
    return ops.div(percent, like(percent, 100))


def _over_axes(
    name: str,
    along_last: Callable[..., Any],
    a: Any,
    q: Any,
    axis: Axis,
    method: str,
    keepdims: bool,
    weights: Any,
) -> Any:
    """Return the quantiles over `axis` by a function that finds them along the last axis."""
    a, q = inexact(name, a), inexact(name, q)
    if types.is_complex(a.dtype) or types.is_complex(q.dtype):
        raise ArgumentValueError(
            f"{name}: complex numbers have no order.", advice="Take real parts or absolute values."
        )
    if method not in _METHODS:
        raise ArgumentValueError(f"{name}: method {method!r} is not one of {sorted(_METHODS)}.")
    axes = canonical_axes(axis, a.ndim)
    if weights is not None:
        if method != "inverted_cdf":
            raise UnsupportedError(
                f"{name}: method {method!r} takes no weights.", advice="Use 'inverted_cdf'."
            )
        a, weights = promoted(name, [a, _spread(name, inexact(name, weights), a, axes, axis)])
    merged = _merged(a, axes)
    if method == "inverted_cdf":
        heavy = like(merged, 1) if weights is None else _merged(weights, axes)
        result = _weighted(merged, q, heavy, skips_nan=along_last is _present_quantiles)
    else:
        result = along_last(merged, q, method)
    if keepdims and axes:
        result = expand_dims(result, [i + q.ndim for i in axes])
    return convert(result, a.dtype)


def _spread(name: str, weights: Any, a: Any, axes: tuple[int, ...], axis: Axis) -> Any:
    """Return weights in the shape of `a`; they may have the shape of the axes only."""
    if types.is_complex(weights.dtype):
        raise ArgumentValueError(f"{name}: weights cannot be complex.", advice="Take real parts.")
    if weights.shape == a.shape:
        return weights
    if axis is None or weights.shape != tuple(a.shape[i] for i in axes):
        raise ArgumentValueError(
            f"{name}: weights {weights.type} do not go with {a.type} and {axis=}.",
            advice="Give one weight for each element, or for each place along the axes.",
        )
    return broadcast_in_dim(weights, a.shape, axes)


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


def _weighted(a: Any, q: Any, weights: Any, skips_nan: bool) -> Any:
    """Return the first elements along the last axis at which the weight reaches its share."""
    last = a.ndim - 1
    if not a.shape[last]:
        return _quantiles(a, q, "linear")
    bad = ops.or_(ops.lt(weights, like(weights, 0)), isnan(weights))
    a = choose(isnan(a), math.nan, a) if skips_nan else a
    a, weights = sorts.sort([a, weights], last)
    absent = isnan(a)
    unusable = ops.or_(ops.or_(ops.lt(weights, like(weights, 0)), isnan(weights)), absent)
    reached = cumsum(select(unusable, like(weights, 0), weights), last)
    total = sliced(reached, a.shape[last] - 1, a.shape[last], last)
    target = multiply(reshape(q, (*q.shape, *(1 for _ in a.shape))), total)
    place = sum_of(convert(ops.lt(*_together(reached, target)), types.int_dtype()), -1)
    present = sum_of(convert(ops.not_(absent), types.int_dtype()), -1)
    count = present if skips_nan else like(present, a.shape[last])
    place = maximum(0, minimum(place, subtract(count, 1)))
    spread = broadcast_to(a, (*place.shape, a.shape[last]))
    found = reshape(take_along_axis(spread, expand_dims(place, place.ndim), -1), place.shape)
    no_data = ops.eq(present, like(present, 0)) if skips_nan else any_of(absent, -1)
    return choose(ops.or_(any_of(bad, -1), no_data), math.nan, found)


def _together(x: Any, y: Any) -> tuple[Any, Any]:
    shape = types.broadcast_shapes(x.shape, y.shape)
    return broadcast_to(x, shape), broadcast_to(convert(y, x.dtype), shape)
