"""Arrays of other libraries, taken over without a copy: the names of jax.dlpack.

What `from_dlpack` returns lies in the memory of the array it was given, which therefore must not be
written to any more; `asarray` copies.  Stax arrays are given to others the same way, by their
`__dlpack__`, and are read-only there.

    >>> from_dlpack(np.arange(3))
    Array([0, 1, 2], dtype=int32)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stax.array import Array, array_from_numpy
from stax.capsule import imported
from stax.device import check_device
from stax.errors import ArgumentError, ArgumentValueError, TracerArrayConversionError
from stax.trace import Proxy, named_row
from stax.types import ArrayType, KeyType, canonical_dtype, check_dtype, float0

__all__ = ["from_dlpack", "is_supported_dtype"]


def from_dlpack(external_array: Any, device: Any = None, copy: bool | None = None) -> Any:
    """Return an array in the memory of any array that has `__dlpack__`.

    Values are copied where the layout asks for it (kernels read rows one after the other, aligned)
    and where 64-bit types become 32 bits wide, as everywhere outside of enable_x64; with `copy`,
    always.

    Raises ArgumentError for what has no `__dlpack__`, ArgumentValueError where `copy` is False and
    a copy is needed, BufferError for elements that arrays cannot have.
    """
    check_device(device, "from_dlpack")
    _check_source(external_array)
    if type(external_array) is Array:
        memory, kind = np.asarray(external_array), external_array.dtype
    else:
        memory = imported(external_array)
        kind = canonical_dtype(memory.dtype)
    reason = _reason_to_copy(memory, kind)
    if copy is False and reason:
        raise ArgumentValueError(
            f"from_dlpack: with copy=False the memory has to be used as it is, but {reason}.",
            advice="Use copy=None, which copies where it must.",
        )
    if copy or kind != memory.dtype:
        memory = memory.astype(kind, order="C")
    return array_from_numpy(memory.view(), ArrayType(kind, memory.shape))


def _check_source(value: Any) -> None:
    if type(value) is Proxy:
        raise TracerArrayConversionError(
            "from_dlpack: a traced array has no memory.",
            values=[named_row(value)],
            advice="Use the array itself: it is one already.",
        )
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise ArgumentError(
            f"from_dlpack takes an array with __dlpack__, not {type(value).__name__}.",
            advice="Pass an array of another library; asarray makes arrays of other things.",
        )


def _reason_to_copy(memory: np.ndarray, kind: Any) -> str:
    """Say why `memory` cannot be used as it is, if so."""
    if kind != memory.dtype:
        return f"{memory.dtype} becomes {kind} outside of enable_x64"
    if not memory.flags.c_contiguous:
        return "its rows do not follow each other (it is transposed or a slice with steps)"
    return "" if memory.flags.aligned else "it is not aligned to its elements"


def is_supported_dtype(dtype: Any) -> bool:
    """Say whether arrays of `dtype` can be given to other libraries and taken from them."""
    if dtype is None:
        raise ArgumentError("None is not a dtype.", advice="Name one: 'float32'.")
    try:
        found = check_dtype(dtype)
    except (TypeError, ValueError):
        return False
    return not isinstance(found, KeyType) and found != float0
