"""The graph and its builder: sharing, dead code, effects, structural hash."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.control import call
from stax.graph import Constant, Graph, Node, is_constant, live, multiple
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.interpreters.simplify import simplify
from stax.op import ORDERED, UNORDERED, Batch
from stax.operators.elementwise import add, cos, mul, sin
from stax.trace import Trace, bind
from stax.types import ArrayType
from stax.verify import verify
from tests.effects import LOG, Ordered, Unordered, chain, labels
from tests.operators.calculus import graph_of

VECTOR = ArrayType(types.float32, (3,))


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


# --- sharing and dead code ---


def test_common_subexpressions_are_one_node() -> None:
    graph = graph_of(lambda x: add(sin(x), sin(x)), VECTOR)
    assert names(graph) == ["sin", "add"]
    assert graph.nodes[1].inputs == (graph.nodes[0], graph.nodes[0])


def test_constants_are_shared_by_value_and_type() -> None:
    graph = graph_of(lambda x: (x + 0.0, x * 0.0, x + -0.0, x - True), VECTOR)
    scalars = [n.op for n in graph.nodes if isinstance(n.op, Constant)]
    assert len(scalars) == 3
    assert sorted(str(c.value) for c in scalars) == ["-0.0", "0.0", "1.0"]


def test_inputs_are_never_merged() -> None:
    graph = graph_of(add, VECTOR, VECTOR)
    assert graph.inputs[0] is not graph.inputs[1]
    assert graph.nodes[0].inputs == graph.inputs


def test_dead_code_is_left_out() -> None:
    def f(x: Any) -> Any:
        cos(sin(x))
        return mul(x, x)

    assert names(graph_of(f, VECTOR)) == ["mul"]


def test_nodes_are_in_program_order() -> None:
    graph = graph_of(lambda x: add(cos(x), sin(x)), VECTOR)
    assert names(graph) == ["cos", "sin", "add"]


def test_uses_count_outputs() -> None:
    graph = graph_of(lambda x: (mul(x, x), x), VECTOR)
    assert list(graph.uses().values()) == [3, 1]


def test_live_keeps_order() -> None:
    graph = graph_of(lambda x: (sin(x), cos(x)), VECTOR)
    assert live(graph.nodes, graph.outputs[1:]) == [graph.nodes[1]]


def test_queries() -> None:
    graph = graph_of(lambda x: x + 2.0, VECTOR)
    two = graph.nodes[0]
    assert is_constant(two)
    assert is_constant(two, 2)
    assert not is_constant(two, 3)
    assert not is_constant(graph.inputs[0])
    assert not multiple(two)
    inner = graph_of(sin, VECTOR)
    assert multiple(graph_of(lambda x: call(inner, x), VECTOR).nodes[0])


def test_types_of_inputs_and_outputs() -> None:
    graph = graph_of(lambda x, y: (y > x, x), VECTOR, VECTOR)
    assert graph.input_types == (VECTOR, VECTOR)
    assert graph.output_types == (ArrayType(types.bool_, (3,)), VECTOR)


# --- structural hash ---


def test_structural_hash_is_that_of_the_structure() -> None:
    f = lambda x, y: mul(x, y) + 2.0  # noqa: E731
    a, b = graph_of(f, VECTOR, VECTOR), graph_of(f, VECTOR, VECTOR)
    assert a is not b
    assert a.structural_hash == b.structural_hash


@pytest.mark.parametrize(
    "other",
    [
        graph_of(lambda x, y: mul(y, y) + 2.0, VECTOR, VECTOR),
        graph_of(lambda x, y: mul(x, y) + 3.0, VECTOR, VECTOR),
        graph_of(lambda x, y: 2.0 + mul(x, y), VECTOR, VECTOR),
        graph_of(lambda x, y: (mul(x, y) + 2.0, x), VECTOR, VECTOR),
        graph_of(lambda x, y: mul(x, y) + 2.0, *[ArrayType(types.float32, (4,))] * 2),
    ],
    ids=["input", "constant", "order", "outputs", "types"],
)
def test_structural_hash_tells_graphs_apart(other: Graph) -> None:
    graph = graph_of(lambda x, y: mul(x, y) + 2.0, VECTOR, VECTOR)
    assert graph.structural_hash != other.structural_hash


def test_structural_hash_looks_into_calls() -> None:
    def outer(op: Any) -> Graph:
        inner = graph_of(op, VECTOR)
        return graph_of(lambda x: call(inner, x), VECTOR)

    assert outer(sin).structural_hash == outer(sin).structural_hash
    assert outer(sin).structural_hash != outer(cos).structural_hash


# --- effects ---


def program(x: Any) -> Any:
    """Two equal effects of each kind, whose results are not used."""
    bind(Ordered("a"), x)
    bind(Unordered("u"), x)
    bind(Ordered("b"), sin(x))
    bind(Ordered("a"), x)
    bind(Unordered("u"), x)
    return mul(x, x)


ALL = ["a", "u", "b", "a", "u"]
CHAIN = ["a", "b", "a"]


def checked(graph: Graph) -> Graph:
    assert labels(graph) == ALL
    assert chain(graph) == CHAIN
    assert graph.effect == ORDERED
    return verify(graph)


def test_effects_are_recorded_in_order() -> None:
    checked(graph_of(program, VECTOR))


def test_effect_of_a_graph() -> None:
    assert graph_of(sin, VECTOR).effect is None
    assert graph_of(lambda x: bind(Unordered("u"), x), VECTOR).effect == UNORDERED


def test_simplify_keeps_effects() -> None:
    graph = checked(simplify(graph_of(program, VECTOR)))
    checked(simplify(graph))


def test_simplify_chains_what_it_makes_again() -> None:
    """Only the second effect has new inputs, and the third has to follow the new node."""

    def f(x: Any) -> Any:
        bind(Ordered("a"), x)
        bind(Ordered("b"), x * 1.0)
        bind(Ordered("c"), x)
        return x

    graph = simplify(graph_of(f, VECTOR))
    assert chain(graph) == labels(graph) == ["a", "b", "c"]
    verify(graph)


def test_jvp_keeps_effects() -> None:
    checked(jvp(graph_of(program, VECTOR), [True])[0])


def test_linearize_keeps_effects_in_the_primal_part() -> None:
    primal, linear, _ = linearize(graph_of(program, VECTOR), [True])
    checked(primal)
    assert labels(linear) == []


def test_vmap_keeps_effects() -> None:
    for flag in (True, False):
        graph, _ = batch(graph_of(program, VECTOR), Batch(2), [flag])
        checked(graph)


def test_inlining_keeps_effects() -> None:
    jitted = stax.jit(program)
    checked(stax.make_graph(lambda x: jitted(x))(snp.ones(3)))


def test_call_carries_the_effect_of_its_graph() -> None:
    inner = graph_of(program, VECTOR)

    def f(x: Any) -> Any:
        bind(Ordered("before"), x)
        call(inner, x)
        call(inner, x)
        bind(Ordered("after"), x)
        return x

    for graph in (
        graph_of(f, VECTOR),
        simplify(graph_of(f, VECTOR)),
        jvp(graph_of(f, VECTOR), [True])[0],
        batch(graph_of(f, VECTOR), Batch(2), [True])[0],
        linearize(graph_of(f, VECTOR), [True]).primal,
    ):
        verify(graph)
        assert chain(graph) == ["before", "call", "call", "after"]
        assert graph.effect == ORDERED
        calls = [n.op for n in graph.nodes if n.op.name == "call"]
        assert all(chain(op.graph) == CHAIN for op in calls)


def test_effects_happen_once_in_order() -> None:
    inner = graph_of(program, VECTOR)
    x = np.ones(3, np.float32)
    LOG.clear()
    evaluate(graph_of(lambda x: call(inner, x), VECTOR), [x])
    assert LOG == ALL
    LOG.clear()
    value, gradient = stax.value_and_grad(lambda x: snp.sum(program(x)))(x)
    assert LOG == ALL
    assert float(value) == 3
    np.testing.assert_array_equal(gradient, 2 * x)


def test_values_on_demand_do_not_repeat_effects() -> None:
    def f(x: Any) -> Any:
        y = bind(Ordered("a"), x)
        return y * y if y > 0 else y

    LOG.clear()
    assert float(stax.grad(f)(3.0)) == 6
    assert LOG.count("a") >= 1


def test_repr_of_a_node_is_short() -> None:
    node = graph_of(lambda x: mul(x, x), VECTOR).nodes[0]
    assert repr(node) == "<mul: f32[3]>"
    assert isinstance(node, Node)


def test_traces_do_not_share_nodes() -> None:
    with Trace("a", "test") as outer:
        x = outer.input(VECTOR)
        y = sin(x)
        with Trace("b", "test") as inner:
            z = cos(y)
            graph = inner.finish([z])
    assert names(graph) == ["cos"]
    assert inner.captures == [y]
