"""Lowered and compiled programs as objects: jit(f).lower(*args).compile(), with JAX's names.

A stage holds the graph and computes the rest when asked; nothing here runs a program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from stax.errors import ArgumentValueError
from stax.graph import Graph
from stax.lowering.element import static_size
from stax.lowering.loop_printer import print_kernel
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import CompiledProgram, compile_graph, module_text
from stax.types import ArrayType


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of a program: arguments, results, and the arena of temporaries."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int = 0


def _bytes(types: Iterable[ArrayType]) -> int:
    return sum(static_size(t.shape) * t.dtype.itemsize for t in types)


class Lowered:
    """A function lowered for given types."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def as_text(self, stage: str = "graph") -> str:
        """Return a stage as text: "graph", "kernels" (loop IR), or "llvm"."""
        if stage == "graph":
            return str(self.graph)
        if stage == "kernels":
            return "\n\n".join(print_kernel(k) for k in lower_graph(self.graph).kernels)
        if stage == "llvm":
            return module_text(self.graph)
        raise ArgumentValueError(
            f"as_text: unknown stage {stage!r}.", advice="There are 'graph', 'kernels' and 'llvm'."
        )

    def compile(self) -> Compiled:
        """Compile the program."""
        return Compiled(self.graph, compile_graph(self.graph))


class Compiled:
    """A compiled program."""

    def __init__(self, graph: Graph, program: CompiledProgram) -> None:
        self.graph = graph
        self.program = program

    def memory_analysis(self) -> MemoryAnalysis:
        """Return the bytes that one call needs."""
        return MemoryAnalysis(
            _bytes(self.graph.input_types),
            _bytes(self.graph.output_types),
            self.program.lowered.program.arena_bytes,
        )

    def cost_analysis(self) -> dict[str, Any]:
        """Return bytes accessed, kernels, and graph nodes."""
        program = self.program.lowered.program
        return {
            "bytes accessed": float(program.bytes_moved),
            "kernels": len(program.steps),
            "nodes": len(self.graph.nodes),
        }

    def as_text(self, stage: str = "llvm") -> str:
        """Return a stage as text; see `Lowered.as_text`."""
        return Lowered(self.graph).as_text(stage)
