"""`call`: a graph applied as one node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.held import HoldsGraphs, check_arguments, given, marked, spread
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.interpreters.transpose import transpose
from stax.op import Batch, Linear
from stax.trace import bind, results, zeros
from stax.types import ArrayType, TupleType


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
        known = call(primal, *primals)
        split_at = len(self.graph.outputs)
        out_tangents = call(linear, *known[split_at:], *given(tangents))
        return known[:split_at], spread(out_tangents, has_tangent)

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        flags = [isinstance(x, Linear) for x in inputs]
        graph, has_ct = transpose(self.graph, flags)
        types = self.graph.output_types
        cts = [zeros(t) if c is None else c for c, t in zip(ct, types, strict=True)]
        known = marked(inputs, [not f for f in flags])
        return spread(spread(call(graph, *known, *cts), has_ct), flags)

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        graph, batched = batch(self.graph, batch_, flags)
        return call(graph, *inputs), batched


def call(graph: Graph, *args: Any) -> tuple[Any, ...]:
    """Apply `graph` to `args` as one node and return the tuple of its results."""
    return results(bind(Call(graph), *args))
