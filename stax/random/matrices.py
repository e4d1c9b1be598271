"""Random vectors with a covariance, and random orthogonal matrices: normal numbers and a factor."""

from __future__ import annotations

from typing import Any

from stax import types
from stax.errors import ArgumentValueError, ShapeError
from stax.numpy import linalg
from stax.numpy.arguments import array, static_int
from stax.numpy.einsum import einsum
from stax.operators.elementwise import convert, sign, sqrt
from stax.operators.reshape import expand_dims
from stax.random.arguments import float_type, inexact_type, sample_shape
from stax.random.keys import one_key
from stax.random.normal import draw_normal
from stax.types import canonical_shape

_FACTORS = ("cholesky", "eigh", "svd")


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None, method: str = "cholesky"
) -> Any:
    """Return normal vectors of a `mean` (..., n) and a covariance (..., n, n).

    `method` says how the covariance is factored: "cholesky", or "eigh" or "svd" where it may be
    singular.  `shape` is the result's without its last axis.
    """
    key = one_key("multivariate_normal", key)
    mean, cov = array("multivariate_normal", mean), array("multivariate_normal", cov)
    found = types.inexact_dtype(types.promote(mean.type, cov.type)[0])
    mean, cov = convert(mean, found), convert(cov, found)
    if method not in _FACTORS:
        raise ArgumentValueError(
            f"multivariate_normal: no method {method!r}.",
            advice="Methods are 'cholesky', 'eigh' and 'svd'.",
        )
    dtype = float_type("multivariate_normal", found if dtype is None else dtype)
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-2:] != (mean.shape[-1],) * 2:
        raise ShapeError(
            f"multivariate_normal: a covariance {cov.type} does not go with a mean {mean.type}.",
            advice="The mean is (..., n) and the covariance (..., n, n).",
        )
    outer = sample_shape("multivariate_normal", shape, [mean.shape[:-1], cov.shape[:-2]])
    drawn = draw_normal(key, (*outer, mean.shape[-1]), dtype)
    return mean + einsum("...ij,...j->...i", _factor(cov, method), drawn)


def _factor(cov: Any, method: str) -> Any:
    """Return a matrix whose product with its own transpose is `cov`."""
    if method == "cholesky":
        return linalg.cholesky(cov)
    if method == "eigh":
        values, vectors = linalg.eigh(cov)
    else:
        vectors, values, _ = linalg.svd(cov)
    return vectors * sqrt(expand_dims(values, -2))


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None) -> Any:
    """Return matrices (n, m), or (n, n), with orthonormal columns or rows, each equally likely."""
    key, dtype = one_key("orthogonal", key), inexact_type("orthogonal", dtype)
    rows = static_int("orthogonal", "n", n)
    columns = rows if m is None else static_int("orthogonal", "m", m)
    shape = (*canonical_shape(shape), max(rows, columns), min(rows, columns))
    q, r = linalg.qr(draw_normal(key, shape, dtype))
    # A factorization may choose signs; those of the diagonal take the choice back.
    found = q * expand_dims(sign(linalg.diagonal(r)), -2)
    return found.mT if rows < columns else found
