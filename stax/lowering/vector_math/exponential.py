"""exp and what is built on it: exp2, expm1, tanh, logistic, sinh, cosh.

The one idea: x = n ln 2 + r with |r| <= ln(2)/2, so e^x = 2^n e^r.  The quotient n is rounded by
adding 1.5 * 2^mantissa, which leaves the integer n in the low bits of the sum; 2^n is those bits
moved into the exponent field.  n ln 2 is subtracted in two fused steps (Cody and Waite, Software
Manual for the Elementary Functions, 1980), the first of them exact.

Two rules keep the edges right.  Arguments are clamped by compare and select in the order that lets
NaN through, and 2^n always multiplies: adding n to the exponent field of the result would turn NaN
into a number.  Where a result may overflow or be subnormal, 2^n is applied as two factors, so that
it rounds once, in the last product.  Where it is 0 the last factor is 0 as well: a product that
underflows takes a hundred times as long, and masks make many of them.

Coefficients: minimax by the Remez exchange in 50-digit arithmetic, then rounded to the format.
Errors in the comments are relative to the function approximated.
"""

from __future__ import annotations

from stax.lowering.vector_math.emit import (
    EXPONENT_BIAS,
    INTEGER_OF,
    MANTISSA_BITS,
    ROUND_TO_INTEGER,
    Emitter,
    Value,
)

LOG2_E = 1.4426950408889634
# ln 2 as a number of the format and the rest of it.
LN2_HIGH = {"float": 0.693147182464599609375, "double": 0.6931471805599453094}
LN2_LOW = {"float": -1.904654299957767e-09, "double": 2.3190468138462996e-17}

# e^r = 1 + r + r^2 P(r) on |r| <= ln(2)/2, error relative to e^r - 1: 2^-25.8 and 2^-60.3.
EXP = {
    "float": (
        0.4999999701976776,
        0.16666541993618011,
        0.041667208075523376,
        0.008366710506379604,
        0.001388245727866888,
    ),
    "double": (
        0.5,
        0.16666666666666677,
        0.041666666666666505,
        0.008333333333321423,
        0.0013888888888963842,
        0.00019841269886741736,
        2.4801587170747915e-05,
        2.755724350929738e-06,
        2.7557403229080223e-07,
        2.510930695137672e-08,
        2.0875436218427876e-09,
    ),
}
# 2^r = 1 + r P(r) on |r| <= 1/2: 2^-26 and 2^-55.6, nearly all of it from rounding P(0) = ln 2.
EXP2 = {
    "float": (
        0.6931471824645996,
        0.24022650718688965,
        0.05550327152013779,
        0.00961800292134285,
        0.0013400537427514791,
        0.00015476583212148398,
    ),
    "double": (
        0.6931471805599453,
        0.24022650695910133,
        0.05550410866482174,
        0.009618129107592771,
        0.0013333558146378164,
        0.0001540353045885339,
        1.525273386837042e-05,
        1.3215434402862467e-06,
        1.0178046125308783e-07,
        7.073935583003249e-09,
        4.4574362950592325e-10,
    ),
}

# 2^r = 1 + r P(r), in double for a float32 result: 2^-29.
_EXP2_SHORT = (
    0.6931472065650945,
    0.24022651353754168,
    0.055503271196912764,
    0.009618002904771746,
    0.0013400537237669057,
    0.00015476583727961414,
)

# Beyond these arguments the result is 0, or infinite, or has reached its limit.
_EXP_RANGE = {"float": (-104.0, 89.0), "double": (-745.25, 710.0)}
_EXP2_RANGE = {"float": (-150.0, 129.0), "double": (-1075.0, 1025.0)}
FAR = {"float": -3000.0, "double": -30000.0}
_EXPM1_RANGE = {"float": (-20.0, 89.0), "double": (-40.0, 710.0)}
_TANH_LIMIT = {"float": 9.125, "double": 20.0}
_SINH_LIMIT = {"float": 90.0, "double": 711.0}
# Below these the result is the argument, and powers of it might underflow.
_TINY_EXPM1 = {"float": 2.0**-26, "double": 2.0**-55}
_TINY_SINH = {"float": 2.0**-13, "double": 2.0**-28}
# A power of two that brings every 2^n of one sign of n into the range of normal numbers.
HALF_WAY = {"float": 64, "double": 512}


def clamp(k: Emitter, x: Value, low: float, high: float) -> Value:
    """Limit x; NaN passes, because a comparison with NaN selects x."""
    x = k.select(x < low, low, x)
    return k.select(x > high, high, x)


def limit(k: Emitter, x: Value, high: float) -> Value:
    """Limit x from above; NaN passes."""
    return k.select(x > high, high, x)


def _far(k: Emitter, x: Value, low: float) -> Value:
    """Send what gives 0 to where that takes no time: underflow does, unless it is out of reach."""
    return k.select(x <= low, FAR[x.kind], x)


def reduce(k: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """Return n + ROUND_TO_INTEGER, n and r with x = n ln 2 + r."""
    kind = x.kind
    shifted = k.fma(x, LOG2_E, ROUND_TO_INTEGER[kind])
    n = shifted - ROUND_TO_INTEGER[kind]
    return shifted, n, k.fma(n, -LN2_LOW[kind], k.fma(n, -LN2_HIGH[kind], x))


def exp_minus_one(k: Emitter, r: Value) -> Value:
    """Return e^r - 1 for a reduced r, accurate near 0."""
    return k.fma(r * r, k.polynomial(r, EXP[r.kind]), r)


def exp_reduced(k: Emitter, r: Value) -> Value:
    return k.polynomial(r, (1.0, 1.0, *EXP[r.kind]))


def scale(k: Emitter, y: Value, shifted: Value, negative: Value, vanishes: Value) -> Value:
    """Return y 2^n, where `negative` holds if n < 0 and may hold if n = 0, or 0 if it vanishes."""
    kind = y.kind
    half_way, mantissa, one = HALF_WAY[kind], MANTISSA_BITS[kind], EXPONENT_BIAS[kind]
    exponents = ((one + half_way) << mantissa, (one - half_way) << mantissa)
    exponent = k.select_constant(negative, INTEGER_OF[kind], *exponents)
    rest = k.select_constant(negative, kind, 2.0**-half_way, 2.0**half_way)
    rest = k.select(vanishes, 0.0, rest)
    return y * ((shifted.bits << mantissa) + exponent).as_float * rest


def exp(k: Emitter, x: Value) -> Value:
    low, high = _EXP_RANGE[x.kind]
    if k.has_exponents(x.kind):
        _, n, r = reduce(k, limit(k, _far(k, x, low), high))
        return k.scaled(exp_reduced(k, r), n)
    x = clamp(k, x, low, high)
    shifted, _, r = reduce(k, x)
    return scale(k, exp_reduced(k, r), shifted, x < 0.0, x <= low)


def exp2(k: Emitter, x: Value) -> Value:
    low, high = _EXP2_RANGE[x.kind]
    has_exponents = k.has_exponents(x.kind)
    x = limit(k, _far(k, x, low), high) if has_exponents else clamp(k, x, low, high)
    shifted = x + ROUND_TO_INTEGER[x.kind]
    n = shifted - ROUND_TO_INTEGER[x.kind]
    y = k.polynomial(x - n, (1.0, *EXP2[x.kind]))
    return k.scaled(y, n) if has_exponents else scale(k, y, shifted, x < 0.0, x <= low)


def exp2_short(k: Emitter, x: Value) -> Value:
    """Return 2^x in double, where it is normal, to the accuracy that a float32 result needs."""
    shifted = x + ROUND_TO_INTEGER["double"]
    r = x - (shifted - ROUND_TO_INTEGER["double"])
    return k.polynomial(r, (1.0, *_EXP2_SHORT)) * k.two_to_the(shifted)


def expm1(k: Emitter, x: Value) -> Value:
    """2^n (e^r - 1) + (2^n - 1), halved so that 2^n may be the first power to overflow."""
    shifted, _, r = reduce(k, clamp(k, x, *_EXPM1_RANGE[x.kind]))
    half_power = k.two_to_the(shifted, -1)
    half = k.fma(exp_minus_one(k, r), half_power, half_power - 0.5)
    return k.select(k.absolute(x) < _TINY_EXPM1[x.kind], x, half + half)


def tanh(k: Emitter, x: Value) -> Value:
    """H / (H + 1) with H = expm1(2|x|) / 2: one division, and accurate near 0 without a case.

    Halves of numbers are exact: 2|x| = n ln 2 + 2 r, and P(2 r) has coefficients of its own.
    """
    kind = x.kind
    a = limit(k, k.absolute(x), _TANH_LIMIT[kind])
    shifted = k.fma(a, 2.0 * LOG2_E, ROUND_TO_INTEGER[kind])
    n = shifted - ROUND_TO_INTEGER[kind]
    r = k.fma(n, -0.5 * LN2_LOW[kind], k.fma(n, -0.5 * LN2_HIGH[kind], a))
    doubled = [c * 2.0 ** (i + 1) for i, c in enumerate(EXP[kind])]
    power = k.two_to_the(shifted)
    rest = k.fma(r * r, k.polynomial(r, doubled), r)
    h = k.fma(rest, power, k.fma(power, 0.5, -0.5))
    return k.copysign(h / (h + 1.0), x)


def exp_of_negative(k: Emitter, x: Value) -> Value:
    """Return e^x for x <= 0; a cheaper scale than exp's."""
    low = _EXP_RANGE[x.kind][0]
    if k.has_exponents(x.kind):
        _, n, r = reduce(k, _far(k, x, low))
        return k.scaled(exp_reduced(k, r), n)
    x = k.select(x < low, low, x)
    shifted, _, r = reduce(k, x)
    half_way = HALF_WAY[x.kind]
    rest = k.select(x <= low, 0.0, k.constant(2.0**-half_way, x.kind))
    return exp_reduced(k, r) * k.two_to_the(shifted, half_way) * rest


def logistic(k: Emitter, x: Value) -> Value:
    """1/(1+e) or e/(1+e) with e = exp(-|x|), so that the tail reaches into the subnormals."""
    e = exp_of_negative(k, -k.absolute(x))
    return k.select(x < 0.0, e, 1.0) / (e + 1.0)


def _hyperbolic(k: Emitter, magnitude: Value) -> tuple[Value, Value, Value, Value]:
    """Return S, C, D, U: sinh r, cosh r - 1, and (2^n -+ 2^-n)/8, where |x| = n ln 2 + r.

    Then sinh |x| = 4 (D (1 + C) + U S) and cosh |x| = 4 (U (1 + C) + D S): the addition theorems.
    The factor 8 keeps 2^n finite where the result only just is.
    """
    kind = magnitude.kind
    shifted, n, r = reduce(k, limit(k, magnitude, _SINH_LIMIT[kind]))
    z = r * r
    sinh_r = k.fma(r * z, k.polynomial(z, EXP[kind][1::2]), r)
    cosh_r_minus_1 = z * k.polynomial(z, EXP[kind][0::2])
    power = k.two_to_the(shifted, -3)
    # Where n > 60 the reciprocal power no longer counts, but its exponent must stay in range.
    inverse = k.two_to_the(ROUND_TO_INTEGER[kind] - limit(k, n, 60.0), -3)
    return sinh_r, cosh_r_minus_1, power - inverse, power + inverse


def sinh(k: Emitter, x: Value) -> Value:
    magnitude = k.absolute(x)
    s, c, d, u = _hyperbolic(k, magnitude)
    y = k.copysign(k.fma(u, s, k.fma(d, c, d)) * 4.0, x)
    return k.select(magnitude < _TINY_SINH[x.kind], x, y)


def cosh(k: Emitter, x: Value) -> Value:
    s, c, d, u = _hyperbolic(k, k.absolute(x))
    return k.fma(d, s, k.fma(u, c, u)) * 4.0
