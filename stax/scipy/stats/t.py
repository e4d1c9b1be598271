"""Student's t distribution of `df` degrees of freedom."""

from __future__ import annotations

from typing import Any

import stax.numpy as snp
from stax.scipy import special
from stax.scipy.stats.family import exp_of, log1p_square, operands

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """Return the logarithm of the density at `x`."""
    x, df, loc, scale = operands("t.logpdf", x, df, loc, scale)
    root = snp.sqrt(df)
    normal = special.betaln(0.5, df / 2) + snp.log(root) + snp.log(scale)
    return -normal - (df + 1) / 2 * log1p_square((x - loc) / scale / root)


pdf = exp_of(logpdf)
