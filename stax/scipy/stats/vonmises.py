"""The von Mises distribution of an angle, concentrated at 0 by `kappa`."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, operands

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, kappa: Any) -> Any:
    """Return the logarithm of the density at `x`; NaN unless `kappa` is positive."""
    x, kappa = operands("vonmises.logpdf", x, kappa)
    # cos(x) - 1 would cancel near 0.
    value = -2 * kappa * snp.sin(x / 2) ** 2 - snp.log(2 * math.pi * special.i0e(kappa))
    return snp.where(kappa > 0, value, math.nan)


pdf = exp_of(logpdf)
