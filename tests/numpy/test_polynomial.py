"""Polynomials against jax.numpy's: values, dtypes, weak types, and fits."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError, ConcretizationTypeError
from tests.like_jax import assert_like_jax

CUBIC = np.array([2.0, -3, 1, 5], np.float32)
LINEAR = np.array([1, 4], np.int32)
PADDED = np.array([0, 0, 1, 2], np.int32)
X = np.linspace(0, 3, 8).astype(np.float32)
Y = np.sin(X)


def both(name: str, *args: Any, **options: Any) -> None:
    theirs = getattr(jnp, name)(*args, **options)
    assert_like_jax(getattr(snp, name)(*args, **options), theirs, 1e-5)


@pytest.mark.parametrize("name", ["polyadd", "polysub", "polymul", "polydiv"])
def test_arithmetic(name: str) -> None:
    both(name, CUBIC, LINEAR)
    both(name, PADDED, CUBIC)
    if name in ("polymul", "polydiv"):
        both(name, CUBIC, LINEAR, trim_leading_zeros=True)
    compiled = stax.jit(getattr(snp, name))(CUBIC, LINEAR)
    assert_like_jax(compiled, getattr(jnp, name)(CUBIC, LINEAR), 1e-5)


def test_derivatives_and_integrals() -> None:
    for p, order in ((CUBIC, 0), (CUBIC, 2), (LINEAR, 1), (LINEAR, 4)):
        both("polyder", p, order)
        both("polyint", p, order)
    both("polyint", CUBIC, 2, np.array([1.0, 2.0], np.float32))
    for name in ("polyder", "polyint"):
        with pytest.raises(ArgumentValueError, match="negative"):
            getattr(snp, name)(CUBIC, -1)
    with pytest.raises(ArgumentValueError, match="k must be"):
        snp.polyint(CUBIC, 2, np.ones(3, np.float32))


def test_values() -> None:
    both("polyval", CUBIC, X)
    both("polyval", LINEAR, 3)
    both("polyval", np.ones((3, 2), np.float32), 2)
    slope = stax.grad(lambda x: snp.polyval(CUBIC, x))(2.0)
    assert slope == snp.polyval(snp.polyder(CUBIC), 2.0)


def test_roots() -> None:
    for p in (CUBIC, PADDED):
        ours, theirs = snp.roots(p), jnp.roots(p)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(np.sort(ours), np.sort(theirs), rtol=1e-5, atol=1e-5)
    both("roots", PADDED, strip_zeros=False)
    both("roots", np.zeros(3, np.float32))
    with pytest.raises(ConcretizationTypeError, match="strip_zeros"):
        stax.jit(snp.roots)(CUBIC)
    for zeros in (CUBIC, LINEAR, np.zeros(0, np.float32), 3.0):
        both("poly", zeros)
    both("poly", np.array([[1, 2], [3, 4]], np.float32))
    with pytest.raises(ArgumentValueError, match="square"):
        snp.poly(np.ones((2, 3)))


@pytest.mark.parametrize(
    "options",
    [{"w": X + 1}, {"full": True, "rcond": 1e-3}, {"cov": True}, {"cov": "unscaled"}],
    ids=str,
)
def test_fits(options: dict[str, Any]) -> None:
    for y in (Y, np.stack([Y, 2 * Y], 1)):
        ours, theirs = snp.polyfit(X, y, 2, **options), jnp.polyfit(X, y, 2, **options)
        several = isinstance(theirs, tuple)
        for a, b in zip(*((ours, theirs) if several else ([ours], [theirs])), strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-4)


def test_fits_that_are_refused() -> None:
    with pytest.raises(ArgumentError, match="rows"):
        snp.polyfit(X, Y[:3], 2)
    with pytest.raises(ArgumentValueError, match="negative"):
        snp.polyfit(X, Y, -1)
    with pytest.raises(ArgumentValueError, match="more points"):
        snp.polyfit(X[:3], Y[:3], 2, cov=True)
