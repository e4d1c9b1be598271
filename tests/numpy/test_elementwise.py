"""Element-wise functions of stax.numpy against jax.numpy: values, dtypes, weak types, gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentError
from tests.like_jax import assert_like_jax
from tests.like_numpy import compared

UNARY = [
    "sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "arcsinh", "exp", "exp2", "expm1",
    "square", "sign", "abs", "fabs", "floor", "ceil", "trunc", "rint", "round", "isnan",
    "isfinite", "isinf", "isposinf", "isneginf", "nan_to_num", "deg2rad", "rad2deg", "sinc",
    "cbrt", "negative", "positive", "logical_not", "real", "imag", "conj", "isreal", "reciprocal",
    "modf", "angle",
]  # fmt: skip
POSITIVE = ["sqrt", "log", "log2", "log10", "arccosh"]
WITHIN = ["arcsin", "arccos", "arctanh", "log1p"]
BINARY = [
    "arctan2", "hypot", "logaddexp", "logaddexp2", "fmax", "fmin", "heaviside", "float_power",
    "isclose", "maximum", "minimum", "true_divide", "power", "mod",
]  # fmt: skip
DTYPES = ["bool", "int8", "uint32", "float16", "bfloat16", "float32"]
AWKWARD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 0.5, 3e38, 1e-40], np.float32)
# Where the answer is better than JAX's, or differs by design.
DIFFERENT = {"cbrt", "nan_to_num", "modf", "expm1", "sinc", "exp2", "deg2rad", "square"}


def sample(name: str, dtype: str) -> np.ndarray:
    if name in WITHIN:
        values = np.array([-0.75, -0.5, 0.0, 0.25, 0.9, 0.5])
    elif name in POSITIVE:
        values = np.array([1.0, 1.5, 2.0, 3.0, 7.0, 100.0])
    else:
        values = np.array([-2.5, -1.0, 0.0, 0.5, 1.0, 3.0])
    if dtype[0] == "u":
        values = np.abs(values)
    return values.astype(jnp.dtype(dtype)).reshape(2, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY + POSITIVE + WITHIN)
def test_unary(name: str, dtype: str) -> None:
    x = sample(name, dtype)
    if dtype == "bool" and name in ("round", "positive"):
        return
    compared(name, x)


@pytest.mark.parametrize("name", UNARY + POSITIVE + WITHIN)
def test_unary_at_awkward_values_and_numbers(name: str) -> None:
    if name not in DIFFERENT:
        compared(name, AWKWARD[:-1])
    for number in (1, 0.5, True):
        if number is not True or name not in ("sign", "negative", "round", "positive"):
            compared(name, number)


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("int32", "float16"), ("int8", "int8")])
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtypes: tuple[str, str]) -> None:
    x, y = sample("", dtypes[0]), sample("sqrt", dtypes[1])[:1]
    if name == "power" and dtypes[1] == "int8":
        y = np.abs(y) % 4
    compared(name, x, y)


@pytest.mark.parametrize("name", ["hypot", "logaddexp", "fmax", "fmin", "heaviside", "isclose"])
def test_binary_at_awkward_values(name: str) -> None:
    x, y = AWKWARD[:-2, None], AWKWARD[None, :-2]
    if name == "hypot":  # C and NumPy: infinite even beside a NaN
        np.testing.assert_allclose(getattr(snp, name)(x, y), np.hypot(x, y), rtol=1e-6)
    elif name == "heaviside":
        np.testing.assert_allclose(snp.heaviside(x, y), np.heaviside(x, y))
    else:
        assert_like_jax(getattr(snp, name)(x, y), getattr(jnp, name)(x, y), 1e-6)


def test_logaddexp_of_infinities_in_every_length() -> None:
    for length in (1, 2, 9):
        x = np.tile(np.array([-np.inf, -1.0], np.float32), length)
        expected = np.tile(np.array([-np.inf, -0.30685282], np.float32), length)
        np.testing.assert_allclose(snp.logaddexp(x, x), expected, rtol=1e-6)


GRADIENTS = [
    ("logaddexp", (1.0, 1.0)), ("logaddexp", (2.0, -3.0)), ("hypot", (3.0, 4.0)),
    ("sinc", (0.3,)), ("sinc", (0.0,)), ("sinc", (0.05,)), ("log2", (3.0,)), ("log10", (3.0,)),
    ("cbrt", (8.0,)), ("square", (3.0,)), ("reciprocal", (3.0,)), ("arctan2", (1.0, 2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "point"), GRADIENTS)
def test_gradients_and_second_derivatives(name: str, point: tuple[float, ...]) -> None:
    argnums = tuple(range(len(point)))

    def first(library: Any) -> Any:
        return library.grad(getattr(library.numpy, name), argnums)

    def second(library: Any, *args: Any) -> Any:
        return library.grad(lambda *a: sum(first(library)(*a)), argnums)(*args)

    np.testing.assert_allclose(first(stax)(*point), first(jax)(*point), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second(stax, *point), second(jax, *point), rtol=1e-4, atol=1e-5)


def test_where_takes_no_gradient_from_the_side_not_taken() -> None:
    assert stax.grad(lambda x: snp.where(x < 1, x, snp.sqrt(x)))(0.0) == 1.0
    gradient = stax.grad(
        lambda a: snp.where(snp.array([False, True, False]), 0, snp.arctan2(a, a)).sum()
    )
    np.testing.assert_array_equal(gradient(snp.array([3.0, 0.0, -5.0])), [0.0, 0.0, 0.0])


def test_where_promotes_and_broadcasts() -> None:
    condition = np.array([[True], [False]])
    x, y = np.arange(3, dtype=np.int8), np.float16(2.5)
    assert_like_jax(snp.where(condition, x, y), jnp.where(condition, x, y))
    assert_like_jax(snp.where(np.array([0, 2]), 1, 2.0), jnp.where(np.array([0, 2]), 1, 2.0))
    assert_like_jax(snp.where(np.array([0, 2, 3])), jnp.where(np.array([0, 2, 3])))
    assert_like_jax(
        snp.where(np.array([0, 2]), size=3, fill_value=7),
        jnp.where(np.array([0, 2]), size=3, fill_value=7),
    )


def test_clip_round_select_and_polyval() -> None:
    x = np.linspace(-3, 3, 13, dtype=np.float32)
    assert_like_jax(snp.clip(x, -1, 2.5), jnp.clip(x, -1, 2.5))
    assert_like_jax(snp.clip(x, max=1), jnp.clip(x, max=1))
    assert_like_jax(
        snp.clip(np.arange(5, dtype=np.int8), 1, 3), jnp.clip(np.arange(5, dtype=np.int8), 1, 3)
    )
    assert_like_jax(snp.round(x / 7, 2), jnp.round(x / 7, 2), 1e-6)
    assert_like_jax(snp.round(x.astype(np.float16) / 7, 2), jnp.round(x.astype(np.float16) / 7, 2))
    conditions, choices = [x < -1, x < 1], [x, x * 2]
    assert_like_jax(snp.select(conditions, choices, 5), jnp.select(conditions, choices, 5))
    p = np.array([1.0, -2.0, 3.0], np.float32)
    assert_like_jax(snp.polyval(p, x), jnp.polyval(p, x), 1e-6)


def test_comparison_of_whole_arrays() -> None:
    x = np.array([1.0, np.nan], np.float32)
    assert not snp.array_equal(x, x)
    assert snp.array_equal(x, x, equal_nan=True)
    assert not snp.array_equal(x, x[:1])
    assert snp.array_equal([1, 2], [1, 2])
    assert snp.array_equiv([1, 1], 1)
    assert snp.allclose(np.float32(1), 1 + 1e-7)
    assert not snp.allclose(np.float32(1), 1.1)


def test_subnormals_are_kept() -> None:
    x = np.float32(1e-40)
    assert np.isclose(snp.log(x), -92.1034, rtol=1e-6)
    assert snp.sqrt(x) > 0 and snp.log1p(x) == x
    np.testing.assert_allclose(stax.lax.rsqrt(x), 1e20, rtol=1e-5)


def test_lists_are_refused() -> None:
    for function in (snp.sin, snp.isnan, snp.square, lambda x: snp.arctan2(x, 1.0)):
        with pytest.raises(ArgumentError, match="list"):
            function([1.0, 2.0])
