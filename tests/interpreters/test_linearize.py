"""Splitting a graph: what is known, what is not, and the residuals between them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax.numpy as snp
from stax import types
from stax.control import Call, call
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize, split
from stax.interpreters.simplify import simplify
from stax.operators.elementwise import cos, sin
from stax.types import ArrayType
from stax.verify import verify
from tests.operators.calculus import graph_of
from tests.random_graphs import arguments, assert_same_bits, graphs

VECTOR = ArrayType(types.float32, (3,))
X, Y = (np.asarray(v, np.float32) for v in ([1, 2, 3], [4, 5, 6]))
Golden = Callable[[str, Any], None]


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.inputs]


# --- split ---


def test_known_and_unknown_parts() -> None:
    graph = graph_of(lambda x, y: (sin(x), sin(x) * cos(y)), VECTOR, VECTOR)
    known, unknown, is_known = split(graph, [False, True])
    assert is_known == [True, False]
    assert ops(known) == ["sin"]
    assert ops(unknown) == ["cos", "mul"]
    assert [n.op.label for n in unknown.inputs] == ["residual0", "x1"]
    outs = evaluate(known, [X])
    assert len(outs) == 2
    np.testing.assert_array_equal(outs[0], np.sin(X))
    (product,) = evaluate(unknown, [outs[1], Y])
    np.testing.assert_allclose(product, np.sin(X) * np.cos(Y), rtol=1e-6)


def test_residuals_are_each_named_once() -> None:
    graph = graph_of(lambda x, y: (sin(x) * y, sin(x) + y, x * y), VECTOR, VECTOR)
    known, unknown, _ = split(graph, [False, True])
    assert len(known.outputs) == 2
    assert len(unknown.inputs) == 3


def test_an_input_may_be_a_residual() -> None:
    graph = graph_of(lambda x, y: x * y, VECTOR, VECTOR)
    known, unknown, _ = split(graph, [False, True])
    assert known.outputs == known.inputs
    assert ops(unknown) == ["mul"]


def test_constants_are_made_again() -> None:
    graph = graph_of(lambda x, y: x * 2.0 + y * 2.0, VECTOR, VECTOR)
    known, unknown, _ = split(graph, [False, True])
    assert len(known.outputs) == 1
    assert ops(unknown) == ["mul", "add"]


def test_everything_known_and_nothing_known() -> None:
    graph = graph_of(lambda x: (sin(x), x), VECTOR)
    known, unknown, is_known = split(graph, [False])
    assert is_known == [True, True]
    assert (len(known.outputs), unknown.inputs, unknown.outputs) == (2, (), ())
    known, unknown, is_known = split(graph, [True])
    assert is_known == [False, False]
    assert (known.nodes, known.outputs) == ((), ())
    assert ops(unknown) == ["sin"]


def test_outputs_beyond_the_known_ones_are_unknown() -> None:
    """A tangent that happens not to depend on a tangent is a result of the linear part still."""
    graph = graph_of(lambda x, y: (sin(x), cos(x)), VECTOR, VECTOR)
    known, unknown, is_known = split(graph, [False, True], known_outputs=1)
    assert is_known == [True, False]
    assert len(known.outputs) == 2
    assert [n.op.label for n in unknown.outputs] == ["residual0"]


def test_constant_outputs() -> None:
    graph = graph_of(lambda x: (snp.zeros(3), x), VECTOR)
    known, unknown, is_known = split(graph, [True], known_outputs=0)
    assert is_known == [False, False]
    assert known.outputs == ()
    assert [float(v[0]) for v in evaluate(unknown, [X])] == [0, 1]


def test_dead_nodes_on_both_sides_go() -> None:
    graph = graph_of(lambda x, y: (sin(x), cos(y)), VECTOR, VECTOR)
    half = Graph("half", graph.inputs, graph.nodes[1:], graph.outputs[1:])
    known, unknown, _ = split(half, [False, True])
    assert known.nodes == ()
    assert ops(unknown) == ["cos"]


@settings(max_examples=40)
@given(graphs(exact=False), st.integers(0, 9), st.data())
def test_both_parts_together_are_the_graph(graph: Graph, seed: int, data: Any) -> None:
    flags = [data.draw(st.booleans()) for _ in graph.inputs]
    limit = data.draw(st.none() | st.integers(0, len(graph.outputs)))
    known, unknown, is_known = split(graph, flags, limit)
    verify(known)
    verify(unknown)
    args = arguments(graph, seed, special=False)
    with np.errstate(all="ignore"):
        early = evaluate(known, [x for x, f in zip(args, flags, strict=True) if not f])
        residuals = early[sum(is_known) :]
        late = evaluate(unknown, [*residuals, *(x for x, f in zip(args, flags, strict=True) if f)])
        expected = evaluate(graph, args)
    outs = [iter(late), iter(early)]
    assert_same_bits([next(outs[k]) for k in is_known], expected)


# --- linearize ---

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "product": lambda x, y: sin(x) * y,
    "layer_norm": lambda x, y: (x - x.mean()) / snp.sqrt(x.var() + 1e-3) * y,
    "select": lambda x, y: snp.where(x > 0, x * y, y),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_golden_graphs(name: str, golden: Golden) -> None:
    primal, linear, has_tangent = linearize(graph_of(FUNCTIONS[name], VECTOR, VECTOR), [True, True])
    golden(f"linearize/{name}", f"{simplify(primal)}\n\n{simplify(linear)}\n\n{has_tangent}")


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("flags", [[True, True], [True, False], [False, True]])
def test_linearize_is_jvp(name: str, flags: list[bool]) -> None:
    graph = graph_of(FUNCTIONS[name], VECTOR, VECTOR)
    primal, linear, has_tangent = linearize(graph, flags)
    ways = [w for w, f in zip((Y, X), flags, strict=True) if f]
    out, *residuals = evaluate(primal, [X, Y])
    joint, expected_marks = jvp(graph, flags)
    assert has_tangent == expected_marks
    assert_same_bits([out, *evaluate(linear, [*residuals, *ways])], evaluate(joint, [X, Y, *ways]))


def test_the_linear_part_computes_no_primal() -> None:
    _, linear, _ = linearize(graph_of(lambda x: snp.tanh(sin(x)), VECTOR), [True])
    assert set(ops(linear)) <= {"mul"}


def test_no_tangents() -> None:
    primal, linear, has_tangent = linearize(graph_of(snp.floor, VECTOR), [True])
    assert has_tangent == [False]
    assert ops(primal) == ["floor"]
    assert linear.outputs == ()


def test_calls_are_split() -> None:
    inner = graph_of(lambda x: (sin(x), x * 2), VECTOR)
    graph = graph_of(lambda x: call(inner, x)[0] * x, VECTOR)
    primal, linear, _ = linearize(graph, [True])
    held = [n.op.graph for g in (primal, linear) for n in g.nodes if isinstance(n.op, Call)]
    assert [ops(g) for g in held] == [["sin", "cos", "mul"], ["mul", "mul"]]
    out, *residuals = evaluate(primal, [X])
    np.testing.assert_allclose(out, np.sin(X) * X, rtol=1e-6)
    (tangent,) = evaluate(linear, [*residuals, np.ones(3, np.float32)])
    np.testing.assert_allclose(tangent, np.sin(X) + X * np.cos(X), rtol=1e-5)
