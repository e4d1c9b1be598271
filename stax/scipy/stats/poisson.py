"""The Poisson distribution of mean `mu`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, inside, operands

__all__ = ["cdf", "entropy", "logpmf", "pmf"]

LARGE, TERMS = 100, 250


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """Return the logarithm of the probability of `k`; minus infinity unless it is a count."""
    k, mu, loc = operands("poisson.logpmf", k, mu, loc)
    y = k - loc
    value = special.xlogy(y, mu) - special.gammaln(y + 1) - mu
    return inside((y >= 0) & (snp.round(k) == k), value, -math.inf, y)


pmf = exp_of(logpmf)


def cdf(k: Any, mu: Any, loc: Any = 0) -> Any:
    """Return the probability of `k` or less."""
    k, mu, loc = operands("poisson.cdf", k, mu, loc)
    y = k - loc
    return inside(y >= 0, special.gammaincc(snp.floor(y) + 1, mu), 0, y)


def entropy(mu: Any, loc: Any = 0) -> Any:
    """Return the entropy: a sum over counts, and for a large mean its expansion in 1 / mu.

    The expansion is that of R. J. Evans and J. Boersma, SIAM Review 30 (1988), 314.
    """
    mu, _ = operands("poisson.entropy", mu, loc)
    few = snp.where(mu < LARGE, mu, 0)
    counts = snp.arange(TERMS, dtype=mu.dtype).reshape(TERMS, *(1,) * mu.ndim)
    logarithm = logpmf(counts, few)
    terms = snp.where(logarithm < -200, 0, snp.exp(logarithm) * logarithm)
    total = -snp.sum(terms, axis=0)
    series = 1 / (12 * mu) + 1 / (24 * mu**2) + 19 / (360 * mu**3)
    return snp.where(mu < LARGE, total, snp.log(2 * math.pi * math.e * mu) / 2 - series)
