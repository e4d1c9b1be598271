"""Ragged products against JAX, and the names for ways of computing products."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
from stax.errors import UnsupportedError

RNG = np.random.default_rng(0)
LHS = RNG.normal(size=(7, 4)).astype(np.float32)
RHS = RNG.normal(size=(3, 4, 5)).astype(np.float32)
SIZES = [[2, 3, 1], [0, 7, 0], [7, 0, 0], [3, 0, 4]]


def assert_near(ours: Any, theirs: Any) -> None:
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_ragged_dot(sizes: list[int]) -> None:
    groups = np.array(sizes, np.int32)
    theirs = jax.lax.ragged_dot(LHS, RHS, groups)
    assert_near(stax.lax.ragged_dot(LHS, RHS, groups), theirs)
    assert_near(stax.jit(stax.lax.ragged_dot)(LHS, RHS, groups), theirs)


def test_gradients_of_ragged_dot() -> None:
    groups = np.array([2, 3, 1], np.int32)

    def gradient(library: Any) -> Any:
        def loss(lhs: Any, rhs: Any) -> Any:
            return (library.lax.ragged_dot(lhs, rhs, groups) ** 2).sum()

        return library.grad(loss, (0, 1))(LHS, RHS)

    for ours, theirs in zip(gradient(stax), gradient(jax), strict=True):
        assert_near(ours, theirs)


@pytest.mark.parametrize(
    ("numbers", "shape"),
    [
        (((([0], [0]), ([], [])), [0], []), (7, 5)),
        (((([1], [0]), ([], [])), [1], []), (4, 5)),
        (((([1], [2]), ([], [])), [0], [0]), (3, 2, 4)),
    ],
    ids=["summed", "summed second", "free"],
)
def test_ragged_dot_general(numbers: Any, shape: tuple[int, ...]) -> None:
    groups, rhs = np.array([1, 2, 1], np.int32), RNG.normal(size=shape).astype(np.float32)

    def product(library: Any) -> Any:
        described = library.lax.RaggedDotDimensionNumbers(*numbers)
        return library.lax.ragged_dot_general(LHS, rhs, groups, described)

    assert_near(product(stax), product(jax))


def test_what_is_not_supported_says_so() -> None:
    with pytest.raises(UnsupportedError, match="group_offset"):
        stax.lax.ragged_dot(LHS, RHS, np.array([1, 1, 1]), group_offset=np.array([0]))


def test_names_are_those_of_jax() -> None:
    ours, theirs = stax.lax.DotAlgorithmPreset, jax.lax.DotAlgorithmPreset
    assert [x.name for x in ours] == [x.name for x in theirs]
    assert stax.lax.DotAlgorithm._fields == jax.lax.DotAlgorithm._fields
    assert stax.lax.Tolerance(rtol=1e-3).rtol == 1e-3
    with pytest.raises(ValueError, match="tolerance"):
        stax.lax.Tolerance()
