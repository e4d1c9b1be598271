"""Updates where a traced mask holds: the same as with a known mask, and compiled to a select."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax
from stax.errors import IndexingError, NonConcreteBooleanIndexError
from tests.like_jax import assert_like_jax


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5, shape).astype(np.float32)


def mask(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).random(shape) < 0.5


X = numbers(3, 4, 5)
# The index with a mask, the mask, and values that are the same wherever it holds.
CASES: list[tuple[Any, np.ndarray, Any]] = [
    (lambda m: m, mask(3), 2.0),
    (lambda m: m, mask(3, 4), numbers(5)),
    (lambda m: m, mask(3, 4), numbers(1, 5)),
    (lambda m: m, mask(3, 4, 5), np.int32(3)),
    (lambda m: (..., m), mask(5), numbers(4, 1)),
    (lambda m: (slice(None), m), mask(4), numbers(1, 5)),
    (lambda m: (1, m), mask(4), numbers(1, 5)),
    (lambda m: (1, slice(None, None, -1), m), mask(5), numbers(1, 4)),
    (lambda m: (slice(None, None, 2), m, slice(1, 3)), mask(4), numbers(1, 2)),
    (lambda m: (None, slice(None, None, 2), m, slice(1, 3)), mask(4), numbers(2, 1, 2)),
    (lambda m: (np.int32(-1), ..., m), mask(5), 7.0),
    (lambda m: (9, m), mask(4), 7.0),
]
METHODS = ["set", "divide"]


@pytest.mark.parametrize("case", range(len(CASES)))
def test_updates(case: int) -> None:
    index, held, values = CASES[case]
    for method in METHODS:
        theirs = getattr(jnp.asarray(X).at[index(held)], method)(values)

        def ours(x: Any, m: Any, v: Any, method: str = method) -> Any:
            return getattr(x.at[index(m)], method)(v)

        assert_like_jax(stax.jit(ours)(X, held, values), theirs, 1e-6)


def test_an_update_is_a_select() -> None:
    graph = stax.make_graph(lambda x, m: x.at[m].set(0.0))(X, mask(3, 4))
    names = {node.op.name for node in graph.nodes}
    assert "select" in names and not names & {"scatter", "gather"}


@pytest.mark.parametrize("method", ["set", "add", "multiply", "max"])
def test_derivatives_and_maps(method: str) -> None:
    held, w = mask(2, 3, 4), numbers(2, 3, 4, 5, seed=2)
    x, v = numbers(2, 3, 4, 5, seed=3), numbers(5, seed=4)

    def update(x: Any, m: Any, v: Any) -> Any:
        return getattr(x.at[m], method)(v)

    def joined(x: Any, m: Any, v: Any) -> Any:
        m = stax.numpy.expand_dims(m, -1)
        by_hand = {"set": v, "add": x + v, "multiply": x * v, "max": stax.numpy.maximum(x, v)}
        return stax.numpy.where(m, by_hand[method], x)

    mapped = stax.vmap(update, (0, 0, None))(x, held, v)
    assert_like_jax(mapped, jnp.asarray(joined(x, held, v)))
    for i in (0, 1):
        losses = [lambda x, v, f=f, i=i: (f(x, held[i], v) * w[i]).sum() for f in (update, joined)]
        ours, theirs = (stax.jit(stax.grad(loss, (0, 1)))(x[i], v) for loss in losses)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_a_function_applied() -> None:
    held = mask(3, 4)
    ours = stax.jit(lambda x, m: x.at[m].apply(lambda v: v * 2 + 1))(X, held)
    assert_like_jax(ours, jnp.asarray(np.where(held[..., None], X * 2 + 1, X)))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x, m: x[m], NonConcreteBooleanIndexError, r"nonzero\(mask, size="),
        (lambda x, m: x.at[m].set(X[:2, 0]), NonConcreteBooleanIndexError, "must be known"),
        (lambda x, m: x.at[m, np.array([0, 1])].set(0), NonConcreteBooleanIndexError, "known"),
        (lambda x, m: x.at[:, m].set(0), IndexingError, "must have the shape"),
    ],
)
def test_what_needs_a_known_mask(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        stax.jit(use)(X, mask(3, 4))


def test_values_for_each_place_where_the_mask_is_known() -> None:
    """Under eager grad the mask has values, so the values may differ from place to place."""

    def loss(v: Any) -> Any:
        held = stax.numpy.arange(4) * v > 1
        return stax.numpy.zeros(4).at[held].set(stax.numpy.array([1.0, 2.0]) * v).sum()

    assert stax.grad(loss)(1.0) == 3
