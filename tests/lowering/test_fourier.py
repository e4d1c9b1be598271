"""Compiled Fourier transforms against a wide reference: lengths, axes, kinds, loops, accuracy."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.lowering.fourier import RADICES, factors, twiddles
from stax.lowering.pipeline import lower_graph

KINDS = ["fftn", "ifftn", "rfftn", "irfftn"]
# Errors beside the largest value: a few roundings for each factor of the length.
CLOSE = {np.float32: 1.2e-6, np.float64: 3e-15}


def numbers(kind: str, shape: Any, dtype: Any, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape).astype(dtype)
    if kind == "rfftn":
        return x
    wide = np.complex64 if dtype == np.float32 else np.complex128
    return (x + 1j * rng.standard_normal(shape)).astype(wide)


def assert_transforms(kind: str, x: np.ndarray, axes: Any, dtype: Any) -> None:
    wide = np.complex128 if np.iscomplexobj(x) else np.float64
    expected = getattr(scipy.fft, kind)(x.astype(wide), axes=axes)
    with stax.enable_x64(dtype == np.float64):
        found = np.asarray(stax.jit(lambda x: getattr(snp.fft, kind)(x, axes=axes))(x))
    assert found.shape == expected.shape and found.dtype.itemsize * 2 >= x.dtype.itemsize
    assert np.abs(found - expected).max() <= CLOSE[dtype] * np.abs(expected).max()


@given(st.data())
@settings(max_examples=25)
def test_shapes_and_axes(data: Any) -> None:
    kind, dtype = data.draw(st.sampled_from(KINDS)), data.draw(st.sampled_from(list(CLOSE)))
    lengths = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 20, 33, 64, 100, 19])
    shape = data.draw(st.lists(lengths, min_size=1, max_size=3))
    axes = data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))]
    if kind == "irfftn" and shape[axes[-1]] == 1:
        shape[axes[-1]] = 2
    assert_transforms(kind, numbers(kind, shape, dtype), axes, dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "shape",
    [(1024,), (9, 1024), (3, 2048), (30030,), (1 << 16,), (2, 10007), (16, 4097), (17, 3000)],
)
def test_long_rows(kind: str, shape: tuple[int, ...]) -> None:
    assert_transforms(kind, numbers(kind, shape, np.float32), (len(shape) - 1,), np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize(
    "shape", [(9, 255), (323, 3), (2, 79, 5), (3, 83), (71,), (257, 6), (9, 458)]
)
def test_large_primes(kind: str, dtype: Any, shape: tuple[int, ...]) -> None:
    """Factors whose butterflies are loops, and those whose transforms are convolutions."""
    axes = tuple(a for a, n in enumerate(shape) if n > 9)
    assert_transforms(kind, numbers(kind, shape, dtype), axes, dtype)


def test_nothing_goes_back_to_python() -> None:
    def steps(x: Any) -> Any:
        def step(x: Any, _: Any) -> Any:
            return snp.fft.ifft2(snp.fft.fft2(x) * 2).real / 2, snp.fft.rfft(x[0])

        return lax.scan(step, x, None, length=3)

    x = np.random.default_rng(0).standard_normal((16, 23)).astype(np.float32)
    program = lower_graph(stax.make_graph(steps)(x))
    assert not program.host_steps
    last, rows = stax.jit(steps)(x)
    np.testing.assert_allclose(np.asarray(last), x, atol=1e-5)
    np.testing.assert_allclose(np.asarray(rows[0]), np.fft.rfft(x[0]), atol=1e-4)


def test_an_impulse_and_infinities() -> None:
    """What is exact stays exact; what is not finite spreads, and does not raise."""
    x = np.zeros((8, 16), np.complex64)
    x[:, 0] = 1
    np.testing.assert_array_equal(np.asarray(stax.jit(snp.fft.fft)(x)), np.ones((8, 16)))
    x[0, 3] = np.inf
    found = np.asarray(stax.jit(snp.fft.fft)(x))
    assert not np.isfinite(found[0]).any() and np.isfinite(found[1:]).all()


def test_repeated_runs_are_the_same() -> None:
    x = numbers("fftn", (200, 360), np.float32)
    first = np.asarray(stax.jit(snp.fft.fft2)(x))
    for _ in range(5):
        np.testing.assert_array_equal(np.asarray(stax.jit(snp.fft.fft2)(x)), first)


def test_derivatives_in_both_modes() -> None:
    x = numbers("rfftn", (12, 20), np.float32)

    def energy(x: Any) -> Any:
        return (snp.abs(snp.fft.rfft2(x)) ** 2).sum() + (snp.fft.irfft(x + 0j, 38) ** 3).sum()

    compiled = np.asarray(stax.jit(stax.grad(energy))(x))
    np.testing.assert_allclose(compiled, np.asarray(stax.grad(energy)(x)), rtol=1e-4, atol=1e-2)
    dot = numbers("rfftn", x.shape, np.float32, 1)
    slope = stax.jit(lambda x, t: stax.jvp(energy, (x,), (t,))[1])(x, dot)
    np.testing.assert_allclose(float(slope), float((compiled * dot).sum()), rtol=1e-3)


@given(st.integers(1, 5000))
def test_factors(n: int) -> None:
    found = factors(n)
    largest = max((p for p in range(2, n + 1) if n % p == 0 and is_prime(p)), default=1)
    assert (found is None) == (largest > RADICES[-1])
    assert found is None or math.prod(found) == n


def is_prime(p: int) -> bool:
    return all(p % d for d in range(2, math.isqrt(p) + 1))


def test_tables_are_as_exact_as_their_dtype() -> None:
    for n in (3, 8, 1000, 4096):
        table = np.asarray(twiddles(n, False, np.dtype("complex128")))[:n]
        k = np.arange(n)
        # Sums of squares are 1, and products of roots are roots.
        np.testing.assert_allclose((table**2).sum(-1), 1, rtol=0, atol=3e-16)
        roots = table[:, 0] + 1j * table[:, 1]
        np.testing.assert_allclose(roots[k] * roots[1], roots[(k + 1) % n], rtol=0, atol=4e-16)
