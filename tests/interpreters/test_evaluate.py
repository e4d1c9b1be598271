"""The reference evaluator: NumPy values, eager ops, memory dropped after its last use."""

import weakref
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.control import call
from stax.errors import ShapeError
from stax.interpreters.evaluate import evaluate, evaluate_nodes, run, run_graph
from stax.operators.elementwise import Elementwise, add, mul, sin
from stax.operators.sort import sort
from stax.trace import bind, project, results
from stax.types import ArrayType
from tests.effects import LOG, Unordered
from tests.operators.calculus import graph_of

VECTOR = ArrayType(types.float32, (3,))
X = np.asarray([3, 1, 2], np.float32)


def test_values_are_numpy_arrays_of_the_type() -> None:
    graph = graph_of(lambda x: (x * 2, x > 1, x.sum(), x), VECTOR)
    double, above, total, same = evaluate(graph, [X])
    np.testing.assert_array_equal(double, [6, 2, 4])
    assert double.dtype == np.float32
    assert above.dtype == np.bool_
    assert (type(total), total.shape, total.dtype) == (np.ndarray, (), np.float32)
    assert same is X


def test_an_output_may_be_named_twice() -> None:
    graph = graph_of(lambda x: (sin(x), sin(x), x, x), VECTOR)
    a, b, c, d = evaluate(graph, [X])
    assert a is b
    assert c is d is X


def test_wrong_number_of_arguments() -> None:
    with pytest.raises(ValueError):
        evaluate(graph_of(add, VECTOR, VECTOR), [X])


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[Any] = []

    def probe(self: Any, *arrays: Any) -> Any:
        alive.append([r() is not None for r in found])
        value = np.asarray(arrays[0]).copy()
        found.append(weakref.ref(value))
        return value

    found: list[weakref.ref[Any]] = []

    class Step(Unordered):
        evaluate = probe

    def f(x: Any) -> Any:
        for i in range(4):
            x = bind(Step(str(i)), x)
        return x

    evaluate(graph_of(f, VECTOR), [X])
    assert alive[-1] == [False, False, True]


def test_several_results() -> None:
    found = run(sort.__globals__["Sort"](0, 1, True), (X, np.arange(3, dtype=np.int32)))
    assert [r.tolist() for r in found] == [[1, 2, 3], [1, 2, 0]]
    assert project(found, 1) is found[1]
    assert results(found) == found


def test_eager_ops_give_arrays() -> None:
    y = run(Elementwise("mul"), (snp.asarray(X), snp.asarray(X)))
    assert isinstance(y, stax.Array)
    assert y.type is VECTOR
    assert not np.asarray(y).flags.writeable
    assert run(Elementwise("sin"), (2.0,)).weak_type


def test_eager_errors_name_the_op_and_the_line() -> None:
    with pytest.raises(ShapeError) as caught:
        mul(snp.ones(2), snp.ones(3))
    assert "mul" in caught.value.rule
    assert any("mul(snp.ones(2), snp.ones(3))" in step for step in caught.value.doing)


def test_run_graph_takes_what_can_become_an_array() -> None:
    graph = graph_of(lambda x, y: x * y, VECTOR, VECTOR)
    (y,) = run_graph(graph, [X, snp.asarray(X)])
    assert y.tolist() == [9, 1, 4]
    assert y.type is VECTOR


def test_evaluate_nodes_keeps_what_is_known() -> None:
    LOG.clear()
    graph = graph_of(lambda x: bind(Unordered("b"), bind(Unordered("a"), x)), VECTOR)
    known: dict[Any, Any] = {graph.inputs[0]: X}
    evaluate_nodes(graph.nodes[:1], known)
    evaluate_nodes(graph.nodes, known)
    assert LOG == ["a", "b"]


def test_calls_are_evaluated() -> None:
    inner = graph_of(lambda x: (x * 2, x + 1), VECTOR)
    graph = graph_of(lambda x: call(inner, x)[::-1], VECTOR)
    a, b = evaluate(graph, [X])
    np.testing.assert_array_equal(a, X + 1)
    np.testing.assert_array_equal(b, X * 2)
