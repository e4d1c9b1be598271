"""Windows of a known size at a start that may be traced: `x[ds(start, size)]`.

A window is read before the rest of an index, which then has ':' in its place.

    >>> ds(1, 2)
    Slice(start=1, size=2, stride=1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError
from stax.numpy.taking import take
from stax.operators.arithmetic import add
from stax.operators.dynamic import dynamic_slice
from stax.trace import is_array, type_of


@dataclass(frozen=True, eq=False)
class Slice:
    """`size` positions from `start` on, `stride` apart; `start` may be traced."""

    start: Any
    size: int
    stride: int = 1


def ds(start: Any, size: Any = None, stride: int | None = None) -> slice | Slice:
    """Return an index for the `size` elements from `start` on: `x[ds(i, 3)]`.

    `ds(n)` is the first `n`, `ds(None)` all; a window that would reach past the end is moved back.
    Raises ArgumentValueError for a stride that is no integer.
    """
    if start is None:
        return slice(None)
    if stride is not None and not isinstance(stride, int):
        raise ArgumentValueError(
            "ds: the stride must be an integer that is known.",
            advice="Leave it out, or pass an int.",
        )
    first, count = (0, start) if size is None else (start, size)
    return Slice(first, count.__index__(), 1 if stride is None else stride)


def read_windows(x: Any, index: Any) -> tuple[Any, Any]:
    """Return the windows of an index read from `x`, and the index of what is left to read."""
    items = index if isinstance(index, tuple) else (index,)
    if not any(type(item) is Slice for item in items):
        return x, index
    for place, item in enumerate(items):
        if type(item) is Slice:
            x = _read(x, item, _axis(items, place, type_of(x).ndim))
    return x, tuple(slice(None) if type(item) is Slice else item for item in items)


def _axis(items: Sequence[Any], place: int, ndim: int) -> int:
    """Return the axis that an item of an index is for."""
    before = items[:place]
    if not any(item is Ellipsis for item in before):
        return sum(map(_consumed, before))
    return ndim - sum(map(_consumed, items[place:]))


def _consumed(item: Any) -> int:
    """Return how many axes an item of an index takes."""
    if item is None or item is Ellipsis or isinstance(item, bool | np.bool_):
        return 0
    is_mask = is_array(item) or isinstance(item, np.ndarray)
    return item.ndim if is_mask and types.is_bool(item.dtype) else 1


def _read(x: Any, window: Slice, axis: int) -> Any:
    shape = type_of(x).shape
    if window.stride == 1:
        starts = [window.start if a == axis else 0 for a in range(len(shape))]
        sizes = [window.size if a == axis else n for a, n in enumerate(shape)]
        return dynamic_slice(x, starts, sizes)
    steps = np.arange(window.size, dtype=np.int32) * window.stride
    return take(x, add(window.start, steps), axis, mode="clip")
