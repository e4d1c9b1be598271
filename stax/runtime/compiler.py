"""From a graph to a program that can be called: lowering, LLVM, and the call.

A program whose shapes are all known is an `Executable`, and can be put behind a native entry.  One
with symbolic lengths gets its extents and its results' shapes at each call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from stax.array import Array, array_from_numpy, value_of
from stax.extent import Extent
from stax.graph import Graph
from stax.lowering.hoist import hoisted
from stax.lowering.pipeline import Lowered, generate, lower_graph
from stax.lowering.program import Program
from stax.runtime import libraries, memory, program_cache
from stax.runtime.call_form import CallForm
from stax.runtime.engine import CompiledModule, emit_object, load_object, target
from stax.runtime.entry import add_variant
from stax.runtime.executable import Executable, ProgramError
from stax.runtime.host import HostCall
from stax.runtime.program_cache import KeptProgram
from stax.types import ArrayType, Shape, storage, uint64

# Programs that move at least this many bytes let other Python threads run meanwhile.
RELEASE_GIL_FROM = 1 << 16


class CompiledProgram:
    """A compiled graph, whose last inputs are `held` arrays."""

    def __init__(
        self,
        graph: Graph,
        kept: KeptProgram,
        code: Lowered | None,
        held: Sequence[Array] = (),
        memory_budget: int | None = None,
        donated: Collection[int] = (),
    ) -> None:
        self.graph = graph
        self.held = held
        self.module = module = load_object(kept.code, ["program"])
        self._code = code  # None for a program that was found on disk
        self._asked = memory_budget, donated
        self.is_static = code is None or _is_static(code)
        context = None if code is None else _context_of(code.program)
        self.options: dict[str, Any] = {
            "arena_bytes": kept.arena_bytes,
            "release_gil": kept.release_gil,
            "context": context,
        }
        # Which results may be written over which donated inputs.
        self.taken = kept.taken if self.is_static else ()
        if code is None or self.is_static:
            self.options["taken"] = self.taken
            types = graph.input_types, graph.output_types
            self._call: Any = Executable(module, *types, **self.options)
        else:
            reports = code.program.is_long or "PyGILState_Ensure" in code.slots
            self._call = _DynamicCall(graph, module, code.program, reports, context)

    @property
    def lowered(self) -> Lowered:
        """How the program computes; found out now, if it was on disk."""
        if self._code is None:
            self._code = lowered(self.graph, *self._asked)
        return self._code

    def run(
        self, values: Sequence[np.ndarray], given: Sequence[np.ndarray | None] = ()
    ) -> list[Array]:
        """Run the program on arrays of its input types, captures included.

        `given` has for each result an array that it is to be in, or None; only those in `taken` may
        be given, and only the input that they take the memory of.  Raises InternalError for a
        bounds check that does not hold.
        """
        every = [*values, *map(value_of, self.held)]
        inputs = [np.ascontiguousarray(v).reshape(np.shape(v)) for v in every]
        try:
            results = self._call(inputs, given) if given else self._call(inputs)
        except ProgramError as error:
            checked = () if self._code is None else self._code.checked
            if not 0 < error.status <= len(checked):
                raise
            raise checked[error.status - 1].error() from None
        types = self.graph.output_types
        if not self.is_static:
            types = tuple(
                ArrayType(t.dtype, r.shape, t.weak) for t, r in zip(types, results, strict=True)
            )
        return list(map(array_from_numpy, results, types))

    def add_to(self, entry: Any, captures: Sequence[Array], form: CallForm) -> None:
        """Put the program behind an entry; captured arrays go with it."""
        constants = [value_of(c) for c in (*captures, *self.held)]
        count = len(self.graph.inputs) - len(constants)
        add_variant(
            entry,
            self.module,
            self.graph.input_types[:count],
            self.graph.output_types,
            form,
            constants=constants,
            **self.options,
        )


_ADDRESS = ArrayType(uint64, ())


class _DynamicCall:
    """Runs a program with symbolic lengths: results and temporaries are made for each call.

    A result whose length the program finds is made by it, and taken over afterwards.
    """

    def __init__(
        self,
        graph: Graph,
        module: CompiledModule,
        program: Program,
        release_gil: bool,
        context: libraries.Context | None,
    ) -> None:
        self.graph = graph
        self.module = module
        self.symbols, self.opens = program.symbols, program.opens
        self.taken = {
            i: (program.graph.outputs[i].type.shape, graph.output_types[i])
            for i in program.handed_over
        }
        made = [_ADDRESS if i in self.taken else t for i, t in enumerate(graph.output_types)]
        self.made = (*made, *program.open_temporaries)
        self.arena_bytes = program.call_arena_bytes
        self.context = context.address if context else libraries.context_address()
        kind = ctypes.CFUNCTYPE if release_gil else ctypes.PYFUNCTYPE
        self.function = kind(ctypes.c_int32, *[ctypes.c_void_p] * 4)(module.address("program"))

    def __call__(self, values: Sequence[np.ndarray]) -> list[np.ndarray]:
        lengths = self._lengths(values)
        made = [memory.empty(_evaluated(t.shape, lengths), storage(t.dtype)) for t in self.made]
        made.append(np.empty(self.arena_bytes, np.uint8))
        pointers = [
            (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
            for arrays in (values, made)
        ]
        every = len(self.symbols) + len(self.opens)
        extents = (ctypes.c_int64 * max(1, every))(*(lengths[s] for s in self.symbols))
        self._run(pointers, extents)
        lengths.update(zip((*self.symbols, *self.opens), extents, strict=False))
        for i, (shape, t) in self.taken.items():
            # A complex number is a pair in the program, along an axis of its own.
            known = _evaluated(shape, lengths)[: t.ndim]
            made[i] = memory.taken(int(made[i]), known, storage(t.dtype))
        return made[: len(self.graph.outputs)]

    def _run(self, pointers: Sequence[Any], extents: Any) -> None:
        try:
            status = self.function(self.context, *pointers, extents)
        except SystemError as error:
            # A function that lets other threads run may leave an exception; this is how it arrives.
            if error.__cause__ is None:
                raise
            raise error.__cause__ from None
        if status:
            raise ProgramError(status)

    def _lengths(self, values: Sequence[np.ndarray]) -> dict[str, int]:
        found: dict[str, int] = {}
        for t, value in zip(self.graph.input_types, values, strict=True):
            for extent, length in zip(t.shape, value.shape, strict=True):
                if isinstance(extent, Extent) and len(extent.terms) == 1:
                    found[extent.symbols()[0]] = length
        return found


def _context_of(program: Program) -> libraries.Context | None:
    """Return the context table of a program that leaves ops to Python, with those ops."""
    calls = tuple(map(HostCall.of, program.host_steps))
    return libraries.Context(calls) if calls else None


def _evaluated(shape: Shape, lengths: dict[str, int]) -> tuple[int, ...]:
    return tuple(e.evaluate(lengths) if isinstance(e, Extent) else e for e in shape)


def lowered(
    graph: Graph, memory_budget: int | None = None, donated: Collection[int] = ()
) -> Lowered:
    """Lower a graph for this machine; raises LoweringError."""
    return generate(lower_graph(graph, memory_budget, donated), target(), libraries.slot)


def module_text(
    graph: Graph, memory_budget: int | None = None, donated: Collection[int] = ()
) -> str:
    """Return the LLVM text of a graph."""
    return lowered(graph, memory_budget, donated).text


def compile_graph(
    graph: Graph, memory_budget: int | None = None, donated: Collection[int] = ()
) -> CompiledProgram:
    """Compile a graph, of which some inputs are `donated`: results may be written over them.

    Raises LoweringError for an op without a lowering.
    """
    graph, held = hoisted(graph)
    name = program_cache.name_of(graph, memory_budget, donated)
    kept = None if name is None else program_cache.load(name)
    code = None
    if kept is None:
        code = lowered(graph, memory_budget, donated)
        is_kept = name is not None and _is_static(code) and not code.program.host_steps
        kept = _kept(code, emit_object(code.text, is_kept=not is_kept))
        if name is not None and is_kept:
            program_cache.store(name, kept)
    libraries.require(*kept.slots)
    return CompiledProgram(graph, kept, code, held, memory_budget, donated)


def _is_static(code: Lowered) -> bool:
    """Say whether all lengths are known, as native entries want."""
    return not (code.program.symbols or code.program.handed_over)


def _kept(code: Lowered, object_code: bytes) -> KeptProgram:
    """Return a program as a call needs to know it."""
    program = code.program
    # A C function that wants Python's lock, to report an error, must be able to get it.
    release_gil = (
        program.is_long
        or program.bytes_moved >= RELEASE_GIL_FROM
        or "PyGILState_Ensure" in code.slots
    )
    taken = tuple(program.taken.items())
    return KeptProgram(object_code, code.slots, program.call_arena_bytes, release_gil, taken)
