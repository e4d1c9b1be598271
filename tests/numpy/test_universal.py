"""The methods of ufuncs against JAX's, and what distinguishes them from plain functions."""

import copy
import inspect
import operator
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError, UnsupportedError
from tests.like_jax import assert_like_jax

BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]
LOGICAL = ["logical_and", "logical_or", "logical_xor"]
SUMS = ["add", "multiply", "logaddexp", "logaddexp2"]
ALL = [*BITS, *LOGICAL, *SUMS, "subtract", "maximum", "minimum"]
X = np.array([[1, 2, 3], [4, 5, 6], [0, 7, 1], [9, 2, 2], [3, 1, 8]], np.int8)
MASK = X > 2
# JAX's own reductions refuse these, or need a start that has an axis.
NO_DTYPE = {*BITS, *LOGICAL, "maximum", "minimum"}
NO_INITIAL = {"logaddexp", "logaddexp2"}


def both(name: str, method: str, *args: Any, **options: Any) -> None:
    """Compare with JAX's type, which compiles nothing, and NumPy's values."""
    kind = jax.eval_shape(lambda: getattr(getattr(jnp, name), method)(*args, **options))
    # NumPy takes logarithms of int8 in float16.
    wide = [x.astype(float) if name in NO_INITIAL else x for x in args]
    values = getattr(getattr(np, name), method)(*wide, **options)
    assert_is(getattr(getattr(snp, name), method)(*args, **options), kind, values)


def assert_is(found: Any, kind: Any, values: Any) -> None:
    assert (found.dtype, found.shape) == (kind.dtype, kind.shape)
    np.testing.assert_allclose(found, np.asarray(values).astype(kind.dtype), rtol=1e-6)


@pytest.mark.parametrize("name", ALL)
def test_reduce(name: str) -> None:
    both(name, "reduce", X)
    both(name, "reduce", X, axis=-1, keepdims=True)
    if name != "subtract":  # which has no order
        both(name, "reduce", X, axis=None)
        both(name, "reduce", X, axis=(0, 1))
    if name not in NO_DTYPE:
        both(name, "reduce", X, dtype="float32")
    if name not in NO_INITIAL:
        both(name, "reduce", X, initial=5)
        both(name, "reduce", X, where=MASK, initial=1)


@pytest.mark.parametrize("name", ALL)
def test_reduce_of_some_and_of_nothing(name: str) -> None:
    if getattr(jnp, name).identity is not None:
        both(name, "reduce", X, where=MASK)
        # NumPy has no type in which nothing of an integer is minus infinity.
        kind = jax.eval_shape(lambda: getattr(jnp, name).reduce(X[:0]))
        empty = np.full(3, getattr(jnp, name).identity)
        assert_is(getattr(snp, name).reduce(X[:0]), kind, empty)
        return
    with pytest.raises(ArgumentValueError):
        getattr(snp, name).reduce(X, where=MASK)
    with pytest.raises(ValueError):
        getattr(snp, name).reduce(X[:0])


@pytest.mark.parametrize("name", ALL)
def test_accumulate_and_outer(name: str) -> None:
    both(name, "accumulate", X)
    both(name, "accumulate", X, axis=1)
    if name not in NO_DTYPE:
        both(name, "accumulate", X, dtype="float32")
    both(name, "outer", X[0], X[:2])


@pytest.mark.parametrize("name", [n for n in ALL if not n.startswith("log")])
def test_reduceat(name: str) -> None:
    both(name, "reduceat", X, np.array([0, 3, 1]))
    both(name, "reduceat", X, np.array([1, 2]), axis=1)


@pytest.mark.parametrize("name", ALL)
def test_compiled(name: str) -> None:
    function = getattr(snp, name)
    for method in (function.reduce, function.accumulate):
        np.testing.assert_allclose(stax.jit(method)(X), method(X), rtol=1e-6)


@pytest.mark.parametrize("name", ["add", "multiply", "subtract", "negative"])
def test_at(name: str) -> None:
    values = () if name == "negative" else (X[0],)
    for places, rest in ((np.array([0, 2]), values), ((0, 1), values and (3,))):
        theirs = getattr(jnp, name).at(X, places, *rest, inplace=False)
        assert_like_jax(getattr(snp, name).at(X, places, *rest, inplace=False), theirs)


def test_at_counts_each_place_again() -> None:
    x, places = np.arange(4), np.array([1, 1, 3])
    for name in ("add", "multiply", "subtract", "maximum", "bitwise_xor"):
        expected = x.copy()
        getattr(np, name).at(expected, places, np.array([5, 6, 7]))
        found = getattr(snp, name).at(x, places, np.array([5, 6, 7]), inplace=False)
        np.testing.assert_array_equal(found, expected)
    expected = x.copy()
    np.negative.at(expected, places)
    np.testing.assert_array_equal(snp.negative.at(x, places, inplace=False), expected)
    with pytest.raises(UnsupportedError, match="immutable"):
        snp.add.at(x, places, 1)


@pytest.mark.parametrize("name", [*ALL, "negative"])
def test_attributes(name: str) -> None:
    ours, theirs = getattr(snp, name), getattr(jnp, name)
    assert isinstance(ours, snp.ufunc)
    for attribute in ("nin", "nout", "nargs", "identity", "__name__"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)
    assert [*inspect.signature(ours).parameters] == [*inspect.signature(theirs).parameters]
    assert pickle.loads(pickle.dumps(ours)) is ours
    assert copy.deepcopy(ours) is ours
    assert ours.__doc__


def test_out_and_where_are_refused_and_so_are_wrong_numbers_of_arguments() -> None:
    for options in ({"out": X}, {"where": MASK}):
        with pytest.raises(UnsupportedError):
            snp.add(X, X, **options)
    with pytest.raises(TypeError):
        snp.add(X)
    with pytest.raises(TypeError):
        snp.add(X, X, X)
    with pytest.raises(ArgumentValueError, match="two elements"):
        snp.negative.reduce(X)


def test_a_function_of_ones_own() -> None:
    for library in (np, jnp):
        assert library.frompyfunc(operator.add, 2, 1).nin == 2
    ours = snp.frompyfunc(lambda x, y: x + 2 * y, 2, 1, identity=0)
    theirs = jnp.frompyfunc(lambda x, y: x + 2 * y, 2, 1, identity=0)
    x = np.array([1, 4, 2], np.int32)
    assert_like_jax(ours(x, 10), theirs(x, 10))
    assert_like_jax(ours.outer(x, x), theirs.outer(x, x))
    assert_like_jax(ours.reduce(x), theirs.reduce(x))
    assert_like_jax(ours.accumulate(x), theirs.accumulate(x))
    assert_like_jax(ours.reduceat(x, np.array([0, 1])), theirs.reduceat(x, np.array([0, 1])))
    at = x, np.array([0, 0]), np.array([1, 2], np.int32)
    assert_like_jax(ours.at(*at, inplace=False), theirs.at(*at, inplace=False))
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(ours)


def test_transformations_take_ufuncs() -> None:
    x = np.arange(3.0, dtype=np.float32)
    np.testing.assert_array_equal(stax.jit(snp.add)(x, x), 2 * x)
    np.testing.assert_array_equal(stax.vmap(snp.multiply, (0, None))(x, 2.0), 2 * x)
    assert stax.grad(snp.multiply)(3.0, 4.0) == 4.0
    slope = stax.grad(lambda x: snp.logaddexp.reduce(x))(x)
    np.testing.assert_allclose(slope, np.exp(x) / np.exp(x).sum(), rtol=1e-6)
