"""Arrays read at places between their elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.lax import round as rounded
from stax.numpy.arguments import array, sequence
from stax.operators.elementwise import convert

__all__ = ["map_coordinates"]


def _mirrored(places: Any, size: int) -> Any:
    """Return places in an array that is continued by its mirror image about the end elements."""
    period = max(2 * (size - 1), 1)
    places = snp.remainder(places, period)
    return snp.minimum(places, period - places)


def _reflected(places: Any, size: int) -> Any:
    """Return places in an array that is continued by its mirror image about the edges."""
    places = snp.remainder(places, 2 * size)
    return snp.minimum(places, 2 * size - 1 - places)


_MODES: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda places, size: places,
    "nearest": lambda places, size: snp.clip(places, 0, size - 1),
    "wrap": snp.remainder,
    "mirror": _mirrored,
    "reflect": _reflected,
}


def map_coordinates(
    input: Any, coordinates: Sequence[Any], order: int, mode: str = "constant", cval: Any = 0.0
) -> Any:
    """Return `input` at places that are given by a coordinate for each of its axes.

    `order` 0 takes the nearest element, 1 interpolates linearly between those around.  `mode` says
    what is outside: `cval` ("constant"), the nearest element, the same array again ("wrap"), or
    its mirror image about the end elements ("mirror") or about the edges ("reflect").  The type is
    that of `input`, not weak; integers are rounded.  Raises UnsupportedError for other orders and
    modes, ArgumentValueError where there are not as many coordinates as axes.
    """
    x = array("map_coordinates", input)
    places = sequence("map_coordinates", coordinates)
    if len(places) != x.ndim:
        raise ArgumentValueError(
            f"map_coordinates: {len(places)} coordinates for {x.type}.",
            advice="Give one array of coordinates for each axis.",
        )
    if mode not in _MODES:
        raise UnsupportedError(
            f"map_coordinates: mode {mode!r} is not supported.",
            advice=f"Modes are {', '.join(map(repr, _MODES))}.",
        )
    if order not in (0, 1):
        raise UnsupportedError(
            f"map_coordinates: order={order} is not supported.", advice="Orders are 0 and 1."
        )
    around = _nearest if order == 0 else _neighbours
    outside = snp.asarray(cval, x.dtype)
    total: Any = None
    for corner in itertools.product(*map(around, places)):
        value = _element(x, [index for index, _ in corner], mode, outside)
        weights = [weight for _, weight in corner if weight is not None]
        term = math.prod(weights[1:], start=weights[0]) * value if weights else value
        total = term if total is None else total + term
    if types.is_integer(x.dtype) and types.is_inexact(total.dtype):
        total = rounded(total)
    return convert(total, x.dtype)


def _nearest(place: Any) -> list[tuple[Any, Any]]:
    """Return the nearest index, halves away from zero, without a weight."""
    if types.is_inexact(place.dtype):
        place = rounded(place)
    return [(place.astype(types.int32), None)]


def _neighbours(place: Any) -> list[tuple[Any, Any]]:
    """Return both indices around a place, and how much each counts."""
    below = snp.floor(place)
    above = place - below
    index = below.astype(types.int32)
    return [(index, 1 - above), (index + 1, above)]


def _element(x: Any, indices: list[Any], mode: str, outside: Any) -> Any:
    """Return the elements at `indices`, brought inside or replaced as `mode` says."""
    if not indices:
        return x
    inside = [_MODES[mode](i, n) for i, n in zip(indices, x.shape, strict=True)]
    found = x.at[tuple(inside)].get(mode="clip")
    if mode != "constant":
        return found
    known = [(i >= 0) & (i < n) for i, n in zip(indices, x.shape, strict=True)]
    return snp.where(math.prod(known[1:], start=known[0]), found, outside)
