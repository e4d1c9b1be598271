"""Shape ops against NumPy and JAX; the generic rules are in `test_rules`."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stax.errors import ArgumentValueError, DTypeError, InconclusiveDimensionOperation, ShapeError
from stax.extent import symbol
from stax.graph import Constant
from stax.interpreters.evaluate import evaluate
from stax.operators.dynamic import dynamic_slice, dynamic_update_slice
from stax.operators.reshape import Reshape
from stax.operators.shape import (
    broadcast_in_dim,
    broadcast_to,
    concatenate,
    expand_dims,
    expand_leading,
    iota,
    move_axis,
    pad,
    reshape,
    rev,
    slice_,
    slice_in_dim,
    squeeze,
    transpose,
)
from stax.trace import full
from stax.types import ArrayType, float32, int32
from tests.operators.calculus import graph_of, traced

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def shape_of(function: Callable[..., Any], *shapes: Sequence[Any], dtype: Any = float32) -> Any:
    return graph_of(function, *(ArrayType(dtype, tuple(s)) for s in shapes)).output_types[0].shape


def check(function: Callable[..., Any], expected: Any, *arrays: Any) -> None:
    """Compare `function`, run eagerly and traced, with the expected array."""
    wanted = np.asarray(expected)
    (of_graph,) = evaluate(traced(function, arrays), arrays)
    for value in (np.asarray(function(*arrays)), of_graph):
        assert value.dtype == wanted.dtype and value.shape == wanted.shape
        np.testing.assert_array_equal(value, wanted)


def test_broadcasts() -> None:
    check(lambda x: broadcast_to(x, (5, 2, 3, 4)), np.broadcast_to(X, (5, 2, 3, 4)), X)
    check(lambda x: broadcast_to(x, (3, 4)), np.broadcast_to(X[:1, :1, 0], (3, 4)), X[:1, :1, 0][0])
    check(
        lambda x: broadcast_in_dim(x, (2, 3, 4), (1,)),
        jax.lax.broadcast_in_dim(X[0, :, 0], (2, 3, 4), (1,)),
        X[0, :, 0],
    )
    check(lambda x: expand_leading(x, 3), np.stack([X] * 3), X)


@pytest.mark.parametrize("dims", [(0,), (1, 0), (0, 0), (0, 2), (-1, 0)])
def test_broadcast_dimensions_are_checked(dims: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="do not place the axes"):
        shape_of(lambda x: broadcast_in_dim(x, (3, 4), dims), (3, 4))


def test_broadcast_lengths_are_checked() -> None:
    with pytest.raises(ShapeError, match="does not broadcast"):
        shape_of(lambda x: broadcast_to(x, (3, 4)), (2,))


def test_moving_a_constant_gives_a_constant() -> None:
    def function() -> Any:
        x = broadcast_to(full((), -0.0, float32), (2, 3))
        x = reshape(transpose(rev(slice_(x, (0, 1), (2, 3)), 0)), (4,))
        return expand_leading(x, 5)

    (node,) = graph_of(function).nodes
    assert isinstance(node.op, Constant) and node.op.shape == (5, 4)
    assert np.signbit(node.op.value)


def test_a_python_number_keeps_its_weak_type() -> None:
    (node,) = graph_of(lambda: broadcast_to(2.0, (3,))).outputs
    assert node.type is ArrayType(float32, (3,), True)


def test_nothing_is_recorded_when_nothing_changes() -> None:
    def function(x: Any) -> Any:
        x = transpose(reshape(broadcast_to(x, (2, 3)), (2, 3)), (0, 1))
        return concatenate([pad(slice_(x, (0, 0), (2, 3)), 0.0, [(0, 0, 0)] * 2)], 0)

    assert not graph_of(function, ArrayType(float32, (2, 3))).nodes


def test_reshapes() -> None:
    check(lambda x: reshape(x, (4, -1)), X.reshape(4, 6), X)
    check(lambda x: reshape(x, -1), X.ravel(), X)
    check(lambda x: reshape(x, -1), X.T.ravel(), X.T)
    check(lambda x: expand_dims(x, (0, -1)), X[None, ..., None], X)
    check(lambda x: squeeze(x), X[0, 0], X[:1, :1])
    check(lambda x: squeeze(x, -2), X[:, 0], X[:, :1])
    assert shape_of(lambda x: reshape(x, (0, 5)), (0, 3)) == (0, 5)


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (-1, 5), (-1, 0)])
def test_reshape_keeps_the_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match="reshape"):
        shape_of(lambda x: reshape(x, shape), (4, 6))


def test_squeeze_wants_length_one() -> None:
    with pytest.raises(ArgumentValueError, match="length 1"):
        shape_of(lambda x: squeeze(x, 0), (2, 1))


def test_transposes() -> None:
    check(lambda x: transpose(x), X.T, X)
    check(lambda x: transpose(x, (1, -1, 0)), X.transpose(1, 2, 0), X)
    check(lambda x: move_axis(x, 0, -1), np.moveaxis(X, 0, -1), X)
    check(lambda x: rev(x, (0, -1)), X[::-1, :, ::-1], X)
    with pytest.raises(ShapeError, match="permute"):
        shape_of(lambda x: transpose(x, (0, 0)), (2, 3))


def test_slices() -> None:
    check(lambda x: slice_(x, (0, 1, 0), (2, 3, 4), (1, 1, 3)), X[:, 1:3, ::3], X)
    check(lambda x: slice_in_dim(x, 1, None, 2, -1), X[..., 1::2], X)
    for starts, limits in [((0,), (5,)), ((3,), (2,)), ((-1,), (2,)), ((0, 0), (1, 1))]:
        with pytest.raises(ShapeError):
            shape_of(lambda x, a=starts, b=limits: slice_(x, a, b), (4,))


@pytest.mark.parametrize(
    "config", [(1, 2, 0), (0, 0, 2), (-1, 3, 1), (2, -1, 2), (-2, -1, 0), (-1, -1, 1), (2, -6, 0)]
)
def test_pads_as_jax(config: tuple[int, int, int]) -> None:
    axes = ((0, 0, 0), config, (0, 1, 0))
    x, value = np.tile(X, (1, 2, 1))[:, :4], np.float32(-7)
    check(lambda a, b: pad(a, b, axes), jax.lax.pad(x, value, axes), x, np.asarray(value))


def test_pad_is_checked() -> None:
    with pytest.raises(ShapeError, match="cuts more"):
        shape_of(lambda x: pad(x, 0.0, [(-2, -2, 0)]), (3,))
    with pytest.raises(DTypeError, match="scalar of its dtype"):
        shape_of(lambda x: pad(x, 0, [(1, 1, 0)]), (3,))


def test_concatenates() -> None:
    check(lambda x, y: concatenate([x, y], -1), np.concatenate([X, X[..., :1]], -1), X, X[..., :1])
    with pytest.raises(ShapeError, match="more than axis"):
        shape_of(lambda x, y: concatenate([x, y], 0), (2, 3), (2, 4))


@pytest.mark.parametrize("dtype", ["int8", "uint32", "float16", "bfloat16", "float64"])
def test_iota_counts(dtype: str) -> None:
    check(
        lambda: iota(dtype, (3, 4), 1),
        np.broadcast_to(np.arange(4), (3, 4)).astype(jnp.dtype(dtype)),
    )


@pytest.mark.parametrize("start", [-20, -2, 0, 1, 3, 99])
def test_dynamic_slices_as_jax(start: int) -> None:
    i, x = np.int32(start), np.arange(20, dtype=np.float32).reshape(4, 5)
    update = np.full((2, 2), -1, np.float32)
    read = jax.lax.dynamic_slice(x, (i, 1), (2, 3))
    written = jax.lax.dynamic_update_slice(x, update, (i, 2))
    check(lambda a: dynamic_slice(a, (start, 1), (2, 3)), read, x)
    check(lambda a, j: dynamic_slice(a, (j, 1), (2, 3)), read, x, np.asarray(i))
    check(lambda a, u, j: dynamic_update_slice(a, u, (j, 2)), written, x, update, np.asarray(i))
    check(lambda a, u: dynamic_update_slice(a, u, (start, 2)), written, x, update)


def test_starts_of_narrow_types_do_not_wrap() -> None:
    x = np.arange(200, dtype=np.int32)
    check(lambda a, i: dynamic_slice(a, (i,), (1,)), np.int32([128]), x, np.asarray(np.uint8(128)))
    check(lambda a, i: dynamic_slice(a, (i,), (1,)), np.int32([199]), x, np.asarray(np.int8(-1)))


def test_symbolic_lengths() -> None:
    n = symbol("n")
    assert shape_of(lambda x: broadcast_to(x, (3, n, 4)), (4,)) == (3, n, 4)
    assert shape_of(lambda x: reshape(x, (n, 2, -1)), (n, 6)) == (n, 2, 3)
    assert shape_of(lambda x: reshape(x, (n * 6,)), (n, 6)) == (6 * n,)
    assert shape_of(lambda x: transpose(x), (n, 6)) == (6, n)
    assert shape_of(lambda x: slice_in_dim(x, 1, None), (n, 6)) == (n - 1, 6)
    assert shape_of(lambda x: pad(x, 0.0, [(1, n, 1)]), (n,)) == (3 * n,)
    assert shape_of(lambda x, y: concatenate([x, y]), (n,), (3,)) == (n + 3,)
    assert shape_of(lambda: iota(int32, (n,))) == (n,)
    assert shape_of(lambda x, i: dynamic_slice(x, (i, 0), (1, 6)), (n, 6), (), dtype=int32) == (
        1,
        6,
    )
    with pytest.raises(InconclusiveDimensionOperation):
        shape_of(lambda x: slice_in_dim(x, 0, 5), (n,))


def test_a_reshape_that_only_adds_axes_divides_nothing() -> None:
    class Refusing:
        def extent(self, length: int) -> int:
            return length

    class Echo:
        type = ArrayType(float32, (3, 1, 4))

        def __call__(self, index: Any) -> Any:
            return index

    found = Reshape((1, 3, 4, 1)).lower(Refusing(), (0, "i", "j", 0), Echo())
    assert found == ("i", 0, "j")
