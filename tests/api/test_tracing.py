"""From a function to a graph: flattening, labels, names, captures, aux."""

import functools
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import tree
from stax.api.tracing import (
    flatten_arguments,
    flatten_result,
    function_name,
    labels,
    trace_function,
)
from stax.errors import ArgumentError

X = np.ones(3, np.float32)


def test_flatten_arguments() -> None:
    found = flatten_arguments("f", (X, {"a": 1.0}), {"k": (True, None)})
    assert [repr(t) for t in found.types] == ["f32[3]", "f32[]~", "bool[]"]
    args, kwargs = found.treedef.unflatten(found.leaves)
    assert args[1] == {"a": 1.0}
    assert kwargs == {"k": (True, None)}


@pytest.mark.parametrize("value", ["text", object(), {1, 2}, np.asarray(["a"]), len])
def test_arguments_that_are_no_arrays_are_named(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"f: argument .*a.* is not an array or a number"):
        flatten_arguments("f", (X, {"a": value}), {})


def test_labels() -> None:
    def f(x: Any, y: Any, *rest: Any, key: Any = None) -> None: ...

    args = (X, {"b": [1, 2]}, 3, 4)
    assert labels(f, args, {"key": 5}) == ["x", "y['b'][0]", "y['b'][1]", "arg2", "arg3", "key"]
    assert labels(max, (1, 2), {}) == ["arg0", "arg1"]
    assert labels(lambda: None, (), {}) == []


def test_labels_of_bound_functions() -> None:
    class Model:
        def apply(self, x: Any) -> Any:
            return x

    assert labels(Model().apply, (1,), {}) == ["x"]
    assert labels(functools.partial(lambda a, b: a, 1), (2,), {}) == ["b"]


def test_function_names() -> None:
    class Model:
        def __call__(self, x: Any) -> Any:
            return x

    def named(x: Any) -> Any:
        return x

    assert function_name(named) == "named"
    assert function_name(lambda x: x) == "function"
    assert function_name(functools.partial(functools.partial(named))) == "named"
    assert function_name(Model()) == "Model"
    assert function_name(stax.jit(named)) == "named"


def test_trace_function() -> None:
    w = snp.ones(3)
    traced = trace_function(
        lambda x, k: {"y": x * w, "k": k}, flatten_arguments("f", (X,), {"k": 2}), "test"
    )
    assert [repr(t) for t in traced.graph.output_types] == ["i32[]~", "f32[3]"]
    assert traced.captures == [w]
    assert traced.out_tree == tree.tree_structure({"k": 0, "y": 0})
    assert traced.cacheable


def test_aux_outputs_come_last() -> None:
    traced = trace_function(
        lambda x: (x.sum(), {"a": x}), flatten_arguments("f", (X,), {}), "grad", has_aux=True
    )
    assert traced.out_tree == tree.tree_structure(0)
    assert traced.aux.treedef == tree.tree_structure({"a": 0})
    assert len(traced.graph.outputs) == 2
    assert traced.rebuilt(["sum", "x", "more"]) == ("sum", {"a": "x"}, ["more"])


def test_functions_that_close_over_a_trace_are_not_cacheable() -> None:
    seen = []

    def f(x: Any) -> Any:
        inner = trace_function(lambda y: y * x, flatten_arguments("f", (X,), {}), "jit")
        seen.append(inner.cacheable)
        return x

    stax.make_graph(f)(X)
    assert seen == [False]


def test_the_graph_is_simplified() -> None:
    traced = trace_function(lambda x: -(-(x * 1)), flatten_arguments("f", (X,), {}), "test")  # noqa: B002
    assert traced.graph.nodes == ()


def test_results() -> None:
    leaves, treedef = flatten_result((1.0, {"a": None}), "f")
    assert leaves == [1.0]
    assert treedef.unflatten([2]) == (2, {"a": None})
    with pytest.raises(ArgumentError, match="f returned 'text' of type str, which is not an array"):
        flatten_result((1.0, "text"), "f")
