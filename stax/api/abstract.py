"""Arrays that are not there: a shape and a dtype, where only types matter.

>>> ShapeDtypeStruct((8, 128), "float32")
ShapeDtypeStruct(shape=(8, 128), dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.extent import Dimension, product
from stax.types import ArrayType, KeyType


class ShapeDtypeStruct:
    """The shape and dtype of an array that is not there; accepted where only types matter.

    `sharding` is accepted for JAX programs and changes nothing: there is one device.
    """

    __slots__ = ("dtype", "shape", "weak_type")

    def __init__(
        self,
        shape: Sequence[Dimension],
        dtype: Any,
        *,
        sharding: Any = None,
        weak_type: bool = False,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype if isinstance(dtype, KeyType) else np.dtype(dtype)
        self.weak_type = weak_type

    @classmethod
    def of(cls, type_: ArrayType) -> ShapeDtypeStruct:
        """Return the struct for a type of the library."""
        return cls(type_.shape, type_.dtype, weak_type=type_.weak)

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
