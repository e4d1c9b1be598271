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
from stax.lowering.pipeline import Lowered, generate, lower_graph
from stax.lowering.program import Program
from stax.runtime import libraries, memory
from stax.runtime.engine import CompiledModule, compile_module, target
from stax.runtime.entry import add_variant
from stax.runtime.executable import Executable, ProgramError
from stax.types import ArrayType, Shape, storage

# Programs that move at least this many bytes let other Python threads run meanwhile.
RELEASE_GIL_FROM = 1 << 16


class CompiledProgram:
    """A compiled graph."""

    def __init__(self, graph: Graph, lowered: Lowered, module: CompiledModule) -> None:
        self.graph = graph
        self.lowered = lowered
        self.module = module
        program = lowered.program
        self.options = {
            "arena_bytes": program.call_arena_bytes,
            # A C function that wants Python's lock, to report an error, must be able to get it.
            "release_gil": program.is_long
            or program.bytes_moved >= RELEASE_GIL_FROM
            or "PyGILState_Ensure" in lowered.slots,
        }
        if program.symbols:
            reports = "PyGILState_Ensure" in lowered.slots
            self._call: Any = _DynamicCall(graph, module, program, reports)
        else:
            self._call = Executable(module, graph.input_types, graph.output_types, **self.options)  # type: ignore[arg-type]

    @property
    def is_static(self) -> bool:
        """Say whether all lengths are known, as native entries want."""
        return not self.lowered.program.symbols

    def run(self, values: Sequence[np.ndarray]) -> list[Array]:
        """Run the program on arrays of its input types, captures included."""
        results = self._call([np.ascontiguousarray(v).reshape(np.shape(v)) for v in values])
        types = self.graph.output_types
        if self.lowered.program.symbols:
            types = tuple(
                ArrayType(t.dtype, r.shape, t.weak) for t, r in zip(types, results, strict=True)
            )
        return list(map(array_from_numpy, results, types))

    def add_to(self, entry: Any, captures: Sequence[Array], is_tuple: bool) -> None:
        """Put the program behind a native entry; captured arrays go with it."""
        count = len(self.graph.inputs) - len(captures)
        add_variant(
            entry,
            self.module,
            self.graph.input_types[:count],
            self.graph.output_types,
            "tuple" if is_tuple else "array",
            constants=[value_of(c) for c in captures],
            **self.options,  # type: ignore[arg-type]
        )


class _DynamicCall:
    """Runs a program with symbolic lengths: results and temporaries are made for each call."""

    def __init__(
        self, graph: Graph, module: CompiledModule, program: Program, release_gil: bool
    ) -> None:
        self.graph = graph
        self.module = module
        self.symbols = program.symbols
        self.made = (*graph.output_types, *program.open_temporaries)
        self.arena_bytes = program.call_arena_bytes
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
        extents = (ctypes.c_int64 * len(self.symbols))(*(lengths[s] for s in self.symbols))
        status = self.function(libraries.context_address(), *pointers, extents)
        if status:
            raise ProgramError(status)
        return made[: len(self.graph.outputs)]

    def _lengths(self, values: Sequence[np.ndarray]) -> dict[str, int]:
        found: dict[str, int] = {}
        for t, value in zip(self.graph.input_types, values, strict=True):
            for extent, length in zip(t.shape, value.shape, strict=True):
                if isinstance(extent, Extent) and len(extent.terms) == 1:
                    found[extent.symbols()[0]] = length
        return found


def _evaluated(shape: Shape, lengths: dict[str, int]) -> tuple[int, ...]:
    return tuple(e.evaluate(lengths) if isinstance(e, Extent) else e for e in shape)


def lowered(graph: Graph) -> Lowered:
    """Lower a graph for this machine; raises LoweringError."""
    return generate(lower_graph(graph), target(), libraries.slot)


def module_text(graph: Graph) -> str:
    """Return the LLVM text of a graph."""
    return lowered(graph).text


def compile_graph(graph: Graph) -> CompiledProgram:
    """Compile a graph; raises LoweringError for an op without a lowering."""
    code = lowered(graph)
    libraries.require(*code.slots)
    return CompiledProgram(graph, code, compile_module(code.text, ["program"]))
