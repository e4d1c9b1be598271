"""The reference evaluator: what a graph means, in NumPy, one op at a time.

It is the eager mode of the library and the measure for every backend.  Values are dropped after
their last use, so a graph needs no more memory than it has to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.array import Array, array_from_numpy, value_of
from stax.errors import StaxError
from stax.graph import Graph, Node
from stax.op import Op
from stax.trace import doing, links, operand_rows
from stax.types import TupleType


def run(op: Op, args: Sequence[Any]) -> Any:
    """Apply `op` to concrete arrays; several results come as a tuple of arrays."""
    arrays = [x if type(x) is Array else links.as_array(x) for x in args]
    try:
        type_ = op.abstract_eval(*(x.type for x in arrays))
    except StaxError as error:
        rows = operand_rows([x.type for x in arrays], [""] * len(arrays))
        raise error.located(rows, doing()) from None
    value = op.evaluate(*map(value_of, arrays))
    if isinstance(type_, TupleType):
        return tuple(map(array_from_numpy, value, type_.items))
    return array_from_numpy(np.asarray(value), type_)


def evaluate_nodes(nodes: Sequence[Node], known: dict[Node, Any]) -> None:
    """Add the values of `nodes`, given in program order, to `known`."""
    for node in nodes:
        value = known.get(node)
        if not isinstance(value, np.ndarray | tuple):
            known[node] = _apply(node, [known[x] for x in node.inputs])


def evaluate(graph: Graph, args: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of `graph` for NumPy arrays of its input types."""
    values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
    remaining = graph.uses()
    for node in graph.nodes:
        values[node] = _apply(node, [values[x] for x in node.inputs])
        for x in node.inputs:
            remaining[x] -= 1
            if not remaining[x]:
                del values[x]
    return [values[x] for x in graph.outputs]


def _apply(node: Node, args: list[Any]) -> Any:
    value = node.op.evaluate(*args)
    return value if isinstance(node.type, TupleType) else np.asarray(value)


def run_graph(graph: Graph, args: Sequence[Any]) -> list[Array]:
    """Return the outputs of `graph` as arrays, for arrays or what can become one."""
    arrays = [value_of(x if type(x) is Array else links.as_array(x)) for x in args]
    values = evaluate(graph, arrays)
    return list(map(array_from_numpy, values, graph.output_types))


links.run = run
links.run_graph = run_graph
links.evaluate = evaluate_nodes
