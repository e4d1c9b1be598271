"""The beta distribution between `loc` and `loc + scale`, of shapes `a` and `b`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, inside, log_of, operands

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]


def logpdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`; NaN unless `a`, `b` and `scale` are positive."""
    x, a, b, loc, scale = operands("beta.logpdf", x, a, b, loc, scale)
    y = (x - loc) / scale
    value = special.xlogy(a - 1, y) + special.xlog1py(b - 1, -y)
    value = value - special.betaln(a, b) - snp.log(scale)
    value = inside((y >= 0) & (y <= 1), value, -math.inf, y)
    return snp.where((a > 0) & (b > 0) & (scale > 0), value, math.nan)


pdf = exp_of(logpdf)


def _limited(x: Any, loc: Any, scale: Any) -> Any:
    """Return (x - loc) / scale, limited to between 0 and 1."""
    y = (x - loc) / scale
    return snp.where(y < 0, 0, snp.where(y > 1, 1, y))


def cdf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, a, b, loc, scale = operands("beta.cdf", x, a, b, loc, scale)
    return special.betainc(a, b, _limited(x, loc, scale))


def sf(x: Any, a: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of more than `x`."""
    x, a, b, loc, scale = operands("beta.sf", x, a, b, loc, scale)
    return special.betainc(b, a, 1 - _limited(x, loc, scale))


logcdf, logsf = log_of(cdf), log_of(sf)
