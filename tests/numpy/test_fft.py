"""Fourier transforms against NumPy, with JAX's dtypes; and their gradients against JAX's."""

import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError, DTypeError, ShapeError

RNG = np.random.default_rng(9)
REAL = RNG.normal(size=(3, 6, 5)).astype("float32")
COMPLEX = (REAL + 1j * REAL[::-1]).astype("complex64")
OF_REAL = {"rfft", "ihfft", "rfftn", "rfft2"}
ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2")


@pytest.fixture(autouse=True)
def _no_fallback() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", stax.errors.FallbackWarning)
        yield


def operand(name: str) -> np.ndarray:
    return REAL if name in OF_REAL else COMPLEX


def assert_like_numpy(name: str, x: np.ndarray, *args: Any, **kwargs: Any) -> None:
    """Compare one function, eager and compiled; NumPy computes in double precision."""
    expected = getattr(np.fft, name)(
        x.astype("complex128" if x.dtype.kind == "c" else "f8"), *args, **kwargs
    )
    dtype = "float32" if expected.dtype.kind == "f" else "complex64"

    def apply(v: Any) -> Any:
        return getattr(snp.fft, name)(v, *args, **kwargs)

    for run in (apply, stax.jit(apply)):
        found = np.asarray(run(x))
        assert (found.dtype, found.shape) == (np.dtype(dtype), expected.shape)
        np.testing.assert_allclose(found, expected, atol=2e-6 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("n", [None, 4, 7])
@pytest.mark.parametrize("name", ONE)
def test_one_axis(name: str, n: int | None) -> None:
    for axis, norm in ((-1, None), (0, "ortho"), (1, "forward"), (2, "backward")):
        assert_like_numpy(name, operand(name), n, axis, norm)


@pytest.mark.parametrize("name", SEVERAL)
def test_several_axes(name: str) -> None:
    assert_like_numpy(name, operand(name))
    assert_like_numpy(name, operand(name), (4, 8), (1, 0), "ortho")


def test_real_operands_of_complex_transforms() -> None:
    for name in ("fft", "ifft2", "irfft", "hfft"):
        assert_like_numpy(name, REAL)
    assert snp.fft.fft(np.arange(3)).dtype == jnp.fft.fft(jnp.arange(3)).dtype
    assert snp.fft.rfft(np.arange(3) > 1).dtype == "complex64"


@pytest.mark.parametrize("name", ["fft", "rfft", "irfft", "ihfft", "irfft2"])
def test_gradients(name: str) -> None:
    x, weights = operand(name)[0], np.arange(1, 100, dtype="float32")

    def loss(m: Any) -> Any:
        def value(v: Any) -> Any:
            y = m.abs(getattr(m.fft, name)(v)) ** 2
            return m.sum(y * weights[: y.size].reshape(y.shape))

        return value

    expected = jax.jit(jax.grad(loss(jnp)))(x)
    for grad in (stax.grad(loss(snp)), stax.jit(stax.grad(loss(snp)))):
        found = np.asarray(grad(x))
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


def test_a_batch_is_a_loop() -> None:
    mapped = stax.jit(stax.vmap(lambda v: snp.fft.irfft(snp.fft.rfft(v, axis=0) * 2j, axis=0)))
    expected = np.fft.irfft(np.fft.rfft(REAL, axis=1) * 2j, axis=1)
    np.testing.assert_allclose(np.asarray(mapped(REAL)), expected, atol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_frequencies_and_shifts(n: int) -> None:
    for ours, theirs in (
        (snp.fft.fftfreq(n, 0.5), jnp.fft.fftfreq(n, 0.5)),
        (snp.fft.rfftfreq(n), jnp.fft.rfftfreq(n)),
        (snp.fft.fftfreq(n, dtype="float16"), jnp.fft.fftfreq(n, dtype="float16")),
    ):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    x = np.arange(3.0 * n, dtype="float32").reshape(3, n)
    for axes in (None, 0, (0, 1)):
        shifted = snp.fft.fftshift(x, axes)
        np.testing.assert_array_equal(np.asarray(shifted), np.fft.fftshift(x, axes))
        np.testing.assert_array_equal(np.asarray(snp.fft.ifftshift(shifted, axes)), x)


def test_errors() -> None:
    with pytest.raises(DTypeError, match="real numbers"):
        snp.fft.rfft(COMPLEX)
    for call in (lambda: snp.fft.rfft(np.ones((2, 0))), lambda: snp.fft.fft(np.ones((2, 3)), 0)):
        with pytest.raises(ArgumentValueError, match="at least 1"):
            call()
    with pytest.raises(ArgumentValueError, match="differ in number"):
        snp.fft.fftn(REAL, (2,), (0, 1))
    with pytest.raises(ArgumentValueError, match="repeat"):
        snp.fft.fft2(REAL, axes=(0, 0))
    with pytest.raises(ArgumentValueError, match="scaling"):
        snp.fft.fft(REAL, norm="best")
    with pytest.raises(ShapeError, match="lengths"):
        stax.lax.fft(COMPLEX, stax.lax.FftType.FFT, (4,))
    with pytest.raises(ArgumentValueError, match="no kind"):
        stax.lax.fft(COMPLEX, "DCT", (5,))


@pytest.mark.parametrize("name", ["fft", "ifft", "irfft", "hfft", "fft2", "ifftn"])
def test_empty_axes_stay_empty(name: str) -> None:
    for norm in (None, "ortho"):
        ours, theirs = (getattr(np_.fft, name)(np.ones((3, 0)), norm=norm) for np_ in (snp, jnp))
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)


def test_lax_takes_kinds_by_name() -> None:
    for kind in ("fft", stax.lax.FftType.FFT, 0):
        found = stax.lax.fft(COMPLEX, kind, (6, 5))
        np.testing.assert_allclose(np.asarray(found), np.fft.fft2(COMPLEX), atol=1e-4)
