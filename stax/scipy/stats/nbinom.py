"""The negative binomial distribution: how many trials fail before `n` have succeeded."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, inside, operands

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, n: Any, p: Any, loc: Any = 0) -> Any:
    """Return the logarithm of the probability of `k`; `p` is that of a success."""
    k, n, p, loc = operands("nbinom.logpmf", k, n, p, loc)
    y = k - loc
    ways = -special.betaln(n, y + 1) - snp.log(n + y)
    value = ways + special.xlogy(n, p) + special.xlog1py(y, -p)
    return inside(y >= 0, value, -math.inf, y)


pmf = exp_of(logpmf)
