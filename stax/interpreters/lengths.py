"""Symbolic lengths of a graph, replaced where it is applied.

A graph may be written for lengths that are open: of arguments, and of what a loop records, whose
number of steps is known only when it has run.  Where the graph is applied to arguments of other
lengths, those take the place of its symbols, in types and in the parameters of ops; and where it is
applied a second time, what its loops record gets symbols of its own, so that no length has the name
of another.

    >>> from stax.extent import symbol
    >>> from stax.types import ArrayType, float32
    >>> with Trace("f", "example") as trace:
    ...     graph = trace.finish([trace.input(ArrayType(float32, (symbol("n"),)), "x")])
    >>> fitted(graph, [ArrayType(float32, (5,))]).output_types
    (f32[5],)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from stax.extent import Dimension, Extent, symbol
from stax.graph import Graph, Node
from stax.op import Op
from stax.trace import Proxy, Trace
from stax.types import ArrayType

_numbers = itertools.count()


def new_length() -> Extent:
    """Return a symbol that no other length has."""
    return symbol(f"steps__{next(_numbers)}")


def fitted(graph: Graph, types: Sequence[ArrayType]) -> Graph:
    """Return `graph` with the symbols in its input types replaced by the lengths in `types`."""
    if not graph.open_inputs:
        return graph
    return replaced(graph, matched(graph.input_types, types))


def matched(types: Sequence[ArrayType], given: Sequence[ArrayType]) -> dict[str, Dimension]:
    """Return the values of symbols in `types` where `given` have other lengths."""
    values: dict[str, Dimension] = {}
    for own, other in zip(types, given, strict=True):
        if own is not other:
            for extent, length in zip(own.shape, other.shape, strict=True):
                _match(extent, length, values)
    return values


def _match(extent: Dimension, length: Dimension, values: dict[str, Dimension]) -> None:
    """Add the value of a symbol, if `extent` is a multiple of it plus a number, of other length."""
    if not isinstance(extent, Extent):
        return
    if isinstance(length, Extent) and length.terms == extent.terms:
        return
    (names, factor), *rest = extent.terms
    if len(names) == 1 and (not rest or rest[0][0] == ()):
        left = length - rest[0][1] if rest else length
        if factor == 1 or (isinstance(left, int) and left % factor == 0):
            values.setdefault(names[0], left if factor == 1 else left // factor)


def renewed(graph: Graph, taken: Iterable[str]) -> Graph:
    """Return `graph` with new symbols for what its loops record, in place of those in `taken`."""
    again = sorted(graph.opens.intersection(taken)) if graph.opens else []
    return replaced(graph, {name: new_length() for name in again}) if again else graph


def numbered(graph: Graph, first: int) -> Graph:
    """Return `graph` with symbols of what its loops record that depend on their order alone."""
    names = [node.op.opens for node in graph.nodes if node.op.opens]
    return replaced(graph, {n: symbol(f"steps_{first + i}_") for i, n in enumerate(names)})


def replaced(graph: Graph, values: Mapping[str, Dimension]) -> Graph:
    """Return `graph` with symbols replaced by lengths."""
    if not values:
        return graph
    key = ("lengths", tuple(sorted((name, repr(n)) for name, n in values.items())))
    return graph.derived(key, lambda: _replaced(graph, values))


def _replaced(graph: Graph, values: Mapping[str, Dimension]) -> Graph:
    with Trace(graph.name, "lengths") as trace:
        new: dict[Node, Node] = {}
        for x in graph.inputs:
            type_ = x.type.with_shape(replaced_in(x.type.shape, values))
            new[x] = trace.input(type_, x.label, None, x.source).node
        for node in graph.nodes:
            trace.source, trace.scope = node.source, node.scope
            op = op_with_lengths(node.op, values)
            new[node] = trace.apply(op, tuple([new[x] for x in node.inputs]))
        return trace.finish([Proxy(new[x], trace) for x in graph.outputs])


def op_with_lengths(op: Op, values: Mapping[str, Dimension]) -> Op:
    """Return `op` with symbols in its parameters, graphs among them, replaced by lengths."""
    before = [getattr(op, f.name) for f in fields(op)]
    after = [replaced_in(value, values) for value in before]
    return op if all(a is b for a, b in zip(before, after, strict=True)) else type(op)(*after)


def replaced_in(value: Any, values: Mapping[str, Dimension]) -> Any:
    """Return a parameter, or a shape, with symbols replaced; the same object if there are none."""
    if isinstance(value, Extent):
        return value.replaced(values) if not values.keys().isdisjoint(value.symbols()) else value
    if isinstance(value, tuple):
        items = [replaced_in(x, values) for x in value]
        if all(a is b for a, b in zip(value, items, strict=True)):
            return value
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, Graph) and mentions(value, values):
        # What its own loops find has nothing to do with what is found around it.
        return replaced(value, {n: x for n, x in values.items() if n not in value.opens})
    return value


def mentions(graph: Graph, names: Iterable[str]) -> bool:
    """Say whether one of these symbols stands in a graph: in a type, or in a parameter."""
    wanted = dict.fromkeys(names, 0)
    shapes = [x.type.shape for x in (*graph.inputs, *graph.nodes) if isinstance(x.type, ArrayType)]
    return any(replaced_in(shape, wanted) is not shape for shape in shapes) or any(
        op_with_lengths(node.op, wanted) is not node.op for node in graph.nodes
    )
