"""Lowered and compiled programs as objects: their texts and analyses."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import ShapeDtypeStruct
from stax.errors import ArgumentError

X = np.ones((8, 64), np.float32)
Golden = Callable[[str, Any], None]


@stax.jit
def softmax(x: Any) -> Any:
    e = snp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_stages_as_text(golden: Golden) -> None:
    lowered = softmax.lower(X)
    golden("stages/softmax_graph", lowered.as_text())
    golden("stages/softmax_kernels", lowered.as_text("kernels"))
    llvm = lowered.as_text("llvm")
    assert llvm.count("define i32 @program(") == 1
    assert "@kernel0" in llvm
    assert lowered.as_text() == str(softmax.trace(X))


def test_unknown_stage() -> None:
    with pytest.raises(ValueError, match="unknown stage 'hlo'"):
        softmax.lower(X).as_text("hlo")


def test_lowering_abstract_arguments() -> None:
    abstract = stax.ShapeDtypeStruct((8, 64), "float32")
    assert softmax.lower(abstract).as_text("kernels") == softmax.lower(X).as_text("kernels")


def test_lowering_does_not_run_or_compile() -> None:
    jitted = stax.jit(lambda x: x * 2)
    huge = stax.ShapeDtypeStruct((1 << 20, 1 << 20), "float32")
    assert "vector" in jitted.lower(huge).as_text("kernels")


def test_memory_analysis() -> None:
    found = softmax.lower(X).compile().memory_analysis()
    assert found.argument_size_in_bytes == found.output_size_in_bytes == X.nbytes
    assert found.temp_size_in_bytes == 0
    assert found.alias_size_in_bytes == 0

    def two_products(x: Any) -> Any:
        return snp.tanh(x @ x.T) @ x

    temp = stax.jit(two_products).lower(np.ones((64, 64), np.float32)).compile()
    assert temp.memory_analysis().temp_size_in_bytes >= 64 * 64 * 4


def test_cost_analysis() -> None:
    cost = softmax.lower(X).compile().cost_analysis()
    assert cost["bytes accessed"] == 2 * X.nbytes
    assert cost["kernels"] == 1
    assert cost["nodes"] == len(softmax.trace(X).nodes)
    assert cost["transcendentals"] == X.size
    assert cost["flops"] == 2 * X.size + 2 * (X.size - len(X))


@pytest.mark.parametrize(
    "function",
    [
        lambda np_, x: np_.tanh(x @ x.T),
        lambda np_, x: np_.where(x > 1, x**3 / 2, -x),
        lambda np_, x: (x * x).sum(0),
    ],
)
def test_costs_are_those_of_jax(function: Any) -> None:
    ours = stax.jit(lambda x: function(snp, x)).lower(X).compile().cost_analysis()
    theirs = jax.jit(lambda x: function(jnp, x)).lower(X).cost_analysis() or {}
    assert ours["transcendentals"] == theirs.get("transcendentals", 0)
    assert ours["flops"] == pytest.approx(theirs["flops"], rel=0.25)


def test_costs_of_control_flow() -> None:
    def step(carry: Any, x: Any) -> Any:
        return snp.where(x > 0, stax.lax.cond(x > 1, snp.sin, lambda v: v, carry), x), None

    looped = stax.jit(lambda xs: stax.lax.scan(step, 0.0, xs)[0]).lower(snp.ones(100)).compile()
    assert looped.cost_analysis()["transcendentals"] == 100


def test_structures_of_stages() -> None:
    lowered = stax.jit(lambda x, *, k: {"y": x * k}).lower(X, k=2.0)
    for stage in (lowered, lowered.compile()):
        assert stage.in_avals == (
            (ShapeDtypeStruct(X.shape, X.dtype),),
            {"k": stage.in_avals[1]["k"]},
        )
        assert stage.in_avals[1]["k"].weak_type
        assert stage.out_info == {"y": ShapeDtypeStruct(X.shape, X.dtype)}
        assert stage.out_tree == stax.tree_util.tree_structure({"y": 0})


def test_text_of_a_compiled_program() -> None:
    lowered = softmax.lower(X)
    assert lowered.compile().as_text() == lowered.as_text("llvm")
    assert lowered.compile().as_text("graph") == lowered.as_text()


def test_a_compiled_function_can_be_called() -> None:
    w = snp.arange(3.0)
    compiled = stax.jit(lambda x, *, k: {"y": x * w + k}).lower(snp.ones(3), k=2.0).compile()
    assert compiled(snp.ones(3), k=2.0)["y"].tolist() == [2, 3, 4]
    with pytest.raises(ArgumentError, match="was compiled for other arguments"):
        compiled(snp.ones(4), k=2.0)
    with pytest.raises(ArgumentError):
        compiled(snp.ones(3))
