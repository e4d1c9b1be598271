"""Ops that keep every element and only say where it goes: reshape, transpose, reverse.

All are linear and one to one, so the transpose of each is its inverse, an op of the same class.
Lowering is index arithmetic, and no data moves unless a kernel has to be cut there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.errors import ArgumentValueError, ShapeError
from stax.extent import Dimension, Extent, product, same_shape
from stax.op import Batch
from stax.operators.broadcast import LinearOp, is_one, move
from stax.trace import Proxy, is_array, type_of
from stax.types import ArrayType, Shape, canonical_axes, canonical_axis, canonical_shape, lengths


def unchanged(x: Any, shape: Shape) -> bool:
    """Say whether `x` is an array of the library that has `shape` already."""
    return is_array(x) and same_shape(type_of(x).shape, shape)


@dataclass(frozen=True, eq=False)
class Reshape(LinearOp):
    """The elements in row-major order, in another shape."""

    shape: Shape
    name: ClassVar[str] = "reshape"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if not same_shape((product(x.shape),), (product(self.shape),)):
            raise ShapeError(
                f"reshape: {x} has {product(x.shape)} elements, and {self.shape} has "
                f"{product(self.shape)}.",
                advice="A reshape keeps every element; one length may be -1, for what is left.",
            )
        return x.with_shape(self.shape)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0].reshape(self.shape)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (reshape(ct, inputs[0].type.shape),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return reshape(inputs[0], (batch.size, *self.shape))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        zero = kernel.extent(0)
        places = [zero] * x.type.ndim
        for ours, theirs in _groups(self.shape, x.type.shape):
            flat = _flatten(kernel, [(index[a], self.shape[a]) for a in ours])
            lengths = [x.type.shape[a] for a in theirs]
            for a, place in zip(theirs, _unflatten(kernel, flat, lengths), strict=True):
                places[a] = place
        return x(tuple(places))


def _groups(shape: Shape, other: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Cut two shapes of one size into the shortest runs of axes that have one size.

    Axes of length 1 belong to no run.  An axis that is kept is a run by itself, so its index passes
    through; only axes that are merged or split take divisions.
    """
    ours = [a for a, extent in enumerate(shape) if not is_one(extent)]
    theirs = [a for a, extent in enumerate(other) if not is_one(extent)]
    ends = {product(tuple(other[a] for a in theirs[: j + 1])): j + 1 for j in range(len(theirs))}
    i = j = 0
    for end in range(1, len(ours) + 1):
        found = ends.get(product(tuple(shape[a] for a in ours[:end])))
        if found is not None and found > j:
            yield ours[i:end], theirs[j:found]
            i, j = end, found


def _flatten(kernel: Any, axes: Sequence[tuple[Any, Dimension]]) -> Any:
    """Return the row-major position of an index, given as pairs of index and length."""
    flat = axes[0][0]
    for place, extent in axes[1:]:
        flat = kernel.plus(kernel.times(flat, kernel.extent(extent)), place)
    return flat


def _unflatten(kernel: Any, flat: Any, lengths: Sequence[Dimension]) -> list[Any]:
    """Return the index along axes of `lengths` of a row-major position."""
    places = []
    for extent in reversed(lengths[1:]):
        places.append(kernel.modulo(flat, kernel.extent(extent)))
        flat = kernel.over(flat, kernel.extent(extent))
    return [flat, *reversed(places)]


def reshape(x: Any, shape: Any) -> Any:
    """Return the elements of `x` in row-major order in `shape`; one length may be -1."""
    given = lengths(shape)
    open_axes = [i for i, s in enumerate(given) if not isinstance(s, Extent) and s == -1]
    if len(open_axes) > 1:
        raise ShapeError(
            f"reshape: only one length of {given} may be -1.",
            advice="Write out the other lengths.",
        )
    if open_axes:
        rest = product(canonical_shape([s for i, s in enumerate(given) if i not in open_axes]))
        length = _open_length(product(type_of(x).shape), rest, given)
        given = tuple(length if i in open_axes else s for i, s in enumerate(given))
    wanted = canonical_shape(given)
    return x if unchanged(x, wanted) else move(Reshape(wanted), x)


def _open_length(size: Dimension, rest: Dimension, given: tuple[Any, ...]) -> Dimension:
    """Return the length for -1, where the other lengths have the product `rest`."""
    if isinstance(size, Extent):
        return size // rest
    if not isinstance(rest, int) or rest == 0 or size % rest:
        raise ShapeError(
            f"reshape: {size} elements do not fill {given}.",
            advice="The other lengths must divide the number of elements.",
        )
    return size // rest


def expand_dims(x: Any, axes: int | Sequence[int]) -> Any:
    """Return `x` with axes of length 1 at the positions `axes` of the result."""
    count = 1 if isinstance(axes, int | np.integer) else len(axes)
    shape = list(type_of(x).shape)
    for a in canonical_axes(axes, len(shape) + count):
        shape.insert(a, 1)
    return reshape(x, shape)


def squeeze(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return `x` without `axes`, which have length 1; None means all such axes."""
    shape = type_of(x).shape
    if axes is None:
        axes = [a for a, extent in enumerate(shape) if is_one(extent)]
    gone = canonical_axes(axes, len(shape))
    if not all(is_one(shape[a]) for a in gone):
        raise ArgumentValueError(
            f"squeeze: axes {gone} of {type_of(x)} do not all have length 1.",
            advice="Only axes of length 1 can be dropped; index the others.",
        )
    return reshape(x, tuple(extent for a, extent in enumerate(shape) if a not in gone))


@dataclass(frozen=True, eq=False)
class Transpose(LinearOp):
    """Axis `i` of the result is axis `permutation[i]` of the operand."""

    permutation: tuple[int, ...]
    name: ClassVar[str] = "transpose"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if sorted(self.permutation) != list(range(x.ndim)):
            raise ShapeError(
                f"transpose: {self.permutation} does not permute the axes of {x}.",
                advice="Name each axis once, in the order wanted.",
            )
        return x.with_shape(tuple(x.shape[a] for a in self.permutation))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.transpose(arrays[0], self.permutation)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (transpose(ct, [self.permutation.index(a) for a in range(len(self.permutation))]),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return transpose(inputs[0], (0, *(a + 1 for a in self.permutation)))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        places = dict(zip(self.permutation, index, strict=True))
        return operands[0](tuple(places[a] for a in range(len(places))))


def transpose(x: Any, permutation: Sequence[int] | None = None) -> Any:
    """Return `x` with its axes permuted; None reverses them."""
    ndim = type_of(x).ndim
    given = range(ndim)[::-1] if permutation is None else permutation
    axes = tuple(canonical_axis(a, ndim) for a in given)
    return x if is_array(x) and axes == tuple(range(ndim)) else move(Transpose(axes), x)


def move_axis(x: Any, source: int, destination: int) -> Any:
    """Return `x` with axis `source` at position `destination`, the others in order."""
    ndim = type_of(x).ndim
    order = [a for a in range(ndim) if a != canonical_axis(source, ndim)]
    order.insert(canonical_axis(destination, ndim), canonical_axis(source, ndim))
    return transpose(x, order)


@dataclass(frozen=True, eq=False)
class Rev(LinearOp):
    """The elements in reverse order along `axes`."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "rev"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if not set(self.axes) <= set(range(x.ndim)):
            raise ShapeError(f"rev: axes {self.axes} are out of range for {x}.")
        return x

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.flip(arrays[0], self.axes)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (rev(ct, self.axes),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return rev(inputs[0], [a + 1 for a in self.axes])

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        places = list(index)
        for a in self.axes:
            places[a] = kernel.minus(kernel.extent(x.type.shape[a] - 1), index[a])
        return x(tuple(places))


def rev(x: Any, axes: int | Sequence[int]) -> Any:
    """Return `x` with the order of its elements reversed along `axes`."""
    where = canonical_axes(axes, type_of(x).ndim)
    return x if not where and is_array(x) else move(Rev(where), x)
