"""Loops over lengths that are left open: one program for all of them."""

import _thread
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors, lax

pytestmark = pytest.mark.filterwarnings("error")

OPEN = {"x": {0: "n"}}
LENGTHS = (2, 3, 7, 100)


def sums(x: Any) -> Any:
    return lax.scan(lambda c, a: (c * 0.5 + a, c * a), 0.0, x)


def backwards(x: Any) -> Any:
    return lax.scan(lambda c, a: (snp.sin(c) + a, c), 0.0, x, reverse=True)


def wide_carry(x: Any) -> Any:
    return lax.scan(lambda c, a: (snp.sin(c) + a, c.sum()), x, snp.arange(5.0))


def everything(x: Any) -> Any:
    """Constants, carry, inputs and results, each of the open length."""
    return lax.scan(lambda c, a: (c * a + x, x * a), x, x)


def until(x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 20, lambda c: c * 1.5 + 0.1, x)


def counted(x: Any) -> Any:
    return lax.fori_loop(0, x.shape[0], lambda i, c: c * 0.5 + x[i], 0.0)


def updated(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, c: c.at[i % 2].set(snp.sin(c[1 - i % 2])), x)


def sorted_inside(x: Any) -> Any:
    step = lambda c, a: (snp.sort(snp.sin(c * a)), None)  # noqa: E731
    return lax.scan(step, x, snp.arange(5.0))[0]


def matrices(x: Any) -> Any:
    w = snp.full((3, 3), 0.1)
    return lax.scan(lambda c, a: (snp.tanh(c @ w) + a, c.mean(0)), x[:, None] + snp.ones((1, 3)), x)


def branches(x: Any) -> Any:
    return lax.cond(x.sum() > 2, lambda v: v * 2, lambda v: snp.cumsum(v), x)


def nested(x: Any) -> Any:
    """Values of the open length live inside the body."""
    inner = lambda c: lax.fori_loop(0, 3, lambda i, d: snp.cos(d) + snp.cumsum(c * i), c)  # noqa: E731
    return lax.scan(lambda c, a: (inner(c) + a, None), x, snp.arange(2.0))[0]


PROGRAMS = {
    f.__name__: f
    for f in (
        sums, backwards, wide_carry, everything, until, counted, updated, sorted_inside, matrices,
        branches, nested,
    )
}  # fmt: skip


def total(f: Callable[..., Any]) -> Callable[..., Any]:
    def g(x: Any) -> Any:
        leaves = stax.tree_util.tree_leaves(f(x))
        return sum(snp.sum(snp.sin(leaf)) for leaf in leaves)

    return g


def check(f: Callable[..., Any], tolerance: float) -> None:
    compiled = stax.jit(f, dynamic=OPEN)
    for n in LENGTHS:
        x = np.linspace(0.1, 1, n, dtype=np.float32)
        ours = stax.tree_util.tree_leaves(compiled(x))
        theirs = stax.tree_util.tree_leaves(f(snp.asarray(x)))
        for a, b in zip(ours, theirs, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert len(compiled.variants()) == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_values(name: str) -> None:
    check(PROGRAMS[name], 1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str) -> None:
    check(stax.grad(total(PROGRAMS[name])), 1e-4)


def test_short_lengths_have_programs_of_their_own() -> None:
    f = stax.jit(stax.grad(total(sums)), dynamic=OPEN)
    for n in (0, 1, 2, 5):
        x = np.ones(n, np.float32)
        np.testing.assert_allclose(f(x), stax.grad(total(sums))(x), rtol=1e-5)
    assert len(f.variants()) == 3


def test_mapped_loops() -> None:
    f = lambda x: stax.vmap(lambda v: until(snp.stack([v, v])))(x).sum(1)  # noqa: E731
    check(f, 1e-5)
    check(stax.grad(total(f)), 1e-4)


@pytest.mark.usefixtures("interrupts")
def test_interrupts_reach_a_loop_over_open_lengths() -> None:
    step = lambda c: (snp.sin(c[0]), c[1])  # noqa: E731
    forever = stax.jit(
        lambda x, go: lax.while_loop(lambda c: c[1] > 0, step, (x, go))[0],
        dynamic=OPEN,
    )
    forever(np.ones(5, np.float32), 0.0)  # ends at once; it is compiled now
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        forever(np.ones(5, np.float32), 1.0)
    timer.join()


def test_limits_of_loops_over_open_lengths() -> None:
    f = lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: c + 1, x, max_steps=3)  # noqa: E731
    with pytest.raises(errors.StepLimitError, match="max_steps=3"):
        stax.jit(f, dynamic=OPEN)(np.ones(5, np.float32))
    assert float(stax.jit(f, dynamic=OPEN)(np.full(5, 20.0, np.float32))[0]) == 20


def test_a_recorded_loop_of_open_width() -> None:
    """Both the number of steps and the width of what is recorded are found at run time."""
    f = stax.jit(lambda g, x: stax.vjp(g, x)[1], static_argnums=0, dynamic=OPEN)
    g = lambda x: lax.while_loop(lambda c: c.sum() < 20, lambda c: c * c + 1, x)  # noqa: E731
    for n in (2, 5):
        x = np.full(n, 0.5, np.float32)
        found = stax.tree_util.tree_leaves(f(g, x))
        expected = stax.tree_util.tree_leaves(stax.vjp(g, x)[1])
        assert [y.shape for y in found] == [y.shape for y in expected]
        assert any(y.ndim == 2 for y in found)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)
