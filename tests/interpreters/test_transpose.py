"""Reverse mode: transposes of linear graphs, sums of cotangents, masks."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import types
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.linearize import linearize
from stax.interpreters.simplify import simplify
from stax.interpreters.transpose import dependents, transpose
from stax.operators.elementwise import sin
from stax.types import ArrayType
from stax.verify import verify
from tests.operators.calculus import graph_of
from tests.random_graphs import arguments, graphs

VECTOR = ArrayType(types.float32, (3,))
MATRIX = ArrayType(types.float32, (2, 3))
X, Y = (np.asarray(v, np.float32) for v in ([1, 2, 3], [4, 5, 6]))
Golden = Callable[[str, Any], None]


LINEAR: dict[str, Callable[..., Any]] = {
    "product": lambda w, x: w * x,
    "used_twice": lambda w, x: (x + w * x, -x),
    "matrix": lambda w, x: w.T @ x,
    "select": lambda w, x: snp.where(w > 0, x, 2 * x),
    "rows": lambda w, x: (x - x.mean(-1, keepdims=True)) * w,
}


@pytest.mark.parametrize("name", LINEAR)
def test_golden_graphs(name: str, golden: Golden) -> None:
    graph = simplify(graph_of(LINEAR[name], MATRIX, MATRIX))
    after, has_ct = transpose(graph, [False, True])
    golden(f"transpose/{name}", f"{graph}\n\n{simplify(after)}\n\n{has_ct}")


@pytest.mark.parametrize("name", LINEAR)
def test_inner_products(name: str) -> None:
    graph = graph_of(LINEAR[name], MATRIX, MATRIX)
    rng = np.random.default_rng(0)
    w, x = (rng.normal(size=(2, 3)).astype(np.float32) for _ in range(2))
    cts = [rng.normal(size=t.shape).astype(np.float32) for t in graph.output_types]
    (back,) = evaluate(transpose(graph, [False, True])[0], [w, *cts])
    forth = sum(float((y * ct).sum()) for y, ct in zip(evaluate(graph, [w, x]), cts, strict=True))
    assert float((back * x).sum()) == pytest.approx(forth, rel=1e-5)


def test_inputs_without_a_cotangent_are_marked() -> None:
    graph = graph_of(lambda x, y, z: y * 2, VECTOR, VECTOR, VECTOR)
    after, has_ct = transpose(graph, [True, True, True])
    assert has_ct == [False, True, False]
    assert [n.op.label for n in after.inputs] == ["ct0"]
    assert len(after.outputs) == 1


def test_an_output_that_is_an_input() -> None:
    after, has_ct = transpose(graph_of(lambda x: (x, x, 3 * x), VECTOR), [True])
    assert has_ct == [True]
    (back,) = evaluate(after, [X, Y, X])
    np.testing.assert_array_equal(back, X + Y + 3 * X)


def test_an_output_that_depends_on_nothing_linear() -> None:
    after, has_ct = transpose(graph_of(lambda x, y: (x, sin(y)), VECTOR, VECTOR), [True, False])
    assert has_ct == [True]
    (back,) = evaluate(after, [Y, X, X])
    np.testing.assert_array_equal(back, X)


def test_transposing_twice_is_the_graph() -> None:
    graph = graph_of(lambda w, x: w @ x, MATRIX, ArrayType(types.float32, (3, 2)))
    once, _ = transpose(graph, [False, True])
    twice, _ = transpose(once, [False, True])
    rng = np.random.default_rng(0)
    w, x = rng.normal(size=(2, 3)), rng.normal(size=(3, 2))
    args = [w.astype(np.float32), x.astype(np.float32)]
    np.testing.assert_allclose(evaluate(twice, args)[0], evaluate(graph, args)[0], rtol=1e-5)


def test_dependents() -> None:
    graph = graph_of(lambda x, y: (sin(x), sin(x) * y, sin(y)), VECTOR, VECTOR)
    found = dependents(graph.nodes, graph.inputs[:1])
    assert [n.op.name for n in graph.nodes if n in found] == ["sin", "mul"]


# --- masked cotangents ---

MASKED: dict[str, tuple[Callable[..., Any], float, float]] = {
    "sqrt": (lambda x: snp.where(x > 0, snp.sqrt(x), 0.0), 0.0, 0.0),
    "log": (lambda x: snp.where(x > 0, snp.log(x), x), 0.0, 1.0),
    "through a product": (lambda x: snp.where(x > 0, 3 * snp.sqrt(x) * 2, x), 0.0, 1.0),
    "nested": (
        lambda x: snp.where(x > 0, snp.where(x < 5, snp.sqrt(x), snp.log(x)), x * 2), 0.0, 2.0,
    ),
    "through a reshape": (
        lambda x: snp.where(x > 0, snp.sqrt(x).reshape(1, 1)[0, 0], x), 0.0, 1.0,
    ),
    "through a sum": (
        lambda x: snp.where(x > 0, snp.sqrt(snp.broadcast_to(x, (3,))).sum(), x), 0.0, 1.0,
    ),
    "division": (lambda x: snp.where(x == 0, 1.0, snp.sin(x) / x), 0.0, 0.0),
    "unmasked stays NaN": (lambda x: snp.sqrt(x) * 0, 0.0, float("nan")),
}  # fmt: skip


@pytest.mark.parametrize("name", MASKED)
def test_lanes_not_taken_absorb(name: str) -> None:
    function, at, expected = MASKED[name]
    assert float(stax.grad(function)(at)) == pytest.approx(expected, nan_ok=True)
    assert float(stax.jit(stax.grad(function))(at)) == pytest.approx(expected, nan_ok=True)
    mapped = stax.vmap(stax.grad(function))(snp.full(2, at))
    np.testing.assert_allclose(mapped, [expected] * 2)


def test_second_derivatives_are_masked() -> None:
    f = lambda x: snp.where(x > 0, x**1.5, x)  # noqa: E731
    assert float(stax.grad(stax.grad(f))(0.0)) == 0
    assert float(stax.jvp(stax.grad(f), (0.0,), (1.0,))[1]) == 0


@settings(max_examples=40)
@given(graphs(exact=False), st.integers(0, 9))
def test_random_pushforwards(graph: Graph, seed: int) -> None:
    """Transposes of the linear parts of random programs are adjoint."""
    flags = [True] * len(graph.inputs)
    primal, linear, _ = linearize(graph, flags)
    args = arguments(graph, seed, special=False)
    with np.errstate(all="ignore"):
        residuals = evaluate(primal, args)[len(graph.outputs) :]
        back, has_ct = transpose(linear, [False] * len(residuals) + flags)
        verify(back)
        ways = arguments(graph, seed + 1, special=False)
        rng = np.random.default_rng(seed)
        cts = [rng.normal(size=t.shape).astype(np.float32) for t in linear.output_types]
        forth = evaluate(linear, [*residuals, *ways])
        found = iter(evaluate(back, [*residuals, *cts]))
    left = [float((a * b).sum()) for a, b in zip(forth, cts, strict=True)]
    right = [float((next(found) * w).sum()) for w, h in zip(ways, has_ct, strict=True) if h]
    if np.isfinite([*left, *right]).all():
        scale = sum(map(abs, [*left, *right])) + 1
        assert abs(sum(left) - sum(right)) <= 1e-4 * scale
