"""The logistic distribution, whose distribution function is the logistic function."""

from __future__ import annotations

from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, operands

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, loc, scale = operands("logistic.logpdf", x, loc, scale)
    half = (x - loc) / scale / 2
    return -2 * snp.logaddexp(half, -half) - snp.log(scale)


pdf = exp_of(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, loc, scale = operands("logistic.cdf", x, loc, scale)
    return special.expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    x, loc, scale = operands("logistic.sf", x, loc, scale)
    return special.expit((loc - x) / scale)


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value below which a fraction `x` lies."""
    x, loc, scale = operands("logistic.ppf", x, loc, scale)
    return loc + special.logit(x) * scale


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the value above which a fraction `x` lies."""
    x, loc, scale = operands("logistic.isf", x, loc, scale)
    return loc - special.logit(x) * scale
