"""The Bernoulli distribution: 1 with probability `p`, else 0."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import between, exp_of, inside, operands

__all__ = ["cdf", "logpmf", "pmf", "ppf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    """Return the logarithm of the probability of `k`, which is linear between 0 and 1."""
    k, p, loc = operands("bernoulli.logpmf", k, p, loc)
    y = k - loc
    value = special.xlogy(y, p) + special.xlog1py(1 - y, -p)
    return inside((y >= 0) & (y <= 1), value, -math.inf, y)


pmf = exp_of(logpmf)


def cdf(k: Any, p: Any) -> Any:
    """Return the probability of `k` or less; NaN unless `p` is between 0 and 1."""
    k, p = operands("bernoulli.cdf", k, p)
    return between(p, snp.where(k >= 1, 1, inside(k >= 0, 1 - p, 0, k)))


def ppf(q: Any, p: Any) -> Any:
    """Return the least value with probability `q` of it or less; NaN for no probabilities."""
    q, p = operands("bernoulli.ppf", q, p)
    return between(p, between(q, snp.where(q <= 1 - p, snp.zeros_like(q), 1)))
