"""Counts: how often something happens at a rate, or in a number of trials.

They are drawn by rejection: proposals for a whole array are made until every element has accepted
one, of which the last counts.  The algorithms and the order in which they use bits are JAX's, so
the same proposals are accepted.

W. Hörmann, "The transformed rejection method for generating Poisson random variables" and "The
generation of binomial random variates", 1993; for small means, counting exponential times
(D. E. Knuth) and geometric jumps (L. Devroye).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.lax.control_flow import scan, while_loop
from stax.numpy.arguments import array, inexact
from stax.numpy.elementwise import clip, isinf, isnan, where
from stax.numpy.manipulation import moveaxis
from stax.numpy.taking import take
from stax.operators import special
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import abs_, ceil, convert, floor, like, log, log1p, sqrt
from stax.operators.random import random_split
from stax.operators.reduce import cumsum
from stax.random.arguments import float_type, integer_type, sample_shape
from stax.random.keys import one_key
from stax.random.uniform import draw_uniform
from stax.trace import full
from stax.types import check_dtype

Proposal = Callable[[Any, Any], tuple[Any, Any]]


def _until_all_accepted(name: str, key: Any, sample: Any, propose: Proposal) -> Any:
    """Return the last accepted proposals, arrays of the type of `sample`.

    `propose` takes two arrays of uniform numbers, the first around 0, and returns proposals and
    which of them are accepted.
    """

    def step(carry: Any) -> Any:
        found, accepted, key = carry
        key, first, second = random_split(key, (3,))
        u = draw_uniform(name, first, sample.shape, sample.dtype) - 0.5
        v = draw_uniform(name, second, sample.shape, sample.dtype)
        proposed, is_good = propose(u, v)
        return where(is_good, proposed, found), accepted | is_good, key

    start = like(sample, -1), full(sample.shape, False, types.bool_), key
    return while_loop(lambda carry: (~carry[1]).any(), step, start)[0]


# --- Poisson ---


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return numbers of the Poisson distribution of mean `lam`, as int32 unless `dtype` is given.

    The mean counts in float32.
    """
    key, dtype = one_key("poisson", key), integer_type("poisson", dtype)
    lam = array("poisson", lam)
    wanted = sample_shape("poisson", shape, [lam.shape])
    rate = broadcast_to(convert(lam, types.float32), wanted)
    is_small = isnan(rate) | (rate < 10)
    small = _poisson_by_times(key, where(is_small, rate, 0), dtype)
    large = _poisson_by_rejection(key, where(is_small, 1e5, rate))
    return where(rate == 0, 0, where(is_small, small, convert(large, dtype)))


def _poisson_by_times(key: Any, rate: Any, dtype: Any) -> Any:
    """Return how many exponential times fit into `rate`."""

    def step(carry: Any) -> Any:
        count, product, key = carry
        key, now = random_split(key, (2,))
        u = draw_uniform("poisson", now, rate.shape, rate.dtype)
        return where(product > -rate, count + 1, count), product + log(u), key

    start = full(rate.shape, 0, dtype), like(rate, 0), key
    return while_loop(lambda carry: (carry[1] > -rate).any(), step, start)[0] - 1


def _poisson_by_rejection(key: Any, rate: Any) -> Any:
    b = 0.931 + 2.53 * sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha, v_r = 1.1239 + 1.1328 / (b - 3.4), 0.9277 - 3.6224 / (b - 2)
    logarithm = log(rate)

    def propose(u: Any, v: Any) -> tuple[Any, Any]:
        shifted = 0.5 - abs_(u)
        k = floor((2 * a / shifted + b) * u + rate + 0.43)
        s = log(v * inverse_alpha / (a / (shifted * shifted) + b))
        t = -rate + k * logarithm - special.lgamma(k + 1)
        quick = (shifted >= 0.07) & (v <= v_r)
        rejected = (k < 0) | ((shifted < 0.013) & (v > shifted))
        return k, quick | (~rejected & (s <= t))

    return _until_all_accepted("poisson", key, rate, propose)


# --- binomial ---


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return how many of `n` trials succeed, each with probability `p`, as floats.

    NaN where n is negative or p is no probability.
    """
    key, dtype = one_key("binomial", key), float_type("binomial", dtype)
    n, p = array("binomial", n), inexact("binomial", p)
    wanted = sample_shape("binomial", shape, [n.shape, p.shape])
    count, chance = (broadcast_to(convert(x, p.dtype), wanted) for x in (n, p))
    is_low = chance < 0.5
    rare = where(is_low, chance, 1.0 - chance)
    no_count, no_chance = isnan(count) | (count < 0), isnan(rare) | (rare < 0)
    safe = where(no_chance, 0.01, rare)
    by_jumps, whole = no_count | (count * safe <= 10), floor(count)
    few = _binomial_by_jumps(key, where(by_jumps, whole, 0), safe)
    many = _binomial_by_rejection(key, where(by_jumps, 1e4, whole), where(by_jumps, 0.5, safe))
    found = convert(where(by_jumps, few, many), dtype)
    found = where(no_count | no_chance, math.nan, found)
    is_endless = isinf(count)
    found = where(is_endless & ~(no_count | no_chance), math.inf, found)
    as_drawn = is_low | no_count | isnan(rare) | is_endless
    return where(as_drawn, found, convert(whole, dtype) - found)


def _binomial_by_jumps(key: Any, count: Any, chance: Any) -> Any:
    """Return how many geometric jumps stay within `count`."""
    logarithm = log1p(-chance)

    def step(carry: Any) -> Any:
        jumps, total, key = carry
        now, key = random_split(key, (2,))
        u = draw_uniform("binomial", now, chance.shape, chance.dtype)
        return where(total <= count, jumps + 1, jumps), total + ceil(log(u) / logarithm), key

    start = like(chance, 0), like(chance, 0), key
    return while_loop(lambda carry: (carry[1] <= count).any(), step, start)[0] - 1


def _binomial_by_rejection(key: Any, count: Any, chance: Any) -> Any:
    deviation = sqrt(count * chance * (1 - chance))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * chance
    center, v_r, odds = count * chance + 0.5, 0.92 - 4.2 / b, chance / (1 - chance)
    alpha, mode = (2.83 + 5.1 / b) * deviation, floor((count + 1) * chance)
    at_mode = (mode + 0.5) * log((mode + 1) / (odds * (count - mode + 1)))
    rests = _stirling_rest(mode), _stirling_rest(count - mode)

    def propose(u: Any, v: Any) -> tuple[Any, Any]:
        shifted = 0.5 - abs_(u)
        k = floor((2 * a / shifted + b) * u + center)
        bound = (
            at_mode
            + (count + 1) * log((count - mode + 1) / (count - k + 1))
            + (k + 0.5) * log(odds * (count - k + 1) / (k + 1))
            + rests[0]
            + rests[1]
            - _stirling_rest(k)
            - _stirling_rest(count - k)
        )
        s = log(v * alpha / (a / (shifted * shifted) + b))
        quick = (shifted >= 0.07) & (v <= v_r)
        return k, quick | ((k >= 0) & (k <= count) & (s <= bound))

    return _until_all_accepted("binomial", key, chance, propose)


_STIRLING = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509,
    0.0166446911898211, 0.0138761288230707, 0.0118967099458917, 0.0104112652619720,
    0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_rest(k: Any) -> Any:
    """Return what Stirling's formula leaves out of the logarithm of k!: a table, then a series."""
    near = clip(k, 0, 9)
    squared = (near + 1) * (near + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / squared) / squared) / (near + 1)
    table = take(np.asarray(_STIRLING, k.dtype), convert(near, types.int32), mode="clip")
    return where(k <= 9, table, series)


def multinomial(
    key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: int | bool = 1
) -> Any:
    """Return how many of `n` trials have each outcome; `p` (..., outcomes) are the probabilities.

    `shape` is that of the result, the one of `p` unless given.  `unroll` is accepted and changes
    nothing: the loop over outcomes is a loop of the program.
    """
    key = one_key("multinomial", key)
    n, p = array("multinomial", n), array("multinomial", p)
    common = types.inexact_dtype(types.promote(n.type, p.type)[0])
    wanted = sample_shape("multinomial", shape, [p.shape])
    rest = broadcast_to(convert(n, common), wanted[:-1])
    chances = moveaxis(broadcast_to(convert(p, common), wanted), -1, 0)
    following = cumsum(chances, 0, reverse=True)
    ratios = chances / where(following == 0, like(following, 1), following)

    def step(rest: Any, of_outcome: Any) -> tuple[Any, Any]:
        ratio, now = of_outcome
        count = binomial(now, rest, clip(ratio, 0, 1), dtype=common)
        return rest - count, count

    keys = random_split(key, (ratios.shape[0],))
    found = moveaxis(scan(step, rest, (ratios, keys))[1], 0, -1)
    return convert(found, types.float_dtype() if dtype is None else check_dtype(dtype))
