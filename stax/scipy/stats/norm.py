"""The normal distribution: `loc` is its mean and `scale` its standard deviation."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, operands

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, loc, scale = operands("norm.logpdf", x, loc, scale)
    y = (x - loc) / scale
    return -(y * y + math.log(2 * math.pi)) / 2 - snp.log(scale)


pdf = exp_of(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, loc, scale = operands("norm.cdf", x, loc, scale)
    return special.ndtr((x - loc) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less, right far below the mean too."""
    x, loc, scale = operands("norm.logcdf", x, loc, scale)
    return special.log_ndtr((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    x, loc, scale = operands("norm.sf", x, loc, scale)
    return special.ndtr((loc - x) / scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`."""
    x, loc, scale = operands("norm.logsf", x, loc, scale)
    return special.log_ndtr((loc - x) / scale)


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `q` lies, in the default floating type."""
    return snp.asarray(special.ndtri(q) * scale + loc, float)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value above which a fraction `q` lies, in the default floating type."""
    return snp.asarray(loc - special.ndtri(q) * scale, float)
