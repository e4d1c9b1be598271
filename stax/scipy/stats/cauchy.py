"""The Cauchy distribution: `loc` is its median, half of it lies within `scale` of that."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import between, exp_of, log1p_square, operands

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, loc, scale = operands("cauchy.logpdf", x, loc, scale)
    return -(snp.log(math.pi * scale) + log1p_square((x - loc) / scale))


pdf = exp_of(logpdf)


def _tail(y: Any) -> Any:
    """Return the probability of more than `y`: an angle, which does not cancel in either tail."""
    return snp.arctan2(1, y) / math.pi


def _log_tail(y: Any) -> Any:
    return snp.where(y < 0, snp.log1p(-_tail(-y)), snp.log(_tail(y)))


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, loc, scale = operands("cauchy.cdf", x, loc, scale)
    return _tail((loc - x) / scale)


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less."""
    x, loc, scale = operands("cauchy.logcdf", x, loc, scale)
    return _log_tail((loc - x) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    x, loc, scale = operands("cauchy.sf", x, loc, scale)
    return _tail((x - loc) / scale)


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`."""
    x, loc, scale = operands("cauchy.logsf", x, loc, scale)
    return _log_tail((x - loc) / scale)


def _quantile(q: Any) -> Any:
    """Return the quantile for median 0 and scale 1; near 0 and 1, from the nearer of the two."""
    apart = q - 0.5
    far = snp.abs(apart) > 0.25
    edge = snp.where(q < 0.5, q, 1 - q)
    outer = snp.where(q < 0.5, -1, 1) / snp.tan(math.pi * edge)
    return between(q, snp.where(far, outer, snp.tan(math.pi * apart)))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `q` lies; NaN unless it is between 0 and 1."""
    q, loc, scale = operands("cauchy.ppf", q, loc, scale)
    return loc + scale * _quantile(q)


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value above which a fraction `q` lies; NaN unless it is between 0 and 1."""
    q, loc, scale = operands("cauchy.isf", q, loc, scale)
    return loc - scale * _quantile(q)
