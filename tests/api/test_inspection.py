"""make_graph, eval_shape, ShapeDtypeStruct and lowered stages."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentError
from stax.graph import Graph

X = np.ones((2, 3), np.float32)


def f(p: Any, x: Any) -> Any:
    return {"y": p["w"] * x, "n": (x.sum(), x.argmax())}


def test_make_graph_names_inputs_by_parameters_and_paths() -> None:
    graph = stax.make_graph(f)({"w": X}, x=X)
    assert isinstance(graph, Graph)
    assert graph.name == "f"
    assert [n.op.label for n in graph.inputs] == ["p['w']", "x"]
    assert stax.make_jaxpr is stax.make_graph


def test_make_graph_of_abstract_arguments() -> None:
    abstract = stax.ShapeDtypeStruct((2, 3), "float32")
    assert str(stax.make_graph(f)({"w": abstract}, abstract)) == str(
        stax.make_graph(f)({"w": X}, X)
    )


def test_static_arguments_are_no_inputs_and_the_others_keep_their_names() -> None:
    def power(n: int, x: Any) -> Any:
        return x**n

    for graph in (
        stax.make_graph(power, static_argnums=0)(3, X),
        stax.jit(power, static_argnums=0).trace(3, X),
    ):
        assert [n.label for n in graph.inputs] == ["x"]
        assert "integer_pow x  {exponent=3}" in str(graph)


def test_make_graph_returns_shapes_when_asked() -> None:
    _, shapes = stax.make_jaxpr(f, return_shape=True)({"w": X}, X)
    assert shapes == stax.eval_shape(f, {"w": X}, X)


def test_jit_eval_shape_keeps_weak_types() -> None:
    shape = stax.jit(lambda x: x * 2).eval_shape(3.0)
    assert shape == stax.eval_shape(lambda x: x * 2, 3.0)
    assert shape.weak_type


def test_captures_are_trailing_inputs() -> None:
    w = snp.ones(3)
    graph = stax.make_graph(lambda x: x + w)(X)
    assert [repr(t) for t in graph.input_types] == ["f32[2,3]", "f32[3]"]


def test_eval_shape_is_that_of_jax() -> None:
    ours = stax.eval_shape(f, {"w": X}, X)
    theirs = jax.eval_shape(f, {"w": X}, X)
    a, b = jax.tree.flatten(ours), jax.tree.flatten(theirs)
    assert a[1] == b[1]
    assert [(x.shape, x.dtype) for x in a[0]] == [(y.shape, y.dtype) for y in b[0]]


def test_eval_shape_does_not_compute() -> None:
    huge = stax.ShapeDtypeStruct((1 << 20, 1 << 20), np.float32)
    out = stax.eval_shape(lambda x: snp.exp(x).sum(1), huge)
    assert out == stax.ShapeDtypeStruct((1 << 20,), np.float32)


def test_eval_shape_keeps_the_weak_flag() -> None:
    assert stax.eval_shape(lambda x: x * 2, 1.0).weak_type
    assert not stax.eval_shape(lambda x: x * 2, X).weak_type


def test_eval_shape_of_transforms() -> None:
    grad = stax.eval_shape(stax.grad(lambda x: (x**2).sum()), X)
    assert grad.shape == (2, 3)
    assert stax.eval_shape(stax.vmap(lambda x: x.sum()), X).shape == (2,)
    assert stax.jit(f).eval_shape({"w": X}, X)["y"].shape == (2, 3)


def test_shape_dtype_structs() -> None:
    s = stax.ShapeDtypeStruct((2, 3), jnp.bfloat16)
    assert (s.ndim, s.size, s.dtype) == (2, 6, jnp.bfloat16)
    assert s == stax.ShapeDtypeStruct([2, 3], "bfloat16")
    assert len({s, stax.ShapeDtypeStruct((2, 3), "bfloat16")}) == 1
    assert s != stax.ShapeDtypeStruct((2, 3), "float32")
    assert repr(s) == "ShapeDtypeStruct(shape=(2, 3), dtype=bfloat16)"


def test_an_abstract_argument_has_no_value() -> None:
    with pytest.raises(TypeError):
        stax.jit(lambda x: x)(stax.ShapeDtypeStruct((2,), "float32"))
    with pytest.raises(TypeError):
        stax.grad(lambda x: x.sum())(stax.ShapeDtypeStruct((2,), "float32"))


def test_what_is_no_array() -> None:
    with pytest.raises(ArgumentError, match="make_graph: argument"):
        stax.make_graph(lambda x: x)("text")
    with pytest.raises(ArgumentError, match="returned 'text' of type str"):
        stax.make_graph(lambda x: "text")(1.0)
