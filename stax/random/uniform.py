"""Bits, uniform numbers and integers, and what one comparison makes of them: JAX's to the last bit.

A uniform number in [0, 1) is as many random bits as its dtype has digits, as a multiple of the
smallest power of two.  What such a number is scaled and shifted to is rounded once, as JAX's
compiled programs do it.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.numpy.arguments import array
from stax.numpy.elementwise import clip, where
from stax.operators import random as ops
from stax.operators.arithmetic import maximum
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import convert, like, rem
from stax.random.arguments import float_type, integer_type, sample_shape
from stax.random.keys import one_key
from stax.trace import full
from stax.types import Shape, check_dtype, is_python_number


def bits(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return random bits as unsigned integers: uint32 unless given (uint64 with enable_x64)."""
    key = one_key("bits", key)
    default = types.uint64 if types.int_dtype() == types.int64 else types.uint32
    found = default if dtype is None else check_dtype(dtype)
    if found.kind != "u":
        raise ArgumentValueError(
            f"bits draws unsigned integers, not {types.SHORT_NAMES[found]}.",
            advice="Convert them with astype.",
        )
    return ops.random_bits(key, 8 * found.itemsize, shape)


def uniform(
    key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Return numbers that are uniform in [minval, maxval), which broadcast to `shape`."""
    key, dtype = one_key("uniform", key), float_type("uniform", dtype)
    return draw_uniform("uniform", key, shape, dtype, minval, maxval)


def draw_uniform(
    name: str, key: Any, shape: Any, dtype: Any, low: Any = 0.0, high: Any = 1.0
) -> Any:
    """Return uniform numbers for the sampler `name`, its key and dtype checked already.

    Of several keys, each draws an array of `shape`.
    """
    bounds = [array(name, x) for x in (low, high)]
    wanted = sample_shape(name, shape, [x.shape for x in bounds])
    unit = _unit(key, wanted, dtype)
    if is_python_number(low) and is_python_number(high) and (low, high) == (0, 1):
        return unit
    least, most = (convert(x, dtype) for x in bounds)
    span, least = (broadcast_to(x, unit.shape) for x in (most - least, least))
    small = dtype.itemsize < 4
    scaled = unit * span + least if small else ops.fma(unit, span, least)
    return maximum(least, scaled)


def _unit(key: Any, shape: Shape, dtype: Any) -> Any:
    """Return uniform numbers in [0, 1), multiples of the distance from 1 to the next number."""
    digits = int(ml_dtypes.finfo(dtype).nmant)
    width = 8 if digits < 8 else 8 * dtype.itemsize
    random = ops.random_bits(key, width, shape)
    return convert(random >> (width - digits), dtype) * 2.0**-digits


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: str = "low") -> Any:
    """Return True with probability `p`, a float; the shape is that of `p` unless given.

    The mode "high" uses twice as many bits, for probabilities that are near 0.
    """
    if mode not in ("high", "low"):
        raise ArgumentValueError(f"bernoulli: the mode is 'high' or 'low', not {mode!r}.")
    key, p = one_key("bernoulli", key), array("bernoulli", p)
    if not types.is_float(p.dtype):
        raise DTypeError(
            f"bernoulli: the probability is a float, not {p.type}.", advice="Write 1.0 for 1."
        )
    shape, p = sample_shape("bernoulli", shape, [p.shape]), convert(p, p.dtype)
    if mode == "low":
        return draw_uniform("bernoulli", key, shape, p.dtype) < p
    coarse, fine = draw_uniform("bernoulli", key, (2, *shape), p.dtype)
    return fine * 2.0 ** -int(ml_dtypes.finfo(p.dtype).nmant) < p - coarse


def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return 1 or -1, each with probability a half, as int32 unless `dtype` is given."""
    found = types.int_dtype() if dtype is None else check_dtype(dtype)
    return convert(2 * bernoulli(key, 0.5, shape) - 1, found)


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Any:
    """Return integers in [minval, maxval), which broadcast to `shape`; minval where that is empty.

    A remainder makes some of them more probable, by about their number over 2**64 (2**128 for 64
    bits).  Those of 8 and 16 bits are drawn with 32.
    """
    key = one_key("randint", key)
    found = types.int_dtype() if dtype is None else check_dtype(dtype)
    if not types.is_integer(found):
        raise DTypeError(
            f"randint draws integers, not {types.SHORT_NAMES[found]}.",
            advice="Use uniform, or convert the result with astype.",
        )
    low, high = (_integers(x) for x in (minval, maxval))
    drawn = integer_type("randint", found)
    if found.itemsize < 4:
        drawn, limits = types.int32, np.iinfo(found)
        low = clip(convert(low, drawn), int(limits.min), int(limits.max))
        high = clip(convert(high, drawn), int(limits.min), int(limits.max) + 1)
    wanted = sample_shape("randint", shape, [low.shape, high.shape])
    return convert(_in_range(key, wanted, low, high, drawn), found)


def _integers(x: Any) -> Any:
    x = array("randint", x)
    return convert(x, x.dtype) if types.is_integer(x.dtype) else convert(x, types.int_dtype())


def _in_range(key: Any, shape: Shape, low: Any, high: Any, dtype: Any) -> Any:
    """Return integers between bounds: twice the bits of `dtype`, modulo how many there are."""
    width, unsigned = 8 * dtype.itemsize, np.dtype(f"u{dtype.itemsize}")
    top = np.iinfo(dtype).max
    is_beyond = high > _clipped(full((), top, dtype), high.dtype)  # 256 for uint8, say
    low, high = _clipped(low, dtype), _clipped(high, dtype)
    span = convert(high - low, unsigned)
    span = where(high <= low, like(span, 1), span)
    span = where(is_beyond & (high > low), span + like(span, 1), span)  # 0 stands for all
    first, second = ops.random_split(key, (2,))
    # 2**width modulo the span, squared from its root so that nothing overflows.
    root = rem(like(span, 1 << width // 2), span)
    multiplier = rem(root * root, span)
    span, multiplier, low = (broadcast_to(x, shape) for x in (span, multiplier, low))
    high_bits, low_bits = (rem(ops.random_bits(k, width, shape), span) for k in (first, second))
    offset = rem(high_bits * multiplier + low_bits, span)
    return low + convert(offset, dtype)


def _clipped(x: Any, dtype: Any) -> Any:
    """Return integers in `dtype`, those out of its range as its nearest number."""
    ours, theirs = np.iinfo(x.dtype), np.iinfo(dtype)
    low, high = (
        full((), pick(int(a), int(b)), x.dtype)
        for pick, a, b in ((max, ours.min, theirs.min), (min, ours.max, theirs.max))
    )
    return convert(clip(x, low, high), dtype)
