"""Statistics of samples: the most frequent value, ranks, the error of the mean."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.lax import cummax, cummin
from stax.numpy.arguments import array, inexact
from stax.types import canonical_axis

__all__ = ["ModeResult", "mode", "rankdata", "sem"]


class ModeResult(NamedTuple):
    """The most frequent values, and how often each occurs."""

    mode: Any
    count: Any


def _propagate_only(name: str, nan_policy: str) -> None:
    """Raise for policies that would have to look at the values."""
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ArgumentValueError(
            f"{name}: there is no nan_policy {nan_policy!r}.", advice="Use 'propagate'."
        )
    if nan_policy != "propagate":
        raise UnsupportedError(
            f"{name}: nan_policy={nan_policy!r} is not supported.",
            advice="Remove NaN before the call; the default lets it through.",
        )


def _starts(ordered: Any) -> Any:
    """Say for each element of sorted rows whether it differs from the one before it."""
    before, after = ordered[..., :-1], ordered[..., 1:]
    differs = (before != after) & ~(snp.isnan(before) & snp.isnan(after))
    return snp.concatenate([snp.ones((*ordered.shape[:-1], 1), bool), differs], axis=-1)


def mode(
    a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False
) -> ModeResult:
    """Return the most frequent value along `axis` (of all, if None) and its count.

    Of several the least is taken.  NaNs count as one value.  Of nothing the mode is NaN.
    """
    _propagate_only("mode", nan_policy)
    a = snp.atleast_1d(array("mode", a))
    where = 0 if axis is None else canonical_axis(axis, a.ndim)
    kept = (1,) * a.ndim if axis is None else (*a.shape[:where], 1, *a.shape[where + 1 :])
    rows = a.reshape(-1) if axis is None else snp.moveaxis(a, where, -1)
    if rows.shape[-1] == 0:
        value, count = (snp.full(rows.shape[:-1], v, float) for v in (math.nan, 0))
    else:
        ordered = snp.sort(rows, axis=-1)
        places = snp.broadcast_to(snp.arange(rows.shape[-1]), rows.shape)
        starts = cummax(snp.where(_starts(ordered), places, 0), axis=rows.ndim - 1)
        lengths = places - starts + 1
        longest = snp.argmax(lengths, axis=-1, keepdims=True)
        value = snp.take_along_axis(ordered, longest, -1)[..., 0]
        count = snp.max(lengths, axis=-1)
    shape = kept if keepdims else value.shape
    return ModeResult(value.reshape(shape), count.reshape(shape))


_METHODS = ("average", "min", "max", "dense", "ordinal")


def rankdata(
    a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"
) -> Any:
    """Return the ranks, from 1, of the elements along `axis`; of all elements, if it is None.

    `method` says what equal elements get: the "average", "min" or "max" of their ranks, one rank
    without gaps to the next ("dense"), or each its own in order ("ordinal").  All are NaN if one
    element is.
    """
    _propagate_only("rankdata", nan_policy)
    if method not in _METHODS:
        raise ArgumentValueError(
            f"rankdata: there is no method {method!r}.",
            advice=f"Use one of {', '.join(_METHODS)}.",
        )
    a = array("rankdata", a)
    if axis is None:
        return _ranks(a.reshape(-1), method)
    return snp.moveaxis(_ranks(snp.moveaxis(a, axis, -1), method), -1, axis)


def _ranks(rows: Any, method: str) -> Any:
    """Return the ranks of the elements of each row."""
    if 0 in rows.shape:
        return snp.zeros(rows.shape)
    order = snp.argsort(rows, axis=-1)
    inverse = snp.argsort(order, axis=-1)
    new = _starts(snp.take_along_axis(rows, order, -1))
    last, count = rows.ndim - 1, rows.shape[-1]
    places = snp.broadcast_to(snp.arange(1, count + 1), rows.shape)
    if method == "ordinal":
        ranks = places
    elif method == "dense":
        ranks = snp.cumsum(new, axis=-1)
    else:
        first = cummax(snp.where(new, places, 0), axis=last)
        ends = snp.concatenate([new[..., 1:], snp.ones((*rows.shape[:-1], 1), bool)], axis=-1)
        final = cummin(snp.where(ends, places, count), axis=last, reverse=True)
        ranks = {"min": first, "max": final, "average": (first + final) / 2}[method]
    ranks = snp.take_along_axis(ranks, inverse, -1).astype(types.float_dtype())
    return snp.where(snp.any(snp.isnan(rows), axis=-1, keepdims=True), math.nan, ranks)


def sem(
    a: Any,
    axis: int | None = 0,
    ddof: int = 1,
    nan_policy: str = "propagate",
    *,
    keepdims: bool = False,
) -> Any:
    """Return the standard error of the mean: the deviation over the root of the count.

    With `nan_policy` "omit" NaNs are left out.
    """
    a = inexact("sem", a)
    if nan_policy == "propagate":
        count = a.size if axis is None else a.shape[axis]
        return snp.std(a, axis, ddof=ddof, keepdims=keepdims) / snp.sqrt(
            snp.asarray(count, a.dtype)
        )
    if nan_policy == "omit":
        known = snp.sum(~snp.isnan(a), axis, keepdims=keepdims)
        apart = snp.nanstd(a, axis, ddof=ddof, keepdims=keepdims)
        return apart / snp.sqrt(known.astype(a.dtype))
    raise ArgumentValueError(
        f"sem: nan_policy={nan_policy!r} is not supported.", advice="Use 'propagate' or 'omit'."
    )
