"""The Laplace distribution: an exponential to both sides of `loc`."""

from __future__ import annotations

from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import exp_of, operands

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, loc, scale = operands("laplace.logpdf", x, loc, scale)
    return -(snp.abs((x - loc) / scale) + snp.log(2 * scale))


pdf = exp_of(logpdf)


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the probability of `x` or less."""
    x, loc, scale = operands("laplace.cdf", x, loc, scale)
    y = (x - loc) / scale
    return snp.where(y <= 0, snp.exp(y) / 2, 1 - snp.exp(-y) / 2)
