"""The standard normal distribution cut off below `a` and above `b`, then moved and stretched."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats import norm
from stax.scipy.stats.family import exp_of, inside, log1mexp, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def _log_mass(a: Any, b: Any) -> Any:
    """Return the logarithm of the normal probability between `a` and `b`."""
    right = a > 0
    low, high = snp.where(right, -b, a), snp.where(right, -a, b)
    upper = special.log_ndtr(high)
    tail = upper + log1mexp(upper - special.log_ndtr(low))
    # Around 0: from what is left out if that is little, else from what is within.
    outside = special.ndtr(a) + special.ndtr(-b)
    root = math.sqrt(0.5)
    within = snp.log((special.erf(b * root) - special.erf(a * root)) / 2)
    middle = snp.where(outside < 0.5, snp.log1p(-outside), within)
    return snp.where((a < 0) & (b > 0), middle, tail)


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`; NaN unless `a` is below `b`."""
    x, a, b, loc, scale = operands("truncnorm.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    value = norm.logpdf(y) - snp.log(scale) - _log_mass(a, b)
    value = inside((y >= a) & (y <= b), value, -math.inf, y)
    return snp.where(a < b, value, math.nan)


pdf = exp_of(logpdf)


def logcdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less; NaN unless `a` is below `b`."""
    x, a, b, loc, scale = operands("truncnorm.logcdf", x, a, b, loc, scale)
    return _log_cdf((x - loc) / scale, a, b)


def _log_cdf(y: Any, a: Any, b: Any) -> Any:
    whole = _log_mass(a, b)
    below, above = _log_mass(a, y) - whole, _log_mass(y, b) - whole
    value = snp.where(below > -0.1, snp.log1p(-snp.exp(above)), below)
    value = snp.where(y >= b, 0, inside(y > a, value, -math.inf, y))
    return snp.where(a < b, value, math.nan)


cdf = exp_of(logcdf)


def logsf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`; NaN unless `a` is below `b`."""
    x, a, b, loc, scale = operands("truncnorm.logsf", x, a, b, loc, scale)
    return _log_cdf((loc - x) / scale, -b, -a)


sf = exp_of(logsf)
