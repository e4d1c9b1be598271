"""From a graph to a program that can be called: lowering, LLVM, and the call.

A program whose shapes are all known is an `Executable`, and can be put behind a native entry.  One
with symbolic lengths gets its extents and its results' shapes at each call.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.array import Array, array_from_numpy, value_of
from stax.extent import Extent
from stax.graph import Graph
from stax.lowering.hoist import hoisted
from stax.lowering.pipeline import Lowered, generate, lower_graph
from stax.lowering.program import Program
from stax.runtime import libraries, memory
from stax.runtime.engine import CompiledModule, compile_module, target
from stax.runtime.entry import add_variant
from stax.runtime.executable import Executable, ProgramError
from stax.runtime.host import HostCall
from stax.types import ArrayType, Shape, storage, uint64

# Programs that move at least this many bytes let other Python threads run meanwhile.
RELEASE_GIL_FROM = 1 << 16


class CompiledProgram:
    """A compiled graph, whose last inputs are `held` arrays."""

    def __init__(
        self, graph: Graph, lowered: Lowered, module: CompiledModule, held: Sequence[Array] = ()
    ) -> None:
        self.graph = graph
        self.held = held
        self.lowered = lowered
        self.module = module
        program = lowered.program
        context = _context_of(program)
        self.options = {
            "arena_bytes": program.call_arena_bytes,
            # A C function that wants Python's lock, to report an error, must be able to get it.
            "release_gil": program.is_long
            or program.bytes_moved >= RELEASE_GIL_FROM
            or "PyGILState_Ensure" in lowered.slots,
            "context": context,
        }
        if not self.is_static:
            reports = program.is_long or "PyGILState_Ensure" in lowered.slots
            self._call: Any = _DynamicCall(graph, module, program, reports, context)
        else:
            self._call = Executable(module, graph.input_types, graph.output_types, **self.options)  # type: ignore[arg-type]

    @property
    def is_static(self) -> bool:
        """Say whether all lengths are known, as native entries want."""
        return not (self.lowered.program.symbols or self.lowered.program.handed_over)

    def run(self, values: Sequence[np.ndarray]) -> list[Array]:
        """Run the program on arrays of its input types, captures included.

        Raises InternalError for a bounds check that does not hold.
        """
        every = [*values, *map(value_of, self.held)]
        try:
            results = self._call([np.ascontiguousarray(v).reshape(np.shape(v)) for v in every])
        except ProgramError as error:
            checked = self.lowered.checked
            if not 0 < error.status <= len(checked):
                raise
            raise checked[error.status - 1].error() from None
        types = self.graph.output_types
        if not self.is_static:
            types = tuple(
                ArrayType(t.dtype, r.shape, t.weak) for t, r in zip(types, results, strict=True)
            )
        return list(map(array_from_numpy, results, types))

    def add_to(self, entry: Any, captures: Sequence[Array], is_tuple: bool) -> None:
        """Put the program behind a native entry; captured arrays go with it."""
        constants = [value_of(c) for c in (*captures, *self.held)]
        count = len(self.graph.inputs) - len(constants)
        add_variant(
            entry,
            self.module,
            self.graph.input_types[:count],
            self.graph.output_types,
            "tuple" if is_tuple else "array",
            constants=constants,
            **self.options,  # type: ignore[arg-type]
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


def lowered(graph: Graph, memory_budget: int | None = None) -> Lowered:
    """Lower a graph for this machine; raises LoweringError."""
    return generate(lower_graph(graph, memory_budget), target(), libraries.slot)


def module_text(graph: Graph, memory_budget: int | None = None) -> str:
    """Return the LLVM text of a graph."""
    return lowered(graph, memory_budget).text


def compile_graph(graph: Graph, memory_budget: int | None = None) -> CompiledProgram:
    """Compile a graph; raises LoweringError for an op without a lowering."""
    graph, held = hoisted(graph)
    code = lowered(graph, memory_budget)
    libraries.require(*code.slots)
    return CompiledProgram(graph, code, compile_module(code.text, ["program"]), held)
