"""Concrete arrays: what users hold in their hands.

An `Array` is immutable: a type and a NumPy array nobody may write to.  It has what Python and NumPy
ask of an array (conversions, printing, pickling, DLPack); arithmetic and methods are installed on
it and on `Proxy` alike by the modules that define them, so the two cannot drift apart.  A traced
array is an instance of `Array` too, as in JAX, and `asarray` is the door through which everything
else becomes one: it copies sources that can change, and applies the rules of 64-bit types.

    >>> asarray([1, 2.5])
    Array([1. , 2.5], dtype=float32)
    >>> asarray(3.0)
    Array(3., dtype=float32, weak_type=True)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

import stax.surroundings  # noqa: F401
from stax import capsule, types
from stax.device import Placed
from stax.errors import (
    ArgumentError,
    ArgumentValueError,
    DeletedArrayError,
    DTypeError,
    ImmutableArrayError,
    ShapeError,
    TracerIntegerConversionError,
)
from stax.extent import Extent, same_shape
from stax.graph import ArrayConstant, Length
from stax.operators.arithmetic import install_operators
from stax.operators.elementwise import Convert, convert
from stax.operators.shape import concatenate, expand_dims
from stax.trace import NOT_HASHABLE, Proxy, bind, described, links, named_row
from stax.types import (
    ArrayType,
    KeyType,
    canonical_dtype,
    check_dtype,
    is_python_number,
    scalar_type,
)


class _ArrayMeta(type):
    """Makes a traced array an instance of `Array`: programs test for arrays before and in jit."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is cls or type(instance) is Proxy


class Array(Placed, metaclass=_ArrayMeta):
    """An immutable array; made by `asarray`, by functions of the library and by jitted programs.

    NumPy reads it without a copy (`np.asarray`), and so do other libraries through DLPack.  It has
    no buffer of its own, which Python 3.11 cannot give a class: `memoryview(np.asarray(x))`.
    """

    # The native entry of jitted functions reads these slots by position.
    __slots__ = ("type", "_value", "__weakref__")  # noqa: RUF023
    __array_priority__ = 100

    type: ArrayType
    _value: np.ndarray | None

    def __new__(cls, *args: Any, **kwargs: Any) -> Array:
        raise ArgumentError("Array has no constructor.", advice="Use stax.numpy.asarray.")

    @property
    def aval(self) -> ArrayType:
        return self.type

    @property
    def dtype(self) -> Any:
        return self.type.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape  # type: ignore[return-value]

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def weak_type(self) -> bool:
        return self.type.weak

    @property
    def itemsize(self) -> int:
        return self.type.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    def delete(self) -> None:
        """Give up the memory now; any later use of the values raises."""
        self._value = None

    def is_deleted(self) -> bool:
        """Say whether the memory was given up, by `delete` or by donating it to a program."""
        return self._value is None

    def block_until_ready(self) -> Array:
        """Return the array: work on the CPU is done when a call returns."""
        value_of(self)
        return self

    def is_ready(self) -> bool:
        """Say that the values are there: work on the CPU is done when a call returns."""
        value_of(self)
        return True

    def copy_to_host_async(self) -> None:
        """Do nothing: the values are in host memory."""
        value_of(self)

    def on_device_size_in_bytes(self) -> int:
        """Return how much memory the elements take."""
        return value_of(self).nbytes

    def unsafe_buffer_pointer(self) -> int:
        """Return the address of the elements, which may be read while the array is kept."""
        return value_of(self).ctypes.data

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        value = _numeric(self)
        if dtype is None or np.dtype(dtype) == value.dtype:
            return value.copy() if copy else value
        if copy is False:
            raise ArgumentValueError(
                f"{self.type} cannot become {dtype} without a copy.",
                advice="Use copy=None, which copies where it must.",
            )
        return value.astype(dtype)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule of the values, which are read-only; see `capsule.export`."""
        return capsule.export(_numeric(self), stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return capsule.DEVICE

    def __bytes__(self) -> bytes:
        return _numeric(self).tobytes()

    def __bool__(self) -> bool:
        value = _numeric(self)
        if value.size == 0:
            raise ArgumentValueError(
                "the truth of an empty array is ambiguous.",
                advice="Use x.size > 0 to ask whether it has elements.",
            )
        if value.size > 1:
            raise ArgumentValueError(
                "the truth of an array of several elements is ambiguous.",
                advice="Use x.any() or x.all().",
            )
        return bool(value.reshape(()))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __index__(self) -> int:
        if self.ndim or not types.is_integer(self.dtype):
            raise ArgumentError(
                f"only integer scalars can be an index, not {self.type}.",
                advice="Convert it to an integer dtype, or take one element.",
            )
        return int(value_of(self))

    def _scalar(self, kind: str) -> Any:
        if self.ndim:
            raise ArgumentError(
                f"{kind}() takes an array without axes, not {self.type}.",
                advice="Use x.item() or x[0] for arrays of one element.",
            )
        return _numeric(self)[()]

    def item(self, *index: Any) -> Any:
        """Return the one element, or that at `index`, as a Python number."""
        if not index and self.size != 1:
            raise ArgumentValueError(
                f"item() takes an array of one element, not {self.type}.",
                advice="Name the element, x.item(0), or use x.tolist().",
            )
        return _numeric(self).item(*index)

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return _numeric(self).tolist()

    def __len__(self) -> int:
        return leading_length(self)

    def __iter__(self) -> Iterator[Array]:
        leading_length(self)
        row, value = self.type.without_leading(), value_of(self)
        return (array_from_numpy(value[i], row) for i in range(self.shape[0]))

    def __hash__(self) -> int:
        raise ArgumentError(
            NOT_HASHABLE, advice="Take the bytes for a key: np.asarray(x).tobytes()."
        )

    def __repr__(self) -> str:
        if isinstance(self.dtype, KeyType):
            return f"Array({self.shape}, dtype={self.dtype.name}) overlaying:\n{_words(self)}"
        kind = f"dtype={self.dtype.name}" + (", weak_type=True" if self.weak_type else "")
        width = np.get_printoptions()["linewidth"]
        text = f"[], shape={self.shape}" if not self.size else _numbers(value_of(self), width)
        last = len(text) - text.rfind("\n") + 1
        gap = " " * (len("Array(") if last + len(kind) + 2 > width else 1)
        return f"Array({text},{gap}{kind})"

    def __str__(self) -> str:
        return repr(self) if isinstance(self.dtype, KeyType) else str(value_of(self))

    def __format__(self, spec: str) -> str:
        if not spec and isinstance(self.dtype, KeyType):
            return str(self)
        value = _numeric(self)
        return format(value if self.ndim else value[()], spec)

    def __copy__(self) -> Array:
        return array_from_numpy(value_of(self).copy(), self.type)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    def __reduce__(self) -> tuple[Any, ...]:
        return array_from_numpy, (value_of(self), self.type)


def leading_length(x: Any) -> int:
    """Return the length of the first axis of an array; raises ArgumentError if it has none."""
    if not x.ndim and type(x) is Proxy and types.is_integer(x.dtype):
        # Functions that take an integer or a sequence of them look here for the sequence.
        raise TracerIntegerConversionError(
            f"a traced integer is no sequence, and no axis or shape: {x.owner.transform} traces "
            "without values.",
            values=[named_row(x)],
            advice="Shapes and axes are static: mark the argument with static_argnums.",
        )
    if not x.ndim:
        raise ArgumentError(
            "an array without axes has no length and cannot be iterated over.",
            advice="Use atleast_1d, or reshape(1).",
        )
    return operator.index(x.shape[0])


def _words(keys: Array) -> np.ndarray:
    """Return the words of random keys, those of each along a last axis."""
    return value_of(keys)[..., None].view(np.uint32)


def _numbers(value: np.ndarray, width: int) -> str:
    return np.array2string(value, prefix="Array(", suffix=",", separator=", ", max_line_width=width)


_new = object.__new__


def array_from_numpy(value: np.ndarray, kind: ArrayType) -> Array:
    """Return the array of type `kind` with the elements of `value`, which the caller gives away.

    `value` has the type's shape and the dtype in which its elements are stored; it is copied only
    if kernels could not read it.
    """
    if type(value) is not np.ndarray:
        value = np.asarray(value)
    flags = value.flags
    if not (flags.c_contiguous and flags.aligned):
        value = value.copy(order="C")
        flags = value.flags
    if flags.writeable:
        value.setflags(write=False)
    self = _new(Array)
    self.type = kind
    self._value = value
    return self


def value_of(array: Any) -> np.ndarray:
    """Return the read-only NumPy array behind `array`; raises if it was deleted, or is traced."""
    value = array._value
    if type(value) is np.ndarray:
        return value
    if type(array) is Proxy:
        return array.__array__()
    raise DeletedArrayError(
        f"an array of type {array.type} was used after it was deleted or donated.",
        advice="Use the result of the program it was donated to, or do not donate it.",
    )


def _numeric(array: Array) -> np.ndarray:
    value = value_of(array)
    if isinstance(array.dtype, KeyType):
        raise DTypeError(
            f"random keys ({array.type}) are not numbers.",
            advice="Use random.key_data to look at their bits.",
        )
    return value


# --- making arrays ---


def asarray(value: Any, dtype: Any = None) -> Any:
    """Return `value` as an array, converted to `dtype` if that is given.

    Arrays are returned as they are; Python numbers are weak; what can change is copied.
    """
    wanted = None if dtype is None else check_dtype(dtype)
    if not isinstance(value, Array) and hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    if isinstance(value, Array):
        return value if wanted is None else convert(value, wanted)
    if isinstance(value, Extent):
        length = bind(Length(value, types.int_dtype()))
        return length if wanted is None else convert(length, wanted)
    if isinstance(value, list | tuple):
        return _from_sequence(value, wanted)
    if is_python_number(value):
        kind = scalar_type(value) if wanted is None else ArrayType(wanted, ())
        return array_from_numpy(_number(value, kind.dtype), kind)
    return _from_numpy(_buffer(value), wanted)


def copied(array: Any) -> Any:
    """Return an array of the same elements that stays when `array` is deleted or donated.

    Memory is not copied: arrays never change, and a program writes over one that nobody else sees.
    """
    return array_from_numpy(value_of(array), array.type) if type(array) is Array else array


def as_operand(value: Any) -> Any:
    """Return an operand of an op as an array; sequences are refused, as in JAX."""
    if isinstance(value, list | tuple) and not hasattr(value, "__jax_array__"):
        raise ArgumentError(
            f"arrays and numbers are operands, not a {type(value).__name__}.",
            advice="Convert it first: stax.numpy.asarray(...).",
        )
    return asarray(value)


def _number(value: Any, dtype: np.dtype) -> np.ndarray:
    """Return a Python number in `dtype`; raises NumberRangeError for integers that do not fit."""
    if isinstance(value, float) and types.is_integer(dtype):
        return np.asarray(int(value), dtype)
    if isinstance(value, complex) and not (types.is_complex(dtype) or types.is_bool(dtype)):
        value = value.real
    return _in_dtype(value, [value], dtype)


def _in_dtype(value: Any, leaves: Iterable[Any], dtype: np.dtype) -> np.ndarray:
    """Return numbers as an array; raises NumberRangeError if one of `leaves` is too large."""
    try:
        return np.array(value, dtype)
    except OverflowError:
        for leaf in leaves:
            types.check_range(leaf, dtype)
        raise


_NUMBERS = "Pass numbers, arrays, or nested lists of them."


def _buffer(value: Any) -> np.ndarray:
    """Return anything that NumPy can read as an array of numbers."""
    if value is None:
        raise ArgumentValueError("None is not an array.", advice=_NUMBERS)
    if isinstance(value, np.ma.MaskedArray):
        raise DTypeError(
            "masked arrays are not arrays here: their mask would be lost.",
            values=[("value", f"{value.dtype}{list(value.shape)}", "a masked array")],
            advice="Use x.filled(value), or take x.data and np.ma.getmaskarray(x) apart.",
        )
    array = np.asarray(value)
    has_fields = array.dtype.names is not None and array.dtype != types.float0
    if array.dtype.kind in "OSUMm" or has_fields:
        kind = type(value).__name__ if array.dtype.kind == "O" else f"dtype {array.dtype}"
        raise DTypeError(
            f"{kind} is not the type of an array: arrays hold numbers.",
            values=[("value", repr(value)[:60], "")],
            advice=_NUMBERS,
        )
    return array


def _from_numpy(value: np.ndarray, dtype: Any) -> Array:
    """Return a copy of `value`, whatever its strides and byte order, as an array."""
    native = value.astype(check_dtype(value.dtype), order="C", copy=False)
    kind = canonical_dtype(value.dtype) if dtype is None else dtype
    if dtype is None:
        native = native.astype(kind, copy=False)
    elif native.dtype != kind:
        is_truth = types.is_bool(kind)  # of both parts of a complex number
        native = native.astype(kind) if is_truth else Convert(kind, False).evaluate(native)
    owned = native.copy(order="C") if np.may_share_memory(native, value) else native
    return array_from_numpy(owned, ArrayType(kind, value.shape))


def _from_sequence(value: Sequence[Any], dtype: Any) -> Any:
    """Return nested lists of numbers and arrays as one array, of their common type."""
    leaves = list(_leaves(value))
    classes = set(map(type, leaves))
    if Proxy in classes or any(type(x) is Array and x.dtype.kind == "K" for x in leaves):
        return _stack([asarray(x) for x in value], dtype)
    if dtype is None:
        kinds = {scalar_type(number(0)) for number in classes & _PYTHON_NUMBERS}
        kinds |= {_leaf_type(x) for x in leaves if type(x) not in _PYTHON_NUMBERS}
        dtype = types.promote(*kinds)[0] if kinds else types.float_dtype()
    try:
        array = _in_dtype(_concrete(value), leaves, dtype)
    except ValueError as error:
        raise ArgumentValueError(
            f"the sequence is not an array: {str(error).rstrip('.')}.",
            advice="The rows of an array have one length.",
        ) from None
    return array_from_numpy(array, ArrayType(dtype, array.shape))


_PYTHON_NUMBERS = frozenset({bool, int, float, complex})


def _leaves(value: Any) -> Iterator[Any]:
    if type(value) in _PYTHON_NUMBERS:
        yield value
    elif isinstance(value, list | tuple):
        for x in value:
            yield from _leaves(x)
    else:
        yield value.__jax_array__() if hasattr(value, "__jax_array__") else value


def _leaf_type(value: Any) -> ArrayType:
    """Return the type of an element of a list, its shape left out."""
    if isinstance(value, Array):
        return ArrayType(value.dtype, (), value.weak_type)
    if is_python_number(value):
        return scalar_type(value)
    return ArrayType(canonical_dtype(_buffer(value).dtype), ())


def _concrete(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_concrete(x) for x in value]
    if hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    return _numeric(value) if isinstance(value, Array) else value


def _stack(rows: Sequence[Any], dtype: Any) -> Any:
    """Return arrays of one shape along a new leading axis."""
    for row in rows:
        if not same_shape(row.shape, rows[0].shape):
            shapes = ", ".join(str(r.shape) for r in rows)
            raise ShapeError(
                f"the arrays of a list must have one shape, got {shapes}.",
                advice="Broadcast them to one shape first, or use concatenate.",
            )
    if dtype is None:
        common, weak = types.promote(*(r.type for r in rows))
    else:
        common, weak = dtype, False
    return concatenate([expand_dims(convert(r, common, weak), (0,)) for r in rows], 0)


# --- assignment, which there is none of ---


def _refuse_assignment(self: Any, index: Any, value: Any) -> NoReturn:
    raise ImmutableArrayError(
        "arrays are immutable: x[index] = value cannot change x.",
        values=[("x", repr(self.type), described(self.node) if type(self) is Proxy else "")],
        advice="Write x = x.at[index].set(value); .add, .multiply, .min and .max work alike.",
    )


def _refuse_assignments(cls: Any) -> None:
    cls.__setitem__ = _refuse_assignment


for _class in (Array, Proxy):
    _refuse_assignments(_class)
    install_operators(_class)
links.array_class = Array
links.as_array = as_operand
links.value_of = value_of
links.from_numpy = array_from_numpy
ArrayConstant.read = staticmethod(value_of)
