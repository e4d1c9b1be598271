"""A kernel builder that computes instead of building: `lower` rules run on NumPy scalars.

It checks what no compiler would: every read that is not masked lies within its operand.
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax.graph import Node
from stax.operators.elementwise import ROWS, Convert
from stax.types import ArrayType, storage

BITS = {"and": np.bitwise_and, "or": np.bitwise_or}


class PointOperand:
    """An operand of a rule whose elements are those of an array."""

    def __init__(self, type_: ArrayType, array: np.ndarray) -> None:
        self.type = type_
        self.array = array

    def __call__(self, index: Sequence[int], mask: Any = None) -> Any:
        if mask is not None and not mask:
            return np.zeros((), self.array.dtype)
        places = [operator.index(i) for i in index]
        assert len(places) == self.array.ndim
        for place, extent in zip(places, self.array.shape, strict=True):
            assert 0 <= place < extent, f"read at {places} of {self.type}"
        return self.array[tuple(places)]


class PointKernel:
    """The `kernel` of a `lower` rule, for one element at a time."""

    def const(self, value: Any, dtype: np.dtype) -> Any:
        return np.asarray(value).astype(dtype)[()]

    def apply(self, name: str, *args: Any) -> Any:
        if name == "select":
            return args[1] if args[0] else args[2]
        if name in BITS:
            return BITS[name](*args)
        if name in ("div", "rem") or name.startswith("shift"):
            return ROWS[name].evaluate(*map(np.asarray, args))
        with np.errstate(all="ignore"):
            return ROWS[name].evaluate(*args)

    def convert(self, x: Any, dtype: np.dtype) -> Any:
        return np.asarray(Convert(dtype, False).evaluate(np.asarray(x)))[()]

    def named(self, x: Any) -> Any:
        return x

    def bitcast(self, x: Any, dtype: np.dtype) -> Any:
        return np.asarray(x).view(dtype)[()]

    def extent(self, length: Any) -> int:
        return operator.index(length)

    as_index = staticmethod(int)
    plus = staticmethod(operator.add)
    minus = staticmethod(operator.sub)
    times = staticmethod(operator.mul)
    over = staticmethod(operator.floordiv)
    modulo = staticmethod(operator.mod)
    less = staticmethod(operator.lt)
    both = staticmethod(operator.and_)

    def clamp(self, x: int, low: int, high: int) -> int:
        return min(max(x, low), high)

    def reduce(
        self, kind: str, extents: Sequence[int], body: Callable[..., Any], dtype: np.dtype
    ) -> Any:
        terms = (body(index) for index in itertools.product(*map(range, extents)))
        total = next(terms, None)
        if total is None:
            return np.asarray({"add": 0, "mul": 1, "and": -1}.get(kind, 0)).astype(dtype)[()]
        for term in terms:
            total = self.apply(kind, total, term)
        return total


def run_rule(node: Node, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return the result of a node, computed element by element by its `lower` rule."""
    type_, kernel = node.type, PointKernel()
    operands = [PointOperand(x.type, a) for x, a in zip(node.inputs, arrays, strict=True)]
    result = np.empty(type_.shape, storage(type_.dtype))
    for index in np.ndindex(*type_.shape):
        result[index] = node.op.lower(kernel, index, *operands)
    return result
