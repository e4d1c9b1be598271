"""Special functions as element-wise ops: one row each.

Values are SciPy's in float64, or those of `special_numeric` where SciPy has none; other floating
types are computed in float64 and rounded once.  Derivatives are JAX's, completed where its formulas
give 0 times infinity: a density x^(a-1) ... at x = 0 has its limit.  An argument for which JAX
raises has no derivative here either, and says so when it is asked for one.  Formulas are those of
the NIST Digital Library of Mathematical Functions (DLMF).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.special

from stax.errors import MissingRule
from stax.operators import special_numeric as numeric
from stax.operators.elementwise import (
    Partial,
    abs_,
    add,
    and_,
    cos,
    div,
    elementwise,
    eq,
    erf,
    exp,
    ge,
    gt,
    like,
    log,
    log1p,
    lt,
    mul,
    neg,
    or_,
    power,
    select,
    sign,
    sin,
    sqrt,
    sub,
)
from stax.types import is_float

Function = Callable[..., Any]


def _in_float64(function: Function) -> Function:
    """Compute in float64 and round once to the dtype of the operands, without SciPy's warnings."""

    def evaluate(*arrays: np.ndarray) -> Any:
        with scipy.special.errstate(all="ignore"):
            result = function(*(np.asarray(a).astype(np.float64) for a in arrays))
        return np.asarray(result).astype(arrays[0].dtype)

    return evaluate


def row(name: str, function: Function, *partials: Partial | None) -> Function:
    """Add a row of floating types."""
    return elementwise(name, _in_float64(function), *partials, accepts=is_float)


def _odd(function: Function) -> Function:
    """Keep the sign of zero, which SciPy's odd functions lose."""
    return lambda x: np.where(x == 0, x, function(x))


def fixed(name: str, argument: str) -> Partial:
    """Make the partial of an argument that has no derivative, as in JAX."""

    def partial(*_: Any) -> Any:
        raise MissingRule(
            f"{name} has no derivative by {argument}.",
            advice=f"Hold {argument} fixed: differentiate by the other arguments only.",
        )

    return partial


# --- derivatives that take more than a line ---


def _scaled(c: Any, logarithm: Function, x: Any) -> Any:
    """Return c * logarithm(x), and 0 where `c` is 0 and the logarithm infinite.

    There it is a root, which is 0 and has the infinite slope by `c` that the product has.
    """
    found = logarithm(x)
    edge = and_(eq(c, like(c, 0)), eq(abs_(found), like(c, math.inf)))
    root = mul(sign(found), sqrt(select(edge, c, like(c, 1))))
    return select(edge, root, mul(c, logarithm(select(edge, like(x, 0.5), x))))


def _gamma_density(a: Any, x: Any) -> Any:
    """Return x^(a-1) e^-x / Gamma(a)."""
    return exp(sub(sub(_scaled(sub(a, like(a, 1)), log, x), x), lgamma(a)))


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    """Return x^(a-1) (1-x)^(b-1) / B(a, b)."""
    one = like(x, 1)
    upper = _scaled(sub(b, one), lambda y: log1p(neg(y)), x)
    return exp(sub(add(upper, _scaled(sub(a, one), log, x)), log_beta(a, b)))


def log_beta(a: Any, b: Any) -> Any:
    """Return log |B(a, b)|, by Stirling's series where `a` or `b` is large.

    For b >= 8 the difference log Gamma(b) - log Gamma(a + b) is formed without cancellation as in
    A. R. DiDonato and A. H. Morris, Algorithm 708, ACM TOMS 18 (1992), for a <= b.
    """
    swapped = gt(a, b)
    a, b = select(swapped, b, a), select(swapped, a, b)
    large = ge(b, like(b, 8))
    direct = add(lgamma(a), sub(lgamma(b), lgamma(add(a, b))))
    return select(large, add(lgamma(a), _gamma_quotient(a, select(large, b, like(b, 8)))), direct)


# Stirling's series: log Gamma(z) = (z - 1/2) log z - z + log(2 pi) / 2 + P(1 / z^2) / z.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)


def _stirling(z: Any) -> Any:
    inverse = div(like(z, 1), z)
    return mul(_polynomial(mul(inverse, inverse), _STIRLING), inverse)


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    total = like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = add(mul(total, x), like(x, coefficient))
    return total


def _gamma_quotient(a: Any, b: Any) -> Any:
    """Return log Gamma(b) - log Gamma(a + b) for b >= 8."""
    whole = add(a, b)
    main = mul(sub(whole, like(a, 0.5)), log1p(div(a, b)))
    rest = sub(_stirling(b), _stirling(whole))
    return sub(rest, add(main, mul(a, sub(log(b), like(b, 1)))))


def bessel_i0(x: Any) -> Any:
    """Return the modified Bessel function of order 0."""
    return _unscaled(x, bessel_i0e(x), like(x, 1))


def bessel_i1(x: Any) -> Any:
    """Return the modified Bessel function of order 1."""
    return _unscaled(x, bessel_i1e(x), sign(x))


def _unscaled(x: Any, scaled: Any, signs: Any) -> Any:
    """Return exp(|x|) times `scaled`, in two steps, for the exponential may overflow sooner.

    Where the product overflows it is the exponential with its sign, whose slopes are infinite too.
    |x| is x sign(x), whose derivative at 0 is 0: that of order 0 is then 0 too, where JAX has 1.
    """
    size = mul(x, sign(x))
    root = exp(mul(size, like(x, 0.5)))
    product = mul(root, mul(root, scaled))
    infinite = like(x, math.inf)
    over = or_(eq(size, infinite), eq(abs_(product), infinite))
    return select(over, mul(signs, exp(size)), product)


def _i0e_slope(t: Any, y: Any, x: Any) -> Any:
    return mul(t, sub(bessel_i1e(x), mul(sign(x), y)))


def _i1e_slope(t: Any, y: Any, x: Any) -> Any:
    # i1e(x) / x tends to 1/2 at 0.
    zero = eq(x, like(x, 0))
    safe = select(zero, like(x, 1), x)
    slope = sub(bessel_i0e(safe), mul(y, add(sign(safe), div(like(x, 1), safe))))
    return mul(t, select(zero, like(x, 0.5), slope))


# Quotients that are 0 / 0 at one point are series near it, for the derivatives of every order.


def _spence_slope(t: Any, y: Any, x: Any) -> Any:
    """Return log(x) / (1 - x), times t."""
    u = sub(x, like(x, 1))
    near = lt(abs_(u), like(u, 0.01))
    series = _polynomial(u, [(-1) ** (k + 1) / (k + 1) for k in range(9)])
    return mul(t, select(near, series, div(log(x), neg(select(near, like(u, 1), u)))))


def _sinc(t: Any, y: Any, x: Any) -> Any:
    """Return sin(x) / x, times t."""
    near = lt(abs_(x), like(x, 0.25))
    series = _polynomial(mul(x, x), [(-1) ** k / math.factorial(2 * k + 1) for k in range(6)])
    return mul(t, select(near, series, div(sin(x), select(near, like(x, 1), x))))


def _expn_slope(t: Any, y: Any, n: Any, x: Any) -> Any:
    # E_-1 has a closed form; SciPy has orders from 0 on.
    one, first = like(n, 1), lt(n, like(n, 1))
    inverse = div(one, x)
    lowest = mul(mul(exp(neg(x)), inverse), add(one, inverse))
    return neg(mul(t, select(first, lowest, expn(select(first, one, sub(n, one)), x))))


def _half_square(x: Any) -> Any:
    return mul(mul(x, x), like(x, math.pi / 2))


def _owens_by_h(t: Any, y: Any, h: Any, a: Any) -> Any:
    density = mul(exp(mul(mul(h, h), like(h, -0.5))), like(h, -0.5 / math.sqrt(2 * math.pi)))
    return mul(t, mul(density, erf(mul(mul(a, h), like(h, math.sqrt(0.5))))))


def _owens_by_a(t: Any, y: Any, h: Any, a: Any) -> Any:
    scale = add(mul(a, a), like(a, 1))
    density = exp(mul(mul(mul(h, h), scale), like(h, -0.5)))
    return mul(t, div(density, mul(scale, like(a, 2 * math.pi))))


def _zeta_by_s(t: Any, y: Any, s: Any, q: Any) -> Any:
    """Differentiate the Euler-Maclaurin formula by the exponent (DLMF 25.11.5)."""
    total, count = like(s, 0), 10
    for k in range(count):
        base = add(q, like(q, k))
        total = sub(total, mul(log(base), power(base, neg(s))))
    w = add(q, like(q, count))
    logarithm, s_1 = log(w), sub(s, like(s, 1))
    tail = power(w, neg(s))
    whole = div(mul(tail, w), s_1)
    total = sub(total, mul(whole, add(logarithm, div(like(s, 1), s_1))))
    total = sub(total, mul(mul(tail, logarithm), like(s, 0.5)))
    # B_2j / (2j)! s (s + 1) ... (s + 2j - 2) w^(-s - 2j + 1), and its logarithmic derivative.
    term, slope = div(mul(tail, s), w), sub(div(like(s, 1), s), logarithm)
    for j in range(1, 9):
        coefficient = float(scipy.special.bernoulli(2 * j)[-1]) / math.factorial(2 * j)
        total = add(total, mul(mul(term, like(s, coefficient)), slope))
        for step in (2 * j - 1, 2 * j):
            factor = add(s, like(s, step))
            term, slope = div(mul(term, factor), w), add(slope, div(like(s, 1), factor))
    return mul(t, total)


def _hyp1f1_by_a(t: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    """By Kummer's transformation where x < 0 (DLMF 13.2.39), so that no terms cancel."""
    negative = lt(x, like(x, 0))
    scale = select(negative, neg(exp(x)), like(x, 1))
    return mul(t, mul(scale, hyp1f1_grad_a(select(negative, sub(b, a), a), b, abs_(x))))


def _hyp1f1_by_b(t: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    negative = lt(x, like(x, 0))
    first = select(negative, sub(b, a), a)
    slope = hyp1f1_grad_b(first, b, abs_(x))
    through = select(negative, hyp1f1_grad_a(first, b, abs_(x)), like(x, 0))
    return mul(t, mul(select(negative, exp(x), like(x, 1)), add(slope, through)))


def _hyp1f1_by_x(t: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    one = like(x, 1)
    return mul(t, mul(div(a, b), hyp1f1(add(a, one), add(b, one), x)))


def _hyp2f1_by_x(t: Any, y: Any, a: Any, b: Any, c: Any, x: Any) -> Any:
    one = like(x, 1)
    return mul(t, mul(div(mul(a, b), c), hyp2f1(add(a, one), add(b, one), add(c, one), x)))


def _binom_slope(upper: Any, n: Any, k: Any, y: Any) -> Any:
    return mul(y, sub(upper, digamma(add(sub(n, k), like(n, 1)))))


def _bessel_slope(t: Any, y: Any, v: Any, x: Any) -> Any:
    one = like(v, 1)
    return mul(t, mul(sub(bessel_j(sub(v, one), x), bessel_j(add(v, one), x)), like(x, 0.5)))


def _series_slope(rows: str, by: tuple[str, int]) -> Function:
    """The numeric derivative of 1F1 or 2F1 by a parameter."""
    count = 1 if rows == "1f1" else 2

    def evaluate(*arrays: np.ndarray) -> Any:
        *parameters, x = arrays
        top, bottom = tuple(parameters[:count]), tuple(parameters[count:])
        return numeric.hypergeometric_slope(top, bottom, by, x)

    return evaluate


# --- the table ---
# fmt: off

erf_inv = row("erf_inv", _odd(scipy.special.erfinv), lambda t, y, x: mul(like(x, math.sqrt(math.pi) / 2), mul(t, exp(mul(y, y)))))
ndtri   = row("ndtri",   scipy.special.ndtri,  lambda t, y, p: mul(like(p, math.sqrt(2 * math.pi)), mul(t, exp(mul(mul(y, y), like(p, 0.5))))))
erfcx   = row("erfcx",   scipy.special.erfcx,  lambda t, y, x: mul(t, sub(mul(like(x, 2), mul(x, y)), like(x, 2 / math.sqrt(math.pi)))))
dawsn   = row("dawsn",   numeric.dawsn,  lambda t, y, x: mul(t, sub(like(x, 1), mul(like(x, 2), mul(x, y)))))
owens_t = row("owens_t", scipy.special.owens_t, _owens_by_h, _owens_by_a)

lgamma    = row("lgamma",    numeric.lgamma, lambda t, y, x: mul(t, digamma(x)))
gamma     = row("gamma",     scipy.special.gamma,   lambda t, y, x: mul(t, mul(y, digamma(x))))
digamma: Function = row("digamma",   numeric.digamma,       lambda t, y, x: mul(t, polygamma(like(x, 1), x)))
polygamma: Function = row("polygamma", numeric.polygamma,     fixed("polygamma", "its order"), lambda t, y, n, x: mul(t, polygamma(add(n, like(n, 1)), x)))
zeta: Function = row("zeta",      numeric.zeta,          _zeta_by_s, lambda t, y, s, q: neg(mul(t, mul(s, zeta(add(s, like(s, 1)), q)))))
beta      = row("beta",      scipy.special.beta,    lambda t, y, a, b: mul(t, mul(y, sub(digamma(a), digamma(add(a, b))))), lambda t, y, a, b: mul(t, mul(y, sub(digamma(b), digamma(add(a, b))))))
binom     = row("binom",     scipy.special.binom,   lambda t, y, n, k: mul(t, _binom_slope(digamma(add(n, like(n, 1))), n, k, y)), lambda t, y, n, k: neg(mul(t, _binom_slope(digamma(add(k, like(k, 1))), n, k, y))))
poch      = row("poch",      scipy.special.poch,    lambda t, y, z, m: mul(t, mul(y, sub(digamma(add(z, m)), digamma(z)))), lambda t, y, z, m: mul(t, mul(y, digamma(add(z, m)))))

igamma        = row("igamma",        scipy.special.gammainc,  lambda t, y, a, x: mul(t, igamma_grad_a(a, x)), lambda t, y, a, x: mul(t, _gamma_density(a, x)))
igammac       = row("igammac",       scipy.special.gammaincc, lambda t, y, a, x: neg(mul(t, igamma_grad_a(a, x))), lambda t, y, a, x: neg(mul(t, _gamma_density(a, x))))
igamma_grad_a: Function = row("igamma_grad_a", numeric.igamma_grad_a,   fixed("igamma_grad_a", "a"), lambda t, y, a, x: mul(t, mul(_gamma_density(a, x), sub(log(x), digamma(a)))))
random_gamma_grad = row("random_gamma_grad", numeric.random_gamma_grad, fixed("random_gamma_grad", "a"), fixed("random_gamma_grad", "the sample"))
betainc       = row("betainc",       scipy.special.betainc,   fixed("betainc", "a"), fixed("betainc", "b"), lambda t, y, a, b, x: mul(t, _beta_density(a, b, x)))

bessel_i0e = row("bessel_i0e", numeric.bessel_i0e, _i0e_slope)
bessel_i1e = row("bessel_i1e", numeric.bessel_i1e, _i1e_slope)
bessel_j   = row("bessel_j",   scipy.special.jv,  fixed("bessel_j", "its order"), _bessel_slope)

expi     = row("expi",     numeric.expi, lambda t, y, x: mul(t, div(exp(x), x)))
expn     = row("expn",     numeric.expn, fixed("expn", "its order"), _expn_slope)
sinint   = row("sinint",   _odd(lambda x: scipy.special.sici(x)[0]), _sinc)
cosint   = row("cosint",   lambda x: scipy.special.sici(x)[1], lambda t, y, x: mul(t, div(cos(x), x)))
fresnel_s = row("fresnel_s", _odd(lambda x: scipy.special.fresnel(x)[0]), lambda t, y, x: mul(t, sin(_half_square(x))))
fresnel_c = row("fresnel_c", _odd(lambda x: scipy.special.fresnel(x)[1]), lambda t, y, x: mul(t, cos(_half_square(x))))
spence   = row("spence",   scipy.special.spence, _spence_slope)

hyp1f1 = row("hyp1f1", scipy.special.hyp1f1, _hyp1f1_by_a, _hyp1f1_by_b, _hyp1f1_by_x)
hyp2f1 = row("hyp2f1", scipy.special.hyp2f1, lambda t, y, a, b, c, x: mul(t, hyp2f1_grad_a(a, b, c, x)), lambda t, y, a, b, c, x: mul(t, hyp2f1_grad_a(b, a, c, x)), lambda t, y, a, b, c, x: mul(t, hyp2f1_grad_c(a, b, c, x)), _hyp2f1_by_x)
hyp1f1_grad_a = row("hyp1f1_grad_a", _series_slope("1f1", ("numerator", 0)),   *[fixed("hyp1f1_grad_a", "any argument")] * 3)
hyp1f1_grad_b = row("hyp1f1_grad_b", _series_slope("1f1", ("denominator", 0)), *[fixed("hyp1f1_grad_b", "any argument")] * 3)
hyp2f1_grad_a: Function = row("hyp2f1_grad_a", _series_slope("2f1", ("numerator", 0)),   *[fixed("hyp2f1_grad_a", "any argument")] * 4)
hyp2f1_grad_c: Function = row("hyp2f1_grad_c", _series_slope("2f1", ("denominator", 0)), *[fixed("hyp2f1_grad_c", "any argument")] * 4)

# fmt: on
