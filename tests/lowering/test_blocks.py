"""Loops over blocks of rows: what is legal, and that values stay what they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.interpreters.evaluate import evaluate
from stax.lowering import block_step, blocks
from stax.lowering.block_step import BlockStep
from stax.lowering.blocks import blocks_of
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import compile_graph

Function = Callable[..., Any]
T, B, K, M = 5, 32, 4, 6


def values(*shape: int) -> np.ndarray:
    # Of a shape always the same, whichever tests ran before.
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


W, V, U, XS = values(M, M), values(M, M), values(K, M), values(T, B, K)


@pytest.fixture(autouse=True)
def little_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MANY_OPERATIONS", 0)
    monkeypatch.setattr(blocks, "FEWEST_ROWS", 4)
    monkeypatch.setattr("stax.lowering.lanes.MOST_OPERATIONS", 0)


def check(f: Function, *args: Any, count: int | None = 1) -> list[BlockStep]:
    """Compare a compiled function with the evaluator; `count` of its loops are cut."""
    graph = stax.make_graph(f)(*args)
    found = [s for s in lower_graph(graph).steps if isinstance(s, BlockStep)]
    assert count is None or len(found) == count
    leaves = [np.asarray(x) for x in stax.tree_util.tree_leaves(args)]
    program = compile_graph(graph)
    for _ in range(2):
        for ours, b in zip(program.run(leaves), evaluate(graph, leaves), strict=True):
            np.testing.assert_allclose(
                np.asarray(ours), b, rtol=2e-5, atol=2e-5 * max(1.0, float(abs(b).max()))
            )
    return found


def network(w: Any, u: Any, xs: Any, reverse: bool = False) -> Any:
    cell = lambda h, x: (snp.tanh(h @ w + x @ u), h[:, 1:] * 2)  # noqa: E731
    return lax.scan(cell, snp.zeros((xs.shape[1], M)), xs, reverse=reverse)


def gated(w: Any, v: Any, u: Any, xs: Any) -> Any:
    def cell(state: Any, x: Any) -> Any:
        h, c = state
        gates = snp.concatenate([h @ w, h @ v + x @ u], axis=1)
        i, o = gates[:, :M], gates[:, M:]
        c = c / (1 + snp.exp(-i)) + snp.tanh(o)
        h = c - c.mean(-1, keepdims=True) + gates.max(1)[:, None]
        return (snp.tanh(h), c), (h, c[:, None, :2])

    start = snp.zeros((xs.shape[1], M))
    return lax.scan(cell, (start, start + 1), xs)


@pytest.mark.parametrize("length", [1, 2, 5, 6])
def test_networks(length: int) -> None:
    (step,) = check(network, W, U, values(length, B, K))
    assert (step.blocks.count, step.blocks.rows) == (8, 4)
    check(lambda w, u, xs: network(w, u, xs, reverse=True), W, U, values(length, B, K))
    check(gated, W, V, U, values(length, B, K))


def test_gradients() -> None:
    loss = lambda *a: sum(snp.sum(y * y) for y in stax.tree_util.tree_leaves(network(*a)))  # noqa: E731
    check(stax.grad(loss, argnums=(0, 1)), W, U, XS, count=2)
    deep = lambda *a: sum(snp.sum(y * y) for y in stax.tree_util.tree_leaves(gated(*a)))  # noqa: E731
    check(stax.grad(deep, argnums=(0, 1, 2)), W, V, U, XS, count=2)


def test_a_matrix_for_each_step() -> None:
    f = lambda h, ws: lax.scan(lambda c, w: (snp.tanh(c @ w / 6), c), h, ws)  # noqa: E731
    check(f, values(B, M), values(T, M, M))
    check(f, values(B, B), values(T, B, B))  # as many rows as there are columns


def test_constants_with_rows_and_without() -> None:
    def f(h: Any, rows: Any, square: Any, xs: Any) -> Any:
        return lax.scan(lambda c, x: (snp.tanh(c @ square) * rows + x, c.sum(1)), h, xs)

    check(f, values(B, B), values(B, B), values(B, B), values(T, B, B))
    check(f, values(B, B), values(B, 1), values(B, B), values(T, B))


def test_pairs_of_rows() -> None:
    f = lambda h, ks: lax.scan(lambda c, k: (snp.einsum("bi,bij->bj", c, k), c), h, ks)  # noqa: E731
    check(f, values(B, M), values(T, B, M, M))


@pytest.mark.parametrize(
    "step",
    [
        lambda c, w: c @ c.T @ c,
        lambda c, w: c - c.mean(0),
        lambda c, w: snp.roll(c, 1, 0) @ w,
        lambda c, w: (c.T @ c @ c.T).T,
        lambda c, w: snp.sort(c, 1) @ w,
    ],
)
def test_rows_that_are_mixed(step: Function) -> None:
    f = lambda h, w: lax.scan(lambda c, _: (snp.tanh(step(c, w)), None), h, None, length=3)[0]  # noqa: E731
    check(f, values(B, M), W, count=0)


def test_steps_are_done_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for most in (1, 12_000, 40_000):
        monkeypatch.setattr(block_step, "POLL_AFTER", most)
        for length in (1, 2, 7, 8):
            check(network, W, U, values(length, B, K))


def test_updates_in_place() -> None:
    def f(h: Any, w: Any, xs: Any) -> Any:
        def step(state: Any, x: Any) -> Any:
            h, total = state
            return (snp.tanh(h @ w), total * 0.5 + x), None

        return lax.scan(step, (h, h), xs)[0]

    for length in (1, 4, 5):
        check(f, values(B, M), W, values(length, B, M))


def test_inside_of_a_loop() -> None:
    def f(h: Any, w: Any, u: Any, xs: Any) -> Any:
        def outer(h: Any, x: Any) -> Any:
            h = lax.scan(lambda c, y: (snp.tanh(c @ w + y @ u), None), h, x)[0]
            return h - h.mean(0), None

        return lax.scan(outer, h, xs)[0]

    check(f, values(B, M), W, U, values(2, T, B, K), count=0)


def test_what_is_cut() -> None:
    few = lower_graph(stax.make_graph(network)(W, U, values(T, 7, K)))
    assert not any(isinstance(s, BlockStep) for s in few.steps)
    (loop,) = [n.op for n in few.graph.nodes if n.op.name == "scan"]
    assert blocks_of(loop) == "there are few rows, or no blocks of one size"  # type: ignore[arg-type]


PIECES: list[Function] = [
    lambda c, x, w, u: c @ w, lambda c, x, w, u: x @ u, lambda c, x, w, u: snp.tanh(c),
    lambda c, x, w, u: c - c.max(1, keepdims=True), lambda c, x, w, u: (x @ u) * (c @ w.T),
    lambda c, x, w, u: snp.where(c > 0, c, w[0]), lambda c, x, w, u: c[:, ::-1] @ w,
    lambda c, x, w, u: snp.cumsum(c, 1) + snp.pad(c, ((0, 0), (1, 0)))[:, 1:],
    lambda c, x, w, u: c * snp.argmax(c, 1)[:, None],
    lambda c, x, w, u: c.reshape(-1, 2, 3).sum(1, keepdims=True).reshape(-1, 3) @ u[:3],
]  # fmt: skip


@settings(max_examples=20)
@given(st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=4), st.booleans())
def test_random_steps(pieces: list[int], is_gradient: bool) -> None:
    def f(w: Any, u: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> tuple[Any, Any]:
            parts = [PIECES[i](c, x, w, u) for i in pieces]
            return snp.tanh(sum(parts[1:], parts[0]) * 0.3), parts[0] * c

        carry, ys = lax.scan(step, snp.ones((B, M)), xs)
        return snp.sum(carry * carry) + snp.sum(ys)

    check(stax.grad(f, argnums=(0, 1)) if is_gradient else f, W, U, XS, count=None)
