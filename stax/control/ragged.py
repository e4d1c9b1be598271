"""Residuals whose length is found while a step runs: they are computed again in the backward step.

A loop that records its steps returns arrays of a length that is known only when it has run.  Inside
the step of another loop, or in a branch, that length differs from step to step, so such arrays
cannot be stacked: what they are computed from is kept instead, and the loop runs again.
"""

from __future__ import annotations

from typing import Any

from stax.control.held import repeated
from stax.extent import Extent
from stax.graph import Graph, Node, live, multiple
from stax.interpreters.interpret import attributed, inline
from stax.trace import Proxy, Trace
from stax.types import ArrayType
from stax.verify import verified


def is_open(node: Node, names: frozenset[str]) -> bool:
    """Say whether a value, or one of several, has a length that is among the symbols `names`."""
    types: Any = node.type.items if multiple(node) else (node.type,)
    return any(
        isinstance(n, Extent) and not names.isdisjoint(n.symbols()) for t in types for n in t.shape
    )


def has_open_outputs(graph: Graph) -> bool:
    """Say whether an output has a length that is found when `graph` runs."""
    return bool(graph.opens) and any(is_open(x, graph.opens) for x in graph.outputs)


def closed(known: Graph, outputs: int, unknown: Graph) -> tuple[Graph, Graph]:
    """Return two graphs between which no residual has a length that is found when `known` runs.

    `known` returns `outputs` results and then the residuals, which are the first inputs of
    `unknown`.
    """
    if not has_open_outputs(known):
        return known, unknown
    results, residuals = known.outputs[:outputs], known.outputs[outputs:]
    again, kept = _slice(known, residuals)
    with Trace(unknown.name, "linearize") as trace:
        new = {x: trace.input(x.type, f"residual{i}").node for i, x in enumerate(kept)}
        rest = [trace.input(x.type, x.label) for x in unknown.inputs[len(residuals) :]]
        with attributed(trace) as attribute:
            for node in again:
                attribute(node)
                new[node] = trace.apply(node.op, tuple([new[x] for x in node.inputs]))
        found = inline(unknown, [*(Proxy(new[x], trace) for x in residuals), *rest])
        late = verified(repeated(trace.finish(found)), "linearize")
    ends = [*results, *kept]
    early = Graph(known.name, known.inputs, live(known.nodes, ends), ends)
    return verified(early, "linearize"), late


def _slice(graph: Graph, residuals: Any) -> tuple[list[Node], list[Node]]:
    """Return the nodes that are computed again, and the values that are kept for it.

    Those that are kept are the closed residuals and what the open ones are computed from.
    """
    kept: dict[Node, None] = {}
    again: set[Node] = set()
    pending = list(residuals)
    while pending:
        x = pending.pop()
        if x in again or x in kept:
            continue
        is_value = isinstance(x.type, ArrayType) and not is_open(x, graph.opens)
        if x in graph.inputs or (is_value and x.inputs):
            kept[x] = None
        else:
            again.add(x)
            pending += x.inputs
    order = [x for x in (*graph.inputs, *graph.nodes) if x in kept]
    return [x for x in graph.nodes if x in again], order
