"""Keys inside of loops and choices, carried and stacked, eager and compiled."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import stax
import stax.numpy as snp
import stax.random as sr

Program = Callable[[Any, Any, Any, Any], Any]


def walk(lib: Any, n: Any, r: Any, key: Any) -> Any:
    def step(i: Any, carry: Any) -> Any:
        key, x = carry
        key, now = r.split(key)
        return key, x + r.uniform(r.fold_in(now, i), (3,))

    key, x = lib.lax.fori_loop(0, 5, step, (key, n.zeros(3)))
    return r.key_data(key), x


def stacked(lib: Any, n: Any, r: Any, key: Any) -> Any:
    def step(total: Any, key: Any) -> Any:
        return total + r.uniform(key), (r.bits(key, (2,)), r.split(key, 1))

    total, (bits, keys) = lib.lax.scan(step, n.float32(0), r.split(key, 4))
    return total, bits, r.key_data(keys)


def chosen(lib: Any, n: Any, r: Any, key: Any) -> Any:
    def other(key: Any) -> Any:
        return r.split(key)[1]

    return r.key_data(lib.lax.cond(r.uniform(key) < 0.5, other, lambda k: k, key))


def until(lib: Any, n: Any, r: Any, key: Any) -> Any:
    def step(carry: Any) -> Any:
        return r.split(carry[0])[0], r.uniform(carry[0])

    found = lib.lax.while_loop(lambda carry: carry[1] < 0.9, step, (key, n.float32(0)))
    return r.key_data(found[0]), found[1]


PROGRAMS: dict[str, Program] = {"fori": walk, "scan": stacked, "cond": chosen, "while": until}


def assert_same(ours: Any, theirs: Any) -> None:
    for x, y in zip(stax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("kind", ["key", "PRNGKey"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops(from_jax: Any, name: str, kind: str) -> None:
    def recorded() -> Any:
        return tuple(jax.tree.leaves(program(jax, jnp, jr, getattr(jr, kind)(2))))

    program, key = PROGRAMS[name], getattr(sr, kind)(2)
    expected = list(from_jax(recorded))
    assert_same(program(stax, snp, sr, key), expected)
    assert_same(stax.jit(lambda k: program(stax, snp, sr, k))(key), expected)


def test_a_batch_of_loops() -> None:
    keys = sr.split(sr.key(0), 3)
    mapped = stax.vmap(lambda k: until(stax, snp, sr, k))
    for run in (mapped, stax.jit(mapped)):
        words, last = run(keys)
        for i in range(3):
            assert_same((words[i], last[i]), until(stax, snp, sr, keys[i]))


def test_gradients_through_a_loop_that_draws() -> None:
    def loss(lib: Any, r: Any, n: Any, x: Any) -> Any:
        def step(x: Any, key: Any) -> Any:
            return n.where(r.bernoulli(key, 0.7, x.shape), x * 1.5, 0.1), None

        return lib.lax.scan(step, x, r.split(r.key(0), 3))[0].sum()

    x = np.arange(4, dtype=np.float32)
    expected = jax.grad(lambda x: loss(jax, jr, jnp, x))(x)
    ours = stax.grad(lambda x: loss(stax, sr, snp, x))
    for gradient in (ours, stax.jit(ours)):
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-6)
