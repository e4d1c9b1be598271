"""Functions with several right results: what is asked of them, not what JAX happens to return."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp

SHAPES = [((5,), 0), ((5,), -1), ((3, 4), 0), ((3, 4), -1), ((2, 3, 4), 1)]


@settings(max_examples=10)
@given(st.sampled_from(SHAPES), st.sampled_from(["float32", "int8", "uint32"]), st.integers(-3, 2))
def test_partition(place: Any, dtype: str, kth: int) -> None:
    """Element number `kth` is where sorting puts it, and those on its sides are on their sides."""
    shape, axis = place
    x = np.random.default_rng(kth + 9).integers(0, 9, shape).astype(dtype)
    found = np.asarray(stax.jit(lambda v: snp.partition(v, kth, axis))(x))
    places = snp.argpartition(x, kth, axis)
    assert (places.dtype, places.shape) == (jnp.int32, shape)
    for ours in (found, np.take_along_axis(x, np.asarray(places), axis)):
        assert ours.dtype == dtype
        np.testing.assert_array_equal(np.sort(ours, axis), np.sort(x, axis))
        rows, right = np.moveaxis(ours, axis, -1), np.moveaxis(np.sort(x, axis), axis, -1)
        middle = rows[..., kth : None if kth == -1 else kth + 1]
        np.testing.assert_array_equal(middle[..., 0], right[..., kth])
        assert (rows[..., :kth] <= middle).all() and (rows[..., kth:] >= middle).all()


@pytest.mark.parametrize("p", [[1, -3, 2], [1, 0, 1], [2, 4], [3], [1, 2, 0]], ids=str)
def test_roots(p: list[float]) -> None:
    given = np.array(p, np.float32)
    ours, theirs = np.asarray(snp.roots(given)), np.asarray(jnp.roots(given))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    order = lambda v: sorted(v, key=lambda r: (round(r.real, 3), r.imag))  # noqa: E731
    np.testing.assert_allclose(order(ours), order(theirs), rtol=1e-5, atol=1e-6)
