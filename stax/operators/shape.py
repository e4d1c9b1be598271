"""Ops that cut, surround and join arrays: slice, pad, concatenate; and iota, which counts.

The first three are linear, so each is its own derivative and the transpose of one is another.
Nothing is computed: lowering is index arithmetic, and an element outside an operand is a masked
load.  The other ops on shapes are in `broadcast` and `reshape`; this module offers them all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from stax import types
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.extent import Dimension, same_shape
from stax.op import Batch, Linear, Op
from stax.operators.broadcast import (
    Broadcast as Broadcast,
    LinearOp as LinearOp,
    broadcast_in_dim as broadcast_in_dim,
    broadcast_to as broadcast_to,
    expand_leading as expand_leading,
    lead_all,
    move,
    reduce_sum,
    splat as splat,
)
from stax.operators.reshape import (
    Reshape as Reshape,
    Rev as Rev,
    Transpose as Transpose,
    expand_dims as expand_dims,
    move_axis as move_axis,
    reshape as reshape,
    rev as rev,
    squeeze as squeeze,
    transpose as transpose,
    unchanged,
)
from stax.trace import Proxy, bind, full, is_array, type_of
from stax.types import ArrayType, Shape, canonical_axis, canonical_shape


@dataclass(frozen=True, eq=False)
class Slice(LinearOp):
    """The elements from `starts` up to but not including `limits`, every `strides`-th."""

    starts: Shape
    limits: Shape
    strides: tuple[int, ...]
    name: ClassVar[str] = "slice"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if not len(self.starts) == len(self.limits) == len(self.strides) == x.ndim:
            raise ShapeError(f"slice: {self} does not give one range for each axis of {x}.")
        for start, limit, stride, extent in zip(*self._ranges(), x.shape, strict=True):
            if not (0 <= start <= limit <= extent and stride >= 1):
                raise ShapeError(
                    f"slice: {start}:{limit}:{stride} is not within an axis of length {extent}.",
                    advice="Starts, limits and strides are positive and in range; none is clipped.",
                )
        return x.with_shape(tuple(_ceil(b - a, s) for a, b, s in zip(*self._ranges(), strict=True)))

    def _ranges(self) -> tuple[Shape, Shape, tuple[int, ...]]:
        return self.starts, self.limits, self.strides

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0][tuple(slice(a, b, s) for a, b, s in zip(*self._ranges(), strict=True))]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        x: Linear = inputs[0]
        config = []
        for start, stride, kept, extent in zip(
            self.starts, self.strides, type_of(ct).shape, x.type.shape, strict=True
        ):
            spread = _spread(kept, stride - 1)
            config.append((start, extent - start - spread, stride - 1))
        return (pad(ct, full((), 0, x.type.dtype), config),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        starts, limits, strides = self._ranges()
        return slice_(inputs[0], (0, *starts), (batch.size, *limits), (1, *strides))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        places = []
        for place, start, stride in zip(index, self.starts, self.strides, strict=True):
            place = place if stride == 1 else kernel.times(place, stride)
            places.append(place if _is_zero(start) else kernel.plus(place, kernel.extent(start)))
        return operands[0](tuple(places))


def _ceil(length: Dimension, stride: int) -> Dimension:
    """Return how many steps of `stride` start within `length`."""
    return length if stride == 1 else (length + (stride - 1)) // stride


def _is_zero(extent: Dimension) -> bool:
    return isinstance(extent, int) and extent == 0


def slice_(
    x: Any, starts: Sequence[Any], limits: Sequence[Any], strides: Sequence[int] | None = None
) -> Any:
    """Return `x[starts:limits:strides]`, one range for each axis."""
    steps = (1,) * len(starts) if strides is None else tuple(map(int, strides))
    op = Slice(canonical_shape(starts), canonical_shape(limits), steps)
    whole = all(map(_is_zero, op.starts)) and set(steps) <= {1} and unchanged(x, op.limits)
    return x if whole else move(op, x)


def slice_in_dim(x: Any, start: Any, limit: Any, stride: int = 1, axis: int = 0) -> Any:
    """Return `x` with one axis sliced; a limit of None is its end."""
    shape = type_of(x).shape
    where = canonical_axis(axis, len(shape))
    starts: list[Any] = [0] * len(shape)
    limits, strides = list(shape), [1] * len(shape)
    starts[where], strides[where] = start, stride
    limits[where] = shape[where] if limit is None else limit
    return slice_(x, starts, limits, strides)


PadConfig: TypeAlias = tuple[tuple[Dimension, Dimension, int], ...]


@dataclass(frozen=True, eq=False)
class Pad(LinearOp):
    """Surround the operand with a number: `(low, high, interior)` for each axis.

    Negative low and high cut elements away; interior is how many go between two elements.
    Symbolic ones are never negative.
    """

    config: PadConfig
    name: ClassVar[str] = "pad"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        x, value = operands
        if value.dtype != x.dtype or value.shape:
            raise DTypeError(
                f"pad: the padding of {x} must be a scalar of its dtype, not {value}.",
                advice="Convert the padding with astype.",
            )
        if len(self.config) != x.ndim or any(interior < 0 for _, _, interior in self.config):
            raise ShapeError(
                f"pad: {self.config} does not give (low, high, interior) for each axis of {x}, "
                "with interior at least 0."
            )
        shape = tuple(
            _spread(n, interior) + low + high
            for n, (low, high, interior) in zip(x.shape, self.config, strict=True)
        )
        if any(isinstance(n, int) and n < 0 for n in shape):
            raise ShapeError(
                f"pad: {self.config} cuts more from {x} than there is.",
                advice="Cut at most the length of the axis.",
            )
        return ArrayType(x.dtype, shape, x.weak and value.weak)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        x, value = arrays
        padded = self.abstract_eval(ArrayType(x.dtype, x.shape), ArrayType(x.dtype, ())).shape
        result = np.full(padded, value, x.dtype)
        places = self._places(x.shape, padded)
        if all(kept for kept, _ in places):
            source = tuple(slice(kept.start, kept.stop) for kept, _ in places)
            result[tuple(slice(at.start, at.stop, at.step) for _, at in places)] = x[source]
        return result

    def _places(self, shape: Any, padded: Any) -> list[tuple[range, range]]:
        """Return, for each axis, which elements are kept and the places where they go."""
        places = []
        for n, size, (low, _, interior) in zip(shape, padded, self.config, strict=True):
            assert isinstance(low, int)
            step = interior + 1
            first = min(n, max(0, math.ceil(-low / step)))
            kept = range(first, max(first, min(n, math.ceil((size - low) / step))))
            places.append((kept, range(low + kept.start * step, low + kept.stop * step, step)))
        return places

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        x, value = inputs
        x_ct = self._inside(ct, x.type) if isinstance(x, Linear) else None
        value_ct = self._outside(ct, x.type.shape) if isinstance(value, Linear) else None
        return x_ct, value_ct

    def _inside(self, ct: Any, x: ArrayType) -> Any:
        # Put zeros where elements had been cut away, then skip all that was added.
        cut = [(_negated(low), _negated(high), 0) for low, high, _ in self.config]
        whole = pad(ct, full((), 0, x.dtype), cut)
        starts = [0 if _negated(low) else low for low, _, _ in self.config]
        ends = [0 if _negated(high) else high for _, high, _ in self.config]
        limits = [n - end for n, end in zip(type_of(whole).shape, ends, strict=True)]
        return slice_(whole, starts, limits, [interior + 1 for _, _, interior in self.config])

    def _outside(self, ct: Any, shape: Shape) -> Any:
        """Sum the cotangent over the padding, slab by slab.

        The total less the part inside would cancel, and be NaN where the part is infinite.
        """
        slabs = []
        for axis, (kept, at) in enumerate(self._places(shape, type_of(ct).shape)):
            if not kept:
                slabs.append(ct)
                break
            slabs += [
                slice_in_dim(ct, 0, at[0], axis=axis),
                slice_in_dim(ct, at[-1] + 1, None, axis=axis),
                *(slice_in_dim(ct, at[0] + i, at[-1], at.step, axis) for i in range(1, at.step)),
            ]
            ct = slice_in_dim(ct, at[0], at[-1] + 1, at.step, axis)
        if not slabs:
            return None
        return reduce_sum(concatenate([reshape(s, (-1,)) for s in slabs], 0))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        x, value = inputs
        if not flags[1]:
            return pad(x, value, ((0, 0, 0), *self.config))
        # Each example has a number of its own, so the padding is put there by joining slabs.
        result = x if flags[0] else expand_leading(x, batch.size)
        for axis, (low, high, interior) in enumerate(self.config, 1):
            result = _spread_axis(result, value, axis, interior) if interior else result
            result = _frame_axis(result, value, axis, low, high)
        return result

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        x, value = operands
        places, inside = [], None
        for place, n, config in zip(index, x.type.shape, self.config, strict=True):
            place, conditions = _pad_place(kernel, place, n, config)
            places.append(place)
            for condition in conditions:
                inside = condition if inside is None else kernel.both(inside, condition)
        if inside is None:
            return x(tuple(places))
        return kernel.apply("select", inside, x(tuple(places), mask=inside), value(()))


def _negated(extent: Dimension) -> int:
    """Return how much a low or high padding cuts away."""
    return max(0, -extent) if isinstance(extent, int) else 0


def _spread(length: Dimension, interior: int) -> Dimension:
    """Return the length of an axis with `interior` places between its elements."""
    return 0 if _is_zero(length) else length + (length - 1) * interior


def _spread_axis(x: Any, value: Any, axis: int, interior: int) -> Any:
    """Put the numbers `value`, one for each element of the first axis, between elements."""
    shape = type_of(x).shape
    gaps = broadcast_in_dim(value, (*shape[: axis + 1], interior, *shape[axis + 1 :]), (0,))
    joined = concatenate([expand_dims(x, axis + 1), gaps], axis + 1)
    merged = reshape(joined, (*shape[:axis], shape[axis] * (interior + 1), *shape[axis + 1 :]))
    return slice_in_dim(merged, 0, _spread(shape[axis], interior), axis=axis)


def _frame_axis(x: Any, value: Any, axis: int, low: Dimension, high: Dimension) -> Any:
    """Put the numbers `value`, one for each element of the first axis, at the ends of an axis."""

    def slab(width: Dimension) -> Any:
        shape = type_of(x).shape
        return broadcast_in_dim(value, (*shape[:axis], width, *shape[axis + 1 :]), (0,))

    # What a negative end cuts away may reach into the padding of the other end, so it comes last.
    before = [] if _negated(low) else [slab(low)]
    after = [] if _negated(high) else [slab(high)]
    whole = concatenate([*before, x, *after], axis)
    end = type_of(whole).shape[axis] - _negated(high)
    return slice_in_dim(whole, _negated(low), end, axis=axis)


def _pad_place(
    kernel: Any, place: Any, n: Dimension, config: tuple[Dimension, Dimension, int]
) -> tuple[Any, list[Any]]:
    """Return the operand's place along one axis, and the conditions for there being one."""
    low, high, interior = config
    conditions = []
    if not _is_zero(low) and not _negated(low):
        conditions.append(kernel.less(kernel.extent(low - 1), place))
    if not _is_zero(low):
        place = kernel.minus(place, kernel.extent(low))
    if not _is_zero(high) and not _negated(high):
        conditions.append(kernel.less(place, kernel.extent(_spread(n, interior))))
    if interior:
        conditions.append(kernel.less(kernel.modulo(place, interior + 1), 1))
        place = kernel.over(place, interior + 1)
    return place, conditions


def pad(x: Any, value: Any, config: Sequence[tuple[Dimension, Dimension, int]]) -> Any:
    """Return `x` padded with the scalar `value` by `(low, high, interior)` for each axis."""
    op = Pad(tuple((low, high, interior) for low, high, interior in config))
    nothing = all(_is_zero(n) for axis in op.config for n in axis)
    return x if nothing and is_array(x) else bind(op, x, value)


@dataclass(frozen=True, eq=False)
class Concatenate(LinearOp):
    """The operands one after the other along `axis`."""

    axis: int
    name: ClassVar[str] = "concatenate"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        first = operands[0]
        if not 0 <= self.axis < first.ndim:
            raise ShapeError(f"concatenate: axis {self.axis} is out of range for {first}.")
        for other in operands[1:]:
            if other.dtype != first.dtype:
                raise DTypeError(
                    f"concatenate: {first} and {other} differ in dtype.",
                    advice="stax.numpy converts by itself; here, use astype.",
                )
            if not same_shape(self._across(other), self._across(first)):
                raise ShapeError(
                    f"concatenate: {first} and {other} differ in more than axis {self.axis}.",
                    advice="Arrays are joined along one axis; their other axes have one length.",
                )
        total = sum((t.shape[self.axis] for t in operands[1:]), first.shape[self.axis])
        shape = (*first.shape[: self.axis], total, *first.shape[self.axis + 1 :])
        return ArrayType(first.dtype, shape, all(t.weak for t in operands))

    def _across(self, t: ArrayType) -> Shape:
        return (*t.shape[: self.axis], *t.shape[self.axis + 1 :])

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.concatenate(arrays, self.axis)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        cts, start = [], 0
        for x in inputs:
            end = start + x.type.shape[self.axis]
            linear = isinstance(x, Linear)
            cts.append(slice_in_dim(ct, start, end, axis=self.axis) if linear else None)
            start = end
        return cts

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return concatenate(lead_all(batch, flags, inputs), self.axis + 1)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        place, end, result = index[self.axis], 0, None
        for i, x in enumerate(operands):
            start, end = end, end + x.type.shape[self.axis]
            here = place if i == 0 else kernel.minus(place, kernel.extent(start))
            # A place belongs to the last operand whose start it reaches.
            reached = None if i == 0 else kernel.less(kernel.extent(start - 1), place)
            mask = reached
            if i < len(operands) - 1:
                ahead = kernel.less(place, kernel.extent(end))
                mask = ahead if reached is None else kernel.both(reached, ahead)
            part = x((*index[: self.axis], here, *index[self.axis + 1 :]), mask=mask)
            result = part if result is None else kernel.apply("select", reached, part, result)
        return result


def concatenate(arrays: Sequence[Any], axis: int = 0) -> Any:
    """Return `arrays`, which are of one dtype, joined along `axis`."""
    if not arrays:
        raise ArgumentError(
            "concatenate needs at least one array.", advice="Pass a list that is not empty."
        )
    where = canonical_axis(axis, type_of(arrays[0]).ndim)
    if len(arrays) == 1 and is_array(arrays[0]):
        return arrays[0]
    return bind(Concatenate(where), *arrays)


@dataclass(frozen=True, eq=False)
class Iota(Op):
    """Counts 0, 1, 2, ... along one axis."""

    dtype: np.dtype
    shape: Shape
    axis: int
    name: ClassVar[str] = "iota"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        if not 0 <= self.axis < len(self.shape):
            raise ShapeError(f"iota: axis {self.axis} is out of range for {self.shape}.")
        if types.is_bool(self.dtype) or self.dtype not in types.NUMERIC:
            raise DTypeError(f"iota counts in numbers, not in {self.dtype}.")
        return ArrayType(self.dtype, self.shape)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        counts = np.arange(self.shape[self.axis]).astype(self.dtype)  # type: ignore[arg-type]
        aligned = [1] * len(self.shape)
        aligned[self.axis] = len(counts)
        return np.broadcast_to(counts.reshape(aligned), self.shape)  # type: ignore[arg-type]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return iota(self.dtype, (batch.size, *self.shape), self.axis + 1)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.convert(index[self.axis], self.dtype)


def iota(dtype: Any, shape: Any, axis: int = 0) -> Any:
    """Return an array of `shape` that counts from 0 along `axis`."""
    extents = canonical_shape(shape)
    return bind(Iota(types.check_dtype(dtype), extents, canonical_axis(axis, len(extents))))
