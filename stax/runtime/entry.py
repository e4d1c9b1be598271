"""The entry of a jitted function: from arguments to results without Python in between.

The one idea: an entry is a chain of compiled variants in front of a slow callable. A call whose
arguments have a variant's structure and static values, with leaves that are live arrays of its
exact types (or ndarrays and numbers that stand for them), runs that variant's program at once;
every other call (other types, other classes, a deleted array, a call inside a trace, a program that
reports failure) goes to the slow callable with the same arguments, which compiles, converts or
raises, and may add a variant.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import numpy as np

from stax.runtime import dispatcher
from stax.runtime.call_form import LEAF, CallForm, Step, flat_form
from stax.runtime.dispatcher import EntryTable, Program, Variant
from stax.runtime.engine import CompiledModule
from stax.runtime.executable import ndarray_call
from stax.runtime.libraries import Context


class EntryLike(Protocol):
    """What both kinds of entry offer."""

    call: Callable[..., Any]

    def add_program(self, program: Program) -> None: ...

    def enable(self, usable: bool) -> None:
        """Run variants, or send every call to the slow callable."""

    def clear(self) -> None:
        """Forget the variants."""


MOST_CALLS = 256
"""Variants that an entry tries in turn; calls of others are slow."""


class Entry:
    """The native entry. `call` is a builtin function; it keeps everything it needs alive."""

    def __init__(
        self, slow: Callable[..., Any], array_class: type, trace: ContextVar[Any] | None = None
    ) -> None:
        self._variants: list[Variant] = []
        self._retired: list[Variant] = []
        self._table = EntryTable(
            slow=id(slow),
            array_class=id(array_class),
            type_offset=dispatcher.slot_offset(array_class, "type"),
            value_offset=dispatcher.slot_offset(array_class, "_value"),
            trace=None if trace is None else id(trace),
        )
        self._table.owner = (slow, array_class, trace, self._variants)
        self.call: Callable[..., Any] = dispatcher.array_function(self._table)

    def add_program(self, program: Program) -> None:
        """Put a variant at the end of the chain. Running calls are not disturbed: the chain only
        ever grows, by one pointer written when the variant is complete."""
        if len(self._variants) == MOST_CALLS:
            return
        variant = Variant(program)
        link = self._variants[-1].table if self._variants else self._table
        self._variants.append(variant)
        address = ctypes.addressof(variant.table)
        if isinstance(link, EntryTable):
            link.first = address
        else:
            link.next = address

    def enable(self, usable: bool) -> None:
        first = ctypes.addressof(self._variants[0].table) if self._variants and usable else None
        self._table.first = first

    def clear(self) -> None:
        self._table.first = None
        # A call may be running one of them, so they live as long as the entry does.
        self._retired += self._variants
        self._variants.clear()


class PythonEntry:
    """The same entry in Python, for interpreters where the native one does not work. It knows calls
    of arrays by position, with one result or a tuple of them."""

    def __init__(
        self, slow: Callable[..., Any], array_class: type, trace: ContextVar[Any] | None = None
    ) -> None:
        self._slow = slow
        self._class: Any = array_class
        self._type, self._value = array_class.__dict__["type"], array_class.__dict__["_value"]
        self._variants: list[tuple[Program, bool, Callable[..., Any]]] = []
        self._usable = True
        self._trace = trace
        self.call: Callable[..., Any] = self._call

    def add_program(self, program: Program) -> None:
        form, count = program.form, len(program.output_types)
        is_tuple = form.results == flat_form(0, count).results
        if form.takes_leaves and (is_tuple or form.results == (Step(LEAF),)):
            self._variants.append((program, is_tuple, ndarray_call(Variant(program))))

    def enable(self, usable: bool) -> None:
        self._usable = usable

    def clear(self) -> None:
        self._variants.clear()

    def _call(self, /, *arguments: Any, **keywords: Any) -> Any:
        usable = (
            self._usable and not keywords and (self._trace is None or self._trace.get() is None)
        )
        for program, is_tuple, run in self._variants if usable else ():
            values = self._match(program, arguments)
            if values is not None:
                results = run(*values)
                if type(results) is int:
                    break
                arrays = tuple(map(self._wrap, program.output_types, results))
                return arrays if is_tuple else arrays[0]
        return self._slow(*arguments, **keywords)

    def _match(self, program: Program, arguments: tuple[Any, ...]) -> list[np.ndarray] | None:
        if len(arguments) != len(program.input_types):
            return None
        values = []
        for x, wanted in zip(arguments, program.input_types, strict=True):
            if type(x) is not self._class or x.type is not wanted:
                return None
            value = x._value
            if type(value) is not np.ndarray:
                return None
            values.append(value)
        return values

    def _wrap(self, output_type: Any, value: np.ndarray) -> Any:
        # Past the constructor and through the slots' descriptors, which the class may refuse.
        array = object.__new__(self._class)
        self._type.__set__(array, output_type)
        self._value.__set__(array, value)
        return array


def make_entry(
    slow: Callable[..., Any], array_class: type, trace: ContextVar[Any] | None = None
) -> EntryLike:
    """The fastest entry that works here. `array_class` has slots `type` and `_value`; calls are
    slow where `trace` is not None."""
    kind = Entry if dispatcher.available() else PythonEntry
    return kind(slow, array_class, trace)


def add_variant(
    entry: EntryLike,
    program: int | CompiledModule,
    input_types: Sequence[Any],
    output_types: Sequence[Any],
    form: CallForm,
    *,
    name: str = "program",
    extents: Sequence[int] = (),
    constants: Sequence[np.ndarray] = (),
    arena_bytes: int = 0,
    release_gil: bool = False,
    context: Context | None = None,
    taken: Sequence[tuple[int, int]] = (),
) -> None:
    """Add a compiled program to an entry. Types are compared by identity; see Executable for the
    other arguments."""
    entry.add_program(
        Program.of(
            program,
            input_types,
            output_types,
            name=name,
            extents=extents,
            constants=constants,
            arena_bytes=arena_bytes,
            form=form,
            release_gil=release_gil,
            context=context,
            taken=taken,
        )
    )
