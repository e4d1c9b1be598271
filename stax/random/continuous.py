"""Distributions of real numbers that are functions of uniform or normal ones, element by element.

Derivatives flow through the parameters of a distribution as through any other operand; what is
drawn is constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes

from stax import types
from stax.errors import ArgumentValueError
from stax.numpy.arguments import array
from stax.numpy.elementwise import where
from stax.operators import elementwise as ops
from stax.operators.arithmetic import power
from stax.operators.bits import bitcast, clz
from stax.operators.elementwise import (
    convert,
    exp,
    integer_pow,
    like,
    log,
    log1p,
    select,
    sqrt,
)
from stax.operators.random import random_bits, random_split
from stax.random.arguments import float_type, parameters
from stax.random.keys import one_key
from stax.random.normal import draw_normal
from stax.random.uniform import draw_uniform
from stax.trace import full
from stax.types import canonical_shape

Sampler = Callable[..., Any]


def _standard(name: str, meaning: str, transform: Sampler, low: Sampler | float = 0.0) -> Sampler:
    """Return the sampler of a function of one uniform number in [low, 1).

    `low` may depend on the limits of the dtype.
    """

    def sampler(key: Any, shape: Any = (), dtype: Any = None) -> Any:
        key, kind = one_key(name, key), float_type(name, dtype)
        least = low(ml_dtypes.finfo(kind)) if callable(low) else low
        return transform(draw_uniform(name, key, canonical_shape(shape), kind, float(least), 1.0))

    sampler.__name__ = sampler.__qualname__ = name
    sampler.__doc__ = f"Return numbers of the {meaning}, float32 unless `dtype` is given."
    return sampler


exponential = _standard("exponential", "exponential distribution of rate 1", lambda u: -log1p(-u))
cauchy = _standard(
    "cauchy",
    "standard Cauchy distribution",
    lambda u: ops.tan((u - 0.5) * math.pi),
    lambda limits: limits.eps,
)
laplace = _standard(
    "laplace",
    "standard Laplace distribution",
    lambda u: ops.sign(u) * log1p(-ops.abs_(u)),
    lambda limits: limits.epsneg - limits.dtype.type(1),
)
logistic = _standard(
    "logistic",
    "standard logistic distribution",
    lambda u: log(u) - log1p(-u),
    lambda limits: limits.tiny,
)


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: str | None = None) -> Any:
    """Return numbers of the standard Gumbel distribution.

    With `mode="low"`, the default, none is above about 16 in float32; "high" and "highest" use
    twice as many bits and go to about 32.
    """
    key, dtype = one_key("gumbel", key), float_type("gumbel", dtype)
    return draw_gumbel(key, canonical_shape(shape), dtype, mode)


def draw_gumbel(key: Any, shape: Any, dtype: Any, mode: str | None) -> Any:
    """Return numbers of the standard Gumbel distribution for a sampler that checked its key."""
    if mode not in (None, "low", "high", "highest"):
        raise ArgumentValueError(
            f"gumbel: no mode {mode!r}.", advice="Modes are 'low', 'high' and 'highest'."
        )
    if mode == "highest" and dtype == types.float32:
        return _finest_gumbel(key, shape)
    limits = ml_dtypes.finfo(dtype)
    if mode in (None, "low"):
        return -log(-log(draw_uniform("gumbel", key, shape, dtype, float(limits.tiny), 1.0)))
    first, second = draw_uniform("gumbel", key, (2, *shape), dtype)
    finer = first + 2.0 ** -int(limits.nmant) * second + float(limits.tiny)
    return -log(-log1p(-where(first >= 0.5, first, finer)))


def _finest_gumbel(key: Any, shape: Any) -> Any:
    """Return Gumbel numbers of 64 bits each: as many digits near 0 and near 1 as float32 has."""
    high, low = random_bits(key, 32, (2, *shape))
    word = convert(high, types.uint64)
    word = ops.or_(ops.shift_left(word, like(word, 32)), convert(low, types.uint64))
    near_0 = ops.lt(word, like(word, 1 << 63))
    word = select(near_0, word, ops.neg(word))
    # The first 24 digits from the highest that is set, cut off, times a power of two.
    zeros = clz(word)
    digits = ops.shift_right_logical(ops.shift_left(word, zeros), like(word, 40))
    exponent = convert(ops.sub(like(zeros, 127 - 24), zeros), types.uint32)
    scale = bitcast(ops.shift_left(exponent, like(exponent, 23)), types.float32)
    x = ops.maximum(convert(digits, types.float32) * scale, full(shape, 2.0**-65, types.float32))
    return -log(-select(near_0, log1p(-x), log(x)))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the Pareto distribution of shape parameter `b`, from 1 up."""
    key, dtype = one_key("pareto", key), float_type("pareto", dtype)
    wanted, (b,) = parameters("pareto", shape, dtype, b)
    return exp(exponential(key, wanted, dtype) / b)


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the Rayleigh distribution of a `scale`."""
    key, dtype = one_key("rayleigh", key), float_type("rayleigh", dtype)
    wanted, (scale,) = parameters("rayleigh", shape, dtype, scale)
    return scale * sqrt(log(draw_uniform("rayleigh", key, wanted, dtype)) * -2.0)


def weibull_min(
    key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None
) -> Any:
    """Return numbers of the Weibull distribution of a `scale` and a `concentration`."""
    key, dtype = one_key("weibull_min", key), float_type("weibull_min", dtype)
    scale, concentration = (array("weibull_min", x) for x in (scale, concentration))
    drawn = exponential(key, shape, dtype)
    return power(drawn, 1.0 / concentration) * scale


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the Wald (inverse Gaussian) distribution of a `mean` and scale 1.

    J. R. Michael, W. R. Schucany, R. W. Haas, "Generating random variates using transformations
    with multiple roots", 1976.
    """
    key, dtype = one_key("wald", key), float_type("wald", dtype)
    wanted, (mean,) = parameters("wald", shape, dtype, mean)
    first, second = random_split(key, (2,))
    y = integer_pow(draw_normal(first, wanted, dtype), 2)
    chance = draw_uniform("wald", second, wanted, dtype)
    squared = integer_pow(mean, 2)
    root = sqrt(4 * mean * y + squared * integer_pow(y, 2))
    x = mean + squared * y / 2 - mean / 2 * root
    return select(chance <= mean / (mean + x), x, squared / x)


def triangular(
    key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None
) -> Any:
    """Return numbers between `left` and `right` whose density rises to `mode` and falls again."""
    key, dtype = one_key("triangular", key), float_type("triangular", dtype)
    wanted, (left, mode, right) = parameters("triangular", shape, dtype, left, mode, right)
    u = draw_uniform("triangular", key, wanted, dtype)
    width = right - left
    rising = left + sqrt(u * width * (mode - left))
    falling = right - sqrt((like(u, 1) - u) * width * (right - mode))
    return select(u < (mode - left) / width, rising, falling)
