"""The Gumbel distribution skewed to the right: the largest of many values."""

from __future__ import annotations

from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import between, exp_of, operands
from stax.scipy.stats.gumbel_l import log_below, log_density, standard

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    y, scale = standard("gumbel_r.logpdf", x, loc, scale)
    return log_density(-y, scale)


pdf = exp_of(logpdf)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less."""
    return -snp.exp(-standard("gumbel_r.logcdf", x, loc, scale)[0])


cdf = exp_of(logcdf)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`."""
    return log_below(-standard("gumbel_r.logsf", x, loc, scale)[0])


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    return -snp.expm1(-snp.exp(-standard("gumbel_r.sf", x, loc, scale)[0]))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `p` lies; NaN unless it is between 0 and 1."""
    p, loc, scale = operands("gumbel_r.ppf", p, loc, scale)
    return between(p, loc - scale * snp.log(-snp.log(p)))
