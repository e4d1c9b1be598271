"""Ops on bits, eager and compiled, to the last bit: against JAX, or NumPy where JAX flushes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.config import config
from stax.errors import ArgumentValueError, DTypeError
from tests.like_jax import assert_like_jax

INTEGERS = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-7, 65504.0, 1e-40, 3.0, 2.5]
FORMATS = [(5, 10), (8, 7), (8, 0), (5, 2), (1, 1), (1, 0), (8, 23), (11, 52), (2, 3), (4, 3)]


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with config.override(enable_x64=True), jax.enable_x64(True):
        yield


def sample(dtype: str, count: int = 37) -> np.ndarray:
    """Random bits, and the values where something is special."""
    kind, rng = jnp.dtype(dtype), np.random.default_rng(3)
    x = rng.integers(0, 256, count * kind.itemsize, np.uint8).view(kind).copy()
    with np.errstate(all="ignore"):
        special = np.array(SPECIAL if dtype in FLOATS else [0, -1, 1, 2]).astype(kind)
    x[: len(special)] = special
    return x


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    x = sample(dtype)
    return np.repeat(x, x.size), np.tile(x, x.size)


def assert_same_bits(ours: Any, theirs: Any) -> None:
    """Equal to the bit, where NaN is NaN whatever its payload."""
    a, b = np.asarray(ours), np.asarray(theirs)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if a.dtype.kind not in "biu":
        nan = (a != a) & (b != b)
        bits = np.dtype(f"u{a.dtype.itemsize}")
        a, b = (np.where(nan, 0, x.view(bits)) for x in (a, b))
    np.testing.assert_array_equal(a, b)


def eager_and_compiled(function: Callable[..., Any], expected: Any, *args: Any) -> None:
    assert_same_bits(function(*map(snp.asarray, args)), expected)
    assert_same_bits(stax.jit(function)(*args), expected)
    first, rest = args[0][None], args[1:]
    mapped = stax.vmap(function, (0, *[None] * len(rest)))
    assert_same_bits(stax.jit(mapped)(first, *rest)[0], expected)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_counts_and_high_products(dtype: str) -> None:
    x = sample(dtype)
    eager_and_compiled(stax.lax.population_count, jax.lax.population_count(x), x)
    eager_and_compiled(stax.lax.clz, jax.lax.clz(x), x)
    eager_and_compiled(stax.lax.mulhi, jax.lax.mulhi(*pairs(dtype)), *pairs(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_neighbours(dtype: str) -> None:
    x, y = pairs(dtype)
    with np.errstate(all="ignore"):
        # NumPy's float16 has another sign of zero; JAX flushes subnormal numbers of wider types.
        right = jax.lax.nextafter(x, y) if dtype == "float16" else np.nextafter(x, y)
    eager_and_compiled(stax.lax.nextafter, right, x, y)


@pytest.mark.parametrize("dtype", FLOATS)
def test_reduce_precision(dtype: str) -> None:
    x = sample(dtype)

    def rounded(library: Any) -> Any:
        return lambda x: [library.lax.reduce_precision(x, *form) for form in FORMATS]

    # XLA makes an infinity of a NaN where its compiler is in a hurry, as tests/conftest.py asks.
    theirs = [np.where(x == x, y, x) for y in jax.jit(rounded(jax))(x)]
    for ours in (rounded(stax)(snp.asarray(x)), stax.jit(rounded(stax))(x)):
        for a, b in zip(ours, theirs, strict=True):
            assert_same_bits(a, b)


def reread(x: np.ndarray, dtype: Any) -> np.ndarray:
    """What bitcast gives, by NumPy."""
    kind = jnp.dtype(dtype)
    if kind.itemsize > x.itemsize:
        return x.reshape(-1, kind.itemsize // x.itemsize).view(kind)[:, 0]
    return x[..., None].view(kind) if kind.itemsize < x.itemsize else x.view(kind)


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_bitcast(dtype: str) -> None:
    x = sample(dtype, 32)
    if dtype == "float16":  # a signalling NaN turns quiet in a register
        x = np.where(x != x, np.float16(np.nan), x)
    ratios = [max(1, jnp.dtype(to).itemsize // x.itemsize) for to in INTEGERS + FLOATS]

    def ours(x: Any) -> list[Any]:
        shaped = [x.reshape(-1, ratio) if ratio > 1 else x for ratio in ratios]
        types = [jnp.dtype(to) for to in INTEGERS + FLOATS]
        return [stax.lax.bitcast_convert_type(*pair) for pair in zip(shaped, types, strict=True)]

    for found in (
        ours(snp.asarray(x)),
        stax.jit(ours)(x),
        [y[0] for y in stax.vmap(ours)(x[None])],
    ):
        for to, y in zip(INTEGERS + FLOATS, found, strict=True):
            assert_same_bits(y, reread(x, to))


def test_bitcast_like_jax() -> None:
    for dtype, to in [("float32", "uint8"), ("bfloat16", "int16"), ("float64", "float16")]:
        x = sample(dtype)
        assert_same_bits(stax.lax.bitcast_convert_type(x, to), jax.lax.bitcast_convert_type(x, to))


def test_what_bitcast_refuses() -> None:
    cast = stax.lax.bitcast_convert_type
    for x, to in [(True, "int8"), (snp.ones(2, "uint8"), "bool"), (snp.ones(2, "c8"), "uint8")]:
        with pytest.raises(DTypeError):
            cast(x, to)
    for shape in ((), (3,)):
        with pytest.raises(ArgumentValueError, match="last axis"):
            cast(snp.ones(shape, "int8"), "int16")
    assert cast(snp.array([True]), bool).dtype == bool
    assert cast(1.0, "int64").weak_type is False


def shaped(x: Any, to: str) -> Any:
    """An array with the last axis that makes up one element of a wider type."""
    return snp.asarray(x).reshape(-1, max(1, jnp.dtype(to).itemsize // x.itemsize))


@settings(max_examples=60)
@given(st.binary(min_size=8, max_size=8), st.sampled_from(INTEGERS), st.sampled_from(INTEGERS))
def test_bitcast_there_and_back(data: bytes, first: str, second: str) -> None:
    x = np.frombuffer(data, first)
    cast = stax.lax.bitcast_convert_type
    middle = cast(shaped(x, second), second)
    there = cast(shaped(middle, first), first)
    assert np.asarray(there).tobytes() == data


@settings(max_examples=30)
@given(st.floats(width=32, allow_subnormal=False), st.integers(1, 9), st.integers(0, 24))
def test_reduce_precision_of_any_format(x: float, exponent: int, mantissa: int) -> None:
    number = np.float32(x)
    ours = stax.lax.reduce_precision(number, exponent, mantissa)
    assert_like_jax(ours, jax.lax.reduce_precision(number, exponent, mantissa))


def test_reduce_precision_is_linear_and_checks_its_format() -> None:
    def ours(x: Any) -> Any:
        return stax.lax.reduce_precision(x, 5, 3)

    def theirs(x: Any) -> Any:
        return jax.lax.reduce_precision(x, 5, 3)

    pushed, expected = stax.jvp(ours, (1.2345,), (0.7654,)), jax.jvp(theirs, (1.2345,), (0.7654,))
    assert [*map(float, pushed)] == [*map(float, expected)]
    slopes = stax.grad(lambda x: 1.23 * ours(x))(2.0), jax.grad(lambda x: 1.23 * theirs(x))(2.0)
    assert float(slopes[0]) == float(slopes[1])
    for form in ((0, 3), (3, -1)):
        with pytest.raises(ArgumentValueError, match="bits"):
            stax.lax.reduce_precision(1.0, *form)
    with pytest.raises(DTypeError, match="floating"):
        stax.lax.reduce_precision(1, 5, 3)


def test_a_barrier_keeps_copies_apart() -> None:
    def function(x: Any) -> Any:
        return snp.sin(x) + snp.sin(stax.lax.optimization_barrier(x))

    x = snp.arange(3.0)
    graph = stax.make_graph(function)(x)
    assert str(graph).count("sin") == 2
    np.testing.assert_array_equal(stax.jit(function)(x), 2 * np.asarray(snp.sin(x)))
    tree = {"a": x, "b": (1.5, 2)}
    out = stax.lax.optimization_barrier(tree)
    assert out["b"] == (1.5, 2) and (out["a"] == x).all()


def test_derivatives_pass_a_barrier() -> None:
    def function(x: Any) -> Any:
        return (stax.lax.optimization_barrier(x) ** 3).sum()

    x = snp.array([1.0, 2.0])
    for gradient in (stax.grad(function), stax.jit(stax.grad(function))):
        np.testing.assert_array_equal(gradient(x), [3.0, 12.0])
    np.testing.assert_array_equal(stax.hessian(function)(x), np.diag([6.0, 12.0]))
    mapped = stax.vmap(stax.grad(function))(x[:, None])
    np.testing.assert_array_equal(mapped, [[3.0], [12.0]])


def test_a_masked_cotangent_passes_a_barrier_and_a_rounding() -> None:
    for identity in (
        stax.lax.optimization_barrier,
        lambda x: stax.lax.reduce_precision(x, 11, 52),
    ):

        def function(x: Any, identity: Any = identity) -> Any:
            return snp.where(x > 0, identity(snp.sqrt(x)), 0.0)

        assert stax.grad(function)(0.0) == 0.0
        assert stax.grad(function)(4.0) == 0.25


def test_bits_have_no_derivative() -> None:
    assert stax.grad(lambda x: stax.lax.nextafter(x, 2.0) * x)(1.5) == np.nextafter(1.5, 2.0)
    cast = stax.lax.bitcast_convert_type
    assert stax.grad(lambda x: cast(cast(x, "int64"), "float64"))(1.5) == 0.0
