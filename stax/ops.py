"""The names of `jax.ops`: reductions of rows by segment, each row given the number of its segment.

They are scatters into an array of the neutral element, in the order of the rows.  A segment without
rows is left neutral: 0, 1, or the lowest or highest value.  Numbers out of range, negative ones
included, are dropped unless `mode` says otherwise.

    >>> segment_sum(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2]), num_segments=4).tolist()
    [1.0, 0.0, 5.0, 0.0]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.numpy import reductions
from stax.numpy.arguments import array
from stax.numpy.indexing import Update, update
from stax.operators.elementwise import convert
from stax.operators.index import GatherScatterMode
from stax.trace import full
from stax.types import Dimension

Function = Callable[..., Any]


def _lowest(dtype: np.dtype) -> Any:
    if types.is_bool(dtype):
        return False
    return np.iinfo(dtype).min if types.is_integer(dtype) else -np.inf


def _highest(dtype: np.dtype) -> Any:
    if types.is_bool(dtype):
        return True
    return np.iinfo(dtype).max if types.is_integer(dtype) else np.inf


def _count(num_segments: Any, segment_ids: Any) -> Dimension:
    """Return the number of segments, found from the ids if it is not given."""
    if num_segments is None:
        return int(np.max(np.asarray(segment_ids))) + 1
    return types.canonical_shape((num_segments,))[0]


def _segmented(kind: str, neutral: Function, reduce: Function, noun: str) -> Callable[..., Any]:
    def function(
        data: Any,
        segment_ids: Any,
        num_segments: int | None = None,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        bucket_size: int | None = None,
        mode: Any = None,
    ) -> Any:
        data, ids = array(name, data), array(name, segment_ids)
        count = _count(num_segments, ids)
        how = Update(kind, GatherScatterMode.from_any(mode), unique_indices, wraps=False)
        if bucket_size is None:
            blank = full((count, *data.shape[1:]), neutral(data.dtype), data.dtype)
            return update(blank, ids, data, how)
        buckets = -(-ids.size // bucket_size)
        blank = full((buckets, count, *data.shape[1:]), neutral(data.dtype), data.dtype)
        bucket = np.arange(ids.shape[0], dtype=np.int32) // bucket_size
        out = update(blank, (bucket, ids), data, how)
        return convert(reduce(out, axis=0), data.dtype)

    name = f"segment_{noun}"
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""Return the {noun} of the rows of `data` in each segment.

    `segment_ids` has the number of its segment for each row.  There are `num_segments`, or one more
    than the highest number, which must be known then.  With `bucket_size` so many rows at a time
    are reduced, and then the results.  `indices_are_sorted` is accepted and makes no difference.
    """
    return function


segment_sum = _segmented("add", lambda dtype: 0, reductions.sum, "sum")
segment_prod = _segmented("mul", lambda dtype: 1, reductions.prod, "prod")
segment_max = _segmented("max", _lowest, reductions.max, "max")
segment_min = _segmented("min", _highest, reductions.min, "min")

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]
