"""Simplification: identities that hold bit for bit, and only those."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import types
from stax.graph import Constant, Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.simplify import simplify
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import Convert, neg, select
from stax.operators.reshape import Reshape, Transpose
from stax.trace import bind
from stax.types import ArrayType
from tests.operators.calculus import graph_of
from tests.random_graphs import DTYPES, arguments, assert_same_bits, graphs

MATRIX = ArrayType(types.float32, (2, 3))
WEAK = ArrayType(types.float32, (), True)
INTEGERS = ArrayType(types.int32, (2, 3))
Function = Callable[..., Any]


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if not isinstance(n.op, Constant)]


def simplified(function: Function, type_: ArrayType = MATRIX) -> Graph:
    return simplify(graph_of(function, type_))


GONE: dict[str, Function] = {
    "x * 1": lambda x: x * 1,
    "1 * x": lambda x: 1 * x,
    "x / 1": lambda x: x / 1,
    "x - 0": lambda x: x - 0.0,
    "x + -0": lambda x: x + -0.0,
    "-0 + x": lambda x: -0.0 + x,
    "neg neg": lambda x: neg(neg(x)),
    "select of one": lambda x: select(x > 0, x, x),
    "convert to itself": lambda x: bind(Convert(types.float32, False), x),
    "reshape to itself": lambda x: bind(Reshape((2, 3)), x),
    "broadcast to itself": lambda x: broadcast_in_dim(x, (2, 3), (0, 1)),
    "transposed back": lambda x: bind(Transpose((1, 0)), bind(Transpose((1, 0)), x)),
    "transposed by nothing": lambda x: bind(Transpose((0, 1)), x),
    "several": lambda x: neg(neg(x * 1)) - 0.0,
}


@pytest.mark.parametrize("name", GONE)
def test_what_goes(name: str) -> None:
    graph = simplified(GONE[name])
    assert graph.outputs == graph.inputs


KEPT: dict[str, Function] = {
    "x + 0 turns -0 into 0": lambda x: x + 0.0,
    "0 + x": lambda x: 0.0 + x,
    "0 * x is NaN at infinity": lambda x: 0 * x,
    "x - -0": lambda x: x - -0.0,
    "x * -1 may change the sign of NaN": lambda x: x * -1,
    "x - x is NaN at infinity": lambda x: x - x,
    "x / x": lambda x: x / x,
    "0 - x is not -x at 0": lambda x: 0.0 - x,
    "1 / x": lambda x: 1 / x,
    "x**2": lambda x: x**2,
}


@pytest.mark.parametrize("name", KEPT)
def test_what_stays(name: str) -> None:
    assert len(ops(simplified(KEPT[name]))) == 1


def test_integer_identities() -> None:
    graph = simplified(lambda x: (x * 1, x - 0), INTEGERS)
    assert graph.outputs == graph.inputs * 2


def test_chains_of_moves_become_one() -> None:
    wide = ArrayType(types.float32, (2, 3, 4))
    reshaped = simplified(lambda x: bind(Reshape((4, 6)), bind(Reshape((24,)), x)), wide)
    assert [repr(n.op) for n in reshaped.nodes] == ["reshape{shape=(4, 6)}"]
    turned = simplified(lambda x: bind(Transpose((2, 0, 1)), bind(Transpose((1, 2, 0)), x)), wide)
    assert turned.outputs == turned.inputs
    turned = simplified(lambda x: bind(Transpose((1, 0, 2)), bind(Transpose((1, 2, 0)), x)), wide)
    assert [repr(n.op) for n in turned.nodes] == ["transpose{permutation=(2, 1, 0)}"]
    spread = simplified(
        lambda x: broadcast_in_dim(broadcast_in_dim(x, (3, 2), (1,)), (4, 3, 2), (1, 2)),
        ArrayType(types.float32, (2,)),
    )
    assert [repr(n.op) for n in spread.nodes] == [
        "broadcast{shape=(4, 3, 2), broadcast_dimensions=(2,)}"
    ]


def test_constants_are_folded() -> None:
    graph = simplified(lambda x: x * (snp.float32(2) if False else 2.0 * snp.exp(0.0) + 1))
    (full,) = [n.op for n in graph.nodes if isinstance(n.op, Constant)]
    assert full.value == 3
    assert ops(graph) == ["mul"]


def test_folding_happens_in_the_type_of_the_op() -> None:
    half = ArrayType(types.bfloat16, (2,))
    graph = simplified(lambda x: x + (snp.full((), 1.0, x.dtype) + 0.001), half)
    values = [float(n.op.value) for n in graph.nodes if isinstance(n.op, Constant)]
    assert values[-1] == 1.0


def test_nothing_large_is_made_of_constants() -> None:
    graph = simplified(lambda x: x + snp.ones((2, 3)) * 2.0)
    assert [n.type.shape for n in graph.nodes if isinstance(n.op, Constant)] == [(2, 3)]
    assert all(len(n.op.data) == 4 for n in graph.nodes if isinstance(n.op, Constant))


def test_types_of_results_do_not_change() -> None:
    """An identity may lead to something weak or strong; a convert keeps the type."""
    graph = simplified(lambda x: x * snp.float32(1), WEAK)
    assert graph.output_types == (ArrayType(types.float32, ()),)
    graph = simplify(stax.make_graph(lambda x: (neg(neg(x)), x * 1.0))(2.0))
    assert [t.weak for t in graph.output_types] == [True, True]


def test_unused_nodes_and_unused_constants_go() -> None:
    graph = simplified(lambda x: x * 1)
    assert graph.nodes == ()


def test_inputs_are_kept_as_they_are() -> None:
    graph = graph_of(lambda x, y: x * 1, MATRIX, MATRIX)
    assert simplify(graph).inputs == graph.inputs


def test_unchanged_nodes_are_shared() -> None:
    graph = graph_of(lambda x: snp.sin(x) * 2 + 1, MATRIX)
    assert simplify(graph).nodes == graph.nodes


@settings(max_examples=60)
@given(graphs())
def test_a_second_run_changes_nothing(graph: Graph) -> None:
    once = simplify(graph)
    assert str(simplify(once)) == str(once)


@settings(max_examples=100)
@given(graphs(dtypes=DTYPES), st.integers(0, 99))
def test_exact(graph: Graph, seed: int) -> None:
    args = arguments(graph, seed)
    with np.errstate(all="ignore"):
        assert_same_bits(evaluate(simplify(graph), args), evaluate(graph, args))
    assert simplify(graph).output_types == graph.output_types


@settings(max_examples=40)
@given(graphs(exact=False), st.integers(0, 99))
def test_exact_with_inexact_ops(graph: Graph, seed: int) -> None:
    args = arguments(graph, seed, special=False)
    with np.errstate(all="ignore"):
        assert_same_bits(evaluate(simplify(graph), args), evaluate(graph, args))


SIGNS = np.array([[0.0, -0.0, 1.5], [np.inf, -3.0, 1e-40]], np.float32)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x: (-x * (x + 1), x * (x + 1)), ["add", "mul", "neg"]),
        (lambda x: ((x + 1) * -x, (x + 1) * x), ["add", "mul", "neg"]),
        (lambda x: (-x / (x + 1), x / (x + 1)), ["add", "div", "neg"]),
        (lambda x: -x * -(x + 1), ["add", "mul"]),
    ],
)
def test_a_sign_is_taken_out_of_products_and_quotients(
    function: Function, count: list[str]
) -> None:
    graph = graph_of(function, MATRIX)
    short = simplify(graph)
    assert sorted(ops(short)) == count
    for x, y in zip(evaluate(graph, [SIGNS]), evaluate(short, [SIGNS]), strict=True):
        assert_same_bits(x, y)


def test_the_sign_of_an_integer_stays_where_it_is() -> None:
    least = np.full((2, 3), np.iinfo(np.int32).min, np.int32)
    graph = graph_of(lambda x: stax.lax.div(-x, stax.lax.full_like(x, 2)), INTEGERS)
    (want,), (got,) = evaluate(graph, [least]), evaluate(simplify(graph), [least])
    np.testing.assert_array_equal(got, want)
