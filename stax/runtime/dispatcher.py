"""The native call: take arguments apart, check leaves, run the program, build the result.

The one idea: calling a small program from Python costs more than running it, so the whole call is
one C function. There is one such function for all programs, driven by tables (the ctypes structures
below, and the steps of a CallForm), and it is compiled once per process. It reads fields of CPython
and NumPy objects at offsets that `available()` verifies by trial calls; where they are different (a
free-threaded interpreter, say) the callers in entry.py and executable.py do the same in Python.
"""

from __future__ import annotations

import ctypes
import os
import re
import sysconfig
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stax.runtime import dispatcher_leaves, dispatcher_text, dispatcher_trees, libraries, memory
from stax.runtime.call_form import (
    DICT,
    LEAF,
    LIST,
    SAME,
    STATIC,
    TUPLE,
    CallForm,
    Step,
    flat_form,
)
from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once
from stax.runtime.polling import OK
from stax.runtime.portable import is_portable
from stax.types import canonical_dtype, is_numeric, scalar_type, storage

# PyArray_Type and two functions in the table of NumPy's C API; these numbers never change.
_ARRAY_TYPE, _NEW_FROM_DESCR, _SET_BASE_OBJECT = 2, 94, 282
_METH_FASTCALL, _METH_KEYWORDS = 0x80, 0x02
_RELEASE_GIL = 1


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


class LeafTable(ctypes.Structure):
    """What a leaf is: its type object, and the ndarrays and numbers that stand for such an array
    (`descr` is null and `number` 0 where none does)."""

    _fields_ = (
        ("type", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
        ("dims", ctypes.c_void_p),
        ("nd", ctypes.c_int64),
        ("number", ctypes.c_int64),
    )


class StepTable(ctypes.Structure):
    """A Step of a CallForm."""

    _fields_ = (
        ("kind", ctypes.c_int64),
        ("object", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("items", ctypes.c_void_p),
    )


class VariantTable(ctypes.Structure):
    """One program, the arguments it takes, and what it needs to run."""

    _fields_ = (
        ("next", ctypes.c_void_p),
        ("program", ctypes.c_void_p),
        ("leaves", ctypes.c_void_p),
        ("outputs", ctypes.c_void_p),
        ("extents", ctypes.c_void_p),
        ("constants", ctypes.c_void_p),
        ("n_leaves", ctypes.c_int64),
        ("n_outputs", ctypes.c_int64),
        ("n_constants", ctypes.c_int64),
        ("arena_bytes", ctypes.c_int64),
        ("flags", ctypes.c_int64),
        ("context", ctypes.c_void_p),
        ("positional", ctypes.c_int64),
        ("n_names", ctypes.c_int64),
        ("names", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("n_arguments", ctypes.c_int64),
        ("argument_stack", ctypes.c_int64),
        ("results", ctypes.c_void_p),
        ("n_results", ctypes.c_int64),
        ("result_stack", ctypes.c_int64),
        ("donated", ctypes.c_void_p),
        ("taken", ctypes.c_void_p),
    )


class EntryTable(ctypes.Structure):
    """What a builtin function is bound to: the first of its variants, the callable for all other
    calls, the class of arrays with the offsets of its two slots, and the context variable that is
    None outside of a trace (null: there is none)."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("slow", ctypes.c_void_p),
        ("array_class", ctypes.c_void_p),
        ("type_offset", ctypes.c_int64),
        ("value_offset", ctypes.c_int64),
        ("trace", ctypes.c_void_p),
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
        ("float", ctypes.c_void_p),
        ("int", ctypes.c_void_p),
        ("bool", ctypes.c_void_p),
        ("true", ctypes.c_void_p),
        ("tuple", ctypes.c_void_p),
        ("none", ctypes.c_void_p),
    )


_TABLES: dict[str, type[ctypes.Structure]] = {
    "Output": OutputTable, "Leaf": LeafTable, "Step": StepTable, "Variant": VariantTable,
    "Entry": EntryTable, "Process": _ProcessTable,
}  # fmt: skip
_KINDS = {ctypes.c_void_p: "ptr", ctypes.c_int64: "i64"}


def with_tables(text: str) -> str:
    """Return LLVM text with the types of the tables, and with `field` written out.

    `%x = field %Table %p, name` is the load of that field of the table at %p.
    """
    fields = {
        table: {name: (i, _KINDS[kind]) for i, (name, kind) in enumerate(structure._fields_)}  # type: ignore[misc]
        for table, structure in _TABLES.items()
    }

    def load(found: re.Match[str]) -> str:
        value, table, pointer, name = found.groups()
        number, kind = fields[table][name]
        place = f"getelementptr %{table}, ptr {pointer}, i64 0, i32 {number}"
        return f"%{value}.field = {place}\n  %{value} = load {kind}, ptr %{value}.field"

    types = (f"%{t} = type {{ {', '.join(k for _, k in f.values())} }}" for t, f in fields.items())
    return "\n".join((*types, re.sub(r"%(\S+) = field %(\w+) (\S+), (\w+)", load, text)))


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled program with everything a call needs. `input_types` and `output_types` have a
    `dtype` and a `shape`; `module` keeps the code at `address` in memory; `context` is a table of
    its own (see libraries), where it needs one; `taken` are the numbers of results and of the
    inputs that each may be written over, if those are given up."""

    address: int
    input_types: tuple[Any, ...]
    output_types: tuple[Any, ...]
    extents: tuple[int, ...] = ()
    constants: tuple[np.ndarray, ...] = ()
    arena_bytes: int = 0
    release_gil: bool = False
    module: CompiledModule | None = None
    context: libraries.Context | None = None
    form: CallForm = field(default_factory=lambda: CallForm(0, ()))
    taken: tuple[tuple[int, int], ...] = ()

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
        form: CallForm | None = None,
        release_gil: bool = False,
        context: libraries.Context | None = None,
        taken: Sequence[tuple[int, int]] = (),
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
            release_gil,
            module,
            context,
            form or flat_form(len(input_types), len(output_types)),
            tuple(taken),
        )

    @property
    def context_address(self) -> int:
        """The address of the table that the program is given."""
        return libraries.context_address() if self.context is None else self.context.address


class Variant:
    """A Program as the tables the native code reads. Owns all memory the tables point to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        form = program.form
        self._kept: list[Any] = []
        self._outputs = _table(OutputTable, list(map(self._output, program.output_types)))
        self._leaves = _table(LeafTable, list(map(self._leaf, program.input_types)))
        self._extents = (ctypes.c_int64 * max(1, len(program.extents)))(*program.extents)
        self._constants = _pointers([c.ctypes.data for c in program.constants])
        self._names = _pointers(list(map(id, form.names)))
        self._arguments = _table(StepTable, list(map(self._step, form.arguments)))
        self._results = _table(StepTable, list(map(self._step, form.results)))
        self._donated = (ctypes.c_int8 * max(1, len(form.donated)))(*form.donated)
        taken = dict(program.taken)
        over = [taken.get(k, -1) for k in range(len(program.output_types))]
        self._taken = (ctypes.c_int64 * max(1, len(over)))(*over)
        self.table = self._fill()

    def _dims(self, shape: Sequence[int]) -> int:
        dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        self._kept.append(dims)
        return ctypes.addressof(dims)

    def _output(self, kind: Any) -> OutputTable:
        dtype = storage(kind.dtype)
        nbytes = kind.dtype.itemsize * int(np.prod(kind.shape, dtype=np.int64))
        recycled = nbytes if nbytes >= memory.RECYCLED_BYTES else 0
        return OutputTable(id(kind), id(dtype), self._dims(kind.shape), len(kind.shape), recycled)

    def _leaf(self, kind: Any) -> LeafTable:
        descr = id(kind.dtype) if _stands_as_it_is(kind) else None
        nd = len(kind.shape)
        return LeafTable(id(kind), descr, self._dims(kind.shape), nd, _number_kind(kind))

    def _step(self, step: Step) -> StepTable:
        items = _pointers(list(map(id, step.items)))
        self._kept.append(items)
        return StepTable(step.kind, id(step.object), step.children, ctypes.addressof(items))

    def _fill(self) -> VariantTable:
        program, form = self.program, self.program.form
        return VariantTable(
            next=None,
            program=program.address,
            leaves=ctypes.addressof(self._leaves),
            outputs=ctypes.addressof(self._outputs),
            extents=ctypes.addressof(self._extents),
            constants=ctypes.addressof(self._constants),
            n_leaves=len(program.input_types),
            n_outputs=len(program.output_types),
            n_constants=len(program.constants),
            arena_bytes=program.arena_bytes,
            flags=_RELEASE_GIL * program.release_gil,
            context=program.context_address,
            positional=form.positional,
            n_names=len(form.names),
            names=ctypes.addressof(self._names),
            arguments=ctypes.addressof(self._arguments),
            n_arguments=len(form.arguments),
            argument_stack=form.argument_stack,
            results=ctypes.addressof(self._results),
            n_results=len(form.results),
            result_stack=form.result_stack,
            donated=ctypes.addressof(self._donated) if form.donated else None,
            taken=ctypes.addressof(self._taken) if program.taken else None,
        )


def _table(kind: Any, rows: Sequence[Any]) -> Any:
    return (kind * max(1, len(rows)))(*rows)


def _stands_as_it_is(kind: Any) -> bool:
    """Whether an ndarray of the type's dtype and shape is an argument of that type as it is, which
    64-bit ones may not be."""
    dtype = kind.dtype
    strong = isinstance(dtype, np.dtype) and not getattr(kind, "weak", False)
    return strong and is_numeric(dtype) and canonical_dtype(dtype) is dtype


def _number_kind(kind: Any) -> int:
    """Which Python numbers are arguments of a type: 1 and 2 floats (in 4 and 8 bytes), 3 and 4
    ints, 5 bools, 0 none."""
    for value, codes in ((0.0, {4: 1, 8: 2}), (0, {4: 3, 8: 4}), (False, {1: 5})):
        if scalar_type(value) is kind:
            return codes.get(kind.dtype.itemsize, 0)
    return 0


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
        parts = (dispatcher_text.TEXT, dispatcher_leaves.TEXT, dispatcher_trees.TEXT)
        text = with_tables("".join(parts))
        self.module = compile_module(text, names, optimize=False).keep_forever()
        numpy = _numpy_table()
        table = _ProcessTable.from_address(self.module.address("stax_process"))
        table.array_type = numpy[_ARRAY_TYPE]
        table.new_from_descr = numpy[_NEW_FROM_DESCR]
        table.set_base_object = numpy[_SET_BASE_OBJECT]
        table.allocate = memory.allocate_address()
        table.release = memory.release_address()
        table.float, table.int, table.bool, table.tuple = map(id, (float, int, bool, tuple))
        table.true, table.none = id(True), id(None)
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
    the program as an int. After the inputs it may be given, for each result of a program that
    writes some over inputs, the ndarray to write or None. Only where `available()`."""
    table = EntryTable(first=ctypes.addressof(variant.table))
    table.owner = variant
    return _native().function("stax_call_ndarrays", table)


_trial_trace: ContextVar[Any] = ContextVar("stax_trial_trace", default=None)


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


def _trial_entry(kind: Any, form: CallForm, count: int) -> tuple[Any, Any]:
    """A native call of the trial program, and what its slow callable answers."""
    address = _native().module.address("stax_trial")
    variant = Variant(Program(address, (kind,) * count, (kind,), form=form))
    table = EntryTable(
        first=ctypes.addressof(variant.table),
        array_class=id(_TrialArray),
        type_offset=slot_offset(_TrialArray, "type"),
        value_offset=slot_offset(_TrialArray, "_value"),
        trace=id(_trial_trace),
    )
    sentinel: Any = object()

    def slow(*arguments: Any, **keywords: Any) -> Any:
        return sentinel

    table.slow = id(slow)
    table.owner = (variant, slow)
    return array_function(table), sentinel


def _trial_array(kind: Any) -> _TrialArray:
    x = _TrialArray()
    x.type, x._value = kind, np.array([1.0, 2.0, 3.0])
    return x


def _trial() -> bool:
    """Two calls from end to end, on classes of our own."""
    kind = _TrialType()
    call, sentinel = _trial_entry(kind, flat_form(1, 1, False), 1)
    x = _trial_array(kind)
    y = call(x)
    right = type(y) is _TrialArray and y.type is kind and type(y._value) is np.ndarray
    right = right and y._value.tolist() == [2.0, 3.0, 4.0] and not y._value.flags.writeable
    right = right and call(x, x) is sentinel and call(1.0) is sentinel
    return right and _tree_trial(kind)


def _tree_trial(kind: Any) -> bool:
    """A call of nested containers, with a keyword, a static argument and a donated array."""
    leaf, none = Step(LEAF), Step(SAME, None)
    inner = Step(DICT, dict, 2, ("a", "b"))
    arguments = (Step(STATIC, "s"), Step(TUPLE, tuple, 2), inner, leaf, none, Step(LIST, list, 1))
    results = (leaf, none, Step(LIST, list, 1), inner)
    form = CallForm(2, results, ("k",), (*arguments, leaf, leaf), (False, True, False))
    call, sentinel = _trial_entry(kind, form, 3)
    x, y, z = (_trial_array(kind) for _ in range(3))
    found = call("s", ({"b": None, "a": x}, [y]), k=z)
    right = type(found) is dict and list(found) == ["a", "b"] and found["b"] == [None]
    right = right and found["a"]._value.tolist() == [2.0, 3.0, 4.0]
    right = right and y._value is None and x._value is not None
    once = (({"b": None, "a": x}, [x]), ({"b": None, "a": x}, [z]))
    return (
        right
        and all(call("s", node, k=z) is sentinel for node in once)
        and call("t", ({"b": None, "a": x}, [z]), k=x) is sentinel
        and call("s", ({"b": None, "c": x}, [z]), k=x) is sentinel
        and call("s", ({"b": None, "a": x}, [z]), z=x) is sentinel
    )


@once
def available() -> bool:
    """Whether native calls work in this interpreter. STAX_NATIVE_CALLS=0 turns them off, and so
    does STAX_PORTABLE=1."""
    if os.environ.get("STAX_NATIVE_CALLS", "1") == "0" or is_portable():
        return False
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not _layout_is_known():
        return False
    return _trial() and OK == 0
