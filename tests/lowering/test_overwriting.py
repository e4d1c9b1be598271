"""Results over operands that are read for the last time: where that may be, and it is right."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.lowering.pipeline import lower_graph
from stax.lowering.program import KernelStep, Program
from tests.lowering.examples import normal

SIZES = [(40, 300), (7, 5000), (128, 64)]

# Each makes a product, which lies in memory, and from it a result that may take its place.
OVER: dict[str, Any] = {
    "element by element": lambda t: snp.tanh(t) * 2 + t,
    "rows": lambda t: t / snp.abs(t).sum(1, keepdims=True),
    "softmax": lambda t: snp.exp(t - t.max(1, keepdims=True)),
    "flat": lambda t: (t + 1).reshape(-1),
}
NOT_OVER: dict[str, Any] = {
    "shifted": lambda t: snp.roll(t, 1, 1) + t,
    "other rows": lambda t: t[::-1] + t,
    "transposed": lambda t: lax.cumsum(t, 1).T * 2,
    "other type": lambda t: (t * 2).astype("int32"),
    "smaller": lambda t: t[:, 1:] * 2,
    "read again": lambda t: (snp.tanh(t), t),
}


def product(f: Any) -> Any:
    return lambda x, y: f(x @ y)


def program_of(f: Any, *args: Any) -> Program:
    return lower_graph(stax.make_graph(f)(*args))


def overwriting(program: Program) -> list[tuple[str, str]]:
    kernels = [s.built.kernel for s in program.steps if isinstance(s, KernelStep)]
    return [pair for kernel in kernels for pair in kernel.aliases]


def arguments(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return normal(shape[0], 60), normal(60, shape[1], seed=1)


def assert_right(f: Any, *args: Any) -> None:
    wanted = f(*map(snp.asarray, args))
    for a, b in zip(leaves(stax.jit(f)(*args)), leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-4)


def leaves(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("name", OVER)
def test_over(name: str, shape: tuple[int, int]) -> None:
    x, y = arguments(shape)
    f = product(OVER[name])
    program = program_of(f, x, y)
    assert len(overwriting(program)) == 1
    # The product lies where the result comes, so that nothing of its size is left in scratch.
    assert program.arena_bytes < 4 * shape[0] * shape[1]
    assert_right(f, x, y)


@pytest.mark.parametrize("name", NOT_OVER)
def test_not_over(name: str) -> None:
    x, y = arguments((40, 300))
    f = product(NOT_OVER[name])
    assert not overwriting(program_of(f, x, y))
    assert_right(f, x, y)


def test_arguments_are_never_overwritten() -> None:
    x = normal(5000)
    assert not overwriting(program_of(lambda x: snp.tanh(x) + 1, x))
    before = x.copy()
    stax.jit(lambda x: snp.tanh(x) + 1)(x)
    np.testing.assert_array_equal(x, before)


def test_a_chain_of_values_in_one_place() -> None:
    def f(x: Any, y: Any) -> Any:
        t = lax.cumsum(x @ y, 1)
        t = snp.tanh(t) * 3
        return lax.cumsum(t, 1) / 2

    x, y = arguments((40, 300))
    assert len(overwriting(program_of(f, x, y))) == 2
    assert_right(f, x, y)


def test_carried_values_are_updated_in_place() -> None:
    """Also the initial value, where nothing else reads it, is where the result comes."""

    def f(x: Any, y: Any) -> Any:
        start = x @ y

        def step(c: Any) -> Any:
            return c * 0.5 + c.mean() * 0.1

        return lax.while_loop(lambda c: snp.abs(c).max() > 1, step, start)

    x, y = arguments((40, 300))
    program = program_of(f, x, y)
    assert program.arena_bytes < 4 * 40 * 300
    assert_right(f, x, y)


def test_two_carried_values_that_change_places() -> None:
    def f(x: Any, y: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            a, b = c
            return (b * 2 + a.sum(), a - b.sum()), a[0, 0]

        return lax.scan(step, (x @ y, x @ y + 1), None, length=5)

    x, y = arguments((5, 70))
    scale = 1e-2
    (a, b), firsts = stax.jit(f)(x * scale, y * scale)
    with stax.disable_jit():
        (c, d), others = f(snp.asarray(x * scale), snp.asarray(y * scale))
    for ours, wanted in ((a, c), (b, d), (firsts, others)):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(wanted), rtol=2e-3)


UNARY = [snp.tanh, snp.abs, lambda t: t * 2, lambda t: t - 1]
JOINING = [
    lambda t, u: t + u,
    lambda t, u: snp.where(t > 0, u, t),
    lambda t, u: t - u.mean(1, keepdims=True),
    lambda t, u: snp.roll(t, 1, 0) * u,
    lambda t, u: lax.cumsum(t, 1) + u,
]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 9)), max_size=6))
@settings(max_examples=30)
def test_random_chains(steps: list[tuple[int, int, int]]) -> None:
    """Values that live for different times, in programs that give memory on and on."""

    def f(x: Any, y: Any) -> Any:
        found = [x @ y, lax.cumsum(x @ y, 0)]
        for one, both, at in steps:
            t, u = found[-1], found[at % len(found)]
            found.append(JOINING[both](UNARY[one](t), u))
        return found[-1], found[len(found) // 2]

    x, y = normal(6, 9) / 4, normal(9, 50, seed=1) / 4
    ours, wanted = stax.jit(f)(x, y), f(snp.asarray(x), snp.asarray(y))
    for a, b in zip(ours, wanted, strict=True):
        scale = np.abs(np.asarray(b)).max() + 1
        np.testing.assert_allclose(np.asarray(a) / scale, np.asarray(b) / scale, atol=1e-4)
