"""The chi-square distribution of `df` degrees of freedom: a gamma distribution."""

from __future__ import annotations

from typing import Any

from stax.scipy.stats import gamma
from stax.scipy.stats.family import exp_of, log_of, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, df, loc, scale = operands("chi2.logpdf", x, df, loc, scale)
    return gamma.logpdf(x, df / 2, loc, 2 * scale)


pdf = exp_of(logpdf)


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, df, loc, scale = operands("chi2.cdf", x, df, loc, scale)
    return gamma.cdf(x, df / 2, loc, 2 * scale)


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    x, df, loc, scale = operands("chi2.sf", x, df, loc, scale)
    return gamma.sf(x, df / 2, loc, 2 * scale)


logcdf, logsf = log_of(cdf), log_of(sf)
