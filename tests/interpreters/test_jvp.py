"""Forward mode: which tangents there are, where they come from, golden graphs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax.numpy as snp
from stax import types
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp, pushforward
from stax.interpreters.simplify import simplify
from stax.operators.elementwise import floor, sin
from stax.operators.gradient import stop_gradient
from stax.trace import Trace
from stax.types import ArrayType
from stax.verify import verify
from tests.operators.calculus import graph_of
from tests.random_graphs import arguments, graphs

SCALAR = ArrayType(types.float32, ())
VECTOR = ArrayType(types.float32, (3,))
Golden = Callable[[str, Any], None]


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.inputs]


@pytest.mark.parametrize("name", ["product", "softmax", "select"])
def test_golden_graphs(name: str, golden: Golden) -> None:
    function = {
        "product": lambda x, y: x * y + sin(x),
        "softmax": lambda x, y: snp.exp(x - x.max()) / snp.exp(x - x.max()).sum(),
        "select": lambda x, y: snp.where(x > 0, x, y),
    }[name]
    graph = simplify(graph_of(function, VECTOR, VECTOR))
    after, has_tangent = jvp(graph, [True, True])
    golden(f"jvp/{name}", f"{graph}\n\n{simplify(after)}\n\n{has_tangent}")


def test_inputs_and_outputs() -> None:
    graph = graph_of(lambda x, y, z: (x * y, z), VECTOR, VECTOR, VECTOR)
    after, has_tangent = jvp(graph, [False, True, False])
    assert has_tangent == [True, False]
    assert [n.op.label for n in after.inputs] == ["x0", "x1", "x2", "x1_dot"]
    assert after.output_types == (VECTOR,) * 3
    x, y, z, t = (np.full(3, v, np.float32) for v in (2, 3, 4, 5))
    found = evaluate(after, [x, y, z, t])
    assert [float(v[0]) for v in found] == [6, 4, 10]


def test_without_tangents_the_graph_stays() -> None:
    graph = graph_of(lambda x: sin(x) * 2, VECTOR)
    after, has_tangent = jvp(graph, [False])
    assert has_tangent == [False]
    assert ops(after) == ops(graph)


@pytest.mark.parametrize(
    "function",
    [floor, lambda x: x > 0, snp.argmax, stop_gradient, lambda x: x.astype("int32"), snp.sign],
    ids=["floor", "greater", "argmax", "stop_gradient", "to_int", "sign"],
)
def test_no_tangent_where_there_is_no_derivative(function: Any) -> None:
    graph = graph_of(lambda x: function(sin(x)), VECTOR)
    after, has_tangent = jvp(graph, [True])
    assert has_tangent == [False]
    assert "cos" not in ops(after)


def test_zero_tangents_cost_nothing() -> None:
    graph = graph_of(lambda x, y: sin(x) * sin(y), VECTOR, VECTOR)
    after, _ = jvp(graph, [True, False])
    assert ops(after).count("cos") == 1


def test_primal_values_are_shared() -> None:
    after, _ = jvp(graph_of(lambda x: snp.exp(x), VECTOR), [True])
    assert ops(after) == ["exp", "mul"]


def test_tangents_are_strong() -> None:
    graph = graph_of(lambda x: x * 2, ArrayType(types.float32, (), True))
    after, _ = jvp(graph, [True])
    assert [t.weak for t in after.output_types] == [True, False]


def test_pushforward_works_in_the_current_trace() -> None:
    graph = graph_of(lambda x: x * x, SCALAR)
    with Trace("f", "test") as trace:
        x, t = trace.input(SCALAR), trace.input(SCALAR)
        (y,), (out,) = pushforward(graph, [x], [t])
        found = trace.finish([y, out])
    assert [float(v) for v in evaluate(found, [np.float32(3), np.float32(1)])] == [9, 6]


def test_source_lines_are_inherited() -> None:
    graph = graph_of(lambda x: sin(x), VECTOR)
    after, _ = jvp(graph, [True])
    assert {n.source for n in after.nodes} == {graph.nodes[0].source}


@settings(max_examples=40)
@given(graphs(exact=False), st.integers(0, 9))
def test_random_graphs_twice(graph: Graph, seed: int) -> None:
    """Well formed, the primal part is the graph, and tangents are linear."""
    flags = [True] * len(graph.inputs)
    once, has_tangent = jvp(graph, flags)
    twice, _ = jvp(once, [True] * len(once.inputs))
    verify(twice)
    args = arguments(graph, seed, special=False)
    ways = arguments(graph, seed + 1, special=False)
    with np.errstate(all="ignore"):
        one = evaluate(once, [*args, *ways])
        two = evaluate(once, [*args, *(2 * w for w in ways)])
        plain = evaluate(graph, args)
    count = len(graph.outputs)
    for a, b in zip(one[:count], plain, strict=True):
        np.testing.assert_array_equal(a, b)
    assert len(one) == count + sum(has_tangent)
    for a, b in zip(one[count:], two[count:], strict=True):
        np.testing.assert_allclose(2 * a, b, rtol=1e-4, atol=1e-4)
