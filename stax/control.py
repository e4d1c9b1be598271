"""Ops that hold graphs: `call`.

The rules of such an op are transforms of the graph it holds.  For reverse mode its `linearize` rule
emits two nodes, a primal call that also returns residuals and a linear call that consumes them, so
the split by dependence never looks inside a node; plain forward mode keeps one joint call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.errors import ShapeError
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.interpreters.transpose import transpose
from stax.op import Batch, Linear, Op
from stax.trace import bind, results, zeros
from stax.types import ArrayType, TupleType


@dataclass(frozen=True, eq=False)
class Call(Op):
    """Apply a graph as one node; its results are read with `project`."""

    graph: Graph
    name: ClassVar[str] = "call"
    interned: ClassVar[bool] = False
    holds_graph: ClassVar[bool] = True

    @property
    def effect(self) -> str | None:  # type: ignore[override]
        return self.graph.effect

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        if len(types) != len(self.graph.inputs):
            raise ShapeError(
                f"call: {self.graph.name} takes {len(self.graph.inputs)} arguments, got "
                f"{len(types)}."
            )
        for given, wanted in zip(types, self.graph.input_types, strict=True):
            if given.strong() is not wanted.strong():
                raise ShapeError(f"call: {self.graph.name} takes {wanted}, got {given}.")
        return TupleType(self.graph.output_types)

    def evaluate(self, *arrays: Any) -> Any:
        return tuple(evaluate(self.graph, arrays))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = [t is not None for t in tangents]
        graph, has_tangent = jvp(self.graph, flags)
        joint = results(bind(Call(graph), *primals, *(t for t in tangents if t is not None)))
        split_at = len(self.graph.outputs)
        return joint[:split_at], _spread(joint[split_at:], has_tangent)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        primal, linear, has_tangent = linearize(self.graph, [t is not None for t in tangents])
        known = results(bind(Call(primal), *primals))
        split_at = len(self.graph.outputs)
        given = [t for t in tangents if t is not None]
        out_tangents = results(bind(Call(linear), *known[split_at:], *given))
        return known[:split_at], _spread(out_tangents, has_tangent)

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        flags = [isinstance(x, Linear) for x in inputs]
        graph, has_ct = transpose(self.graph, flags)
        types = self.graph.output_types
        cts = [zeros(t) if c is None else c for c, t in zip(ct, types, strict=True)]
        known = [x for x in inputs if not isinstance(x, Linear)]
        found = iter(results(bind(Call(graph), *known, *cts)))
        marks = iter(has_ct)
        return [next(found) if f and next(marks) else None for f in flags]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        graph, batched = batch(self.graph, batch_, flags)
        return results(bind(Call(graph), *inputs)), batched

    def names_axis(self, axis_name: Any) -> bool:
        return any(node.op.names_axis(axis_name) for node in self.graph.nodes)


def _spread(tangents: Sequence[Any], marks: Sequence[bool]) -> tuple[Any, ...]:
    """Return a tangent or None for each output, given which outputs have one."""
    found = iter(tangents)
    return tuple(next(found) if m else None for m in marks)


def call(graph: Graph, *args: Any) -> tuple[Any, ...]:
    """Apply `graph` to `args` as one node and return the tuple of its results."""
    return results(bind(Call(graph), *args))
