"""The Gumbel distribution skewed to the left: the least of many values."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import between, exp_of, inside, log1mexp, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def standard(name: str, x: Any, loc: Any, scale: Any) -> tuple[Any, Any]:
    """Return (x - loc) / scale, NaN unless `scale` is positive, and `scale`."""
    x, loc, scale = operands(name, x, loc, scale)
    return snp.where(scale > 0, (x - loc) / scale, math.nan), scale


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    y, scale = standard("gumbel_l.logpdf", x, loc, scale)
    return log_density(y, scale)


def log_density(y: Any, scale: Any) -> Any:
    """Return the logarithm of the density where (x - loc) / scale is `y`."""
    return inside(y < math.inf, y - snp.exp(y), -math.inf, y) - snp.log(scale)


pdf = exp_of(logpdf)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less."""
    return log_below(standard("gumbel_l.logcdf", x, loc, scale)[0])


def log_below(y: Any) -> Any:
    """Return log(1 - exp(-exp(y))); far below 0, where exp(y) vanishes, by its series."""
    low = snp.exp(y)
    return snp.where(y < -12, y - low / 2, log1mexp(low))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    return -snp.expm1(-snp.exp(standard("gumbel_l.cdf", x, loc, scale)[0]))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`."""
    return -snp.exp(standard("gumbel_l.logsf", x, loc, scale)[0])


sf = exp_of(logsf)


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `p` lies; NaN unless it is between 0 and 1."""
    p, loc, scale = operands("gumbel_l.ppf", p, loc, scale)
    return between(p, loc + scale * snp.log(-snp.log1p(-p)))
