"""Preparation: what no kernel has to know of is gone, and nothing changes by more than rounding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax, types
from stax.control import call
from stax.errors import LoweringError
from stax.graph import Constant, Graph, Input
from stax.interpreters.evaluate import evaluate
from stax.lowering.prepare import prepare
from stax.operators.sort import Sort
from stax.trace import bind
from stax.types import ArrayType
from tests.effects import Unordered
from tests.lowering.examples import normal
from tests.operators.calculus import graph_of
from tests.random_graphs import DTYPES, arguments, assert_same_bits, graphs

Golden = Callable[[str, Any], None]


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.inputs]


def prepared(function: Callable[..., Any], *args: Any) -> Graph:
    return prepare(stax.make_graph(function)(*args))


def test_calls_are_inlined() -> None:
    inner = stax.make_graph(lambda x: (snp.sin(x), x * 2))(normal(3))
    middle = stax.make_graph(lambda x: call(inner, x))(normal(3))
    graph = prepared(lambda x: call(middle, x)[0] + call(middle, x)[1], normal(3))
    assert ops(graph) == ["sin", "mul", "add"]


def test_reductions_of_short_axes_are_reshapes() -> None:
    graph = prepared(lambda x: x.sum((0, 2)), normal(1, 5, 1))
    assert ops(graph) == ["reshape", "copy"]


def test_outer_products_are_multiplications() -> None:
    graph = prepared(snp.outer, normal(3), normal(4))
    assert "mul" in ops(graph)
    assert "dot_general" not in ops(graph)


def test_every_output_has_memory_of_its_own() -> None:
    graph = prepared(
        lambda x, y: (x, x, y, x * y, x * y, (x * y).reshape(-1), 2.0), normal(3, 2), normal(3, 2)
    )
    roots = []
    for node in graph.outputs:
        while node.op.name == "reshape":
            node = node.inputs[0]
        roots.append(node)
    assert len(set(roots)) == len(roots)
    assert not any(isinstance(n.op, Input | Constant) for n in roots)


def test_axes_of_products_are_brought_in_order() -> None:
    x, y = normal(3, 4, 5, 6), normal(6, 7, 3)
    function = lambda x, y: snp.einsum("abcd,dea->bce", x, y)  # noqa: E731
    graph = stax.make_graph(function)(x, y)
    np.testing.assert_allclose(
        evaluate(prepare(graph), [x, y])[0], evaluate(graph, [x, y])[0], rtol=1e-4, atol=1e-5
    )


def test_sorts_by_several_keys_go_along_the_last_axis() -> None:
    def function(x: Any, y: Any) -> Any:
        return lax.sort((x, y), 0, num_keys=2)

    graph = prepared(function, normal(5, 3), normal(5, 3))
    assert [n.op.axis for n in graph.nodes if isinstance(n.op, Sort)] == [1]
    x, y = normal(5, 3), normal(5, 3)
    assert_same_bits(evaluate(graph, [x, y]), function(x, y))


def test_sorts_by_one_key_take_rows_as_they_lie() -> None:
    graph = prepared(lambda x: snp.sort(x, 0), normal(5, 3))
    assert [n.op.axis for n in graph.nodes if isinstance(n.op, Sort)] == [0]


def test_what_kernels_cannot_hold() -> None:
    graph = graph_of(lambda x: x, ArrayType(types.float0, (2,)))
    with pytest.raises(LoweringError, match="not compiled for the CPU"):
        prepare(graph)


def test_ops_without_kernels_are_named_with_their_line() -> None:
    with pytest.raises(LoweringError) as caught:
        prepared(lambda x: bind(Unordered("u"), x), normal(3))
    assert "unordered" in caught.value.rule
    assert 'bind(Unordered("u"), x)' in caught.value.values[0][2]


@settings(max_examples=80)
@given(graphs(dtypes=DTYPES), st.integers(0, 9))
def test_exact(graph: Graph, seed: int) -> None:
    args = arguments(graph, seed)
    after = prepare(graph)
    with np.errstate(all="ignore"):
        assert_same_bits(evaluate(after, args), evaluate(graph, args))


@settings(max_examples=30)
@given(graphs(exact=False))
def test_a_prepared_graph_is_prepared(graph: Graph) -> None:
    once = prepare(graph)
    assert ops(prepare(once)) == ops(once)
