"""Exponential, sine and cosine integrals, Bessel functions and hypergeometric series."""

from __future__ import annotations

from typing import Any

from stax.errors import ArgumentValueError
from stax.numpy.arguments import inexact, static_int
from stax.numpy.joining import stack
from stax.operators import special
from stax.operators.elementwise import like
from stax.scipy.special.operands import strong


def expi(x: Any) -> Any:
    """Return the exponential integral Ei(x), of which 0 is a logarithmic pole."""
    return special.expi(strong("expi", x))


def expn(n: Any, x: Any) -> Any:
    """Return the exponential integral of order `n`, which has no derivative.

    That is the integral of exp(-x t) / t^n over t from 1; NaN for a negative `n` or `x`.
    """
    return special.expn(*strong("expn", n, x))


def exp1(x: Any) -> Any:
    """Return the exponential integral E_1(x), and NaN for negative `x`."""
    x = strong("exp1", x)
    return special.expn(like(x, 1), x)


def sici(x: Any) -> tuple[Any, Any]:
    """Return the sine and the cosine integral; the latter is that of |x|."""
    x = strong("sici", x)
    return special.sinint(x), special.cosint(x)


def spence(x: Any) -> Any:
    """Return Spence's function, the integral of log(t) / (1 - t) from 1 to `x`; NaN below 0."""
    return special.spence(strong("spence", x))


def i0e(x: Any) -> Any:
    """Return exp(-|x|) I_0(x), with the modified Bessel function of order 0."""
    return special.bessel_i0e(inexact("i0e", x))


def i1e(x: Any) -> Any:
    """Return exp(-|x|) I_1(x), with the modified Bessel function of order 1."""
    return special.bessel_i1e(inexact("i1e", x))


def i0(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 0."""
    return special.bessel_i0(inexact("i0", x))


def i1(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 1."""
    return special.bessel_i1(inexact("i1", x))


def bessel_jn(z: Any, *, v: int, n_iter: int = 50) -> Any:
    """Return the Bessel functions of the first kind of orders 0 to `v`, along a new first axis.

    They are right for all `z`; JAX's take `n_iter` steps of a recurrence, which does not change
    anything here.
    """
    z = strong("bessel_jn", z)
    order = static_int("bessel_jn", "v", v)
    static_int("bessel_jn", "n_iter", n_iter)
    if order < 0:
        raise ArgumentValueError(
            f"bessel_jn: the order is not negative, got v={order}.",
            advice="J_-v is J_v, times -1 for odd v.",
        )
    return stack([special.bessel_j(like(z, n), z) for n in range(order + 1)])


def hyp1f1(a: Any, b: Any, x: Any) -> Any:
    """Return the confluent hypergeometric function 1F1(a; b; x)."""
    return special.hyp1f1(*strong("hyp1f1", a, b, x))


def hyp2f1(a: Any, b: Any, c: Any, x: Any) -> Any:
    """Return Gauss's hypergeometric function 2F1(a, b; c; x).

    Its derivatives by `a`, `b` and `c` are those of its series, and NaN where |x| >= 1.
    """
    return special.hyp2f1(*strong("hyp2f1", a, b, c, x))
