"""The methods of arrays: what `x.sum()` means, for arrays and traced arrays alike.

Most are the function of the same name with the array as its first argument.  Importing this module
installs them on `Array` and `Proxy`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stax import types
from stax.array import Array
from stax.extent import Extent
from stax.numpy import elementwise, joining, linear, manipulation, reductions, sorting, taking
from stax.operators.elementwise import convert
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
    """Return the elements converted to `dtype`; `copy` and `device` change nothing."""
    return convert(self, types.float_dtype() if dtype is None else check_dtype(dtype))


def _flatten(self: Any, order: str = "C") -> Any:
    """Return the elements as a vector."""
    return manipulation.ravel(self, order)


def _copy(self: Any) -> Any:
    """Return the array: it never changes, so a copy would be the same array."""
    return self


def _clip(self: Any, min: Any = None, max: Any = None) -> Any:
    """Return the elements limited to at least `min` and at most `max`."""
    return elementwise.clip(self, min, max)


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
    "argsort": sorting.argsort,
    "astype": _astype,
    "clip": _clip,
    "conj": elementwise.conjugate,
    "conjugate": elementwise.conjugate,
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
    "trace": taking.trace,
    "transpose": _transpose,
    "var": reductions.var,
}
_PROPERTIES: dict[str, Callable[..., Any]] = {
    "T": _transposed,
    "imag": elementwise.imag,
    "mT": _matrices_transposed,
    "real": elementwise.real,
}


def install_methods(cls: type) -> None:
    """Give `cls` (`Proxy` or `Array`) the methods and properties of arrays."""
    for name, function in _FUNCTIONS.items():
        setattr(cls, name, _method(name, function))
    for name, function in _PROPERTIES.items():
        setattr(cls, name, property(_method(name, function)))


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function(self, *args, **kwargs)

    method.__name__ = name
    method.__doc__ = function.__doc__
    return method


for _cls in (Array, Proxy):
    install_methods(_cls)
