"""The forward driver that every interpreter shares.

`interpret` walks a graph in program order and hands each node to a rule; nodes that the rule makes
inherit the source line and the name stack of the node it was applied to, so a failure in a second
derivative still points at the user's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from stax.graph import Graph, Node
from stax.interpreters.lengths import fitted, renewed
from stax.trace import Proxy, Trace, current_trace, links, recorder

Rule = Callable[[Node, list[Any]], Any]


def interpret(graph: Graph, args: Sequence[Any], rule: Rule) -> list[Any]:
    """Return the outputs of `graph` where `rule` gives the meaning of a node."""
    values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
    trace = current_trace()
    with attributed(trace) as attribute:
        for node in graph.nodes:
            attribute(node)
            values[node] = rule(node, [values[x] for x in node.inputs])
    return [values[x] for x in graph.outputs]


@contextmanager
def attributed(trace: Trace | None) -> Iterator[Callable[[Node], None]]:
    """Give a function that makes new nodes of `trace` inherit where a given node comes from."""
    if trace is None:
        yield lambda node: None
        return
    before = trace.source, trace.scope

    def attribute(node: Node) -> None:
        trace.source, trace.scope = node.source, node.scope

    try:
        yield attribute
    finally:
        trace.source, trace.scope = before


def inline(graph: Graph, args: Sequence[Any]) -> list[Any]:
    """Return the outputs of `graph` for `args`: recorded in the current trace, or computed now."""
    trace = recorder(args)
    if trace is None:
        return links.run_graph(graph, args)
    given = list(map(trace.node, args))
    graph = renewed(fitted(graph, [x.type for x in given]), trace.builder.opens)
    nodes: dict[Node, Node] = dict(zip(graph.inputs, given, strict=True))
    with attributed(trace) as attribute:
        for node in graph.nodes:
            attribute(node)
            nodes[node] = trace.apply(node.op, tuple([nodes[x] for x in node.inputs]))
    return [Proxy(nodes[x], trace) for x in graph.outputs]
