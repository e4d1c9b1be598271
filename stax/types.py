"""Types of values: element types, array types, and how they go together.

A dtype is a NumPy dtype (bfloat16 is ml_dtypes'), or one of the two extended kinds: a typed random
key (`key<fry>`) and `float0`, the tangent type of integers.  An `ArrayType` is a dtype, a shape and
the weak flag; array types are interned, so identity is equality.  Promotion is JAX's lattice with
weak Python scalars (https://docs.jax.dev/en/latest/type_promotion.html).

    >>> ArrayType(np.dtype("float32"), (8, 128))
    f32[8,128]
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias
from weakref import WeakValueDictionary

import ml_dtypes
import numpy as np

from stax.config import config
from stax.errors import (
    ArgumentError,
    DTypeError,
    NumberRangeError,
    ShapeError,
    TypePromotionError,
)
from stax.extent import Dimension, Extent, product

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)
float0 = np.dtype([("float0", np.void, 0)])

Shape: TypeAlias = tuple[Dimension, ...]


class KeyType:
    """The dtype of typed random keys of one generator; each key is two uint32 words.

    A NumPy array that holds keys has one uint64 for each, the first word in its low half, so that
    whatever moves elements moves keys.
    """

    __slots__ = ("implementation", "words")
    kind = "K"
    itemsize = 8
    storage = uint64

    def __init__(self, implementation: str, words: int) -> None:
        self.implementation = implementation
        self.words = words

    @property
    def name(self) -> str:
        return f"key<{self.implementation}>"

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return f"key_{self.implementation}"  # the one object of that name in this module


key_fry = KeyType("fry", 2)

SHORT_NAMES: dict[Any, str] = {
    bool_: "bool", int8: "i8", int16: "i16", int32: "i32", int64: "i64",
    uint8: "u8", uint16: "u16", uint32: "u32", uint64: "u64",
    bfloat16: "bf16", float16: "f16", float32: "f32", float64: "f64",
    complex64: "c64", complex128: "c128", float0: "float0", key_fry: "key<fry>",
}  # fmt: skip
NUMERIC = tuple(d for d in SHORT_NAMES if d not in (float0, key_fry))
# NumPy has several objects for one dtype (long long, other byte orders); here there is one.
_SUPPORTED = {d: d for d in SHORT_NAMES}


# --- kinds of dtypes ---


def is_float(dtype: Any) -> bool:
    """Say whether `dtype` is a real floating type (bfloat16 included)."""
    return dtype.kind == "f" or dtype == bfloat16


def is_complex(dtype: Any) -> bool:
    """Say whether `dtype` is complex."""
    return bool(dtype.kind == "c")


def is_inexact(dtype: Any) -> bool:
    """Say whether `dtype` is floating or complex: the types that have derivatives."""
    return is_float(dtype) or is_complex(dtype)


def is_integer(dtype: Any) -> bool:
    """Say whether `dtype` is a signed or unsigned integer."""
    return dtype.kind in "iu"


def is_bool(dtype: Any) -> bool:
    """Say whether `dtype` is bool."""
    return bool(dtype == bool_)


def is_bits(dtype: Any) -> bool:
    """Say whether `dtype` is bool or an integer: the types with bitwise operators."""
    return dtype.kind in "biu"


def is_number(dtype: Any) -> bool:
    """Say whether `dtype` is an integer, floating or complex, not bool."""
    return is_integer(dtype) or is_inexact(dtype)


def is_numeric(dtype: Any) -> bool:
    """Say whether `dtype` is a number or bool; random keys and float0 are not."""
    return dtype in NUMERIC


def is_key(dtype: Any) -> bool:
    """Say whether `dtype` is one of typed random keys."""
    return isinstance(dtype, KeyType)


def is_comparable(dtype: Any) -> bool:
    """Say whether elements of `dtype` can be equal: numbers, bool, random keys."""
    return is_numeric(dtype) or is_key(dtype)


def storage(dtype: Any) -> np.dtype:
    """Return the dtype of NumPy arrays that hold elements of `dtype`: uint64 for random keys."""
    found: np.dtype = dtype.storage if isinstance(dtype, KeyType) else dtype
    return found


def is_ordered(dtype: Any) -> bool:
    """Say whether elements of `dtype` have an order: bool, integers, real floating types."""
    return is_numeric(dtype) and not is_complex(dtype)


def accumulator(dtype: np.dtype) -> np.dtype:
    """Return the type in which sums and products of `dtype` accumulate."""
    return float32 if dtype in (float16, bfloat16) else dtype


def real_part(dtype: np.dtype) -> np.dtype:
    """Return the dtype of the real part: float32 for complex64, a real dtype for itself."""
    return {complex64: float32, complex128: float64}.get(dtype, dtype)


def complex_of(dtype: np.dtype) -> np.dtype:
    """Return the complex dtype of parts of `dtype`: complex64 for float32, a complex for itself."""
    wide: dict[Any, np.dtype] = {float32: complex64, float64: complex128}
    return wide.get(dtype, dtype)


def check_dtype(dtype: Any) -> Any:
    """Return `dtype` as one of the supported dtypes, as given (64-bit stays 64-bit).

    Raises DTypeError for strings, objects, dates and whatever else NumPy has beyond them.
    """
    if isinstance(dtype, KeyType):
        return dtype
    if dtype is float:
        return float_dtype()
    if dtype is int:
        return int_dtype()
    if dtype is complex:
        return complex_dtype()
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise DTypeError(f"{dtype!r} is not a dtype.", advice=_DTYPES_ADVICE) from None
    native = found.newbyteorder("=") if found.byteorder in "<>" else found
    if native not in SHORT_NAMES:
        raise DTypeError(f"arrays of dtype {found} are not supported.", advice=_DTYPES_ADVICE)
    return _SUPPORTED[native]


_DTYPES_ADVICE = "Supported are " + ", ".join(
    str(d) for d in (*NUMERIC, "float0 and typed random keys.")
)


def int_dtype() -> np.dtype:
    """Return the default integer type: int32, or int64 with enable_x64."""
    return int64 if config.enable_x64 else int32


def float_dtype() -> np.dtype:
    """Return the default floating type: float32, or float64 with enable_x64."""
    return float64 if config.enable_x64 else float32


def complex_dtype() -> np.dtype:
    """Return the default complex type: complex64, or complex128 with enable_x64."""
    return complex128 if config.enable_x64 else complex64


def inexact_dtype(dtype: Any) -> Any:
    """Return the type in which functions of real analysis compute: integers become floats."""
    if is_inexact(dtype):
        return dtype
    return float64 if dtype in (int64, uint64) else float32


_NARROW = {int64: int32, uint64: uint32, float64: float32, complex128: complex64}


def canonical_dtype(dtype: Any) -> Any:
    """Return the type under which a NumPy value of `dtype` enters a program.

    Without enable_x64, 64-bit values become 32-bit, as in JAX.
    """
    checked = check_dtype(dtype)
    return checked if config.enable_x64 else _NARROW.get(checked, checked)


# --- array types ---


class ArrayType:
    """A dtype, a shape and the weak flag; interned, so `is` compares them."""

    __slots__ = ("__weakref__", "dtype", "shape", "weak")
    _interned: ClassVar[WeakValueDictionary[tuple[Any, Shape, bool], ArrayType]] = (
        WeakValueDictionary()
    )

    dtype: Any
    shape: Shape
    weak: bool

    def __new__(cls, dtype: Any, shape: Shape, weak: bool = False) -> ArrayType:
        key = (dtype, shape, weak)
        found = cls._interned.get(key)
        if found is None:
            found = super().__new__(cls)
            object.__setattr__(found, "dtype", dtype)
            object.__setattr__(found, "shape", shape)
            object.__setattr__(found, "weak", weak)
            found = cls._interned.setdefault(key, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("array types are immutable")

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayType, (self.dtype, self.shape, self.weak)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dimension:
        return product(self.shape)

    @property
    def weak_type(self) -> bool:
        return self.weak

    def with_shape(self, shape: Shape) -> ArrayType:
        """Return this type with another shape."""
        return ArrayType(self.dtype, shape, self.weak)

    def with_dtype(self, dtype: Any, weak: bool = False) -> ArrayType:
        """Return this type with another dtype, which is strong unless said otherwise."""
        return ArrayType(dtype, self.shape, weak)

    def with_leading(self, extent: Dimension) -> ArrayType:
        """Return this type with one more axis in front."""
        return ArrayType(self.dtype, (extent, *self.shape), self.weak)

    def without_leading(self) -> ArrayType:
        """Return this type without its first axis."""
        return ArrayType(self.dtype, self.shape[1:], self.weak)

    def strong(self) -> ArrayType:
        """Return this type with the weak flag cleared."""
        return ArrayType(self.dtype, self.shape) if self.weak else self

    def tangent(self) -> ArrayType:
        """Return the type of tangents: itself, or float0 for types without derivatives."""
        return self.strong() if is_inexact(self.dtype) else ArrayType(float0, self.shape)

    def str_short(self) -> str:
        """Return the printed form without the weak mark."""
        return f"{SHORT_NAMES[self.dtype]}[{','.join(map(str, self.shape))}]"

    def __repr__(self) -> str:
        return self.str_short() + ("~" if self.weak else "")


class TupleType:
    """The type of a node with several results, which are read with `project` only."""

    __slots__ = ("items",)

    def __init__(self, items: Iterable[ArrayType]) -> None:
        self.items = tuple(items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TupleType) and self.items == other.items

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.items))})"


Type: TypeAlias = ArrayType | TupleType


_PYTHON_NUMBERS = frozenset({bool, int, float, complex})


def is_python_number(value: Any) -> bool:
    """Say whether `value` is a Python number; NumPy's scalars are arrays without axes."""
    return type(value) in _PYTHON_NUMBERS or (
        isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic)
    )


def scalar_type(value: bool | int | float | complex) -> ArrayType:
    """Return the (weak) type of a Python number."""
    known = _SCALARS.get((type(value), config.enable_x64))
    if known is None:
        known = _SCALARS[type(value), config.enable_x64] = _scalar_type(value)
    return known


_SCALARS: dict[tuple[type, bool], ArrayType] = {}


def _scalar_type(value: bool | int | float | complex) -> ArrayType:
    if isinstance(value, bool):
        return ArrayType(bool_, ())
    if isinstance(value, int):
        return ArrayType(int_dtype(), (), True)
    if isinstance(value, float):
        return ArrayType(float_dtype(), (), True)
    return ArrayType(complex_dtype(), (), True)


def check_range(value: Any, dtype: np.dtype) -> None:
    """Raise NumberRangeError if `value` is a Python integer that `dtype` does not hold."""
    if not isinstance(value, int):
        return
    limits = np.iinfo(dtype) if is_integer(dtype) else ml_dtypes.finfo(real_part(dtype))
    if not int(limits.min) <= value <= int(limits.max):
        shown = str(value) if abs(value) < 10**40 else f"of {value.bit_length()} bits"
        raise NumberRangeError(
            f"the Python integer {shown} does not fit {dtype}.",
            advice="Give it a wider dtype: stax.numpy.asarray(number, dtype).",
        )


# --- shapes and axes ---


def is_index(value: Any) -> bool:
    """Say whether `value` stands for one integer, known or traced."""
    return isinstance(value, int) or (hasattr(value, "__index__") and not getattr(value, "ndim", 0))


def lengths(shape: Any) -> Shape:
    """Return `shape` (an integer or a sequence of integers or extents) as a tuple.

    Raises ArgumentError for what is not an integer.
    """
    if isinstance(shape, Extent) or is_index(shape):
        shape = (shape,)
    try:
        return tuple(s if isinstance(s, Extent) else operator.index(s) for s in shape)
    except TypeError:
        raise ArgumentError(
            f"a shape is a sequence of integers, not {shape!r}.",
            advice=(
                "Under jit, shapes are static: pass them with static_argnums or close over them."
            ),
        ) from None


def canonical_shape(shape: Any) -> Shape:
    """Return `shape` as a tuple of lengths; raises ShapeError for negative ones."""
    result = lengths(shape)
    if any(isinstance(s, int) and s < 0 for s in result):
        raise ShapeError(
            f"a shape has no negative lengths: {result}.",
            advice="Only reshape takes -1, for the length that is left.",
        )
    return result


def canonical_axis(axis: Any, ndim: int, what: str = "axis") -> int:
    """Return `axis` counted from the front; raises ShapeError when it is out of range."""
    index = operator.index(axis)
    if not -ndim <= index < ndim:
        raise ShapeError(
            f"{what} {index} is out of range for an array with {ndim} axes.",
            advice=f"Axes go from {-ndim} to {ndim - 1} here." if ndim else "It has no axis.",
        )
    return index % ndim


def canonical_axes(axes: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return `axes` sorted, distinct and non-negative; None means all of them."""
    if axes is None:
        return tuple(range(ndim))
    given = (axes,) if is_index(axes) else tuple(axes)  # type: ignore[arg-type]
    result = tuple(sorted(canonical_axis(a, ndim) for a in given))
    if len(set(result)) != len(result):
        raise ShapeError(f"axes are named twice: {tuple(given)}.", advice="Name each axis once.")
    return result


def broadcast_shapes(*shapes: Shape) -> Shape:
    """Return the shape to which NumPy's rules broadcast `shapes`; raises ShapeError."""
    ndim = max((len(s) for s in shapes), default=0)
    result: list[Dimension] = []
    for column in zip(*((1,) * (ndim - len(s)) + s for s in shapes), strict=True):
        wide = [extent for extent in column if isinstance(extent, Extent) or extent != 1]
        if any(extent != wide[0] for extent in wide[1:]):
            raise ShapeError(
                f"shapes {', '.join(map(str, shapes))} do not broadcast together.",
                advice="Axes are aligned at the end; each pair must be equal, or one of them 1.",
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)


# --- promotion ---

_WEAK_INT, _WEAK_FLOAT, _WEAK_COMPLEX = "i*", "f*", "c*"
_LATTICE: dict[Any, tuple[Any, ...]] = {
    bool_: (_WEAK_INT,), _WEAK_INT: (uint8, int8), _WEAK_FLOAT: (bfloat16, float16, _WEAK_COMPLEX),
    uint8: (int16, uint16), uint16: (int32, uint32), uint32: (int64, uint64),
    uint64: (_WEAK_FLOAT,),
    int8: (int16,), int16: (int32,), int32: (int64,), int64: (_WEAK_FLOAT,),
    bfloat16: (float32,), float16: (float32,), float32: (float64, complex64),
    float64: (complex128,), complex64: (complex128,), complex128: (), _WEAK_COMPLEX: (complex64,),
}  # fmt: skip


@functools.cache
def _above(node: Any) -> frozenset[Any]:
    return frozenset({node}).union(*(_above(n) for n in _LATTICE[node]))


@functools.cache
def _join(*nodes: Any) -> Any:
    """Return the least upper bound of lattice nodes."""
    common = frozenset.intersection(*(_above(n) for n in nodes))
    least = [n for n in common if common <= _above(n)]
    if len(least) != 1:
        raise TypePromotionError(
            f"dtypes {', '.join(map(str, nodes))} have no common type.",
            advice="Convert one of them with astype.",
        )
    return least[0]


def _lattice_node(t: ArrayType) -> Any:
    if t.dtype not in _LATTICE:
        raise DTypeError(
            f"{t} takes part in no arithmetic.", advice="Random keys and float0 are no numbers."
        )
    if not t.weak or t.dtype == bool_:
        return t.dtype
    kind = "f" if is_float(t.dtype) else t.dtype.kind
    return {"f": _WEAK_FLOAT, "c": _WEAK_COMPLEX}.get(kind, _WEAK_INT)


@functools.lru_cache(maxsize=4096)
def _promote(types: tuple[ArrayType, ...], x64: bool, mode: str) -> tuple[np.dtype, bool]:
    if is_key(types[0].dtype) and all(t.dtype is types[0].dtype for t in types):
        return types[0].dtype, False
    nodes = tuple(_lattice_node(t) for t in types)
    if mode == "strict" and len({n for n in nodes if not isinstance(n, str)}) > 1:
        raise TypePromotionError(
            f"strict promotion refuses to mix {', '.join(map(repr, types))}.",
            advice="Convert with astype, or set numpy_dtype_promotion to 'standard'.",
        )
    joined = _join(*nodes)
    if not isinstance(joined, str):
        wide = joined if x64 or any(n == joined for n in nodes) else _NARROW.get(joined, joined)
        return wide, all(t.weak for t in types)
    # A weak type's width is that of the widest operand of its kind, or the default.
    kind = {_WEAK_INT: "iu", _WEAK_FLOAT: "f", _WEAK_COMPLEX: "c"}[joined]
    default = {"iu": int_dtype, "f": float_dtype, "c": complex_dtype}[kind]()
    same = [t.dtype for t in types if t.weak and t.dtype.kind in kind]
    return (same[0] if len(same) == 1 else default), True


def promote(*types: ArrayType) -> tuple[np.dtype, bool]:
    """Return the dtype and the weak flag that operands of `types` are converted to.

    Raises DTypeError where there is none (keys and numbers, float0; strict mode).
    """
    return _promote(types, config.enable_x64, config.numpy_dtype_promotion)


def least_upper_dtype(*types: ArrayType) -> np.dtype:
    """Return the dtype that types of nothing in particular go to: Python's numbers have 64 bits."""
    nodes = [*map(_lattice_node, types)]
    joined = _join(*nodes)
    if joined == int64 and not config.enable_x64 and joined not in nodes:
        joined = int32
    return {_WEAK_INT: int64, _WEAK_FLOAT: float64, _WEAK_COMPLEX: complex128}.get(joined, joined)
