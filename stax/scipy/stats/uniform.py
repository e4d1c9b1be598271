"""The uniform distribution between `loc` and `loc + scale`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import between, exp_of, inside, operands

__all__ = ["cdf", "logpdf", "pdf", "ppf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, loc, scale = operands("uniform.logpdf", x, loc, scale)
    return inside((x >= loc) & (x <= loc + scale), -snp.log(scale), -math.inf, x)


pdf = exp_of(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, loc, scale = operands("uniform.cdf", x, loc, scale)
    return snp.where(x < loc, 0, snp.where(x > loc + scale, 1, (x - loc) / scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `q` lies; NaN unless it is between 0 and 1."""
    q, loc, scale = operands("uniform.ppf", q, loc, scale)
    return between(q, loc + scale * q)
