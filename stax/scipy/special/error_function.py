"""The error function and its kin: the normal distribution, Dawson's and Fresnel's integrals."""

from __future__ import annotations

import math
from typing import Any

from stax import types
from stax.errors import ArgumentError, ArgumentValueError
from stax.numpy.arguments import inexact
from stax.operators import elementwise as ops, special, special_complex
from stax.operators.elementwise import convert, like, select
from stax.scipy.special.operands import strong


def erf(x: Any) -> Any:
    """Return the error function."""
    return ops.erf(inexact("erf", x))


def erfc(x: Any) -> Any:
    """Return 1 less the error function, without cancellation."""
    return ops.erfc(inexact("erfc", x))


def erfinv(x: Any) -> Any:
    """Return the inverse of the error function: infinite at -1 and 1, NaN beyond them."""
    return special.erf_inv(inexact("erfinv", x))


def erfcx(x: Any) -> Any:
    """Return exp(x^2) erfc(x), which overflows far below 0 only; of complex numbers too."""
    x = strong("erfcx", x)
    if types.is_complex(x.dtype):
        return special_complex.wofz(ops.complex_(ops.neg(ops.imag(x)), ops.real(x)))
    return special.erfcx(x)


def wofz(z: Any) -> Any:
    """Return the Faddeeva function exp(-z^2) erfc(-iz), a complex number for any `z`."""
    z = strong("wofz", z)
    wide = z.dtype in (types.float64, types.complex128)
    return special_complex.wofz(convert(z, types.complex128 if wide else types.complex64))


def dawsn(x: Any) -> Any:
    """Return Dawson's integral: exp(-x^2) times the integral of exp(t^2) from 0 to `x`."""
    return special.dawsn(strong("dawsn", x))


def fresnel(x: Any) -> tuple[Any, Any]:
    """Return the integrals of sin(pi t^2 / 2) and of cos(pi t^2 / 2) from 0 to `x`."""
    x = strong("fresnel", x)
    return special.fresnel_s(x), special.fresnel_c(x)


def owens_t(h: Any, a: Any) -> Any:
    """Return Owen's T function: the probability of X > h and 0 < Y < a X for normal X and Y."""
    return special.owens_t(*strong("owens_t", h, a))


def ndtr(x: Any) -> Any:
    """Return the distribution function of the standard normal distribution."""
    x = strong("ndtr", x)
    scaled = ops.mul(x, like(x, math.sqrt(0.5)))
    half = like(x, 0.5)
    near = ops.lt(ops.abs_(scaled), like(x, math.sqrt(0.5)))
    middle = ops.add(half, ops.mul(half, ops.erf(scaled)))
    tail = ops.mul(half, ops.erfc(ops.abs_(scaled)))
    side = select(ops.gt(scaled, like(x, 0)), ops.sub(like(x, 1), tail), tail)
    return select(near, middle, side)


def ndtri(p: Any) -> Any:
    """Return the quantile function of the standard normal distribution, the inverse of `ndtr`."""
    return special.ndtri(strong("ndtri", p))


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """Return the logarithm of `ndtr`: log(erfcx(-x / sqrt 2) / 2) - x^2 / 2 below -1.

    It is right to rounding at all `x`; the terms of a series in which JAX falls short far below 0
    are none here, so `series_order` (from 0 to 30) changes nothing.
    """
    _check_order(series_order)
    x = strong("log_ndtr", x)
    low = ops.lt(x, like(x, -1))
    below, above = select(low, x, like(x, -1)), select(low, like(x, -1), x)
    root, half = like(x, math.sqrt(0.5)), like(x, 0.5)
    scaled = special.erfcx(ops.neg(ops.mul(below, root)))
    tail = ops.sub(ops.log(ops.mul(half, scaled)), ops.mul(half, ops.mul(below, below)))
    upper = ops.log1p(ops.neg(ops.mul(half, ops.erfc(ops.mul(above, root)))))
    return select(low, tail, upper)


def _check_order(series_order: Any) -> None:
    if not isinstance(series_order, int):
        raise ArgumentError(
            f"log_ndtr: series_order is an integer, not {type(series_order).__name__}.",
            advice="It may be left out.",
        )
    if not 0 <= series_order <= 30:
        raise ArgumentValueError(
            f"log_ndtr: series_order is from 0 to 30, got {series_order}.",
            advice="It may be left out.",
        )
