"""sin, cos, tan and their inverses.

The one idea: x = n pi/2 + r with |r| <= pi/4; sin and cos of r are short polynomials, and n modulo
4 says which of them to take and with what sign.  pi/2 is subtracted in as many words as the result
needs: two for a float32 argument held in double, three for float64, where the last rounding errors
are kept as a second word of r (Cody and Waite, 1980; Knuth's two-sum).

Where |x| is so large that the words do not suffice, a cold function calls the C library for those
lanes only, so that a lane's result never depends on its neighbours.

Coefficients: minimax by the Remez exchange in 50-digit arithmetic, then rounded to the format.
"""

from __future__ import annotations

from stax.lowering.vector_math.emit import ROUND_TO_INTEGER, SIGN_BIT, Emitter, Value

TWO_OVER_PI = 0.6366197723675814
HALF_PI = 1.5707963267948966
HALF_PI_MIDDLE = 6.123233995736766e-17
HALF_PI_LOW = -1.4973849048591833e-33

# sin r = r + r^3 P(r^2), cos r = 1 - r^2/2 + r^4 P(r^2), on |r| <= pi/4.
_SIN = {
    "float": (-0.16666655242443085, 0.008332187309861183, -0.000195179003640078),
    "double": (
        -0.1666666666666663,
        0.00833333333332184,
        -0.00019841269829358376,
        2.755731353842189e-06,
        -2.5050734369968128e-08,
        1.5895431928236523e-10,
    ),
}
_COS = {
    "float": (0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05),
    "double": (
        0.041666666666666595,
        -0.0013888888888873307,
        2.4801587288965362e-05,
        -2.755731420316931e-07,
        2.0875703159185546e-09,
        -1.135861839137667e-11,
    ),
}
# The same in double for a float32 result: 2^-37.5 and 2^-42.9.
_SIN_SHORT = (
    -0.16666666640597988,
    0.008333329281293508,
    -0.00019839304614858332,
    2.7180481712720352e-06,
)
_COS_SHORT = (
    0.0416666666191025,
    -0.001388888346711313,
    2.4799451558250912e-05,
    -2.7205049849405945e-07,
)
# From here on the C library is called.
_HUGE = {"float": 2.0**40, "double": 2.0**22}


def _reduce_float(k: Emitter, x: Value) -> tuple[Value, Value]:
    """Return r in double, and n as i64, for a float x widened to double."""
    shifted = k.fma(x, TWO_OVER_PI, ROUND_TO_INTEGER["double"])
    n = shifted - ROUND_TO_INTEGER["double"]
    r = k.fma(n, -HALF_PI_MIDDLE, k.fma(n, -HALF_PI, x))
    return r, shifted.bits


def _reduce_double(k: Emitter, x: Value) -> tuple[Value, Value, Value]:
    """Return r, the rounding error of r, and n as i64."""
    shifted = k.fma(x, TWO_OVER_PI, ROUND_TO_INTEGER["double"])
    n = shifted - ROUND_TO_INTEGER["double"]
    first = k.fma(n, -HALF_PI, x)
    second = n * -HALF_PI_MIDDLE
    second_low = k.fma(n, -HALF_PI_MIDDLE, -second)
    r = first + second
    # Either may be the larger: Knuth's two-sum.
    part = r - first
    error = (first - (r - part)) + (second - part)
    return r, error + k.fma(n, -HALF_PI_LOW, second_low), shifted.bits


def _sin_cos_float(k: Emitter, r: Value) -> tuple[Value, Value]:
    z = r * r
    sin = k.fma(r * z, k.polynomial(z, _SIN["float"]), r)
    cos = k.polynomial(z, (1.0, -0.5, *_COS["float"]))
    return sin, cos


def _sin_cos_double(k: Emitter, r: Value, low: Value) -> tuple[Value, Value]:
    """Return sin and cos of r + low, to first order in low."""
    z = r * r
    sin = r + k.fma(r * z, k.polynomial(z, _SIN["double"]), k.fma(z * -0.5, low, low))
    half = z * 0.5
    cos = 1.0 - half
    rest = k.fma(z * z, k.polynomial(z, _COS["double"]), (1.0 - cos) - half)
    return sin, cos + k.fma(-r, low, rest)


def _odd(quadrant: Value) -> Value:
    """Hold where bit 0 is set: as the sign bit, the form that vector selects want."""
    return (quadrant << _top_bit(quadrant)) < 0


def _top_bit(quadrant: Value) -> int:
    return 31 if quadrant.kind == "i32" else 63


def _quadrant(k: Emitter, x: Value, turn: int) -> Value:
    """Return sin(x + turn pi/2), for |x| that is not huge."""
    if x.kind == "float":
        r, quadrant = _reduce_float(k, k.widen(x))
        quadrant = k.convert("trunc", quadrant, "i32")
        sin, cos = _sin_cos_float(k, k.narrow(r))
    else:
        r, low, quadrant = _reduce_double(k, x)
        sin, cos = _sin_cos_double(k, r, low)
    if turn:
        quadrant = quadrant + turn
    y = k.select(_odd(quadrant), cos, sin)
    sign = (quadrant << (_top_bit(quadrant) - 1)) & SIGN_BIT[x.kind]
    return (y.bits ^ sign).as_float


def sin(k: Emitter, x: Value) -> Value:
    # The polynomial adds a positive zero to -0.0.
    y = k.select(x.equals(0.0), x, _quadrant(k, x, 0))
    return k.where_huge("sin", x, y, _HUGE[x.kind])


def cos(k: Emitter, x: Value) -> Value:
    return k.where_huge("cos", x, _quadrant(k, x, 1), _HUGE[x.kind])


def tan(k: Emitter, x: Value) -> Value:
    """sin r / cos r, or -cos r / sin r, in double."""
    if x.kind == "float":
        r, quadrant = _reduce_float(k, k.widen(x))
        z = r * r
        sin_r = k.fma(r * z, k.polynomial(z, _SIN_SHORT), r)
        cos_r = k.polynomial(z, (1.0, -0.5, *_COS_SHORT))
    else:
        r, low, quadrant = _reduce_double(k, x)
        sin_r, cos_r = _sin_cos_double(k, r, low)
    odd = _odd(quadrant)
    y = k.narrow(k.select(odd, -cos_r, sin_r) / k.select(odd, sin_r, cos_r))
    return k.where_huge("tan", x, k.select(x.equals(0.0), x, y), _HUGE[x.kind])


# asin r = r + r^3 P(r^2) on |r| <= 1/2: 2^-31.8 for float32 results, 2^-55.9.
_ASIN = {
    "float": (
        0.16666660005492273,
        0.07500503522575407,
        0.04451706666858417,
        0.031806847322993506,
        0.014441779898385857,
        0.03751209625153684,
    ),
    "double": (
        0.1666666666666541,
        0.07500000000336567,
        0.04464285682865966,
        0.030381959124479482,
        0.02237175832757796,
        0.01735970084998386,
        0.01388527204674172,
        0.012168982219326626,
        0.006528930365006792,
        0.01952573346918105,
        -0.016220384967041764,
        0.031909677797404376,
    ),
}
# atan r = r + r^3 P(r^2) on |r| <= 1: 2^-28.5 for float32 results, 2^-57.6.
_ATAN = {
    "float": (
        -0.33333299118535553,
        0.19998549224774512,
        -0.14264252349686163,
        0.10952244991865347,
        -0.08403632733840967,
        0.057960864646470926,
        -0.031181238670362276,
        0.010916490982142379,
        -0.001794055735872147,
    ),
    "double": (
        -0.3333333333333307,
        0.19999999999951773,
        -0.14285714282590103,
        0.11111111007411331,
        -0.09090907009119105,
        0.07692279904935727,
        -0.06666404557269315,
        0.05880530618011248,
        -0.052535304396508165,
        0.04722360966989053,
        -0.04219277138262656,
        0.03664385518317256,
        -0.029906869141359666,
        0.021988481078552613,
        -0.013903923310580895,
        0.007198854217504349,
        -0.002886116393643228,
        0.000831741514422798,
        -0.00015225120120257782,
        1.3234079841694068e-05,
    ),
}


def _asin_parts(k: Emitter, magnitude: Value) -> tuple[Value, Value]:
    """Return where |x| > 1/2, and asin of |x| or there of sqrt((1 - |x|) / 2)."""
    large = magnitude > 0.5
    square = k.select(large, k.fma(magnitude, -0.5, 0.5), magnitude * magnitude)
    r = k.select(large, k.sqrt(square), magnitude)
    return large, k.fma(r * square, k.polynomial(square, _ASIN[k.kind]), r)


def asin(k: Emitter, x: Value) -> Value:
    """pi/2 - 2 asin sqrt((1 - |x|) / 2) where |x| > 1/2; sqrt of a negative number gives NaN."""
    large, y = _asin_parts(k, k.absolute(k.widen(x)))
    y = k.select(large, k.fma(y, -2.0, HALF_PI_MIDDLE) + HALF_PI, y)
    return k.copysign(k.narrow(y), x)


def acos(k: Emitter, x: Value) -> Value:
    """2 asin sqrt((1 - x) / 2), or that of -x from pi, or pi/2 - asin x."""
    wide = k.widen(x)
    large, y = _asin_parts(k, k.absolute(wide))
    y = k.select(large, y + y, k.copysign(y, wide))
    whole = k.select_constant(wide < 0.0, "double", 2.0 * HALF_PI, 0.0)
    whole_low = k.select_constant(wide < 0.0, "double", 2.0 * HALF_PI_MIDDLE, 0.0)
    far = k.copysign(y, wide) + whole_low + whole
    near = HALF_PI - (y - HALF_PI_MIDDLE)
    return k.narrow(k.select(large, far, near))


def _atan_reduced(k: Emitter, r: Value) -> Value:
    z = r * r
    return k.fma(r * z, k.polynomial(z, _ATAN[k.kind]), r)


def atan(k: Emitter, x: Value) -> Value:
    """pi/2 - atan(1/|x|) where |x| > 1."""
    magnitude = k.absolute(k.widen(x))
    large = magnitude > 1.0
    y = _atan_reduced(k, k.select(large, 1.0 / magnitude, magnitude))
    y = k.select(large, HALF_PI - (y - HALF_PI_MIDDLE), y)
    return k.copysign(k.narrow(y), x)


def atan2(k: Emitter, y: Value, x: Value) -> Value:
    """atan of the smaller over the larger of |y| and |x|, then the octant undone."""
    wide_x = k.widen(x)
    a, b = k.absolute(k.widen(y)), k.absolute(wide_x)
    steep = a > b
    quotient = k.select(steep, b, a) / k.select(steep, a, b)
    # Both zero, or both infinite.
    quotient = k.select(a.equals(b), k.select(a.equals(0.0), a, 1.0), quotient)
    angle = _atan_reduced(k, quotient)
    angle = k.select(steep, HALF_PI - (angle - HALF_PI_MIDDLE), angle)
    left = wide_x.bits < 0
    angle = k.select(left, 2.0 * HALF_PI - (angle - 2.0 * HALF_PI_MIDDLE), angle)
    return k.copysign(k.narrow(angle), y)
