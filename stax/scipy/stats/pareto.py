"""The Pareto distribution from `loc + scale` up; probabilities fall with the power `b`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import between, exp_of, inside, log1mexp, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, b, loc, scale = operands("pareto.logpdf", x, b, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 1, snp.log(b / scale) - (b + 1) * snp.log(y), -math.inf, y)


pdf = exp_of(logpdf)


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, b, loc, scale = operands("pareto.cdf", x, b, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 1, -snp.expm1(-b * snp.log(y)), 0, y)


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of `x` or less."""
    x, b, loc, scale = operands("pareto.logcdf", x, b, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 1, log1mexp(b * snp.log(y)), -math.inf, y)


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the probability of more than `x`."""
    x, b, loc, scale = operands("pareto.logsf", x, b, loc, scale)
    y = (x - loc) / scale
    return inside(y >= 1, -b * snp.log(y), 0, y)


sf = exp_of(logsf)


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `q` lies; NaN unless it is between 0 and 1."""
    q, b, loc, scale = operands("pareto.ppf", q, b, loc, scale)
    return between(q, loc + scale * snp.exp(-snp.log1p(-q) / b))
