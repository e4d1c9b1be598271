"""NumPy indexing against JAX: reading, updating, errors, derivatives and batches."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, basic_indices, integer_array_indices

import stax.interpreters.evaluate
import stax.numpy.indexing  # noqa: F401
from stax.api.derivatives import grad
from stax.api.mapping import vmap
from stax.array import Array, asarray
from stax.errors import ArgumentError, IndexingError, NonConcreteBooleanIndexError
from stax.extent import symbol
from stax.operators.broadcast import reduce_sum
from stax.trace import Proxy, Trace
from stax.types import ArrayType, bool_, float32, int32
from tests.identifiers import shown
from tests.like_jax import assert_like_jax


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(np.float32)


X = numbers(4, 5, 6)
I = np.array([0, -1, 2, 7, -9])  # noqa: E741
J = np.array([[1], [0]])
MASK = np.arange(20).reshape(4, 5) % 3 == 0

INDICES = [
    (), 0, -1, 7, -9, None, ..., slice(None), slice(1, 3), slice(None, None, -1), slice(-2, None),
    slice(3, 0, -2), slice(4, 1), slice(None, None, 2), slice(10), np.int64(2), np.uint8(3), True,
    False, np.array(2), I, J, I[:0], np.uint8([3, 9]), MASK[:, 0], MASK, np.array(True),
    (0, 1), (0, 1, 2), (slice(1), 0), (..., 0), (0, ..., 1), (None, 0, None), (..., None),
    (slice(None, None, -1), slice(None, None, -2), -1), (I, 0), (0, I), (I, I), (J, I), (I, J, 0),
    (slice(None), I), (I, slice(None), I), (0, slice(None), I), (I, None, I), (None, I, 0, None),
    (slice(1, 3), I, slice(None, None, -1)), (..., I), (I, ..., I), (..., I, slice(2)),
    ([0, 1], slice(None)), ([0, 1], [1, 2]), (MASK[:, 0], 1), (0, MASK[0]), (MASK, slice(2)),
    (slice(None), True), (False, 0), (I, True), (slice(2), None, J), ([], 0), (J, slice(1, 4), J),
]  # fmt: skip


def jaxed(index: Any) -> Any:
    """Return an index with its arrays as JAX's."""
    if isinstance(index, tuple):
        return tuple(map(jaxed, index))
    return jnp.asarray(index) if isinstance(index, np.ndarray) else index


def staxed(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(staxed, index))
    return asarray(index) if isinstance(index, np.ndarray) else index


@pytest.fixture(scope="module", params=INDICES, ids=shown)
def index(request: Any) -> Any:
    return request.param


def written(at: Any, value: Any) -> list[Any]:
    """Return an array with some of its places changed, in several ways."""
    ways = [getattr(at, name)(value) for name in ("set", "add", "divide")]
    return [*ways, at.set(value, mode="clip")]


@pytest.fixture(scope="module")
def theirs(index: Any) -> Any:
    """What JAX reads and writes there: the value written and the results, compiled as one."""
    place = jaxed(index)

    def run(x: Any) -> Any:
        read = x[place]
        value = 2.0 * jnp.ones(x.at[place].get(mode="clip").shape[-1:], np.float32)
        return read, x.at[place].get(mode="fill"), value, written(x.at[place], value)

    return jax.jit(run)(X)


def test_reading_is_that_of_jax(index: Any, theirs: Any) -> None:
    read, filled, *_ = theirs
    assert_like_jax(asarray(X)[index], read)
    assert_like_jax(asarray(X)[staxed(index)], read)
    assert_like_jax(asarray(X).at[index].get(mode="fill"), filled)


def test_reading_when_traced(index: Any, theirs: Any) -> None:
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, X.shape), "x", X)
        y = x[index]
        assert isinstance(y, Proxy)
        assert np.asarray(y).shape == y.shape
        np.testing.assert_array_equal(np.asarray(y), theirs[0])


METHODS = ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"]


def test_updates_are_those_of_jax(index: Any, theirs: Any) -> None:
    *_, value, expected = theirs
    for a, b in zip(written(asarray(X).at[index], np.asarray(value)), expected, strict=True):
        assert_like_jax(a, b, 1e-6)


UNIQUE = [
    0, slice(1, 3), slice(None, None, -2), (0, slice(None), 2), np.array([2, 0]), (None, 1),
    (np.array([2, 0]), slice(1, 4), 0), (np.array([0, 1]), slice(None), np.array([3, 3])), 9,
]  # fmt: skip


@pytest.mark.parametrize("place", UNIQUE, ids=shown)
def test_derivatives_of_updates(place: Any) -> None:
    x, w = np.abs(X) + 1, numbers(*X.shape, seed=1)
    last = jax.eval_shape(lambda x: x[jaxed(place)], x).shape[-1]
    y = 1.5 + 0.25 * np.arange(last, dtype=np.float32)

    def slopes(grad: Any, name: str, place: Any) -> Any:
        def loss(x: Any, y: Any) -> Any:
            return (w * getattr(x.at[place], name)(y, unique_indices=True)).sum()

        return grad(loss, (0, 1))

    theirs = [slopes(jax.grad, name, jaxed(place)) for name in METHODS]
    wanted = jax.jit(lambda x, y: [gradient(x, y) for gradient in theirs])(x, y)
    for name, right in zip(METHODS, wanted, strict=True):
        assert_like_jax(slopes(grad, name, place)(x, y), right, 2e-4)


def test_a_fill_value() -> None:
    for index in (9, I, (0, I)):
        ours, theirs = asarray(X).at[index], jnp.asarray(X).at[jaxed(index)]
        assert_like_jax(ours.get(mode="fill", fill_value=7), theirs.get(mode="fill", fill_value=7))


def test_derivatives_of_reading() -> None:
    x, i = numbers(5), np.array([1, 1, 7, -1])
    cases = [lambda x: x[i], lambda x: x.at[i].get(mode="clip"), lambda x: x[::-2], lambda x: x[9]]
    for read in cases:
        ours = grad(lambda x, read=read: reduce_sum(read(x) ** 2))(x)
        assert_like_jax(ours, jax.jit(jax.grad(lambda x, read=read: (read(x) ** 2).sum()))(x))


BATCHED = [
    lambda x, i: x[i],
    lambda x, i: x[1, i],
    lambda x, i: x[i, i],
    lambda x, i: x[i, ::-1],
    lambda x, i: x.at[i].get(mode="fill"),
    lambda x, i: x.at[i].set(5.0),
    lambda x, i: x.at[i, 1:].add(x[0, 1:]),
    lambda x, i: x.at[1, i].multiply(3.0),
]


@pytest.mark.parametrize("in_axes", [(0, 0), (None, 0), (0, None)])
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("case", range(len(BATCHED)))
def test_batches(case: int, several: bool, in_axes: Any) -> None:
    x = numbers(3, 4, 5) if in_axes[0] == 0 else numbers(4, 5)
    i = np.array([[1, 3], [-1, 0], [9, -9]]) if several else np.array([1, -1, 9])
    i = i if in_axes[1] == 0 else i[0]
    ours = vmap(BATCHED[case], in_axes)(asarray(x), i)
    theirs = jax.jit(jax.vmap(BATCHED[case], in_axes))(x, i)
    assert_like_jax(ours, theirs)


@given(st.data())
@settings(max_examples=60)
def test_any_basic_index(data: Any) -> None:
    x = numbers(*data.draw(array_shapes(max_dims=4, max_side=4)))
    index = data.draw(basic_indices(x.shape, allow_newaxis=True, max_dims=6))
    np.testing.assert_array_equal(np.asarray(asarray(x)[index]), x[index])
    new = x.copy()
    new[index] = 99
    np.testing.assert_array_equal(np.asarray(asarray(x).at[index].set(99)), new)
    new = x.copy()
    new[index] += 2
    np.testing.assert_array_equal(np.asarray(asarray(x).at[index].add(2)), new)


@given(st.data())
@settings(max_examples=60)
def test_any_array_index(data: Any) -> None:
    x = numbers(*data.draw(array_shapes(max_dims=4, max_side=4)))
    index: Any = data.draw(integer_array_indices(x.shape))
    if data.draw(st.booleans()) and len(index) < x.ndim:
        index = (*index[:1], slice(None, None, -1), *index[1:])
    np.testing.assert_array_equal(np.asarray(asarray(x)[index]), x[index])
    new = x.copy()
    new[index] = 99
    np.testing.assert_array_equal(np.asarray(asarray(x).at[index].set(99)), new)
    np.add.at(new, index, 2)
    np.testing.assert_array_equal(np.asarray(asarray(x).at[index].set(99).at[index].add(2)), new)


def traced_ops(use: Any) -> set[str]:
    """Return the names of the ops that `use` applies to a matrix and a traced integer."""
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (4, 5)), "x")
        i = trace.input(ArrayType(int32, ()), "i")
        return {node.op.name for node in trace.finish([use(x, i)]).nodes}


@pytest.mark.parametrize(
    "use",
    [
        lambda x, i: x[1:3, ::-2],
        lambda x, i: x[0, None, 1:],
        lambda x, i: x.at[1:3].set(1.0),
        lambda x, i: x.at[::2, 1].add(1.0),
        lambda x, i: x[i],
        lambda x, i: x.at[i].set(1.0),
        lambda x, i: x.at[i, 1:].add(1.0),
    ],
)
def test_only_arrays_need_gather_and_scatter(use: Any) -> None:
    assert traced_ops(use).isdisjoint({"gather", "scatter"})


def test_whole_axes_are_free() -> None:
    assert traced_ops(lambda x, i: x[:]) == set()
    assert traced_ops(lambda x, i: x[..., :]) == set()
    assert traced_ops(lambda x, i: x.at[:].set(x + 1)) == {"constant", "add"}


def test_masks_must_be_known() -> None:
    with Trace("f", "jit") as trace:
        x = trace.input(ArrayType(float32, (5,)), "x")
        mask = trace.input(ArrayType(bool_, (5,)), "mask")
        with pytest.raises(NonConcreteBooleanIndexError) as caught:
            x[mask]
        assert x[np.array([True, False] * 2 + [True])].shape == (3,)
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("a mask as an index must be known while tracing")
    assert "where(mask, a, b)" in lines[-1]
    slope = grad(lambda x: reduce_sum(x[x > 0]))(np.array([1.0, -1.0, 2.0]))
    assert slope.tolist() == [1, 0, 1]


def test_symbolic_lengths() -> None:
    n = symbol("n")
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (n, 4)), "x")
        i = trace.input(ArrayType(int32, (3,)), "i")
        assert x[:].type is x.type
        assert x[1:].shape == (n - 1, 4)
        assert x[:-1].shape == (n - 1, 4)
        assert x[::-1].shape == (n, 4)
        assert x[0].shape == x[-1].shape == (4,)
        assert x[:, 1].shape == (n,)
        assert x[i].shape == (3, 4)
        assert x[:, i].shape == (n, 3)
        assert x.at[i].add(1.0).shape == (n, 4)
        assert x.at[0].set(1.0).shape == (n, 4)
        with pytest.raises(IndexingError, match="known length"):
            x[1::2]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        ([0, 1], ArgumentError, "a list is not an index"),
        ("a", ArgumentError, "integer or bool, not str"),
        (1.0, ArgumentError, "integer or bool, not float"),
        (np.float32(1), ArgumentError, "integer or bool"),
        (np.array([1.0]), ArgumentError, "integer or bool, not float32|float64"),
        (object(), IndexingError, "is not an index"),
        ((0, 0, 0, 0), IndexingError, "has 3 axes, 4 are indexed"),
        ((..., ...), IndexingError, "one ellipsis"),
        (MASK[:3], IndexingError, "a mask must have the shape"),
        ((np.arange(2), np.arange(3)), IndexingError, "do not broadcast"),
        (slice(0.5, 2), ArgumentError, "ends of a slice are integers"),
    ],
    ids=shown,
)
def test_what_is_no_index(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        asarray(X)[index]
    with pytest.raises((TypeError, IndexError, ValueError)):
        jnp.asarray(X)[jaxed(index)]


def test_traced_ends_of_slices_are_refused() -> None:
    with Trace("f", "jit") as trace:
        i = trace.input(ArrayType(int32, ()), "i")
        with pytest.raises(IndexingError, match="dynamic_slice"):
            asarray(X)[i:]
    assert asarray(X)[asarray(1) : asarray(3)].shape == (2, 5, 6)


def test_empty_axes() -> None:
    empty = asarray(np.zeros((0, 3), np.float32))
    assert empty[np.array([], int)].shape == (0, 3)
    for index in (0, np.array([0])):
        with pytest.raises(IndexingError, match="length 0"):
            empty[index]
    assert empty.at[0].set(1.0).shape == (0, 3)


def test_an_update_keeps_the_type() -> None:
    x = np.arange(5)
    for value in (1.7, 2**20, True, np.float16(2.5)):
        for name in ("set", "add", "multiply", "max", "divide"):
            ours = getattr(asarray(x).at[1], name)(value)
            assert_like_jax(ours, getattr(jnp.asarray(x).at[1], name)(value))


def test_apply() -> None:
    ours = asarray(X).at[1:3, np.array([0, 2])].apply(lambda v: v * v)
    theirs = jnp.asarray(X).at[1:3, np.array([0, 2])].apply(lambda v: v * v)
    assert_like_jax(ours, theirs)


def test_iteration_and_unpacking_when_traced() -> None:
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (2, 3)), "x")
        a, b = x
        assert (a.shape, b.shape, len(x)) == ((3,), (3,), 2)
        with pytest.raises(ArgumentError, match="no length"):
            len(a[0])
    assert all(isinstance(row, Array) for row in asarray(X))
