"""Updates where a traced mask holds: `x.at[mask].set(values)` under jit.

How many places a traced mask names is unknown, but values that are the same for all of them need no
number: the update is a select.  The mask may stand among slices and single integers; with arrays of
positions, or values for each place, the index has to be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.errors import IndexingError
from stax.extent import same_shape
from stax.operators.broadcast import is_one
from stax.operators.reshape import reshape
from stax.trace import Proxy, is_array
from stax.types import Shape


def masked_item(items: Sequence[Any]) -> int | None:
    """Return where in an index its one traced mask is, if the rest of it names no arrays."""
    masks = [i for i, item in enumerate(items) if _is_traced_mask(item)]
    others = [item for i, item in enumerate(items) if i not in masks]
    return masks[0] if len(masks) == 1 and all(map(_is_basic, others)) else None


def _is_traced_mask(item: Any) -> bool:
    return type(item) is Proxy and types.is_bool(item.dtype) and item.ndim > 0


def _is_single(item: Any) -> bool:
    """Say whether an item of an index is one integer."""
    if is_array(item) or isinstance(item, np.ndarray):
        return not item.ndim and types.is_integer(item.dtype)
    return isinstance(item, int | np.integer) and not isinstance(item, bool)


def _is_basic(item: Any) -> bool:
    return item is None or item is Ellipsis or isinstance(item, slice) or _is_single(item)


def masked_axis(items: Sequence[Any], at: int, ndim: int) -> int:
    """Return where the axes of the mask are in what the index reads of an array with `ndim` axes.

    The mask is read as slices, so that its axes stay.
    """
    axis = 0
    for item in items[:at]:
        if item is Ellipsis:
            taken = sum(not (i is None or i is Ellipsis) for i in items) - 1 + items[at].ndim
            axis += max(0, ndim - taken)
        elif not _is_single(item):
            axis += 1
    return axis


def check_mask(mask: Any, shape: Shape) -> None:
    """Raise unless a mask has the shape of the axes that it indexes."""
    if not same_shape(mask.shape, shape):
        raise IndexingError(
            f"a mask must have the shape of what it indexes: {mask.type} meets axes of {shape}.",
            advice="Broadcast the mask first, or index the axis that it is for.",
        )


def spread_values(values: Any, items: Sequence[Any], at: int, axis: int, ndim: int) -> Any:
    """Return values in the axes of what is read, of which there are `ndim`; the mask's have one.

    `axis` is where the axes of the mask are.  Returns None if the values differ from place to
    place.
    """
    count = items[at].ndim
    picks = [i for i, item in enumerate(items) if i == at or _is_single(item)]
    together = picks[-1] - picks[0] == len(picks) - 1
    rank = ndim - count + 1  # NumPy has one axis for all places, in front if picks are apart
    place = (axis if together else 0) - (rank - values.ndim)
    if values.ndim > rank or (place >= 0 and not is_one(values.shape[place])):
        return None
    rest = [n for i, n in enumerate(values.shape) if i != place]
    full = [*(1 for _ in range(rank - 1 - len(rest))), *rest]
    return reshape(values, (*full[:axis], *(1 for _ in range(count)), *full[axis:]))
