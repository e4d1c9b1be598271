"""Updates of arrays that a loop carries, or that are donated, as scatters: those are done in place.

A slice that is put into an array is computed, elsewhere, as a choice at every element, which fuses
with what stands around it.  In a loop that would touch the whole array in every step, and of a
donated one there is no need to.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from stax.graph import Graph, Node
from stax.interpreters.interpret import interpret
from stax.lowering.decisions import decided
from stax.lowering.element import static_size
from stax.operators.dynamic import DynamicUpdateSlice
from stax.operators.elementwise import convert
from stax.operators.index import GatherScatterMode, Scatter, ScatterDimensionNumbers
from stax.operators.reshape import reshape
from stax.operators.shape import concatenate
from stax.trace import Trace, bind
from stax.types import int32, int64
from stax.verify import verified

# How many times larger than the update an array has to be.
LARGER = 4


def small_updates_as_scatters(graph: Graph, inputs: Collection[int], kind: str) -> Graph:
    """Return a graph with small updates of inputs that may be written over as scatters.

    They are of a kind, carried ones of a loop or donated ones.
    """
    growing = {graph.inputs[i] for i in inputs}
    if not any(_is_small_update(node) for node in graph.nodes):
        return graph

    def rule(node: Node, operands: list[Any]) -> Any:
        updates = isinstance(node.op, Scatter | DynamicUpdateSlice) and node.inputs[0] in growing
        if updates:
            growing.add(node)
        if updates and _is_small_update(node):
            decided(
                f"{node.op.name} of a {kind} array as a scatter, which can be in place",
                node.source,
            )
            x, update, *starts = operands
            return _scattered(x, update, starts)
        return bind(node.op, *operands)

    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        return verified(trace.finish(interpret(graph, args, rule)), "prepare")


def _is_small_update(node: Node) -> bool:
    if not isinstance(node.op, DynamicUpdateSlice):
        return False
    x, update = (y.type.shape for y in node.inputs[:2])
    is_static = all(isinstance(n, int) for n in (*x, *update))
    return bool(x) and is_static and LARGER * static_size(update) <= static_size(x)


def _scattered(x: Any, update: Any, starts: Sequence[Any]) -> Any:
    wide = all(s.type.dtype.itemsize < 4 or s.type.dtype == int32 for s in starts)
    dtype = int32 if wide else int64
    indices = concatenate([reshape(convert(s, dtype), (1,)) for s in starts], 0)
    axes = tuple(range(len(starts)))
    numbers = ScatterDimensionNumbers(axes, (), axes)
    return bind(Scatter("set", numbers, GatherScatterMode.CLIP, True), x, indices, update)
