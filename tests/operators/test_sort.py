"""Sorting against JAX: NaN, zeros, several keys, derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.operators.elementwise import mul
from stax.operators.reduce import reduce_sum
from stax.operators.sort import argsort, sort
from tests.operators.calculus import batched, gradient, gradient_graph, hessian


def same(actual: Any, expected: Any) -> None:
    """Compare bit for bit, so that -0.0 is not 0.0."""
    a, b = np.asarray(actual), np.asarray(expected)
    assert a.dtype == b.dtype
    if a.dtype == jnp.bfloat16:
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_array_equal(a, b)
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


SPECIAL = [3.0, np.nan, -0.0, np.inf, 0.0, -np.inf, -0.0, np.nan, 1e-45, -1.0]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_special_values_as_jax(dtype: str) -> None:
    x = np.array(SPECIAL).astype(jnp.dtype(dtype))
    same(sort(x), jnp.sort(x))
    same(argsort(x), jnp.argsort(x, stable=True))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "bool", "float32", "complex64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_every_axis_and_dtype(dtype: str, axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 5, (4, 3, 5)).astype(dtype)
    same(sort(x, axis), jnp.sort(x, axis))
    same(argsort(x, axis), jnp.argsort(x, axis, stable=True))


@pytest.mark.parametrize("num_keys", [1, 2, 3])
def test_several_operands_as_jax(num_keys: int) -> None:
    rng = np.random.default_rng(0)
    operands = tuple(rng.integers(0, 3, (2, 9)).astype(d) for d in ("int32", "float32", "int32"))
    expected = jax.lax.sort(operands, dimension=1, num_keys=num_keys)
    for a, b in zip(sort(operands, 1, num_keys), expected, strict=True):
        same(a, b)


def test_the_number_of_results_is_that_of_the_operands() -> None:
    x = np.array([2, 1], np.int32)
    assert isinstance(sort((x,)), tuple) and len(sort((x,))) == 1
    same(sort([x])[0], [np.int32(1), np.int32(2)])
    assert np.asarray(sort(np.zeros((0, 3), np.float32), 0)).shape == (0, 3)


def test_arguments_are_checked() -> None:
    x = np.zeros(3, np.float32)
    for keys in (0, 2):
        with pytest.raises(ArgumentError, match="no order"):
            sort((x,), num_keys=keys)
    with pytest.raises(ShapeError, match="differ in shape"):
        sort((x, x[:2]))
    with pytest.raises(ShapeError, match="out of range"):
        sort(x, 1)
    assert issubclass(DTypeError, TypeError)


WEIGHTS = np.array([1, 10, 100, 1000], np.float32)


def weighted(x: Any, weights: Any) -> Any:
    return reduce_sum(mul(sort(x), weights))


def weighted_by_jax(x: Any) -> Any:
    return jnp.sum(jnp.sort(x) * WEIGHTS)


def test_gradients_follow_the_permutation() -> None:
    x = np.array([3, 1, 4, 2], np.float32)
    same(gradient(weighted, x, WEIGHTS), np.array([100, 1, 1000, 10], np.float32))


def test_ties_go_to_the_first_as_in_jax() -> None:
    x = np.array([2, 1, 2, 1], np.float32)
    same(gradient(weighted, x, WEIGHTS), jax.grad(weighted_by_jax)(x))


def test_values_that_go_along_are_differentiated_too() -> None:
    keys = np.array([2, 0, 1, 3], np.int32)
    x = np.random.default_rng(0).normal(size=4).astype(np.float32)

    def ours(v: Any, k: Any, weights: Any) -> Any:
        _, moved = sort((k, v))
        return reduce_sum(mul(mul(moved, moved), weights))

    def theirs(v: Any) -> Any:
        _, moved = jax.lax.sort((jnp.asarray(keys), v))
        return jnp.sum(moved * moved * WEIGHTS)

    same(gradient(ours, x, keys, WEIGHTS), jax.grad(theirs)(x))
    np.testing.assert_allclose(hessian(ours, x, keys, WEIGHTS), jax.hessian(theirs)(x))


def test_second_derivatives_of_sorted_values() -> None:
    x = np.array([3, 1, 4, 2], np.float32)

    def ours(v: Any, weights: Any) -> Any:
        ordered = sort(v)
        return reduce_sum(mul(mul(ordered, ordered), mul(v, weights)))

    expected = jax.hessian(lambda v: jnp.sum(jnp.sort(v) ** 2 * v * WEIGHTS))(x)
    np.testing.assert_allclose(hessian(ours, x, WEIGHTS), expected, rtol=1e-5)


def test_batched_gradients() -> None:
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    graph = gradient_graph(weighted, x[0], WEIGHTS)
    same(batched(graph, x, WEIGHTS), jax.vmap(jax.grad(weighted_by_jax))(x))
