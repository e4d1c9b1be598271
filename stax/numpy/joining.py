"""Arrays put together and cut apart: concatenate, stack, split, tile, repeat.

Joining is one op, `concatenate`, after promotion to one dtype; parts are slices; copies are a
broadcast along a new axis, merged with the old one by a reshape.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.extent import Extent, same_shape
from stax.numpy.arguments import array, promoted, refuse_out, static_int
from stax.numpy.manipulation import atleast_1d, atleast_2d, atleast_3d, sliced
from stax.numpy.sorting import searchsorted
from stax.numpy.taking import take
from stax.operators.reduce import cumsum
from stax.operators.reshape import expand_dims, reshape
from stax.operators.shape import (
    broadcast_in_dim,
    broadcast_to,
    concatenate as concatenate_op,
    iota,
)
from stax.trace import is_array
from stax.types import canonical_axis


def concatenate(arrays: Any, axis: int | None = 0, dtype: Any = None) -> Any:
    """Return `arrays`, promoted to one dtype, one after the other along `axis`.

    With axis=None they are flattened first.  Raises ShapeError if the other axes differ.
    """
    found = promoted("concatenate", arrays, dtype)
    if axis is None:
        found, axis = [reshape(x, (-1,)) for x in found], 0
    if not found[0].ndim:
        raise ShapeError(
            "concatenate: arrays without axes cannot be concatenated.", advice="Use stack."
        )
    if any(x.ndim != found[0].ndim for x in found):
        shown = ", ".join(map(repr, (x.type for x in found)))
        raise ShapeError(
            f"concatenate: arrays must have the same number of axes, got {shown}.",
            advice="Add axes with x[None], or use stack.",
        )
    return concatenate_op(found, canonical_axis(axis, found[0].ndim))


def concat(arrays: Any, /, *, axis: int | None = 0) -> Any:
    """Return `arrays` one after the other along `axis`."""
    return concatenate(arrays, axis)


def stack(arrays: Any, axis: int = 0, out: Any = None, dtype: Any = None) -> Any:
    """Return `arrays`, all of one shape, along a new axis."""
    refuse_out("stack", out)
    found = promoted("stack", arrays, dtype)
    for x in found:
        if not same_shape(x.shape, found[0].shape):
            raise ArgumentValueError(
                f"stack: arrays must have one shape, got {found[0].shape} and {x.shape}.",
                advice="Broadcast them to one shape first, or use concatenate.",
            )
    where = canonical_axis(axis, found[0].ndim + 1)
    return concatenate_op([expand_dims(x, where) for x in found], where)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """Return the slices of `x` along `axis`, without that axis."""
    x = array("unstack", x)
    where = canonical_axis(axis, x.ndim)
    rest = (*x.shape[:where], *x.shape[where + 1 :])
    return tuple(reshape(sliced(x, i, i + 1, where), rest) for i in range(x.shape[where]))


def vstack(tup: Any, dtype: Any = None) -> Any:
    """Return arrays joined along the first axis; vectors are rows."""
    return concatenate([atleast_2d(x) for x in promoted("vstack", tup, dtype)], 0)


def hstack(tup: Any, dtype: Any = None) -> Any:
    """Return arrays joined along the second axis; vectors along their only one."""
    found = [atleast_1d(x) for x in promoted("hstack", tup, dtype)]
    return concatenate(found, 0 if found[0].ndim == 1 else 1)


def dstack(tup: Any, dtype: Any = None) -> Any:
    """Return arrays joined along the third axis."""
    return concatenate([atleast_3d(x) for x in promoted("dstack", tup, dtype)], 2)


def column_stack(tup: Any) -> Any:
    """Return arrays joined along the second axis; vectors are columns."""
    found = [atleast_1d(x) for x in promoted("column_stack", tup)]
    return concatenate([expand_dims(x, 1) if x.ndim == 1 else x for x in found], 1)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Return `arr` with `values` after it along `axis`, both flattened if it is None."""
    return concatenate([arr, values], axis)


def block(arrays: Any) -> Any:
    """Return an array assembled from nested lists of blocks, the innermost along the last axis."""
    depth = _depth(arrays)
    return _block(arrays, depth, depth)


def _depth(arrays: Any) -> int:
    return 1 + max(map(_depth, arrays)) if isinstance(arrays, list) and arrays else 0


def _block(arrays: Any, depth: int, total: int) -> Any:
    if not isinstance(arrays, list):
        x = array("block", arrays)
        return x if x.ndim >= total else expand_dims(x, range(total - x.ndim))
    parts = [_block(a, depth - 1, total) for a in arrays]
    ndim = max(p.ndim for p in parts)
    parts = [p if p.ndim == ndim else expand_dims(p, range(ndim - p.ndim)) for p in parts]
    return concatenate(parts, -depth)


# --- cutting apart ---


def _cuts(name: str, sections: Any, length: Any, even: bool) -> list[Any]:
    """Return where an axis of `length` is cut, both ends included."""
    if isinstance(sections, Sequence) or (
        (is_array(sections) or isinstance(sections, np.ndarray)) and sections.ndim
    ):
        inner = [static_int(name, "a place to cut at", i) for i in sections]
        bounded = [min(max(i + length if i < 0 else i, 0), length) for i in inner]
        return [0, *bounded, length]
    parts = static_int(name, "the number of parts", sections)
    if parts <= 0:
        raise ArgumentValueError(
            f"{name}: the number of parts must be positive, got {parts}.",
            advice="Ask for at least one part.",
        )
    # A symbolic length has a quotient only where the parts are even.
    exact = even and isinstance(length, Extent)
    size, left = (length // parts, 0) if exact else divmod(length, parts)
    if left and even:
        raise ArgumentValueError(
            f"{name}: {parts} equal parts do not make an axis of {length}.",
            advice="Use array_split for parts of different lengths.",
        )
    return [i * size + min(i, left) for i in range(parts + 1)]


def _split(name: str, ary: Any, sections: Any, axis: int, even: bool) -> list[Any]:
    ary = array(name, ary)
    where = canonical_axis(axis, ary.ndim)
    cuts = _cuts(name, sections, ary.shape[where], even)
    return [sliced(ary, a, max(a, b), where) for a, b in itertools.pairwise(cuts)]


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return `ary` cut into so many equal parts along `axis`, or cut at the places given."""
    return _split("split", ary, indices_or_sections, axis, even=True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Return `ary` cut along `axis` into parts whose lengths differ by at most 1."""
    return _split("array_split", ary, indices_or_sections, axis, even=False)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Return `ary` cut along its first axis."""
    return _split("vsplit", ary, indices_or_sections, 0, even=True)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Return `ary` cut along its second axis, a vector along its only one."""
    axis = 0 if array("hsplit", ary).ndim == 1 else 1
    return _split("hsplit", ary, indices_or_sections, axis, even=True)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Return `ary` cut along its third axis."""
    return _split("dsplit", ary, indices_or_sections, 2, even=True)


# --- repeating ---


def tile(A: Any, reps: Any) -> Any:
    """Return `A` repeated as a whole, `reps` times along each of its last axes."""
    x = array("tile", A)
    given = tuple(reps) if isinstance(reps, Sequence | np.ndarray) or is_array(reps) else (reps,)
    counts = [static_int("tile", "a repetition", r) for r in given]
    ndim = max(x.ndim, len(counts))
    counts = [1] * (ndim - len(counts)) + counts
    shape = [1] * (ndim - x.ndim) + list(x.shape)
    wide = [n for pair in zip(counts, shape, strict=True) for n in pair]
    places = [2 * a + 1 for a in range(ndim - x.ndim, ndim)]
    spread = broadcast_in_dim(x, wide, places)
    return reshape(spread, [c * n for c, n in zip(counts, shape, strict=True)])


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None
) -> Any:
    """Return `a` with each element along `axis` repeated.

    `repeats` is one number, or one for each element; they must be known, unless
    `total_repeat_length` is given: then the result is cut to it, or its last element repeated.
    """
    a = array("repeat", a)
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    axis = canonical_axis(axis, a.ndim)
    length = a.shape[axis]
    single = isinstance(repeats, int | np.integer) or np.ndim(repeats) == 0
    if single and total_repeat_length is None:
        count = static_int("repeat", "repeats", repeats)
        if count < 0:
            raise ArgumentValueError(
                f"repeat: repeats must not be negative, got {count}.", advice="0 drops an element."
            )
        inner = (*a.shape[: axis + 1], count, *a.shape[axis + 1 :])
        spread = broadcast_in_dim(a, inner, [i for i in range(a.ndim + 1) if i != axis + 1])
        return reshape(spread, (*a.shape[:axis], length * count, *a.shape[axis + 1 :]))
    if total_repeat_length is not None:
        counts = broadcast_to(array("repeat", repeats), (length,))
        return take(a, _sources(counts, total_repeat_length), axis=axis, mode="clip")
    known = np.broadcast_to(np.asarray(repeats), (length,))
    places = np.repeat(np.arange(length), known).astype(types.int32)
    return take(a, places, axis=axis, mode="clip")


def _sources(counts: Any, total: int) -> Any:
    """Return which element each place of the result repeats, given how often each is repeated."""
    total = static_int("repeat", "total_repeat_length", total)
    if not counts.shape[0] and total:
        raise ArgumentError(
            "repeat: there is nothing to repeat.",
            advice="total_repeat_length needs an element to fill up with.",
        )
    return searchsorted(cumsum(counts), iota(types.int32, (total,)), "right")
