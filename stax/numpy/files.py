"""Arrays from bytes, texts and files, and back; NumPy does the reading and writing."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import StaxError, UnsupportedError

ComplexWarning = np.exceptions.ComplexWarning
array_repr, array_str = np.array_repr, np.array_str
save, savez = np.save, np.savez


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> Any:
    """Return `count` numbers (all if -1) of the bytes of `buffer` from `offset` on, as a vector."""
    return asarray(np.frombuffer(buffer, _numpy_dtype(dtype), count, offset))


def _numpy_dtype(dtype: Any) -> Any:
    """Return the dtype in which bytes are read: Python's numbers are 64 bits wide there."""
    return np.dtype(dtype) if dtype in (int, float, complex, bool) else types.check_dtype(dtype)


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> Any:
    """Return `count` numbers (all if -1) written in a text, with `sep` between them."""
    return asarray(np.fromstring(string, _numpy_dtype(dtype), count, sep=sep))


def load(file: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the array that `save` wrote; of `savez`, the mapping of names to NumPy's arrays."""
    found = np.load(file, *args, **kwargs)
    if not isinstance(found, np.ndarray):
        return found
    # NumPy writes bfloat16 as two bytes of nothing in particular.
    value = found.view(types.bfloat16) if found.dtype == np.dtype("V2") else found
    try:
        return asarray(value)
    except StaxError:
        return found


def fromfile(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: reading a file has an effect that a program could not repeat."""
    _refuse("fromfile")


def fromiter(*args: Any, **kwargs: Any) -> NoReturn:
    """Raise UnsupportedError: reading an iterator has an effect that a program could not repeat."""
    _refuse("fromiter")


def _refuse(name: str) -> NoReturn:
    raise UnsupportedError(
        f"{name} is not supported: what it reads is used up, so programs could not run again.",
        advice=f"Read first, outside of programs: stax.numpy.asarray(numpy.{name}(...)).",
    )
