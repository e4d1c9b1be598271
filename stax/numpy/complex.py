"""Parts of complex numbers: real, imaginary, conjugate, angle; and which numbers are complex."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stax import types
from stax.array import asarray
from stax.numpy.arguments import array
from stax.operators import elementwise as ops, sort as sorts
from stax.operators.elementwise import convert, like
from stax.trace import is_array
from stax.types import is_complex


def conjugate(x: Any, /) -> Any:
    """Return the complex conjugate; of real numbers, the numbers."""
    x = array("conjugate", x)
    return ops.conj(x) if is_complex(x.dtype) else x


conj = conjugate


def real(val: Any, /) -> Any:
    """Return the real part; of real numbers, the numbers."""
    x = array("real", val)
    return ops.real(x) if is_complex(x.dtype) else x


def imag(val: Any, /) -> Any:
    """Return the imaginary part; of real numbers, zeros."""
    x = array("imag", val)
    return ops.imag(x) if is_complex(x.dtype) else like(x, 0)


def angle(z: Any, deg: bool = False) -> Any:
    """Return the argument of each number, in [-pi, pi]: 0 for positive reals, pi for negative ones.

    Integers, and real numbers without axes, are taken as the default float.
    """
    z = array("angle", z)
    x, y = real(z), imag(z)
    scalar = types.is_float(z.dtype) and not z.ndim
    dtype = types.float_dtype() if scalar or not types.is_inexact(x.dtype) else x.dtype
    if dtype != x.dtype or scalar:
        x, y = convert(x, dtype), convert(y, dtype)
    turn = ops.atan2(y, x)
    return ops.mul(turn, like(turn, 180 / math.pi)) if deg else turn


def isreal(x: Any) -> Any:
    """Return whether each element has no imaginary part."""
    y = imag(x)
    return ops.eq(y, like(y, 0))


def iscomplex(x: Any) -> Any:
    """Return whether each element has an imaginary part that is not 0."""
    y = imag(x)
    return ops.ne(y, like(y, 0))


def iscomplexobj(x: Any) -> bool:
    """Say whether the dtype of `x`, an array, a number or a list of them, is complex."""
    if x is None or isinstance(x, str):
        return False
    if not is_array(x) and isinstance(x, np.ndarray | np.generic):
        return is_complex(x.dtype)
    return is_complex(asarray(x).dtype)


def isrealobj(x: Any) -> bool:
    """Say whether the dtype of `x` is not complex."""
    return not iscomplexobj(x)


def sort_complex(a: Any) -> Any:
    """Return `a` sorted along its last axis, by real and then by imaginary parts, as complex."""
    a = array("sort_complex", a)
    found = sorts.sort(a)
    wide = found.dtype in (types.float64, types.int64, types.uint64)
    dtype = types.complex128 if wide else types.complex64
    return found if is_complex(found.dtype) else convert(found, dtype)
