"""Sorting, searching and quantiles, against NumPy and jax.numpy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from tests.like_jax import assert_like_jax
from tests.like_numpy import compared

numbers = st.sampled_from([np.nan, -np.inf, np.inf, -2.0, -1.0, 0.0, 0.5, 1.0, 3.0])


@settings(max_examples=50)
@given(values=st.lists(numbers, max_size=12), descending=st.booleans())
def test_sort_and_argsort(values: list[float], descending: bool) -> None:
    x = np.array(values, np.float32)
    key = np.where(np.isnan(x), np.inf, x)
    nans = np.isnan(x)
    order = np.lexsort((np.arange(len(x)), -key, ~nans) if descending else (key, nans))
    np.testing.assert_array_equal(snp.argsort(x, descending=descending), order)
    np.testing.assert_array_equal(snp.sort(x, descending=descending), x[order])


@settings(max_examples=60)
@given(
    a=st.lists(numbers, min_size=1, max_size=9),
    v=st.lists(numbers, min_size=1, max_size=5),
    side=st.sampled_from(["left", "right"]),
)
def test_searchsorted(a: list[float], v: list[float], side: str) -> None:
    x, y = np.sort(np.array(a, np.float32)), np.array(v, np.float32)
    np.testing.assert_array_equal(snp.searchsorted(x, y, side), np.searchsorted(x, y, side))


COMPLEX = np.array([1 + 2j, complex(np.nan, 1), 0, 1 - 1j, complex(1, np.nan), 3], np.complex64)


@pytest.mark.parametrize("transform", ["eager", "jit"])
def test_places_among_complex_numbers(transform: str) -> None:
    calls = {
        "searchsorted": lambda np_, side: np_.searchsorted(np_.sort(COMPLEX), COMPLEX, side),
        "digitize": lambda np_, side: np_.digitize(
            COMPLEX[2:4], np.float32([0, 1]), side == "left"
        ),
        "sort": lambda np_, side: np_.sort(COMPLEX, descending=side == "left"),
        "interp": lambda np_, side: np_.interp(
            np.float32([-1, 0.5, 9]), np.arange(3), COMPLEX[2:5]
        ),
        "histogram": lambda np_, side: np_.histogram(COMPLEX[2:4], np.float32([0, 1, 2])),
    }
    for call in calls.values():
        for side in ("left", "right"):
            wrap = stax.jit if transform == "jit" else lambda f: f
            ours = wrap(lambda side=side, call=call: call(snp, side))()
            assert_like_jax(ours, call(jnp, side))


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "float32", "bfloat16", "bool"])
def test_sort_over_axes(axis: int | None, dtype: str) -> None:
    x = (np.random.default_rng(0).integers(0, 5, (3, 4)) % (2 if dtype == "bool" else 9)).astype(
        jnp.dtype(dtype)
    )
    np.testing.assert_array_equal(snp.sort(x, axis), np.sort(x, axis))
    assert_like_jax(snp.argsort(x, axis), jnp.argsort(x, axis))


@pytest.mark.parametrize("method", ["linear", "lower", "higher", "midpoint", "nearest"])
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_quantile(method: str, axis: Any) -> None:
    x = np.random.default_rng(2).normal(size=(4, 5)).astype(np.float32)
    for q in (np.float32(0.3), np.array([0.0, 0.5, 1.0], np.float32)):
        for keepdims in (False, True):
            ours = snp.quantile(x, q, axis, method=method, keepdims=keepdims)
            theirs = np.quantile(x, q, axis, method=method, keepdims=keepdims)
            np.testing.assert_allclose(ours, theirs, rtol=1e-5)
            assert ours.shape == theirs.shape


def test_percentile_and_nan() -> None:
    x = np.array([1.0, 2.0, 4.0], np.float32)
    assert_like_jax(snp.percentile(x, 25), jnp.percentile(x, 25), 1e-6)
    assert np.isnan(snp.median(np.array([1.0, np.nan])))
    assert_like_jax(snp.median(np.array([1, 2, 4])), jnp.median(np.array([1, 2, 4])))


def test_lexsort_digitize_and_partition() -> None:
    keys = np.array([[1, 0, 1, 0], [3, 2, 1, 2]])
    compared("lexsort", keys)
    bins = np.array([0.0, 1.0, 2.5], np.float32)
    x = np.array([-1.0, 0.0, 0.5, 2.5, 9.0], np.float32)
    for right in (False, True):
        np.testing.assert_array_equal(snp.digitize(x, bins, right), np.digitize(x, bins, right))
        down = bins[::-1]
        np.testing.assert_array_equal(snp.digitize(x, down, right), np.digitize(x, down, right))
    assert snp.partition(x, 2)[2] == np.sort(x)[2]


def test_gradients() -> None:
    x = np.array([3.0, 1.0, 2.0], np.float32)
    weight = np.array([1.0, 10.0, 100.0], np.float32)
    ours = stax.grad(lambda v: (snp.sort(v) * weight).sum())(snp.array(x))
    assert_like_jax(ours, jax.grad(lambda v: (jnp.sort(v) * weight).sum())(x))
    ours = stax.grad(lambda v: snp.quantile(v, 0.3))(snp.array(x))
    assert_like_jax(ours, jax.grad(lambda v: jnp.quantile(v, 0.3))(x), 1e-6)


def test_arguments_that_have_no_meaning_here() -> None:
    x = np.arange(4.0)
    with pytest.raises(TypeError, match="sort: kind"):
        snp.sort(x, kind="quicksort")
    with pytest.raises(TypeError, match="argsort: order"):
        snp.argsort(x, order="field")
    with pytest.raises(ValueError, match="no element number 4"):
        snp.partition(x, 4)
