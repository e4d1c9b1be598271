"""The generalized normal distribution: its density falls as exp(-abs(x)**beta)."""

from __future__ import annotations

from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, operands

__all__ = ["cdf", "logpdf", "pdf"]


def logpdf(x: Any, beta: Any) -> Any:
    """Return the logarithm of the density at `x`."""
    x, beta = operands("gennorm.logpdf", x, beta)
    return snp.log(beta / 2) - special.gammaln(1 / beta) - snp.abs(x) ** beta


pdf = exp_of(logpdf)


def cdf(x: Any, beta: Any) -> Any:
    """Return the probability of `x` or less, without cancellation in the lower tail."""
    x, beta = operands("gennorm.cdf", x, beta)
    tail = special.gammaincc(1 / beta, snp.abs(x) ** beta) / 2
    return snp.where(x < 0, tail, 1 - tail)
