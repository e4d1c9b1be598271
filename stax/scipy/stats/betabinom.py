"""The beta-binomial distribution: binomial, with a probability from a beta distribution."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.binom import log_choose
from stax.scipy.stats.family import exp_of, inside, operands

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, a: Any, b: Any, loc: Any = 0) -> Any:
    """Return the logarithm of the probability of `k`; NaN for parameters out of range."""
    k, n, a, b, loc = operands("betabinom.logpmf", k, n, a, b, loc)
    y = snp.floor(k) - loc
    value = log_choose(n, y) + special.betaln(y + a, n - y + b) - special.betaln(a, b)
    value = inside((y >= 0) & (y <= n), value, -math.inf, y)
    return snp.where((n >= 0) & (a > 0) & (b > 0), value, math.nan)


pmf = exp_of(logpmf)
