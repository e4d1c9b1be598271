"""Ops from outside the library: rules that are there work, and one that is not is named."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import FallbackWarning, LoweringError, MissingRule
from stax.extend import ArrayType, Batch, LinearOp, Op, bind, type_of

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@dataclass(frozen=True, eq=False)
class Bare(Op):
    """The square, with no more than eager use needs."""

    name = "bare"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0] * arrays[0]


@dataclass(frozen=True, eq=False)
class Square(Bare):
    """The square, with rules for all but reverse mode, which its derivative does not need."""

    name = "square_of_mine"

    def jvp(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return None if tangents[0] is None else 2 * primals[0] * tangents[0]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        x = kernel.named(operands[0](index))
        return kernel.apply("mul", x, x)


@dataclass(frozen=True, eq=False)
class Double(LinearOp):
    """Twice the operand: a linear op gets its jvp from `LinearOp`."""

    name = "double_of_mine"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0] + arrays[0]

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        return (bind(self, ct),)


def square(x: Any) -> Any:
    return bind(Square(), x)


def test_an_op_with_rules_is_like_any_other() -> None:
    x = snp.asarray(X)
    for f in (square, stax.jit(square), stax.vmap(square), stax.jit(stax.vmap(stax.vmap(square)))):
        np.testing.assert_array_equal(f(x), X * X)
    gradient = stax.grad(lambda y: square(y).sum())
    for f in (gradient, stax.jit(gradient)):
        np.testing.assert_array_equal(f(x), 2 * X)
    assert float(stax.grad(stax.grad(square))(3.0)) == 2
    assert type_of(square(x)) is type_of(x)


def test_it_is_fused() -> None:
    kernels = stax.jit(lambda x: snp.tanh(square(x) + 1)).lower(X).as_text("kernels")
    assert kernels.count("def ") == 1 and "tanh" in kernels


def test_linear_ops() -> None:
    gradient = stax.grad(lambda x: bind(Double(), x).sum())(snp.asarray(X))
    np.testing.assert_array_equal(gradient, np.full_like(X, 2))


@pytest.mark.parametrize(
    ("transform", "rule"),
    [(lambda f: stax.grad(lambda x: f(x).sum()), "jvp"), (stax.vmap, "batch")],
)
def test_a_missing_rule_is_named(transform: Any, rule: str) -> None:
    with pytest.raises(MissingRule, match=f"bare has no {rule} rule"):
        transform(lambda x: bind(Bare(), x))(snp.asarray(X))


def test_without_lower_jit_runs_on_the_evaluator_and_says_so() -> None:
    def f(x: Any) -> Any:
        return bind(Bare(), x) + 1

    with stax.config.override(strict=False), pytest.warns(FallbackWarning, match="bare"):
        np.testing.assert_array_equal(stax.jit(f)(X), X * X + 1)
    with stax.config.override(strict=True), pytest.raises((LoweringError, MissingRule)):
        stax.jit(f)(X)
