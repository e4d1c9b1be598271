"""scan(checkpoint_every=): the same values and derivatives, and less memory in reverse mode."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.errors import ArgumentValueError

XS = {"a": np.linspace(0.1, 1, 7, dtype=np.float32), "b": np.linspace(1, 2, 7, dtype=np.float32)}
W = np.array([[0.3, 0.2], [0.1, 0.5]], np.float32)


def run(w: Any, xs: Any, every: int | None, reverse: bool = False) -> Any:
    def step(carry: Any, x: Any) -> Any:
        state, count = carry
        state = snp.tanh(state @ w + x["a"] * x["b"])
        return (state, count + 1), {"state": state, "both": x["a"] * count}

    start = (snp.ones(2), 0)
    return lax.scan(step, start, xs, reverse=reverse, checkpoint_every=every)


def total(w: Any, xs: Any, every: int | None, reverse: bool = False) -> Any:
    (state, _), ys = run(w, xs, every, reverse)
    weights = snp.arange(7.0)[:, None]
    return snp.sum(state) + snp.sum(snp.sin(ys["state"]) * weights) + snp.vdot(ys["both"], XS["a"])


def assert_close(ours: Any, wanted: Any) -> None:
    pairs = zip(stax.tree.leaves(ours), stax.tree.leaves(wanted), strict=True)
    for a, b in pairs:
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


EVERY = [1, 3, 7, 100]
KINDS = {
    "grad": lambda f: stax.grad(f, (0, 1)),
    "jit of grad": lambda f: stax.jit(stax.grad(f, (0, 1))),
    "jvp": lambda f: lambda w, xs: stax.jvp(f, (w, xs), (w, xs)),
    "vmap of grad": lambda f: (
        lambda w, xs: stax.vmap(stax.grad(f), (0, None))(np.stack([w, w * 0.5]), xs)
    ),
    "hessian": lambda f: stax.hessian(f),
}


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("every", EVERY)
def test_values(every: int, reverse: bool) -> None:
    wanted = run(W, XS, None, reverse)
    assert_close(run(W, XS, every, reverse), wanted)
    assert_close(stax.jit(lambda w, xs: run(w, xs, every, reverse))(W, XS), wanted)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("every", [3, 7])  # with a shorter last piece, and without
@pytest.mark.parametrize("kind", KINDS)
def test_derivatives(kind: str, every: int, reverse: bool) -> None:
    transform = KINDS[kind]
    wanted = transform(lambda w, xs: total(w, xs, None, reverse))(W, XS)
    assert_close(transform(lambda w, xs: total(w, xs, every, reverse))(W, XS), wanted)


def test_without_xs_and_of_no_step() -> None:
    def run(every: int | None, length: int) -> Any:
        return lax.scan(lambda c, _: (c * 0.5, c), X, None, length, checkpoint_every=every)

    X = snp.ones(3)
    assert_close(run(2, 5), run(None, 5))
    assert_close(run(2, 0), run(None, 0))


def test_fori_loop() -> None:
    def f(x: Any, every: int | None, n: Any = 7) -> Any:
        return lax.fori_loop(0, n, lambda i, c: snp.sin(c) * x + i, x, checkpoint_every=every)

    for wrap in (lambda f: f, stax.jit):
        wanted = wrap(stax.grad(lambda x: f(x, None)))(0.5)
        assert_close(wrap(stax.grad(lambda x: f(x, 3)))(0.5), wanted)


def test_planned_peak_is_under_a_tenth() -> None:
    def loss(x: Any, every: int | None) -> Any:
        step = lambda c, _: (snp.sin(c) * x, None)  # noqa: E731
        return lax.scan(step, x, None, 1000, checkpoint_every=every)[0].sum()

    def peak(every: int | None) -> int:
        compiled = stax.jit(stax.grad(lambda x: loss(x, every))).lower(x).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    x = snp.ones(1024)
    assert peak(None) >= 1000 * 1024 * 4
    assert peak(32) < peak(None) / 10


@pytest.mark.parametrize("every", [0, -1])
def test_a_number_of_steps_is_positive(every: int) -> None:
    with pytest.raises(ArgumentValueError, match="checkpoint_every is at least 1"):
        lax.scan(lambda c, x: (c, x), 0.0, XS["a"], checkpoint_every=every)
