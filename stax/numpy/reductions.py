"""Reductions and their running forms, with NumPy's arguments.

Narrow integers and bool add up in 32 bits, 16-bit floats in float32.  `where` selects the elements
that take part: the others are replaced by what changes nothing, by a select, so their gradient is
zero whatever they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError
from stax.extent import product
from stax.numpy.arguments import Axis, array, refuse_out
from stax.numpy.elementwise import where as choose
from stax.operators import elementwise as ops, reduce as reductions
from stax.operators.arithmetic import add, divide, greater, maximum, minimum, multiply, truth
from stax.operators.elementwise import convert, like
from stax.operators.reshape import expand_dims, reshape
from stax.operators.shape import broadcast_to, pad
from stax.types import canonical_axes, canonical_axis, check_dtype, is_index

Function = Callable[..., Any]


def _accumulating(dtype: Any) -> Any:
    """Return the type in which integers narrower than 32 bits, and bool, add up."""
    if types.is_bool(dtype):
        return types.int_dtype()
    if types.is_integer(dtype) and dtype.itemsize < types.int_dtype().itemsize:
        return np.dtype(f"{dtype.kind}{types.int_dtype().itemsize}")
    return dtype


def reduced(
    op: Function, x: Any, axis: Axis, keepdims: bool, where: Any = None, identity: Any = None
) -> Any:
    """Apply the reduction `op` to the elements of `x` selected by `where`."""
    if where is not None:
        x = choose(where, x, like(x, identity))
    axes = canonical_axes(axis, x.ndim)
    result = op(x, axes)
    return expand_dims(result, axes) if keepdims and axes else result


def sum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Any:
    """Return the sum over `axis` (all axes if None); integers add up in at least 32 bits."""
    refuse_out("sum", out)
    a, wanted = _accumulation_type(_SUM, a, dtype, promote_integers)
    return _accumulate(_SUM, a, wanted, axis, keepdims, initial, where)


def prod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
    promote_integers: bool = True,
) -> Any:
    """Return the product over `axis` (all axes if None); integers multiply in at least 32 bits."""
    refuse_out("prod", out)
    a, wanted = _accumulation_type(_PROD, a, dtype, promote_integers)
    return _accumulate(_PROD, a, wanted, axis, keepdims, initial, where)


class _Accumulation(NamedTuple):
    """What distinguishes sums and products: the op, its form for bool, what changes nothing."""

    name: str
    op: Function
    boolean: Function
    join: Function
    identity: int


_SUM = _Accumulation("sum", reductions.reduce_sum, reductions.reduce_or, add, 0)
_PROD = _Accumulation("prod", reductions.reduce_prod, reductions.reduce_and, multiply, 1)


def _accumulation_type(
    kind: _Accumulation, a: Any, dtype: Any, promote_integers: bool
) -> tuple[Any, Any]:
    """Return the operand and the dtype of its sum or product."""
    a = array(kind.name, a)
    if dtype is not None:
        return a, check_dtype(dtype)
    return a, _accumulating(a.dtype) if promote_integers else a.dtype


def _accumulate(
    kind: _Accumulation, a: Any, wanted: Any, axis: Axis, keepdims: bool, initial: Any, where: Any
) -> Any:
    if types.is_bool(wanted):
        result = reduced(kind.boolean, truth(a), axis, keepdims, where, kind.identity)
    else:
        # A narrow result is rounded once: the sum itself is taken in the accumulator's type.
        wide = types.accumulator(wanted) if a.dtype != wanted else wanted
        result = reduced(kind.op, convert(a, wide), axis, keepdims, where, kind.identity)
        result = convert(result, wanted)
    if initial is None:
        return result
    return kind.join(convert(array(kind.name, initial), wanted), result)


def _count(x: Any, axis: Axis, where: Any, keepdims: bool) -> Any:
    """Return how many elements a reduction over `axis` takes together, as a number or an array."""
    if where is None:
        return product(tuple(x.shape[a] for a in canonical_axes(axis, x.ndim)))
    mask = choose(where, like(x, 1), like(x, 0))
    return sum(convert(mask, types.int_dtype()), axis, keepdims=keepdims)


def mean(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    *,
    where: Any = None,
) -> Any:
    """Return the mean over `axis`; of integers as float32, of 16-bit floats summed in float32."""
    refuse_out("mean", out)
    a = array("mean", a)
    wanted, wide = _inexact_types(a, dtype)
    x = convert(a, wide)
    total = reduced(reductions.reduce_sum, x, axis, keepdims, where, 0)
    return convert(_over(total, _count(x, axis, where, keepdims)), wanted)


def _inexact_types(a: Any, dtype: Any) -> tuple[Any, Any]:
    """Return the dtype of a mean of `a`, and the one it is computed in."""
    if dtype is not None:
        wanted = check_dtype(dtype)
        computed = types.promote(types.ArrayType(a.dtype, ()), types.ArrayType(wanted, ()))[0]
        return wanted, types.accumulator(computed)
    wanted = types.inexact_dtype(a.dtype)
    return wanted, types.accumulator(wanted)


def _over(total: Any, count: Any) -> Any:
    """Divide by a count, which is a number, a length or an array of integers."""
    if isinstance(count, int):
        return ops.div(total, like(total, count))
    count = convert(array("mean", count), total.dtype)
    return ops.div(total, broadcast_to(count, total.shape))


def var(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    """Return the variance over `axis`: the mean squared distance from the mean, a real number.

    `ddof` (or `correction`) is subtracted from the count; NaN where nothing is left.
    """
    refuse_out("var", out)
    a = array("var", a)
    wanted, wide = _inexact_types(a, dtype)
    x = convert(a, wide)
    center = _mean(x, axis, where) if mean is None else convert(array("var", mean), wide)
    apart = add(x, ops.neg(center))
    wanted, wide = types.real_part(wanted), types.real_part(wide)
    total = reduced(reductions.reduce_sum, squared_length(apart), axis, keepdims, where, 0)
    less = ddof if correction is None else correction
    count = _count(x, axis, where, keepdims)
    if where is None and isinstance(count, int) and isinstance(less, int | float):
        left = count - less
        result = ops.div(total, like(total, left if left > 0 else math.nan))
    else:
        left = convert(add(count, -less), wide)
        result = divide(total, choose(greater(left, 0), left, math.nan))
    return convert(result, wanted)


def squared_length(x: Any) -> Any:
    """Return the square of the absolute value of each element."""
    if types.is_complex(x.dtype):
        return ops.add(ops.integer_pow(ops.real(x), 2), ops.integer_pow(ops.imag(x), 2))
    return ops.integer_pow(x, 2)


def _mean(x: Any, axis: Axis, where: Any) -> Any:
    return mean(x, axis, keepdims=True, where=where)


def std(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    *,
    where: Any = None,
    mean: Any = None,
    correction: Any = None,
) -> Any:
    """Return the standard deviation over `axis`, the square root of the variance."""
    refuse_out("std", out)
    a = array("std", a)
    wanted, wide = _inexact_types(a, dtype)
    x = convert(a, wide)
    squared = var(
        x, axis, ddof=ddof, keepdims=keepdims, where=where, mean=mean, correction=correction
    )
    return convert(ops.sqrt(squared), types.real_part(wanted))


# --- extremes ---


def lowest(dtype: Any) -> Any:
    """Return the number below all others of a type: minus infinity, or the least integer."""
    if types.is_complex(dtype):
        return complex(-math.inf, -math.inf)
    if types.is_bool(dtype):
        return False
    return int(np.iinfo(dtype).min) if types.is_integer(dtype) else -math.inf


def highest(dtype: Any) -> Any:
    """Return the number above all others of a type."""
    if types.is_complex(dtype):
        return complex(math.inf, math.inf)
    if types.is_bool(dtype):
        return True
    return int(np.iinfo(dtype).max) if types.is_integer(dtype) else math.inf


def _extreme(name: str, a: Any, axis: Axis, keepdims: bool, initial: Any, where: Any) -> Any:
    op, join, least = _EXTREMES[name]
    a = array(name, a)
    a = convert(a, a.dtype)
    if where is not None and initial is None:
        raise ArgumentValueError(
            f"{name}: with where= there may be nothing to take the {name} of.",
            advice="Name the value for that case: initial=...",
        )
    axes = canonical_axes(axis, a.ndim)
    if initial is not None and 0 in [n for n in (a.shape[i] for i in axes) if isinstance(n, int)]:
        shape = tuple(1 if i in axes else n for i, n in enumerate(a.shape))
        kept = shape if keepdims else tuple(n for i, n in enumerate(a.shape) if i not in axes)
        return broadcast_to(convert(array(name, initial), a.dtype), kept)
    result = reduced(op, a, axis, keepdims, where, least(a.dtype))
    if initial is None:
        return result
    return join(convert(array(name, initial), a.dtype), result)


def max(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the largest element over `axis`; NaN if there is one.  Raises for empty axes."""
    refuse_out("max", out)
    return _extreme("max", a, axis, keepdims, initial, where)


def min(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the smallest element over `axis`; NaN if there is one.  Raises for empty axes."""
    refuse_out("min", out)
    return _extreme("min", a, axis, keepdims, initial, where)


amax, amin = max, min
_EXTREMES: dict[str, tuple[Function, Function, Function]] = {
    "max": (reductions.reduce_max, maximum, lowest),
    "min": (reductions.reduce_min, minimum, highest),
}


def ptp(a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False) -> Any:
    """Return the distance between the largest and the smallest element over `axis`."""
    refuse_out("ptp", out)
    return ops.sub(max(a, axis, keepdims=keepdims), min(a, axis, keepdims=keepdims))


def all(
    a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Return whether every element over `axis` is true (not zero); True if there is none."""
    refuse_out("all", out)
    return reduced(reductions.reduce_and, _truths(a), axis, keepdims, where, True)


def any(
    a: Any, axis: Axis = None, out: Any = None, keepdims: bool = False, *, where: Any = None
) -> Any:
    """Return whether some element over `axis` is true (not zero); False if there is none."""
    refuse_out("any", out)
    return reduced(reductions.reduce_or, _truths(a), axis, keepdims, where, False)


def _truths(a: Any) -> Any:
    return convert(truth(a), types.bool_)


def count_nonzero(a: Any, axis: Axis = None, keepdims: bool = False) -> Any:
    """Return how many elements over `axis` are not zero."""
    return sum(truth(a), axis, keepdims=keepdims)


def _place(name: str, op: Function, a: Any, axis: int | None, keepdims: bool | None) -> Any:
    a = array(name, a)
    if axis is not None and not is_index(axis):
        raise ArgumentError(
            f"{name}: axis is an integer or None, not {type(axis).__name__}.",
            advice="Reshape the array to merge axes first.",
        )
    rows = reshape(a, (-1,)) if axis is None else a
    along = 0 if axis is None else axis
    found = op(rows, along, types.int_dtype())
    if axis is None:
        return reshape(found, (1,) * a.ndim) if keepdims else found
    return expand_dims(found, axis) if keepdims else found


def argmax(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Any:
    """Return the first place of the largest element (or of a NaN) along `axis`, or of all."""
    refuse_out("argmax", out)
    return _place("argmax", reductions.argmax, a, axis, keepdims)


def argmin(a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None) -> Any:
    """Return the first place of the smallest element (or of a NaN) along `axis`, or of all."""
    refuse_out("argmin", out)
    return _place("argmin", reductions.argmin, a, axis, keepdims)


# --- running reductions ---


def _running(name: str, op: Function, a: Any, axis: int | None, dtype: Any) -> Any:
    a = array(name, a)
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    wanted = a.dtype if dtype is None else check_dtype(dtype)
    if not types.is_bool(wanted):
        return op(convert(a, wanted), axis)
    running = op(convert(truth(a), types.int_dtype()), axis)
    return running if dtype is None else truth(running)


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running sums along `axis`, of all elements in order if it is None."""
    refuse_out("cumsum", out)
    return _running("cumsum", reductions.cumsum, a, axis, dtype)


def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return the running products along `axis`, of all elements in order if it is None."""
    refuse_out("cumprod", out)
    return _running("cumprod", reductions.cumprod, a, axis, dtype)


def cumulative_sum(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Return the running sums along `axis`; with `include_initial`, a 0 before them."""
    return _array_api("cumulative_sum", cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Any:
    """Return the running products along `axis`; with `include_initial`, a 1 before them."""
    return _array_api("cumulative_prod", cumprod, 1, x, axis, dtype, include_initial)


def _array_api(
    name: str, run: Function, start: int, x: Any, axis: int | None, dtype: Any, initial: bool
) -> Any:
    x = array(name, x)
    if axis is None and x.ndim != 1:
        raise ArgumentValueError(
            f"{name}: {x.type} has not one axis, so axis must be named.",
            advice="Flatten it first, or name axis=.",
        )
    axis = canonical_axis(0 if axis is None else axis, x.ndim)
    if dtype is None and run is cumsum:  # JAX promotes narrow integers in sums only
        dtype = _accumulating(x.dtype)
    result = run(x, axis, dtype)
    if not initial:
        return result
    config = [(1 if i == axis else 0, 0, 0) for i in range(x.ndim)]
    return pad(result, convert(array(name, start), result.dtype), config)
