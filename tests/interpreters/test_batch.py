"""vmap at the level of graphs: flags in, flags out, and what is left alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax.numpy as snp
from stax import types
from stax.control import call
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.simplify import simplify
from stax.op import Batch
from stax.operators.elementwise import cos, sin
from stax.trace import bind
from stax.types import ArrayType
from stax.verify import verify
from tests.effects import Unordered
from tests.operators.calculus import graph_of
from tests.random_graphs import arguments, graphs

VECTOR = ArrayType(types.float32, (3,))
MATRIX = ArrayType(types.float32, (2, 3))
Golden = Callable[[str, Any], None]


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.inputs]


@pytest.mark.parametrize("name", ["product", "softmax", "matmul", "shapes"])
def test_golden_graphs(name: str, golden: Golden) -> None:
    function = {
        "product": lambda x, y: x * y,
        "softmax": lambda x, y: snp.exp(x) / snp.exp(x).sum(-1, keepdims=True),
        "matmul": lambda x, y: x @ y.T,
        "shapes": lambda x, y: snp.concatenate([x.T[1:], y.reshape(3, 2)]),
    }[name]
    graph = simplify(graph_of(function, MATRIX, MATRIX))
    after, flags = batch(graph, Batch(5), [True, False])
    golden(f"batch/{name}", f"{graph}\n\n{simplify(after)}\n\n{flags}")


def test_types_and_labels_of_inputs() -> None:
    after, flags = batch(graph_of(lambda x, y: (x + y, y), VECTOR, VECTOR), Batch(4), [True, False])
    assert [repr(t) for t in after.input_types] == ["f32[4,3]", "f32[3]"]
    assert [n.op.label for n in after.inputs] == ["x0", "x1"]
    assert flags == [True, False]
    assert [repr(t) for t in after.output_types] == ["f32[4,3]", "f32[3]"]


def test_what_is_not_mapped_is_computed_once() -> None:
    graph = graph_of(lambda x, y: sin(x) * cos(y), VECTOR, VECTOR)
    after, _ = batch(graph, Batch(4), [True, False])
    assert [repr(n.type) for n in after.nodes if n.op.name == "cos"] == ["f32[3]"]


def test_nothing_mapped() -> None:
    graph = graph_of(sin, VECTOR)
    after, flags = batch(graph, Batch(4), [False])
    assert flags == [False]
    assert after.output_types == graph.output_types


def test_marks_of_the_results_of_a_call() -> None:
    inner = graph_of(lambda x, y: (sin(x), cos(y)), VECTOR, VECTOR)
    graph = graph_of(lambda x, y: call(inner, x, y), VECTOR, VECTOR)
    after, flags = batch(graph, Batch(4), [True, False])
    assert flags == [True, False]
    assert [repr(t) for t in after.output_types] == ["f32[4,3]", "f32[3]"]


def test_an_op_that_names_the_axis_sees_every_batch() -> None:
    seen = []

    class Size(Unordered):
        def names_axis(self, axis_name: Any) -> bool:
            return axis_name == "i"

        def batch(self, batch: Batch, flags: Any, *inputs: Any) -> Any:
            seen.append((batch, list(flags)))
            return snp.broadcast_to(inputs[0] * batch.size, (batch.size, 3))

    graph = graph_of(lambda x: bind(Size("a"), x), VECTOR)
    _, flags = batch(graph, Batch(4, "i"), [False])
    assert flags == [True]
    assert seen == [(Batch(4, "i"), [False])]
    assert batch(graph, Batch(4, "j"), [False])[1] == [False]
    outer = graph_of(lambda x: call(graph, x), VECTOR)
    assert batch(outer, Batch(4, "i"), [False])[1] == [True]


def test_an_empty_batch() -> None:
    after, _ = batch(graph_of(lambda x: sin(x).sum(), VECTOR), Batch(0), [True])
    (y,) = evaluate(after, [np.zeros((0, 3), np.float32)])
    assert y.shape == (0,)


@settings(max_examples=60)
@given(graphs(exact=False), st.integers(0, 9), st.data())
def test_batch_is_a_loop(graph: Graph, seed: int, data: Any) -> None:
    size = data.draw(st.integers(1, 3))
    flags = [data.draw(st.booleans()) for _ in graph.inputs]
    after, marks = batch(graph, Batch(size), flags)
    verify(after)
    draws = [arguments(graph, seed + i, special=False) for i in range(size)]
    rows = [[d[k] if f else draws[0][k] for k, f in enumerate(flags)] for d in draws]
    stacked = [np.stack([r[k] for r in rows]) if f else rows[0][k] for k, f in enumerate(flags)]
    with np.errstate(all="ignore"):
        found = evaluate(after, stacked)
        expected = [evaluate(graph, r) for r in rows]
    for k, (out, mark) in enumerate(zip(found, marks, strict=True)):
        loop = np.stack([e[k] for e in expected]) if mark else expected[0][k]
        assert (out.dtype, out.shape) == (loop.dtype, loop.shape)
        np.testing.assert_allclose(out, loop, rtol=1e-5, atol=1e-5)


@settings(max_examples=20)
@given(graphs(exact=False, most=6), st.integers(0, 9))
def test_batches_of_batches(graph: Graph, seed: int) -> None:
    flags = [True] * len(graph.inputs)
    once, first = batch(graph, Batch(2), flags)
    twice, second = batch(once, Batch(3), flags)
    verify(twice)
    args = arguments(graph, seed, special=False)
    tiled = [np.broadcast_to(x, (3, 2, *x.shape)) for x in args]
    with np.errstate(all="ignore"):
        found, expected = evaluate(twice, tiled), evaluate(graph, args)
    for out, a, b, y in zip(found, second, first, expected, strict=True):
        np.testing.assert_allclose(out[(0,) * (a + b)], y, rtol=1e-5, atol=1e-5)
