"""`jax.lax`'s functions of whole arrays: shapes, slices, products.

Nearly all hand their checked arguments to the op of the same name in `stax.operators`.
"""

from __future__ import annotations

import builtins
import enum
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import IndexingError, ShapeError
from stax.extent import product
from stax.numpy import creation, joining
from stax.numpy.arguments import array, arrays
from stax.operators import contract, dynamic, reshape as shapes, shape as moves
from stax.operators.elementwise import convert
from stax.types import canonical_axis, canonical_shape, promote

_LARGEST = np.iinfo(types.int32).max

# --- shapes ---


def broadcast(operand: Any, sizes: Sequence[Any]) -> Any:
    """Return `operand` repeated along new leading axes of lengths `sizes`."""
    x = array("broadcast", operand)
    shape = (*canonical_shape(sizes), *x.shape)
    return moves.broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))


def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Sequence[int]) -> Any:
    """Return `operand` in `shape`, its axis `i` at axis `broadcast_dimensions[i]`."""
    return moves.broadcast_in_dim(array("broadcast_in_dim", operand), shape, broadcast_dimensions)


def broadcast_shapes(*shapes: Any) -> tuple[Any, ...]:
    """Return the shape to which arrays of `shapes` broadcast."""
    return types.broadcast_shapes(*(canonical_shape(s) for s in shapes))


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """Return `x` with axes of length 1 in front, so that it has `rank` axes."""
    x = array("broadcast_to_rank", x)
    return shapes.expand_dims(x, range(rank - x.ndim)) if rank > x.ndim else x


def reshape(operand: Any, new_sizes: Any, dimensions: Sequence[int] | None = None) -> Any:
    """Return the elements in `new_sizes`, read in the order of axes `dimensions` if given."""
    x = array("reshape", operand)
    x = x if dimensions is None else shapes.transpose(x, dimensions)
    return shapes.reshape(x, new_sizes)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Any:
    """Return `operand` with the axes from `start_dimension` to `stop_dimension` merged into one."""
    x = array("collapse", operand)
    start, stop, _ = builtins.slice(start_dimension, stop_dimension).indices(x.ndim)
    merged = product(x.shape[start:stop])
    return shapes.reshape(x, (*x.shape[:start], merged, *x.shape[stop:]))


def transpose(operand: Any, permutation: Sequence[int]) -> Any:
    """Return `operand` with its axes permuted."""
    return shapes.transpose(array("transpose", operand), permutation)


def expand_dims(array: Any, dimensions: Sequence[int]) -> Any:
    """Return `array` with axes of length 1 at `dimensions` of the result."""
    return shapes.expand_dims(asarray(array), tuple(dimensions))


def squeeze(array: Any, dimensions: Sequence[int]) -> Any:
    """Return `array` without `dimensions`, which have length 1."""
    return shapes.squeeze(asarray(array), tuple(dimensions))


def rev(operand: Any, dimensions: Sequence[int]) -> Any:
    """Return `operand` with the elements along `dimensions` in reverse order."""
    return shapes.rev(array("rev", operand), tuple(dimensions))


def concatenate(operands: Sequence[Any], dimension: int) -> Any:
    """Return `operands`, which have one dtype, one after the other along `dimension`."""
    return moves.concatenate(arrays("concatenate", *operands), dimension)


def split(operand: Any, sizes: Sequence[Any], axis: int = 0) -> tuple[Any, ...]:
    """Return `operand` cut along `axis` into parts of lengths `sizes`."""
    x, start, parts = array("split", operand), 0, []
    where = canonical_axis(axis, x.ndim)
    for size in sizes:
        parts.append(moves.slice_in_dim(x, start, start + size, 1, where))
        start += size
    if start != x.shape[where]:
        raise ShapeError(
            f"split: parts of {tuple(sizes)} do not make axis {axis} of {x.type}.",
            advice="The sizes must add up to the length of the axis.",
        )
    return tuple(parts)


def pad(operand: Any, padding_value: Any, padding_config: Sequence[Any]) -> Any:
    """Return `operand` padded by `(low, high, interior)` for each axis; low, high may cut."""
    x = array("pad", operand)
    value = array("pad", padding_value)
    dtype, weak = promote(x.type, value.type)
    return moves.pad(convert(x, dtype, weak), convert(value, dtype, weak), padding_config)


def iota(dtype: Any, size: Any) -> Any:
    """Return 0, 1, ... `size - 1`."""
    return moves.iota(dtype, (size,))


def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Any:
    """Return an array of `shape` that counts along `dimension`."""
    return moves.iota(dtype, shape, dimension)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Return an array of `shape` filled with a number."""
    return creation.full(shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """Return an array filled with a number, of the shape and dtype of `x` unless given."""
    return creation.full_like(x, fill_value, dtype, shape)


def tile(operand: Any, reps: Sequence[int]) -> Any:
    """Return `operand` repeated as a whole along its axes."""
    return joining.tile(operand, reps)


def stack(operands: Sequence[Any], axis: int = 0) -> Any:
    """Return `operands`, all of one shape, along a new axis."""
    return joining.stack(operands, axis)


def unstack(x: Any, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of `x` along `axis`, without that axis."""
    return joining.unstack(x, axis=axis)


def broadcast_like(arr: Any, like_arr: Any) -> Any:
    """Return `arr` repeated to the shape of `like_arr`."""
    return moves.broadcast_to(array("broadcast_like", arr), array("broadcast_like", like_arr).shape)


def empty(shape: Any, dtype: Any) -> Any:
    """Return an array of zeros: there is no uninitialised memory to see."""
    return creation.zeros(shape, dtype)


def shape_as_value(shape: Any) -> Any:
    """Return a shape, whose lengths may be symbolic, as an array of integers."""
    sizes = canonical_shape(shape)
    dtype = types.int32
    if any(isinstance(n, int) and n > _LARGEST for n in sizes):
        dtype = types.int64
    if all(isinstance(n, int) for n in sizes):
        return asarray(np.asarray(sizes, dtype))
    lengths = [convert(shapes.reshape(asarray(n), (1,)), dtype) for n in sizes]
    return moves.concatenate(lengths, 0)


# --- slices ---


def slice(
    operand: Any,
    start_indices: Sequence[Any],
    limit_indices: Sequence[Any],
    strides: Sequence[int] | None = None,
) -> Any:
    """Return the elements from `start_indices` up to `limit_indices`, within bounds."""
    return moves.slice_(array("slice", operand), start_indices, limit_indices, strides)


def slice_in_dim(
    operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0
) -> Any:
    """Return `operand` with one axis sliced, as Python slices do."""
    x = array("slice_in_dim", operand)
    where = canonical_axis(axis, x.ndim)
    length = x.shape[where]
    if isinstance(length, int):
        start, limit, _ = builtins.slice(start_index, limit_index).indices(length)
        return moves.slice_in_dim(x, start, max(start, limit), stride, where)
    return moves.slice_in_dim(x, start_index or 0, limit_index, stride, where)


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Any:
    """Return the slice of `operand` at `index` along `axis`."""
    x = array("index_in_dim", operand)
    where = canonical_axis(axis, x.ndim)
    length = x.shape[where]
    if not -length <= index < length:
        raise IndexingError(
            f"index_in_dim: index {index} is out of bounds for axis {axis} of length {length}.",
            advice="Use dynamic_index_in_dim for an index that is moved inside.",
        )
    place = index % length
    found = moves.slice_in_dim(x, place, place + 1, 1, where)
    return found if keepdims else shapes.squeeze(found, where)


def _starts(x: Any, start: Any, axis: int) -> list[Any]:
    starts: list[Any] = [0] * x.ndim
    starts[axis] = _start(start)
    return starts


def _start(start: Any) -> Any:
    return start if isinstance(start, int) else asarray(start)


def dynamic_slice(
    operand: Any,
    start_indices: Any,
    slice_sizes: Sequence[Any],
    *,
    allow_negative_indices: Any = True,
) -> Any:
    """Return the part of shape `slice_sizes` at `start_indices`, moved so that it lies within.

    Negative starts count from the end where `allow_negative_indices` (one truth, or one for each
    axis).  Elsewhere known ones raise, and with traced ones the part is at the beginning.
    """
    x = array("dynamic_slice", operand)
    starts = [_start(s) for s in start_indices]
    return dynamic.dynamic_slice(x, starts, slice_sizes, allow_negative_indices)


def dynamic_slice_in_dim(
    operand: Any,
    start_index: Any,
    slice_size: Any,
    axis: int = 0,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """Return `slice_size` elements from `start_index` along `axis`."""
    x = array("dynamic_slice_in_dim", operand)
    where = canonical_axis(axis, x.ndim)
    sizes = [slice_size if i == where else n for i, n in enumerate(x.shape)]
    return dynamic.dynamic_slice(x, _starts(x, start_index, where), sizes, allow_negative_indices)


def dynamic_index_in_dim(
    operand: Any,
    index: Any,
    axis: int = 0,
    keepdims: bool = True,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """Return the slice at `index`, which may be traced, along `axis`."""
    found = dynamic_slice_in_dim(
        operand, index, 1, axis, allow_negative_indices=allow_negative_indices
    )
    return found if keepdims else shapes.squeeze(found, axis)


def dynamic_update_slice(
    operand: Any, update: Any, start_indices: Any, *, allow_negative_indices: Any = True
) -> Any:
    """Return `operand` with the part at `start_indices` replaced by `update`."""
    x, new = arrays("dynamic_update_slice", operand, update)
    new = convert(new, x.dtype, x.weak_type) if new.weak_type else new
    starts = [_start(s) for s in start_indices]
    return dynamic.dynamic_update_slice(x, new, starts, allow_negative_indices)


def dynamic_update_slice_in_dim(
    operand: Any,
    update: Any,
    start_index: Any,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """Return `operand` with the part from `start_index` along `axis` replaced by `update`."""
    x = array("dynamic_update_slice_in_dim", operand)
    starts = _starts(x, start_index, canonical_axis(axis, x.ndim))
    return dynamic_update_slice(x, update, starts, allow_negative_indices=allow_negative_indices)


def dynamic_update_index_in_dim(
    operand: Any,
    update: Any,
    index: Any,
    axis: int,
    *,
    allow_negative_indices: bool = True,
) -> Any:
    """Return `operand` with the slice at `index` along `axis` replaced by `update`."""
    x, new = arrays("dynamic_update_index_in_dim", operand, update)
    if new.ndim != x.ndim:
        new = shapes.expand_dims(new, canonical_axis(axis, x.ndim))
    return dynamic_update_slice_in_dim(
        x, new, index, axis, allow_negative_indices=allow_negative_indices
    )


# --- products ---


class Precision(enum.Enum):
    """How exact a product must be where a backend has fast inexact ones."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __str__(self) -> str:
        return self.name


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the product of vectors or matrices, or the general one if axes are named."""
    lhs, rhs = _operands_of_product(lhs, rhs)
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    if not (1 <= lhs.ndim <= 2 and 1 <= rhs.ndim <= 2):
        raise ShapeError(
            f"dot takes vectors and matrices, not {lhs.type} and {rhs.type}.",
            advice="Use dot_general, or stax.numpy.matmul for stacks of matrices.",
        )
    numbers = (((lhs.ndim - 1,), (0,)), ((), ()))
    return contract.dot_general(lhs, rhs, numbers, precision, preferred_element_type)


def _operands_of_product(lhs: Any, rhs: Any) -> list[Any]:
    """Return the operands of a product in one dtype."""
    found = arrays("dot", lhs, rhs)
    dtype, weak = promote(*(x.type for x in found))
    return [convert(x, dtype, weak) for x in found]


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the general product; `dimension_numbers` is (contracted, batch), pairs of axes."""
    lhs, rhs = _operands_of_product(lhs, rhs)
    return contract.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Return the products of matrices in the last two axes; the others are batch axes."""
    lhs, rhs = _operands_of_product(lhs, rhs)
    batch = tuple(range(lhs.ndim - 2))
    numbers = (((lhs.ndim - 1,), (rhs.ndim - 2,)), (batch, batch))
    return contract.dot_general(lhs, rhs, numbers, precision)
