"""The Cauchy distribution wrapped around the circle, between 0 and 2 pi."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.scipy.stats.family import exp_of, inside, operands

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, c: Any) -> Any:
    """Return the logarithm of the density at `x`; NaN unless `c` is between 0 and 1."""
    x, c = operands("wrapcauchy.logpdf", x, c)
    # 1 + c**2 - 2 * c * cos(x), without cancellation where that is near 0.
    distance = (1 - c) ** 2 + 4 * c * snp.sin(x / 2) ** 2
    value = snp.log1p(-c * c) - math.log(2 * math.pi) - snp.log(distance)
    value = inside((x >= 0) & (x <= 2 * math.pi), value, -math.inf, x)
    return snp.where((c > 0) & (c < 1), value, math.nan)


pdf = exp_of(logpdf)
