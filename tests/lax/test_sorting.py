"""lax.sort, top_k and their kin against JAX: several operands and keys, dtypes, long rows."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax import lax
from stax.config import config
from stax.errors import ArgumentValueError, DTypeError
from tests.like_jax import assert_like_jax

DTYPES = ["float32", "int32", "int8", "uint16", "float16", "bfloat16", "bool", "float64", "int64"]


def rows(shape: tuple[int, ...], dtype: str, style: str) -> np.ndarray:
    """Return numbers that are in any order, in rising order, or tie."""
    x = np.random.default_rng(0).normal(size=shape) * 50
    x = {"any": lambda: x, "rising": lambda: np.sort(x, -1), "ties": lambda: np.round(x / 40)}[
        style
    ]()
    if dtype == "bool":
        return x > 0
    return ((np.abs(x) if dtype[0] == "u" else x) + 0.0).astype(jnp.dtype(dtype))


def same(ours: Any, theirs: Any) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert_like_jax(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k(dtype: str) -> None:
    cases = [
        ((7,), 3, "any"),
        ((3, 300), 7, "ties"),
        ((2, 900), 5, "rising"),
        ((2, 17), 17, "ties"),
    ]
    with config.override(enable_x64=True), jax.enable_x64(True):
        for shape, k, style in cases:
            x = rows(shape, dtype, style)
            theirs = jax.lax.top_k(jnp.asarray(x), k)
            same(lax.top_k(x, k), theirs)
            same(stax.jit(lambda x, k=k: lax.top_k(x, k))(x), theirs)


@pytest.mark.parametrize(
    ("shape", "k"), [((1, 24), 5), ((3, 25), 5), ((2, 5000), 700), ((1, 3000), 1), ((2, 500), 499)]
)
@pytest.mark.parametrize("style", ["any", "rising", "ties"])
def test_top_k_of_long_rows(shape: tuple[int, ...], k: int, style: str) -> None:
    x = rows(shape, "float32", style)
    x.flat[3] = np.nan
    values, places = stax.jit(lambda x: lax.top_k(x, k))(x)
    order = np.argsort(np.where(np.isnan(x), -np.inf, -x), axis=-1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))


def test_top_k_along_axes_with_derivatives_and_maps() -> None:
    x, w = rows((4, 5, 3), "float32", "any"), rows((4, 2, 3), "float32", "ties")
    same(lax.top_k(x, 2, axis=1), jax.lax.top_k(x, 2, axis=1))
    ours = stax.jit(stax.grad(lambda x: (lax.top_k(x, 2, axis=1)[0] * w).sum()))(x)
    theirs = jax.jit(jax.grad(lambda x: (jax.lax.top_k(x, 2, axis=1)[0] * w).sum()))(x)
    assert_like_jax(ours, theirs)
    tangent = stax.jvp(lambda x: lax.top_k(x, 2)[0], (x,), (x * 2,))[1]
    push = jax.jit(lambda x, t: jax.jvp(lambda x: jax.lax.top_k(x, 2)[0], (x,), (t,))[1])
    assert_like_jax(tangent, push(x, x * 2))
    same(stax.vmap(lambda x: lax.top_k(x, 2, axis=0))(x), jax.lax.top_k(x, 2, axis=1))
    assert [y.shape for y in lax.top_k(x, 0)] == [(4, 5, 0), (4, 5, 0)]
    only_places = stax.jit(lambda x: lax.top_k(x, 2)[1])(x)
    assert_like_jax(only_places, jax.lax.top_k(x, 2)[1])
    with pytest.raises(ArgumentValueError, match="not 4 elements"):
        lax.top_k(x, 4)


def test_approximate_selections_are_exact() -> None:
    x = rows((3, 40), "float32", "any")
    for name in ("approx_max_k", "approx_min_k"):
        ours = stax.jit(lambda x, n=name: getattr(lax, n)(x, 3))(x)
        same(ours, getattr(jax.lax, name)(x, 3))
        same(getattr(lax, name)(x, 2, 0), getattr(jax.lax, name)(x, 2, 0))
        every = getattr(lax, name)(x, 3, aggregate_to_topk=False)
        same(every, getattr(jax.lax, name)(x, 3, aggregate_to_topk=False))
        with pytest.raises(DTypeError, match="floats"):
            getattr(lax, name)(np.arange(4), 2)


@given(
    st.lists(st.sampled_from(["float32", "int32", "bool"]), min_size=1, max_size=4),
    st.integers(1, 4),
    st.sampled_from([0, 1, -1]),
    st.integers(0, 9),
)
@settings(max_examples=15)
def test_sort_of_several(dtypes: list[str], num_keys: int, dimension: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs = [rng.integers(-1, 2, (4, 5)).astype(d) for d in dtypes]
    keys = min(num_keys, len(xs))

    def ours(*xs: Any) -> Any:
        return lax.sort(xs, dimension=dimension, num_keys=keys)

    theirs = jax.lax.sort(tuple(map(jnp.asarray, xs)), dimension=dimension, num_keys=keys)
    same(ours(*xs), theirs)
    same(stax.jit(ours)(*xs), theirs)


@pytest.mark.parametrize("dtype", ["float32", "int8", "bfloat16", "bool"])
@pytest.mark.parametrize("descending", [False, True])
def test_argsort_of_all_dtypes(dtype: str, descending: bool) -> None:
    with config.override(enable_x64=True), jax.enable_x64(True):
        x = rows((3, 60), dtype, "ties")

        def places(np_: Any, x: Any) -> Any:
            return np_.argsort(x, axis=1, descending=descending, stable=True)

        theirs = places(jnp, jnp.asarray(x))
        assert_like_jax(stax.jit(lambda x: places(stax.numpy, x))(x), theirs)
        sort = stax.jit(lambda x: stax.numpy.sort(x, axis=1, descending=descending))
        assert_like_jax(sort(x), jnp.sort(jnp.asarray(x), axis=1, descending=descending))


def test_derivatives_of_sort() -> None:
    x, y = rows((4, 6), "float32", "any"), rows((4, 6), "float32", "ties")

    def loss(library: Any) -> Any:
        def function(x: Any, y: Any) -> Any:
            a, b = library.lax.sort((x, y), dimension=0, num_keys=1)
            return (a * a * b).sum()

        return function

    ours = stax.jit(stax.grad(loss(stax), (0, 1)))(x, y)
    assert_like_jax(tuple(ours), jax.jit(jax.grad(loss(jax), (0, 1)))(x, y), 1e-6)


@pytest.mark.parametrize("axes", [{0: "n"}, {1: "m"}, {0: "n", 1: "m"}])
def test_lengths_that_stay_open(axes: dict[int, str]) -> None:
    def program(x: Any) -> Any:
        both = stax.numpy.sort(x, 0), stax.numpy.argsort(x, 1)
        return (*both, *lax.top_k(x, 2), lax.cumsum(x, 0), lax.cummax(x, 1, reverse=True))

    jitted = stax.jit(program, dynamic={"x": axes})
    for n in (3, 70):
        x = rows(tuple(n if a in axes else 9 for a in (0, 1)), "float32", "ties")
        same(jitted(x), program(x))
    assert len(jitted.variants()) == 1
