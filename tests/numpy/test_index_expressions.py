"""Random index expressions: reads, every kind of update and gradients, against JAX."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from tests.like_jax import assert_like_jax

SHAPE = (3, 4, 2)
METHODS = ["set", "add", "subtract", "multiply", "divide", "power", "min", "max"]
MODES = [None, "clip", "fill", "drop"]
places = st.integers(-5, 5)
ends = st.one_of(st.none(), places)
slices = st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, -1, -2]))


@st.composite
def arrays(draw: Any) -> np.ndarray:
    """Draw an array of positions; those drawn for one index broadcast with each other."""
    shape = draw(st.sampled_from([(2,), (3, 1), (1,), (3, 2)]))
    dtype = draw(st.sampled_from([np.int32, np.int8]))
    count = int(np.prod(shape))
    return np.array(draw(st.lists(places, min_size=count, max_size=count)), dtype).reshape(shape)


@st.composite
def masks(draw: Any, length: int) -> np.ndarray:
    """Draw a mask of an axis that holds at one place, so that it goes with arrays of positions."""
    return np.arange(length) == draw(st.integers(0, length - 1))


@st.composite
def indices(draw: Any) -> tuple[Any, ...]:
    """Draw an index of some of the axes, with new axes and an ellipsis in between."""
    items: list[Any] = []
    for length in SHAPE[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(["place", "slice", "array", "mask", "slice"]))
        options = {"place": places, "slice": slices, "array": arrays(), "mask": masks(length)}
        items.append(draw(options[kind]))
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    if draw(st.booleans()):
        items.append(...)  # no axis is named behind it, so that masks have the length of theirs
    return tuple(items)


def jaxed(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(jnp.asarray(i) if isinstance(i, np.ndarray) else i for i in index)


def numbers(shape: Any, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5, shape).astype(np.float32)


X = numbers(SHAPE, 0)


@given(indices(), st.sampled_from(MODES[:3]))
@settings(max_examples=12)
def test_reads(index: Any, mode: Any) -> None:
    place = jaxed(index)
    read = lambda x: x.at[place].get(mode=mode)  # noqa: E731
    theirs, found = jax.jit(lambda x: (read(x), jax.grad(lambda x: read(x).sum())(x)))(X)
    assert_like_jax(snp.asarray(X).at[index].get(mode=mode), theirs)
    w = numbers(theirs.shape, 1)
    slope = stax.grad(lambda x: snp.where(w > 0, x.at[index].get(mode=mode), 0.0).sum())(X)
    assert_like_jax(slope, found)


@given(indices(), st.sampled_from(METHODS), st.sampled_from(MODES), st.booleans())
@settings(max_examples=12)
def test_updates(index: Any, method: str, mode: Any, is_scalar: bool) -> None:
    place = jaxed(index)
    shape = jax.eval_shape(lambda x: x[place], X).shape
    y = numbers(() if is_scalar else shape[-1:], 2)
    theirs = jax.jit(lambda x, y: getattr(x.at[place], method)(y, mode=mode))(X, y)
    assert_like_jax(getattr(snp.asarray(X).at[index], method)(y, mode=mode), theirs, 1e-6)


@given(indices(), st.sampled_from(METHODS[:3] + METHODS[6:]))
@settings(max_examples=6)
def test_derivatives_of_updates(index: Any, method: str) -> None:
    y, w, place = numbers((), 3) + 0.5, numbers(SHAPE, 4), jaxed(index)

    def ours(x: Any, y: Any) -> Any:
        return (w * getattr(x.at[index], method)(y)).sum()

    def theirs(x: Any, y: Any) -> Any:
        return (w * getattr(x.at[place], method)(y)).sum()

    x = np.arange(24, dtype=np.float32).reshape(SHAPE)
    found = jax.jit(jax.grad(theirs, (0, 1)))(x, y)
    for a, b in zip(stax.grad(ours, (0, 1))(x, y), found, strict=True):
        assert_like_jax(a, b, 1e-5)


@given(indices(), st.sampled_from(METHODS))
@settings(max_examples=6)
def test_compiled(index: Any, method: str) -> None:
    traced = [i for i in index if isinstance(i, np.ndarray) and i.dtype != bool]

    def rebuilt(given: Any) -> tuple[Any, ...]:
        left = iter(given)
        is_given = [isinstance(i, np.ndarray) and i.dtype != bool for i in index]
        return tuple(next(left) if g else i for g, i in zip(is_given, index, strict=True))

    def program(x: Any, given: Any) -> Any:
        where = rebuilt(given)
        return x[where], getattr(x.at[where], method)(3.0)

    place = jaxed(index)
    theirs = jax.jit(lambda x: (x[place], getattr(x.at[place], method)(3.0)))(X)
    assert_like_jax(stax.jit(program)(X, traced), theirs, 1e-6)
