"""Random nestings of control flow: every callback once, in the order of the program."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import debug, lax

Function = Callable[[Any], Any]
X = np.array([0.3, 0.7], np.float32)


class Nesting:
    """A random function of two numbers that tells where it is; each place has a number."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.ordered = seed % 2 == 0
        self.log: list[tuple[int, float]] = []
        self.places = 0
        self.function = self.made(3)

    def tell(self, place: int, value: Any) -> None:
        def note(place: Any, value: Any) -> None:
            self.log.append((int(place), round(float(value), 3)))

        debug.callback(note, place, value, ordered=self.ordered)

    def made(self, depth: int) -> Function:
        self.places += 1
        place = self.places
        if not depth:
            return lambda x: (self.tell(place, snp.sum(x)), snp.sin(x) + place * 0.1)[1]
        make = self.rng.choice(
            [self.twice, self.scan, self.fori, self.loop, self.cond, self.switch, self.wrapped]
        )
        return make(place, depth - 1)

    def twice(self, place: int, depth: int) -> Function:
        f, g = self.made(depth), self.made(depth)
        return lambda x: g(f(x))

    def scan(self, place: int, depth: int) -> Function:
        f = self.made(depth)

        def step(c: Any, a: Any) -> Any:
            self.tell(place, a)
            return f(c) * a, snp.sum(c)

        return lambda x: lax.scan(step, x, snp.arange(1.0, 4.0))[0]

    def fori(self, place: int, depth: int) -> Function:
        f = self.made(depth)
        step = lambda i, c: (self.tell(place, i), f(c))[1]  # noqa: E731
        return lambda x: lax.fori_loop(0, 2, step, x)

    def loop(self, place: int, depth: int) -> Function:
        f = self.made(depth)
        goes_on = lambda c: (self.tell(place, c[1]), c[1] < 2)[1]  # noqa: E731
        return lambda x: lax.while_loop(goes_on, lambda c: (f(c[0]), c[1] + 1), (x, 0))[0]

    def cond(self, place: int, depth: int) -> Function:
        f, g = self.made(depth), self.made(depth)
        return lambda x: lax.cond(snp.sum(x) > 0.5, f, g, x)

    def switch(self, place: int, depth: int) -> Function:
        f, g = self.made(depth), self.made(depth)
        return lambda x: lax.switch(snp.int32(snp.abs(x[0]) * 3), [f, g, lambda x: x], x)

    def wrapped(self, place: int, depth: int) -> Function:
        f = self.made(depth)

        @stax.custom_vjp
        def with_rule(x: Any) -> Any:
            return f(x)

        with_rule.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * snp.cos(x),))
        mapped = stax.vmap(lambda y: f(y[None])[0])
        return self.rng.choice([stax.jit(f), stax.checkpoint(f), mapped, with_rule])

    def run(self, wrap: Callable[[Function], Function]) -> tuple[Any, list[tuple[int, float]]]:
        """The result of the function under a transform, and what it told."""
        self.log.clear()
        result = wrap(self.function)(X)
        return np.asarray(result), list(self.log)


def gradient(f: Function) -> Function:
    return stax.grad(lambda x: snp.sum(f(x)))


def check(seed: int) -> None:
    nesting = Nesting(seed)
    value, log = nesting.run(lambda f: f)
    slope, log_of_grad = nesting.run(gradient)
    assert log_of_grad == log
    for wrap, expected in (
        (stax.jit, value),
        (lambda f: stax.jit(gradient(f)), slope),
        (lambda f: stax.jit(lambda x: stax.jvp(f, (x,), (x,))[0]), value),
    ):
        found, told = nesting.run(wrap)
        assert told == log
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(8))
def test_random_nestings(seed: int) -> None:
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 100))
def test_more_random_nestings(seed: int) -> None:
    check(seed)
