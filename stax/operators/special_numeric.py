"""Special functions that SciPy lacks, on float64 arrays; what `operators.special` computes with.

* The derivative of a gamma variate by its shape, and so that of the incomplete gamma function.
  With p the density x^(a-1) e^-x / Gamma(a), P the distribution function and v = |log(t / x)|,

      -(dP/da) / p = x int_0^oo exp(-|x - a| v - x (e^sv - 1 - sv)) (s (log x - psi(a)) + v) dv

  where s = 1 if x >= a, and -1 otherwise: the integral of the density's derivative over the tail on
  the far side of x, where its terms have one sign.  The integrand is entire and decays at least
  exponentially, so that a Gauss rule on the part above e^-40 of its start is exact to rounding.
  For x <= 1 the power series of P (NIST DLMF 8.7.1) is differentiated term by term.
* The Hurwitz zeta function below 0, by subtracting sums over positive numbers from the sum over all
  integers (in effect, DLMF 5.15.6), where SciPy's would add terms one by one.
* Derivatives of the series of 1F1 and 2F1 by a parameter, by differentiating the recurrence of
  their terms, which needs no digamma function and holds at zeros and negative integers too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special

from stax.operators import special_tables as tables

Array = Any

# Nodes and weights of the Gauss-Legendre rule on [0, 1] with 48 nodes.
GAUSS_RULE = (
    (0.0006144963737869407, 0.0015766730261529192),
    (0.003234913866824621, 0.0036637769506381312),
    (0.007937708138586571, 0.00573861728961727),
    (0.014704203726876374, 0.007789657861471924),
    (0.02350614841978457, 0.009808080228677764),
    (0.034306654646722834, 0.01178538041966219),
    (0.04706043164221516, 0.013713254854178474),
    (0.06171398986287606, 0.015583613916399045),
    (0.07820586918780323, 0.01738861128238522),
    (0.09646689798527869, 0.019120675532915354),
    (0.11642048374212983, 0.020772541471732374),
    (0.13798293453809268, 0.02233728042834714),
    (0.16106381018366805, 0.02380832924624524),
    (0.1855663016117432, 0.025179517776927236),
    (0.21138763695801366, 0.026445094742596834),
    (0.23841951263888347, 0.027599751849992082),
    (0.2665485476245208, 0.028638646050201607),
    (0.2956567590046416, 0.029557419849197818),
    (0.32562205685391965, 0.03035221958294694),
    (0.3563187563222722, 0.031019711579946332),
    (0.38761810480265546, 0.03155709614312701),
    (0.41938882196555416, 0.03196211929232409),
    (0.4514976503952686, 0.032233082217975044),
    (0.4838099145185653, 0.03236884840634196),
    (0.5161900854814346, 0.03236884840634196),
    (0.5485023496047313, 0.032233082217975044),
    (0.5806111780344458, 0.03196211929232409),
    (0.6123818951973445, 0.03155709614312701),
    (0.6436812436777278, 0.031019711579946332),
    (0.6743779431460803, 0.03035221958294694),
    (0.7043432409953584, 0.029557419849197818),
    (0.7334514523754792, 0.028638646050201607),
    (0.7615804873611165, 0.027599751849992082),
    (0.7886123630419863, 0.026445094742596834),
    (0.8144336983882569, 0.025179517776927236),
    (0.838936189816332, 0.02380832924624524),
    (0.8620170654619074, 0.02233728042834714),
    (0.8835795162578701, 0.020772541471732374),
    (0.9035331020147214, 0.019120675532915354),
    (0.9217941308121967, 0.01738861128238522),
    (0.938286010137124, 0.015583613916399045),
    (0.9529395683577848, 0.013713254854178474),
    (0.9656933453532772, 0.01178538041966219),
    (0.9764938515802154, 0.009808080228677764),
    (0.9852957962731236, 0.007789657861471924),
    (0.9920622918614135, 0.00573861728961727),
    (0.9967650861331754, 0.0036637769506381312),
    (0.999385503626213, 0.0015766730261529192),
)
# The integral ends where its exponent is below minus this.
DEPTH = 40.0
# e^v - 1 - v = v^2 P(v), for |v| < 1/2.
EXP_REMAINDER = tuple(1.0 / math.factorial(k) for k in range(2, 16))
# log a - psi(a) = 1 / (2 a) + P(1 / a^2) / a^2 for a >= 10 (DLMF 5.11.2).
LOG_LESS_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
SERIES_TERMS = 25
LEAST_SHAPE = 1e-290
# A hypergeometric series ends where its terms are below this, relative to their sum.
NEGLIGIBLE = 1e-17
HYPERGEOMETRIC_TERMS = 1000


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    total = np.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


def _piece(x: Array, piece: tables.Piece) -> Array:
    low, high, coefficients = piece
    scale = 2.0 / (high - low)
    return _polynomial(x * scale - 0.5 * (low + high) * scale, coefficients)


def _exp_remainder(v: Array) -> Array:
    """Return e^v - 1 - v."""
    near = np.abs(v) < 0.5
    u = np.where(near, v, 0.0)
    return np.where(near, u * u * _polynomial(u, EXP_REMAINDER), np.expm1(v) - v)


def _log_less_digamma(a: Array) -> Array:
    far = np.where(a >= 10, a, 10.0)
    z = 1 / (far * far)
    series = 0.5 / far + z * _polynomial(z, LOG_LESS_DIGAMMA)
    return np.where(a >= 10, series, np.log(a) - scipy.special.psi(a))


def _gradient_by_quadrature(a: Array, x: Array) -> Array:
    distance = np.abs(x - a)
    ratio = np.where(distance < 0.5 * a, np.log1p((x - a) / a), np.log(x / a))
    gap = ratio + _log_less_digamma(a)
    above = x >= a
    q = 2 * distance - DEPTH
    root = np.sqrt(q * q + 8 * DEPTH * a)
    low = np.where(q > 0, 4 * DEPTH / (q + root), (root - q) / (2 * a))
    high = 2 * DEPTH / (distance + np.sqrt(distance * distance + 2 * DEPTH * x))
    end = np.where(above, np.minimum(high, np.log1p(DEPTH / x) + 1), low)
    sign = np.where(above, 1.0, -1.0)
    total = np.zeros_like(x)
    for node, weight in GAUSS_RULE:
        v = end * node
        exponent = -distance * v - x * _exp_remainder(sign * v)
        total = total + weight * np.exp(exponent) * (sign * gap + v)
    return x * end * total


def _gradient_by_series(a: Array, x: Array) -> Array:
    term, harmonic = np.ones_like(a), np.zeros_like(a)
    terms, products = term, harmonic
    for n in range(1, SERIES_TERMS + 1):
        term = term * x / (a + n)
        harmonic = harmonic + 1 / (a + n)
        terms, products = terms + term, products + term * harmonic
    return x / a * (terms * (scipy.special.psi(a + 1) - np.log(x)) + products)


def random_gamma_grad(a: Array, x: Array) -> Array:
    """Return the derivative of a gamma variate `x` by its shape `a`, its quantile held fixed."""
    small, valid = x <= 1, (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    shape = np.where(valid, a, 1.0)
    series = _gradient_by_series(shape, np.where(valid & small, x, 1.0))
    integral = _gradient_by_quadrature(shape, np.where(valid & ~small, x, 2.0))
    result = np.where(small, series, integral)
    edge = np.where((a > 0) & (x == 0), 0.0, np.nan)
    return np.where(valid, result, np.where((a > 0) & (x == math.inf), math.inf, edge))


def gamma_density(a: Array, x: Array) -> Array:
    """Return x^(a-1) e^-x / Gamma(a) for positive arguments, without cancellation for large ones.

    With x = a (1 + m) it is sqrt(a / 2 pi) exp(-a (m - log1p m) - r(a)) / x, and r is what
    Stirling's formula leaves over.
    """
    large = a > 20
    wide = np.where(large, a, 20.0)
    m = np.where(large, (x - wide) / wide, 0.0)
    z = 1 / (wide * wide)
    rest = (1 / 12 - z * (1 / 360 - z * (1 / 1260 - z * (1 / 1680 - z / 1188)))) / wide
    exponent = -wide * _log1p_remainder(m) - rest
    stirling = np.sqrt(wide / (2 * math.pi)) * np.exp(exponent) / x
    small = np.where(large, 1.0, a)
    # Next to a = 0 Gamma(a) overflows.
    tiny = a < 1e-5
    power = (small - 1) * np.log(x) - x - np.where(tiny, scipy.special.gammaln(small), 0.0)
    direct = np.exp(power) / np.where(tiny, 1.0, scipy.special.gamma(small))
    return np.where(large, stirling, direct)


def _log1p_remainder(m: Array) -> Array:
    """Return m - log1p(m): near 0, with s = m / (2 + m), it is s m - 2 s^3 (1/3 + s^2/5 + ...)."""
    near = np.abs(m) < 0.3
    u = np.where(near, m, 0.0)
    s = u / (2 + u)
    z = s * s
    series = _polynomial(z, tuple(1 / (2 * k + 3) for k in range(12)))
    return np.where(near, s * u - 2 * s * z * series, m - np.log1p(m))


def igamma_grad_a(a: Array, x: Array) -> Array:
    """Return the derivative by `a` of the regularised lower incomplete gamma function."""
    valid = (a > 0) & (x > 0) & (a < math.inf) & (x < math.inf)
    # Towards a = 0 it tends to -E_1(x); the density and its inverse must not overflow before.
    shape, at = np.maximum(np.where(valid, a, 1.0), LEAST_SHAPE), np.where(valid, x, 1.0)
    density = gamma_density(shape, at)
    gradient = np.where(density > 0, -random_gamma_grad(shape, at) * density, 0.0)
    edge = np.where((a > 0) & ((x == 0) | (x == math.inf)), 0.0, np.nan)
    return np.where(valid, gradient, edge)


def zeta(s: Array, q: Array) -> Array:
    """Return the Hurwitz zeta function, the sum of (q + k)^-s over k = 0, 1, ...

    At its poles it is infinite, and NaN for odd `s`, where the sides differ in sign.
    """
    s, q = np.broadcast_arrays(s, q)
    whole, integral = q == np.floor(q), (s == np.floor(s)) & np.isfinite(s) & (s > 1)
    pole = integral & whole & (q <= 0) & (s % 2 == 1)
    reflected = integral & ~whole & (q < 0)
    outside = pole | (q < 0) & ~whole & (s != 1)
    direct = _zeta_positive(s, np.where(outside, np.nan, q))
    if not reflected.any():
        return direct
    order, at = np.where(reflected, s, 2.0), np.where(reflected, q, -0.5)
    below, above = at - np.floor(at), np.ceil(at) - at
    rest = _zeta_positive(order, above) - _zeta_positive(order, 1 - at)
    sign = np.where(order % 2 == 0, 1.0, -1.0)
    return np.where(reflected, _zeta_positive(order, below) + sign * rest, direct)


def _zeta_positive(s: Array, q: Array) -> Array:
    """SciPy's, but one term where the others are nothing to it, which there overflow in SciPy."""
    large = (s > 1e6) & (q > 0)
    return np.where(large, q**-s, scipy.special.zeta(np.where(large, 2.0, s), q))


def polygamma(n: Array, x: Array) -> Array:
    """Return the derivative of order `n` of digamma."""
    sign = np.where(n % 2 == 1, 1.0, -1.0)
    higher = sign * scipy.special.gamma(n + 1) * zeta(n + 1, x)
    valid = (n >= 0) & (n == np.floor(n))
    return np.where(valid, np.where(n == 0, digamma(x), higher), np.nan)


def hypergeometric_slope(
    numerators: tuple[Array, ...], denominators: tuple[Array, ...], by: tuple[str, int], x: Array
) -> Array:
    """Return the derivative of the hypergeometric series by one of its parameters.

    The terms are t_(k+1) = t_k x N_k / D_k with N_k and D_k the products of (parameter + k), and
    k + 1 among the denominators; NaN where the series does not converge.
    """
    above = len(numerators) > len(denominators)
    x = np.where(above & (np.abs(x) >= 1), np.nan, x)
    term, slope = np.ones_like(x), np.zeros_like(x)
    total, done = np.zeros_like(x), np.zeros_like(x, bool)
    side, number = by
    for k in range(HYPERGEOMETRIC_TERMS):
        ratio = x / (k + 1)
        for i, c in enumerate(numerators):
            if by != ("numerator", i):
                ratio = ratio * (c + k)
        for c in denominators:
            ratio = ratio / (c + k)
        if side == "numerator":
            factor = numerators[number] + k
            slope = (slope * factor + term) * ratio
            term = term * factor * ratio
        else:
            term = term * ratio
            slope = slope * ratio - term / (denominators[number] + k)
        total = np.where(done, total, total + slope)
        size = np.abs(total)
        small = (np.abs(slope) <= NEGLIGIBLE * size) & (np.abs(term) <= NEGLIGIBLE * (size + 1))
        done = done | small | np.isnan(total)
        if done.all():
            break
    return total


def digamma(x: Array) -> Array:
    """Return the logarithmic derivative of the gamma function; NaN at its poles, as in JAX.

    Below 0 by reflection (DLMF 5.5.4), for SciPy's has few digits next to the poles.
    """
    r = x - np.rint(x)
    below = (x < 0) & (r != 0)
    positive = scipy.special.psi(np.where(x < 0, 1 - x, x))
    reflected = positive - np.pi / np.tan(np.pi * np.where(below, r, 0.5))
    return np.where((x <= 0) & (r == 0), np.nan, np.where(below, reflected, positive))


def expn(n: Array, x: Array) -> Array:
    """Return the exponential integral of an order that is cut to an integer, or NaN."""
    valid = (n >= 0) & (n < 2.0**31)
    return np.where(valid, scipy.special.expn(np.where(valid, n, 0).astype(np.intp), x), np.nan)


def lgamma(x: Array) -> Array:
    """Return log |Gamma(x)|; infinite at minus infinity, as in C, and finite next to 0."""
    tiny = np.abs(x) < 1e-300
    inner = np.where(tiny, 1.0, x)
    value = np.where(tiny, -np.log(np.where(tiny, np.abs(x), 1.0)), scipy.special.gammaln(inner))
    return np.where(x == -math.inf, math.inf, value)


def bessel_i0e(x: Array) -> Array:
    """Return exp(-|x|) I_0(x)."""
    a = np.abs(x)
    near, far = np.minimum(a, tables.BESSEL_NEAR), np.maximum(a, tables.BESSEL_NEAR)
    tail = _piece(1 / far, tables.I0E_FAR) / np.sqrt(far)
    return np.where(a <= tables.BESSEL_NEAR, _piece(near, tables.I0E), tail)


def bessel_i1e(x: Array) -> Array:
    """Return exp(-|x|) I_1(x)."""
    a = np.abs(x)
    near, far = np.minimum(a, tables.BESSEL_NEAR), np.maximum(a, tables.BESSEL_NEAR)
    tail = _piece(1 / far, tables.I1E_FAR) / np.sqrt(far)
    return np.copysign(np.where(a <= tables.BESSEL_NEAR, near * _piece(near, tables.I1E), tail), x)


def expi(x: Array) -> Array:
    """Return the exponential integral Ei(x)."""
    positive = np.where(x > 0, x, 1.0)
    root = np.exp(0.5 * positive)
    near = np.minimum(positive, 8.0)
    series = np.log(near) + np.euler_gamma + near * root * _piece(near, tables.EXPI_NEAR)
    inverse = 1 / np.maximum(positive, 8.0)
    middle = _piece(np.maximum(inverse, 1 / 20), tables.EXPI_MIDDLE)
    scaled = np.where(positive < 20, middle, _piece(inverse, tables.EXPI_FAR))
    far = root * (root * (inverse * scaled))
    above = np.where(x < 8, series, np.where(x < math.inf, far, x))
    return np.where(x > 0, above, scipy.special.expi(np.where(x > 0, -1.0, x)))


def dawsn(x: Array) -> Array:
    """Return Dawson's integral."""
    a = np.abs(x)
    near, z = np.minimum(a, 3.0), 1 / np.square(np.maximum(a, 3.0))
    middle = _piece(np.maximum(z, 1 / 36), tables.DAWSN_MIDDLE)
    scaled: Array = np.where(a < 6, middle, _piece(z, tables.DAWSN_FAR))
    tail = 0.5 * scaled / np.maximum(a, 3.0)
    return np.copysign(np.where(a < 3, near * _piece(near * near, tables.DAWSN_NEAR), tail), x)
