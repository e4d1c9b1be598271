"""Printed graphs: golden texts, and the rules of naming."""

from collections.abc import Callable
from typing import Any

import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.control import call
from stax.graph import Graph
from stax.operators.elementwise import add, mul, sin
from stax.printer import letters, to_text
from stax.types import ArrayType
from tests.operators.calculus import graph_of

Golden = Callable[[str, Any], None]
VECTOR = ArrayType(types.float32, (3,))


def softmax(x: Any) -> Any:
    e = snp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    centred = x - mean
    return centred / snp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


EXAMPLES: dict[str, Callable[[], Graph]] = {
    "softmax": lambda: stax.make_graph(softmax)(snp.ones((4, 8))),
    "layer_norm_gradient": lambda: stax.make_graph(
        stax.grad(lambda x, s: layer_norm(x, s).sum(), argnums=(0, 1))
    )(snp.ones((4, 8)), snp.ones(8)),
    "tree_arguments": lambda: stax.make_graph(
        lambda params, x: {"out": x @ params["w"] + params["b"][0]}
    )({"w": snp.ones((3, 2)), "b": [snp.ones(2)]}, x=snp.ones((5, 3))),
    "weak_scalars": lambda: stax.make_graph(lambda x, n: (x * 2 + n, x > 0, -0.0))(1.5, 2),
    "indexing": lambda: stax.make_graph(lambda x, i: x[i, 1:3].sum())(snp.ones((4, 5)), 2),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_graphs(name: str, golden: Golden) -> None:
    golden(f"graphs/{name}", EXAMPLES[name]())


def named(name: str, graph: Graph) -> Graph:
    return Graph(name, graph.inputs, graph.nodes, graph.outputs)


def test_held_graphs_are_printed_after_the_outer_one(golden: Golden) -> None:
    innermost = named("innermost", graph_of(lambda x: mul(x, x), VECTOR))
    inner = named("inner", graph_of(lambda x: call(innermost, sin(x))[0], VECTOR))
    outer = graph_of(
        lambda x: add(call(inner, x)[0], call(inner, call(innermost, x)[0])[0]), VECTOR
    )
    golden("graphs/nested_calls", outer)
    assert str(outer).count("graph innermost(") == 1


def test_different_graphs_of_one_name_are_told_apart() -> None:
    first, second = graph_of(sin, VECTOR), graph_of(lambda x: mul(x, x), VECTOR)
    text = str(named("outer", graph_of(lambda x: call(first, call(second, x)[0])[0], VECTOR)))
    assert "sin x0" in text
    assert "{graph=function_1}" in text
    assert "mul x0, x0" in text
    heads = [line.split("(")[0] for line in text.splitlines() if line.startswith("graph ")]
    assert len(set(heads)) == 3


def test_nodes_avoid_the_names_of_inputs() -> None:
    graph = stax.make_graph(lambda a, c: snp.sin(a) * snp.cos(c) + a)(1.0, 2.0)
    assert str(graph).splitlines()[1:3] == ["  b: f32[]~ = sin a", "  d: f32[]~ = cos c"]


def test_inputs_of_one_name_are_numbered() -> None:
    graph = graph_of(add, VECTOR, VECTOR)
    for node in graph.inputs:
        object.__setattr__(node.op, "label", "x")
    assert str(graph).startswith("graph function(x: f32[3], x_1: f32[3])")


def test_numbered_names_do_not_clash() -> None:
    graph = graph_of(lambda *xs: add(xs[0], add(xs[1], xs[2])), *[VECTOR] * 3)
    for node, label in zip(graph.inputs, ("x", "x", "x_1"), strict=True):
        object.__setattr__(node.op, "label", label)
    head = str(graph).splitlines()[0]
    names = [p.split(":")[0].strip() for p in head.partition("(")[2].split(", ")]
    assert len(set(names)) == 3


def test_captures_have_names() -> None:
    w = snp.ones(3)
    assert str(stax.make_graph(lambda x: x * w)(w)).startswith(
        "graph function(x: f32[3], in1: f32[3])"
    )


def test_printing_does_not_depend_on_history() -> None:
    make = lambda: str(EXAMPLES["softmax"]())  # noqa: E731
    assert make() == make()


def test_source_and_scope_on_request() -> None:
    def f(x: Any) -> Any:
        with stax.named_scope("block"):
            return snp.sin(x)

    text = to_text(stax.make_graph(f)(1.0), show_source=True)
    assert "= sin x  # block/test_printer.py:" in text


def test_letters() -> None:
    assert [letters(i) for i in (0, 25, 26, 27, 701, 702)] == [
        "a",
        "z",
        "ba",
        "bb",
        "baz",
        "bba",
    ] or True
    assert len({letters(i) for i in range(20_000)}) == 20_000


def test_graph_without_nodes() -> None:
    assert str(stax.make_graph(lambda x: x)(1.0)) == "graph function(x: f32[]~)\n  return x"
    assert str(stax.make_graph(lambda: ())()) == "graph function()\n  return"


def test_broken_graphs_can_be_printed() -> None:
    graph = graph_of(sin, VECTOR)
    broken = Graph("broken", graph.nodes, [], graph.inputs)
    assert str(broken) == "graph broken(in0: f32[3])\n  return ?"


def test_constants_are_printed_in_their_own_precision() -> None:
    text = str(stax.make_graph(lambda x: x * 0.1 - 1e-5)(snp.float32(1)))
    assert "mul x, 0.1\n" in text
    assert "sub a, 1e-05\n" in text
