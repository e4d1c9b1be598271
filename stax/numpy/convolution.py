"""Convolution of vectors, and phases made continuous.

A short kernel is applied tap by tap: one multiplication and addition for each, in one pass over the
signal.  A longer one is cut into square Toeplitz blocks, so that the work is that of matrix
products.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError
from stax.numpy.arguments import array, arrays, promoted
from stax.numpy.complex import conjugate
from stax.numpy.elementwise import where
from stax.numpy.joining import concatenate
from stax.numpy.manipulation import flip, sliced
from stax.numpy.padding import pad
from stax.numpy.reductions import cumsum
from stax.numpy.statistics import diff
from stax.numpy.taking import take
from stax.operators import elementwise as ops
from stax.operators.arithmetic import (
    absolute,
    add,
    divide,
    floor_divide,
    less,
    logical_and,
    negative,
    remainder,
    subtract,
)
from stax.operators.contract import matmul
from stax.operators.elementwise import convert
from stax.operators.reshape import reshape
from stax.operators.shape import broadcast_to
from stax.types import canonical_axis, check_dtype

# Up to this many taps are applied one by one.
SHORT = 32
_LARGEST_BLOCK = 2048


def convolve(
    a: Any,
    v: Any,
    mode: str = "full",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the sums of products of one vector with the other reversed, at each shift.

    Modes are "full", every shift at which they meet; "same", as many as the longer has elements;
    and "valid", the shifts at which one covers the other.  Integers are taken as float32 unless
    `preferred_element_type` names the type of the result; `precision` is accepted and changes
    nothing.  Raises ArgumentValueError for arrays that are not vectors, or empty.
    """
    x, y = _vectors("convolve", a, v, preferred_element_type)
    if x.shape[0] < y.shape[0]:
        x, y = y, x
    return _correlated(x, flip(y), mode, preferred_element_type)


def correlate(
    a: Any,
    v: Any,
    mode: str = "valid",
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the sums of products of one vector with the conjugate of the other, at each shift.

    Modes and types are those of `convolve`.
    """
    x, y = _vectors("correlate", a, v, preferred_element_type)
    y = conjugate(y)
    if x.shape[0] < y.shape[0]:
        return flip(_correlated(y, x, mode, preferred_element_type))
    return _correlated(x, y, mode, preferred_element_type)


def _vectors(name: str, a: Any, v: Any, preferred: Any) -> list[Any]:
    """Return both vectors in one dtype, which is inexact unless one is asked for."""
    found = arrays(name, a, v)
    if any(x.ndim != 1 or x.shape[0] == 0 for x in found):
        raise ArgumentValueError(
            f"{name} takes vectors that are not empty, not {found[0].type} and {found[1].type}.",
            advice="Flatten the arguments with ravel(), or use lax.conv_general_dilated.",
        )
    found = promoted(name, found)
    if preferred is None:
        kind = types.inexact_dtype(found[0].dtype)
        found = [convert(x, kind, x.weak_type) for x in found]
    return found


def _correlated(x: Any, taps: Any, mode: str, preferred: Any) -> Any:
    """Return the sums of products of `taps` with the elements of `x` below, at each shift."""
    count = taps.shape[0]
    around = {
        "valid": (0, 0),
        "same": (count // 2, count - count // 2 - 1),
        "full": (count - 1, count - 1),
    }.get(mode)
    if around is None:
        raise ArgumentValueError(
            f"convolve: mode {mode!r} is unknown.", advice="Modes are 'full', 'same' and 'valid'."
        )
    wanted = x.dtype if preferred is None else check_dtype(preferred)
    kinds = (types.ArrayType(x.dtype, ()), types.ArrayType(wanted, ()))
    wide = types.accumulator(types.promote(*kinds)[0])
    signal = pad(convert(x, wide), around)
    product = _by_taps if count <= SHORT else _by_blocks
    return convert(product(signal, convert(taps, wide)), wanted)


def _by_taps(signal: Any, taps: Any) -> Any:
    count = taps.shape[0]
    length = signal.shape[0] - count + 1
    total = None
    for k in range(count):
        tap = broadcast_to(sliced(taps, k, k + 1, 0), (length,))
        term = ops.mul(sliced(signal, k, k + length, 0), tap)
        total = term if total is None else ops.add(total, term)
    return total


def _by_blocks(signal: Any, taps: Any) -> Any:
    """Cut the signal into rows; each block of results is a sum of rows times Toeplitz matrices."""
    count = taps.shape[0]
    length = signal.shape[0] - count + 1
    size = min(_LARGEST_BLOCK, max(SHORT, 1 << math.ceil(math.log2(count / 8))))
    rows, reach = -(-length // size), -(-(count - 1) // size)
    whole = pad(signal, (0, (rows + reach) * size - signal.shape[0]))
    table = reshape(whole, (rows + reach, size))
    # Element (j, r) of block s multiplies what lies s * size + j - r after the result.
    padded = pad(taps, (size, size))
    total = None
    for s in range(reach + 1):
        offsets = s * size + np.arange(size)[:, None] - np.arange(size)[None, :] + size
        inside = np.clip(offsets, 0, count + 2 * size - 1).astype(np.int32)
        block = take(padded, inside, mode="clip")
        term = matmul(sliced(table, s, s + rows, 0), block)
        total = term if total is None else add(total, term)
    return sliced(reshape(total, (-1,)), 0, length, 0)


def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * math.pi) -> Any:
    """Return `p` with multiples of `period` added so that neighbours differ by at most half of it.

    Jumps below `discont` (half a period unless given) stay.  Raises ArgumentValueError for complex
    numbers.
    """
    p = array("unwrap", p)
    where_axis = canonical_axis(axis, p.ndim)
    kind, weak = types.promote(p.type, array("unwrap", period).type)
    if types.is_complex(kind):
        raise ArgumentValueError(
            "unwrap does not support complex numbers.", advice="Unwrap their angle."
        )
    p, period = convert(p, kind, weak), convert(array("unwrap", period), kind, weak)
    if not p.shape[where_axis]:
        return p
    discont = divide(period, 2) if discont is None else discont
    half = floor_divide(period, 2) if types.is_integer(kind) else divide(period, 2)
    steps = diff(p, axis=where_axis)
    near = subtract(remainder(add(steps, half), period), half)
    at_the_end = logical_and(near == negative(half), steps > 0)
    near = where(at_the_end, half, near)
    correction = where(less(absolute(steps), discont), 0, subtract(near, steps))
    moved = add(sliced(p, 1, p.shape[where_axis], where_axis), cumsum(correction, where_axis))
    return concatenate([sliced(p, 0, 1, where_axis), moved], where_axis)
