"""The gamma distribution and those made of it.

It is drawn by rejection: proposals are made until one is accepted, for each element with a key of
its own.  The algorithm and the order in which it uses bits are JAX's, so the same proposals are
accepted.  Derivatives flow through the parameters, see `operators.random.GammaSample`.

G. Marsaglia, W. W. Tsang, "A simple method for generating gamma variables", 2000.
"""

from __future__ import annotations

from typing import Any

from stax import types
from stax.errors import ShapeError
from stax.lax.control_flow import while_loop
from stax.numpy import reductions
from stax.numpy.arguments import array, static_int
from stax.numpy.elementwise import where
from stax.operators.arithmetic import maximum, power
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import abs_, convert, exp, like, log, log1p, sqrt
from stax.operators.gradient import stop_gradient
from stax.operators.random import gamma_sample, random_split
from stax.operators.reshape import expand_dims
from stax.random.arguments import float_type, parameters, sample_shape
from stax.random.continuous import exponential
from stax.random.keys import one_key
from stax.random.normal import draw_normal
from stax.random.uniform import draw_uniform, rademacher
from stax.scipy.special import softmax_over
from stax.trace import full
from stax.types import Shape, canonical_shape


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the gamma distribution of shape parameter `a` and scale 1."""
    return _checked("gamma", key, a, shape, dtype, False)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return logarithms of numbers as `gamma` draws them, without underflow for small `a`."""
    return _checked("loggamma", key, a, shape, dtype, True)


def _checked(name: str, key: Any, a: Any, shape: Any, dtype: Any, log_space: bool) -> Any:
    key, dtype, a = one_key(name, key), float_type(name, dtype), array(name, a)
    wanted = sample_shape(name, shape, [a.shape])
    return _drawn(key, convert(a, dtype), wanted, log_space)


def _drawn(key: Any, a: Any, shape: Shape, log_space: bool) -> Any:
    """Return gamma numbers, each with a key of its own."""
    alpha = broadcast_to(a, shape)
    found = _by_rejection(random_split(key, shape), stop_gradient(alpha), log_space)
    return gamma_sample(found, alpha, log_space)


def _by_rejection(keys: Any, alpha: Any, log_space: bool) -> Any:
    """Return gamma numbers, or their logarithms; below 1, alpha is raised by 1 and made up for."""
    is_large = alpha >= 1
    d = where(is_large, alpha, alpha + 1) - 1 / 3
    for_cubes, for_boost = _new_keys(keys, 2)
    cubes = _accepted_cubes(for_cubes, d, (1 / 3) / sqrt(d))
    u = draw_uniform("gamma", for_boost, (), alpha.dtype)
    if log_space:
        logarithm = log1p(-u)
        boost = where(is_large | (logarithm == 0), 0, logarithm * (1 / alpha))
        return log(d) + log(cubes) + boost
    return d * cubes * where(is_large, 1, power(1 - u, 1 / alpha))


def _new_keys(keys: Any, count: int) -> list[Any]:
    """Return `count` arrays of new keys, made of each key."""
    found = random_split(keys, (count,))
    return [found[..., i] for i in range(count)]


def _accepted_cubes(keys: Any, d: Any, c: Any) -> Any:
    """Return for each key the first cube of a normal number, moved and scaled, that is accepted."""

    def propose(carry: Any) -> Any:
        keys, found, is_open = carry
        keys, for_normal, for_uniform = _new_keys(keys, 3)
        squares, cubes = _cubes(for_normal, c)
        u = draw_uniform("gamma", for_uniform, (), d.dtype)
        limit = squares * 0.5 + d * (1 - cubes + log(cubes))
        rejected = (u >= 1 - 0.0331 * (squares * squares)) & (log(u) >= limit)
        return keys, where(is_open, cubes, found), is_open & rejected

    start = keys, like(d, 1), full(d.shape, True, types.bool_)
    return while_loop(lambda carry: carry[2].any(), propose, start)[1]


def _cubes(keys: Any, c: Any) -> tuple[Any, Any]:
    """Return x squared and (1 + c x) cubed, of the first normal x for which that is positive."""

    def propose(carry: Any) -> Any:
        keys, x, v = carry
        keys, now = _new_keys(keys, 2)
        proposed = draw_normal(now, (), c.dtype)
        is_open = v <= 0
        return keys, where(is_open, proposed, x), where(is_open, 1 + proposed * c, v)

    start = keys, like(c, 0), like(c, -1)
    _, x, v = while_loop(lambda carry: (carry[2] <= 0).any(), propose, start)
    return x * x, v * v * v


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the beta distribution of parameters `a` and `b`."""
    key, dtype = one_key("beta", key), float_type("beta", dtype)
    wanted, shapes = parameters("beta", shape, dtype, a, b)
    keys = random_split(key, (2,))
    first, second = (_drawn(k, x, wanted, True) for k, x in zip(keys, shapes, strict=True))
    largest = maximum(first, second)
    first, second = exp(first - largest), exp(second - largest)
    return first / (first + second)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return vectors of the Dirichlet distribution; `alpha` (..., n) are its parameters.

    `shape` is the result's without its last axis.
    """
    key, dtype, alpha = one_key("dirichlet", key), float_type("dirichlet", dtype), array("", alpha)
    if not alpha.ndim:
        raise ShapeError(
            f"dirichlet: {alpha.type} has no axis of parameters.", advice="Pass a vector of them."
        )
    outer = sample_shape("dirichlet", shape, [alpha.shape[:-1]])
    drawn = _drawn(key, convert(alpha, dtype), (*outer, alpha.shape[-1]), True)
    return softmax_over(drawn, (drawn.ndim - 1,), None)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the chi-square distribution of `df` degrees of freedom."""
    key, dtype = one_key("chisquare", key), float_type("chisquare", dtype)
    wanted, (df,) = parameters("chisquare", shape, dtype, df)
    return exp(_drawn(key, df / 2, wanted, True)) * 2


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the F distribution: a quotient of two chi-square numbers over `df`."""
    key, dtype = one_key("f", key), float_type("f", dtype)
    wanted, (above, below) = parameters("f", shape, dtype, dfnum, dfden)
    for_below, for_above = random_split(key, (2,))
    numerator = chisquare(for_above, above, wanted, dtype) / above
    return numerator / (chisquare(for_below, below, wanted, dtype) / below)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of Student's t distribution of `df` degrees of freedom."""
    key, dtype = one_key("t", key), float_type("t", dtype)
    wanted, (df,) = parameters("t", shape, dtype, df)
    for_normal, for_gamma = random_split(key, (2,))
    half = df / 2
    return draw_normal(for_normal, wanted, dtype) * sqrt(
        half / _drawn(for_gamma, half, wanted, False)
    )


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Return numbers whose density is proportional to exp(-abs(x) ** p)."""
    key, dtype = one_key("generalized_normal", key), float_type("generalized_normal", dtype)
    for_gamma, for_sign = random_split(key, (2,))
    drawn = gamma(for_gamma, 1 / p, shape, dtype)
    return rademacher(for_sign, shape, dtype) * power(drawn, 1 / p)


def ball(key: Any, d: int, p: Any = 2, shape: Any = (), dtype: Any = None) -> Any:
    """Return vectors of `d` numbers that are uniform in the unit ball of the p-norm.

    F. Barthe, O. Guedon, S. Mendelson, A. Naor, "A probabilistic approach to the geometry of the
    l_p^n-ball", 2005.
    """
    key, dtype = one_key("ball", key), float_type("ball", dtype)
    outer = canonical_shape(shape)
    first, second = random_split(key, (2,))
    g = generalized_normal(first, p, (*outer, static_int("ball", "d", d)), dtype)
    e = exponential(second, outer, dtype)
    length = power(reductions.sum(power(abs_(g), p), -1) + e, 1 / p)
    return g / expand_dims(length, -1)
