"""DLPack capsules: the memory of an array, handed to another library without a copy.

NumPy makes the capsules and reads them.  This module does what NumPy does not: bfloat16 elements,
which NumPy takes for uint16, so that only the type in the capsule has to be changed; and capsules
of before DLPack 1.0 of memory that nobody may write to.

    >>> memory = np.arange(3, dtype=bfloat16)
    >>> imported(Exported(memory)).dtype
    dtype(bfloat16)
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from stax.types import bfloat16

DEVICE = (1, 0)  # kDLCPU, and the number of the device


class _Tensor(ctypes.Structure):
    """DLTensor, as far as it is looked at."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


# Where the DLTensor is in what a capsule points to, by the name of the capsule: at the start, or
# after a version, two pointers and flags.
_TENSOR_AT = {b"dltensor": 0, b"dltensor_versioned": 32}
_UNSIGNED, _BFLOAT = 1, 4

_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _tensor(capsule: Any) -> _Tensor | None:
    """Return the description in a capsule, or None for a capsule of another kind."""
    name = _name_of(capsule)
    if name not in _TENSOR_AT:
        return None
    address = _pointer_in(capsule, name)
    assert address is not None
    return _Tensor.from_address(address + _TENSOR_AT[name])


class _Writable:
    """Read-only memory as NumPy's array interface describes it, except that it is writable."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory  # which this keeps alive
        interface = memory.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def export(
    memory: np.ndarray,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Return a capsule of `memory`, marked as read-only where the version asked for can say so.

    Consumers of before DLPack 1.0 are trusted not to write, as in JAX.  Raises BufferError for
    another device than the CPU, and for a stream, which a CPU does not have.
    """
    if stream is not None:
        raise BufferError(f"DLPack: stream is {stream!r}, and memory of the CPU has no streams")
    named = memory.view(np.uint16) if memory.dtype == bfloat16 else memory
    if max_version is not None and max_version[0] >= 1:
        capsule = named.__dlpack__(max_version=max_version, dl_device=dl_device, copy=copy)
    else:
        shared = named.copy() if copy or not named.size else np.asarray(_Writable(named))
        capsule = shared.__dlpack__(dl_device=dl_device)
    if memory.dtype == bfloat16:
        tensor = _tensor(capsule)
        assert tensor is not None
        tensor.code = _BFLOAT
    return capsule


class Exported:
    """Read-only memory as an object that other libraries take: a producer of capsules."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory

    def __dlpack_device__(self) -> tuple[int, int]:
        return DEVICE

    def __dlpack__(self, **options: Any) -> Any:
        return export(self.memory, **options)


class _ForNumPy:
    """A producer whose bfloat16 elements NumPy takes for uint16."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.is_bfloat16 = False

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.producer.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self.producer.__dlpack__(**options)
        tensor = _tensor(capsule)
        if tensor is not None and (tensor.code, tensor.bits, tensor.lanes) == (_BFLOAT, 16, 1):
            self.is_bfloat16 = True
            tensor.code = _UNSIGNED
        return capsule


def imported(producer: Any) -> np.ndarray:
    """Return a NumPy array over the memory of any object with `__dlpack__`.

    What is on another device is copied, if its library can.  Raises BufferError for an element type
    that NumPy lacks, and whatever the producer raises.
    """
    source: Any = _ForNumPy(producer)
    kind, _ = source.__dlpack_device__()
    try:
        memory = np.from_dlpack(source, device=None if kind == DEVICE[0] else "cpu")
    except RuntimeError as error:
        raise BufferError(f"DLPack: {error}") from None
    return memory.view(bfloat16) if source.is_bfloat16 else memory
