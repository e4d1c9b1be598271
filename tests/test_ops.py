"""jax.ops: reductions by segment, with derivatives, modes, buckets, maps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax import ops
from stax.errors import MissingRule, ShapeError
from tests.like_jax import assert_like_jax

NAMES = ["segment_sum", "segment_prod", "segment_max", "segment_min"]


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(jnp.dtype(dtype))


@given(
    st.sampled_from(NAMES),
    st.sampled_from([(6,), (6, 2)]),
    st.sampled_from(["float32", "int32", "uint8", "bfloat16"]),
    st.lists(st.integers(-2, 6), min_size=6, max_size=6),
    st.sampled_from([None, "clip", "drop"]),
)
@settings(max_examples=25)
def test_segments(
    name: str, shape: tuple[int, ...], dtype: str, segments: list[int], mode: str | None
) -> None:
    x, ids = values(shape, dtype), np.array(segments, np.int32)
    theirs = getattr(jax.ops, name)(jnp.asarray(x), ids, 5, mode=mode)
    assert_like_jax(getattr(ops, name)(x, ids, 5, mode=mode), theirs)


@pytest.mark.parametrize("name", NAMES)
def test_segments_compiled_and_counted(name: str) -> None:
    x, ids = values((6, 2), seed=1), np.array([0, 3, 3, 1, 0, 3])
    ours, theirs = getattr(ops, name), getattr(jax.ops, name)
    assert_like_jax(ours(x, ids), theirs(x, ids))
    flags = {"indices_are_sorted": True, "unique_indices": False}
    assert_like_jax(stax.jit(lambda x, i: ours(x, i, 5, **flags))(x, ids), theirs(x, ids, 5))
    bucketed = stax.jit(lambda x, i: ours(x, i, 5, bucket_size=4))(x, ids)
    assert_like_jax(bucketed, theirs(x, ids, 5, bucket_size=4))
    many = np.stack([ids, ids[::-1]])
    for axes in ((None, 0), (0, None), (0, 0)):
        given = (x if axes[0] is None else np.stack([x, -x]), ids if axes[1] is None else many)
        mapped = stax.vmap(lambda x, i: ours(x, i, 4), axes)(*given)
        assert_like_jax(mapped, jax.vmap(lambda x, i: theirs(x, i, 4), axes)(*given))


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name: str) -> None:
    # Several elements of a segment attain its extreme and share the derivative.
    x = np.array([1.0, 2.0, 2.0, 3.0, 1.0, 1.0], np.float32)
    ids = np.array([0, 1, 1, 1, 0, 2]) if name != "segment_prod" else np.arange(6)
    w, unique = values((7,), seed=2), name == "segment_prod"

    def loss(library: Any) -> Any:
        segment = getattr(library.ops, name)

        def function(x: Any) -> Any:
            found = segment(x, ids, 7, unique_indices=unique)
            return (library.numpy.where(ids_are_held, found, 0.0) * w).sum()

        return function

    ids_are_held = np.isin(np.arange(7), ids)
    theirs = jax.grad(loss(jax))(x)
    assert_like_jax(stax.grad(loss(stax))(x), theirs, 1e-6)
    assert_like_jax(stax.jit(stax.grad(loss(stax)))(x), theirs, 1e-6)


def test_what_is_refused() -> None:
    x, ids = values((4,)), np.array([0, 1, 1, 0])
    with pytest.raises(ShapeError, match="no negative lengths"):
        ops.segment_sum(x, ids, -1)
    with pytest.raises(MissingRule, match="unique_indices=True"):
        stax.grad(lambda x: ops.segment_prod(x, ids, 2).sum())(x)
    with pytest.raises(stax.errors.TracerArrayConversionError):
        stax.jit(ops.segment_sum)(x, ids)
    assert ops.segment_sum(x, ids, 0).shape == (0,)


def test_segments_of_open_length() -> None:
    def program(x: Any, ids: Any) -> Any:
        return ops.segment_sum(x, ids, 5), stax.grad(lambda x: (x[ids] ** 2).sum())(x)

    jitted = stax.jit(program, dynamic={"x": {0: "n", 1: "m"}, "ids": {0: "n"}})
    for n, m in ((6, 3), (70, 700)):
        x, ids = values((n, m)), np.random.default_rng(0).integers(-1, n, n)
        for a, b in zip(jitted(x, ids), program(x, ids), strict=True):
            assert_like_jax(a, jnp.asarray(b))
