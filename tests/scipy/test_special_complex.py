"""Special functions of complex numbers, and spherical harmonics."""

from typing import Any

import jax
import numpy as np
import pytest
import scipy.special as sp

import stax
import stax.numpy as snp
from stax.config import config
from stax.errors import MissingRule, TracerIntegerConversionError, UnsupportedError
from stax.scipy import special
from tests.like_jax import assert_like_jax

# Off the negative real axis, where JAX's loggamma and SciPy's branch cuts lie.
Z = np.array([1 + 2j, -3 + 0.5j, 0.1 - 2j, 4, 0.5 + 9j, -0.7 - 0.2j, 2.5 + 0j])
EXACT = {"wofz": sp.wofz, "loggamma": sp.loggamma, "gamma": sp.gamma, "erfcx": sp.erfcx}


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("name", EXACT)
def test_values(name: str, dtype: Any) -> None:
    function, tolerance = getattr(special, name), 2e-7 if dtype == np.complex64 else 1e-14
    with config.override(enable_x64=dtype == np.complex128):
        z = Z.astype(dtype)
        exact = EXACT[name](z.astype(np.complex128))
        for found in (function(z), stax.jit(function)(z), stax.vmap(function)(z)):
            assert found.dtype == dtype
            np.testing.assert_allclose(np.asarray(found), exact, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wofz", "erfcx", "gamma"])
def test_values_of_jax(name: str) -> None:
    z = Z.astype(np.complex64)
    assert_like_jax(getattr(special, name)(z), getattr(jax.scipy.special, name)(z), 1e-5)


@pytest.mark.parametrize("name", EXACT)
def test_derivatives_are_difference_quotients(name: str) -> None:
    function, step = getattr(special, name), 1e-5
    with config.override(enable_x64=True):
        gradient = stax.vmap(stax.grad(function, holomorphic=True))
        for way in (1, 1j):
            ends = [EXACT[name](Z + sign * step * way) for sign in (1, -1)]
            quotient = (ends[0] - ends[1]) / (2 * step * way)
            for found in (gradient(Z), stax.jit(gradient)(Z)):
                np.testing.assert_allclose(np.asarray(found), quotient, rtol=1e-7)


def test_second_derivatives() -> None:
    with config.override(enable_x64=True):
        twice = stax.grad(stax.grad(special.wofz, holomorphic=True), holomorphic=True)
        z = 1 + 2j
        w = sp.wofz(z)
        expected = -2 * w - 2 * z * (-2 * z * w + 2j / np.sqrt(np.pi))
        np.testing.assert_allclose(twice(snp.complex128(z)), expected, rtol=1e-12)
        with pytest.raises(MissingRule, match="complex_digamma has no derivative"):
            stax.grad(stax.grad(special.loggamma, holomorphic=True), holomorphic=True)(z)


def test_real_numbers_become_complex() -> None:
    for x in (2.0, np.float32(2.0), np.arange(3), np.float16(1.0)):
        found, expected = special.wofz(x), jax.eval_shape(jax.scipy.special.wofz, x)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.weak_type == expected.weak_type
        exact = sp.wofz(np.asarray(x, np.complex128))
        np.testing.assert_allclose(np.asarray(found), exact, rtol=2e-7)
    assert np.isnan(special.wofz(np.complex64(complex(np.nan, 1.0))))


DEGREES = np.array([0, 1, 1, 2, 3, 4, 4, 5, 2, 3])
ORDERS = np.array([0, -1, 1, 0, 3, -2, 4, 0, 5, -3])


def angles(dtype: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(0.1, 3.0, 10, dtype=dtype), np.linspace(0.0, 6.0, 10, dtype=dtype)


def test_spherical_harmonics() -> None:
    theta, phi = angles()
    given = (DEGREES, ORDERS, theta, phi)
    exact = sp.sph_harm_y(*given)
    compiled = stax.jit(lambda *args: special.sph_harm_y(*args, n_max=5))
    for found in (
        special.sph_harm_y(*given),
        special.sph_harm_y(*given, n_max=9),
        compiled(*given),
    ):
        assert found.dtype == np.complex64
        np.testing.assert_allclose(np.asarray(found), exact, rtol=1e-5, atol=2e-7)
    expected = jax.scipy.special.sph_harm_y(*given)
    assert_like_jax(special.sph_harm_y(*given), expected, 1e-5)
    one = special.sph_harm_y(np.array([2]), np.array([1]), 0.5, 0.25)
    np.testing.assert_allclose(np.asarray(one), [sp.sph_harm_y(2, 1, 0.5, 0.25)], rtol=1e-6)


def test_spherical_harmonics_in_float64_and_their_slopes() -> None:
    with config.override(enable_x64=True):
        theta, phi = angles(np.float64)
        found = special.sph_harm_y(DEGREES, ORDERS, theta, phi)
        exact = sp.sph_harm_y(DEGREES, ORDERS, theta, phi)
        np.testing.assert_allclose(np.asarray(found), exact, rtol=1e-13, atol=1e-15)
        rate = stax.jvp(
            lambda t, p: special.sph_harm_y(DEGREES, ORDERS, t, p),
            (theta, phi),
            (np.ones(10), np.full(10, 0.5)),
        )[1]
        step = 1e-6
        ends = [
            sp.sph_harm_y(DEGREES, ORDERS, theta + s * step, phi + s * step / 2) for s in (1, -1)
        ]
        quotient = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(np.asarray(rate), quotient, rtol=1e-7, atol=1e-8)


def test_what_spherical_harmonics_need() -> None:
    theta, phi = angles()
    with pytest.raises(UnsupportedError, match="diff_n"):
        special.sph_harm_y(DEGREES, ORDERS, theta, phi, diff_n=1)
    with pytest.raises(TracerIntegerConversionError):
        stax.jit(special.sph_harm_y)(DEGREES, ORDERS, theta, phi)
