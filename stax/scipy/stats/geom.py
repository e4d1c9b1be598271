"""The geometric distribution: which trial is the first to succeed, counted from 1."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, inside, operands

__all__ = ["logpmf", "pmf"]


def logpmf(k: Any, p: Any, loc: Any = 0) -> Any:
    """Return the logarithm of the probability of `k`."""
    k, p, loc = operands("geom.logpmf", k, p, loc)
    y = k - loc
    return inside(y > 0, special.xlog1py(y - 1, -p) + snp.log(p), -math.inf, y)


pmf = exp_of(logpmf)
