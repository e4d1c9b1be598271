"""Reductions against NumPy and JAX, and their gradients where factors are zero and extremes tie."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from stax.errors import ArgumentValueError, DTypeError, ShapeError
from stax.operators.reduce import (
    argmax,
    argmin,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
)
from tests.operators.calculus import batched, gradient, gradient_graph, hessian, pushed

NAN = np.float32(np.nan)


def value(x: Any) -> np.ndarray:
    return np.asarray(x)


def array(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of the results of `function`."""
    return lambda x: reduce_sum(function(x))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "float16", "bfloat16", "float32"])
def test_reductions_keep_the_dtype_and_agree_with_numpy(dtype: str) -> None:
    x = np.random.default_rng(0).integers(1, 4, (3, 4, 5)).astype(jnp.dtype(dtype))
    wide = x.astype(np.float64)
    for ours, theirs in [(reduce_sum, np.sum), (reduce_max, np.max), (reduce_min, np.min)]:
        for axes in (0, (1, 2), (-1,), None, ()):
            found = value(ours(x, axes))
            assert found.dtype == x.dtype
            np.testing.assert_array_equal(found, np.asarray(theirs(wide, axes)).astype(x.dtype))
    product = value(reduce_prod(x, (0,)))
    np.testing.assert_array_equal(product, np.prod(wide, 0).astype(x.dtype))


def test_sums_of_16_bit_floats_accumulate_in_float32() -> None:
    assert value(reduce_sum(np.ones(20000, np.float16))) == 20000
    assert value(reduce_sum(np.ones(70000, ml_dtypes.bfloat16))) == 70144


def test_integers_wrap() -> None:
    assert value(reduce_sum(np.full(3, 100, np.int8))) == np.int8(44)
    assert value(reduce_prod(np.full(21, 3, np.int32))) == 1870418611


def test_empty_reductions() -> None:
    empty = np.zeros((0, 3), np.float32)
    np.testing.assert_array_equal(value(reduce_sum(empty, 0)), np.zeros(3))
    np.testing.assert_array_equal(value(reduce_prod(empty, 0)), np.ones(3))
    assert value(reduce_and(np.zeros(0, bool))) and not value(reduce_or(np.zeros(0, bool)))
    for function in (reduce_max, reduce_min, lambda x: argmax(x, 0), lambda x: argmin(x, 0)):
        with pytest.raises(ArgumentValueError, match="no elements"):
            function(empty)
    assert value(argmax(empty, 1)).shape == (0,)
    assert value(reduce_max(empty, 1)).shape == (0,)


def test_bits() -> None:
    x = np.array([[12, 10], [6, 3]], np.int32)
    np.testing.assert_array_equal(value(reduce_and(x, 0)), np.bitwise_and.reduce(x, 0))
    np.testing.assert_array_equal(value(reduce_or(x, 1)), np.bitwise_or.reduce(x, 1))
    with pytest.raises(DTypeError, match="reduce_or does not accept f32"):
        reduce_or(array(1))


def test_arguments_are_checked() -> None:
    for bad in (2, (0, 0), (-3,)):
        with pytest.raises(ShapeError):
            reduce_sum(np.ones((2, 3), np.float32), bad)
    with pytest.raises(DTypeError, match="bool"):
        reduce_sum(np.ones(3, bool))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nan_is_an_extreme(dtype: str) -> None:
    x = np.array([[1, NAN], [NAN, 1], [NAN, NAN], [5, 4]]).astype(jnp.dtype(dtype))
    for function in (reduce_max, reduce_min):
        np.testing.assert_array_equal(np.isnan(value(function(x, 1))), [1, 1, 1, 0])
    np.testing.assert_array_equal(value(argmax(x, 1)), [1, 0, 0, 0])
    np.testing.assert_array_equal(value(argmin(x, 1)), [1, 0, 0, 1])


def test_places_of_extremes() -> None:
    x = np.array([3, 7, 7, 3], np.int32)
    assert value(argmax(x, 0)) == 1 and value(argmin(x, 0)) == 0
    assert value(argmax(x, -1, np.int64)).dtype == np.int64
    assert value(argmax(~np.array([2, 2], np.int32), 0)) == 0
    assert value(argmax(array(-1, -0.0, 1.4e-45), 0)) == 2
    assert value(argmax(np.array([False, True]), 0)) == 1


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin"])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_reductions_as_jax(name: str, reverse: bool) -> None:
    ours = {"cumsum": cumsum, "cumprod": cumprod, "cummax": cummax, "cummin": cummin}[name]
    x = np.random.default_rng(0).integers(-3, 4, (4, 5)).astype(np.float32)
    x[1, 2] = np.nan
    for axis in (0, 1):
        np.testing.assert_array_equal(
            value(ours(x, axis, reverse)), getattr(jax.lax, name)(x, axis, reverse)
        )
    assert value(ours(np.zeros((0, 2), np.int32), 0, reverse)).shape == (0, 2)


@pytest.mark.parametrize(
    ("factors", "expected"), [((2, 0, 3), (0, 6, 0)), ((0, 0, 3), (0, 0, 0)), ((0,), (1,))]
)
def test_gradient_of_prod_with_zeros(factors: Any, expected: Any) -> None:
    np.testing.assert_array_equal(gradient(reduce_prod, array(*factors)), expected)


@pytest.mark.parametrize(
    "factors", [(2, 0, 3), (0, 0, 3), (0, 0, 0), (1, 2, 3, 4, 5), (0, 2, 0, 4)]
)
def test_second_derivatives_of_products(factors: Any) -> None:
    x = array(*factors)
    whole, running = jax.jit(
        lambda x: [jax.hessian(f)(x) for f in (jnp.prod, lambda v: jnp.sum(jnp.cumprod(v)))]
    )(x)
    np.testing.assert_array_equal(hessian(reduce_prod, x), whole)
    np.testing.assert_array_equal(hessian(total(cumprod), x), running)


@pytest.mark.parametrize(
    ("factors", "expected"), [((0, 2, 3), (9, 0, 0)), ((2, 0, 0, 3), (1, 2, 0, 0))]
)
def test_gradient_of_cumprod_with_zeros(factors: Any, expected: Any) -> None:
    np.testing.assert_array_equal(gradient(total(cumprod), array(*factors)), expected)


def test_gradients_of_products_stay_finite_beside_infinities() -> None:
    x = array(1e30, 1e30, 0, 2)
    np.testing.assert_array_equal(gradient(reduce_prod, x), [0, 0, np.inf, 0])


def test_products_over_several_axes() -> None:
    x = np.random.default_rng(0).normal(size=(3, 2, 5)).astype(np.float32)

    def ours(v: Any) -> Any:
        return reduce_sum(reduce_prod(v, (0, 2)))

    expected = jax.grad(lambda v: jnp.sum(jnp.prod(v, (0, 2))))(x)
    np.testing.assert_allclose(gradient(ours, x), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["max", "min"])
def test_ties_share_the_gradient(name: str) -> None:
    ours = {"max": reduce_max, "min": reduce_min}[name]
    x = np.array([[1, 1, 0, 1], [2, 2, 2, 2], [0, 5, 5, -1]], np.float32)
    expected = jax.jit(jax.grad(lambda v: jnp.sum(getattr(jnp, name)(v, 1))))(x)
    np.testing.assert_allclose(gradient(lambda v: reduce_sum(ours(v, 1)), x), expected)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("values", [(1, 1, 1), (1, 2, 2, 2, 0, 3, 3), (5, 4, 3, 2), (0,)])
def test_ties_of_running_extremes_as_jax(values: Any, reverse: bool) -> None:
    x = array(*values)
    for ours, theirs in [(cummax, jax.lax.cummax), (cummin, jax.lax.cummin)]:
        expected = jax.jit(jax.grad(lambda v, f=theirs: jnp.sum(f(v, 0, reverse))))(x)
        found = gradient(lambda v, f=ours: reduce_sum(f(v, 0, reverse)), x)
        np.testing.assert_allclose(found, expected)


def test_an_infinite_tangent_of_a_loser_does_not_count() -> None:
    assert pushed(reduce_max, array(1, 2), array(np.inf, 3)) == 3


def test_batched_gradients() -> None:
    x = array(2, 0, 3, 1, 1, 1).reshape(2, 3)
    graph = gradient_graph(reduce_prod, x[0])
    np.testing.assert_array_equal(batched(graph, x), [[0, 6, 0], [1, 1, 1]])
    expected = jax.jit(jax.vmap(jax.grad(lambda v: jnp.sum(jnp.cumprod(v)))))(x)
    np.testing.assert_array_equal(batched(gradient_graph(total(cumprod), x[0]), x), expected)


def test_a_long_product_has_a_shallow_gradient() -> None:
    x = np.ones(4097, np.float32)
    np.testing.assert_array_equal(gradient(reduce_prod, x), x)
    np.testing.assert_array_equal(gradient(total(cumprod), x), np.arange(4097, 0, -1))
