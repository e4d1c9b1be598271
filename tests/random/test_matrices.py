"""Vectors with a covariance and orthogonal matrices, against JAX."""

from typing import Any

import jax.random as jr
import numpy as np
import pytest

import stax
import stax.numpy as snp
import stax.random as sr
from tests.like_jax import assert_like_jax

MEAN = np.float32([1, -1])
COVARIANCE = np.float32([[2, 0.5], [0.5, 1]])


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_multivariate_normal(from_jax: Any, method: str) -> None:
    def draw(r: Any, key: Any) -> Any:
        return r.multivariate_normal(key, MEAN, COVARIANCE, (5,), method=method)

    expected = from_jax(lambda: draw(jr, jr.key(0)))
    assert_like_jax(draw(sr, sr.key(0)), expected, 1e-4)
    assert_like_jax(stax.jit(lambda k: draw(sr, k))(sr.key(0)), expected, 1e-4)


@pytest.mark.parametrize("n, m, shape", [(3, None, ()), (3, 5, (2,)), (5, 3, (2,))])
def test_orthogonal(from_jax: Any, n: int, m: int | None, shape: Any) -> None:
    ours = sr.orthogonal(sr.key(0), n, shape, m=m)
    assert_like_jax(ours, from_jax(lambda: jr.orthogonal(jr.key(0), n, shape, m=m)), 1e-5)
    product = ours @ ours.mT if n <= (m or n) else ours.mT @ ours
    identity = np.broadcast_to(np.eye(min(n, m or n)), product.shape)
    np.testing.assert_allclose(product, identity, atol=1e-5)


@pytest.mark.parametrize(
    "mean, cov, options, rule",
    [
        (MEAN, COVARIANCE, {"method": "lu"}, "no method 'lu'"),
        (MEAN, np.eye(3, dtype="float32"), {}, "does not go with a mean"),
        (np.float32(1), COVARIANCE, {}, "does not go with a mean"),
        (MEAN, COVARIANCE, {"dtype": "int32"}, "floating dtype"),
        (snp.ones((3, 2)), COVARIANCE, {"shape": (2,)}, "broadcast"),
    ],
)
def test_mistakes(mean: Any, cov: Any, options: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        sr.multivariate_normal(sr.key(0), mean, cov, **options)
