"""`jax.lax`'s gathers and scatters, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax.array import Array
from stax.numpy.applying import apply_counted
from stax.numpy.arguments import array, arrays
from stax.operators import elementwise as ops, index
from stax.operators.arithmetic import remainder
from stax.operators.elementwise import convert
from stax.operators.reshape import expand_dims
from stax.operators.shape import concatenate
from stax.trace import full
from stax.types import canonical_shape, int32

GatherDimensionNumbers = index.GatherDimensionNumbers
ScatterDimensionNumbers = index.ScatterDimensionNumbers
GatherScatterMode = index.GatherScatterMode
gather, scatter, scatter_add = index.gather, index.scatter, index.scatter_add
scatter_mul, scatter_min, scatter_max = index.scatter_mul, index.scatter_min, index.scatter_max


def scatter_sub(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """Return `operand` with windows of `updates` subtracted from it."""
    less = ops.neg(array("scatter_sub", updates))
    return scatter_add(
        operand,
        scatter_indices,
        less,
        dimension_numbers,
        unique_indices=unique_indices,
        mode=mode,
    )


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Any = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: Any = None,
) -> Any:
    """Return `operand` with `func` applied to elements, as often as there are windows they are in.

    `update_shape` is the shape that updates of these windows would have.  There is a reverse
    derivative unless there are many traced indices, any of which may be equal.
    """
    x, indices = arrays("scatter_apply", operand, scatter_indices)
    ones = full(canonical_shape(update_shape), 1, int32)
    zeros = full(x.shape, 0, int32)
    counts = scatter_add(zeros, indices, ones, dimension_numbers, mode=mode)
    if unique_indices:
        times = 1
    elif type(counts) is Array:
        times = int(np.max(np.asarray(counts), initial=0))
    else:
        times = math.prod(indices.shape[:-1])
    return apply_counted(x, counts, func, times)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Any:
    """Return the slices of `src` at the vectors of places `idxs` along `axes`, one for each.

    Places count around at the ends of an axis.  The result has one axis of slices in front.
    """
    x, places = array("index_take", src), arrays("index_take", *idxs)
    rows = [
        expand_dims(convert(remainder(i, x.shape[a]), i.dtype), 1)
        for i, a in zip(places, axes, strict=True)
    ]
    rest = x.ndim - len(rows)
    numbers = GatherDimensionNumbers(tuple(range(1, rest + 1)), tuple(axes), tuple(axes))
    sizes = [1 if a in axes else n for a, n in enumerate(x.shape)]
    return gather(x, concatenate(rows, 1), numbers, sizes)
