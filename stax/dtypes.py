"""Element types as users name and ask about them: `float32`, `finfo`, `issubdtype`, `result_type`.

`types` says how element types go together; this module is its public face.  A scalar type such as
`float32` is accepted wherever a dtype is, equals the NumPy dtype it stands for, and makes an array
when it is called.

    >>> result_type(int32(1), 2.5)
    dtype('float32')
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, TypePromotionError
from stax.trace import is_array, type_of
from stax.types import (
    ArrayType,
    KeyType,
    canonical_dtype,
    check_dtype,
    float0,
    key_fry,
    scalar_type,
)

__all__ = [
    "TypePromotionError", "bfloat16", "can_cast", "canonicalize_dtype", "extended", "finfo",
    "float0", "iinfo", "is_dtype", "isdtype", "issubdtype", "itemsize_bits", "prng_key",
    "promote_types", "result_type", "scalar_type_of",
]  # fmt: skip


class ScalarType:
    """A dtype that makes arrays: `float32(1)` is an array, and `np.dtype(float32)` works."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self.__name__ = self.dtype.name

    def __call__(self, x: Any = 0) -> Any:
        return asarray(x, self.dtype)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ScalarType):
            return self.dtype == other.dtype
        try:
            return bool(self.dtype == other)
        except TypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __repr__(self) -> str:
        return f"stax.numpy.{self.__name__}"

    def __reduce__(self) -> tuple[Any, ...]:
        return ScalarType, (self.dtype,)


bool_ = ScalarType(types.bool_)
int8, int16 = ScalarType(types.int8), ScalarType(types.int16)
int32, int64 = ScalarType(types.int32), ScalarType(types.int64)
uint8, uint16 = ScalarType(types.uint8), ScalarType(types.uint16)
uint32, uint64 = ScalarType(types.uint32), ScalarType(types.uint64)
bfloat16, float16 = ScalarType(types.bfloat16), ScalarType(types.float16)
float32, float64 = ScalarType(types.float32), ScalarType(types.float64)
complex64, complex128 = ScalarType(types.complex64), ScalarType(types.complex128)


class extended(np.generic):
    """The kind of dtypes that NumPy does not have."""


class prng_key(extended):
    """The kind of dtypes of typed random keys."""


def finfo(dtype: Any) -> Any:
    """Return the limits of a floating type: eps, max, tiny, ..."""
    return ml_dtypes.finfo(_numbers_dtype(dtype))


def iinfo(int_type: Any) -> Any:
    """Return the limits of an integer type: min and max."""
    return ml_dtypes.iinfo(_numbers_dtype(int_type))


def _numbers_dtype(value: Any) -> Any:
    """Return the dtype of numbers or of their type; Python's numbers are 64 bits wide here."""
    if isinstance(value, type | np.dtype | str | ScalarType):
        return np.dtype(value) if value in (int, float, complex) else check_dtype(value)
    return np.dtype(type(value)) if types.is_python_number(value) else np.dtype(_own_dtype(value))


def canonicalize_dtype(dtype: Any, allow_extended_dtype: bool = False) -> Any:
    """Return `dtype` as values of it enter a program: 32 bits wide unless enable_x64 is set.

    `allow_extended_dtype` is accepted and changes nothing: dtypes of random keys are dtypes.
    """
    return canonical_dtype(dtype)


def itemsize_bits(dtype: Any) -> int:
    """Return how many bits an element takes."""
    return int(check_dtype(dtype).itemsize) * 8


def issubdtype(a: Any, b: Any) -> bool:
    """Say whether dtype `a` is of the kind `b`: a dtype, or a class such as `floating`."""
    if isinstance(a, KeyType):
        return b is a or (isinstance(b, type) and issubclass(prng_key, b))
    kind = isinstance(b, type) and issubclass(b, np.generic)
    if isinstance(a, type) and issubclass(a, np.generic):
        if kind:
            return issubclass(a, b)
        if a in _ABSTRACT:  # a kind is no dtype
            return False
    dtype = np.dtype(a)
    if kind:
        # NumPy does not know that bfloat16 is a floating type.
        found = np.floating if dtype == types.bfloat16 else dtype.type
        return issubclass(found, b) or dtype.type is b
    return not isinstance(b, KeyType) and dtype == np.dtype(b)


_ABSTRACT = {
    *(np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact),
    *(np.floating, np.complexfloating, np.flexible, np.character, extended, prng_key),
}
_KINDS = {
    "bool": types.is_bool,
    "signed integer": lambda d: d.kind == "i",
    "unsigned integer": lambda d: d.kind == "u",
    "integral": types.is_integer,
    "real floating": types.is_float,
    "complex floating": types.is_complex,
    "numeric": lambda d: types.is_integer(d) or types.is_inexact(d),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Say whether `dtype` is of a kind named as in the array API, a dtype, or one of several."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    found = check_dtype(dtype)
    if isinstance(kind, str):
        if kind in _KINDS:
            return bool(_KINDS[kind](found))
        if kind not in types.SHORT_NAMES and kind not in map(str, types.NUMERIC):
            raise ArgumentValueError(
                f"isdtype: {kind!r} is no kind of dtype.", advice=f"Kinds are {', '.join(_KINDS)}."
            )
    return bool(found == check_dtype(kind))


def is_dtype(value: Any) -> bool:
    """Say whether `value` names a dtype rather than being an array or a number."""
    return isinstance(value, np.dtype | ScalarType | KeyType | str | type)


def scalar_type_of(x: Any) -> type:
    """Return the Python type (bool, int, float, complex) of the elements of `x`."""
    dtype = _argument_type(x).dtype
    if types.is_bool(dtype):
        return bool
    if types.is_integer(dtype):
        return int
    return complex if types.is_complex(dtype) else float


def _argument_type(value: Any) -> ArrayType:
    """Return the type of an array, a number, a dtype or a Python number class."""
    if isinstance(value, type) and value in (bool, int, float, complex):
        return scalar_type(value(0))
    if is_dtype(value):
        return ArrayType(canonical_dtype(value), ())
    if is_array(value):
        return ArrayType(value.dtype, (), value.weak_type)
    if value is None:
        raise ArgumentError(
            "None is neither an array nor a dtype.", advice="Pass an array, a number or a dtype."
        )
    return type_of(value)


def result_type(*args: Any, return_weak_type_flag: bool = False) -> Any:
    """Return the dtype that arrays, numbers and dtypes are promoted to when they meet."""
    if not args:
        raise ArgumentError(
            "result_type needs at least one array or dtype.",
            advice="Pass arrays, numbers or dtypes.",
        )
    dtype, weak = types.promote(*(_argument_type(x) for x in args))
    return (dtype, weak) if return_weak_type_flag else dtype


def promote_types(a: Any, b: Any) -> Any:
    """Return the dtype that two dtypes are promoted to, 64 bits wide if one of them is.

    Python's number types are weak; where nothing else is given they are 64 bits wide.
    """
    return types.least_upper_dtype(_promoted_type(a), _promoted_type(b))


def _own_dtype(value: Any) -> Any:
    """Return the dtype that an array or a NumPy number has; of anything else, the thing itself."""
    return value if isinstance(value, type) else getattr(value, "dtype", value)


def _promoted_type(value: Any) -> ArrayType:
    if isinstance(value, type) and value in (int, float, complex):
        return scalar_type(value(0))
    if types.is_python_number(value) or value is None or isinstance(value, np.ndarray):
        raise DTypeError(
            f"promote_types takes dtypes, not {value!r}.", advice="Use result_type for arrays."
        )
    return ArrayType(check_dtype(_own_dtype(value)), ())


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """Say whether NumPy's rule `casting` allows a conversion; raises DTypeError for numbers."""
    for given in (from_, to):
        if given is None or types.is_python_number(given):
            raise DTypeError(
                f"can_cast takes dtypes and arrays, not {given!r}.",
                advice="Name a dtype, such as float32.",
            )
    target = to if isinstance(to, np.ndarray) else _own_dtype(to)
    return bool(np.can_cast(np.dtype(_own_dtype(from_)), np.dtype(target), casting))


key = key_fry
