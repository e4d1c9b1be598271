"""The Dirichlet distribution of fractions that add up to 1."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax.errors import ShapeError
from stax.numpy.arguments import inexact, promoted
from stax.scipy import special
from stax.scipy.stats.family import exp_of

__all__ = ["logpdf", "pdf"]

TOLERANCE = 1e-6


def logpdf(x: Any, alpha: Any) -> Any:
    """Return the logarithm of the density at `x`, whose fractions lie along the first axis.

    The last fraction may be left out.  Raises ShapeError unless `alpha` has one axis, of as many
    elements as there are fractions.
    """
    x, alpha = (inexact("dirichlet.logpdf", v) for v in promoted("dirichlet.logpdf", (x, alpha)))
    if alpha.ndim != 1 or x.ndim == 0 or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ShapeError(
            f"dirichlet.logpdf: x is {x.type} and alpha {alpha.type}.",
            advice="alpha has one axis; the first axis of x is as long, or shorter by one.",
        )
    if x.shape[0] != alpha.shape[0]:
        x = snp.concatenate([x, 1 - snp.sum(x, axis=0, keepdims=True)])
    normal = snp.sum(special.gammaln(alpha)) - special.gammaln(snp.sum(alpha))
    powers = alpha.reshape(-1, *(1,) * (x.ndim - 1)) - 1
    value = snp.sum(special.xlogy(powers, x), axis=0) - normal
    whole = snp.abs(snp.sum(x, axis=0) - 1) < TOLERANCE
    return snp.where(snp.all(x > 0, axis=0) & whole, value, -math.inf)


pdf = exp_of(logpdf)
