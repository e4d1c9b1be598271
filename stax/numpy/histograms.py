"""Histograms of points in two and more dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stax.errors import ArgumentValueError
from stax.numpy.arguments import array, inexact, inexact_operands
from stax.numpy.joining import stack
from stax.numpy.reductions import sum as sum_of
from stax.numpy.sorting import searchsorted
from stax.numpy.statistics import bincount, diff, histogram_bin_edges
from stax.operators import elementwise as ops
from stax.operators.arithmetic import divide
from stax.operators.elementwise import convert, like, select
from stax.operators.reshape import reshape
from stax.operators.shape import broadcast_in_dim, broadcast_to, slice_in_dim
from stax.types import is_index


def histogramdd(
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, list[Any]]:
    """Return how many points (rows of `sample`) each box holds, and the edges along each axis.

    `bins` is a number, or for each axis a number or edges; `range` has (low, high) or None for each
    axis.  `weights` are those of the points; `density` divides by the total and the volumes.
    """
    sample = inexact("histogramdd", sample)
    if weights is not None:
        weights = reshape(array("histogramdd", weights), (-1,))
    if sample.ndim != 2 or (weights is not None and weights.shape != sample.shape[:1]):
        raise ArgumentValueError(
            f"histogramdd: the sample {sample.type} is a matrix with a row and a weight "
            "for each point.",
            advice="Use histogram for numbers.",
        )
    ndim = sample.shape[1]
    parts = _for_each_axis("bins", bins, ndim) if not is_index(bins) else [bins] * ndim
    ranges = [None] * ndim if range is None else _for_each_axis("range", range, ndim)
    columns = [reshape(slice_in_dim(sample, i, i + 1, 1, 1), (-1,)) for i in _range(ndim)]
    edges = [
        histogram_bin_edges(column, part, limits)
        for column, part, limits in zip(columns, parts, ranges, strict=True)
    ]
    # One bin more at either end takes what is outside, and is cut off.
    shape = tuple(e.shape[0] + 1 for e in edges)
    flat: Any = None
    for column, edge, count in zip(columns, edges, shape, strict=True):
        place = _bin(column, edge)
        flat = place if flat is None else ops.add(ops.mul(flat, like(flat, count)), place)
    counts = reshape(bincount(flat, weights, length=math.prod(shape)), shape)
    for axis, count in enumerate(shape):
        counts = slice_in_dim(counts, 1, count - 1, axis=axis)
    return (_density(counts, edges, sample.dtype) if density else counts), edges


_range = range


def _for_each_axis(what: str, given: Any, ndim: int) -> list[Any]:
    found = list(given)
    if len(found) != ndim:
        raise ArgumentValueError(
            f"histogramdd: {what} has {len(found)} entries for {ndim} axes.",
            advice="Give one for each axis.",
        )
    return found


def _bin(x: Any, edges: Any) -> Any:
    """Return the number of the bin of each element, from 1; the last includes its upper edge."""
    place = searchsorted(edges, x, "right")
    last = broadcast_to(slice_in_dim(edges, edges.shape[0] - 1, None), x.shape)
    return select(ops.eq(x, last), ops.sub(place, like(place, 1)), place)


def _density(counts: Any, edges: Sequence[Any], dtype: Any) -> Any:
    """Return the share of the points in each box, by its volume."""
    counts = convert(counts, dtype)
    shares = divide(counts, sum_of(counts))
    for axis, edge in enumerate(edges):
        width = convert(diff(edge), dtype)
        shares = ops.div(shares, broadcast_in_dim(width, counts.shape, (axis,)))
    return shares


def histogram2d(
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    weights: Any = None,
    density: bool | None = None,
) -> tuple[Any, Any, Any]:
    """Return how many points with coordinates `x` and `y` each box holds, and the edges of both.

    `bins` is a number, edges for both axes, or a pair of a number or edges for each.
    """
    if not is_index(bins) and len(bins) not in (1, 2):
        bins = [bins, bins]
    sample = stack(inexact_operands("histogram2d", x, y), 1)
    counts, (first, second) = histogramdd(sample, bins, range, weights, density)
    return counts, first, second
