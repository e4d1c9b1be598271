"""Functions of stax.numpy on complex arrays against jax.numpy: values, dtypes, weak types."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.array import asarray
from tests.like_jax import assert_like_jax

Function = Callable[..., Any]
RNG = np.random.default_rng(5)
X = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))).astype(np.complex64)
Y = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))).astype(np.complex64)
Y[0, :2] = X[0, :2]
VALUES: dict[str, Any] = {
    "complex": X,
    "float": X.real.copy(),
    "half": X.real.astype(np.float16),
    "int": np.array([-1, 0, 2]),
    "bool": np.array([True, False]),
    "scalar": np.float32(-2),
    "number": -2.5,
    "complex number": 1.5 - 2j,
    "integer": 3,
}


def compared(name: str, *args: Any, tolerance: float = 4e-6, **options: Any) -> None:
    """Check a function, eager and compiled, refusals included."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            theirs = getattr(jnp, name)(*map(jnp.asarray, args), **options)
        except (TypeError, ValueError):
            with pytest.raises((TypeError, ValueError)):
                getattr(snp, name)(*map(asarray, args), **options)
            return
    function = lambda *xs: getattr(snp, name)(*xs, **options)  # noqa: E731
    for f in (function, stax.jit(function)):
        assert_like_jax(f(*map(asarray, args)), theirs, tolerance)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "name", ["real", "imag", "conj", "angle", "iscomplex", "isreal", "sort_complex"]
)
def test_parts(name: str, value: str) -> None:
    if name == "sort_complex" and np.ndim(VALUES[value]) == 0:
        return
    compared(name, VALUES[value])
    if name == "angle":
        compared(name, VALUES[value], deg=True)


@pytest.mark.parametrize("value", VALUES)
def test_numbers_are_taken_as_they_are(value: str) -> None:
    x = VALUES[value]
    for name in ("real", "imag", "conjugate"):
        assert_like_jax(getattr(snp, name)(x), getattr(jnp, name)(x))
    assert snp.iscomplexobj(x) is jnp.iscomplexobj(x)
    assert snp.isrealobj(x) is jnp.isrealobj(x)
    assert snp.iscomplexobj([1j]) and not snp.iscomplexobj(None)


def test_attributes_and_methods() -> None:
    for value in ("complex", "float", "int", "bool"):
        ours, theirs = asarray(VALUES[value]), jnp.asarray(VALUES[value])
        for f in (lambda x: x, stax.jit(lambda x: x)):
            x = f(ours)
            assert_like_jax((x.real, x.imag), (theirs.real, theirs.imag))
            assert_like_jax((x.conj(), x.conjugate()), (theirs.conj(), theirs.conjugate()))
    traced = stax.jit(lambda x: (x.real, x.imag, x.conj()))(asarray(X))
    assert_like_jax(traced, (jnp.asarray(X.real), jnp.asarray(X.imag), jnp.asarray(X.conj())))


UNARY = [
    "negative", "positive", "sign", "abs", "fabs", "exp", "exp2", "log2", "log10", "square",
    "reciprocal", "sinc", "deg2rad", "round", "rint", "floor", "trunc", "isnan", "isfinite",
    "isinf", "isposinf", "logical_not", "cbrt", "max", "min", "argmax", "sum", "prod", "mean",
    "var", "std", "ptp", "any", "all", "count_nonzero", "nansum", "sort", "argsort", "cumsum",
    "cumprod", "diff", "median", "nonzero", "unique", "nan_to_num", "trace", "flip", "modf",
]  # fmt: skip
BINARY = [
    "add", "subtract", "multiply", "divide", "power", "float_power", "maximum", "minimum", "fmax",
    "fmin", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isclose",
    "logaddexp", "arctan2", "hypot", "mod", "floor_divide", "fmod", "divmod", "heaviside", "clip",
    "outer", "inner", "vdot", "dot", "logical_and", "vecdot",
]  # fmt: skip
NOT_UNDER_JIT = ("nonzero", "unique")


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    if name in NOT_UNDER_JIT:
        assert_like_jax(getattr(snp, name)(asarray(X)), getattr(jnp, name)(jnp.asarray(X)))
    else:
        compared(name, X, tolerance=2e-5)


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    x, y = (X[:, :3], Y[:, :3]) if name == "dot" else (X, Y)
    compared(name, x, y, tolerance=1e-4)
    if name not in ("clip", "dot", "vdot", "inner", "vecdot"):
        compared(name, X, Y.real.copy(), tolerance=1e-4)


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "cumsum"])
def test_reductions_take_options(name: str) -> None:
    compared(name, X, axis=1, tolerance=2e-5)
    if name in ("mean", "var", "std"):
        compared(name, X, axis=0, keepdims=True, where=X.real > -0.5, tolerance=2e-5)
    if name in ("sum", "prod"):
        compared(name, X, axis=0, where=X.real > 0, initial=2, tolerance=2e-5)


@pytest.mark.parametrize("ord", [None, 1, 2, 0, np.inf, -np.inf, 3])
def test_norms(ord: Any) -> None:
    for f in (snp.linalg.norm, stax.jit(snp.linalg.norm, static_argnums=(1, 2))):
        found = f(asarray(X), ord, 1)
        assert_like_jax(found, jnp.linalg.norm(jnp.asarray(X), ord, 1), 1e-5)


def test_products_conjugate_their_first_vector() -> None:
    m = X[:, :3]
    for name, args in (("vdot", (X, Y)), ("vecdot", (X, Y)), ("vecmat", (X[:, 0], m))):
        compared(name, *args, tolerance=1e-5)
    compared("matvec", m, X[:, 0], tolerance=1e-5)


def test_nan_and_infinity_are_replaced_part_by_part() -> None:
    x = np.array([complex(np.nan, np.inf), complex(-np.inf, 1)], np.complex64)
    compared("nan_to_num", x)
    compared("nan_to_num", x, nan=1.0, posinf=2.0, neginf=-2.0)


def test_real_types_take_the_real_part() -> None:
    x, theirs = asarray(X), jnp.asarray(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in ("float32", "int32", "bool", "complex64", "float16"):
            found = x.astype(dtype), stax.jit(lambda x, d=dtype: x.astype(d))(x)
            for y in found:
                assert_like_jax(y, theirs.astype(dtype))
        assert_like_jax(snp.asarray(X, "float32"), jnp.asarray(X, "float32"))
        assert_like_jax(
            stax.lax.convert_element_type(x, "bool"), jax.lax.convert_element_type(theirs, "bool")
        )
    for value in (np.array(1j), 1j, 0j):
        assert bool(snp.asarray(value, bool)) is bool(jnp.asarray(value, bool))


def test_making_complex_numbers() -> None:
    x, y = X.real.copy(), X.imag.copy()
    for f in (stax.lax.complex, stax.jit(stax.lax.complex)):
        np.testing.assert_array_equal(f(asarray(x), asarray(y)), X)
    assert_like_jax(stax.lax.complex(1.0, 2.0), jax.lax.complex(1.0, 2.0))
    assert_like_jax(stax.lax.conj(asarray(x)), jax.lax.conj(jnp.asarray(x)))


@pytest.mark.parametrize("name", ["log2", "log10"])
def test_logarithms_of_edges(name: str) -> None:
    """An infinite real part does not reach the other one."""
    points = np.array([0, complex(np.inf, 1), complex(-np.inf, -2), 1 + 2j], np.complex64)
    right = getattr(jnp, name)(points)
    for f in (getattr(snp, name), stax.jit(getattr(snp, name))):
        np.testing.assert_allclose(f(points), right, rtol=2e-7)
