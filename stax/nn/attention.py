"""Attention: values averaged with the softmax of how well their keys match a query.

    softmax(scale * query @ key.T + bias) @ value        for each head

Several query heads may share the head of a key and a value.  What a mask leaves out gets a logit so
low that its weight is 0; where a mask leaves out everything, all weights are equal.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes

from stax import types
from stax.array import asarray
from stax.errors import ArgumentValueError, UnsupportedError
from stax.nn.functions import softmax
from stax.numpy.einsum import einsum
from stax.operators.arithmetic import add, logical_and
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import convert, ge, le, like, lt, select
from stax.operators.gradient import stop_gradient
from stax.operators.reshape import expand_dims, reshape, transpose
from stax.operators.shape import iota
from stax.scipy.special import logsumexp
from stax.types import ArrayType, Shape


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
) -> Any:
    """Return scaled dot product attention, in the shape of `query`.

    `query` is ([batch,] targets, heads, size), `key` and `value` ([batch,] sources, groups, size);
    heads are a multiple of groups.  `bias` is added to the logits, `mask` is True for those that
    count; both broadcast to ([batch,] heads, targets, sources).  `scale` is 1 / sqrt(size) unless
    given.  With `is_causal` a target sees no later source; lengths, one of each for each member of
    the batch, leave out what comes after; `local_window_size` is how many sources before and after
    its own place a target sees.  `return_residual` adds the logarithm of the sums of weights.

    The softmax is computed in float32.  Raises UnsupportedError for the implementation "cudnn".
    """
    _check_implementation(implementation)
    given = asarray(query)
    query, key, value = (_with_batch(x) for x in (given, key, value))
    _check(query, key, value)
    logits = _logits(query, key, _grouped("bias", bias, query, key), scale)
    window = (local_window_size,) * 2 if isinstance(local_window_size, int) else local_window_size
    lengths = [_lengths(x, key) for x in (query_seq_lengths, key_value_seq_lengths)]
    seen = _seen(logits.type, is_causal, window, lengths)
    if mask is not None:
        seen.append(_grouped("mask", _bool(mask), query, key))
    if seen:
        low = -0.7 * float(ml_dtypes.finfo(logits.dtype).max)
        counts = broadcast_to(_all(seen), logits.shape)
        logits = select(counts, logits, like(logits, low))
    logits = convert(logits, types.float32)
    weights = convert(softmax(logits, -1), key.dtype)
    found = einsum("bkgts,bskh->btkgh", weights, value)
    if lengths[0] is not None:
        inside = lt(*_places(found.type, 1, lengths[0]))
        found = select(inside, found, like(found, 0))
    found = reshape(found, given.shape)
    if not return_residual:
        return found
    residual = transpose(convert(logsumexp(logits, -1), key.dtype), (0, 3, 1, 2))
    return found, stop_gradient(reshape(residual, given.shape[:-1]))


def _check_implementation(name: str | None) -> None:
    if name == "cudnn":
        raise UnsupportedError(
            "dot_product_attention: there is no implementation 'cudnn'.",
            advice="Leave implementation out: the compiler fuses the softmax by itself.",
        )
    if name not in (None, "xla"):
        raise ArgumentValueError(
            f"dot_product_attention: no implementation {name!r}.", advice="Use None."
        )


def _with_batch(x: Any) -> Any:
    """Return an array with four axes, the missing ones in front."""
    x = asarray(x)
    return expand_dims(x, tuple(range(4 - x.ndim))) if x.ndim < 4 else x


def _check(query: Any, key: Any, value: Any) -> None:
    fits = (
        query.ndim == key.ndim == 4
        and value.shape == key.shape
        and (query.shape[0], query.shape[-1]) == (key.shape[0], key.shape[-1])
        and query.shape[2] % max(1, key.shape[2]) == 0
        and query.dtype == key.dtype == value.dtype
    )
    if not fits:
        raise ArgumentValueError(
            "dot_product_attention: query, key and value do not go together.",
            values=[
                (name, repr(x.type), "")
                for name, x in (("query", query), ("key", key), ("value", value))
            ],
            advice=(
                "Queries are (batch, targets, heads, size), keys and values (batch, sources, "
                "groups, size)\nof one dtype, and heads are a multiple of groups."
            ),
        )


def _bool(mask: Any) -> Any:
    mask = asarray(mask)
    if not types.is_bool(mask.dtype):
        raise ArgumentValueError(
            f"dot_product_attention: the mask is bool, not {mask.type}.",
            advice="Numbers that are added to the logits are a bias.",
        )
    return mask


def _grouped(name: str, x: Any, query: Any, key: Any) -> Any:
    """Return a bias or a mask with the axis of heads cut into groups and their members."""
    if x is None:
        return None
    x, heads, groups = _with_batch(x), query.shape[2], key.shape[2]
    if x.ndim != 4 or x.shape[1] not in (1, heads):
        raise ArgumentValueError(
            f"dot_product_attention: a {name} {x.type} does not broadcast to heads, targets and "
            "sources.",
            advice="Its shape is (batch, heads, targets, sources), any of them 1.",
        )
    pair = (1, 1) if x.shape[1] == 1 else (groups, heads // groups)
    return reshape(x, (x.shape[0], *pair, *x.shape[2:]))


def _logits(query: Any, key: Any, bias: Any, scale: float | None) -> Any:
    """Return how well queries match keys: (batch, groups, members, targets, sources)."""
    batch, targets, heads, size = query.shape
    split = reshape(query, (batch, targets, key.shape[2], heads // key.shape[2], size))
    wide = types.promote(ArrayType(query.dtype, ()), ArrayType(types.float32, ()))[0]
    logits = einsum("btkgh,bskh->bkgts", split, key, preferred_element_type=wide)
    logits = logits * (1 / math.sqrt(size) if scale is None else scale)
    logits = convert(logits, wide)
    return logits if bias is None else convert(add(logits, bias), wide)


def _lengths(lengths: Any, key: Any) -> Any:
    if lengths is None:
        return None
    lengths = asarray(lengths)
    if lengths.dtype != types.int32 or lengths.shape != key.shape[:1]:
        raise ArgumentValueError(
            f"dot_product_attention: lengths are int32[{key.shape[0]}], not {lengths.type}.",
            advice="Give one for each member of the batch.",
        )
    return lengths


def _places(type_: ArrayType, axis: int, lengths: Any) -> tuple[Any, Any]:
    """Return the places along an axis of an array whose first axis is the batch, and the lengths
    of its members."""
    alone = (type_.shape[0], *(1 for _ in type_.shape[1:]))
    return iota(types.int32, type_.shape, axis), broadcast_to(reshape(lengths, alone), type_.shape)


def _seen(
    logits: ArrayType, is_causal: bool, window: tuple[int, int] | None, lengths: list[Any]
) -> list[Any]:
    """Return the masks of targets and sources that the options stand for."""
    targets, sources = logits.ndim - 2, logits.ndim - 1
    pairs: Shape = logits.shape[-2:]
    target, source = iota(types.int32, pairs, 0), iota(types.int32, pairs, 1)
    found = []
    if is_causal:
        found.append(ge(target, source))
    if window is not None:
        before, after = window
        found += [le(target, source + before), ge(target, source - after)]
    for axis, given in zip((targets, sources), lengths, strict=True):
        if given is not None:
            found.append(lt(*_places(logits, axis, given)))
    return found


def _all(masks: list[Any]) -> Any:
    total = masks[0]
    for mask in masks[1:]:
        total = logical_and(total, mask)
    return total
