"""Signals without their trends."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable
from typing import Any

import numpy as np

import stax.numpy as snp
from stax.errors import ArgumentValueError, UnsupportedError
from stax.numpy.arguments import inexact
from stax.types import canonical_axis

__all__ = ["detrend"]


def detrend(
    data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: None = None
) -> Any:
    """Return `data` less the straight line ("linear") or the mean ("constant") nearest to it.

    A line is fitted, by least squares, between every two of the breakpoints `bp` along `axis`.
    Integers are taken as float32.  Raises ArgumentValueError for other types and for breakpoints
    outside of the data.
    """
    if overwrite_data is not None:
        raise UnsupportedError(
            "detrend: overwrite_data is not supported, because arrays are immutable.",
            advice="Use the result of the call.",
        )
    data = inexact("detrend", data)
    if type == "constant":
        return (data - snp.mean(data, axis, keepdims=True)).astype(data.dtype)
    if type != "linear":
        raise ArgumentValueError(
            f"detrend: there is no trend {type!r}.", advice="Trends are 'linear' and 'constant'."
        )
    where = canonical_axis(axis, data.ndim)
    length = data.shape[where]
    points = bp if isinstance(bp, Iterable) else (bp,)
    ends = sorted({0, length, *(operator.index(p) for p in points)})
    if ends[0] < 0 or ends[-1] > length:
        raise ArgumentValueError(
            f"detrend: breakpoints {bp!r} of {length} elements.",
            advice=f"They lie between 0 and {length}.",
        )
    rows = snp.moveaxis(data, where, -1)
    pieces = [_level(rows[..., a:b]) for a, b in itertools.pairwise(ends)]
    return snp.moveaxis(snp.concatenate(pieces, -1) if pieces else rows, -1, where)


def _level(rows: Any) -> Any:
    """Return each row less its line; places count from the middle, so that slopes stand alone."""
    count = rows.shape[-1]
    places = np.arange(count) - (count - 1) / 2
    middle = rows - snp.mean(rows, -1, keepdims=True)
    weights = snp.asarray(places / (np.sum(places**2) or 1), rows.dtype)
    slopes = snp.sum(middle * weights, -1, keepdims=True)
    return middle - slopes * snp.asarray(places, rows.dtype)
