"""What each scalar function of the loop IR means, on NumPy scalars.

Printed kernels call these, so they are the reference for code generators.  + - * / sqrt,
comparisons and integer functions are exact to the bit; functions of the math library are those of
NumPy and SciPy.  float16 and bfloat16 are computed in float32 and rounded once per operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from stax.lowering.loop_ir import SPECIAL
from stax.operators.special_complex import ROWS
from stax.types import bfloat16, float16

Scalar = Any
DType = np.dtype[Any]


def _is_small(x: Scalar) -> bool:
    return getattr(x, "dtype", None) in (bfloat16, float16)


def _rounding_once(f: Callable[..., Scalar]) -> Callable[..., Scalar]:
    """Compute 16-bit floats in float32 and round the result."""

    def g(*args: Scalar) -> Scalar:
        if _is_small(args[0]):
            return np.asarray(f(*[np.float32(x) for x in args])).astype(args[0].dtype)[()]
        return f(*args)

    return g


def add(x: Scalar, y: Scalar) -> Scalar:
    return x + y


def sub(x: Scalar, y: Scalar) -> Scalar:
    return x ^ y if isinstance(x, np.bool_) else x - y


def mul(x: Scalar, y: Scalar) -> Scalar:
    return x * y


def _is_float(x: Scalar) -> bool:
    return isinstance(x, (float, np.floating)) or _is_small(x)


def div(x: Scalar, y: Scalar) -> Scalar:
    """Divide; integers toward zero, by 0 giving all ones, overflow wrapping."""
    if _is_float(x):
        return x / y
    bits = 8 * x.dtype.itemsize
    a, b = int(x), int(y)
    quotient = -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return _wrapped(quotient, bits, x.dtype)


def rem(x: Scalar, y: Scalar) -> Scalar:
    """Give the remainder with the sign of x: C's fmod, and for integers x itself by 0."""
    if _is_float(x):
        return _rounding_once(np.fmod)(x, y)
    a, b = int(x), int(y)
    return x if b == 0 else x.dtype.type(abs(a) % abs(b) * (1 if a >= 0 else -1))


def _wrapped(value: int, bits: int, dtype: DType) -> Scalar:
    return np.array(value & ((1 << bits) - 1), f"u{bits // 8}").view(dtype)[()]


def neg(x: Scalar) -> Scalar:
    return x if isinstance(x, np.bool_) else -x


def absolute(x: Scalar) -> Scalar:
    return abs(x)


def sign(x: Scalar) -> Scalar:
    # ml_dtypes keeps the sign of a zero, NumPy does not: NumPy's rule for all.
    return x if isinstance(x, np.bool_) else _rounding_once(np.sign)(x)


def maximum(x: Scalar, y: Scalar) -> Scalar:
    return x if x >= y or x != x else y


def minimum(x: Scalar, y: Scalar) -> Scalar:
    return x if x <= y or x != x else y


def fma(x: Scalar, y: Scalar, z: Scalar) -> Scalar:
    """Multiply and add with (nearly) one rounding: exact products of float32 in double."""
    if isinstance(x, np.float32):
        return np.float32(np.float64(x) * np.float64(y) + np.float64(z))
    if isinstance(x, np.float64):
        return np.float64(np.longdouble(x) * np.longdouble(y) + np.longdouble(z))
    return _rounding_once(lambda a, b, c: a * b + c)(x, y, z)


def _integral(f: Callable[[Scalar], Scalar]) -> Callable[[Scalar], Scalar]:
    return lambda x: _rounding_once(f)(x) if _is_float(x) else x


def rsqrt(x: Scalar) -> Scalar:
    return _rounding_once(lambda a: type(a)(1) / np.sqrt(a))(x)


def is_finite(x: Scalar) -> Scalar:
    return np.bool_(np.isfinite(np.float32(x) if _is_small(x) else x))


def invert(x: Scalar) -> Scalar:
    return np.logical_not(x) if isinstance(x, (bool, np.bool_)) else ~x


def shift_left(x: Scalar, y: Scalar) -> Scalar:
    bits = 8 * x.dtype.itemsize
    return _wrapped(int(x) << int(y) if 0 <= int(y) < bits else 0, bits, x.dtype)


def shift_right_logical(x: Scalar, y: Scalar) -> Scalar:
    bits = 8 * x.dtype.itemsize
    pattern = int(x) & ((1 << bits) - 1)
    return _wrapped(pattern >> int(y) if 0 <= int(y) < bits else 0, bits, x.dtype)


def shift_right_arithmetic(x: Scalar, y: Scalar) -> Scalar:
    bits = 8 * x.dtype.itemsize
    signed = _wrapped(int(x), bits, np.dtype(f"i{bits // 8}"))
    distance = int(y) if 0 <= int(y) < bits else bits - 1
    return _wrapped(int(signed) >> distance, bits, x.dtype)


def population_count(x: Scalar) -> Scalar:
    dtype = np.asarray(x).dtype
    return dtype.type(_pattern(x, dtype).bit_count())


def clz(x: Scalar) -> Scalar:
    dtype = np.asarray(x).dtype
    return dtype.type(8 * dtype.itemsize - _pattern(x, dtype).bit_length())


def mulhi(x: Scalar, y: Scalar) -> Scalar:
    dtype = np.asarray(x).dtype
    bits = 8 * dtype.itemsize
    return _wrapped(int(x) * int(y) >> bits, bits, dtype)


def _pattern(x: Scalar, dtype: DType) -> int:
    return int(x) & ((1 << 8 * dtype.itemsize) - 1)


def bitcast(x: Scalar, dtype: DType) -> Scalar:
    return np.asarray(x).view(dtype)[()]


def select(condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
    return x if condition else y


def convert(x: Scalar, dtype: DType) -> Scalar:
    """Convert; float to integer truncates and saturates, NaN gives 0."""
    if dtype == np.bool_:
        return np.bool_(x != 0)
    if dtype.kind in "iu":
        if not _is_float(x):
            bits = 8 * dtype.itemsize
            return _wrapped(int(x), bits, dtype)
        return dtype.type(_saturated(float(x), dtype))
    return np.asarray(x).astype(dtype)[()]


def _saturated(value: float, dtype: DType) -> int:
    info = np.iinfo(dtype)
    if value != value:
        return 0
    if abs(value) == np.inf:
        return int(info.max if value > 0 else info.min)
    return int(min(max(int(value), info.min), info.max))


_EXACT: dict[str, Callable[..., Scalar]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "div": div,
    "rem": rem,
    "neg": neg,
    "abs": absolute,
    "sign": sign,
    "maximum": maximum,
    "minimum": minimum,
    "fma": fma,
    "floor": _integral(np.floor),
    "ceil": _integral(np.ceil),
    "trunc": _integral(np.trunc),
    "round": _integral(np.rint),
    "sqrt": _rounding_once(np.sqrt),
    "rsqrt": rsqrt,
    "is_finite": is_finite,
    "invert": invert,
    "shift_left": shift_left,
    "shift_right_logical": shift_right_logical,
    "shift_right_arithmetic": shift_right_arithmetic,
    "population_count": population_count,
    "clz": clz,
    "mulhi": mulhi,
    "bitcast": bitcast,
    "select": select,
    "convert": convert,
}
_MATH: dict[str, Callable[..., Scalar]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "logistic": scipy.special.expit,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "pow": np.power,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    **{name: ROWS[name].evaluate for name in SPECIAL},
}

# By the name that a printed kernel uses.
FUNCTIONS = {**_EXACT, **{name: _rounding_once(f) for name, f in _MATH.items()}}
