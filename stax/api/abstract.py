"""Arrays that are not there: a shape and a dtype, where only types matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.extent import Dimension, product
from stax.types import ArrayType


class ShapeDtypeStruct:
    """The shape and dtype of an array that is not there; accepted where only types matter."""

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(
        self, shape: Sequence[Dimension], dtype: Any, *, weak_type: bool = False, **_: Any
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = np.dtype(dtype) if not hasattr(dtype, "words") else dtype
        self.weak_type = weak_type

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dimension:
        return product(self.shape)

    @property
    def type(self) -> ArrayType:
        return ArrayType(self.dtype, self.shape, self.weak_type)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self.type is other.type

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"
