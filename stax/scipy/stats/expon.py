"""The exponential distribution from `loc` up, with mean `loc + scale`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import between, exp_of, inside, log1mexp, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, loc, scale = operands("expon.logpdf", x, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 0, -y - snp.log(scale), -math.inf, y)


pdf = exp_of(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, loc, scale = operands("expon.cdf", x, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 0, -snp.expm1(-y), 0, y)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less."""
    x, loc, scale = operands("expon.logcdf", x, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 0, log1mexp(y), -math.inf, y)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`."""
    x, loc, scale = operands("expon.logsf", x, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 0, -y, 0, y)


sf = exp_of(logsf)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `q` lies; NaN unless it is between 0 and 1."""
    q, loc, scale = operands("expon.ppf", q, loc, scale)
    return between(q, loc - scale * snp.log1p(-q))
