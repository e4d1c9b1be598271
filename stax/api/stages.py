"""Lowered and compiled programs as objects: jit(f).lower(*args).compile(), with JAX's names.

A stage holds the traced function and computes the rest when asked; a compiled one can be called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from stax import tree
from stax.api.tracing import Traced, flatten_arguments
from stax.array import value_of
from stax.errors import ArgumentError, ArgumentValueError
from stax.graph import Graph
from stax.lowering.element import static_size
from stax.lowering.loop_printer import print_kernel
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import CompiledProgram, compile_graph, module_text
from stax.trace import as_array
from stax.types import ArrayType


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of a program: arguments, results, and the arena of temporaries.

    Temporaries include what loops stack for reverse mode; the peak is all of them together.
    """

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    alias_size_in_bytes: int = 0

    @property
    def peak_memory_in_bytes(self) -> int:
        return (
            self.argument_size_in_bytes
            + self.output_size_in_bytes
            + self.temp_size_in_bytes
            - self.alias_size_in_bytes
        )


def checked_budget(nbytes: Any) -> int | None:
    """Return a memory budget; raises ArgumentValueError if it is no number of bytes."""
    if nbytes is None:
        return None
    if not isinstance(nbytes, Integral) or isinstance(nbytes, bool) or nbytes < 0:
        raise ArgumentValueError(
            f"jit: memory_budget={nbytes!r} is not a number of bytes.",
            advice="Give an integer, such as 1 << 30 for a gigabyte, or None.",
        )
    return int(nbytes)


def _bytes(types: Iterable[ArrayType]) -> int:
    return sum(static_size(t.shape) * t.dtype.itemsize for t in types)


class Lowered:
    """A function lowered for arguments of given structure and types."""

    def __init__(
        self, traced: Traced, in_tree: tree.TreeDef, memory_budget: int | None = None
    ) -> None:
        self.traced = traced
        self.in_tree = in_tree
        self.memory_budget = memory_budget

    @property
    def graph(self) -> Graph:
        """The operator graph; what the function closes over are its last inputs."""
        return self.traced.graph

    def as_text(self, stage: str = "graph") -> str:
        """Return a stage as text: "graph", "kernels" (loop IR), or "llvm"."""
        if stage == "graph":
            return str(self.graph)
        if stage == "kernels":
            program = lower_graph(self.graph, self.memory_budget)
            return "\n\n".join(print_kernel(k) for k in program.kernels)
        if stage == "llvm":
            return module_text(self.graph, self.memory_budget)
        raise ArgumentValueError(
            f"as_text: unknown stage {stage!r}.", advice="There are 'graph', 'kernels' and 'llvm'."
        )

    def compile(self, *, memory_budget: int | None = None) -> Compiled:
        """Compile the program; `memory_budget` is for this one what it is for `jit`.

        Raises ArgumentValueError for a budget that cannot be met.
        """
        lowered = self
        if memory_budget is not None:
            lowered = Lowered(self.traced, self.in_tree, checked_budget(memory_budget))
        return Compiled(lowered, compile_graph(self.graph, lowered.memory_budget))


class Compiled:
    """A compiled function; calling it never traces or compiles again."""

    def __init__(self, lowered: Lowered, program: CompiledProgram) -> None:
        self.lowered = lowered
        self.program = program

    @property
    def graph(self) -> Graph:
        """The operator graph that was compiled."""
        return self.lowered.graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program; raises ArgumentError for arguments of other structure or types."""
        arguments = flatten_arguments(self.graph.name, args, kwargs)
        wanted = self.graph.input_types[: len(arguments.types)]
        if arguments.treedef != self.lowered.in_tree or tuple(arguments.types) != wanted:
            given = ", ".join(map(repr, arguments.types))
            raise ArgumentError(
                f"{self.graph.name} was compiled for other arguments than ({given}).",
                values=[(x.label, repr(x.type), "") for x in self.graph.inputs[: len(wanted)]],
                advice="Call the jitted function, which compiles for new types by itself.",
            )
        traced = self.lowered.traced
        values = [value_of(as_array(x)) for x in (*arguments.leaves, *traced.captures)]
        return traced.out_tree.unflatten(self.program.run(values))

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
        return self.lowered.as_text(stage)
