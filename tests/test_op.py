"""Ops: interning by class, and by type and value of the parameters."""

import gc
import itertools
import pickle
import weakref
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from stax import types
from stax.errors import MissingRule
from stax.graph import Constant, Input
from stax.op import Op, has_rule, typed
from stax.operators.broadcast import ReduceSum
from stax.operators.elementwise import ROWS, Convert, Elementwise
from stax.operators.reduce import ReduceMax
from stax.types import ArrayType
from tests.operators.calculus import traced
from tests.operators.samples import SAMPLES


@dataclass(frozen=True, eq=False)
class Scale(Op):
    """Test op with one parameter of any type."""

    factor: Any
    name: ClassVar[str] = "scale"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]


def constant(value: Any, dtype: Any = types.float32) -> Constant:
    return Constant(np.asarray(value, dtype).tobytes(), dtype, (), False)


def test_equal_ops_are_one_object() -> None:
    assert ReduceSum((0,)) is ReduceSum((0,))
    assert Scale((1, (2, "x"))) is Scale((1, (2, "x")))
    assert ReduceSum((0,)) is not ReduceMax((0,))


def test_types_of_parameters_tell_ops_apart() -> None:
    values = [
        1,
        1.0,
        True,
        (1,),
        (1.0,),
        (True,),
        "1",
        np.int32(1),
        np.int64(1),
        None,
        0,
        -0.0,
        0.0,
    ]
    ops = [Scale(v) for v in values]
    assert len(set(map(id, ops))) == len(values)


def test_nan_parameters_are_equal() -> None:
    assert Scale(float("nan")) is Scale(float("nan"))


def test_signed_zero_constants_differ() -> None:
    assert constant(0.0) is not constant(-0.0)
    assert constant(0.0) is constant(0.0)
    assert constant(0.0) is not constant(0.0, types.float64)
    assert Constant(b"\0" * 4, types.float32, (), True) is not constant(0.0)


def test_inputs_are_never_merged() -> None:
    assert Input("x") is not Input("x")


def test_all_sampled_ops_are_pairwise_unequal() -> None:
    """Ops of all graphs of the samples: one object per class and parameters, and only one."""
    rng = np.random.default_rng(0)
    graphs = [traced(s.function, s.arguments(rng)) for samples in SAMPLES.values() for s in samples]
    ops = {id(n.op): n.op for g in graphs for n in g.nodes if n.op.interned}
    ops |= {id(op): op for op in map(Elementwise, ROWS)}
    assert len(ops) > 100
    keys = [(type(op), op.name, tuple(map(typed, op.parameters().values()))) for op in ops.values()]
    assert len(set(keys)) == len(keys)
    assert not any(a == b for a, b in itertools.combinations(ops.values(), 2))


def test_ops_are_freed() -> None:
    op = weakref.ref(Scale("only here"))
    gc.collect()
    assert op() is None


def test_ops_are_immutable() -> None:
    with pytest.raises(AttributeError):
        ReduceSum((0,)).axes = (1,)  # type: ignore[misc]


def test_printed_form() -> None:
    assert repr(Convert(types.float32, False)) == "convert{dtype=float32, weak=False}"
    assert repr(Elementwise("sin")) == "sin"


def test_missing_rules_are_named() -> None:
    x = np.zeros(())
    for rule, arguments in (
        ("evaluate", (x,)),
        ("jvp", (x, [x], [x])),
        ("transpose", (x, x)),
        ("batch", (None, [True], x)),
        ("lower", (None, (), x)),
    ):
        with pytest.raises(MissingRule, match=f"scale has no {rule} rule"):
            getattr(Scale(1), rule)(*arguments)
        assert not has_rule(Scale, rule)
        assert has_rule(ReduceSum, rule) or rule == "lower"
    assert has_rule(Scale, "abstract_eval")


def test_pickled_ops_are_interned_again() -> None:
    op = ReduceSum((0, 2))
    assert pickle.loads(pickle.dumps(op)) is op
