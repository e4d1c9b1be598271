"""Truth values packed into the bits of bytes, and taken out again."""

from __future__ import annotations

from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.numpy.arguments import array, static_int
from stax.operators import elementwise as ops
from stax.operators.arithmetic import truth
from stax.operators.elementwise import convert
from stax.operators.reduce import reduce_or
from stax.operators.reshape import move_axis, reshape
from stax.operators.shape import broadcast_in_dim, concatenate, iota, pad, slice_in_dim
from stax.trace import full
from stax.types import canonical_axis

BYTE = 8


def _shifts(shape: tuple[Any, ...], bitorder: str) -> Any:
    """Return how far the bits along the last axis are shifted in their byte."""
    if bitorder not in ("big", "little"):
        raise ArgumentValueError(
            f"the order of bits is 'big' or 'little', not {bitorder!r}.",
            advice="'big' puts the first element in the highest bit.",
        )
    up = iota(types.uint8, shape, len(shape) - 1)
    return up if bitorder == "little" else ops.sub(full(shape, BYTE - 1, types.uint8), up)


def _last(a: Any, axis: int | None) -> tuple[Any, int]:
    """Return an array with `axis` last, flattened if that is None, and where the axis was."""
    if axis is None:
        return reshape(a, (-1,)), 0
    where = canonical_axis(axis, a.ndim)
    return move_axis(a, where, -1), where


def packbits(a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Return which elements along `axis` are not zero, eight to a byte; missing ones are zero.

    Raises DTypeError unless the elements are integers or bool.
    """
    a = array("packbits", a)
    if not types.is_bits(a.dtype):
        raise DTypeError(
            f"packbits takes integers and truth values, not {a.type}.",
            advice="Compare it with zero first.",
        )
    flat, where = _last(a, axis)
    bits, length = convert(truth(flat), types.uint8), flat.shape[-1]
    config = [(0, 0, 0)] * (bits.ndim - 1) + [(0, -length % BYTE, 0)]
    whole = pad(bits, full((), 0, types.uint8), config)
    rows = reshape(whole, (*bits.shape[:-1], -(-length // BYTE), BYTE))
    packed = reduce_or(ops.shift_left(rows, _shifts(rows.shape, bitorder)), rows.ndim - 1)
    return move_axis(packed, -1, where)


def unpackbits(
    a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    """Return the bits of the bytes along `axis`, as bytes of 0 and 1; `count` cuts or adds zeros.

    Raises DTypeError unless the elements are bytes (uint8).
    """
    a = array("unpackbits", a)
    if a.dtype != np.uint8:
        raise DTypeError(
            f"unpackbits takes bytes (uint8), not {a.type}.", advice="Convert it with astype."
        )
    flat, where = _last(a, axis)
    wide = (*flat.shape, BYTE)
    spread = broadcast_in_dim(flat, wide, range(flat.ndim))
    shifted = ops.shift_right_logical(spread, _shifts(wide, bitorder))
    bits = ops.and_(shifted, full(wide, 1, types.uint8))
    bits = reshape(bits, (*flat.shape[:-1], flat.shape[-1] * BYTE))
    if count is not None:
        bits = _cut(bits, static_int("unpackbits", "count", count))
    return move_axis(bits, -1, where)


def _cut(bits: Any, count: int) -> Any:
    """Return `count` bits along the last axis; a negative one leaves so many out at the end."""
    length = bits.shape[-1]
    wanted = count if count >= 0 else max(0, length + count)
    if wanted <= length:
        return slice_in_dim(bits, 0, wanted, axis=-1)
    zeros = full((*bits.shape[:-1], wanted - length), 0, bits.dtype)
    return concatenate([bits, zeros], bits.ndim - 1)
