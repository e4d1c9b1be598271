"""Sums of cotangents in backward loops: what is put into zeros and added is added where it belongs.

Reading an element of an array in every step pulls back to an array of zeros with one element, to be
added to the sum; this makes it an update of the sum, which a loop does in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax.graph import Graph, Node, is_constant
from stax.interpreters.interpret import interpret
from stax.operators.dynamic import DynamicSlice, DynamicUpdateSlice
from stax.operators.elementwise import Elementwise, add
from stax.operators.index import Scatter
from stax.trace import Trace, bind
from stax.verify import verified


def accumulating(graph: Graph) -> Graph:
    """Return `graph` with sums of a value and an update of zeros as updates of the value."""
    uses = graph.uses()
    sums = {n: part for n in graph.nodes if (part := _put_into_zeros(n, uses)) is not None}
    if not sums:
        return graph
    operands: dict[Node, list[Any]] = {}

    def rule(node: Node, inputs: list[Any]) -> Any:
        if isinstance(node.op, Scatter | DynamicUpdateSlice):
            operands[node] = inputs
        part = sums.get(node)
        if part is None:
            return bind(node.op, *inputs)
        total = inputs[1 - node.inputs.index(part)]
        return _added(total, part, operands[part])

    with Trace(graph.name, "transpose") as trace:
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        return verified(trace.finish(interpret(graph, args, rule)), "transpose")


def _put_into_zeros(node: Node, uses: dict[Node, int]) -> Node | None:
    """Return the operand of a sum that is an update of zeros and is read nowhere else."""
    if not (isinstance(node.op, Elementwise) and node.op.name == "add"):
        return None
    for x in node.inputs:
        updates = isinstance(x.op, DynamicUpdateSlice) or (
            isinstance(x.op, Scatter) and x.op.kind == "add"
        )
        if updates and uses[x] == 1 and is_constant(x.inputs[0], 0):
            return x
    return None


def _added(total: Any, part: Node, operands: Sequence[Any]) -> Any:
    _, first, *rest = operands
    if isinstance(part.op, Scatter):
        return bind(part.op, total, first, *rest)
    here = bind(DynamicSlice(part.inputs[1].type.shape), total, *rest)
    return bind(part.op, total, add(here, first), *rest)
