"""Normal numbers and what is made of them: a uniform number through the inverse of erf."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stax import types
from stax.numpy import linalg
from stax.numpy.arguments import array
from stax.operators import random as ops, special
from stax.operators.arithmetic import maximum, minimum
from stax.operators.bits import nextafter
from stax.operators.elementwise import complex_, convert, erf, exp, like
from stax.operators.gradient import stop_gradient
from stax.random.arguments import float_type, inexact_type, parameters, sample_shape
from stax.random.keys import one_key
from stax.random.uniform import draw_uniform, rademacher
from stax.types import Shape, canonical_shape


def normal(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return standard normal numbers; complex ones have parts of variance 1/2."""
    key, dtype = one_key("normal", key), inexact_type("normal", dtype)
    return draw_normal(key, canonical_shape(shape), dtype)


def draw_normal(key: Any, shape: Shape, dtype: Any) -> Any:
    """Return standard normal numbers for a sampler that has checked its key and dtype."""
    if types.is_complex(dtype):
        part = types.real_part(dtype)
        keys = ops.random_split(key, (2,))
        real, imag = (draw_normal(k, shape, part) * math.sqrt(0.5) for k in keys)
        return complex_(real, imag)
    # From the number after -1 on, so that none is infinite.
    low = float(np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype)))
    uniform = draw_uniform("normal", key, shape, dtype, low, 1.0)
    return special.erf_inv(uniform) * math.sqrt(2)


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return standard normal numbers between `lower` and `upper`, ends left out.

    The shape is that to which the ends broadcast unless given.
    """
    key, dtype = one_key("truncated_normal", key), float_type("truncated_normal", dtype)
    ends = [array("truncated_normal", x) for x in (lower, upper)]
    wanted = sample_shape("truncated_normal", shape, [x.shape for x in ends])
    ends = [convert(x, dtype) for x in ends]
    low, high = (erf(x / math.sqrt(2)) for x in ends)
    uniform = draw_uniform("truncated_normal", key, wanted, dtype, low, high)
    least, most = (
        nextafter(end, like(end, limit))
        for end, limit in zip(map(stop_gradient, ends), (math.inf, -math.inf), strict=True)
    )
    return minimum(most, maximum(least, special.erf_inv(uniform) * math.sqrt(2)))


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Any:
    """Return exp of normal numbers of deviation `sigma`."""
    key, dtype = one_key("lognormal", key), inexact_type("lognormal", dtype)
    wanted, (sigma,) = parameters("lognormal", shape, dtype, sigma)
    return exp(draw_normal(key, wanted, dtype) * sigma)


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return lengths of vectors of three standard normal numbers."""
    key, dtype = one_key("maxwell", key), float_type("maxwell", dtype)
    return linalg.norm(draw_normal(key, (*canonical_shape(shape), 3), dtype), axis=-1)


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return loc plus `scale` times numbers as `maxwell` draws them, with a random sign.

    The shape that `loc` and `scale` broadcast to comes after `shape`, and twice if that is ().
    """
    key, dtype = one_key("double_sided_maxwell", key), float_type("double_sided_maxwell", dtype)
    loc, scale = (array("double_sided_maxwell", x) for x in (loc, scale))
    own = types.broadcast_shapes(loc.shape, scale.shape)
    wanted = (*(canonical_shape(shape) or own), *own)
    first, second = ops.random_split(key, (2,))
    return rademacher(second, wanted, dtype) * maxwell(first, wanted, dtype) * scale + loc
