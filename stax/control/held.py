"""What ops that hold graphs share: effects, checks of types, graphs with other parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from stax.errors import ShapeError
from stax.graph import Graph, Input, Node, held_graphs
from stax.op import ORDERED, Batch, Op
from stax.operators.broadcast import expand_leading
from stax.trace import zeros
from stax.types import ArrayType


@dataclass(frozen=True, eq=False)
class HoldsGraphs(Op):
    """Base of ops with graphs among their parameters."""

    interned: ClassVar[bool] = False
    holds_graph: ClassVar[bool] = True

    @property
    def effect(self) -> str | None:  # type: ignore[override]
        effects = {graph.effect for graph in held_graphs(self)}
        return ORDERED if ORDERED in effects else next((e for e in effects if e), None)

    @property
    def applied(self) -> Graph | None:
        """The graph that the op is an application of, if that is all it does."""
        return None

    def names_axis(self, axis_name: Any) -> bool:
        nodes = (node for graph in held_graphs(self) for node in graph.nodes)
        return any(node.op.names_axis(axis_name) for node in nodes)


def check_arguments(name: str, graph: Graph, types: Sequence[ArrayType]) -> None:
    """Raise ShapeError unless `graph` can be applied to arguments of `types`."""
    if len(types) != len(graph.inputs):
        raise ShapeError(
            f"{name}: {graph.name} takes {len(graph.inputs)} arguments, got {len(types)}."
        )
    for given, wanted in zip(types, graph.input_types, strict=True):
        if given.strong() is not wanted.strong():
            raise ShapeError(f"{name}: {graph.name} takes {wanted}, got {given}.")


def with_graphs(op: HoldsGraphs, change: Callable[[Graph], Graph]) -> HoldsGraphs:
    """Return `op` with each of its graphs replaced by `change` of it."""

    def changed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return change(value) if isinstance(value, Graph) else value

    return type(op)(*(changed(getattr(op, f.name)) for f in fields(op)))


def rearranged(graph: Graph, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
    """Return `graph` with its inputs in another order, or more of them, and other outputs."""
    return Graph(graph.name, inputs, graph.nodes, outputs)


def unused(node: Node) -> Node:
    """Return an input of the type of `node` that nothing reads."""
    return Node(Input(node.label), (), node.type, node.source)


def sections(values: Sequence[Any], *lengths: int) -> list[list[Any]]:
    """Return `values` cut into pieces of these lengths, and what is left."""
    found, start = [], 0
    for n in lengths:
        found.append(list(values[start : start + n]))
        start += n
    return [*found, list(values[start:])]


def given(values: Sequence[Any]) -> list[Any]:
    """Return the values that are there."""
    return [x for x in values if x is not None]


def marked(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Return the values that are flagged."""
    return [x for x, f in zip(values, flags, strict=True) if f]


def spread(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Return the next of `values` in each place that is flagged, None elsewhere."""
    found: Iterator[Any] = iter(values)
    return [next(found) if f else None for f in flags]


def instantiated(
    primals: Sequence[Any], tangents: Sequence[Any], flags: Sequence[bool]
) -> list[Any]:
    """Return the tangents that are flagged, zeros in place of those that are None."""
    return [
        zeros(x.type.tangent()) if t is None else t
        for x, t, f in zip(primals, tangents, flags, strict=True)
        if f
    ]


def leading(
    axis: Batch, values: Sequence[Any], flags: Sequence[bool], wanted: Sequence[bool]
) -> list[Any]:
    """Return the values, those `wanted` that are not flagged repeated along a batch axis."""
    return [
        expand_leading(x, axis.size) if w and not f else x
        for x, f, w in zip(values, flags, wanted, strict=True)
    ]


def fixed_point(
    flags: Sequence[bool], first: int, count: int, outcome: Callable[[list[bool]], Sequence[bool]]
) -> list[bool]:
    """Return `flags` with those of the carry, `count` from `first` on, grown until they are stable.

    `outcome` gives the flags of the carry after a step, for the flags of all arguments.
    """
    now = list(flags)
    while True:
        after = outcome(now)[:count]
        carry = [a or b for a, b in zip(now[first : first + count], after, strict=True)]
        if carry == now[first : first + count]:
            return now
        now[first : first + count] = carry
