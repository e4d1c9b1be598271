"""Complex numbers: functions and derivatives against JAX, special values against NumPy.

Rules of single ops are in `test_rules`, on complex samples.  Here are whole functions in both
complex dtypes, eager and compiled, and what JAX's conventions for derivatives say.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.array import asarray
from stax.config import config
from stax.errors import DTypeError
from stax.operators import complex as numbers

Function = Callable[..., Any]
DTYPES = ["complex64", "complex128"]
RNG = np.random.default_rng(0)
Z = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))) * 1.5
W = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with config.override(enable_x64=True), jax.enable_x64(True):
        yield


def assert_near(ours: Any, theirs: Any, ulps: float) -> None:
    """Check a tree of results: types exactly, values by their distance in the plane."""
    left, structure = stax.tree.flatten(ours)
    right, expected = jax.tree.flatten(theirs)
    assert str(structure) == str(expected)
    for x, y in zip(left, right, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if y.dtype.kind in "fc":
            epsilon = ulps * float(np.finfo(y.dtype).eps)
            scale = np.abs(np.asarray(y)).max(initial=1.0)
            np.testing.assert_allclose(x, y, rtol=epsilon, atol=epsilon * scale)
        else:
            np.testing.assert_array_equal(x, y)


def compared(f: Callable[[Any], Function], *args: np.ndarray, ulps: float = 32) -> None:
    """Check a function of a library, eager and compiled, against JAX."""
    theirs = jax.jit(f(jax))(*args)
    ours = f(stax)
    for function in (ours, stax.jit(ours)):
        assert_near(function(*map(asarray, args)), theirs, ulps)


# --- functions and their derivatives ---

UNARY = [
    "neg", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "atanh", "logistic", "square", "reciprocal",
    "conj",
]  # fmt: skip
BINARY = ["add", "sub", "mul", "div", "pow", "max", "min", "atan2"]


@pytest.mark.parametrize("name", [*UNARY, "acosh", "sign", "abs", "real", "imag"])
def test_unary(name: str) -> None:
    compared(lambda lib: getattr(lib.lax, name), Z.astype(np.complex64))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", [*BINARY, "eq", "ne"])
def test_binary(name: str, dtype: str) -> None:
    x, y = Z.astype(dtype), W.astype(dtype)
    y[0, 0] = x[0, 0]
    compared(lambda lib: getattr(lib.lax, name), x, y, ulps=200)


def pushed_and_pulled(lib: Any, f: Function) -> Function:
    """Return value, tangent and cotangents of a function."""

    def both(x: Any, t: Any) -> Any:
        out, tangent = lib.jvp(f, (x,), (t,))
        _, pull = lib.vjp(f, x)
        return out, tangent, pull(lib.numpy.ones_like(out) * (out * 0 + 1))

    return both


# In newer versions the complex sign has slopes, and those of max raise.
CHANGED = pytest.mark.skipif(jax.__version_info__ >= (0, 11), reason="other rules in newer JAX")
SIGN, MAX = pytest.param("sign", marks=CHANGED), pytest.param("max", marks=CHANGED)


# Rules of the others are compared with difference quotients.
@pytest.mark.parametrize("name", ["log", "sqrt", "asin", "conj", SIGN, "abs", "real", "imag"])
def test_derivatives(name: str) -> None:
    compared(lambda lib: pushed_and_pulled(lib, getattr(lib.lax, name)), Z, W, ulps=400)


@pytest.mark.parametrize("name", ["div", "pow", MAX, "atan2"])
def test_derivatives_of_pairs(name: str) -> None:
    def pair(lib: Any) -> Function:
        op = getattr(lib.lax, name)
        return pushed_and_pulled(lib, lambda z: op(z[0], z[1]))

    compared(pair, np.stack([Z, W]), np.stack([W, Z]), ulps=4000)


def test_the_derivative_of_acosh_in_the_left_half() -> None:
    # rsqrt(z**2 - 1), which is JAX's, has the other sign there.
    z = asarray(np.array([-1.5 + 0.5j, -2 - 1j, 1.5 + 0.5j, -0.3 + 2j]))
    step = 1e-6
    quotient = (snp.arccosh(z + step) - snp.arccosh(z - step)) / (2 * step)
    slope = stax.grad(lambda x: snp.arccosh(x).sum(), holomorphic=True)(z)
    np.testing.assert_allclose(slope, quotient, rtol=1e-8)


# --- conventions ---

LOSSES: dict[str, Callable[[Any], Function]] = {
    "abs": lambda lib: lambda z: lib.numpy.abs(z).sum(),
    "vdot": lambda lib: lambda z: lib.numpy.vdot(z, lib.numpy.exp(z)).real,
    "parts": lambda lib: lambda z: (z.real * z.imag + z.real**3).sum(),
    "angle": lambda lib: lambda z: lib.numpy.angle(z).sum(),
    "product": lambda lib: lambda z: lib.numpy.abs(lib.numpy.prod(z, 0)).sum(),
    "norm": lambda lib: lambda z: lib.numpy.linalg.norm(z),
    "variance": lambda lib: lambda z: lib.numpy.var(z) + lib.numpy.std(z, 0).sum(),
    "matrix": lambda lib: lambda z: lib.numpy.abs(z @ z.conj().T).sum(),
    "sort": lambda lib: lambda z: (lib.numpy.sort(z, 1) * lib.numpy.arange(4)).imag.sum(),
    "largest": lambda lib: lambda z: lib.numpy.max(z, 1).imag.sum(),
    "where": lambda lib: lambda z: lib.numpy.where(z.real > 0, z, z.conj()).imag.sum(),
    "made": lambda lib: lambda z: lib.numpy.abs(lib.lax.complex(z.imag, z.real * 2)).sum(),
    "made wider": lambda lib: lambda z: lib.numpy.abs(z.real.astype(z.dtype) * z).sum(),
    "scatter": lambda lib: lambda z: lib.numpy.abs(z.at[1].add(z[0] * 1j).at[0].set(2)).sum(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_real_functions(name: str) -> None:
    compared(lambda lib: lib.value_and_grad(LOSSES[name](lib)), Z.astype(np.complex64), ulps=400)


@pytest.mark.parametrize("name", ["parts", "matrix"])
def test_second_derivatives_of_real_functions(name: str) -> None:
    def curved(lib: Any) -> Function:
        gradient = lib.grad(LOSSES[name](lib))
        return lambda z, t: lib.jvp(gradient, (z,), (t,))

    compared(curved, Z, W, ulps=2000)


def test_the_gradient_is_that_of_the_parts() -> None:
    def loss(z: Any) -> Any:
        return (snp.abs(snp.tanh(z)) ** 3).sum()

    found = stax.grad(loss)(asarray(Z))
    by_parts = stax.grad(lambda x, y: loss(stax.lax.complex(x, y)), argnums=(0, 1))
    x, y = by_parts(asarray(Z.real.copy()), asarray(Z.imag.copy()))
    np.testing.assert_allclose(found, np.asarray(x) - 1j * np.asarray(y), rtol=1e-12)


def test_the_gradient_of_the_modulus_at_zero_is_zero() -> None:
    assert stax.grad(snp.abs)(0j) == 0


def test_holomorphic() -> None:
    z = Z[0]
    for transform in ("jacfwd", "jacrev"):
        compared(
            lambda lib, t=transform: getattr(lib, t)(lib.numpy.tanh, holomorphic=True),
            z,
            ulps=100,
        )
    compared(lambda lib: lib.grad(lambda x: lib.numpy.exp(x).prod(), holomorphic=True), z, ulps=100)
    compared(lambda lib: lib.hessian(lambda x: (x**3).sum(), holomorphic=True), z, ulps=400)
    compared(lambda lib: lib.jacfwd(lambda x: x * (1 + 2j)), z.real.copy())
    compared(lambda lib: lib.jacrev(lambda x: lib.numpy.abs(x) ** 2), z, ulps=100)


REFUSED = {
    "grad to complex": lambda lib, z: lib.grad(lambda x: x.sum())(z),
    "grad of real to complex": lambda lib, z: lib.grad(lambda x: (x * 1j).sum())(z.real),
    "holomorphic of real": lambda lib, z: lib.grad(lambda x: x.sum(), holomorphic=True)(z.real),
    "holomorphic to real": lambda lib, z: lib.grad(lambda x: abs(x).sum(), holomorphic=True)(z),
    "jacrev to complex": lambda lib, z: lib.jacrev(lambda x: x * 2)(z),
    "jacrev of real to complex": lambda lib, z: lib.jacrev(lambda x: x * 1j)(z.real),
    "jacfwd of complex": lambda lib, z: lib.jacfwd(abs)(z),
    "jacfwd holomorphic to real": lambda lib, z: lib.jacfwd(abs, holomorphic=True)(z),
    "jacfwd holomorphic of real": lambda lib, z: lib.jacfwd(abs, holomorphic=True)(z.real),
    "hessian of complex": lambda lib, z: lib.hessian(lambda x: abs(x).sum())(z),
    "real tangent": lambda lib, z: lib.jvp(abs, (z,), (z.real,)),
    "real of real": lambda lib, z: lib.lax.real(z.real),
    "complex of integers": lambda lib, z: lib.lax.complex(1, 2),
    "complex of complex": lambda lib, z: lib.lax.complex(z, z),
    "rem": lambda lib, z: lib.lax.rem(z, z),
    "floor": lambda lib, z: lib.lax.floor(z),
    "lt": lambda lib, z: lib.lax.lt(z, z),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_jax_refuses(name: str) -> None:
    with pytest.raises((TypeError, ValueError)):
        REFUSED[name](jax, jnp.asarray(Z[0]))
    with pytest.raises(DTypeError):
        REFUSED[name](stax, asarray(Z[0]))


def test_a_masked_cotangent_absorbs() -> None:
    z = asarray(np.array([0j, 4 + 3j]))

    def loss(z: Any) -> Any:
        return snp.abs(snp.where(snp.abs(z) > 0, snp.sqrt(z), 0)).sum()

    for gradient in (stax.grad(loss), stax.jit(stax.grad(loss))):
        found = np.asarray(gradient(z))
        assert found[0] == 0
        np.testing.assert_allclose(found[1], jax.grad(lambda z: jnp.abs(jnp.sqrt(z)))(4 + 3j))


# --- bits ---


@pytest.mark.parametrize("dtype", DTYPES)
def test_arithmetic_has_the_bits_of_plain_real_operations(dtype: str) -> None:
    shape = 2, 1000
    x, y = (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)
    products = numbers.join(x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real)
    wanted = {"add": x + y, "sub": x - y, "mul": products, "div": x / y}
    for name, values in wanted.items():
        op = getattr(stax.lax, name)
        for function in (op, stax.jit(op)):
            assert np.asarray(function(asarray(x), asarray(y))).tobytes() == values.tobytes()
    compiled = stax.jit(lambda x: (x * x * x - x**3 * 1, x**-2))
    eager = asarray(x) * asarray(x) * asarray(x) - asarray(x) ** 3 * 1, asarray(x) ** -2
    for a, b in zip(compiled(asarray(x)), eager, strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_quotient_does_not_overflow_on_the_way() -> None:
    x, y = np.array([1e300 + 1e300j, 1e-300 + 1j]), np.array([1e300 - 1e299j, 1e-300 + 1e-300j])
    for divide in (stax.lax.div, stax.jit(stax.lax.div)):
        np.testing.assert_allclose(divide(asarray(x), asarray(y)), x / y, rtol=1e-15)


def test_quotients_over_zero_and_infinity() -> None:
    values = [complex(x, y) for x in PARTS[:10] for y in PARTS[:10]]
    x, y = np.array(list(itertools.product(values, repeat=2))).T
    with np.errstate(all="ignore"):
        wanted = x / y
    for divide in (stax.lax.div, stax.jit(stax.lax.div)):
        np.testing.assert_array_equal(divide(asarray(x), asarray(y)), wanted)


# --- special values ---

PARTS = [0.0, -0.0, 0.5, -1.0, 1.0, 2.0, -2.0, np.inf, -np.inf, np.nan, 1e-300, 1e300, 800.0, -90.0]
PLANE = np.array([complex(x, y) for x in PARTS for y in PARTS])
SPECIAL = [name for name in UNARY if name not in ("neg", "square", "reciprocal", "conj")]


def same_part(x: float, y: float, other: float, tiny: float) -> bool:
    """Say whether two parts of a result agree; beside NaN, signs of 0 and infinity are free."""
    if np.isnan(x) or np.isnan(y):
        return bool(np.isnan(x) and np.isnan(y))
    free = np.isnan(other)
    if np.isinf(x) or np.isinf(y) or max(abs(x), abs(y)) < tiny:
        near = abs(x) == abs(y) or max(abs(x), abs(y)) < tiny
        return bool(near and (free or np.signbit(x) == np.signbit(y)))
    epsilon = 16 * float(np.finfo(np.float32 if tiny > 1e-100 else np.float64).eps)
    return bool(abs(x - y) <= epsilon * abs(y))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, "complex128") for name in (*SPECIAL, "acosh", "sign", "abs")]
    + [(name, "complex64") for name in ("exp", "log", "sqrt", "sinh", "tanh", "acos", "abs")],
)
def test_special_values_are_those_of_numpy(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        z = asarray(PLANE.astype(dtype))
    op = getattr(stax.lax, name)
    wanted, found = np.asarray(op(z)), np.asarray(stax.jit(op)(z))
    tiny = float(np.finfo(wanted.dtype).tiny)
    for at, x, y in zip(np.asarray(z), found, wanted, strict=True):
        assert same_part(x.real, y.real, y.imag, tiny), (at, x, y)
        assert same_part(x.imag, y.imag, y.real, tiny), (at, x, y)


# Functions that NumPy has too, so that the evaluator is more than a measure of itself.
IN_NUMPY = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh",
            "acosh": "arccosh", "atanh": "arctanh"}  # fmt: skip
CUTS = [("sqrt", -2), ("log", -2), ("asin", 2), ("asin", -2), ("acos", 2), ("acos", -2),
        ("acosh", -2), ("acosh", 0.5), ("atanh", 2), ("log1p", -3), ("rsqrt", -2)]  # fmt: skip


@pytest.mark.parametrize(("name", "at"), CUTS)
def test_branch_cuts_tell_signed_zeros_apart(name: str, at: float) -> None:
    z = np.array([complex(at, 0.0), complex(at, -0.0)])
    op = getattr(stax.lax, name)
    for function in (op, stax.jit(op)):
        above, below = np.asarray(function(asarray(z)))
        assert above == np.conj(below)
        assert abs(above.imag) > 0.1


def mpmath_values(name: str, z: np.ndarray) -> np.ndarray:
    """Return the values of a function, right to the last digit."""
    exact = {"exp2": lambda x: mpmath.power(2, x), "sign": mpmath.sign}
    exact["rsqrt"] = lambda x: 1 / mpmath.sqrt(x)
    exact["logistic"] = lambda x: 1 / (1 + mpmath.exp(-x))
    with mpmath.workdps(60):
        function = exact.get(name) or getattr(mpmath, name)
        return np.array([complex(function(mpmath.mpc(v))) for v in z])


@pytest.mark.parametrize("name", [*SPECIAL, "acosh"])
def test_accuracy_at_all_magnitudes(name: str) -> None:
    rng = np.random.default_rng(1)
    size, turn = 10 ** rng.uniform(-8, 1.5, 300), rng.uniform(-np.pi, np.pi, 300)
    z = np.concatenate([size * np.exp(1j * turn), 1 + size[:60] * 1e-3j, -1 + size[:60] * 1e-6])
    wanted = mpmath_values(name, z)
    found = np.asarray(stax.jit(getattr(stax.lax, name))(asarray(z)))
    error = np.abs(found - wanted) / np.abs(wanted)
    assert error.max() < 12 * np.finfo(np.float64).eps


@pytest.mark.parametrize("dtype", DTYPES)
def test_powers_of_zero(dtype: str) -> None:
    zero, exponents = np.zeros(5, dtype), np.array([0, 2, 0.5, 1 + 2j, -1], dtype)
    for function in (stax.lax.pow, stax.jit(stax.lax.pow)):
        found = np.asarray(function(asarray(zero), asarray(exponents)))
        np.testing.assert_array_equal(found[:4], [1, 0, 0, 0])
        assert np.isnan(found[4])


def test_real_powers_of_infinity_have_an_angle() -> None:
    base = np.array([complex(np.inf, 0), complex(np.inf, 1), complex(0, np.inf)], np.complex64)
    found = np.asarray(stax.jit(lambda z: stax.lax.pow(z, stax.numpy.full_like(z, 0.5)))(base))
    np.testing.assert_array_equal(found.real, np.inf)
    np.testing.assert_array_equal(found.imag, [0, 0, np.inf])


def test_numpy_has_the_same_functions() -> None:
    finite = PLANE[np.isfinite(PLANE.real) & np.isfinite(PLANE.imag) & (np.abs(PLANE) < 50)]
    for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", *IN_NUMPY):
        with np.errstate(all="ignore"):
            wanted = getattr(np, IN_NUMPY.get(name, name))(finite)
        np.testing.assert_array_equal(getattr(stax.lax, name)(asarray(finite)), wanted)


def test_maximum_orders_by_real_then_by_imaginary_parts() -> None:
    values = [1 + 1j, 1 - 1j, 2 - 5j, complex(np.nan, 0), complex(0, np.nan)]
    pairs = np.array(list(itertools.product(values, repeat=2))).T
    for name, reference in (("max", np.maximum), ("min", np.minimum)):
        op = getattr(stax.lax, name)
        for function in (op, stax.jit(op)):
            x, y = map(asarray, pairs)
            np.testing.assert_array_equal(function(x, y), reference(*pairs))
