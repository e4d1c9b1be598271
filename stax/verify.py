"""Checks that a graph is well formed: a net under every pass.

Inputs come first, a node reads only what stands before it, types are what `abstract_eval` derives,
ordered effects form one chain, nothing dead is kept, and graphs that ops hold are well formed too.
"""

from __future__ import annotations

from stax.config import config
from stax.errors import JaxprTypeError, StaxError
from stax.graph import Graph, Input, Node, held_graphs, live
from stax.op import ORDERED


def verify(graph: Graph, after: str = "") -> Graph:
    """Return `graph` if it is well formed; raises JaxprTypeError naming the pass `after`."""
    known: set[Node] = set()
    for node in graph.inputs:
        if not isinstance(node.op, Input) or node in known:
            raise _broken(graph, after, f"input {node!r} is not an input, or stands there twice")
        known.add(node)
    token: Node | None = None
    for node in graph.nodes:
        _check_node(graph, after, node, known)
        if node.op.effect == ORDERED:
            if node.after is not token:
                raise _broken(graph, after, f"{node!r} is out of the order of effects")
            token = node
        known.add(node)
    for node in graph.outputs:
        if node not in known:
            raise _broken(graph, after, f"output {node!r} is not defined in the graph")
    if len(live(graph.nodes, graph.outputs)) != len(graph.nodes):
        raise _broken(graph, after, "it holds dead nodes")
    return graph


def verified(graph: Graph, after: str) -> Graph:
    """Return `graph`, verified when STAX_VERIFY is on."""
    return verify(graph, after) if config.verify else graph


def _check_node(graph: Graph, after: str, node: Node, known: set[Node]) -> None:
    if node in known or isinstance(node.op, Input):
        raise _broken(graph, after, f"{node!r} stands there twice, or is an input of another graph")
    for held in held_graphs(node.op):
        verify(held, after)
    for x in node.inputs:
        if x not in known:
            raise _broken(graph, after, f"{node!r} reads {x!r}, which is not defined before it")
    try:
        derived = node.op.abstract_eval(*(x.type for x in node.inputs))
    except StaxError as error:
        raise _broken(graph, after, f"{node!r} does not type-check: {error.rule}") from error
    if derived != node.type:
        raise _broken(graph, after, f"{node!r} should have type {derived!r}")


def _broken(graph: Graph, after: str, what: str) -> JaxprTypeError:
    return JaxprTypeError(
        f"{after or 'a pass'} broke the graph {graph.name}: {what}.",
        advice="This is a bug in the library; please report it with the program.",
    )
