"""Gathers and scatters as users call them: every dtype and mode, compiled, against JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax import lax, numpy as snp
from tests.like_jax import assert_like_jax
from tests.operators.test_index import problems

DTYPES = ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"]
KINDS = ["scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"]
MODES = ["clip", "fill", "promise_in_bounds", None]


def values(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Return small integers in a dtype, whose sums and products are exact."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 4, shape)
    if dtype == "complex64":
        return (x + 1j * rng.integers(-2, 3, shape)).astype(np.complex64)
    return (x > 0) if dtype == "bool" else np.abs(x).astype(jnp.dtype(dtype))


def inside(problem: Any) -> np.ndarray:
    shape, indices, sizes, numbers = problem
    return np.clip(indices, 0, [shape[a] - sizes[a] for a in numbers[2]]).astype(indices.dtype)


@given(problems(), st.sampled_from(MODES), st.sampled_from(DTYPES))
@settings(max_examples=15)
def test_gather(problem: Any, mode: str | None, dtype: str) -> None:
    shape, indices, sizes, numbers = problem
    indices = inside(problem) if mode in (None, "promise_in_bounds") else indices
    x = values(shape, dtype)
    theirs = jax.lax.gather(
        jnp.asarray(x), indices, jax.lax.GatherDimensionNumbers(*numbers), sizes, mode=mode
    )

    def ours(x: Any, i: Any) -> Any:
        return lax.gather(x, i, lax.GatherDimensionNumbers(*numbers), sizes, mode=mode)

    assert_like_jax(stax.jit(ours)(x, indices), theirs)


@given(
    problems(),
    st.sampled_from(MODES),
    st.sampled_from(KINDS),
    st.sampled_from(DTYPES),
    st.sampled_from(["int32", "int8", "uint8", "uint32"]),
)
@settings(max_examples=25)
def test_scatter(problem: Any, mode: str | None, kind: str, dtype: str, of: str) -> None:
    shape, indices, sizes, numbers = problem
    indices = (inside(problem) if mode == "promise_in_bounds" else indices).astype(of)
    if dtype == "bool" and kind not in ("scatter", "scatter_min", "scatter_max"):
        return
    if dtype == "complex64" and kind in ("scatter_min", "scatter_max"):
        return
    x, axes = values(shape, dtype), lax.ScatterDimensionNumbers(*numbers)
    windows = lax.gather(x, indices, lax.GatherDimensionNumbers(*numbers), sizes, mode="clip")
    updates = values(windows.shape, dtype, 1)
    theirs = getattr(jax.lax, kind)(
        jnp.asarray(x), indices, updates, jax.lax.ScatterDimensionNumbers(*numbers), mode=mode
    )

    def ours(x: Any, i: Any, u: Any) -> Any:
        return getattr(lax, kind)(x, i, u, axes, mode=mode)

    assert_like_jax(ours(x, indices, updates), theirs, 1e-2)
    assert_like_jax(stax.jit(ours)(x, indices, updates), theirs, 1e-2)


def twice(x: Any) -> Any:
    return x * 2 + 1


X = np.arange(1, 7, dtype=np.float32)


@pytest.mark.parametrize(
    "index",
    [np.array([0, 0, 1, 5, 5, 5, 9, -1]), slice(1, 3), np.array([[0], [2]]), 3, np.array([2, 3])],
    ids=str,
)
@pytest.mark.parametrize("mode", [None, "clip"])
def test_apply_counts_repetitions(index: Any, mode: str | None) -> None:
    theirs = jnp.asarray(X).at[index].apply(twice, mode=mode)
    assert_like_jax(snp.asarray(X).at[index].apply(twice, mode=mode), theirs)
    assert_like_jax(stax.jit(lambda x: x.at[index].apply(twice, mode=mode))(X), theirs)
    if not isinstance(index, slice):
        traced = stax.jit(lambda x, i: x.at[i].apply(twice, mode=mode))(X, index)
        assert_like_jax(traced, theirs)


def test_scatter_apply() -> None:
    numbers, indices = ((1,), (), (0,)), np.array([[0], [1], [1], [9]])
    theirs = jax.lax.scatter_apply(
        jnp.asarray(X), jnp.asarray(indices), twice, jax.lax.ScatterDimensionNumbers(*numbers),
        update_shape=(4, 3),
    )  # fmt: skip

    def ours(x: Any, i: Any) -> Any:
        axes = lax.ScatterDimensionNumbers(*numbers)
        return lax.scatter_apply(x, i, twice, axes, update_shape=(4, 3))

    assert_like_jax(ours(X, indices), theirs)
    assert_like_jax(stax.jit(ours)(X, indices), theirs)


def test_apply_has_derivatives_and_takes_many_indices() -> None:
    index = np.array([0, 0, 3])
    slope = stax.grad(lambda x: x.at[index].apply(lambda v: v * v).sum())(X)
    np.testing.assert_allclose(slope, [4, 1, 1, 8, 1, 1])
    many = np.arange(20) % 6
    theirs = jnp.asarray(X).at[many].apply(twice)
    assert_like_jax(stax.jit(lambda x, i: x.at[i].apply(twice))(X, many), theirs)
    shift = snp.asarray(X[:1])
    ours = stax.jit(lambda x, i, s: x.at[i].apply(lambda v: v + s))(X, many, shift)
    assert_like_jax(ours, jnp.asarray(X).at[many].apply(lambda v: v + X[0]))
    ours = stax.jit(lambda x, i: x.at[i].apply(twice, unique_indices=True))(X, many[:6])
    assert_like_jax(ours, jnp.asarray(twice(X)))


def test_index_take_and_shapes_as_values() -> None:
    x = values((3, 4, 2), "float32")
    pair = np.array([2, -1]), np.array([0, 5])
    for places, axes in (((np.array([0, -1, 7]),), (1,)), (pair, (0, 1))):
        theirs = jax.lax.index_take(jnp.asarray(x), tuple(map(jnp.asarray, places)), axes)
        assert_like_jax(lax.index_take(x, places, axes), theirs)
    for shape in ((3, 4), ()):
        np.testing.assert_array_equal(lax.shape_as_value(shape), jax.lax.shape_as_value(shape))
    length = stax.jit(lambda x: lax.shape_as_value(x.shape), dynamic={"x": {0: "n"}})
    assert length(x).tolist() == [3, 4, 2]


@pytest.mark.parametrize("index", [-1, np.array([-1, 1]), (np.array([0, 1]), -1)], ids=str)
def test_negative_indices_that_do_not_wrap(index: Any) -> None:
    x, options = values((3, 4), "float32"), {"wrap_negative_indices": False}
    ours, theirs = snp.asarray(x).at[index], jnp.asarray(x).at[index]
    for mode in (None, "clip", "fill"):
        for method in ("set", "add"):
            expected = getattr(theirs, method)(9.0, mode=mode, **options)
            assert_like_jax(getattr(ours, method)(9.0, mode=mode, **options), expected)
        if isinstance(index, np.ndarray):
            assert_like_jax(ours.get(mode=mode, **options), theirs.get(mode=mode, **options))


def test_a_traced_negative_index_that_does_not_wrap() -> None:
    x, options = values((3, 4), "float32"), {"wrap_negative_indices": False}
    ours = stax.jit(lambda x, i: x.at[i].set(9.0, **options))(x, -1)
    assert_like_jax(ours, jnp.asarray(x))
