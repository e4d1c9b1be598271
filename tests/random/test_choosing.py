"""Permutations, choices and categories: the same ones as JAX, eager, jitted and mapped."""

from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest

import stax
import stax.random as sr
from tests.like_jax import assert_like_jax

X = np.arange(60).reshape(5, 4, 3).astype(np.float32)
P = np.random.default_rng(0).dirichlet(np.ones(100)).astype(np.float32)
LOGITS = np.random.default_rng(1).normal(size=(6, 10)).astype(np.float32)
Sampler = Callable[[Any, Any], Any]
SAMPLERS: dict[str, Sampler] = {
    "permutation": lambda r, k: r.permutation(k, 200),
    "permutation of one": lambda r, k: r.permutation(k, 1),
    "permutation of rows": lambda r, k: r.permutation(k, X),
    "permutation of an axis": lambda r, k: r.permutation(k, X, -1),
    "independent": lambda r, k: r.permutation(k, X, 1, independent=True),
    "choice": lambda r, k: r.choice(k, 100, (7, 3)),
    "one": lambda r, k: r.choice(k, X),
    "none": lambda r, k: r.choice(k, X, (0,)),
    "from an axis": lambda r, k: r.choice(k, X, (7, 2), axis=1),
    "without replacement": lambda r, k: r.choice(k, X, (2,), False, axis=1),
    "numbers without replacement": lambda r, k: r.choice(k, 100, (7, 3), replace=False),
    "weighted": lambda r, k: r.choice(k, 100, (7, 3), p=P),
    "weighted rows": lambda r, k: r.choice(k, X, (7,), p=P[:5]),
    "weighted without": lambda r, k: r.choice(k, 100, (7, 3), p=P, replace=False),
    "categorical": lambda r, k: r.categorical(k, LOGITS),
    "categorical axis": lambda r, k: r.categorical(k, LOGITS, axis=0),
    "categorical shape": lambda r, k: r.categorical(k, LOGITS, shape=(20, 6)),
    "categorical vector": lambda r, k: r.categorical(k, LOGITS[0], mode="high"),
    "categorical without": lambda r, k: r.categorical(k, LOGITS, shape=(3, 6), replace=False),
    "categories of 0": lambda r, k: r.categorical(k, LOGITS, 0, (2, 2, 10), replace=False),
    "geometric": lambda r, k: r.geometric(k, P[:50] + 0.1),
    "geometric shape": lambda r, k: r.geometric(k, 0.3, (50,), "int16"),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_values(from_jax: Any, name: str) -> None:
    sampler = SAMPLERS[name]
    expected = from_jax(lambda: sampler(jr, jr.key(5)))
    assert_like_jax(sampler(sr, sr.key(5)), expected)
    assert_like_jax(stax.jit(lambda k: sampler(sr, k))(sr.key(5)), expected)


@pytest.mark.parametrize("name", ["choice", "weighted without", "categorical without", "geometric"])
def test_dtypes_of_64_bits(from_jax: Any, name: str) -> None:
    with stax.config.override(enable_x64=True), jax.enable_x64(True):
        theirs = from_jax(lambda: SAMPLERS[name](jr, jr.key(5)))
        assert_like_jax(SAMPLERS[name](sr, sr.key(5)), theirs)


def test_mapped_over_keys(from_jax: Any) -> None:
    ours = stax.jit(stax.vmap(lambda k: sr.permutation(k, 17)))(sr.split(sr.key(0), 5))
    theirs = jax.vmap(lambda k: jr.permutation(k, 17))
    assert_like_jax(ours, from_jax(lambda: theirs(jr.split(jr.key(0), 5))))


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "float": (lambda: sr.permutation(sr.key(0), 3.0), TypeError, "an array or an integer"),
    "shape": (lambda: sr.choice(sr.key(0), 3, 2), TypeError, "sequence of integers"),
    "nothing": (lambda: sr.choice(sr.key(0), 0, (2,)), ValueError, "nothing to choose"),
    "too many": (lambda: sr.choice(sr.key(0), 3, (4,), False), ValueError, "4 of 3"),
    "weights": (lambda: sr.choice(sr.key(0), 3, (4,), p=P), ValueError, "3 elements need"),
    "categories": (
        lambda: sr.categorical(sr.key(0), LOGITS, shape=(11, 6), replace=False),
        ValueError,
        "11 of 10",
    ),
    "geometric": (lambda: sr.geometric(sr.key(0), 0.3, (), "float32"), ValueError, "integer dtype"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    function, kind, rule = MISTAKES[name]
    with pytest.raises(kind, match=rule):
        function()
