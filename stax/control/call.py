"""`call`: a graph applied as one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.held import HoldsGraphs, check_arguments, given, marked, spread
from stax.control.ragged import has_open_outputs
from stax.graph import Graph, Node, Project
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline, interpret
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.interpreters.masks import Masked, are_masked, flat
from stax.interpreters.transpose import masks_matter, transpose_masked
from stax.op import Batch, Linear
from stax.trace import Trace, bind, project, results
from stax.types import ArrayType, TupleType
from stax.verify import verified


@dataclass(frozen=True, eq=False)
class Call(HoldsGraphs):
    """Apply a graph as one node; its results are read with `project`."""

    graph: Graph
    name: ClassVar[str] = "call"

    @property
    def applied(self) -> Graph:
        return self.graph

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        check_arguments("call", self.graph, types)
        return TupleType(self.graph.output_types)

    def evaluate(self, *arrays: Any) -> Any:
        return tuple(evaluate(self.graph, arrays))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = [t is not None for t in tangents]
        graph, has_tangent = jvp(self.graph, flags)
        joint = call(graph, *primals, *given(tangents))
        split_at = len(self.graph.outputs)
        return joint[:split_at], spread(joint[split_at:], has_tangent)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        primal, linear, has_tangent = linearize(self.graph, [t is not None for t in tangents])
        # What a loop inside records has a length of its own wherever the call is, so is not a
        # result of the call.
        apply = inlined if has_open_outputs(primal) else call
        known = apply(primal, *primals)
        split_at = len(self.graph.outputs)
        out_tangents = apply(linear, *known[split_at:], *given(tangents))
        return known[:split_at], spread(out_tangents, has_tangent)

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        flags = [isinstance(x, Linear) for x in inputs]
        marks = marked(care, flags)
        back = transpose_masked(self.graph, flags, masked=are_masked(cts), care=marks)
        known = marked(inputs, [not f for f in flags])
        return spread(back.spread(call(back.graph, *known, *flat(cts))), flags)

    def masks_matter(self, flags: Sequence[bool], care: Sequence[bool]) -> Sequence[bool]:
        return masks_matter(self.graph, flags, care)

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        graph, batched = batch(self.graph, batch_, flags)
        return call(graph, *inputs), batched


def inlined(graph: Graph, *args: Any) -> tuple[Any, ...]:
    """Return the results of `graph`, with its nodes in place of a call."""
    return tuple(inline(graph, args))


def call(graph: Graph, *args: Any) -> tuple[Any, ...]:
    """Apply `graph` to `args` as one node and return the tuple of its results."""
    return results(bind(Call(graph), *args))


def without_calls(graph: Graph) -> Graph:
    """Return `graph` with calls written out, so that what they compute is seen; exact.

    Calls of what runs loops of a length that is not known stay.
    """
    while any(_is_written_out(node) for node in graph.nodes):
        with Trace(graph.name, "call") as trace:
            args = [trace.input(x.type, x.label, source=x.source) for x in graph.inputs]
            graph = verified(trace.finish(interpret(graph, args, _written_out)), "call")
    return graph


def _is_written_out(node: Node) -> bool:
    return type(node.op) is Call and not node.op.graph.opens


def _written_out(node: Node, inputs: list[Any]) -> Any:
    if _is_written_out(node):
        return inlined(node.op.applied, *inputs)  # type: ignore[attr-defined]
    if isinstance(node.op, Project):
        return project(inputs[0], node.op.position)
    return bind(node.op, *inputs)
