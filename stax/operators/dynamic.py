"""Slices whose place is computed: dynamic_slice reads one, dynamic_update_slice writes one.

The sizes are static and the starts are scalar operands, clamped so that the slice lies within.
Each is the other's transpose.  Where a batch has a start for each example the slice is a gather and
the update a scatter; otherwise the batch axis is one more axis that is taken whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from stax.extent import Dimension, Extent
from stax.op import Batch, Linear, Op
from stax.operators.broadcast import broadcast_to, lead_all
from stax.operators.elementwise import add, convert, like, lt, select
from stax.operators.index import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    gather,
    scatter,
)
from stax.operators.reshape import expand_dims
from stax.operators.shape import concatenate, slice_
from stax.trace import Proxy, bind, is_array, type_of, zeros, zeros_like
from stax.types import ArrayType, Shape, canonical_shape, int32, int64, is_integer


def check_starts(name: str, x: ArrayType, starts: Sequence[ArrayType]) -> None:
    """Raise unless there is one integer scalar for each axis of `x`."""
    if len(starts) != x.ndim or any(t.shape or not is_integer(t.dtype) for t in starts):
        raise ShapeError(
            f"{name}: {x} needs {x.ndim} scalar integer starts, got {list(starts)}.",
            advice="Give one start for each axis.",
        )


def check_sizes(name: str, x: ArrayType, sizes: Shape) -> None:
    """Raise unless a slice of `sizes` fits into `x`."""
    if len(sizes) != x.ndim or not all(a <= n for a, n in zip(sizes, x.shape, strict=True)):
        raise ShapeError(
            f"{name}: a slice of shape {sizes} does not fit into {x}.",
            advice="Starts are clamped to fit, and sizes are not.",
        )


def clamped(starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """Return the slices that start where asked, or as near as they fit."""
    first = [min(max(int(s), 0), n - size) for s, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(s, s + size) for s, size in zip(first, sizes, strict=True))


def lowered_starts(kernel: Any, starts: Sequence[Any], sizes: Shape, shape: Shape) -> list[Any]:
    """Return the clamped starts as index expressions."""
    zero = kernel.extent(0)
    return [
        kernel.clamp(kernel.as_index(s(())), zero, kernel.extent(n - size))
        for s, size, n in zip(starts, sizes, shape, strict=True)
    ]


def stacked(batch: Batch, flags: Sequence[bool], starts: Sequence[Any]) -> Any:
    """Return the starts of each example as the rows of one array."""
    columns = lead_all(batch, flags, starts)
    dtype = int32 if all(np.can_cast(type_of(x).dtype, int32) for x in columns) else int64
    return concatenate([expand_dims(convert(x, dtype), 1) for x in columns], 1)


@dataclass(frozen=True, eq=False)
class DynamicSlice(Op):
    """The part of shape `sizes` that starts at the scalar operands."""

    sizes: Shape
    name: ClassVar[str] = "dynamic_slice"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        x, *starts = operands
        check_starts(self.name, x, starts)
        check_sizes(self.name, x, self.sizes)
        return x.with_shape(self.sizes)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        x, *starts = arrays
        return x[clamped(starts, self.sizes, x.shape)]  # type: ignore[arg-type, index]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None if tangents[0] is None else bind(self, tangents[0], *primals[1:])

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        x, *starts = inputs
        return (bind(DynamicUpdateSlice(), zeros(x.type), ct, *starts), *[None] * len(starts))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        x, *starts = inputs
        if not any(flags[1:]):
            return bind(DynamicSlice((batch.size, *self.sizes)), x, 0, *starts)
        ndim = len(self.sizes)
        # The batch axis of x, if it has one, goes along with that of the starts.
        along = (0,) if flags[0] else ()
        axes = tuple(range(len(along), ndim + len(along)))
        numbers = GatherDimensionNumbers(
            offset_dims=tuple(range(1, ndim + 1)),
            collapsed_slice_dims=(),
            start_index_map=axes,
            operand_batching_dims=along,
            start_indices_batching_dims=along,
        )
        sizes = (*(1 for _ in along), *self.sizes)
        return gather(x, stacked(batch, flags[1:], starts), numbers, sizes, mode="clip")

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        x, *starts = operands
        first = lowered_starts(kernel, starts, self.sizes, x.type.shape)
        return x(tuple(kernel.plus(s, i) for s, i in zip(first, index, strict=True)))


@dataclass(frozen=True, eq=False)
class DynamicUpdateSlice(Op):
    """The first operand with the part that starts at the scalar operands replaced by the second."""

    name: ClassVar[str] = "dynamic_update_slice"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        x, update, *starts = operands
        check_starts(self.name, x, starts)
        if update.dtype != x.dtype:
            raise DTypeError(
                f"dynamic_update_slice: {x} and the update {update} differ in dtype.",
                advice="Convert the update with astype.",
            )
        check_sizes(self.name, x, update.shape)
        return ArrayType(x.dtype, x.shape, x.weak and update.weak)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        x, update, *starts = arrays
        result = x.copy()
        result[clamped(starts, update.shape, x.shape)] = update
        return result

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x, update, *starts), (t, update_t) = primals, tangents[:2]
        if t is None and update_t is None:
            return None
        t = zeros_like(x) if t is None else t
        return bind(self, t, zeros_like(update) if update_t is None else update_t, *starts)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        x, update, *starts = inputs
        x_ct = update_ct = None
        if isinstance(x, Linear):
            x_ct = bind(self, ct, zeros(update.type), *starts)
        if isinstance(update, Linear):
            update_ct = bind(DynamicSlice(update.type.shape), ct, *starts)
        return (x_ct, update_ct, *[None] * len(starts))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        x, update = lead_all(batch, flags[:2], inputs[:2])
        starts = inputs[2:]
        if not any(flags[2:]):
            return bind(self, x, update, 0, *starts)
        ndim = type_of(x).ndim
        numbers = ScatterDimensionNumbers(
            update_window_dims=tuple(range(1, ndim)),
            inserted_window_dims=(),
            scatter_dims_to_operand_dims=tuple(range(1, ndim)),
            operand_batching_dims=(0,),
            scatter_indices_batching_dims=(0,),
        )
        rows = stacked(batch, flags[2:], starts)
        return scatter(x, rows, update, numbers, unique_indices=True, mode="clip")

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        x, update, *starts = operands
        first = lowered_starts(kernel, starts, update.type.shape, x.type.shape)
        if not first:
            return update(())
        places, inside = [], None
        for i, start, size in zip(index, first, update.type.shape, strict=True):
            place = kernel.minus(i, start)
            here = kernel.both(kernel.less(-1, place), kernel.less(place, kernel.extent(size)))
            inside = here if inside is None else kernel.both(inside, here)
            places.append(place)
        return kernel.apply("select", inside, update(tuple(places), mask=inside), x(index))


def _all_from_start(x: Any, starts: Sequence[Any], wraps: bool | Sequence[bool]) -> list[Any]:
    """Return the starts of a slice of `x`, negative ones counted from the end where it `wraps`."""
    shape = type_of(x).shape
    if len(starts) != len(shape):
        raise ArgumentError(
            f"{type_of(x)} needs {len(shape)} starts, got {len(starts)}.",
            advice="Give one start for each axis.",
        )
    marks = [wraps] * len(shape) if isinstance(wraps, bool) else wraps
    if any(not w and is_static(s) and s < 0 for s, w in zip(starts, marks, strict=True)):
        raise ArgumentValueError(
            f"the starts {tuple(starts)} of a slice are negative where that is not allowed.",
            advice="Count them from the start, or allow negative indices.",
        )
    return [from_start(s, n) if w else s for s, n, w in zip(starts, shape, marks, strict=True)]


def from_start(place: Any, n: Dimension) -> Any:
    """Return places along an axis of length `n`, negative ones counted from its end.

    `place` is a number or an array of integers; those narrower than 32 bits are widened.
    """
    if is_static(place):
        return int(place) + n if place < 0 else int(place)
    dtype = type_of(place).dtype
    if dtype.kind == "u":
        return place
    # In a narrow type the length may not fit, so the sum is taken in a wider one.
    wide = convert(place, int32) if dtype.itemsize < 4 else place
    return select(lt(wide, like(wide, 0)), add(wide, length_like(wide, n)), wide)


def length_like(x: Any, n: Dimension) -> Any:
    """Return the length `n` in the shape and dtype of `x`."""
    if not isinstance(n, Extent):
        return like(x, n)
    kind = type_of(x)
    return broadcast_to(convert(n, kind.dtype), kind.shape)


def is_static(place: Any) -> bool:
    """Say whether a place is a number that is known now."""
    return isinstance(place, int | np.integer) and not isinstance(place, bool)


def dynamic_slice(
    x: Any, starts: Sequence[Any], sizes: Sequence[Any], wraps: bool | Sequence[bool] = True
) -> Any:
    """Return the part of `x` of shape `sizes` at `starts`, moved so that it lies within.

    A negative start counts from the end along the axes that `wraps` marks.
    """
    shape, wanted = type_of(x).shape, canonical_shape(sizes)
    begin = _all_from_start(x, starts, wraps)
    if all(map(is_static, begin)) and all(isinstance(n, int) for n in (*shape, *wanted)):
        check_sizes("dynamic_slice", type_of(x), wanted)
        places = clamped(begin, wanted, shape)  # type: ignore[arg-type]
        return slice_(x, [p.start for p in places], [p.stop for p in places])
    return bind(DynamicSlice(wanted), x, *begin)


def dynamic_update_slice(
    x: Any, update: Any, starts: Sequence[Any], wraps: bool | Sequence[bool] = True
) -> Any:
    """Return `x` with the part at `starts` replaced by `update`, moved so that it lies within.

    A negative start counts from the end along the axes that `wraps` marks.
    """
    if is_array(update) and type_of(update) is type_of(x):
        return update
    return bind(DynamicUpdateSlice(), x, update, *_all_from_start(x, starts, wraps))
