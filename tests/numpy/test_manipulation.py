"""Functions that make, reshape, join, cut, repeat and pad arrays, against NumPy and jax.numpy."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ShapeError
from tests.like_jax import assert_like_jax
from tests.like_numpy import compared

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
M = np.arange(12, dtype=np.int32).reshape(3, 4)
V = np.array([3.0, 1.0, 2.0], np.float32)
E = np.zeros((0, 3), np.float32)
S = np.float32(2.5)

CREATION: list[tuple[Any, ...]] = [
    ("arange", (5,)), ("arange", (2, 9, 3)), ("arange", (5, 0, -2)), ("arange", (0, 1, 0.25)),
    ("arange", (3.0,)), ("arange", (5,), {"dtype": "float16"}), ("arange", (0,)),
    ("linspace", (0, 1, 5)), ("linspace", (0, 1, 5, False)), ("linspace", (2, 2, 1)),
    ("linspace", (V, 5.0, 4)), ("linspace", (V, 5.0, 4), {"axis": 1}), ("linspace", (0, 9, 0)),
    ("linspace", (0, 10, 5), {"dtype": "int32"}), ("logspace", (0, 2, 3)), ("geomspace", (1, 8, 4)),
    ("zeros", ((2, 3),)), ("ones", (3,), {"dtype": "int8"}), ("full", ((2,), 7)),
    ("full", ((2, 3), V)), ("full", ((2,), 7.5), {"dtype": "int32"}), ("zeros_like", (M,)),
    ("ones_like", (M,), {"shape": (2,)}), ("full_like", (M, 2.9)), ("eye", (3,)),
    ("full_like", (M, 2.5), {"dtype": "float32"}), ("eye", (3, 4, 1)), ("identity", (2,)),
    ("eye", (3,), {"k": -1, "dtype": "int32"}), ("tri", (3, 4, 1)), ("tril", (X, -1)),
    ("triu", (M, 1)), ("meshgrid", (V, V[:2])), ("meshgrid", (V, V[:2]), {"indexing": "ij"}),
    ("meshgrid", (V, V[:2]), {"sparse": True}), ("indices", ((2, 3),)),
    ("array", ([[1, 2], [3, 4]],)),
    ("asarray", ([1, 2.5],)), ("array", (M,), {"ndmin": 4}), ("vander", (V, 4)),
]  # fmt: skip
SHAPES: list[tuple[Any, ...]] = [
    ("reshape", (X, (4, -1))), ("reshape", (X, -1)), ("reshape", (X, (4, 6)), {"order": "F"}),
    ("reshape", (X, (3, 9))), ("reshape", (E, (3, 0))), ("ravel", (X,)),
    ("ravel", (M,), {"order": "F"}),
    ("transpose", (X,)), ("transpose", (X, (1, 0, 2))), ("swapaxes", (X, 0, -1)),
    ("moveaxis", (X, 0, -1)), ("moveaxis", (X, (0, 1), (-1, 0))), ("moveaxis", (X, 0, 3)),
    ("rollaxis", (X, 2)), ("rollaxis", (X, 0, 3)), ("expand_dims", (X, 1)),
    ("expand_dims", (V, (0, 2))),
    ("squeeze", (X[:1],)), ("squeeze", (X[:1, :1], 0)), ("squeeze", (X, 1)),
    ("broadcast_to", (V, (2, 3))), ("broadcast_to", (V, (3, 2))), ("broadcast_arrays", (V, M.T)),
    ("atleast_1d", (S,)), ("atleast_2d", (V,)), ("atleast_3d", (V,)), ("atleast_3d", (M,)),
    ("matrix_transpose", (X,)), ("flip", (X,)), ("flip", (X, (0, 2))), ("fliplr", (M,)),
    ("flipud", (M,)),
    ("rot90", (M,)), ("rot90", (M, 2)), ("rot90", (M, 3)), ("rot90", (X, -3, (1, 2))),
    ("roll", (V, 1)), ("roll", (M, 3)), ("roll", (M, -1, 1)), ("roll", (X, (1, 2), (0, 2))),
    ("roll", (X, 5, 0)), ("roll", (E, 1, 0)), ("resize", (M, (5, 5))),
    ("permute_dims", (M, (1, 0))),
]  # fmt: skip
PADDING: list[tuple[Any, ...]] = [
    ("pad", (M, 1)), ("pad", (M, (1, 2))), ("pad", (M, ((1, 2), (0, 3)))),
    ("pad", (V, 2), {"constant_values": 7}),
    ("pad", (M, ((1, 2), (0, 3))), {"constant_values": ((1, 2), (3, 4))}), ("pad", (M, 2, "edge")),
    ("pad", (M, 2, "reflect")), ("pad", (M, (3, 1), "symmetric")), ("pad", (M, 2, "wrap")),
    ("pad", (S, 0)),
]  # fmt: skip
JOINING: list[tuple[Any, ...]] = [
    ("concatenate", ([M, M],)), ("concatenate", ([X, X[:, :1]], 1)),
    ("concatenate", ([M, V], None)),
    ("concatenate", ([M, M.astype(np.float16)], -1)), ("concatenate", ([V, M],)),
    ("concatenate", ([],)),
    ("stack", ([V, V],)), ("stack", ([V, V + 1], 1)), ("stack", ([V, M],)), ("vstack", ([V, V],)),
    ("vstack", ([M, M[:1]],)), ("hstack", ([V, V[:1]],)), ("hstack", ([M, M],)),
    ("dstack", ([V, V],)),
    ("dstack", ([M, M],)), ("column_stack", ([V, V],)), ("append", (V, V[:1])),
    ("append", (M, M, 0)),
    ("split", (M, 2, 1)), ("split", (M, 2)), ("split", (V, [1, 2])), 
    ("array_split", (V, 2)), ("array_split", (M, 3, 1)), ("hsplit", (M, 2)), ("vsplit", (M, 3)),
    ("dsplit", (X, 2)), ("tile", (V, 2)), ("tile", (M, (2, 1))), ("tile", (V, (2, 2))),
    ("tile", (X, 2)),
    ("repeat", (V, 2)), ("repeat", (M, 2, 1)), ("repeat", (M, 3)), ("unstack", (M,)),
    ("block", ([[M, M], [M, M]],)),
]  # fmt: skip
TAKING: list[tuple[Any, ...]] = [
    ("diag", (V,)), ("diag", (V, 1)), ("diag", (V, -2)), ("diag", (M,)), ("diag", (M, 1)),
    ("diag", (M, -1)),
    ("diag", (M, 9)), ("diagonal", (X,)), ("diagonal", (X, 1, 1, 2)), ("diagonal", (X, 0, 2, 0)),
    ("trace", (M,)), ("trace", (X, 1, 1, 2)), ("trace", (M.astype(np.int8),)),
    ("diagflat", (M[:2, :2],)),
    ("take", (V, np.array([[0, 2], [1, -1]]))), ("take", (M, np.array([1, 0]), 1)),
    ("take", (X, 2, 1)),
    ("take", (M, np.array([5, -7]), 1), {"mode": "wrap"}),
    ("take", (M, np.array([5, -7]), 1), {"mode": "clip"}),
    ("take_along_axis", (M, np.array([[0], [3], [1]]), 1)),
    ("take_along_axis", (M, np.array([[0, 2, 1, 0]]), 0)),
    ("take_along_axis", (M, np.array([3, 5, -1]), None)),
    ("tril_indices", (3, 1, 4)), ("triu_indices", (3,)), ("diag_indices", (3,)),
    ("diff", (V,)), ("diff", (M, 2, 0)), ("diff", (V,), {"prepend": 0, "append": V}),
    ("trapezoid", (V,)),
    ("trapezoid", (M, np.array([0.0, 1.0, 3.0, 4.0], np.float32))), ("ediff1d", (V,)),
    ("interp", (np.float32([0.5, 1.5, -1, 9]), np.float32([0, 1, 2]), V)),
    ("interp", (np.float32([0.5, -1, 9]), np.float32([2, 0, 1]), V), {"period": 2.5}),
    ("interp", (np.float32([0.5, 9]), np.float32([0, 1, 2]), V), {"left": 1, "right": 2}),
    ("bincount", (np.array([0, 2, 2, 5]),), {"length": 7}), ("cov", (M,)),
    ("cov", (M,), {"fweights": np.array([1, 3, 0, 2]), "aweights": np.float32([1, 0.5, 2, 1])}),
    ("cov", (M,), {"aweights": np.float32([1, 0.5, 2, 1]), "ddof": 0}),
    ("gradient", (M * M, np.float32([0, 1, 3, 4]), ), {"axis": 1}),
    ("gradient", (M[:, :2], 2, np.float32([0, 3]))),
    ("corrcoef", (M * M % 7,)),
]  # fmt: skip


@pytest.mark.parametrize("case", CREATION, ids=str)
def test_creation(case: Any) -> None:
    name, args, options = (*case, {})[:3]
    values = {"full": lambda *a, **o: np.full(*a, **o)}.get(name)
    compared(name, *args, values=values, **options)


@pytest.mark.parametrize("case", SHAPES + PADDING + JOINING, ids=lambda c: c[0])
def test_moving(case: Any) -> None:
    name, args, options = (*case, {})[:3]
    compared(name, *args, **options)


@pytest.mark.parametrize("case", TAKING, ids=lambda c: c[0])
def test_taking(case: Any) -> None:
    name, args, options = (*case, {})[:3]

    def bincount(x: Any, length: int) -> Any:
        return np.bincount(x, minlength=length)

    def take(x: Any, indices: Any, *axis: int, **mode: str) -> Any:
        return np.take(x, np.asarray(indices).astype(int), *axis, **mode)

    compared(name, *args, values={"bincount": bincount, "take": take}.get(name), **options)


def test_indices_out_of_bounds() -> None:
    for x in (V, M, M.astype(np.uint8)):
        assert_like_jax(snp.take(x, np.array([1, 99, -99])), jnp.take(x, np.array([1, 99, -99])))
    assert_like_jax(
        snp.take(V, np.array([7]), fill_value=5), jnp.take(V, np.array([7]), fill_value=5)
    )
    places = np.array([[9], [-9], [1]])
    assert_like_jax(snp.take_along_axis(M, places, 1), jnp.take_along_axis(M, places, 1))


def test_repeat_with_counts() -> None:
    counts = np.array([0, 2, 1])
    assert_like_jax(snp.repeat(V, counts), jnp.repeat(V, counts))
    assert_like_jax(
        snp.repeat(V, counts, total_repeat_length=5), jnp.repeat(V, counts, total_repeat_length=5)
    )


def test_traced_shift() -> None:
    rolled = stax.vmap(lambda x, n: snp.roll(x, n, 0), (None, 0))(snp.array(V), snp.arange(4))
    np.testing.assert_array_equal(rolled, [np.roll(V, n) for n in range(4)])


def test_gradients_of_moves() -> None:
    x = snp.array(M.astype(np.float32))
    for function in (snp.diagonal, lambda v: snp.pad(v, 1, "reflect"), lambda v: snp.tile(v, 2),
                     lambda v: snp.take_along_axis(v, snp.array([[0], [0], [2]]), 1)):  # fmt: skip
        weight = np.random.default_rng(0).normal(size=function(x).shape).astype(np.float32)
        pulled = stax.grad(lambda v: (function(v) * weight).sum())(x)  # noqa: B023
        for i in range(3):
            unit = np.zeros((3, 4), np.float32)
            unit[i, i] = 1
            expected = (np.asarray(function(snp.array(unit))) * weight).sum()
            np.testing.assert_allclose(pulled[i, i], expected, rtol=1e-5, atol=1e-6)


def test_shape_size_and_broadcast_shapes() -> None:
    assert snp.shape(X) == (2, 3, 4) and snp.ndim(X) == 3 and snp.size(X) == 24
    assert snp.size(X, 1) == 3 and snp.shape([[1, 2]]) == (1, 2)
    assert snp.broadcast_shapes((3, 1), (1, 4)) == (3, 4)


def test_errors_name_the_function() -> None:
    with pytest.raises(ShapeError, match="concatenate"):
        snp.concatenate([M, X])
    with pytest.raises(ValueError, match="one shape"):
        snp.stack([V, V[:2]])
    with pytest.raises(ValueError, match="equal parts"):
        snp.split(V, 2)
    with pytest.raises(TypeError, match="list"):
        snp.reshape([1, 2], (2, 1))


def test_weak_numbers_and_explicit_dtypes() -> None:
    assert snp.asarray(2).weak_type and not snp.array(2, snp.float32).weak_type
    assert snp.float32(3).dtype == np.float32 and np.dtype(snp.bfloat16).itemsize == 2
    assert (snp.array([1], snp.int8) + 1).dtype == snp.int8
    assert snp.zeros(2, np.float64).dtype == np.float64  # an explicit dtype stays 64-bit
