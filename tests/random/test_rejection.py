"""Draws by rejection, against JAX: the same proposals are accepted, so values agree.

A proposal that is accepted or not by less than rounding could make a difference; here none is.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest

import stax
import stax.random as sr
from tests.like_jax import assert_like_jax

A = np.linspace(0.05, 5, 120).astype(np.float32)
ODD = np.float32([0, 5, 100, 1e4, -1, np.inf, np.nan])
CHANCES = np.float32([0, 0.1, 0.5, 0.9, 1, np.nan, -0.2, 1.2])
Sampler = Callable[[Any, Any], Any]
GAMMAS: dict[str, Sampler] = {
    "gamma": lambda r, k: r.gamma(k, A),
    "gamma of a shape": lambda r, k: r.gamma(k, A[:3], (50, 3)),
    "loggamma": lambda r, k: r.loggamma(k, A[:50]),
    "beta": lambda r, k: r.beta(k, A, 2.0),
    "dirichlet": lambda r, k: r.dirichlet(k, A[50:55], (40,)),
    "chisquare": lambda r, k: r.chisquare(k, A),
    "f": lambda r, k: r.f(k, A + 1, 3.0),
    "t": lambda r, k: r.t(k, A + 1),
    "generalized_normal": lambda r, k: r.generalized_normal(k, 1.5, (100,)),
    "ball": lambda r, k: r.ball(k, 3, 1.5, (50,)),
}
COUNTS: dict[str, Sampler] = {
    "poisson": lambda r, k: r.poisson(k, A * 10),
    "poisson of a shape": lambda r, k: r.poisson(k, np.float32([0, np.nan, 20]), (50, 3), "int16"),
    "binomial": lambda r, k: r.binomial(k, ODD, 0.3, (50, 7)),
    "binomial chances": lambda r, k: r.binomial(k, 20, CHANCES, (50, 8)),
    "multinomial": lambda r, k: r.multinomial(k, 20, np.float32([0.2, 0.5, 0.3]), shape=(50, 3)),
}


def assert_near(from_jax: Any, sampler: Sampler, tolerance: float) -> None:
    """Compare a sampler of (jax.random or stax.random, key), eager and jitted."""
    expected = from_jax(lambda: sampler(jr, jr.key(5)))
    assert_like_jax(sampler(sr, sr.key(5)), expected, tolerance)
    assert_like_jax(stax.jit(lambda k: sampler(sr, k))(sr.key(5)), expected, tolerance)


@pytest.mark.parametrize("name", GAMMAS)
def test_gammas(from_jax: Any, name: str) -> None:
    assert_near(from_jax, GAMMAS[name], 1e-4)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(from_jax: Any, name: str) -> None:
    assert_near(from_jax, COUNTS[name], 0)


@pytest.mark.parametrize("name", ["gamma", "poisson", "binomial"])
def test_of_64_bits(from_jax: Any, name: str) -> None:
    sampler = {**GAMMAS, **COUNTS}[name]
    with stax.config.override(enable_x64=True), jax.enable_x64(True):
        assert_near(from_jax, sampler, 1e-6)


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "gamma": (lambda r, k, a: r.gamma(k, a, (7,)), (2.0,)),
    "loggamma": (lambda r, k, a: r.loggamma(k, a, (7,)), (0.5,)),
    "beta": (lambda r, k, a, b: r.beta(k, a, b, (7,)), (0.5, 2.0)),
    "t": (lambda r, k, a: r.t(k, a, (7,)), (3.0,)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_parameters(from_jax: Any, name: str) -> None:
    sampler, parameters = GRADIENTS[name]
    which = tuple(range(len(parameters)))
    theirs = jax.grad(lambda *p: sampler(jr, jr.key(3), *p).sum(), which)
    expected = from_jax(lambda: theirs(*parameters))
    ours = stax.grad(lambda *p: sampler(sr, sr.key(3), *p).sum(), which)
    for gradient in (ours, stax.jit(ours)):
        assert_like_jax(gradient(*parameters), expected, 1e-4)


def test_mapped_over_keys(from_jax: Any) -> None:
    def draw(r: Any, key: Any) -> Any:
        return r.poisson(key, 20.0, (3,)), r.binomial(key, 30, 0.4, (2,))

    theirs = jax.vmap(lambda k: draw(jr, k))
    expected = from_jax(lambda: theirs(jr.split(jr.key(0), 4)))
    for ours in (stax.vmap(lambda k: draw(sr, k)), stax.jit(stax.vmap(lambda k: draw(sr, k)))):
        assert_like_jax(ours(sr.split(sr.key(0), 4)), expected)
