"""vmap: mapping a graph over a new leading axis.

Values are either batched, with the batch axis in front, or not; a node none of whose inputs is
batched is left alone.  Rules get flags and never axis numbers, which removes most of what makes
such rules long.

The rule of an op: `batch(batch, flags, *inputs) -> out`, everything batched has the axis in front;
an op that holds a graph returns its results and which of them are batched, and so does one that
names axes: a sum over the axis is the same in all lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax.graph import Graph, Node, Project
from stax.interpreters.interpret import interpret
from stax.op import Batch
from stax.operators.broadcast import expand_leading
from stax.trace import Trace, bind, project
from stax.verify import verified

Flagged = tuple[Any, Any]  # a value and whether it is batched; for several, one mark for each


def batch(
    graph: Graph, axis: Batch, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """Return `graph` mapped over the inputs that are flagged, and which outputs are batched.

    Outputs that are `wanted` are batched in any case, by repetition.
    """

    key = ("vmap", axis, tuple(flags), None if wanted is None else tuple(wanted))
    return graph.derived(key, lambda: _batch(graph, axis, flags, wanted))


def _batch(
    graph: Graph, axis: Batch, flags: Sequence[bool], wanted: Sequence[bool] | None
) -> tuple[Graph, list[bool]]:
    def rule(node: Node, inputs: list[Flagged]) -> Flagged:
        values = [x for x, _ in inputs]
        marks = [f for _, f in inputs]
        if isinstance(node.op, Project):
            (mark,), at = marks, node.op.position
            return project(values[0], at), mark if isinstance(mark, bool) else mark[at]
        if any(marks) or node.op.names_axis(axis.axis_name):
            out = node.op.batch(axis, marks, *values)
            told = node.op.holds_graph or node.op.marks_batch
            return out if told else (out, True)  # type: ignore[return-value]
        return bind(node.op, *values), False

    with Trace(graph.name, "vmap") as trace:
        args = [
            trace.input(x.type.with_leading(axis.size) if f else x.type, x.label)
            for x, f in zip(graph.inputs, flags, strict=True)
        ]
        outputs = interpret(graph, list(zip(args, flags, strict=True)), rule)
        if wanted is not None:
            pairs = zip(outputs, wanted, strict=True)
            outputs = [
                (expand_leading(y, axis.size), True) if w and not f else (y, f)
                for (y, f), w in pairs
            ]
        result = trace.finish([y for y, _ in outputs])
    return verified(result, "vmap"), [f for _, f in outputs]
