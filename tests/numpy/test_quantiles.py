"""Weighted quantiles against JAX; those without weights are compared in test_sorting."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError, UnsupportedError
from tests.like_jax import assert_like_jax

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 6)).astype(np.float32)
WEIGHTS = RNG.uniform(0, 2, (4, 6)).astype(np.float32)
HOLES = A.copy()
HOLES[1, 2] = HOLES[:, 4] = np.nan
BAD = WEIGHTS.copy()
BAD[2, 3] = -1


@pytest.mark.parametrize("options", [{}, {"axis": 1, "keepdims": True}], ids=str)
@pytest.mark.parametrize("name", ["quantile", "nanpercentile"])
def test_weighted(name: str, options: dict[str, Any]) -> None:
    q = np.array([0.1, 0.5, 1.0], np.float32) * (100 if "percent" in name else 1)
    for a in (A, HOLES):
        for weights in (None, WEIGHTS, BAD):
            given = {"method": "inverted_cdf", "weights": weights, **options}
            theirs = getattr(jnp, name)(a, q, **given)
            assert_like_jax(getattr(snp, name)(a, q, **given), theirs)


def test_weights_of_an_axis_and_under_jit() -> None:
    given: dict[str, Any] = {"axis": 1, "method": "inverted_cdf"}
    theirs = jnp.quantile(A, 0.3, weights=WEIGHTS[0], **given)
    assert_like_jax(snp.quantile(A, 0.3, weights=WEIGHTS[0], **given), theirs)
    compiled = stax.jit(lambda a, w: snp.quantile(a, 0.3, weights=w, **given))
    assert_like_jax(compiled(A, WEIGHTS[0]), theirs)


def test_what_is_refused() -> None:
    given: dict[str, Any] = {"method": "inverted_cdf"}
    with pytest.raises(UnsupportedError, match="weights"):
        snp.quantile(A, 0.3, weights=WEIGHTS)
    for weights in (WEIGHTS[0], WEIGHTS * 1j):
        with pytest.raises(ArgumentValueError, match="weights"):
            snp.quantile(A, 0.3, weights=weights, **given)
    with pytest.raises(ArgumentValueError, match="complex"):
        snp.quantile(A * 1j, 0.3)
