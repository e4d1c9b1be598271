"""What the array API asks a library about itself: devices, dtypes, capabilities.

>>> __array_namespace_info__().default_dtypes()["integral"]
dtype('int32')
"""

from __future__ import annotations

from typing import Any

from stax import types
from stax.config import config
from stax.device import CPU, Device
from stax.errors import ArgumentValueError

_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int8", "int16", "int32", "int64"),
    "unsigned integer": ("uint8", "uint16", "uint32", "uint64"),
    "real floating": ("float32", "float64"),
    "complex floating": ("complex64", "complex128"),
}
_UNIONS = {
    "integral": ("signed integer", "unsigned integer"),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}


class ArrayNamespaceInfo:
    """Answers about the namespace, as the array API standard names them."""

    def capabilities(self) -> dict[str, Any]:
        """Return what arrays can do; shapes that depend on values exist outside of jit only."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": False,
            "max dimensions": 64,
        }

    def default_device(self) -> Device:
        """Return the device that arrays are made on."""
        return CPU

    def devices(self) -> list[Device]:
        """Return all devices."""
        return [CPU]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """Return the dtypes that arrays have unless another is asked for, by kind."""
        return {
            "real floating": types.float_dtype(),
            "complex floating": types.complex_dtype(),
            "integral": types.int_dtype(),
            "indexing": types.int_dtype(),
        }

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, Any]:
        """Return the dtypes of the standard by name: all, or those of a kind or of several.

        64-bit ones are there with enable_x64.
        """
        kinds = (*_KINDS,) if kind is None else (kind,) if isinstance(kind, str) else kind
        unknown = [k for k in kinds if k not in _KINDS and k not in _UNIONS]
        if unknown:
            raise ArgumentValueError(
                f"{unknown[0]!r} is no kind of dtypes.",
                advice=f"Kinds are {', '.join((*_KINDS, *_UNIONS))}.",
            )
        single = [k for name in kinds for k in _UNIONS.get(name, (name,))]
        names = [name for k in _KINDS if k in single for name in _KINDS[k]]
        wide = {"int64", "uint64", "float64", "complex128"}
        return {n: types.check_dtype(n) for n in names if config.enable_x64 or n not in wide}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """Return an object that answers questions about the namespace."""
    return ArrayNamespaceInfo()
