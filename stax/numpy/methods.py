"""The methods of arrays: what `x.sum()` means, for arrays and traced arrays alike.

Most are the function of the same name with the array as its first argument.  Importing this module
installs them on `Array` and `Proxy`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from stax import types
from stax.array import Array, copied
from stax.errors import ArgumentValueError, UnsupportedError
from stax.extent import Extent
from stax.numpy import (
    editing,
    elementwise,
    joining,
    linear,
    manipulation,
    reductions,
    sorting,
    taking,
)
from stax.numpy.complex import conjugate, imag, real
from stax.operators import bits
from stax.operators.arithmetic import equal, truth
from stax.operators.elementwise import complex_, convert
from stax.trace import Proxy
from stax.types import check_dtype


def _reshape(self: Any, *shape: Any, order: str = "C") -> Any:
    """Return the elements in another shape, given as numbers or as one tuple."""
    return manipulation.reshape(self, _one_or_many(shape), order)


def _one_or_many(args: tuple[Any, ...]) -> Any:
    return args[0] if len(args) == 1 and not isinstance(args[0], int | Extent) else args


def _transpose(self: Any, *axes: Any) -> Any:
    """Return the array with its axes permuted, or reversed if none are given."""
    return manipulation.transpose(self, _one_or_many(axes) if axes else None)


def _astype(self: Any, dtype: Any, copy: bool = False, device: Any = None) -> Any:
    """Return the elements converted to `dtype`, in an array of its own if `copy`.

    `device` changes nothing.  A complex number becomes a real one by its real part, and is true if
    any part is not 0.
    """
    wanted = types.float_dtype() if dtype is None else check_dtype(dtype)
    if types.is_complex(self.dtype) and types.is_bool(wanted):
        return truth(self)
    return copied(convert(self, wanted)) if copy else convert(self, wanted)


def _flatten(self: Any, order: str = "C") -> Any:
    """Return the elements as a vector."""
    return manipulation.ravel(self, order)


def _copy(self: Any) -> Any:
    """Return an array of the same elements, which stays when this one is donated."""
    return copied(self)


def _clip(self: Any, min: Any = None, max: Any = None) -> Any:
    """Return the elements limited to at least `min` and at most `max`."""
    return elementwise.clip(self, min, max)


def _compress(self: Any, condition: Any, axis: Any = None, out: Any = None) -> Any:
    """Return the slices along `axis` (elements, if it is None) where `condition` holds."""
    return editing.compress(condition, self, axis, out=out)


def _view(self: Any, dtype: Any = None, type: Any = None) -> Any:
    """Return the bits of the elements read as `dtype`; the last axis grows or shrinks to fit.

    Bool counts as a byte, a complex number as its two parts.  Raises UnsupportedError for `type`,
    ArgumentValueError where the bytes of the last axis are not a multiple of an element's.
    """
    if type is not None:
        raise UnsupportedError(
            "view: type= is not supported.", advice="There is one class of arrays; give a dtype."
        )
    wanted = self.dtype if dtype is None else types.canonical_dtype(dtype)
    if wanted == self.dtype:
        return self
    before, after = self.dtype.itemsize, wanted.itemsize
    if (self.shape[-1] if self.ndim else 1) * before % after or (not self.ndim and before != after):
        raise ArgumentValueError(
            f"view: the last axis of {self.type} is no whole number of {wanted} elements.",
            advice="Reshape it, or convert the elements with astype.",
        )
    if not self.ndim:
        return manipulation.reshape(_view(manipulation.reshape(self, (1,)), wanted), ())
    return _reread(self, wanted)


def _reread(x: Any, dtype: Any) -> Any:
    if types.is_bool(x.dtype):
        return _view(convert(x, types.uint8), dtype)
    if types.is_complex(x.dtype):
        return _view(
            manipulation.reshape(joining.stack([real(x), imag(x)], -1), _flat(x, 2)), dtype
        )
    if types.is_bool(dtype):
        return convert(_view(x, types.uint8), dtype)
    if types.is_complex(dtype):
        parts = _view(x, types.real_part(dtype))
        return complex_(parts[..., 0::2], parts[..., 1::2])
    ratio = dtype.itemsize // x.dtype.itemsize
    if ratio > 1:
        x = manipulation.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio))
    found = bits.bitcast(x, dtype)
    return found if ratio else manipulation.reshape(found, _flat(x, found.shape[-1]))


def _flat(x: Any, count: int) -> tuple[Any, ...]:
    """Return the shape of `x` with `count` times as many elements along the last axis."""
    return (*x.shape[:-1], x.shape[-1] * count)


def _byteswap(self: Any) -> Any:
    """Return the elements with their bytes in the opposite order."""
    size = self.dtype.itemsize
    if size == 1:
        return self
    parts = manipulation.reshape(_view(_at_least_1d(self), types.uint8), (*self.shape, size))
    return manipulation.reshape(_view(manipulation.flip(parts, -1), self.dtype), self.shape)


def _at_least_1d(x: Any) -> Any:
    return x if x.ndim else manipulation.reshape(x, (1,))


def _tobytes(self: Any, order: Any = "C") -> bytes:
    """Return the bytes of the elements in row-major order (or "F"), which must be known."""
    return np.asarray(self).tobytes(order)


def _contains(self: Any, item: Any) -> bool:
    """Say whether some element of a vector equals `item`; raises ArgumentValueError for others."""
    if self.ndim != 1:
        raise ArgumentValueError(
            f"`in` takes a vector, not {self.type}.", advice="Write (x == item).any()."
        )
    return bool(reductions.any(equal(self, item)))


def _no_flat(self: Any) -> Any:
    """Raise UnsupportedError: an iterator over elements could not write to them."""
    raise UnsupportedError("x.flat is not supported.", advice="Use x.ravel().")


def _transposed(self: Any) -> Any:
    """The array with its axes reversed."""
    return manipulation.transpose(self)


def _matrices_transposed(self: Any) -> Any:
    """The array with its last two axes exchanged."""
    return manipulation.matrix_transpose(self)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "all": reductions.all,
    "any": reductions.any,
    "argmax": reductions.argmax,
    "argmin": reductions.argmin,
    "argpartition": sorting.argpartition,
    "argsort": sorting.argsort,
    "astype": _astype,
    "byteswap": _byteswap,
    "choose": editing.choose,
    "clip": _clip,
    "compress": _compress,
    "conj": conjugate,
    "conjugate": conjugate,
    "copy": _copy,
    "cumprod": reductions.cumprod,
    "cumsum": reductions.cumsum,
    "diagonal": taking.diagonal,
    "dot": linear.dot,
    "flatten": _flatten,
    "max": reductions.max,
    "mean": reductions.mean,
    "min": reductions.min,
    "nonzero": elementwise.nonzero,
    "prod": reductions.prod,
    "ptp": reductions.ptp,
    "ravel": manipulation.ravel,
    "repeat": joining.repeat,
    "reshape": _reshape,
    "round": elementwise.round,
    "searchsorted": sorting.searchsorted,
    "sort": sorting.sort,
    "squeeze": manipulation.squeeze,
    "std": reductions.std,
    "sum": reductions.sum,
    "swapaxes": manipulation.swapaxes,
    "take": taking.take,
    "tobytes": _tobytes,
    "trace": taking.trace,
    "transpose": _transpose,
    "var": reductions.var,
    "view": _view,
    "__contains__": _contains,
}
_PROPERTIES: dict[str, Callable[..., Any]] = {
    "T": _transposed,
    "flat": _no_flat,
    "imag": imag,
    "mT": _matrices_transposed,
    "real": real,
}


def install_methods(cls: type) -> None:
    """Give `cls` (`Proxy` or `Array`) the methods and properties of arrays."""
    for name, function in _FUNCTIONS.items():
        setattr(cls, name, _method(name, function))
    for name, function in _PROPERTIES.items():
        setattr(cls, name, property(_method(name, function)))


# Each revision of the array API contains those before it.
API_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


def install_namespace(namespace: ModuleType) -> None:
    """Let arrays answer with `namespace` when they are asked for their array API."""

    def array_namespace(self: Any, *, api_version: str | None = None) -> ModuleType:
        """Return the module of functions for this array; raises for an unknown version."""
        if api_version is not None and api_version not in API_VERSIONS:
            raise ArgumentValueError(
                f"there is no version {api_version!r} of the array API here.",
                advice=f"Versions are {', '.join(API_VERSIONS)}.",
            )
        return namespace

    for cls in (Array, Proxy):
        cls.__array_namespace__ = array_namespace  # type: ignore[union-attr]


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = function.__doc__
    first, *rest = inspect.signature(function).parameters.values()
    own = first.replace(name="self", kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__signature__ = inspect.Signature([own, *rest])  # type: ignore[attr-defined]
    return method


for _cls in (Array, Proxy):
    install_methods(_cls)
