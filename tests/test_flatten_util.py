"""Pytrees as vectors and back, beside JAX."""

from typing import Any

import jax
import jax.flatten_util
import numpy as np
import pytest

import stax
import stax.numpy as snp


@pytest.mark.parametrize(
    "tree",
    [{"a": 1.0, "b": np.arange(3)}, [np.ones((2, 2), "f4"), np.zeros(3, "f2")], 3.0, [], [True, 2],
     {"x": np.zeros((0, 3), np.int8), "y": np.int8(3)}, (1.0, 1j)],
    ids=["mixed", "floats", "scalar", "empty", "integers", "bytes", "complex"],
)  # fmt: skip
def test_pytrees_as_vectors(tree: Any) -> None:
    ours, unravel = stax.flatten_util.ravel_pytree(tree)
    theirs, unravel_theirs = jax.flatten_util.ravel_pytree(tree)
    assert (ours.dtype, ours.shape, ours.weak_type) == (
        theirs.dtype,
        theirs.shape,
        theirs.weak_type,
    )
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))
    for a, b in zip(*map(jax.tree.leaves, (unravel(ours), unravel_theirs(theirs))), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    again = stax.flatten_util.ravel_pytree(tree)[1]
    assert again == unravel and hash(again) == hash(unravel)


def test_vectors_that_do_not_fit_a_pytree() -> None:
    _, unravel = stax.flatten_util.ravel_pytree({"a": 1.0, "b": np.arange(3)})
    for vector in (snp.ones(5), snp.ones((4, 1)), snp.ones(4, int)):
        with pytest.raises(TypeError, match="unravel"):
            unravel(vector)
    _, any_dtype = stax.flatten_util.ravel_pytree([1.0, 2.0])
    assert any_dtype(snp.ones(2, int))[0].dtype == np.int32
