"""The normal distribution of vectors, of a mean and a covariance matrix."""

from __future__ import annotations

import math
from typing import Any

import stax.numpy as snp
from stax import types
from stax.errors import ShapeError, UnsupportedError
from stax.numpy.arguments import inexact, promoted
from stax.operators.broadcast import broadcast_to
from stax.operators.linalg import triangular_solve

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: None = None) -> Any:
    """Return the logarithm of the density at the vectors `x` (..., n).

    `mean` is a vector (..., n) and `cov` a matrix (..., n, n), whose leading axes broadcast, or a
    variance that all components have; if `mean` is a number, so are the elements of `x`.  NaN where
    `cov` is not positive definite.  Raises ShapeError for matrices of another size.
    """
    if allow_singular is not None:
        raise UnsupportedError(
            "multivariate_normal: allow_singular is not supported.",
            advice="Add a small multiple of the identity to a singular covariance.",
        )
    name = "multivariate_normal.logpdf"
    x, mean, cov = (inexact(name, v) for v in promoted(name, (x, mean, cov)))
    apart = x - mean
    if mean.ndim == 0 or cov.ndim == 0:
        count = mean.shape[-1] if mean.ndim else 1
        squares = snp.vecdot(apart, apart) if mean.ndim else apart * apart
        return -(squares / cov + count * snp.log(2 * math.pi * cov)) / 2
    if cov.shape[-2:] != mean.shape[-1:] * 2:
        raise ShapeError(
            f"{name}: a mean {mean.type} goes with a matrix for each vector, not {cov.type}.",
            advice="The last two axes of cov have the length of the last axis of mean.",
        )
    return log_density(apart, snp.linalg.cholesky(cov))


def pdf(x: Any, mean: Any, cov: Any) -> Any:
    """Return the density at the vectors `x`."""
    return snp.exp(logpdf(x, mean, cov))


def log_density(apart: Any, factor: Any) -> Any:
    """Return the logarithm of the density `apart` from the mean; `factor` is the covariance's."""
    white = whitened(apart, factor)
    scales = snp.log(snp.diagonal(factor, axis1=-2, axis2=-1))
    constant = apart.shape[-1] / 2 * math.log(2 * math.pi)
    return -snp.vecdot(white, white) / 2 - constant - snp.sum(scales, axis=-1)


def whitened(x: Any, factor: Any) -> Any:
    """Return the vectors `x` (..., n) in units in which the covariance is the identity."""
    if factor.ndim == 2:
        rows = x.reshape(-1, x.shape[-1])
    else:
        batch = types.broadcast_shapes(x.shape[:-1], factor.shape[:-2])
        factor = broadcast_to(factor, (*batch, *factor.shape[-2:]))
        rows = broadcast_to(x, (*batch, x.shape[-1]))[..., None, :]
    white = triangular_solve(factor, rows, lower=True, transpose_a=True)
    return white.reshape(x.shape if factor.ndim == 2 else white.shape[:-2] + white.shape[-1:])
