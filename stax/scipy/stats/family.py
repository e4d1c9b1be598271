"""What the families of distributions share: functions made of others, and stable logarithms.

Each family is a module of functions, as in `jax.scipy.stats`.  `loc` moves the distribution and
`scale` stretches it; parameters broadcast with the point and are promoted with it to one floating
type.  Outside of the support densities are 0 and their logarithms minus infinity; NaN stays NaN.
A function and its logarithm are one formula: the other is made by `exp_of` or `log_of`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import stax.numpy as snp
from stax.nn import functions as nn
from stax.numpy.arguments import inexact_operands as operands

__all__ = ["between", "exp_of", "inside", "log1mexp", "log1p_square", "log_of", "operands"]

Function = Callable[..., Any]

MEANINGS = {
    "pdf": "the density",
    "pmf": "the probability",
    "cdf": "the probability of this value or less",
    "sf": "the probability of more than this value",
}


def exp_of(function: Function) -> Function:
    """Return the function whose logarithm is `function`: pdf for logpdf."""
    return _named(function.__name__.removeprefix("log"), function, snp.exp)


def log_of(function: Function) -> Function:
    """Return the logarithm of `function`: logcdf for cdf."""
    return _named(f"log{function.__name__}", function, snp.log)


def _named(name: str, inner: Function, outer: Function) -> Function:
    @functools.wraps(inner)
    def function(*args: Any, **options: Any) -> Any:
        return outer(inner(*args, **options))

    meaning = MEANINGS[name.removeprefix("log")]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {'the logarithm of ' * name.startswith('log')}{meaning}."
    return function


def log1mexp(x: Any) -> Any:
    """Return log(1 - exp(-x)) for positive `x`, without cancellation."""
    return nn.log1mexp(x)


def inside(condition: Any, value: Any, outside: float, point: Any) -> Any:
    """Return `value` where `condition` holds, else `outside`; NaN where `point` is NaN."""
    return snp.where(condition, value, snp.where(snp.isnan(point), math.nan, outside))


def between(q: Any, value: Any) -> Any:
    """Return `value` where the probability `q` is between 0 and 1, else NaN."""
    return snp.where((q >= 0) & (q <= 1), value, math.nan)


def log1p_square(y: Any) -> Any:
    """Return log(1 + y**2), also where the square overflows."""
    size = snp.abs(y)
    large = size > 1
    reduced = snp.where(large, 1 / y, y)
    near = snp.log1p(reduced * reduced)
    return snp.where(large, 2 * snp.log(size) + near, near)
