"""Work taken out of the steps of loops: what is taken, and that values stay what they are."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.control import Scan
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.lowering import outside
from stax.lowering.outside import work_outside

Function = Callable[..., Any]
T, B, K, M = 6, 4, 16, 8


def values(*shape: int) -> np.ndarray:
    # Of a shape always the same, whichever tests ran before.
    return np.random.default_rng(shape).normal(size=shape).astype(np.float32)


W, U, XS, H = values(M, M), values(K, M), values(T, B, K), values(B, M)


def rewritten(f: Function, *args: Any, tolerance: float = 1e-5) -> Graph:
    """Take work out of the loops of `f`, and compare what both graphs give."""
    graph = stax.make_graph(f)(*args)
    other = work_outside(graph)
    leaves = [np.asarray(x) for x in stax.tree_util.tree_leaves(args)]
    assert [*graph.output_types] == [*other.output_types]
    for a, b in zip(evaluate(graph, leaves), evaluate(other, leaves), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * max(1, abs(a).max()))
    for ours, b in zip(
        stax.tree_util.tree_leaves(stax.jit(f)(*args)), evaluate(graph, leaves), strict=True
    ):
        np.testing.assert_allclose(
            np.asarray(ours), b, rtol=tolerance, atol=tolerance * max(1, abs(b).max())
        )
    return other


def loop(graph: Graph) -> Scan:
    (op,) = [n.op for n in graph.nodes if isinstance(n.op, Scan)]
    assert isinstance(op, Scan)
    return op


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes]


def network(w: Any, u: Any, xs: Any) -> Any:
    cell = lambda h, x: (snp.tanh(h @ w + x @ u), h)  # noqa: E731
    return snp.sum(lax.scan(cell, snp.zeros((B, M)), xs)[0])


def test_products_of_inputs_are_done_at_once() -> None:
    graph = rewritten(network, W, U, XS)
    assert ops(graph).count("dot_general") == 1
    assert ops(loop(graph).body).count("dot_general") == 1


def test_gradients_of_weights_are_products_after_the_loop() -> None:
    graph = rewritten(stax.grad(network, argnums=(0, 1)), W, U, XS)
    forward, backward = [n.op for n in graph.nodes if isinstance(n.op, Scan)]
    assert ops(graph).count("dot_general") == 3
    assert [ops(op.body).count("dot_general") for op in (forward, backward)] == [1, 1]
    assert backward.carry == 1


def test_one_example_at_a_time() -> None:
    """Vectors: the gradient of a weight is a sum of outer products."""

    def loss(w: Any, u: Any, xs: Any) -> Any:
        cell = lambda h, x: (snp.tanh(w @ h + u.T @ x), h)  # noqa: E731
        return snp.sum(lax.scan(cell, snp.zeros(K), xs)[0] ** 2)

    args = values(K, K), values(K, K), values(T, K)
    graph = rewritten(stax.grad(loss, argnums=(0, 1)), *args)
    assert ops(graph).count("dot_general") == 3


def test_what_is_the_same_in_every_step_is_done_once() -> None:
    f = lambda w, h: lax.scan(lambda c, _: (c * snp.exp(w).sum(0), None), h, None, length=3)[0]  # noqa: E731
    graph = rewritten(f, W, H)
    assert "exp" in ops(graph)
    assert ops(loop(graph).body) == ["broadcast", "mul"]


def test_what_nobody_reads_is_dropped() -> None:
    def f(h: Any, xs: Any) -> Any:
        step = lambda c, x: ((c[0] + 1, c[1] * x, c[2] - c[1]), snp.sin(c[2]))  # noqa: E731
        return lax.scan(step, (h, h, h), xs)[0][1]

    graph = rewritten(f, values(3), values(T, 3), tolerance=0)
    assert (loop(graph).carry, ops(loop(graph).body)) == (1, ["mul"])


def test_what_no_step_changes_is_a_constant() -> None:
    f = lambda h, xs: lax.scan(lambda c, x: ((c[0], c[1] * c[0] + x), c[0]), (h, h), xs)  # noqa: E731
    graph = rewritten(f, values(3), values(T, 3), tolerance=0)
    assert (loop(graph).consts, loop(graph).carry) == (1, 1)


def test_inputs_that_repeat_are_constants() -> None:
    def f(h: Any) -> Any:
        xs = snp.broadcast_to(h, (T, 3)), snp.ones((T, 3))
        return lax.scan(lambda c, x: (c * x[0] + x[1], None), h, xs)[0]

    graph = rewritten(f, values(3), tolerance=0)
    assert len(loop(graph).body.inputs) == 2


def test_loops_that_are_left_with_nothing_go() -> None:
    f = lambda xs, ys: lax.scan(lambda c, x: (c + x[0].T @ x[1], None), snp.zeros((K, M)), (xs, ys))  # noqa: E731
    graph = rewritten(lambda xs, ys: f(xs, ys)[0], XS, values(T, B, M))
    assert ops(graph) == ["constant", "transpose", "dot_general", "add"]


def test_sums_that_are_read_meanwhile_stay() -> None:
    def f(xs: Any) -> Any:
        step = lambda c, x: (c + x.T @ x * c[0, 0], c[0, 0])  # noqa: E731
        return lax.scan(step, snp.ones((K, K)), xs)

    assert loop(rewritten(f, XS * np.float32(0.1))).carry == 1


def test_results_are_not_kept_where_they_would_fill_memory(monkeypatch: Any) -> None:
    monkeypatch.setattr("stax.lowering.outside.ALLOWED", 0)
    monkeypatch.setattr("stax.lowering.outside.SHARE", 0)
    graph = rewritten(stax.grad(network), W, U, XS)
    assert ops(graph).count("dot_general") == 0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "int32"])
def test_dtypes(dtype: str, reverse: bool) -> None:
    def f(w: Any, xs: Any) -> Any:
        w, xs = (x.astype(dtype) for x in (w * 4, xs * 4))
        step = lambda c, x: (c + x.T @ (x @ w), x @ w)  # noqa: E731
        return [y.astype("float32") for y in lax.scan(step, w * 0, xs, reverse=reverse)]

    rewritten(f, values(K, K), XS, tolerance=0.05 if "16" in dtype else 1e-4)


# --- random steps ---

PIECES: list[Function] = [
    lambda c, x, w, u: c @ w, lambda c, x, w, u: x @ u, lambda c, x, w, u: snp.tanh(x) @ u,
    lambda c, x, w, u: c @ (w * w).T, lambda c, x, w, u: c * snp.sum(u, 0),
    lambda c, x, w, u: snp.tanh(c), lambda c, x, w, u: (x @ u) * (c @ w),
    lambda c, x, w, u: snp.outer(c[:, 0], snp.max(w, 0)), lambda c, x, w, u: c,
]  # fmt: skip


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=4),
    st.booleans(),
    st.sampled_from(["value", "grad", "vmap of grad"]),
)
def test_random_steps(pieces: list[int], reverse: bool, kind: str) -> None:
    def f(w: Any, u: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> tuple[Any, Any]:
            parts = [PIECES[i](c, x, w, u) for i in pieces]
            new = snp.tanh(sum(parts[1:], parts[0]) * 0.3)
            return new, parts[0] * c

        carry, ys = lax.scan(step, snp.ones((B, M)), xs, reverse=reverse)
        return snp.sum(carry * carry) + snp.sum(ys)

    args: tuple[Any, ...] = W, U, XS
    if kind != "value":
        f = stax.grad(f, argnums=(0, 1))
    if kind == "vmap of grad":
        f, args = stax.vmap(f, (None, None, 0)), (W, U, values(3, T, B, K))
    rewritten(f, *args, tolerance=1e-4)


def test_lengths_that_a_loop_finds_have_names_of_their_own() -> None:
    """One graph with a recorded loop is called outside of a loop and, unchanging, in its steps."""

    def run(x: Any) -> Any:
        state = lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, snp.sin(s[1])), (0, x))
        return state[1]

    @stax.jit
    def pull(x: Any, ct: Any) -> Any:
        return stax.vjp(run, x)[1](ct)[0]

    rewritten(lambda x, c: pull(x, c) + lax.fori_loop(0, 4, lambda i, c: pull(x, c), c), H, H)


@pytest.mark.parametrize("of", [lambda f: f, stax.grad])
def test_work_grows_linearly(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of all steps are recorded together, however many products there are."""
    mapped: list[int] = []

    def counting(graph: Any, *rest: Any) -> Any:
        mapped.append(len(graph.nodes))
        return batch(graph, *rest)

    monkeypatch.setattr(outside, "batch", counting)

    def nodes(count: int) -> int:
        def f(weights: Any, xs: Any) -> Any:
            def step(total: Any, h: Any) -> Any:
                for w in weights:
                    h = snp.tanh(h @ w)
                return total + h.sum(), None

            return lax.scan(step, 0.0, xs)[0]

        weights = [np.full((16, 16), k + 1.0, np.float32) for k in range(count)]
        graph = stax.make_graph(of(f))(weights, np.ones((8, 16, 16), np.float32))
        mapped.clear()
        outside.work_outside(graph)
        return sum(mapped)

    assert 0 < nodes(40) <= 5 * nodes(10)
