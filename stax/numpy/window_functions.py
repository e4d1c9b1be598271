"""Windows: weights that fade a signal out at both ends."""

from __future__ import annotations

import math
from typing import Any

from stax import types
from stax.numpy.arguments import inexact, static_int
from stax.operators import elementwise as ops
from stax.operators.arithmetic import add, divide, multiply, subtract
from stax.operators.elementwise import convert
from stax.operators.shape import iota
from stax.operators.special import bessel_i0e
from stax.trace import full


def _places(name: str, M: Any) -> tuple[Any, int]:
    """Return 0, 1, ... and the number of them; or ones, for which no window is computed."""
    count = max(static_int(name, "M", M), 0)
    return iota(types.float_dtype(), (count,)), count


def _ones(count: int) -> Any:
    return full((count,), 1, types.float_dtype())


def _cosines(name: str, M: Any, *coefficients: float) -> Any:
    """Return the sum of cosines of whole periods over `M` places, with these coefficients."""
    places, count = _places(name, M)
    if count <= 1:
        return _ones(count)
    total: Any = coefficients[0]
    for k, coefficient in enumerate(coefficients[1:], 1):
        angle = multiply(places, 2 * math.pi * k)
        total = add(total, multiply(coefficient, ops.cos(divide(angle, count - 1))))
    return total


def bartlett(M: int) -> Any:
    """Return the triangular window of `M` weights."""
    places, count = _places("bartlett", M)
    if count <= 1:
        return _ones(count)
    apart = ops.abs_(add(multiply(places, 2.0), 1.0 - count))
    return subtract(1.0, divide(apart, count - 1))


def blackman(M: int) -> Any:
    """Return Blackman's window of `M` weights: 0.42 - 0.5 cos + 0.08 cos of two periods."""
    return _cosines("blackman", M, 0.42, -0.5, 0.08)


def hamming(M: int) -> Any:
    """Return Hamming's window of `M` weights: 0.54 - 0.46 cos."""
    return _cosines("hamming", M, 0.54, -0.46)


def hanning(M: int) -> Any:
    """Return von Hann's window of `M` weights: 0.5 - 0.5 cos."""
    return _cosines("hanning", M, 0.5, -0.5)


def kaiser(M: int, beta: Any) -> Any:
    """Return Kaiser's window of `M` weights; `beta` is how fast it falls, 0 for not at all."""
    places, count = _places("kaiser", M)
    if count <= 1:
        return _ones(count)
    beta = inexact("kaiser", beta)
    middle = 0.5 * (count - 1)
    apart = divide(subtract(places, middle), middle)
    root = ops.sqrt(subtract(1.0, multiply(apart, apart)))
    angle = multiply(beta, root)
    # I0 overflows where its scaled form does not; the scales are taken together.
    scale = ops.exp(subtract(ops.abs_(angle), ops.abs_(beta)))
    ratio = divide(bessel_i0e(angle), bessel_i0e(convert(beta, beta.dtype)))
    return multiply(ratio, scale)
