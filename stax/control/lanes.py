"""Lanes of a batch in which a graph has no part: a branch that was not taken, a loop that ended.

The graph runs for all lanes and its results are chosen lane by lane, so what the others compute
does no harm, with one exception: a loop inside that goes on until its values say otherwise might
never end for them.  Where there is one, they are given the values of a lane that takes part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax.control.held import HoldsGraphs
from stax.graph import Graph, held_graphs
from stax.op import Op
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.dynamic import dynamic_slice
from stax.operators.elementwise import convert, select
from stax.operators.gradient import stop_gradient
from stax.operators.reduce import argmax
from stax.types import int32


def by_lane(lanes: Any, taken: Any, others: Any) -> Any:
    """Choose between two values along their leading axis."""
    return select(broadcast_in_dim(lanes, taken.type.shape, (0,)), taken, others)


def taking_part(
    lanes: Any, graph: Graph, values: Sequence[Any], flags: Sequence[bool]
) -> list[Any]:
    """Return what `graph` is given, for all lanes of the flagged values what it ends for."""
    if not may_not_end(graph):
        return list(values)
    first = argmax(convert(lanes, int32), 0)
    return [_filled(lanes, first, x) if f else x for x, f in zip(values, flags, strict=True)]


def _filled(lanes: Any, first: Any, x: Any) -> Any:
    """Return `x` with the first lane that takes part in place of those that do not."""
    shape = x.type.shape
    one = dynamic_slice(x, [first, *[0] * (len(shape) - 1)], (1, *shape[1:]))
    # What these lanes compute is not used, so there is no derivative to pass on.
    return by_lane(lanes, x, stop_gradient(broadcast_in_dim(one, shape, range(len(shape)))))


def may_not_end(graph: Graph) -> bool:
    """Say whether a graph holds a loop whose values say when it ends."""
    found: bool = graph.derived("may_not_end", lambda: any(map(_open_ended, _ops(graph))))
    return found


def _ops(graph: Graph) -> list[Op]:
    return [node.op for node in graph.nodes if node.op.holds_graph]


def _open_ended(op: Op) -> bool:
    return (isinstance(op, HoldsGraphs) and not op.ends) or any(map(may_not_end, held_graphs(op)))
