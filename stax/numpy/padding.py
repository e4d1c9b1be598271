"""Arrays surrounded by more elements: constants, repetitions, reflections, ramps, statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.numpy import reductions
from stax.numpy.arguments import array as _array, arrays, static_int
from stax.numpy.creation import linspace
from stax.numpy.manipulation import flip, sliced
from stax.numpy.quantiles import median
from stax.numpy.taking import take
from stax.numpy.vectorizing import apply_along_axis
from stax.operators import elementwise as ops
from stax.operators.arithmetic import multiply, subtract
from stax.operators.elementwise import convert
from stax.operators.shape import broadcast_to, concatenate, pad as pad_op
from stax.trace import is_array

Widths = list[tuple[int, int]]

STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max,
    "mean": reductions.mean,
    "median": median,
    "minimum": reductions.min,
}
# The options of each mode, with their defaults.
OPTIONS: dict[str, dict[str, Any]] = {
    "constant": {"constant_values": 0},
    "empty": {},
    "edge": {},
    "wrap": {},
    "reflect": {"reflect_type": "even"},
    "symmetric": {"reflect_type": "even"},
    "linear_ramp": {"end_values": 0},
    **{name: {"stat_length": None} for name in STATISTICS},
}


def pad(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    """Return `array` surrounded by `pad_width` elements: (before, after) for each axis.

    Modes are "constant" (`constant_values`) and "empty"; "edge", "wrap", "reflect" and "symmetric"
    (`reflect_type` "even" or "odd"); "linear_ramp" (`end_values`); "maximum", "mean", "median" and
    "minimum" of the nearest `stat_length` elements; or a function of a padded row, its widths, the
    axis and the options, as in NumPy, that returns the row.
    """
    x = _array("pad", array)
    widths = [(_width(a), _width(b)) for a, b in _pairs("pad_width", pad_width, x.ndim)]
    if callable(mode):
        return _pad_by(mode, x, widths, kwargs)
    if mode not in OPTIONS:
        raise UnsupportedError(
            f"pad: mode {mode!r} is not supported.", advice=f"Modes are {', '.join(OPTIONS)}."
        )
    if unknown := sorted(set(kwargs) - set(OPTIONS[mode])):
        raise ArgumentValueError(
            f"pad: unknown arguments {unknown} for mode {mode!r}.",
            advice=f"It takes {', '.join(OPTIONS[mode]) or 'none'}.",
        )
    options = OPTIONS[mode] | kwargs
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, options.get("constant_values", 0))
    if mode == "linear_ramp":
        return _pad_ramp(x, widths, options["end_values"])
    if mode in STATISTICS:
        return _pad_statistic(x, widths, STATISTICS[mode], options["stat_length"])
    return _pad_indexed(x, widths, mode, options.get("reflect_type", "even"))


def _width(given: Any) -> int:
    """Return a width as an integer; raises ArgumentValueError for negative ones."""
    found = static_int("pad", "a width", given)
    if found < 0:
        raise ArgumentValueError(
            f"pad: widths must not be negative: {found}.",
            advice="Slice the array to make it smaller.",
        )
    return found


def _pad_indexed(x: Any, widths: Widths, mode: str, reflect_type: str) -> Any:
    """Pad with elements of the array, or for odd reflections with twice the edge less them."""
    if reflect_type not in ("even", "odd"):
        raise ArgumentValueError(
            f"pad: there is no reflect_type {reflect_type!r}.", advice="Use 'even' or 'odd'."
        )
    for axis, (before, after) in enumerate(widths):
        if reflect_type == "odd" and x.shape[axis] > 1:
            x = flip(_reflected(x, axis, after, mode), axis)
            x = flip(_reflected(x, axis, before, mode), axis)
        elif before or after:
            # NumPy works out which element goes where; the array is read at those places.
            places = np.pad(np.arange(x.shape[axis]), (before, after), mode)  # type: ignore[call-overload]
            x = take(x, places.astype(np.int32), axis=axis, mode="clip")
    return x


def _reflected(x: Any, axis: int, count: int, mode: str) -> Any:
    """Return `x` continued by `count` elements at the end of an axis, odd about its edge."""
    skip = 1 if mode == "reflect" else 0
    while count:
        length = x.shape[axis]
        step = min(count, length - skip)
        edge = sliced(x, length - 1, length, axis)
        part = flip(sliced(x, length - skip - step, length - skip, axis), axis)
        x = concatenate([x, convert(subtract(multiply(2, edge), part), x.dtype)], axis)
        count -= step
    return x


def _pad_ramp(x: Any, widths: Widths, end_values: Any) -> Any:
    """Pad with numbers evenly spaced between the edges and `end_values`."""
    ends = _pairs("end_values", end_values, x.ndim)
    for axis, ((before, after), pair) in enumerate(zip(widths, ends, strict=True)):
        length = x.shape[axis]
        low, high = _scalars(x, pair)
        first, last = sliced(x, 0, 1, axis), sliced(x, length - 1, length, axis)
        ramps = [_ramp(low, first, before, axis), flip(_ramp(high, last, after, axis), axis)]
        x = concatenate([ramps[0], x, ramps[1]], axis)
    return x


def _ramp(end: Any, edge: Any, count: int, axis: int) -> Any:
    """Return `count` numbers from `end` up to, and without, the edge."""
    edge = edge.reshape(edge.shape[:axis] + edge.shape[axis + 1 :])
    found = linspace(end, edge, count, endpoint=False, dtype=edge.dtype, axis=axis)
    return convert(found, edge.dtype)


def _pad_statistic(x: Any, widths: Widths, statistic: Callable[..., Any], lengths: Any) -> Any:
    """Pad with a statistic of the elements nearest to each side."""
    whole = [(n, n) for n in x.shape]
    counts = whole if lengths is None else _pairs("stat_length", lengths, x.ndim)
    for axis, (pair, near) in enumerate(zip(widths, counts, strict=True)):
        length = x.shape[axis]
        first, last = (min(static_int("pad", "stat_length", n), length) for n in near)
        if not first or not last:
            raise ArgumentValueError(
                "pad: a statistic needs at least one element.", advice="Use a longer stat_length."
            )
        sides = (sliced(x, 0, first, axis), sliced(x, length - last, length, axis))
        parts = [
            _repeated(statistic(side, axis=axis, keepdims=True), x.dtype, count, axis)
            for side, count in zip(sides, pair, strict=True)
        ]
        x = concatenate([parts[0], x, parts[1]], axis)
    return x


def _repeated(x: Any, dtype: Any, count: int, axis: int) -> Any:
    """Return one slice `count` times, rounded if the array has integers."""
    if types.is_integer(dtype) and types.is_float(x.dtype):
        x = ops.round_(x)
    return broadcast_to(convert(x, dtype), (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _pad_by(function: Callable[..., Any], x: Any, widths: Widths, options: Any) -> Any:
    """Pad with zeros, then let `function` fill in every row along every axis."""
    x = _pad_constant(x, widths, 0)
    for axis, pair in enumerate(widths):
        x = apply_along_axis(function, axis, x, pair, axis, options)
    return x


def _pairs(what: str, given: Any, ndim: int) -> list[tuple[Any, Any]]:
    """Return a number, a pair or a pair for each axis as a pair for each axis."""
    if isinstance(given, dict):
        return [_pairs(what, given.get(a, given.get(a - ndim, 0)), 1)[0] for a in range(ndim)]
    if not isinstance(given, list | tuple):
        found = np.asarray(given) if not is_array(given) else given
        if found.ndim == 0:
            return [(given, given)] * ndim
        given = list(found)
    rows = [list(row) if isinstance(row, list | tuple | np.ndarray) else row for row in given]
    if not any(isinstance(row, list) for row in rows):
        if len(rows) == 1:
            return [(rows[0], rows[0])] * ndim
        if len(rows) == 2:
            return [(rows[0], rows[1])] * ndim
    elif all(isinstance(row, list) for row in rows):
        wide = [(row[0], row[-1]) for row in rows]
        if len(wide) == 1:
            return wide * ndim
        if len(wide) == ndim:
            return wide
    raise ArgumentValueError(
        f"pad: {what} {given} does not give (before, after) for {ndim} axes.",
        advice="Write a number, (before, after), or a pair for each axis.",
    )


def _pad_constant(x: Any, widths: Any, values: Any) -> Any:
    numbers = [_scalars(x, pair) for pair in _pairs("constant_values", values, x.ndim)]
    one = not isinstance(values, list | tuple | np.ndarray) or np.ndim(values) == 0
    if x.ndim == 0:
        return x
    if one:
        return pad_op(x, numbers[0][0], [(before, after, 0) for before, after in widths])
    for axis, ((before, after), (low, high)) in enumerate(zip(widths, numbers, strict=True)):
        for value, ends in ((low, (before, 0, 0)), (high, (0, after, 0))):
            config = [(0, 0, 0)] * x.ndim
            config[axis] = ends
            x = pad_op(x, value, config)
    return x


def _scalars(x: Any, pair: tuple[Any, Any]) -> list[Any]:
    found = [convert(v, x.dtype, x.weak_type) for v in arrays("pad", *pair)]
    if any(v.ndim for v in found):
        raise ShapeError(
            "pad: constant_values are numbers.", advice="Use concatenate to put arrays around it."
        )
    return found
