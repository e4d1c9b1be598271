"""Functions that are known at the points of a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.numpy.arguments import array, arrays, inexact

__all__ = ["RegularGridInterpolator"]


class _Cell(NamedTuple):
    """Where points lie along one axis: the index below, how far from there to the next, 0 to 1."""

    below: Any
    share: Any

    def ends(self) -> list[tuple[Any, Any]]:
        """Return both indices, and how much each counts."""
        return [(self.below, 1 - self.share), (self.below + 1, self.share)]

    def nearest(self) -> Any:
        """Return the index that is nearer, the lower one of two."""
        return snp.where(self.share <= 0.5, self.below, self.below + 1)


class RegularGridInterpolator:
    """The function with `values` at the points of a grid, interpolated between them.

    `points` has a vector of increasing coordinates for each of the first axes of `values`; other
    axes are those of the function's result.  `method` is "linear" or "nearest".  Outside of the
    grid the function is `fill_value`, or goes on as at the edge if that is None.  Raises
    ArgumentValueError for other methods, for more coordinates than axes, and for a complex
    `fill_value` of real values; UnsupportedError for `bounds_error`.

    >>> import stax.numpy as snp
    >>> squares = RegularGridInterpolator([snp.arange(4.0)], snp.arange(4.0) ** 2)
    >>> squares(snp.array([[0.5], [2.0], [4.0]]))
    Array([0.5, 4. , nan], dtype=float32)
    """

    def __init__(
        self,
        points: Sequence[Any],
        values: Any,
        method: str = "linear",
        bounds_error: bool = False,
        fill_value: Any = math.nan,
    ) -> None:
        self.method = _known(method)
        if bounds_error:
            raise UnsupportedError(
                "RegularGridInterpolator: bounds_error=True is not supported.",
                advice="Compare the points yourself, or look for fill_value in the result.",
            )
        self.bounds_error = bounds_error
        self.values = inexact("RegularGridInterpolator", values)
        self.grid = tuple(arrays("RegularGridInterpolator", *points))
        if len(self.grid) > self.values.ndim:
            raise ArgumentValueError(
                f"RegularGridInterpolator: {len(self.grid)} coordinates for {self.values.type}.",
                advice="Give one vector of coordinates for each axis, or for the first ones.",
            )
        if fill_value is not None:
            fill_value = array("RegularGridInterpolator", fill_value)
            if types.is_complex(fill_value.dtype) and not types.is_complex(self.values.dtype):
                raise ArgumentValueError(
                    f"RegularGridInterpolator: fill_value {fill_value.type} for "
                    f"{self.values.type}.",
                    advice="Pass a real number, or None to extrapolate.",
                )
        self.fill_value = fill_value

    def __call__(self, xi: Any, method: str | None = None) -> Any:
        """Return the values at points: an array of them, or a tuple with each coordinate."""
        method = self.method if method is None else _known(method)
        points = self._points(xi)
        coordinates = [points[..., i] for i in range(len(self.grid))]
        cells = [_cell(x, g) for x, g in zip(coordinates, self.grid, strict=True)]
        if method == "nearest":
            out = self.values[tuple(cell.nearest() for cell in cells)]
        else:
            out = self._linear(cells)
        if self.fill_value is None:
            return out
        outside = snp.zeros(points.shape[:-1], bool)
        for x, g in zip(coordinates, self.grid, strict=True):
            outside = outside | (x < g[0]) | (x > g[-1])
        outside = outside.reshape(outside.shape + (1,) * (out.ndim - outside.ndim))
        return snp.where(outside, snp.asarray(self.fill_value, out.dtype), out)

    def _points(self, xi: Any) -> Any:
        """Return points with their coordinates in the last axis."""
        if isinstance(xi, tuple) and len(xi) == 1:
            xi = xi[0]
        if isinstance(xi, tuple):
            points = snp.stack(snp.broadcast_arrays(*xi), -1)
        else:
            points = array("RegularGridInterpolator", xi)
            if points.ndim < 2:
                points = points.reshape(-1, len(self.grid))
        if points.shape[-1] != len(self.grid):
            raise ArgumentValueError(
                f"RegularGridInterpolator: points {points.type} on a grid of {len(self.grid)} "
                "axes.",
                advice="The last axis has one coordinate for each axis of the grid.",
            )
        return points

    def _linear(self, cells: list[_Cell]) -> Any:
        """Return the sum over the corners of each cell."""
        total: Any = snp.zeros(())
        trailing = (...,) + (None,) * (self.values.ndim - len(cells))
        for corner in itertools.product(*(cell.ends() for cell in cells)):
            weight = math.prod((share for _, share in corner), start=snp.ones(()))
            total = total + self.values[tuple(i for i, _ in corner)] * weight[trailing]
        return total


def _cell(x: Any, grid: Any) -> _Cell:
    below = snp.clip(snp.searchsorted(grid, x) - 1, 0, grid.shape[0] - 2)
    start = grid[below]
    return _Cell(below, (x - start) / (grid[below + 1] - start))


def _known(method: str) -> str:
    if method not in ("linear", "nearest"):
        raise ArgumentValueError(
            f"RegularGridInterpolator: there is no method {method!r}.",
            advice="Methods are 'linear' and 'nearest'.",
        )
    return method
