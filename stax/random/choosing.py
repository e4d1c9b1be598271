"""Choosing among things: a permutation, a sample of an array, a category, the first success."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError
from stax.lax.sorting import sort_key_val, top_k
from stax.numpy.arguments import array, inexact, static_int
from stax.numpy.creation import arange
from stax.numpy.elementwise import where
from stax.numpy.manipulation import moveaxis
from stax.numpy.reductions import argmax
from stax.numpy.sorting import searchsorted
from stax.numpy.taking import take
from stax.operators import random as ops
from stax.operators.elementwise import convert, floor, log, log1p
from stax.operators.reduce import cumsum
from stax.operators.reshape import expand_dims, reshape
from stax.operators.shape import slice_in_dim
from stax.random.arguments import integer_type, sample_shape
from stax.random.continuous import draw_gumbel
from stax.random.keys import one_key
from stax.random.uniform import draw_uniform, randint
from stax.trace import full
from stax.types import canonical_axis, canonical_shape


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """Return the elements of `x` along `axis` in random order, or the numbers below an integer.

    Every row along `axis` is in the same order unless they are `independent`.
    """
    key, x = one_key("permutation", key), _population("permutation", x)
    axis = canonical_axis(axis, x.ndim)
    if independent or x.ndim == 1:
        return _shuffled(key, x, axis)
    return take(x, _shuffled(key, arange(x.shape[axis]), 0), axis, unique_indices=True)


def _population(name: str, x: Any) -> Any:
    """Return an array to choose from; an integer stands for the numbers below it."""
    x = array(name, x)
    if x.ndim:
        return x
    if not types.is_integer(x.dtype):
        raise ArgumentError(
            f"{name} takes an array or an integer, not {x.type}.",
            advice="An integer n stands for arange(n).",
        )
    return arange(static_int(name, "the number to choose from", x))


def _shuffled(key: Any, x: Any, axis: int) -> Any:
    """Sort by random bits, often enough that no two elements are likely to have the same ones."""
    size = max(1, math.prod(x.shape))
    for _ in range(int(np.ceil(3 * np.log(size) / np.log(np.iinfo(np.uint32).max)))):
        key, now = ops.random_split(key, (2,))
        _, x = sort_key_val(ops.random_bits(now, 32, x.shape), x, axis)
    return x


def choice(
    key: Any,
    a: Any,
    shape: Any = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
    mode: str | None = None,
) -> Any:
    """Return elements of `a` along `axis`, or numbers below an integer `a`, in `shape`.

    `p` are the probabilities of the elements, equal ones unless given; without `replace` none is
    taken twice.  `mode` is that of `gumbel`, which decides then.
    """
    key, is_number = one_key("choice", key), not array("choice", a).ndim
    a = _population("choice", a)
    if not isinstance(shape, Sequence):
        raise ArgumentError(f"choice: a shape is a sequence of integers, not {shape!r}.")
    axis, shape = canonical_axis(axis, a.ndim), canonical_shape(shape)
    count, length = math.prod(shape), a.shape[axis]
    result = (*a.shape[:axis], *shape, *a.shape[axis + 1 :])
    if count == 0:
        return full(shape, 0, a.dtype)
    _check_count(count, length, replace)
    if p is None and not replace:
        return reshape(slice_in_dim(permutation(key, a, axis), 0, count, axis=axis), result)
    if p is None:
        places = randint(key, shape, 0, length)
    else:
        weights = _weights(p, length)
        chosen = _with_weights if replace else _without_replacement
        places = chosen(key, weights, shape, mode)
    return places if is_number else reshape(take(a, places, axis), result)


def _check_count(count: Any, length: Any, replace: bool) -> None:
    if length <= 0:
        raise ArgumentValueError(
            "choice: there is nothing to choose from.", advice="Pass an array that is not empty."
        )
    if not replace and count > length:
        raise ArgumentValueError(
            f"choice: {count} of {length} elements cannot be chosen without replacement.",
            advice="Choose fewer, or set replace=True.",
        )


def _weights(p: Any, length: Any) -> Any:
    p = inexact("choice", p)
    if p.shape != (length,):
        raise ArgumentValueError(
            f"choice: {length} elements need as many probabilities, not {p.type}.",
            advice="p has one axis, and one number for each element along `axis` of a.",
        )
    return p


def _with_weights(key: Any, p: Any, shape: Any, mode: str | None) -> Any:
    """Return the places at which the running sum of `p` passes a uniform number."""
    sums = cumsum(p, 0)
    r = sums[-1] * (1 - draw_uniform("choice", key, shape, p.dtype))
    return convert(searchsorted(sums, r), types.int_dtype())


def _without_replacement(key: Any, p: Any, shape: Any, mode: str | None) -> Any:
    """Return the places of the largest sums of a logarithm of `p` and a Gumbel number."""
    perturbed = draw_gumbel(key, p.shape, p.dtype, mode) + log(p)
    found = top_k(perturbed, math.prod(shape))[1]
    return reshape(convert(found, types.int_dtype()), shape)


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
) -> Any:
    """Return places along `axis`, with probabilities that are softmax(logits).

    The shape is that of `logits` without `axis` unless given; one that is given ends in it.
    Without `replace`, what the leading axes count are different places.
    """
    key, logits = one_key("categorical", key), array("categorical", logits)
    axis = canonical_axis(axis, logits.ndim)
    batch = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    wanted = sample_shape("categorical", shape, [batch])
    leading = wanted[: len(wanted) - len(batch)]
    if replace:
        rows = list(wanted[len(leading) :])
        rows.insert(axis, logits.shape[axis])
        drawn = draw_gumbel(key, (*leading, *rows), logits.dtype, mode)
        raised = expand_dims(logits, tuple(range(len(leading)))) if leading else logits
        return argmax(drawn + raised, axis=axis + len(leading))
    count: Any = math.prod(leading)
    if count > logits.shape[axis]:
        raise ArgumentValueError(
            f"categorical: there are not {count} of {logits.shape[axis]} categories to draw "
            "without replacement.",
            advice="Draw fewer, or set replace=True.",
        )
    perturbed = draw_gumbel(key, logits.shape, logits.dtype, mode) + logits
    _, places = top_k(moveaxis(perturbed, axis, -1), count)
    return reshape(moveaxis(places, -1, 0), wanted)


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Return how many trials of success probability `p` it takes to the first success."""
    key, dtype = one_key("geometric", key), integer_type("geometric", dtype)
    p = inexact("geometric", p)
    wanted = sample_shape("geometric", shape, [p.shape])
    u = draw_uniform("geometric", key, wanted, p.dtype)
    return convert(floor(log(where(u == 0, 1, u)) / log1p(-p)) + 1, dtype)
