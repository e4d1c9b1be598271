"""Lowered and compiled programs as objects: jit(f).lower(*args).compile(), with JAX's names.

A stage holds the traced function and computes the rest when asked; a compiled one can be called.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from stax import tree
from stax.api.abstract import ShapeDtypeStruct
from stax.api.donating import check_given_once, run_donating
from stax.api.tracing import Traced, flatten_arguments
from stax.array import Array, value_of
from stax.errors import ArgumentError, ArgumentValueError
from stax.graph import Graph
from stax.lowering.costs import cost_of
from stax.lowering.element import static_size
from stax.lowering.loop_printer import print_kernel
from stax.lowering.pipeline import lower_graph
from stax.runtime.call_form import tree_form
from stax.runtime.compiler import CompiledProgram, compile_graph, module_text
from stax.runtime.entry import make_entry
from stax.trace import as_array, trace_variable
from stax.types import ArrayType


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of a program: arguments, results, and the arena of temporaries.

    Temporaries include what loops stack for reverse mode; aliases are results that are written over
    donated arguments; the peak is all of them together, those once.
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


class Stage:
    """What is known of a function that was traced for arguments of given structure and types."""

    def __init__(self, traced: Traced, in_tree: tree.TreeDef) -> None:
        self.traced = traced
        self.in_tree = in_tree

    @property
    def graph(self) -> Graph:
        """The operator graph; what the function closes over are its last inputs."""
        return self.traced.graph

    @property
    def out_tree(self) -> tree.TreeDef:
        """The structure of the result."""
        return self.traced.out_tree

    @property
    def in_avals(self) -> Any:
        """The shapes and dtypes of `(args, kwargs)`, in their structure."""
        types = self.graph.input_types[: self.in_tree.num_leaves]
        return self.in_tree.unflatten(map(ShapeDtypeStruct.of, types))

    @property
    def out_info(self) -> Any:
        """The shapes and dtypes of the result, in its structure."""
        types = self.graph.output_types[: self.out_tree.num_leaves]
        return self.out_tree.unflatten(map(ShapeDtypeStruct.of, types))


class Lowered(Stage):
    """A function lowered for arguments of given structure and types."""

    def __init__(
        self,
        traced: Traced,
        in_tree: tree.TreeDef,
        memory_budget: int | None = None,
        donated: tuple[bool, ...] = (),
    ) -> None:
        super().__init__(traced, in_tree)
        self.memory_budget = memory_budget
        self.donated = donated  # a flag for each leaf of the arguments, if any is given up

    @property
    def donate_argnums(self) -> tuple[int, ...]:
        """The numbers of the leaves that are given up."""
        return tuple(i for i, gives in enumerate(self.donated) if gives)

    def as_text(self, stage: str = "graph") -> str:
        """Return a stage as text: "graph", "kernels" (loop IR), or "llvm"."""
        if stage == "graph":
            return str(self.graph)
        if stage == "kernels":
            program = lower_graph(self.graph, self.memory_budget, self.donate_argnums)
            return "\n\n".join(print_kernel(k) for k in program.kernels)
        if stage == "llvm":
            return module_text(self.graph, self.memory_budget, self.donate_argnums)
        raise ArgumentValueError(
            f"as_text: unknown stage {stage!r}.", advice="There are 'graph', 'kernels' and 'llvm'."
        )

    def compile(self, *, memory_budget: int | None = None) -> Compiled:
        """Compile the program; `memory_budget` is for this one what it is for `jit`.

        Raises ArgumentValueError for a budget that cannot be met.
        """
        lowered = self
        if memory_budget is not None:
            budget = checked_budget(memory_budget)
            lowered = Lowered(self.traced, self.in_tree, budget, self.donated)
        program = compile_graph(self.graph, lowered.memory_budget, self.donate_argnums)
        return Compiled(lowered, program)


class Compiled(Stage):
    """A compiled function; calling it never traces or compiles again, and deletes what is donated
    as a call of the jitted function does."""

    def __init__(self, lowered: Lowered, program: CompiledProgram) -> None:
        super().__init__(lowered.traced, lowered.in_tree)
        self.lowered = lowered
        self.program = program
        self.entry = make_entry(self._convert, Array, trace_variable)
        trees = self.in_tree, self.out_tree
        form = tree_form(*trees, donated=lowered.donated) if program.is_static else None
        if form is not None:
            program.add_to(self.entry, self.traced.captures, form)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program; raises ArgumentError for arguments of other structure or types."""
        return self.entry.call(*args, **kwargs)

    def _convert(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the program on arguments that the entry does not take as they are."""
        arguments = flatten_arguments(self.graph.name, args, kwargs)
        wanted = self.graph.input_types[: len(arguments.types)]
        if arguments.treedef != self.in_tree or tuple(arguments.types) != wanted:
            given = ", ".join(map(repr, arguments.types))
            raise ArgumentError(
                f"{self.graph.name} was compiled for other arguments than ({given}).",
                values=[(x.label, repr(x.type), "") for x in self.graph.inputs[: len(wanted)]],
                advice="Call the jitted function, which compiles for new types by itself.",
            )
        donated = self.lowered.donated
        check_given_once(self.graph.name, arguments.leaves, donated)
        values = [value_of(as_array(x)) for x in (*arguments.leaves, *self.traced.captures)]
        results = run_donating(self.program, arguments.leaves, values, donated)
        return self.out_tree.unflatten(results)

    call = __call__

    def memory_analysis(self) -> MemoryAnalysis:
        """Return the bytes that one call needs."""
        outputs = self.graph.output_types
        return MemoryAnalysis(
            _bytes(self.graph.input_types),
            _bytes(outputs),
            self.program.lowered.program.arena_bytes,
            _bytes(outputs[k] for k, _ in self.program.taken),
        )

    def cost_analysis(self) -> dict[str, Any]:
        """Return flops, transcendentals and bytes accessed of one call, kernels and graph nodes.

        The first two are counted as in `lowering.costs`; bytes are those that kernels and library
        calls read and write, so what is fused moves none.
        """
        program, cost = self.program.lowered.program, cost_of(self.graph)
        return {
            "flops": float(cost.flops),
            "transcendentals": float(cost.transcendentals),
            "bytes accessed": float(program.bytes_moved),
            "kernels": len(program.steps),
            "nodes": len(self.graph.nodes),
        }

    def as_text(self, stage: str = "llvm") -> str:
        """Return a stage as text; see `Lowered.as_text`."""
        return self.lowered.as_text(stage)
