"""log and what is built on it: log1p, asinh, acosh, atanh, pow, cbrt.

The one idea: x = 2^e m with m near 1, so log x = e ln 2 + log m.  Integer arithmetic on the bits of
x splits it; subtracting the bits of the least m first makes the borrow choose e.

* float32: m in [3/4, 3/2), which AVX-512 has an instruction for, and a polynomial in m - 1.
* float64: m in [sqrt(1/2), sqrt 2) and s = f / (2 + f) with f = m - 1, as log m = 2 atanh s; the
  sum is ordered as in FreeBSD's e_log.c (Sun Microsystems, 1993).
* pow needs log x to 2^-63: the same series with its first two terms in double-double arithmetic.

Coefficients: minimax by the Remez exchange in 50-digit arithmetic, then rounded to the format.
"""

from __future__ import annotations

import math

from stax.lowering.vector_math.emit import (
    EXPONENT_BIAS,
    INTEGER_OF,
    MANTISSA_BITS,
    SIGN_BIT,
    Emitter,
    Value,
)
from stax.lowering.vector_math.exponential import (
    EXP,
    LN2_HIGH,
    LN2_LOW,
    clamp,
    exp2_short,
    reduce,
    scale,
)

INFINITY = math.inf

# log(1 + f) = f + f^2 P(f) on -1/4 <= f <= 1/2: 2^-25.0.
_LOG_FLOAT = (
    -0.5000005960464478,
    0.3333354890346527,
    -0.24993465840816498,
    0.19977101683616638,
    -0.16822786629199982,
    0.149839386343956,
    -0.12067393958568573,
    0.05413210764527321,
)
# 2 atanh(s) = 2 s + s^3 P(s^2) on |s| <= 0.1716: 2^-58.5.
_LOG_DOUBLE = (
    0.6666666666666734,
    0.3999999999941629,
    0.28571428742162164,
    0.22222198586755432,
    0.18183563998268928,
    0.15314051188422656,
    0.14796008154018664,
)

# The bits of the least m: 3/4 and sqrt(1/2).
_LEAST = {"float": 0x3F400000, "double": 0x3FE6A09E667F3BCD}
_SMALLEST_NORMAL = {"float": 2.0**-126, "double": 2.0**-1022}
# Makes every subnormal number normal.
_LIFT = {"float": 23, "double": 52}
_TINY_LOG1P = {"float": 2.0**-26, "double": 2.0**-55}
# Setting the bits of 2^52 turns a small unsigned integer into a double; AVX2 converts no int64.
_BITS_OF_2_52 = 0x4330000000000000
# Greater than any -e, those of subnormal numbers included: makes the exponent unsigned.
_OFFSET = 2047
# ln 2 with 11 low bits of zero, so that its products with exponents are exact, and the rest.
_LN2_HEAD = 0.69314718055989033
_LN2_TAIL = 5.497923018708371e-14


def _exponent(k: Emitter, difference: Value, kind: str) -> Value:
    """Return e as a float from the bits of x less those of the least m."""
    mantissa = MANTISSA_BITS[kind]
    if kind == "float":
        power = difference & -(1 << mantissa)
        return k.convert("sitofp", power, kind) * 2.0**-mantissa
    positive = (difference + (_OFFSET << mantissa)) >> mantissa
    return (positive | _BITS_OF_2_52).as_float - (2.0**52 + _OFFSET)


def _split(k: Emitter, x: Value, may_be_subnormal: bool = True) -> tuple[Value, Value]:
    """Return e and f with x = 2^e (1 + f), for positive finite x."""
    kind, mantissa, least = x.kind, MANTISSA_BITS[x.kind], _LEAST[x.kind]
    if may_be_subnormal:
        subnormal = x < _SMALLEST_NORMAL[kind]
        x = k.select(subnormal, x * 2.0 ** _LIFT[kind], x)
        lifted = least + (_LIFT[kind] << mantissa)
        subtrahend = k.select_constant(subnormal, INTEGER_OF[kind], lifted, least)
        difference = x.bits - subtrahend
    else:
        difference = x.bits - least
    m = ((difference & ((1 << mantissa) - 1)) + least).as_float
    return _exponent(k, difference, kind), m - 1.0


def _log_of_parts(k: Emitter, e: Value, f: Value) -> Value:
    """Return e ln 2 + log(1 + f)."""
    if f.kind == "float":
        # The error of ln 2 as a float happens to be 2^-28: no second word is needed.
        return k.fma(e, LN2_HIGH["float"], k.fma(f * f, k.polynomial(f, _LOG_FLOAT), f))
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    rest = k.fma(z, k.polynomial(z, _LOG_DOUBLE), half_square)
    correction = half_square - k.fma(s, rest, e * _LN2_TAIL)
    return k.fma(e, _LN2_HEAD, f - correction)


def log(k: Emitter, x: Value) -> Value:
    if x.kind == "float" and k.has_exponents("float"):
        # Of these parts, those of special values give what is asked for.
        m, e = k.mantissa(x), k.exponent(x)
        return _log_of_parts(k, k.select(m < 1.0, e + 1.0, e), m - 1.0)
    y = _log_of_parts(k, *_split(k, x))
    y = k.select(x < INFINITY, y, x)
    y = k.select(x < 0.0, math.nan, y)
    return k.select(x.equals(0.0), -INFINITY, y)


def log1p(k: Emitter, x: Value) -> Value:
    """Split 1 + x, then form f = 2^-e x + (2^-e - 1), which rounds once and not at all for e = 0.

    2^-e x is an integer subtraction in the exponent, and 2^-e is built four times as large, so
    that neither is subnormal for the greatest x.
    """
    kind, mantissa = x.kind, MANTISSA_BITS[x.kind]
    difference = (x + 1.0).bits - _LEAST[kind]
    power = difference & -(1 << mantissa)
    four = (EXPONENT_BIAS[kind] + 2) << mantissa
    four_inverse = (four - power).as_float
    f = (x.bits - power).as_float + k.fma(four_inverse, 0.25, -1.0)
    y = _log_of_parts(k, _exponent(k, difference, kind), f)
    y = k.select(x < INFINITY, y, x)
    y = k.select(x < -1.0, math.nan, y)
    y = k.select(x.equals(-1.0), -INFINITY, y)
    return k.select(k.absolute(x) < _TINY_LOG1P[kind], x, y)


# From 2^60 on, 1 is nothing to x^2 and x^2 might overflow: asinh x = acosh x = log x + log 2.
_HUGE = 2.0**60


def asinh(k: Emitter, x: Value) -> Value:
    """log1p(a + a^2 / (1 + sqrt(a^2 + 1))) with a = |x|, in double."""
    a = k.absolute(k.widen(x))
    square = a * a
    huge = a > _HUGE
    argument = k.select(huge, a, a + square / (k.sqrt(square + 1.0) + 1.0))
    y = log1p(k, argument) + k.select_constant(huge, "double", LN2_HIGH["double"], 0.0)
    return k.copysign(k.narrow(y), x)


def acosh(k: Emitter, x: Value) -> Value:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1, in double."""
    x = k.widen(x)
    t = x - 1.0
    huge = x > _HUGE
    argument = k.select(huge, x, t + k.sqrt(k.fma(t, t, t + t)))
    y = log1p(k, argument) + k.select_constant(huge, "double", LN2_HIGH["double"], 0.0)
    return k.narrow(k.select(x < 1.0, math.nan, y))


def atanh(k: Emitter, x: Value) -> Value:
    """log1p(2 a / (1 - a)) / 2 with a = |x|, in double."""
    a = k.absolute(k.widen(x))
    y = log1p(k, (a + a) / (1.0 - a)) * 0.5
    return k.copysign(k.narrow(y), x)


# log2(1 + f) = s P(s^2), for float32 results: 2^-37.8.
_LOG2_SHORT = (
    2.8853900817900926,
    0.9617966733275536,
    0.577083587823736,
    0.41167254004067455,
    0.3407335694291226,
)
# 2 atanh(s) = 2 s + 2/3 s^3 + s^5 P(s^2): 2^-66.3.
_LOG_TAIL = (
    0.4000000000000225,
    0.28571428570101814,
    0.2222222251958734,
    0.1818178439183588,
    0.15386756375663221,
    0.1325683626911825,
    0.13196187678047766,
)
_TWO_THIRDS = 2.0 / 3.0
_TWO_THIRDS_LOW = 3.700743415417188e-17
_THIRD_LOW = 1.850371707708594e-17
# Outside, a float32 2^v is 0 or infinite.
_EXP2_LIMIT = 200.0
# Outside, a float64 e^v is; the low word of v is then of no account and may be NaN.
_LOW_WORD_LIMIT = 800.0


def _with_limits(k: Emitter, magnitude: Value, logarithm: Value) -> Value:
    """Give 0 and infinity their logarithms, and let NaN through."""
    logarithm = k.select(magnitude < INFINITY, logarithm, magnitude)
    return k.select(magnitude.equals(0.0), -INFINITY, logarithm)


def _power_short(k: Emitter, magnitude: Value, y: Value | float) -> Value:
    """Return magnitude^y for float32 in double: 2^(y log2 magnitude)."""
    e, f = _split(k, magnitude, may_be_subnormal=False)
    s = f / (f + 2.0)
    log2 = _with_limits(k, magnitude, k.fma(s, k.polynomial(s * s, _LOG2_SHORT), e))
    return k.narrow(exp2_short(k, clamp(k, log2 * y, -_EXP2_LIMIT, _EXP2_LIMIT)))


def log_two_words(k: Emitter, magnitude: Value) -> tuple[Value, Value]:
    """Return log magnitude as an unevaluated sum of two doubles, to about 2^-65."""
    e, f = _split(k, magnitude)
    d = f + 2.0
    inverse = 1.0 / d
    s = f * inverse
    d_low = f - (d - 2.0)
    s_low = (k.fma(-s, d, f) - s * d_low) * inverse
    z = s * s
    z_low = k.fma(s, s, -z) + (s + s) * s_low
    cube = z * s
    cube_low = k.fma(z, s, -cube) + k.fma(z, s_low, z_low * s)
    w = cube * _TWO_THIRDS
    w_low = k.fma(cube, _TWO_THIRDS, -w) + k.fma(cube, _TWO_THIRDS_LOW, cube_low * _TWO_THIRDS)
    tail = k.fma(cube * z, k.polynomial(z, _LOG_TAIL), w_low + (s_low + s_low))
    twice = s + s
    high = twice + w
    low = w - (high - twice) + tail
    # e ln 2 dominates unless e = 0, when it is exactly 0: the sums are Dekker's fast two-sum.
    whole = e * _LN2_HEAD
    total = whole + high
    low = high - (total - whole) + k.fma(e, _LN2_TAIL, low)
    # The tail of the series is far larger than a rounding error.
    result = total + low
    return result, low - (result - total)


def _power_long(k: Emitter, magnitude: Value, y: Value | float, y_low: float) -> Value:
    """Return magnitude^(y + y_low) for float64: e^(y log magnitude), the product in two words."""
    log_high, log_low = log_two_words(k, magnitude)
    log_high = _with_limits(k, magnitude, log_high)
    product = log_high * y
    low = k.fma(log_high, y, -product) + k.fma(log_low, y, log_high * y_low)
    low = k.select(k.absolute(product) < _LOW_WORD_LIMIT, low, 0.0)
    product = clamp(k, product, -746.0, 710.0)
    shifted, n, _ = reduce(k, product)
    vanishes = product <= -746.0
    return scale(k, _exp_two_words(k, product, low, n), shifted, product < 0.0, vanishes)


def _exp_two_words(k: Emitter, high: Value, low: Value, n: Value) -> Value:
    """Return e^(high + low - n ln 2), to little more than one rounding."""
    head = k.fma(n, -LN2_HIGH["double"], high)
    tail = k.fma(n, -LN2_LOW["double"], low)
    r = head + tail
    r_low = tail - (r - head)
    one_and_r = r + 1.0
    rest = k.fma(r * r, k.polynomial(r, EXP["double"]), r_low) + (r - (one_and_r - 1.0))
    return one_and_r + rest


def _power(k: Emitter, magnitude: Value, y: Value | float, y_low: float = 0.0) -> Value:
    if k.kind == "double":
        return _power_long(k, magnitude, y, y_low)
    exponent = k.widen(y) if isinstance(y, Value) else y
    return _power_short(k, k.widen(magnitude), exponent)


def pow(k: Emitter, x: Value, y: Value) -> Value:
    """|x|^y, then the sign and the special values of C99 annex F.9.4.4."""
    magnitude = k.absolute(x)
    result = _power(k, magnitude, y)
    half = y * 0.5
    integral = k.intrinsic("trunc", y.kind, y).equals(y)
    odd = integral & ~k.intrinsic("trunc", y.kind, half).equals(half)
    # The logarithm of 1 is 0, and 0 times infinity is NaN.
    one_to_infinity = magnitude.equals(1.0) & k.absolute(y).equals(INFINITY)
    result = k.select(one_to_infinity, 1.0, result)
    result = (result.bits ^ k.select(odd, x.bits & SIGN_BIT[x.kind], 0)).as_float
    undefined = (x < 0.0) & (magnitude < INFINITY) & ~integral
    result = k.select(undefined, math.nan, result)
    return k.select(x.equals(1.0) | y.equals(0.0), 1.0, result)


def cbrt(k: Emitter, x: Value) -> Value:
    """|x|^(1/3) as pow forms it, with 1/3 in two words."""
    return k.copysign(_power(k, k.absolute(x), 1.0 / 3.0, _THIRD_LOW), x)
