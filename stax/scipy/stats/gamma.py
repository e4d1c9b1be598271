"""The gamma distribution from `loc` up, of shape `a`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, inside, log_of, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, a, loc, scale = operands("gamma.logpdf", x, a, loc, scale)
    y = (x - loc) / scale
    value = special.xlogy(a - 1, y) - y - special.gammaln(a) - snp.log(scale)
    return inside(y >= 0, value, -math.inf, y)


pdf = exp_of(logpdf)


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, a, loc, scale = operands("gamma.cdf", x, a, loc, scale)
    y = (x - loc) / scale
    return special.gammainc(a, snp.where(y < 0, 0, y))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    x, a, loc, scale = operands("gamma.sf", x, a, loc, scale)
    y = (x - loc) / scale
    return special.gammaincc(a, snp.where(y < 0, 0, y))


logcdf, logsf = log_of(cdf), log_of(sf)
