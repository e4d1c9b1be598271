"""lax.reduce_window against JAX: sizes, strides, dilations, paddings, monoids, derivatives."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax import lax
from stax.errors import ArgumentValueError
from tests.like_jax import assert_like_jax

NAMES = {"add": 0.0, "max": -math.inf, "min": math.inf, "mul": 1.0}


def values(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


@st.composite
def windows(draw: Any) -> Any:
    """Draw the shape of an array and windows over it."""
    ndim = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=ndim, max_size=ndim)))
    parts = [tuple(draw(st.lists(small, min_size=ndim, max_size=ndim))) for _ in range(4)]
    explicit = st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=ndim, max_size=ndim
    )
    padding = draw(st.one_of(st.sampled_from(["SAME", "VALID", "SAME_LOWER"]), explicit))
    sizes, strides, base, dilation = parts
    return shape, (sizes, strides, padding, base, dilation)


@given(windows(), st.sampled_from(sorted(NAMES)), st.integers(0, 99))
@settings(max_examples=20)
def test_reduce_window(case: Any, name: str, seed: int) -> None:
    shape, rest = case
    x, init = values(shape, seed), np.float32(NAMES[name])
    theirs = jax.lax.reduce_window(x, init, getattr(jax.lax, name), *rest)

    def ours(x: Any) -> Any:
        return lax.reduce_window(x, init, getattr(lax, name), *rest)

    assert_like_jax(ours(x), theirs)
    assert_like_jax(stax.jit(ours)(x), theirs)


@given(windows(), st.sampled_from(["add", "max", "min"]), st.integers(0, 99))
@settings(max_examples=10)
def test_derivatives(case: Any, name: str, seed: int) -> None:
    shape, (sizes, strides, padding, _, _) = case
    x, init = values(shape, seed), NAMES[name]

    def ours(x: Any) -> Any:
        return lax.reduce_window(x, init, getattr(lax, name), sizes, strides, padding)

    def theirs(x: Any) -> Any:
        return jax.lax.reduce_window(x, init, getattr(jax.lax, name), sizes, strides, padding)

    out, back = jax.jit(functools.partial(jax.vjp, theirs))(x)
    ct = values(out.shape, seed + 1)
    # Windows that lie in the padding alone have no element to give the derivative to.
    ct = np.where(np.isfinite(out), ct, 0)
    assert_like_jax(tuple(stax.vjp(ours, x)[1](ct)), jax.jit(back)(ct))


@pytest.mark.parametrize("size", [17, 31, 32])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 2)])
def test_long_windows(size: int, stride: int, dilation: int) -> None:
    x = values((2, 90))
    rest = ((1, size), (1, stride), "VALID", None, (1, dilation))
    theirs = jax.lax.reduce_window(x, 0.0, jax.lax.add, *rest)
    assert_like_jax(stax.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, *rest))(x), theirs)


def test_a_monoid_of_two_arrays() -> None:
    x, places = values((4, 9)), np.arange(36, dtype=np.int32).reshape(4, 9)
    inits = (np.float32(-np.inf), np.int32(-1))

    def first_largest(left: Any, right: Any) -> Any:
        wins = left[0] >= right[0]
        where = jnp.where if isinstance(wins, jax.Array) else stax.numpy.where
        return where(wins, left[0], right[0]), where(wins, left[1], right[1])

    rest = ((2, 3), (2, 2), "SAME")
    theirs = jax.lax.reduce_window((x, places), inits, first_largest, *rest)
    assert_like_jax(lax.reduce_window((x, places), inits, first_largest, *rest), theirs)


def test_dtypes_and_an_initial_value() -> None:
    for dtype in ("int32", "uint8", "bfloat16", "float16"):
        x = values((6, 5)).astype(jnp.dtype(dtype))
        init = np.asarray(3).astype(x.dtype)
        for name in ("add", "max"):
            ours = lax.reduce_window(x, init, getattr(lax, name), (2, 2), (1, 1), "SAME")
            theirs = jax.lax.reduce_window(x, init, getattr(jax.lax, name), (2, 2), (1, 1), "SAME")
            assert_like_jax(ours, theirs, 1e-2)


@given(windows())
@settings(max_examples=20)
def test_shape(case: Any) -> None:
    shape, (sizes, strides, padding, base, dilation) = case
    pads = [(1, 2)] * len(shape) if isinstance(padding, str) else padding
    args = (shape, sizes, strides, pads, base, dilation)
    theirs = jax._src.lax.windowed_reductions.reduce_window_shape_tuple(*args)
    assert lax.reduce_window_shape_tuple(*args) == theirs


@pytest.mark.parametrize(
    ("rest", "message"),
    [(((2,),), "do not fit"), (((2, 0),), "do not fit"), (((2, 2), None, "FULL"), "'VALID'")],
)
def test_what_is_refused(rest: Any, message: str) -> None:
    with pytest.raises(ArgumentValueError, match=message):
        lax.reduce_window(values((3, 3)), 0.0, lax.add, *rest)
