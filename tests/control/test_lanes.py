"""Choices and loops under vmap: a lane that has no part in a branch or a step does no harm.

Each program ends, and has finite derivatives, for every lane by itself; so it has to for a batch.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax

X = np.array([0.5, -1.5, 2.0, -0.25], np.float32)


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """A loop that never ends fails the test."""

    def stop(*_: Any) -> None:
        raise TimeoutError("the loop does not end")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def grown(x: Any) -> Any:
    """Double `x` until it is large; never ends unless x > 0."""
    return lax.while_loop(lambda c: c < 10, lambda c: c * 2, x)


def chosen(x: Any) -> Any:
    return lax.cond(x > 0, grown, lambda v: v * v, x)


def captured(x: Any) -> Any:
    return lax.cond(x > 0, lambda: grown(x) + x, lambda: -grown(-x))


def switched(x: Any) -> Any:
    index = snp.int32(x > 0) + snp.int32(x > 1)
    return lax.switch(index, [lambda v: grown(-v), lambda v: 2 * grown(v), lambda v: v], x)


def stepped(x: Any) -> Any:
    """Run an inner loop in each step, which never ends for a lane that has."""
    outer = lambda c: (c[0] - 1, c[1] + grown(c[0]))  # noqa: E731
    return lax.while_loop(lambda c: c[0] > 0, outer, (snp.abs(x) * 2, x))[1]


def asked(x: Any) -> Any:
    """Run an inner loop in the condition, which never ends for a lane that has."""
    holds = lambda c: lax.cond(c > -1, lambda: grown(c + 1) > 0, lambda: c > 0)  # noqa: E731
    return lax.while_loop(holds, lambda c: c - 0.75, x)


def scanned(x: Any) -> Any:
    return lax.scan(lambda c, a: (c + chosen(a - c * 0.01), chosen(c)), x, x * snp.ones(3))[1]


def mapped_inside(x: Any) -> Any:
    return stax.vmap(chosen)(x + snp.arange(-1.0, 2.0))


PROGRAMS = [chosen, captured, switched, stepped, asked, scanned, mapped_inside]


@pytest.mark.parametrize("f", PROGRAMS)
def test_a_batch_ends_if_every_lane_does(f: Any) -> None:
    wanted = np.stack([f(x) for x in X])
    for ours in (
        stax.vmap(f),
        stax.jit(stax.vmap(f)),
        stax.vmap(f, chunk=3),
    ):
        np.testing.assert_array_equal(ours(X), wanted)


def pushed(f: Any) -> Any:
    return lambda x: stax.jvp(f, (x,), (snp.cos(x),))[1]


def pulled(f: Any) -> Any:
    return stax.grad(lambda x: snp.sum(f(x)))


@pytest.mark.parametrize("derivative", [pushed, pulled])
@pytest.mark.parametrize("f", [chosen, switched, stepped, asked, scanned])
def test_derivatives_of_a_batch(f: Any, derivative: Any) -> None:
    wanted = np.stack([derivative(f)(x) for x in X])
    np.testing.assert_allclose(stax.vmap(derivative(f))(X), wanted, rtol=1e-5)
    np.testing.assert_allclose(stax.jit(derivative(stax.vmap(f)))(X), wanted, rtol=1e-5)


@pytest.mark.parametrize("f", [chosen, switched])
def test_second_derivatives_of_a_batch(f: Any) -> None:
    second = pulled(lambda x: pulled(f)(x) * x)
    wanted = np.stack([second(x) for x in X])
    np.testing.assert_allclose(stax.jit(stax.vmap(second))(X), wanted, rtol=1e-5)


def test_linear_maps_of_a_batch() -> None:
    def both(x: Any) -> Any:
        y, push = stax.linearize(chosen, x)
        (pull,) = stax.linear_transpose(push, x)(y)
        return push(x), pull

    wanted = np.stack([both(x) for x in X], 1)
    np.testing.assert_allclose(stax.vmap(both)(X), wanted, rtol=1e-5)
    _, push = stax.linearize(chosen, X[0])
    back = stax.vmap(lambda t: stax.linear_transpose(push, t)(t)[0])
    np.testing.assert_allclose(back(X), [push(x) for x in X], rtol=1e-5)


def endless(x: Any) -> Any:
    return lax.while_loop(lambda c: snp.isfinite(x), lambda c: c, x)


def test_a_branch_that_no_lane_takes_does_not_run() -> None:
    f = lambda x: lax.cond(x > 5, endless, snp.sin, x)  # noqa: E731
    g = lambda x: lax.switch(snp.int32(x > 0), [snp.sin, snp.cos, endless], x)  # noqa: E731
    for program in (f, g):
        wanted = np.stack([program(x) for x in X])
        np.testing.assert_allclose(stax.vmap(program)(X), wanted, rtol=1e-6)
        np.testing.assert_allclose(stax.jit(stax.vmap(program))(X), wanted, rtol=1e-6)


# --- values that are not finite, where they are not used ---

HARMFUL = {
    "log": lambda x: lax.cond(x > 0, snp.log, lambda v: v, x),
    "root": lambda x: lax.cond(x > 0, lambda v: 1 / snp.sqrt(v), snp.square, x),
    "overflow": lambda x: lax.cond(x > 0, lambda v: v, lambda v: snp.exp(-200 * v), x - 1e-3),
    "loop": lambda x: lax.while_loop(lambda c: c < 1, lambda c: c + 1 / (1 - c), x),
    "power": lambda x: lax.switch(
        snp.int32(x > 0), [lambda v: v * 2, lambda v: snp.log(v) * snp.sqrt(v)], x
    ),
}
SAFE = np.array([0.5, 0.0, -1.5, 1.0], np.float32)


@pytest.mark.parametrize("name", HARMFUL)
def test_lanes_not_taken_do_no_harm(name: str) -> None:
    f = HARMFUL[name]
    points = np.array([0.5, 1e-3, 2.0, 1.0], np.float32) if name == "overflow" else SAFE
    for kind in (lambda f: f, pushed, pulled, lambda f: pulled(pulled(f))):
        wanted = np.stack([kind(f)(x) for x in points])
        assert np.isfinite(wanted).all()
        for ours in (stax.vmap(kind(f)), stax.jit(stax.vmap(kind(f)))):
            np.testing.assert_allclose(ours(points), wanted, rtol=1e-5)
