"""Sorting along an axis: any number of operands, the first `num_keys` of which give the order.

NaN comes last and -0.0 equals 0.0, as in JAX; complex numbers are ordered by real, then by
imaginary parts, NaN last in each.  The derivative moves tangents to where their
elements went, so it needs the permutation: a sort of the places together with the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.extent import same_shape
from stax.op import Batch, Op
from stax.operators.broadcast import lead_all
from stax.operators.index import GatherDimensionNumbers, gather
from stax.operators.reshape import expand_dims
from stax.operators.shape import iota
from stax.trace import Proxy, bind, full, results, type_of
from stax.types import ArrayType, TupleType, Type, accumulator, canonical_axis


@dataclass(frozen=True, eq=False)
class Sort(Op):
    """The operands reordered along `axis` by the first `num_keys` of them, the first foremost."""

    axis: int
    num_keys: int
    is_stable: bool
    name: ClassVar[str] = "sort"

    def abstract_eval(self, *operands: ArrayType) -> Type:
        first = operands[0]
        if not 0 <= self.axis < first.ndim:
            raise ShapeError(f"sort: axis {self.axis} is out of range for {first}.")
        for other in operands[1:]:
            if not same_shape(other.shape, first.shape):
                raise ShapeError(
                    f"sort: operands {first} and {other} differ in shape.",
                    advice="Broadcast them to one shape first.",
                )
        for key in operands[: self.num_keys]:
            if key.dtype not in types.NUMERIC:
                raise DTypeError(f"sort: {key} has no order to sort by.")
        return first if len(operands) == 1 else TupleType(operands)

    def evaluate(self, *arrays: np.ndarray) -> Any:
        # lexsort is stable, puts NaN last, and takes the foremost key last.
        keys = [
            part.astype(accumulator(part.dtype), copy=False)
            for x in arrays[: self.num_keys]
            for part in ((x.real, x.imag) if types.is_complex(x.dtype) else (x,))
        ]
        order = np.lexsort(keys[::-1], axis=self.axis)
        moved = tuple(np.take_along_axis(x, order, self.axis) for x in arrays)
        return moved if len(moved) > 1 else moved[0]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        order = sort_order(primals[: self.num_keys], self.axis)
        moved = [None if t is None else take_along(t, order, self.axis) for t in tangents]
        return moved if len(moved) > 1 else moved[0]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        op = Sort(self.axis + 1, self.num_keys, self.is_stable)
        return bind(op, *lead_all(batch, flags, inputs))


@dataclass(frozen=True, eq=False)
class TopK(Op):
    """The `k` largest elements along the last axis, in falling order, and their places.

    Of equal elements the first comes first; NaN counts as largest.
    """

    k: int
    name: ClassVar[str] = "top_k"

    def abstract_eval(self, *operands: ArrayType) -> Type:
        (x,) = operands
        n = x.shape[-1] if x.shape else 0
        if not x.shape or (isinstance(n, int) and not 1 <= self.k <= n):
            raise ShapeError(f"top_k: there are not {self.k} elements along the last axis of {x}.")
        if not types.is_ordered(x.dtype):
            raise DTypeError(f"top_k: {x} has no order.", advice="Take its absolute values.")
        shape = (*x.shape[:-1], self.k)
        return TupleType((x.with_shape(shape), ArrayType(types.int32, shape, x.weak)))

    def evaluate(self, *arrays: np.ndarray) -> Any:
        (x,) = arrays
        # Sorted backwards and read backwards, elements that tie keep their order.
        back = np.flip(x.astype(accumulator(x.dtype), copy=False), -1)
        order = np.flip(np.lexsort((back,), axis=-1), -1)[..., : self.k]
        places = x.shape[-1] - 1 - order
        return np.take_along_axis(x, places, -1), places.astype(np.int32)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (t,) = tangents
        if t is None:
            return [None, None]
        return [take_along(t, results(out)[1], type_of(t).ndim - 1), None]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)


def top_k(x: Any, k: int) -> tuple[Any, Any]:
    """Return the `k` largest elements along the last axis and their places."""
    values, places = results(bind(TopK(k), x))
    return values, places


def sort_order(keys: Sequence[Any], axis: int) -> Any:
    """Return the places that the elements of the sorted keys come from; ties keep their order."""
    shape = type_of(keys[0]).shape
    places = iota(types.int32, shape, axis)
    return results(bind(Sort(axis, len(keys), True), *keys, places))[-1]


def take_along(x: Any, order: Any, axis: int) -> Any:
    """Return the elements of `x` in the `order` of places along `axis`, a permutation."""
    kind, ndim = type_of(x), type_of(x).ndim
    if 0 in kind.shape:  # a window of one element would not fit
        return full(type_of(order).shape, 0, kind.dtype)
    others = tuple(a for a in range(ndim) if a != axis)
    numbers = GatherDimensionNumbers(
        offset_dims=(),
        collapsed_slice_dims=(axis,),
        start_index_map=(axis,),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )
    return gather(
        x, expand_dims(order, ndim), numbers, (1,) * ndim, unique_indices=True, mode="clip"
    )


def sort(operands: Any, axis: int = -1, num_keys: int = 1, is_stable: bool = True) -> Any:
    """Return an array sorted along `axis`, or a tuple of arrays reordered by the first of them."""
    several = isinstance(operands, tuple | list)
    arrays = tuple(operands) if several else (operands,)
    if not arrays or not 1 <= num_keys <= len(arrays):
        raise ArgumentError(
            f"sort: {num_keys} keys of {len(arrays)} operands make no order.",
            advice="num_keys is between 1 and the number of operands.",
        )
    where = canonical_axis(axis, type_of(arrays[0]).ndim)
    found = results(bind(Sort(where, num_keys, is_stable), *arrays))
    return tuple(found) if several else found[0]


def argsort(x: Any, axis: int = -1) -> Any:
    """Return the places from which a stable sort of `x` along `axis` takes its elements."""
    return sort_order((x,), canonical_axis(axis, type_of(x).ndim))
