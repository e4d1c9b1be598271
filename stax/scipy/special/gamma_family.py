"""The gamma function and what is built on it: beta, incomplete ones, zeta, binomials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.special

from stax import types
from stax.array import asarray
from stax.errors import ArgumentValueError, UnsupportedError
from stax.numpy.arguments import array, inexact, inexact_operands, static_int
from stax.operators import elementwise as ops, special, special_complex
from stax.operators.elementwise import convert, like, select
from stax.scipy.special.operands import strong


def gammaln(x: Any) -> Any:
    """Return log |Gamma(x)|."""
    return special.lgamma(inexact("gammaln", x))


def loggamma(x: Any) -> Any:
    """Return the logarithm of Gamma(x), which is NaN for real `x` that are not positive.

    That of a complex number has its branch cut along the negative real axis, as SciPy's.
    """
    x = inexact("loggamma", x)
    if types.is_complex(x.dtype):
        return special_complex.loggamma(x)
    positive = ops.gt(x, like(x, 0))
    return select(positive, special.lgamma(select(positive, x, like(x, 1))), like(x, math.nan))


def gamma(x: Any) -> Any:
    """Return Gamma(x): of the sign of a zero at 0, NaN at negative integers.

    JAX takes exp of its logarithm, which loses digits; here it is right to rounding.
    """
    x = strong("gamma", x)
    if types.is_complex(x.dtype):
        wide = special_complex.loggamma(convert(x, types.complex128))
        return convert(ops.exp(wide), x.dtype)
    return special.gamma(x)


def gammasgn(x: Any) -> Any:
    """Return the sign of Gamma(x), and NaN at negative integers."""
    x = strong("gammasgn", x)
    whole, zero = ops.floor(x), like(x, 0)
    half = ops.mul(whole, like(x, 0.5))
    odd = ops.ne(ops.floor(half), half)
    reciprocal = ops.div(like(x, 1), x)  # tells the zeros apart
    negative = ops.or_(ops.and_(ops.lt(x, zero), odd), ops.eq(reciprocal, like(x, -math.inf)))
    pole = ops.or_(ops.and_(ops.lt(x, zero), ops.eq(x, whole)), ops.ne(x, x))
    return select(pole, like(x, math.nan), select(negative, like(x, -1), like(x, 1)))


def digamma(x: Any) -> Any:
    """Return the derivative of log Gamma(x), which is NaN at its poles."""
    return special.digamma(inexact("digamma", x))


def polygamma(n: Any, x: Any) -> Any:
    """Return the derivative of order `n`, of an integer dtype, of `digamma` at `x`.

    Raises ArgumentValueError for an `n` of another dtype.
    """
    n = array("polygamma", n)
    if not types.is_integer(n.dtype):
        raise ArgumentValueError(
            f"polygamma: the order is an integer, not {n.dtype}.",
            advice="Convert it first: n.astype(int).",
        )
    return special.polygamma(*inexact_operands("polygamma", n, x))


def zeta(x: Any, q: Any = None) -> Any:
    """Return the Hurwitz zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ...

    Raises UnsupportedError without `q`, as JAX does; the Riemann zeta function has q = 1.
    """
    if q is None:
        raise UnsupportedError(
            "zeta: the Riemann zeta function is not implemented.",
            advice="For x > 1 it is zeta(x, 1).",
        )
    return special.zeta(*inexact_operands("zeta", x, q))


def gammainc(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function P(a, x)."""
    return special.igamma(*inexact_operands("gammainc", a, x))


def gammaincc(a: Any, x: Any) -> Any:
    """Return the regularised upper incomplete gamma function Q(a, x)."""
    return special.igammac(*inexact_operands("gammaincc", a, x))


def multigammaln(a: Any, d: Any) -> Any:
    """Return the logarithm of the multivariate gamma function of dimension `d`, an integer."""
    d = static_int("multigammaln", "the dimension", d)
    a = strong("multigammaln", a)
    total = like(a, 0.25 * d * (d - 1) * math.log(math.pi))
    for j in range(d):
        total = ops.add(total, special.lgamma(ops.sub(a, like(a, 0.5 * j))))
    return total


def factorial(n: Any, exact: bool = False) -> Any:
    """Return Gamma(n + 1), and 0 for negative `n`; raises UnsupportedError for exact integers.

    Types narrower than float64 are computed in it, for n + 1 would lose digits.
    """
    if exact:
        raise UnsupportedError(
            "factorial: exact=True is not supported.", advice="Use math.factorial for integers."
        )
    n = inexact("factorial", n)
    negative = ops.lt(n, like(n, 0))
    wide = convert(select(negative, like(n, 0), n), types.float64)
    value = special.gamma(ops.add(wide, like(wide, 1)))
    return select(negative, like(n, 0), convert(value, n.dtype, n.weak_type))


def comb(N: Any, k: Any, *, repetition: bool = False) -> Any:
    """Return how many ways there are to choose `k` of `N` things: 0 unless 0 <= k <= N.

    With `repetition` a thing may be chosen more than once.
    """
    N, k = inexact_operands("comb", N, k)
    zero, one = like(k, 0), like(k, 1)
    if repetition:
        none = ops.and_(ops.eq(k, zero), ops.ge(N, zero))
        return select(none, one, comb(ops.sub(ops.add(N, k), one), k))
    valid = ops.and_(ops.le(k, N), ops.and_(ops.ge(N, zero), ops.ge(k, zero)))
    chosen = special.binom(select(valid, N, zero), select(valid, k, zero))
    return select(valid, chosen, zero)


def poch(z: Any, m: Any) -> Any:
    """Return the Pochhammer symbol Gamma(z + m) / Gamma(z)."""
    return special.poch(*strong("poch", z, m))


def beta(a: Any, b: Any) -> Any:
    """Return Gamma(a) Gamma(b) / Gamma(a + b)."""
    return special.beta(*strong("beta", a, b))


def betaln(a: Any, b: Any) -> Any:
    """Return log |B(a, b)|; types narrower than float64 are computed in it and rounded once."""
    a, b = inexact_operands("betaln", a, b)
    wide = special.log_beta(convert(a, types.float64), convert(b, types.float64))
    return convert(wide, a.dtype, a.weak_type and b.weak_type)


def betainc(a: Any, b: Any, x: Any) -> Any:
    """Return the regularised incomplete beta function I_x(a, b), of which `x` has a derivative."""
    return special.betainc(*inexact_operands("betainc", a, b, x))


def bernoulli(n: int) -> Any:
    """Return the Bernoulli numbers B_0 to B_n, with B_1 = -1/2; `n` is a non-negative integer."""
    count = static_int("bernoulli", "n", n)
    if count < 0:
        raise ArgumentValueError(
            f"bernoulli: n is not negative, got {count}.", advice="Ask for B_0 to B_n."
        )
    with np.errstate(over="ignore"):
        return asarray(scipy.special.bernoulli(count)[: count + 1].astype(types.float_dtype()))
