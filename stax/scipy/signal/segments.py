"""Signals cut into segments that overlap, each under a window."""

from __future__ import annotations

import importlib
import warnings
from typing import Any, NamedTuple

import numpy as np

import stax.numpy as snp
from stax.errors import ArgumentValueError
from stax.numpy.arguments import static_int
from stax.trace import is_array


class Segmentation(NamedTuple):
    """A window, how far its places are apart, and the length of the transform of a segment."""

    window: Any
    step: int
    points: int

    @property
    def length(self) -> int:
        """The number of elements of a segment."""
        return int(self.window.shape[0])

    def cut(self, x: Any) -> Any:
        """Return the whole segments of the last axis, one row for each."""
        count = max((x.shape[-1] - self.length) // self.step + 1, 0)
        return x[..., self._places(count)]

    def joined(self, rows: Any) -> Any:
        """Return the sum of segments, given as rows, at their places."""
        count = rows.shape[-2]
        whole = snp.zeros((*rows.shape[:-2], (count - 1) * self.step + self.length), rows.dtype)
        return whole.at[..., self._places(count)].add(rows)

    def _places(self, count: int) -> np.ndarray:
        starts = np.arange(count, dtype=np.int32) * self.step
        return starts[:, None] + np.arange(self.length, dtype=np.int32)


def segmentation(
    name: str,
    window: Any,
    dtype: Any,
    length: int | None,
    overlap: int | None,
    points: int | None,
    limit: int | None = None,
) -> Segmentation:
    """Return how a signal is cut, given a window's name, its values, or a name with parameters.

    Segments have 256 elements unless told, and no more than `limit`; they overlap by half.  Raises
    ArgumentValueError for lengths that do not go together.
    """
    if length is not None:
        length = static_int(name, "nperseg", length)
        _require(name, length >= 1, f"nperseg={length} is not positive.")
    if isinstance(window, str | tuple | float):
        length = length or 256
        if limit is not None and length > limit:
            warnings.warn(
                f"{name}: nperseg={length} is more than the {limit} elements of the signal, and "
                f"{limit} is used.",
                stacklevel=4,
            )
            length = limit
        windows = importlib.import_module("scipy.signal.windows")  # it takes a while
        window = snp.asarray(windows.get_window(window, length), dtype)
    else:
        values = window if is_array(window) else np.asarray(window)
        _require(name, values.ndim == 1, f"a window of shape {values.shape} is not a vector.")
        size = values.shape[0]
        fits = limit is None or size <= limit
        _require(name, fits, f"a window of {size} elements is longer than the signal, of {limit}.")
        fits = length is None or size == length
        _require(name, fits, f"a window of {size} elements, and nperseg={length}.")
        window, length = snp.asarray(values, dtype), size
    overlap = length // 2 if overlap is None else static_int(name, "noverlap", overlap)
    _require(name, overlap < length, f"noverlap={overlap} leaves no step in nperseg={length}.")
    points = length if points is None else static_int(name, "nfft", points)
    _require(name, points >= length, f"nfft={points} is less than nperseg={length}.")
    return Segmentation(window, length - overlap, points)


def _require(name: str, holds: bool, broken: str) -> None:
    if not holds:
        raise ArgumentValueError(
            f"{name}: {broken}",
            advice="A window has nperseg elements, at most those of the signal; noverlap is less, "
            "and nfft at least as much.",
        )
