"""A compiled program as a Python callable over NumPy arrays.

The one idea: check the inputs, then one native call allocates results, runs the program and returns
them. A call owns its arena and its results, so one Executable may run in several threads at once.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax.runtime import dispatcher, memory
from stax.runtime.dispatcher import Program, Variant
from stax.runtime.engine import CompiledModule
from stax.runtime.libraries import Context
from stax.runtime.once import once
from stax.runtime.polling import OK, PYTHON_EXCEPTION
from stax.types import storage

# Held throughout, unlike CFUNCTYPE's: a program that polled leaves its exception to this thread.
_PROGRAM = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


class ProgramError(RuntimeError):
    """A program ended with a status of its own; `status` tells which."""

    def __init__(self, status: int) -> None:
        super().__init__(
            f"a compiled program ended with status {status} (0 is success). The code that built "
            f"the program knows what this status stands for"
        )
        self.status = status


class Executable:
    """Runs `program` on ndarrays.

    `input_types` and `output_types` are objects with `dtype` and `shape`. `constants` are arrays
    handed to the program after the inputs. With `arena_bytes` the program finds scratch memory,
    64-byte aligned and private to the call, at outputs[number of outputs]. `release_gil` lets other
    Python threads run meanwhile: for programs that take longer than about 10 microseconds.
    `context` is a table of its own for a program that needs one. Results are fresh read-only
    arrays; those in `taken`, with the inputs that they may be written over, may be given.
    """

    __slots__ = ("_call", "_dtypes", "_shapes", "_variant", "program")

    def __init__(
        self,
        program: int | CompiledModule,
        input_types: Sequence[Any],
        output_types: Sequence[Any],
        *,
        name: str = "program",
        extents: Sequence[int] = (),
        constants: Sequence[np.ndarray] = (),
        arena_bytes: int = 0,
        release_gil: bool = False,
        context: Context | None = None,
        taken: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.program = Program.of(
            program,
            input_types,
            output_types,
            name=name,
            extents=extents,
            constants=constants,
            arena_bytes=arena_bytes,
            release_gil=release_gil,
            context=context,
            taken=taken,
        )
        self._dtypes = tuple(storage(t.dtype) for t in input_types)
        self._shapes = tuple(tuple(t.shape) for t in input_types)
        self._variant = Variant(self.program)
        self._call = ndarray_call(self._variant)

    def __call__(
        self, inputs: Sequence[np.ndarray], given: Sequence[np.ndarray | None] = ()
    ) -> list[np.ndarray]:
        """The program's results, in the ndarrays that are `given` for some. Raises TypeError for
        inputs of other types, ProgramError when the program ends with a status, and whatever
        exception the program left."""
        if len(inputs) != len(self._dtypes):
            self._refuse_count(inputs)
        for x, dtype, shape in zip(inputs, self._dtypes, self._shapes, strict=True):
            if (
                type(x) is not np.ndarray
                or x.shape != shape
                or (x.dtype is not dtype and x.dtype != dtype)
                or not x.flags.c_contiguous
            ):
                self._refuse(inputs)
        results = self._call(*inputs, *given)
        if type(results) is int:
            raise ProgramError(results)
        return results

    def _refuse_count(self, inputs: Sequence[np.ndarray]) -> None:
        raise TypeError(f"this program takes {len(self._dtypes)} arrays, got {len(inputs)}")

    def _refuse(self, inputs: Sequence[np.ndarray]) -> None:
        wanted = ", ".join(map(_describe, self._dtypes, self._shapes))
        given = ", ".join(
            _describe(x.dtype, x.shape) + ("" if x.flags.c_contiguous else " (strided)")
            if type(x) is np.ndarray
            else type(x).__name__
            for x in inputs
        )
        raise TypeError(
            f"a compiled program takes C-contiguous numpy.ndarray inputs ({wanted}), got "
            f"({given}); convert them with numpy.ascontiguousarray or compile for these types"
        )


def _describe(dtype: np.dtype, shape: tuple[int, ...]) -> str:
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def ndarray_call(variant: Variant) -> Callable[..., Any]:
    """`f(*ndarrays)` running `variant`: a list of results, or the program's status as an int."""
    if dispatcher.available():
        return dispatcher.ndarray_function(variant)
    return _PythonCall(variant)


@once
def _data_offset() -> int | None:
    """Where an ndarray object keeps the address of its data, found by looking; None off CPython,
    whose `id` is no address."""
    if sys.implementation.name != "cpython":
        return None
    probes = [np.empty(n) for n in (3, 5, 7)]
    # After a header of two words, or of four in free-threaded builds.
    for offset in (16, 32):
        found = [ctypes.c_void_p.from_address(id(x) + offset).value for x in probes]
        if found == [x.ctypes.data for x in probes]:
            return offset
    return None


def _addresses(arrays: Sequence[np.ndarray]) -> list[int]:
    # x.ctypes.data builds an object around the address, which takes eight times as long.
    offset = _data_offset()
    if offset is None:
        return [x.ctypes.data for x in arrays]
    read = ctypes.c_uint64.from_address
    return [read(id(x) + offset).value for x in arrays]


class _PythonCall:
    """The native call in Python, for interpreters whose objects are laid out otherwise."""

    def __init__(self, variant: Variant) -> None:
        self._program = variant.program
        self._function = _PROGRAM(variant.program.address)
        self._constants = [c.ctypes.data for c in variant.program.constants]
        self._extents = (ctypes.c_int64 * max(1, len(self._program.extents)))(
            *self._program.extents
        )

    def __call__(self, *arrays: Any) -> Any:
        program, count = self._program, len(self._program.input_types)
        inputs, given = arrays[:count], arrays[count:] or (None,) * len(program.output_types)
        results = [
            memory.empty(tuple(t.shape), storage(t.dtype)) if x is None else x
            for t, x in zip(program.output_types, given, strict=True)
        ]
        arena = memory.Arena(program.arena_bytes) if program.arena_bytes else None
        sources = [*_addresses(inputs), *self._constants]
        targets = [*_addresses(results), arena.address if arena else 0]
        status = self._function(
            program.context_address,
            (ctypes.c_void_p * len(sources))(*sources),
            (ctypes.c_void_p * len(targets))(*targets),
            self._extents,
        )
        if status == PYTHON_EXCEPTION:
            raise SystemError("a compiled program reported an exception but left none")
        if status != OK:
            return status
        for x in results:
            x.flags.writeable = False
        return results
