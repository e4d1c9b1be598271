"""The multinomial distribution: how often each outcome comes up in `n` trials."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError
from stax.numpy.arguments import array, inexact
from stax.operators.elementwise import convert
from stax.scipy import special
from stax.scipy.stats.family import exp_of

__all__ = ["logpmf", "pmf"]


def logpmf(x: Any, n: Any, p: Any) -> Any:
    """Return the logarithm of the probability of the counts `x`, along the last axis.

    It is minus infinity where the counts do not add up to `n`.  Raises ArgumentValueError for
    counts that are no integers.
    """
    x, p = array("multinomial.logpmf", x), inexact("multinomial.logpmf", p)
    if not types.is_integer(x.dtype):
        raise ArgumentValueError(
            f"multinomial.logpmf: counts are integers, not {x.dtype}.",
            advice="Convert them: x.astype(int).",
        )
    right = snp.equal(snp.sum(x, axis=-1), n)
    counts, n = convert(x, p.dtype), convert(array("multinomial.logpmf", n), p.dtype)
    terms = special.xlogy(counts, p) - special.gammaln(counts + 1)
    return snp.where(right, special.gammaln(n + 1) + snp.sum(terms, axis=-1), -math.inf)


pmf = exp_of(logpmf)
