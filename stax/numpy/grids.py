"""Arrays written as indices: `mgrid[0:3, 0:4]`, `r_[0:5, 7, x]`.

>>> r_[0:3, 7]
Array([0, 1, 2, 7], dtype=int32)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stax.errors import ArgumentValueError
from stax.numpy.arguments import promoted
from stax.numpy.creation import arange, array, linspace, meshgrid
from stax.numpy.joining import concatenate, stack
from stax.numpy.manipulation import expand_dims, transpose

s_, index_exp = np.s_, np.index_exp


def _range(part: slice) -> Any:
    """Return what a slice counts; an imaginary step is a number of points, both ends included."""
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else part.step
    if isinstance(step, complex):
        return linspace(start, part.stop, int(abs(step)))
    return arange(start, part.stop, step)


class _Grid:
    """Coordinates of the points of a grid, one array for each slice; `sparse` ones broadcast."""

    def __init__(self, name: str, sparse: bool) -> None:
        self._name, self._sparse = name, sparse

    def __repr__(self) -> str:
        return f"stax.numpy.{self._name}"

    def __getitem__(self, key: slice | tuple[slice, ...]) -> Any:
        if isinstance(key, slice):
            return _range(key)
        if not key:
            return [] if self._sparse else arange(0)
        vectors = promoted(self._name, [_range(part) for part in key])
        axes = meshgrid(*vectors, indexing="ij", sparse=self._sparse)
        return axes if self._sparse else stack(axes)


class _Joined:
    """Slices, numbers and arrays joined along an axis.

    A string in front says how: "axis,ndmin,place of the own axis", or "r" and "c" for a matrix of
    one row or column.
    """

    def __init__(self, name: str, axis: int, ndmin: int, place: int) -> None:
        self._name, self._defaults = name, [axis, ndmin, place]

    def __repr__(self) -> str:
        return f"stax.numpy.{self._name}"

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        (axis, ndmin, place), matrix = self._defaults, None
        if isinstance(items[0], str):
            axis, ndmin, place, matrix = self._directive(items[0])
            items = items[1:]
        joined = concatenate([_part(item, ndmin, place) for item in items], axis)
        return expand_dims(joined, matrix) if matrix is not None and joined.ndim == 1 else joined

    def _directive(self, text: str) -> tuple[int, int, int, int | None]:
        if text in ("r", "c"):
            axis, ndmin, place = self._defaults
            return axis, ndmin, place, "rc".index(text)
        try:
            given = [int(word) for word in text.split(",")][:3]
        except ValueError:
            raise ArgumentValueError(
                f"{self._name}: the directive {text!r} is not understood.",
                advice="Write 'axis,ndmin,place', 'r' or 'c'.",
            ) from None
        axis, ndmin, place = given + self._defaults[len(given) :]
        return axis, ndmin, place, None


def _part(item: Any, ndmin: int, place: int) -> Any:
    """Return an entry with at least `ndmin` axes, its own put at `place` among them."""
    if isinstance(item, str):
        raise ArgumentValueError(
            f"the directive {item!r} must be the first entry.", advice="Write r_['0,2', x, y]."
        )
    value = _range(item) if isinstance(item, slice) else array(item)
    own = 0 if isinstance(item, slice) else value.ndim
    whole = array(value, ndmin=ndmin)
    if place == -1 or ndmin <= own:
        return whole
    shift = ndmin - abs(ndmin + place + 1) % ndmin
    order = list(range(ndmin))
    return transpose(whole, order[shift:] + order[:shift])


mgrid, ogrid = _Grid("mgrid", sparse=False), _Grid("ogrid", sparse=True)
r_, c_ = _Joined("r_", 0, 1, -1), _Joined("c_", -1, 2, 0)
