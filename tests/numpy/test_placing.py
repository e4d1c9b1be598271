"""put, place, fill_diagonal, piecewise, trim_zeros and packed bits against JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, UnsupportedError
from tests.like_jax import assert_like_jax


def check(use: Any, *args: Any) -> None:
    """Compare what `use` does with a library, eager and compiled, with what it does with JAX."""
    theirs = jax.jit(lambda *xs: use(jnp, *xs))(*args)
    assert_like_jax(use(snp, *args), theirs, 1e-6)
    assert_like_jax(stax.jit(lambda *xs: use(snp, *xs))(*args), theirs, 1e-6)


X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("mode", [None, "clip", "wrap"])
@pytest.mark.parametrize("values", [np.array([1.0, 2.0]), np.arange(20.0)])
def test_put(mode: str | None, values: np.ndarray) -> None:
    places = np.array([[0, 14], [-2, 3]], np.int32)
    check(lambda np_, x, i, v: np_.put(x, i, v, mode, inplace=False), X, places, values)


place_of_jax = jax.jit(lambda *args: jnp.place(*args, inplace=False))


@given(st.lists(st.booleans(), min_size=12, max_size=12), st.sampled_from([1, 3, 20]))
@settings(max_examples=15)
def test_place(mask: list[bool], count: int) -> None:
    held, values = np.array(mask).reshape(3, 4), -np.arange(1.0, count + 1, dtype=np.float32)
    ours = snp.place(X, held, values, inplace=False)
    assert_like_jax(ours, place_of_jax(X, held, values))


def test_place_compiled() -> None:
    held = np.arange(12).reshape(3, 4) % 3 == 0
    check(lambda np_, x, m: np_.place(x, m, np.array([5.0, 6.0]), inplace=False), X, held)


@pytest.mark.parametrize("shape", [(3, 4), (5, 2), (3, 3, 3)])
@pytest.mark.parametrize("value", [np.float32(9), np.array([8, 7], np.float32)])
def test_fill_diagonal(shape: tuple[int, ...], value: Any) -> None:
    check(lambda np_, x, v: np_.fill_diagonal(x, v, inplace=False), np.zeros(shape, "f"), value)


def test_piecewise() -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32).reshape(3, 3)

    def use(np_: Any, x: Any) -> Any:
        return np_.piecewise(x, [x < 0, x > 1], [np_.sin, lambda v: v * 2, 7])

    check(use, x)
    check(lambda np_, x: np_.piecewise(x, [x < 0], [lambda v, k, s=1: v * k + s], 3, s=2), x)
    check(lambda np_, x: np_.piecewise(x, [x < 1, x < 0], [1, 2]), x)
    slope = stax.grad(lambda x: use(snp, x).sum())(x)
    np.testing.assert_allclose(slope, np.where(x < 0, np.cos(x), np.where(x > 1, 2, 0)), rtol=1e-6)


def test_mask_indices() -> None:
    ours, theirs = snp.mask_indices(4, snp.triu, 1), jnp.mask_indices(4, jnp.triu, 1)
    assert_like_jax(ours, theirs)
    assert_like_jax(snp.mask_indices(3, snp.tril, size=4), jnp.mask_indices(3, jnp.tril, size=4))


@pytest.mark.parametrize("trim", ["fb", "F", "b", ""])
def test_trim_zeros(trim: str) -> None:
    for x in (np.array([0, 0, 1, 0, 2, 0]), np.zeros(3), np.array([1.0, 2.0])):
        assert_like_jax(snp.trim_zeros(x, trim), jnp.trim_zeros(x, trim))
    x = np.zeros((4, 5), np.float32)
    x[1, 2] = x[2, 1] = 1
    for axis in (None, 0, (1,), (0, 1)):
        assert_like_jax(snp.trim_zeros(x, trim, axis), jnp.trim_zeros(x, trim, axis))


@pytest.mark.parametrize("bitorder", ["big", "little"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_packed_bits(axis: int | None, bitorder: str) -> None:
    rng = np.random.default_rng(0)
    for dtype in ("bool", "int32"):
        x = rng.integers(0, 2, (3, 11)).astype(dtype)
        check(lambda np_, x: np_.packbits(x, axis, bitorder), x)
    packed = rng.integers(0, 256, (2, 3)).astype(np.uint8)
    for count in (None, 5, 40, -3):
        check(lambda np_, x, n=count: np_.unpackbits(x, axis, n, bitorder), packed)


EDGES = np.array([-2.0, -0.5, 0.0, 1.0, 2.5], np.float32)


@pytest.mark.parametrize(
    ("bins", "density", "weighted"),
    [(4, None, False), ([3, 5], True, True), ([EDGES, 4], True, False)],
)
def test_histogram2d(bins: Any, density: bool | None, weighted: bool) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 40)).astype(np.float32)
    w = rng.random(40).astype(np.float32) if weighted else None

    def use(np_: Any, x: Any, y: Any) -> Any:
        return np_.histogram2d(x, y, bins, None, w, density)

    right = jax.jit(lambda *xs: tuple(use(jnp, *xs)))(x, y)
    assert_like_jax(tuple(use(snp, x, y)), right, 2e-6)
    compiled = stax.jit(lambda *xs: use(snp, *xs)[0])(x, y)
    np.testing.assert_allclose(compiled, right[0], 1e-5)


def test_histogramdd() -> None:
    sample = np.random.default_rng(2).normal(size=(50, 3)).astype(np.float32)
    for options in ({"bins": 3}, {"bins": (2, 3, 4), "range": [(-1, 1), None, (-2, 0.5)]}):
        ours = snp.histogramdd(sample, **options)
        theirs = jax.jit(lambda x, o=options: jnp.histogramdd(x, **o))(sample)
        assert_like_jax(ours[0], theirs[0])
        for a, b in zip(ours[1], theirs[1], strict=True):
            assert_like_jax(a, b, 2e-6)


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x: snp.put(x, 0, 1), ArgumentValueError, "inplace=False"),
        (lambda x: snp.put(x, 0, 1, "raise", inplace=False), ArgumentValueError, "'clip'"),
        (lambda x: snp.place(x, x[0] > 0, 1, inplace=False), ArgumentValueError, "do not go with"),
        (lambda x: snp.fill_diagonal(x, 1, True, inplace=False), UnsupportedError, "wrap"),
        (lambda x: snp.fill_diagonal(x[0], 1, inplace=False), ArgumentValueError, "diagonal"),
        (lambda x: snp.piecewise(x, [x > 0], [1, 2, 3]), ArgumentValueError, "3 functions"),
        (lambda x: snp.trim_zeros(x, "x"), ArgumentError, "what to trim"),
        (lambda x: snp.packbits(x), DTypeError, "truth values"),
        (lambda x: snp.packbits(x > 0, bitorder="up"), ArgumentValueError, "'little'"),
        (lambda x: snp.unpackbits(x), DTypeError, "bytes"),
        (lambda x: snp.histogramdd(x, bins=[1, 2]), ArgumentValueError, "2 entries for 4 axes"),
        (lambda x: snp.histogramdd(x[0]), ArgumentValueError, "is a matrix"),
    ],
)
def test_what_is_refused(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use(X)
