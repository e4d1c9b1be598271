"""The native half of a call: allocate results, run the program, wrap what came out.

The one idea: calling a small program from Python costs more than running it, so the whole call is
one C function. There is one such function for all programs, driven by tables (the ctypes structures
below), and it is compiled once per process. It reads fields of CPython and NumPy objects at offsets
that `available()` verifies by a trial call; where they are different (a free-threaded
interpreter, say) the callers in entry.py and executable.py do the same in Python.
"""

from __future__ import annotations

import ctypes
import os
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax.runtime import libraries, memory
from stax.runtime.dispatcher_text import TEXT
from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once
from stax.runtime.polling import OK
from stax.runtime.portable import is_portable
from stax.types import storage

# PyArray_Type and two functions in the table of NumPy's C API; these numbers never change.
_ARRAY_TYPE, _NEW_FROM_DESCR, _SET_BASE_OBJECT = 2, 94, 282
_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
_RELEASE_GIL, _TUPLE_RESULT = 1, 2


class OutputTable(ctypes.Structure):
    """How to make one result: its type and dtype objects, its dimensions, and its size in bytes if
    it is to lie in recycled memory (0 otherwise)."""

    _fields_ = (
        ("type", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
        ("dims", ctypes.c_void_p),
        ("nd", ctypes.c_int64),
        ("recycled_bytes", ctypes.c_int64),
    )


class VariantTable(ctypes.Structure):
    """One program, the input types it takes, and what it needs to run."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("program", ctypes.c_void_p),
        ("input_types", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("extents", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("n_inputs", ctypes.c_int64),
        ("n_outputs", ctypes.c_int64),
        ("n_constants", ctypes.c_int64),
        ("arena_bytes", ctypes.c_int64),
        ("flags", ctypes.c_int64),
        ("context", ctypes.c_void_p),
    )


class EntryTable(ctypes.Structure):
    """What a builtin function is bound to: the first of its variants, the callable for all other
    calls, and the class of arrays with the offsets of its two slots."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("slow", ctypes.c_void_p),
        ("array_class", ctypes.c_void_p),
        ("type_offset", ctypes.c_int64),
        ("value_offset", ctypes.c_int64),
    )
    owner: Any  # What the table points to, kept alive by whoever keeps the function.


class _ProcessTable(ctypes.Structure):
    """@stax_process: the addresses that the compiled functions need."""

    _fields_ = (
        ("array_type", ctypes.c_void_p),
        ("new_from_descr", ctypes.c_void_p),
        ("set_base_object", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
    )


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled program with everything a call needs. `input_types` and `output_types` have a
    `dtype` and a `shape`; `module` keeps the code at `address` in memory; `context` is a table of
    its own (see libraries), where it needs one."""

    address: int
    input_types: tuple[Any, ...]
    output_types: tuple[Any, ...]
    extents: tuple[int, ...] = ()
    constants: tuple[np.ndarray, ...] = ()
    arena_bytes: int = 0
    tuple_result: bool = True
    release_gil: bool = False
    module: CompiledModule | None = None
    context: libraries.Context | None = None

    @classmethod
    def of(
        cls,
        program: int | CompiledModule,
        input_types: Sequence[Any],
        output_types: Sequence[Any],
        *,
        name: str,
        extents: Sequence[int] = (),
        constants: Sequence[np.ndarray] = (),
        arena_bytes: int = 0,
        tuple_result: bool = True,
        release_gil: bool = False,
        context: libraries.Context | None = None,
    ) -> Program:
        """From an address, or from the function `name` of a module."""
        module = None if isinstance(program, int) else program
        return cls(
            program if module is None else module.address(name),  # type: ignore[arg-type]
            tuple(input_types),
            tuple(output_types),
            tuple(extents),
            tuple(constants),
            arena_bytes,
            tuple_result,
            release_gil,
            module,
            context,
        )

    @property
    def context_address(self) -> int:
        """The address of the table that the program is given."""
        return libraries.context_address() if self.context is None else self.context.address


class Variant:
    """A Program as the tables the native code reads. Owns all memory the tables point to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        outputs = program.output_types
        self._dims = [(ctypes.c_int64 * max(1, len(t.shape)))(*t.shape) for t in outputs]
        self._outputs = (OutputTable * max(1, len(outputs)))()
        for table, output, dims in zip(self._outputs, outputs, self._dims, strict=False):
            nbytes = output.dtype.itemsize * int(np.prod(output.shape, dtype=np.int64))
            table.type, table.descr = id(output), id(storage(output.dtype))
            table.dims, table.nd = ctypes.addressof(dims), len(output.shape)
            table.recycled_bytes = nbytes if nbytes >= memory.RECYCLED_BYTES else 0
        self._types = _pointers([id(t) for t in program.input_types])
        self._extents = (ctypes.c_int64 * max(1, len(program.extents)))(*program.extents)
        self._constants = _pointers([c.ctypes.data for c in program.constants])
        self.table = self._fill()

    def _fill(self) -> VariantTable:
        program = self.program
        flags = _RELEASE_GIL * program.release_gil | _TUPLE_RESULT * program.tuple_result
        return VariantTable(
            next=None,
            program=program.address,
            input_types=ctypes.addressof(self._types),
            outputs=ctypes.addressof(self._outputs),
            extents=ctypes.addressof(self._extents),
            constants=ctypes.addressof(self._constants),
            n_inputs=len(program.input_types),
            n_outputs=len(program.output_types),
            n_constants=len(program.constants),
            arena_bytes=program.arena_bytes,
            flags=flags,
            context=program.context_address,
        )


def _pointers(addresses: Sequence[int]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses)


class _MethodDef(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


# Prototypes of our own: the attributes of ctypes.pythonapi are shared with every other library.
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_new_builtin = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p, ctypes.c_void_p
)(("PyCMethod_New", ctypes.pythonapi))


def _numpy_table() -> ctypes.Array[ctypes.c_void_p]:
    capsule = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    address = _capsule_pointer(capsule, None)
    return (ctypes.c_void_p * (_SET_BASE_OBJECT + 1)).from_address(address)


class _Native:
    """The compiled functions."""

    def __init__(self) -> None:
        names = ["stax_process", "stax_call_arrays", "stax_call_ndarrays", "stax_trial"]
        # Functions made from this code may be called until the interpreter ends.
        self.module = compile_module(TEXT, names, optimize=False).keep_forever()
        numpy = _numpy_table()
        table = _ProcessTable.from_address(self.module.address("stax_process"))
        table.array_type = numpy[_ARRAY_TYPE]
        table.new_from_descr = numpy[_NEW_FROM_DESCR]
        table.set_base_object = numpy[_SET_BASE_OBJECT]
        table.allocate = memory.allocate_address()
        table.release = memory.release_address()
        flags = {
            "stax_call_arrays": _METH_FASTCALL | _METH_KEYWORDS,
            "stax_call_ndarrays": _METH_FASTCALL,
        }
        self._methods = {
            name: _MethodDef(name.encode(), self.module.address(name), kind, None)
            for name, kind in flags.items()
        }

    def function(self, name: str, table: EntryTable) -> Callable[..., Any]:
        """A builtin function bound to `table`."""
        method = ctypes.addressof(self._methods[name])
        return _new_builtin(method, table, None, None)


@once
def _native() -> _Native:
    return _Native()


def slot_offset(cls: type, name: str) -> int:
    """The offset of a `__slots__` member in instances of `cls`, from its descriptor: a
    PyMemberDescrObject points, at 40, to a PyMemberDef, whose offset field is at 16."""
    descriptor = cls.__dict__[name]
    if type(descriptor).__name__ != "member_descriptor":
        raise TypeError(f"{cls.__name__}.{name} must be a __slots__ member, not {descriptor!r}")
    member = ctypes.c_void_p.from_address(id(descriptor) + 40).value
    return ctypes.c_int64.from_address((member or 0) + 16).value


def array_function(table: EntryTable) -> Callable[..., Any]:
    """The native call over arrays, bound to `table`. Only where `available()`."""
    return _native().function("stax_call_arrays", table)


def ndarray_function(variant: Variant) -> Callable[..., Any]:
    """The native call over exact ndarrays: `f(*inputs)` gives a list of results, or the status of
    the program as an int. Only where `available()`."""
    table = EntryTable(first=ctypes.addressof(variant.table))
    table.owner = variant
    return _native().function("stax_call_ndarrays", table)


class _TrialType:
    dtype = np.dtype(np.float64)
    shape = (3,)


class _TrialArray:
    __slots__ = ("__weakref__", "_value", "type")
    type: Any
    _value: Any


def _layout_is_known() -> bool:
    # ctypes objects keep the address of their memory where the native code looks for it.
    table = EntryTable()
    return ctypes.c_void_p.from_address(id(table) + 16).value == ctypes.addressof(table)


def _trial() -> bool:
    """One call from end to end, on classes of our own."""
    kind = _TrialType()
    address = _native().module.address("stax_trial")
    variant = Variant(Program(address, (kind,), (kind,), tuple_result=False))
    table = EntryTable(
        first=ctypes.addressof(variant.table),
        array_class=id(_TrialArray),
        type_offset=slot_offset(_TrialArray, "type"),
        value_offset=slot_offset(_TrialArray, "_value"),
    )
    sentinel: Any = object()

    def slow(*arguments: Any) -> Any:
        return sentinel

    table.slow = id(slow)
    table.owner = (variant, slow)
    call = array_function(table)
    x = _TrialArray()
    x.type, x._value = kind, np.array([1.0, 2.0, 3.0])
    y = call(x)
    right = type(y) is _TrialArray and y.type is kind and type(y._value) is np.ndarray
    right = right and y._value.tolist() == [2.0, 3.0, 4.0] and not y._value.flags.writeable
    return right and call(x, x) is sentinel and call(1.0) is sentinel


@once
def available() -> bool:
    """Whether native calls work in this interpreter. STAX_NATIVE_CALLS=0 turns them off, and so
    does STAX_PORTABLE=1."""
    if os.environ.get("STAX_NATIVE_CALLS", "1") == "0" or is_portable():
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not _layout_is_known():
        return False
    return _trial() and OK == 0
