"""Reading a NumPy index: what `x[index]` names, before anything is read or written.

An index is parsed into one entry for each axis: a *range* (a slice), or a *pick* (an integer or an
array of them); and into the order of the axes of the result, among them the new ones of `None`.
A mask stands for arrays of the positions where it holds, so it must be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stax import types
from stax.array import Array, asarray
from stax.errors import (
    ArgumentError,
    ArgumentValueError,
    IndexingError,
    NonConcreteBooleanIndexError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)
from stax.extent import Dimension, Extent, same_shape
from stax.operators.shape import expand_dims
from stax.trace import current_trace, is_array
from stax.types import Shape

_INDICES = "Indices are integers, slices, '...', None, and arrays of integers or bool."


@dataclass(frozen=True, eq=False, slots=True)
class Range:
    """Positions `start`, `start + stride`, ... below `limit` of an axis, or those backwards."""

    start: Dimension
    limit: Dimension
    stride: int
    backwards: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Pick:
    """One position of an axis, or an array of them; negative ones count from the end."""

    place: Any

    @property
    def known(self) -> bool:
        """Whether it is an integer that is part of the program."""
        return isinstance(self.place, int)

    @property
    def ndim(self) -> int:
        return 0 if self.known else self.place.ndim


class Parsed(NamedTuple):
    """An index, completed: `axes` has an entry for each axis of the array.

    `order` says what the axes of the result are: an axis of the array with a range, `NEW` for a new
    one, or `PICKED` for those of the arrays, which come where NumPy puts them.  Negative picks
    count from the end where the index `wraps`; elsewhere they are out of bounds.  The picks are
    `distinct` if they are known to name no element twice, those of one mask say.
    """

    axes: list[Range | Pick]
    order: list[Any]
    wraps: bool = True
    distinct: bool = False


NEW, PICKED = "new", "picked"


def parse(x: Any, index: Any, wraps: bool = True) -> tuple[Any, Parsed]:
    """Return the parsed index, and `x` with an axis for each single truth value in the index."""
    groups = [_expand(part) for part in _items(index)]
    items = [item for group in groups for item in group]
    many = [group for group in groups if any(map(_is_many, group))]
    distinct = len(many) < 2 and all(isinstance(i, _Mask) for group in many for i in group)
    consumed = sum(not (item is None or item is Ellipsis) for item in items)
    truths = sum(isinstance(item, _Truth) for item in items)
    room = x.ndim - (consumed - truths)
    if room < 0:
        raise IndexingError(
            f"too many indices: {x.type} has {x.ndim} axes, {consumed - truths} are indexed.",
            advice="Each index but None and '...' takes an axis.",
        )
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(dots) > 1:
        raise IndexingError(
            "an index can have one ellipsis ('...'), not more.",
            advice="Write ':' for the other axes.",
        )
    picks = [i for i, item in enumerate(items) if _is_pick(item)]
    together = not picks or picks[-1] - picks[0] == len(picks) - 1
    at = dots[0] if dots else len(items)
    items[at : at + 1] = [slice(None)] * room
    entries = [item for item in items if item is not None]
    new = tuple(a for a, item in enumerate(entries) if isinstance(item, _Truth))
    x = expand_dims(x, new) if new else x
    return x, _complete(items, x.shape, together)._replace(wraps=wraps, distinct=distinct)


def _is_many(item: Any) -> bool:
    """Say whether an item of an index stands for an array of positions."""
    return isinstance(item, _Mask) or (hasattr(item, "ndim") and item.ndim > 0)


def _is_pick(item: Any) -> bool:
    return not (item is None or item is Ellipsis or isinstance(item, slice))


def _complete(items: Sequence[Any], shape: Shape, together: bool) -> Parsed:
    axes: list[Range | Pick] = []
    order: list[Any] = []
    for item in items:
        if item is None:
            order.append(NEW)
        elif isinstance(item, slice):
            order.append(len(axes))
            axes.append(_range(item, shape[len(axes)]))
        else:
            if PICKED not in order:
                order.insert(len(order) if together else 0, PICKED)
            axes.append(Pick(_place(item, shape, len(axes))))
    return Parsed(axes, order)


def _place(item: Any, shape: Shape, axis: int) -> Any:
    """Return the positions of an item along an axis, having checked that a mask fits there."""
    if isinstance(item, _Truth):
        return np.arange(int(item.value))
    if not isinstance(item, _Mask):
        return item
    if not same_shape((item.length,), (shape[axis],)):
        raise IndexingError(
            "a mask must have the shape of what it indexes: its axis of length "
            f"{item.length} meets axis {axis} of {shape}.",
            advice="Broadcast the mask first, or index the axis that it is for.",
        )
    return item.positions


@dataclass(frozen=True, slots=True)
class _Truth:
    """A single truth value in an index: a new axis, of length 1 or 0."""

    value: bool


def _items(index: Any) -> tuple[Any, ...]:
    if isinstance(index, list):
        raise ArgumentError(
            "a list is not an index: NumPy reads it sometimes as an array, sometimes as a tuple.",
            advice="Write x[asarray(index)] or x[tuple(index)].",
        )
    return index if isinstance(index, tuple) else (index,)


def _expand(item: Any) -> list[Any]:
    """Return one item of an index as what it stands for; a mask stands for arrays of positions."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return [item]
    if isinstance(item, bool | np.bool_):
        return [_Truth(bool(item))]
    if isinstance(item, int | np.integer):
        return [int(item)]
    if isinstance(item, list | tuple):
        item = asarray(item, types.int32) if not len(item) else asarray(item)
    if not is_array(item) and hasattr(item, "__jax_array__"):
        item = asarray(item)
    if not is_array(item) and not isinstance(item, np.ndarray):
        raise _not_an_index(item)
    if type(item) is Array and current_trace() is None:
        item = np.asarray(item)
    if types.is_bool(item.dtype):
        return _positions(item)
    if not types.is_integer(item.dtype):
        raise ArgumentError(f"an index must be integer or bool, not {item.dtype}.", advice=_INDICES)
    return [int(item)] if isinstance(item, np.ndarray) and not item.ndim else [item]


def _not_an_index(item: Any) -> Exception:
    if isinstance(item, str | float | complex | np.generic):
        kind = type(item).__name__
        return ArgumentError(f"an index must be integer or bool, not {kind}.", advice=_INDICES)
    return IndexingError(f"{item!r} is not an index.", advice=_INDICES)


class _Mask(NamedTuple):
    """The positions along one axis where a mask of several axes holds."""

    positions: np.ndarray
    length: int


def _positions(mask: Any) -> list[Any]:
    try:
        known = np.asarray(mask)
    except TracerArrayConversionError as error:
        raise NonConcreteBooleanIndexError(
            "a mask as an index must be known while tracing: it sets the shape of the result.",
            values=error.values or [("mask", repr(mask.type), "")],
            doing=error.doing,
            advice="Use where(mask, a, b), or nonzero(mask, size=...) for a number of places.",
        ) from None
    if not known.ndim:
        return [_Truth(bool(known))]
    return [_Mask(p, n) for p, n in zip(np.nonzero(known), known.shape, strict=True)]


def _range(part: slice, n: Dimension) -> Range:
    start, stop, step = _static(part.start), _static(part.stop), _static(part.step)
    if isinstance(step, int) and step == 0:
        raise ArgumentValueError(
            "the step of a slice cannot be zero.", advice="A step of 1 takes every element."
        )
    if isinstance(n, Extent):
        return _symbolic_range(start, stop, step, n)
    start, stop, step = slice(start, stop, step).indices(n)
    count = len(range(start, stop, step))
    if step > 0:
        return Range(start, max(start, stop), step)
    if not count:
        return Range(0, 0, 1)
    return Range(start + (count - 1) * step, start + 1, -step, True)


def _symbolic_range(start: Any, stop: Any, step: Any, n: Extent) -> Range:
    """Return a range of an axis of symbolic length; raises where its ends cannot be decided."""
    if step not in (None, 1) and (start, stop) != (None, None):
        raise IndexingError(
            f"a slice with a step needs an axis of known length, not {n}.",
            advice="Slice first, then step: x[a:b][::step].",
        )
    if step is not None and step < 0:
        return Range(0, n, -step, True)
    begin = _symbolic_end(0 if start is None else start, n)
    end = _symbolic_end(n if stop is None else stop, n)
    return Range(begin, begin if begin > end else end, step or 1)


def _symbolic_end(place: Any, n: Extent) -> Dimension:
    if isinstance(place, int) and place < 0:
        place = n + place
        return 0 if place < 0 else place
    return place if isinstance(place, Extent) and place == n else (n if place > n else place)


def _static(bound: Any) -> Any:
    """Return an end of a slice as an integer; a traced one has no place there."""
    if bound is None or isinstance(bound, int | Extent):
        return bound
    try:
        return bound.__index__()
    except AttributeError:
        raise ArgumentError(
            f"the ends of a slice are integers, not {bound!r}.", advice="Convert them with int()."
        ) from None
    except TracerIntegerConversionError as error:
        raise IndexingError(
            "the ends of a slice must be known while tracing: they set the shape of the result.",
            values=error.values,
            doing=error.doing,
            advice="Use lax.dynamic_slice(x, starts, sizes), or mark the ends with static_argnums.",
        ) from None
