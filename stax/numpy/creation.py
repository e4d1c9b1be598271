"""Functions that make arrays: from values, filled with a number, or counting.

What is filled or counts is an op without operands, so it takes no memory until a kernel reads it.
`device` is accepted everywhere for JAX programs and changes nothing: there is one device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.array import asarray as to_array, copied
from stax.errors import ArgumentError, ArgumentValueError, UnsupportedError
from stax.extent import Extent
from stax.numpy.arguments import array as one_array, arrays, inexact_operands, static_int
from stax.numpy.complex import conj
from stax.operators import elementwise as ops
from stax.operators.arithmetic import add, divide, multiply, subtract
from stax.operators.elementwise import convert
from stax.operators.reshape import expand_dims, move_axis, reshape
from stax.operators.shape import broadcast_in_dim, broadcast_to, concatenate, iota
from stax.trace import full as filled, is_array, type_of
from stax.types import canonical_shape, check_dtype, is_python_number


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, copy: bool | None = None, device: Any = None
) -> Any:
    """Return `a` (nested lists, a NumPy array, a number) as an array, in `dtype` if given.

    A Python number stays weak unless `dtype` is given.  What can change is copied, and an array,
    which never does, only if `copy`: the result stays when `a` is donated.
    """
    _check_order("asarray", order)
    return copied(to_array(a, dtype)) if copy else to_array(a, dtype)


def _check_order(name: str, order: Any) -> None:
    if order not in (None, "K", "C"):
        raise UnsupportedError(
            f"{name}: order {order!r} is not supported.",
            advice="Arrays are row-major; transpose the result for another order of its axes.",
        )


def array(
    object: Any,
    dtype: Any = None,
    copy: bool = True,
    order: Any = "K",
    ndmin: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Return `object` as an array with at least `ndmin` axes; otherwise it is `asarray`."""
    _check_order("array", order)
    result = copied(to_array(object, dtype)) if copy else to_array(object, dtype)
    missing = ndmin - result.ndim
    return expand_dims(result, range(missing)) if missing > 0 else result


def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of `shape` filled with `fill_value`, which broadcasts to it."""
    extents = canonical_shape(shape)
    if is_python_number(fill_value):
        kind = types.scalar_type(fill_value)
        if dtype is None:
            return filled(extents, fill_value, kind.dtype, kind.weak)
        return filled(extents, fill_value, check_dtype(dtype))
    value = to_array(fill_value, dtype)
    return broadcast_to(value, extents)


def _or_float(dtype: Any) -> Any:
    return types.float_dtype() if dtype is None else check_dtype(dtype)


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of zeros, float32 unless `dtype` is given."""
    return filled(canonical_shape(shape), 0, _or_float(dtype))


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of ones, float32 unless `dtype` is given."""
    return filled(canonical_shape(shape), 1, _or_float(dtype))


def empty(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an array of zeros: there is no uninitialised memory to see."""
    return zeros(shape, dtype)


def full_like(
    a: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None
) -> Any:
    """Return an array filled with `fill_value`, of the shape and dtype of `a` unless given."""
    like = one_array("full_like", a)
    extents = like.shape if shape is None else canonical_shape(shape)
    kind = like.dtype if dtype is None else check_dtype(dtype)
    weak = like.weak_type and dtype is None
    if is_python_number(fill_value):
        return filled(extents, fill_value, kind, weak)
    return broadcast_to(convert(to_array(fill_value), kind, weak), extents)


def zeros_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return zeros of the shape and dtype of `a` unless given."""
    return full_like(a, 0, dtype, shape)


def ones_like(a: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return ones of the shape and dtype of `a` unless given."""
    return full_like(a, 1, dtype, shape)


def empty_like(prototype: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """Return zeros of the shape and dtype of `prototype` unless given."""
    return full_like(prototype, 0, dtype, shape)


def copy(a: Any, order: Any = None) -> Any:
    """Return `a` as an array that stays when `a` is donated; memory is copied only where it must.

    Arrays never change, so both may have the same.
    """
    _check_order("copy", order)
    return copied(to_array(a))


def astype(x: Any, dtype: Any, /, *, copy: bool = False, device: Any = None) -> Any:
    """Return `x` with its elements converted to `dtype`, in an array of its own if `copy`."""
    result = convert(one_array("astype", x), check_dtype(dtype))
    return copied(result) if copy else result


# --- counting ---


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None
) -> Any:
    """Return `start`, `start + step`, ... below `stop`; the bounds are static numbers."""
    if stop is None:
        start, stop = 0, start
    bounds = [start, stop, 1 if step is None else step]
    if any(isinstance(b, Extent) for b in bounds):
        return _symbolic_range(bounds, dtype)
    numbers = [_static_number(b) for b in bounds]
    kind = _range_dtype(bounds) if dtype is None else check_dtype(dtype)
    first, last, stride = numbers
    if not stride:
        raise ArgumentValueError(
            "arange: step must not be 0.", advice="Use full for one number repeated."
        )
    length = max(0, math.ceil((last - first) / stride))
    if not types.is_integer(kind) or not all(isinstance(n, int) for n in numbers):
        values = np.arange(first, last, stride).astype(kind)
        return to_array(values, kind) if length else zeros(0, kind)
    counts = iota(kind, (length,))
    if stride != 1:
        counts = ops.mul(counts, ops.like(counts, stride))
    return counts if not first else ops.add(counts, ops.like(counts, first))


def _range_dtype(bounds: list[Any]) -> Any:
    kinds = [b.dtype if isinstance(b, np.generic) or is_array(b) else None for b in bounds]
    found = [
        types.scalar_type(b) if k is None else types.ArrayType(types.canonical_dtype(k), ())
        for b, k in zip(bounds, kinds, strict=True)
    ]
    return types.promote(*found)[0]


def _static_number(value: Any) -> int | float:
    """Return a bound of a range as a Python number; traced arrays have none."""
    if isinstance(value, bool | int | float):
        return value
    if is_array(value) or isinstance(value, np.ndarray | np.generic):
        return value.item()
    raise ArgumentError(
        f"arange: bounds are numbers, not {type(value).__name__}.",
        advice="They set the length, so they must be known: pass them with static_argnums.",
    )


def _symbolic_range(bounds: list[Any], dtype: Any) -> Any:
    start, stop, step = bounds
    if step != 1:
        raise ArgumentValueError(
            "arange: with symbolic lengths the step must be 1.",
            advice="Multiply the result instead: step * arange(n).",
        )
    kind = types.int_dtype() if dtype is None else check_dtype(dtype)
    counts = iota(kind, (stop - start,))
    return counts if isinstance(start, int) and start == 0 else convert(add(counts, start), kind)


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """Return `num` evenly spaced numbers from `start` to `stop`, along `axis`.

    With `retstep`, return `(numbers, step)`.
    """
    count = static_int("linspace", "num", num)
    if count < 0:
        raise ArgumentValueError(
            f"linspace: num must not be negative, got {count}.", advice="Ask for 0 numbers or more."
        )
    start, stop = inexact_operands("linspace", start, stop)
    wanted = start.dtype if dtype is None else check_dtype(dtype)
    steps = count - 1 if endpoint else count
    span = (count, *start.shape)
    place = broadcast_in_dim(iota(start.dtype, (count,)), span, (0,))
    weight = divide(place, max(steps, 1))
    # The weighted form meets both ends, which adding up steps would not.
    low, high = (broadcast_in_dim(x, span, range(1, len(span))) for x in (start, stop))
    result = add(multiply(low, subtract(1.0, weight)), multiply(high, weight))
    if endpoint and count > 1:
        last = ops.eq(place, ops.like(place, count - 1))
        result = ops.select(last, convert(high, result.dtype), convert(result, result.dtype))
    result = move_axis(result, 0, axis if axis >= 0 else axis + len(span))
    if types.is_integer(wanted):
        result = ops.floor(result)
    result = convert(result, wanted)
    if not retstep:
        return result
    return result, divide(subtract(stop, start), steps) if steps else full((), np.nan, start.dtype)


def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Return `num` numbers from `base**start` to `base**stop`, their exponents evenly spaced."""
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    low, high = inexact_operands("logspace", base, exponents)
    result = ops.power(low, high)
    return result if dtype is None else convert(result, check_dtype(dtype))


def geomspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0
) -> Any:
    """Return `num` numbers from `start` to `stop` in geometric progression; both of one sign.

    Complex numbers turn on the way, by the principal logarithm of their quotient.
    """
    low, high = inexact_operands("geomspace", start, stop)
    sign = ops.sign(low)
    first, last = (ops.log(ops.mul(conj(sign), x)) for x in (low, high))
    exponents = linspace(first, last, num, endpoint, axis=axis)
    result = multiply(expand_dims(sign, axis) if low.ndim else sign, ops.exp(exponents))
    return result if dtype is None else convert(result, check_dtype(dtype))


# --- matrices ---


def eye(N: Any, M: Any = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Return an `N` by `M` matrix with ones on diagonal number `k`."""
    return _banded("eye", N, M, k, dtype, ops.eq)


def identity(n: Any, dtype: Any = None) -> Any:
    """Return the identity matrix of size `n`."""
    return eye(n, dtype=dtype)


def tri(N: Any, M: Any = None, k: int = 0, dtype: Any = None) -> Any:
    """Return an `N` by `M` matrix with ones at and below diagonal `k`; float32 by default."""
    return _banded("tri", N, M, k, types.float32 if dtype is None else dtype, ops.ge)


def _banded(name: str, n: Any, m: Any, k: int, dtype: Any, relation: Callable[..., Any]) -> Any:
    shape = canonical_shape((n, n if m is None else m))
    kind = _or_float(dtype)
    return convert(_diagonal_mask(shape, static_int(name, "k", k), relation), kind)


def _diagonal_mask(shape: Any, k: int, relation: Callable[..., Any]) -> Any:
    """Return where `row + k` relates to `column`, over the last two axes of `shape`."""
    last = len(shape) - 1
    rows, columns = iota(types.int32, shape, last - 1), iota(types.int32, shape, last)
    most = max((n for n in shape[-2:] if isinstance(n, int)), default=k)
    shift = min(max(k, -most), most)  # further off there is no diagonal, and no int32
    return relation(rows if not shift else ops.add(rows, ops.like(rows, shift)), columns)


def tril(m: Any, k: int = 0) -> Any:
    """Return the matrices in the last two axes with zeros above diagonal number `k`."""
    return _keep_band("tril", m, k, ops.ge)


def triu(m: Any, k: int = 0) -> Any:
    """Return the matrices in the last two axes with zeros below diagonal number `k`."""
    return _keep_band("triu", m, k, ops.le)


def _keep_band(name: str, m: Any, k: int, relation: Callable[..., Any]) -> Any:
    m = one_array(name, m)
    if m.ndim < 2:
        raise ArgumentValueError(
            f"{name} takes an array with at least two axes, not {m.type}.",
            advice="Add an axis with x[None].",
        )
    mask = _diagonal_mask(m.shape, static_int(name, "k", k), relation)
    return ops.select(mask, m, ops.like(m, 0))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any]:
    """Return coordinate arrays made of vectors; "xy" swaps the first two axes, "ij" does not.

    `copy` changes nothing.
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentValueError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}.")
    vectors = [reshape(x, (-1,)) if not x.ndim else x for x in arrays("meshgrid", *xi)]
    if any(x.ndim != 1 for x in vectors):
        raise ArgumentValueError(
            "meshgrid takes vectors.", advice="Flatten the arguments with ravel()."
        )
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [type_of(vectors[i]).shape[0] for i in order]
    result = []
    for x, axis in zip(vectors, order, strict=True):
        thin = [1] * len(order)
        thin[axis] = x.shape[0]
        result.append(broadcast_in_dim(x, thin if sparse else shape, (axis,)))
    return result


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """Return the index of every element of an array of shape `dimensions`, one row per axis."""
    shape = canonical_shape(dimensions)
    kind = types.int_dtype() if dtype is None else check_dtype(dtype)
    if sparse:
        thin = [[n if a == b else 1 for b, n in enumerate(shape)] for a in range(len(shape))]
        return tuple(iota(kind, s, a) for a, s in enumerate(thin))
    if not shape:
        return filled((0,), 0, kind)
    return concatenate([expand_dims(iota(kind, shape, a), (0,)) for a in range(len(shape))], 0)


def fromfunction(
    function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any
) -> Any:
    """Return `function` applied to the indices of an array of `shape`."""
    extents = canonical_shape(shape)
    return function(*(iota(check_dtype(dtype), extents, a) for a in range(len(extents))), **kwargs)
