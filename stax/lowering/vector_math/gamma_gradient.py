"""Derivatives of the incomplete gamma function and of gamma variates by the shape.

The formulas are those of `operators.special_numeric`, whose tables are used here: an integral by a
Gauss rule for x > 1, the differentiated power series for x <= 1.  Everything is in double.
"""

from __future__ import annotations

import math

from stax.lowering.vector_math.emit import Emitter, Value
from stax.lowering.vector_math.exponential import limit
from stax.lowering.vector_math.external import external
from stax.operators import special_numeric as numeric

INFINITY = math.inf
_NODES, _WEIGHTS = zip(*numeric.GAUSS_RULE, strict=True)
_DEPTH = numeric.DEPTH


def _exp_remainder(k: Emitter, v: Value) -> Value:
    """Return e^v - 1 - v."""
    near = k.absolute(v) < 0.5
    u = k.select(near, v, 0.0)
    far = k.call("expm1", v) - v
    return k.select(near, u * u * k.polynomial(u, numeric.EXP_REMAINDER), far)


def _log_less_digamma(k: Emitter, a: Value) -> Value:
    inverse = 1.0 / a
    square = inverse * inverse
    series = k.fma(square, k.polynomial(square, numeric.LOG_LESS_DIGAMMA), inverse * 0.5)
    return k.select(a >= 10.0, series, k.call("log", a) - k.call("digamma", a))


def _by_quadrature(k: Emitter, a: Value, x: Value) -> Value:
    difference = x - a
    distance, above = k.absolute(difference), difference >= 0.0
    close = distance < a * 0.5
    ratio = k.select(close, k.call("log1p", difference / a), k.call("log", x / a))
    gap = ratio + _log_less_digamma(k, a)
    end = _end(k, a, x, distance)
    signed_gap = k.select(above, gap, -gap)
    sign = k.select_constant(above, "double", 1.0, -1.0)

    def step(i: str, total: Value) -> tuple[Value]:
        v = end * k.table("gauss.nodes", _NODES, i)
        exponent = -distance * v - x * _exp_remainder(k, sign * v)
        term = k.call("exp", exponent) * (signed_gap + v)
        return (k.fma(k.table("gauss.weights", _WEIGHTS, i), term, total),)

    (total,) = k.repeat(len(_NODES), [k.constant(0.0, "double")], step)
    return x * end * total


def _end(k: Emitter, a: Value, x: Value, distance: Value) -> Value:
    """Return where the exponent of the integrand is below -_DEPTH."""
    q = distance * 2.0 - _DEPTH
    root = k.sqrt(k.fma(q, q, a * (8.0 * _DEPTH)))
    low = k.select(q > 0.0, (4.0 * _DEPTH) / (q + root), (root - q) / (a + a))
    high = (2.0 * _DEPTH) / (distance + k.sqrt(k.fma(distance, distance, x * (2.0 * _DEPTH))))
    steep = k.call("log1p", _DEPTH / x) + 1.0
    return k.select(x >= a, k.select(high < steep, high, steep), low)


def _by_series(k: Emitter, a: Value, x: Value) -> Value:
    one, zero = k.constant(1.0, "double"), k.constant(0.0, "double")

    def step(i: str, *state: Value) -> tuple[Value, ...]:
        n, term, harmonic, terms, products = state
        inverse = 1.0 / (a + n)
        term = term * (x * inverse)
        harmonic = harmonic + inverse
        return n + 1.0, term, harmonic, terms + term, k.fma(term, harmonic, products)

    start = (one, one, zero, one, zero)
    _, _, _, terms, products = k.repeat(numeric.SERIES_TERMS, start, step)
    gap = k.call("digamma", a + 1.0) - k.call("log", x)
    return x / a * k.fma(terms, gap, products)


def gamma_slope(k: Emitter, a: Value, x: Value) -> Value:
    """Return the derivative of a gamma variate `x` by its shape `a`, both double."""
    large = x > 1.0
    zero = k.constant(0.0, "double")
    y = k.when(large, lambda: _by_quadrature(k, a, k.select(large, x, 2.0)), zero)
    y = k.when(~large, lambda: _by_series(k, a, k.select(large, 1.0, x)), y)
    y = k.select(x.equals(0.0), 0.0, k.select(x.equals(INFINITY), INFINITY, y))
    valid = (a > 0.0) & (a < INFINITY) & (x >= 0.0)
    infinite_shape = a.equals(INFINITY) & (x.equals(0.0) | x.equals(INFINITY))
    return k.select(valid | infinite_shape, y, math.nan)


def random_gamma_grad(k: Emitter, a: Value, x: Value) -> Value:
    return k.narrow(k.call("gamma_slope", k.widen(a), k.widen(x)))


def _log1p_remainder(k: Emitter, m: Value) -> Value:
    """Return m - log1p(m)."""
    near = k.absolute(m) < 0.3
    u = k.select(near, m, 0.0)
    s = u / (u + 2.0)
    z = s * s
    series = k.polynomial(z, tuple(1 / (2 * i + 3) for i in range(12)))
    return k.select(near, s * u - s * 2.0 * z * series, m - k.call("log1p", m))


def _density(k: Emitter, a: Value, x: Value) -> Value:
    """Return x^(a-1) e^-x / Gamma(a) for positive arguments."""
    large = a > 20.0
    inverse = 1.0 / a
    z = inverse * inverse
    rest = k.polynomial(z, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)) * inverse
    exponent = -a * _log1p_remainder(k, (x - a) / a) - rest
    scale = k.sqrt(a * (0.5 / math.pi))
    small, tiny = limit(k, a, 20.0), a < 1e-5
    plain = (small - 1.0) * k.call("log", x) - x
    # Next to a = 0 Gamma(a) overflows.
    plain = plain - k.when(tiny, lambda: k.call("lgamma", small), k.constant(0.0, "double"))
    power = k.call("exp", k.select(large, exponent, plain))
    divisor = k.select(large, x, k.select(tiny, 1.0, external(k, "gamma", small)))
    return power * k.select(large, scale, 1.0) / divisor


def igamma_grad_a(k: Emitter, a: Value, x: Value) -> Value:
    a, x = k.widen(a), k.widen(x)
    a = k.select((a > 0.0) & (a < numeric.LEAST_SHAPE), numeric.LEAST_SHAPE, a)
    density, slope = _density(k, a, x), k.call("gamma_slope", a, x)
    end = (x.equals(0.0) | x.equals(INFINITY)) & (a > 0.0)
    vanishes = end | (density.equals(0.0) & (a > 0.0) & (x > 0.0))
    return k.narrow(k.select(vanishes, 0.0, -slope * density))
