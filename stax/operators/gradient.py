"""Ops that say something about derivatives only.

stop_gradient(x) * x       is differentiated as if its first factor were a constant
checkpoint_name(x, "y")    is `x`, which policies of `checkpoint` may save by its name
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.op import Batch, Op
from stax.operators.broadcast import LinearOp
from stax.trace import Proxy, bind, is_array, type_of
from stax.types import ArrayType, is_inexact


@dataclass(frozen=True, eq=False)
class StopGradient(Op):
    """The operand, held fixed by differentiation of every order."""

    name: ClassVar[str] = "stop_gradient"
    stops_tangent: ClassVar[bool] = True

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        return operands[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (None,)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


@dataclass(frozen=True, eq=False)
class CheckpointName(LinearOp):
    """The operand, under a name for policies that say what reverse mode keeps."""

    label: str
    name: ClassVar[str] = "checkpoint_name"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        return operands[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (ct,)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


def checkpoint_name(x: Any, name: str) -> Any:
    """Return `x`, marked for the policies of `checkpoint` that save values by name."""
    return bind(CheckpointName(name), x)


def stop_gradient(x: Any) -> Any:
    """Return `x`, through which no derivative passes; what has none is returned as it is."""
    if is_array(x) and not is_inexact(type_of(x).dtype):
        return x
    return bind(StopGradient(), x)
