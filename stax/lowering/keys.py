"""Random keys as kernels carry them: one uint64 for each key, its first word in the low half.

Every op that moves elements moves these numbers as it moves keys, and memory is that of two uint32
words for each key, so nothing but the types of values changes.
"""

from __future__ import annotations

from typing import Any

from stax.control import HoldsGraphs, with_graphs
from stax.graph import Constant, Graph, Node, multiple
from stax.interpreters.interpret import interpret
from stax.op import Op
from stax.operators.random import RandomWrap
from stax.trace import Trace, bind
from stax.types import ArrayType, is_key, storage


def keys_as_numbers(graph: Graph) -> Graph:
    """Return `graph`, and the graphs that its ops hold, with uint64 in place of random keys."""
    if not any(_holds_keys(node) for node in (*graph.inputs, *graph.nodes)):
        return graph

    def rule(node: Node, inputs: list[Any]) -> Any:
        return bind(_on_numbers(node.op), *inputs)

    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(_stored(x.type), x.label) for x in graph.inputs]
        return trace.finish(interpret(graph, args, rule))


def _holds_keys(node: Node) -> bool:
    types = node.type.items if multiple(node) else (node.type,)
    return any(is_key(t.dtype) for t in types)


def _stored(type_: ArrayType) -> ArrayType:
    return type_.with_dtype(storage(type_.dtype), type_.weak)


def _on_numbers(op: Op) -> Op:
    """Return an op that makes keys as one that makes numbers; the others take what they get."""
    match op:
        case RandomWrap():
            return RandomWrap(storage(op.dtype))
        case Constant() if is_key(op.dtype):
            return Constant(op.data, storage(op.dtype), op.shape, op.weak)
        case HoldsGraphs():
            return with_graphs(op, keys_as_numbers)
        case _:
            return op
