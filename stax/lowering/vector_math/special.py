"""erf, erfc, and the reciprocal square root.

* erf x = -expm1(-u) with u = -log erfc |x|, a smooth function that one polynomial covers; the
  condition of expm1 is at most 1, so the error of u is not amplified and no second case is needed.
* erfc x = exp(-x^2) G(|x|) / (1 + 2 |x|) with G a polynomial in (|x| - K) / (|x| + K), which maps
  the half line to [-1, 1) (M. M. Shepherd and J. G. Laframboise, Chebyshev approximation of
  (1 + 2x) exp(x^2) erfc x, 1981); x^2 is taken in two words.

Coefficients: minimax by the Remez exchange in 50-digit arithmetic, then rounded to the format.  For
erf the error was weighted by its effect on the result, which leaves slack where erf is nearly 1.
"""

from __future__ import annotations

import math

from stax.lowering.vector_math.emit import Emitter, Value
from stax.lowering.vector_math.exponential import (
    HALF_WAY,
    LOG2_E,
    exp2_short,
    exp_minus_one,
    exp_reduced,
    limit,
    reduce,
)

INFINITY = math.inf

# -log erfc(x) = x + x P(x); in effect on erf: 2^-27.8 up to 3.95, and 2^-54.3 up to 5.95.
_ERF = {
    "float": (
        0.12837916612625122,
        0.6366195678710938,
        0.10277630388736725,
        -0.01914782077074051,
        -0.00016950689314398915,
        0.0016756727127358317,
        -0.0006373557262122631,
        0.00011885718413395807,
        -9.387254067405593e-06,
    ),
    "double": (
        0.12837916709551256,
        0.6366197723675898,
        0.10277260330135761,
        -0.019128446993818802,
        -0.00020919484682705447,
        0.001696207625512834,
        -0.0005901322269500923,
        2.5903741725591892e-05,
        6.442281737076341e-05,
        -2.9581471845864345e-05,
        3.1808044817137076e-06,
        3.1165890280307587e-06,
        -2.0186888068912147e-06,
        5.544795209036695e-07,
        -7.505522787829175e-10,
        -7.152448619755556e-08,
        3.6966721926276535e-08,
        -1.1531504868402911e-08,
        2.545077193228228e-09,
        -4.0973796950727775e-10,
        4.746587354575846e-11,
        -3.765796036818986e-12,
        1.836060543014277e-13,
        -4.1528870772459604e-15,
    ),
}
_ERF_LIMIT = {"float": 3.95, "double": 5.95}


def erf(k: Emitter, x: Value) -> Value:
    """-expm1(-u) = (1 - 2^n) - 2^n (e^r - 1), with u a polynomial in |x|."""
    a = limit(k, k.absolute(x), _ERF_LIMIT[x.kind])
    minus_u = k.fma(-k.polynomial(a, _ERF[x.kind]), a, -a)
    shifted, _, r = reduce(k, minus_u)
    power = k.two_to_the(shifted)
    return k.copysign(k.fma(-exp_minus_one(k, r), power, 1.0 - power), x)


# G(a) = (1 + 2 a) exp(a^2) erfc(a) = P((a - K) / (a + K)) on a >= 0: 2^-26.7 and 2^-54.1.
_ERFC_CENTRE = {"float": 2.0, "double": 4.0}
_ERFC = {
    "float": (
        1.2769783924798883,
        -0.09276389393089028,
        -0.16603138978048795,
        0.1640530813948023,
        -0.05420484267763488,
        -0.008043870676491876,
        0.008637549355759637,
        0.0012708204792903645,
        -0.0012532134799421932,
        -0.0003616622152519275,
        2.7988822675725415e-05,
    ),
    "double": (
        1.2329951186255526,
        -0.1396211168405632,
        0.01537965210260649,
        0.06809705425476521,
        -0.10103906603557967,
        0.09373283499614071,
        -0.06633036582787209,
        0.03716751556694859,
        -0.016197733882701293,
        0.005031969775950009,
        -0.0007577744365157168,
        -0.00019925595772781105,
        0.00015062635999238486,
        -2.4400436109667026e-05,
        -1.1234185428401e-05,
        5.709348204753243e-06,
        3.136445127533367e-07,
        -8.202748968601454e-07,
        5.532851428814389e-08,
        1.0158307881234892e-07,
        -8.076403783824591e-09,
        -8.399113104749103e-09,
    ),
}
# Beyond, erfc is less than half the least subnormal number.
_ERFC_LIMIT = {"float": 10.25, "double": 27.5}


# Beyond minus this, erfcx is infinite; above this, sqrt(pi) x erfcx(x) is a series in 1 / x^2.
_ERFCX_LIMIT = 27.0
_ERFCX_FAR = tuple(
    math.prod(-(j - 0.5) for j in range(1, i + 1)) / math.sqrt(math.pi) for i in range(8)
)


def erfc(k: Emitter, x: Value) -> Value:
    """In double; a float32 result takes shorter polynomials."""
    centre = _ERFC_CENTRE[k.kind]
    a = limit(k, k.absolute(k.widen(x)), _ERFC_LIMIT[k.kind])
    inverse = 1.0 / (a + centre)
    t = (a - centre) * inverse
    if k.kind == "double":
        # G is steep at a = 0: there the rounding errors of t would be 3 ulp of the result.
        remainder = k.fma(t, -a, k.fma(t + 1.0, -centre, a))
        t = k.fma(remainder, inverse, t)
    g = k.polynomial(t, _ERFC[k.kind])
    y = _gaussian_short(k, a, g) if k.kind == "float" else _gaussian_long(k, a, g)
    y = k.narrow(y)
    return k.select(x < 0.0, 2.0 - y, y)


def _gaussian_short(k: Emitter, a: Value, g: Value) -> Value:
    """Return g / (1 + 2 a) exp(-a^2) for a float32 a: its square is exact."""
    return g / k.fma(a, 2.0, 1.0) * exp2_short(k, a * a * -LOG2_E)


def _gaussian_long(k: Emitter, a: Value, g: Value) -> Value:
    """Return the same for float64, with a^2 in two words and the quotient corrected."""
    square = a * a
    square_low = k.fma(a, a, -square)
    shifted, _, r = reduce(k, -square)
    p = exp_reduced(k, r)
    p = k.fma(-p, square_low, p)
    inverse = 1.0 / k.fma(a, 2.0, 1.0)
    quotient = g * inverse
    remainder = k.fma(quotient * -2.0, a, g - quotient)
    y = k.fma(remainder, inverse, quotient) * p
    half_way = HALF_WAY[a.kind]
    return y * k.two_to_the(shifted, half_way) * 2.0**-half_way


def erfcx(k: Emitter, x: Value) -> Value:
    """G(a) / (1 + 2 a) in double; below 0, 2 exp(x^2) less the value at -x.

    Where `G` is not needed for erfc it is not fitted either: there, the asymptotic series (NIST
    DLMF 7.12.1).
    """
    x = k.widen(x)
    a = k.absolute(x)
    inverse = 1.0 / (a + 4.0)
    t = (a - 4.0) * inverse
    t = k.fma(k.fma(t, -a, k.fma(t + 1.0, -4.0, a)), inverse, t)
    near = k.polynomial(t, _ERFC["double"]) / k.fma(a, 2.0, 1.0)
    inverse = 1.0 / a
    far = inverse * k.polynomial(inverse * inverse, _ERFCX_FAR)
    right = k.select(a > _ERFCX_LIMIT, far, near)
    low = limit(k, a, _ERFCX_LIMIT)
    square = low * low
    p = k.call("exp", square)
    p = k.select(p < INFINITY, k.fma(p, k.fma(low, low, -square), p), p)
    return k.narrow(k.select(x < 0.0, p * 2.0 - right, right))


def rsqrt(k: Emitter, x: Value) -> Value:
    """Two roundings; the processor's estimate would differ from machine to machine."""
    return 1.0 / k.sqrt(x)
