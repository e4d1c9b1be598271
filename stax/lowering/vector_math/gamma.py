"""The logarithm of the gamma function, and its derivatives: digamma, and those of higher order.

* log Gamma x for x >= 8 is Stirling's series, with the logarithm in two words.  Below, recurrence
  leads into [1, 3), where log Gamma t = (t - 1)(t - 2) R(t), so that the zeros are right.
* psi x for x >= 8 is the asymptotic series; below, the recurrence leads into [1, 2), where
  psi t = (t - t0) R(t) with the zero t0 in two words.
* Where x < 0, Euler's reflection formula.
* The Hurwitz zeta function is the Euler-Maclaurin formula with ten terms of the sum (NIST DLMF
  25.11.5), and polygamma is a multiple of it (DLMF 25.11.12).

Everything is computed in double.  Polynomials are in u, which goes from -1 to 1 on their interval:
interpolation at Chebyshev's points in 45-digit arithmetic, then rounded to the format.
"""

from __future__ import annotations

import math

from stax.lowering.vector_math.emit import Emitter, Value
from stax.lowering.vector_math.exponential import limit
from stax.lowering.vector_math.external import external
from stax.lowering.vector_math.logarithm import log, log_two_words

INFINITY = math.inf

# R of log Gamma on [1, 3]: 2^-54.8.
_LGAMMA = (
    0.42278433509846713,
    -0.1003173016743539,
    0.032965000621156974,
    -0.012384192193374355,
    0.004998641164623283,
    -0.0021081308338291313,
    0.0009153769241238952,
    -0.0004057073999387517,
    0.00018255261441838105,
    -8.30950999467849e-05,
    3.816908328313449e-05,
    -1.766185547433586e-05,
    8.221205092155437e-06,
    -3.846514242663634e-06,
    1.811476963472725e-06,
    -8.554816957118416e-07,
    3.95720794275243e-07,
    -1.8613158181553132e-07,
    1.0444285443268393e-07,
    -5.2038665331239926e-08,
    5.688737953962581e-09,
    -7.860744696187739e-10,
    1.632728743278208e-08,
    -8.952022836189938e-09,
    -4.358862409050565e-09,
    2.469423763164017e-09,
    1.5818126337337225e-09,
    -8.190037783293114e-10,
)
# R of psi on [1, 2]: 2^-54.3, and the zero of psi.
_DIGAMMA = (
    0.9510558760318328,
    -0.21181371064073024,
    0.06013562106019684,
    -0.01855061538173984,
    0.005936795278301761,
    -0.001935066664735652,
    0.0006368880303865817,
    -0.00021074841288961643,
    6.995018825112794e-05,
    -2.3258232466707952e-05,
    7.741234508636364e-06,
    -2.578134894751126e-06,
    8.589060721930695e-07,
    -2.8620904099739414e-07,
    9.543298288278273e-08,
    -3.1812669801384845e-08,
    1.0527692435026686e-08,
    -3.5032218996509757e-09,
    1.2469984616707401e-09,
    -4.1977726367342045e-10,
    8.73452842914296e-11,
    -2.7468150389465908e-11,
    2.9186227321682596e-11,
    -1.0015117602062643e-11,
)
_ZERO = 1.4616321449683622
_ZERO_LOW = 9.549995429965697e-17
# sin(pi r) / r in r^2, on |r| <= 1/2: 2^-52.9.
_SIN_PI = (
    2.534324262661598,
    -0.5697036803076341,
    0.03645310559709345,
    -0.001092432005489253,
    1.8956829192485415e-05,
    -2.1447169597692547e-07,
    1.7069665378821027e-09,
    -1.0077340315799801e-11,
    4.588274523967674e-14,
)
# B_2k / (2 k (2 k - 1)) of Stirling's series, and B_2k / (2 k) of its derivative, k = 1, 2, ...
_STIRLING = (
    1 / 12,
    -1 / 360,
    1 / 1260,
    -1 / 1680,
    1 / 1188,
    -691 / 360360,
    1 / 156,
    -3617 / 122400,
)
_STIRLING_SLOPE = tuple((2 * k + 1) * c for k, c in enumerate(_STIRLING))
# B_2k / (2 k)!
_EULER_MACLAURIN = tuple(
    (2 * k + 1) * (2 * k + 2) * c / math.factorial(2 * k + 2) for k, c in enumerate(_STIRLING)
)
_LARGE = 8.0
# log(2 pi) / 2 - 1/2
_CONSTANT = 0.41893853320467274
_TINY = 2.0**-60
_ZETA_TERMS = 10
# A larger exponent leaves nothing of the terms that it multiplies.
_LARGEST_FACTOR = 1e300


def sin_pi(k: Emitter, r: Value) -> Value:
    """Return sin(pi r) for |r| <= 1/2."""
    return r * k.polynomial_on(r * r, 0.0, 0.25, _SIN_PI)


def lgamma(k: Emitter, x: Value) -> Value:
    x = k.widen(x)
    a = k.absolute(x)
    positive = _lgamma_positive(k, a)

    def reflected() -> Value:
        part = a - k.intrinsic("floor", a.kind, a)
        rest = 1.0 - part
        s = sin_pi(k, k.select(part < rest, part, rest))
        return k.select(s.equals(0.0), INFINITY, log(k, math.pi / (a * s)) - positive)

    # Next to 0 the sign of x does not count, and a s would underflow.
    y = k.when((x < 0.0) & (a >= _TINY), reflected, positive)
    return k.narrow(k.select(a < INFINITY, y, a))


def _lgamma_positive(k: Emitter, a: Value) -> Value:
    large, low = a >= _LARGE, a < 1.0
    t, product = a, k.constant(1.0, "double")
    for _ in range(5):
        above, less = t >= 3.0, t - 1.0
        product = k.select(above, product * less, product)
        t = k.select(above, less, t)
    argument = k.select(large, a, k.select(low, a, product))
    high, low_word = log_two_words(k, argument)
    # a (a - 1) where t = a + 1, which may not be a number of the format.
    zeros = k.select(low, a, t - 1.0) * k.select(low, a - 1.0, t - 2.0)
    near = k.polynomial_on(k.select(low, a + 1.0, t), 1.0, 3.0, _LGAMMA)
    sign = k.select_constant(low, "double", -1.0, 1.0)
    small = k.fma(zeros, near, high * sign)
    inverse = 1.0 / a
    series = k.polynomial(inverse * inverse, _STIRLING) * inverse + _CONSTANT
    head = high - 1.0
    tail = ((high - head) - 1.0) + low_word
    m = a - 0.5
    stirling = k.fma(m, head, k.fma(m, tail, series))
    y = k.select(large, stirling, small)
    return k.select(a.equals(0.0), INFINITY, k.select(a < INFINITY, y, a))


def digamma(k: Emitter, x: Value) -> Value:
    x = k.widen(x)
    negative = x < 0.0
    positive = _digamma_positive(k, k.select(negative, 1.0 - x, x))
    r = x - k.intrinsic("roundeven", x.kind, x)

    def reflected() -> Value:
        cosine = sin_pi(k, 0.5 - k.absolute(r))
        return positive - cosine * math.pi / sin_pi(k, r)

    y = k.when(negative, reflected, positive)
    return k.narrow(k.select((x <= 0.0) & r.equals(0.0), math.nan, y))


def _digamma_positive(k: Emitter, y: Value) -> Value:
    large, low = y >= _LARGE, y < 1.0
    # The sum of 1 / (t - j), as a fraction.
    t, top, bottom = y, k.constant(0.0, "double"), k.constant(1.0, "double")
    for _ in range(6):
        above, less = t >= 2.0, t - 1.0
        top = k.select(above, k.fma(top, less, bottom), top)
        bottom = k.select(above, bottom * less, bottom)
        t = k.select(above, less, t)
    t = k.select(low, y + 1.0, t)
    top, bottom = k.select(low, -1.0, top), k.select(low, y, bottom)
    near = ((t - _ZERO) - _ZERO_LOW) * k.polynomial_on(t, 1.0, 2.0, _DIGAMMA)
    small = near + top / bottom
    inverse = 1.0 / y
    square = inverse * inverse
    series = k.fma(square, k.polynomial(square, _STIRLING_SLOPE), inverse * 0.5)
    return k.select(large, log(k, y) - series, small)


def zeta_positive(k: Emitter, s: Value, q: Value) -> Value:
    """Return the Hurwitz zeta function for s > 1 and q >= 0, both double."""
    minus_s = -s

    def step(i: str, base: Value, total: Value) -> tuple[Value, Value]:
        return base + 1.0, total + k.call("pow", base, minus_s)

    w, total = k.repeat(_ZETA_TERMS, (q, k.constant(0.0, "double")), step)
    inverse = 1.0 / w
    tail = k.call("pow", w, minus_s)
    total = k.fma(tail, 0.5, total) + tail * w / (s - 1.0)
    # tail s (s + 1) ... (s + 2 j - 2) / w^(2 j - 1); small factors first, none overflows.
    s = limit(k, s, _LARGEST_FACTOR)
    term = tail * (s * inverse)
    rest = k.constant(0.0, "double")
    for j, coefficient in enumerate(_EULER_MACLAURIN):
        rest = k.fma(term, coefficient, rest)
        term = term * ((s + (2.0 * j + 1.0)) * inverse) * ((s + (2.0 * j + 2.0)) * inverse)
    return total + rest


def zeta(k: Emitter, s: Value, q: Value) -> Value:
    """Below 0, sums over positive numbers are subtracted from the sum over all integers."""
    s, q = k.widen(s), k.widen(q)
    whole = k.intrinsic("floor", q.kind, q)
    negative, pole = q < 0.0, (q <= 0.0) & q.equals(whole)
    integral = k.intrinsic("trunc", s.kind, s).equals(s)
    half = s * 0.5
    odd = integral & ~k.intrinsic("trunc", half.kind, half).equals(half)
    direct = k.call("zeta_positive", s, k.select(negative, q - whole, q))

    def below() -> Value:
        above = k.intrinsic("ceil", q.kind, q) - q
        rest = k.call("zeta_positive", s, above) - k.call("zeta_positive", s, 1.0 - q)
        return k.select(integral, direct + k.select(odd, -rest, rest), math.nan)

    y = k.select(q.equals(INFINITY) & (s > 1.0), 0.0, k.when(negative, below, direct))
    y = k.select(pole, k.select_constant(odd, "double", math.nan, INFINITY), y)
    y = k.select(s < 1.0, math.nan, y)
    return k.narrow(k.select(s.equals(1.0) & q.equals(q), INFINITY, y))


def polygamma(k: Emitter, n: Value, x: Value) -> Value:
    n, x = k.widen(n), k.widen(x)
    half = n * 0.5
    odd = ~k.intrinsic("trunc", half.kind, half).equals(half)
    factorial = external(k, "gamma", n + 1.0)
    size = factorial * k.call("zeta", n + 1.0, x)
    y = k.select(odd, size, -size)
    y = k.select(n.equals(0.0), k.call("digamma", x), y)
    valid = (n >= 0.0) & k.intrinsic("trunc", n.kind, n).equals(n)
    return k.narrow(k.select(valid, y, math.nan))
