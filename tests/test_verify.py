"""The verifier finds each way in which a graph can be broken."""

from collections.abc import Callable
from typing import Any

import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.config import config
from stax.errors import InternalError
from stax.graph import Constant, Graph, Input, Node
from stax.op import Op
from stax.operators.broadcast import ReduceSum
from stax.operators.elementwise import Elementwise, sin
from stax.trace import bind
from stax.types import ArrayType
from stax.verify import verified, verify
from tests.effects import Ordered
from tests.operators.calculus import graph_of

VECTOR = ArrayType(types.float32, (3,))
SCALAR = ArrayType(types.float32, ())


def inputs() -> tuple[Node, Node]:
    return Node(Input("x"), (), VECTOR), Node(Input("y"), (), VECTOR)


def op(name: str, *operands: Node, type_: ArrayType = VECTOR) -> Node:
    return Node(Elementwise(name), operands, type_)


def used_before_definition() -> Graph:
    x, _ = inputs()
    a = op("sin", x)
    b = op("cos", a)
    return Graph("g", [x], [b, a], [b])


def of_another_graph() -> Graph:
    x, y = inputs()
    return Graph("g", [x], [a := op("add", x, y)], [a])


def wrong_type() -> Graph:
    x, _ = inputs()
    return Graph("g", [x], [a := op("sin", x, type_=SCALAR)], [a])


def wrong_weak_flag() -> Graph:
    x, _ = inputs()
    a = op("sin", x, type_=ArrayType(types.float32, (3,), True))
    return Graph("g", [x], [a], [a])


def ill_typed() -> Graph:
    x, _ = inputs()
    y = Node(Input("y"), (), SCALAR)
    return Graph("g", [x, y], [a := op("add", x, y)], [a])


def twice() -> Graph:
    x, _ = inputs()
    a = op("sin", x)
    return Graph("g", [x], [a, a], [a])


def dead() -> Graph:
    x, _ = inputs()
    a = op("sin", x)
    return Graph("g", [x], [op("cos", x), a], [a])


def undefined_output() -> Graph:
    x, y = inputs()
    return Graph("g", [x], [], [y])


def input_twice() -> Graph:
    x, _ = inputs()
    return Graph("g", [x, x], [], [x])


def node_as_input() -> Graph:
    x, _ = inputs()
    a = op("sin", x)
    return Graph("g", [x, a], [], [a])


def input_as_node() -> Graph:
    x, y = inputs()
    return Graph("g", [x], [y], [y])


def effects_out_of_order() -> Graph:
    x, _ = inputs()
    a = Node(Ordered("a"), (x,), VECTOR)
    b = Node(Ordered("b"), (x,), VECTOR, after=a)
    return Graph("g", [x], [b, a], [x])


def effects_not_chained() -> Graph:
    x, _ = inputs()
    nodes = [Node(Ordered(name), (x,), VECTOR) for name in "ab"]
    return Graph("g", [x], nodes, [x])


BROKEN: dict[Callable[[], Graph], str] = {
    used_before_definition: "<cos: f32[3]> reads <sin: f32[3]>, which is not defined before it",
    of_another_graph: "<add: f32[3]> reads <input{label=y}: f32[3]>, which is not defined",
    wrong_type: "<sin: f32[]> should have type f32[3]",
    wrong_weak_flag: "<sin: f32[3]~> should have type f32[3]",
    ill_typed: "<add: f32[3]> does not type-check: add",
    twice: "<sin: f32[3]> stands there twice",
    dead: "it holds dead nodes",
    undefined_output: "output <input{label=y}: f32[3]> is not defined in the graph",
    input_twice: "stands there twice",
    node_as_input: "input <sin: f32[3]> is not an input",
    input_as_node: "<input{label=y}: f32[3]>",
    effects_out_of_order: "<ordered{label=b}: f32[3]> is out of the order of effects",
    effects_not_chained: "<ordered{label=b}: f32[3]> is out of the order of effects",
}


@pytest.mark.parametrize("make", BROKEN, ids=[f.__name__ for f in BROKEN])
def test_broken_graphs_are_found(make: Callable[[], Graph]) -> None:
    with pytest.raises(InternalError) as caught:
        verify(make(), "fold")
    assert caught.value.rule.startswith("fold broke the graph g: ")
    assert BROKEN[make] in caught.value.rule
    assert "report it" in caught.value.advice


def test_good_graphs_pass() -> None:
    def f(x: Any) -> Any:
        bind(Ordered("a"), x)
        return sin(x) + bind(Ordered("b"), x)

    graph = graph_of(f, VECTOR)
    assert verify(graph) is graph


def test_verified_looks_only_when_asked_to() -> None:
    graph = dead()
    with config.override(verify=False):
        assert verified(graph, "fold") is graph
    with config.override(verify=True), pytest.raises(InternalError):
        verified(graph, "fold")


def test_a_wrong_constant_is_found() -> None:
    x, _ = inputs()
    c = Node(Constant(b"\0" * 4, types.float32, (), False), (), VECTOR)
    with pytest.raises(InternalError):
        verify(Graph("g", [x], [c], [c]))


def test_held_graphs_are_verified() -> None:
    inner = dead()
    assert inner.nodes
    from_call = graph_of(lambda x: stax.control.call(inner, x), VECTOR)
    with pytest.raises(InternalError):
        verify(from_call)


def test_tests_run_with_verification() -> None:
    assert config.verify

    class Wrong(Op):
        name = "wrong"
        calls = 0

        def abstract_eval(self, *types: ArrayType) -> ArrayType:
            Wrong.calls += 1
            return SCALAR if Wrong.calls > 1 else VECTOR

    with pytest.raises(InternalError, match="trace broke the graph"):
        stax.make_graph(lambda x: bind(Wrong(), x))(snp.ones(3))
    assert ReduceSum((0,)).abstract_eval(VECTOR) is SCALAR
