"""Convolutions of vectors, unwrapped phases and windows against JAX and NumPy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.numpy.convolution import SHORT
from tests.like_jax import TOLERANCES, assert_like_jax

RNG = np.random.default_rng(0)
LENGTHS = [(7, 4), (4, 7), (1, 3), (100, SHORT + 1), (SHORT + 1, 100), (300, 200)]


def vector(length: int, dtype: str = "float32") -> np.ndarray:
    if "int" in dtype or dtype == "bool":
        return RNG.integers(0, 5, length).astype(dtype)
    values = RNG.normal(size=length) + (1j * RNG.normal(size=length) if "complex" in dtype else 0)
    return values.astype(jnp.dtype(dtype))


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_lengths(name: str, mode: str) -> None:
    for first, second in LENGTHS:
        a, v = vector(first), vector(second)
        right = getattr(np, name)(a.astype(float), v.astype(float), mode)
        kind = jax.eval_shape(lambda a, v: getattr(jnp, name)(a, v, mode=mode), a, v)
        ours = getattr(snp, name)
        for found in (ours(a, v, mode), stax.jit(lambda a, v, f=ours: f(a, v, mode))(a, v)):
            assert (found.dtype, found.shape) == (kind.dtype, kind.shape)
            np.testing.assert_allclose(found, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int32", "float16", "bfloat16", "complex64"])
def test_dtypes(dtype: str) -> None:
    a, v = vector(9, dtype), vector(5, dtype)
    for name in ("convolve", "correlate"):
        ours, theirs = getattr(snp, name)(a, v), getattr(jnp, name)(a, v)
        assert_like_jax(ours, theirs, 2 * TOLERANCES.get(str(theirs.dtype), 0.0))
    if "int" in dtype:
        options = {"preferred_element_type": "int32"}
        assert_like_jax(snp.convolve(a, v, **options), jnp.convolve(a, v, **options))


@pytest.mark.parametrize("count", [4, SHORT + 8])
def test_gradients(count: int) -> None:
    a, v = vector(60), vector(count)

    def gradient(library: Any) -> Any:
        def loss(a: Any, v: Any) -> Any:
            return (library.numpy.convolve(a, v, mode="same") ** 2).sum()

        return library.grad(loss, (0, 1))(a, v)

    for ours, theirs in zip(gradient(stax), gradient(jax), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    mapped = stax.vmap(snp.convolve, (0, None))(np.stack([a, 2 * a]), v)
    np.testing.assert_allclose(mapped[1], 2 * np.convolve(a, v), rtol=1e-4, atol=1e-4)


def test_what_is_refused() -> None:
    for args in ((vector(3), vector(3), "half"), (vector(0), vector(3)), (np.ones((2, 2)), [1.0])):
        with pytest.raises((ValueError, TypeError)):
            snp.convolve(*args)


@pytest.mark.parametrize(
    "options", [{}, {"axis": 0}, {"discont": 3.0}, {"period": 4.0}, {"discont": 5.0, "period": 2.0}]
)
def test_unwrap(options: dict[str, Any]) -> None:
    p = (RNG.normal(size=(3, 9)) * 10).astype(np.float32)
    assert_like_jax(snp.unwrap(p, **options), jnp.unwrap(p, **options), 1e-5)
    numbers = np.array([0, 1, 2, -1, 0], np.int8)
    if "axis" not in options:
        assert_like_jax(snp.unwrap(numbers, **options), jnp.unwrap(numbers, **options), 1e-6)
    assert_like_jax(snp.unwrap(numbers, period=3), jnp.unwrap(numbers, period=3))
    with pytest.raises(ValueError, match="complex"):
        snp.unwrap(p * 1j)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 12])
def test_windows(count: int) -> None:
    names = ("bartlett", "blackman", "hamming", "hanning")
    found = [(getattr(snp, name)(count), getattr(np, name)(count)) for name in names]
    found += [(snp.kaiser(count, b), np.kaiser(count, b)) for b in (0.0, 14, np.float32(3))]
    for ours, right in found:
        assert ours.dtype == np.float32 and not ours.weak_type
        np.testing.assert_allclose(ours, right, rtol=2e-6, atol=1e-6)
