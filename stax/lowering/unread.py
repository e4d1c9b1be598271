"""Loops without what nobody reads: stacked results, and what is carried for them alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stax.control import HoldsGraphs, Scan, with_graphs
from stax.control.held import marked
from stax.graph import Graph, Node, Project, held_graphs, live
from stax.interpreters.interpret import attributed, interpret
from stax.op import Op
from stax.trace import Proxy, Trace, bind
from stax.verify import verified


def without_unread(graph: Graph) -> Graph:
    """Return `graph` with each scan reduced to the results of it that are read, inner ones too."""
    graph = _inside(graph)
    read: dict[Node, set[int]] = {n: set() for n in graph.nodes if _is_counted(n.op)}
    for node in live(graph.nodes, graph.outputs) if read else ():
        if isinstance(node.op, Project) and node.inputs[0] in read:
            read[node.inputs[0]].add(node.op.position)
    smaller = {}
    for node, positions in read.items():
        kept = _kept(node.op, positions)
        if len(kept) < len(node.type.items):
            smaller[node] = kept
    return _rewritten(graph, smaller) if smaller else graph


def _is_counted(op: Op) -> bool:
    """Say whether an op is a scan of known length; others are told by an operand when to end."""
    return isinstance(op, Scan) and isinstance(op.length, int)


def _inside(graph: Graph) -> Graph:
    """Return `graph` with what its ops hold reduced."""
    changed: dict[Node, Any] = {}
    for node in graph.nodes:
        if isinstance(node.op, HoldsGraphs):
            op = with_graphs(node.op, without_unread)
            pairs = zip(held_graphs(op), held_graphs(node.op), strict=True)
            if any(new is not old for new, old in pairs):
                changed[node] = op
    if not changed:
        return graph
    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.label, source=x.source) for x in graph.inputs]
        return verified(trace.finish(interpret(graph, args, _replacing(changed))), "prepare")


def _replacing(changed: dict[Node, Any]) -> Callable[[Node, list[Any]], Any]:
    return lambda node, inputs: bind(changed.get(node, node.op), *inputs)


def _kept(op: Any, read: set[int]) -> list[int]:
    """Return which results a scan has to have: those read, and what is carried for them."""
    body = op.body
    carry = dict(enumerate(body.inputs[op.consts : op.consts + op.carry]))
    stacked = [body.outputs[i] for i in read if i >= op.carry]
    first = {k for k in read if k < op.carry}
    return sorted(read | carried_for(body.nodes, carry, body.outputs, first, stacked))


def carried_for(
    nodes: Sequence[Node],
    carry: Mapping[int, Node],
    new: Sequence[Node],
    read: set[int],
    outputs: Sequence[Node],
) -> set[int]:
    """Return which carried values a loop needs, by their numbers: those of `carry` that are `read`
    after it, and what `outputs`, or others that it needs, are computed from in a step."""
    found = set(read)
    while True:
        roots = [*outputs, *(new[k] for k in found)]
        needed = {x for node in live(nodes, roots) for x in node.inputs} | {*roots}
        more = {k for k, x in carry.items() if x in needed} - found
        if not more:
            return found
        found |= more


def _rewritten(graph: Graph, smaller: dict[Node, list[int]]) -> Graph:
    with Trace(graph.name, "prepare") as trace:
        trace.inputs = list(graph.inputs)
        new: dict[Node, Node] = {x: x for x in graph.inputs}
        with attributed(trace) as attribute:
            for node in graph.nodes:
                attribute(node)
                if node in smaller:
                    new[node] = _reduced(trace, node, [new[x] for x in node.inputs], smaller[node])
                elif isinstance(node.op, Project) and node.inputs[0] in smaller:
                    source = node.inputs[0]
                    if node.op.position in smaller[source]:
                        place = smaller[source].index(node.op.position)
                        new[node] = trace.apply(Project(place), (new[source],))
                elif all(x in new for x in node.inputs):
                    new[node] = trace.apply(node.op, tuple([new[x] for x in node.inputs]))
        outputs = [Proxy(new[x], trace) for x in graph.outputs]
        return verified(trace.finish(outputs), "prepare")


def _reduced(trace: Trace, node: Node, inputs: list[Node], kept: list[int]) -> Node:
    """Return a scan with some of its results."""
    op = node.op
    assert isinstance(op, Scan)
    outputs = [op.body.outputs[i] for i in kept]
    nodes = live(op.body.nodes, outputs)
    used = {x for n in nodes for x in n.inputs}.union(outputs)
    carries = [k in kept for k in range(op.carry)]
    consts, _, xs = op.parts([x in used for x in op.body.inputs])
    if op.length is None:
        xs[0] = True  # whose length is the number of steps
    wanted = [*consts, *carries, *xs]
    body = Graph(op.body.name, marked(op.body.inputs, wanted), nodes, outputs)
    loop = Scan(body, op.length, op.reverse, sum(consts), sum(carries))
    return trace.apply(loop, tuple(marked(inputs, wanted)))
