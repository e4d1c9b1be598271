"""An op that says something about derivatives only: `stop_gradient`, whose tangent is zero.

stop_gradient(x) * x       is differentiated as if its first factor were a constant
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.op import Batch, Op
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

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


def stop_gradient(x: Any) -> Any:
    """Return `x`, through which no derivative passes; what has none is returned as it is."""
    if is_array(x) and not is_inexact(type_of(x).dtype):
        return x
    return bind(StopGradient(), x)
