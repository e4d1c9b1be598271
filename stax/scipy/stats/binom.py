"""The binomial distribution: how many of `n` trials succeed, each with probability `p`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, inside, operands

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Any:
    """Return the logarithm of the probability of `k`."""
    k, n, p, loc = operands("binom.logpmf", k, n, p, loc)
    y = k - loc
    value = log_choose(n, y) + special.xlogy(y, p) + special.xlog1py(n - y, -p)
    return inside((y >= 0) & (y <= n), value, -math.inf, y)


def log_choose(n: Any, k: Any) -> Any:
    """Return the logarithm of the number of ways to choose `k` of `n`."""
    return -snp.log1p(n) - special.betaln(n - k + 1, k + 1)


pmf = exp_of(logpmf)
