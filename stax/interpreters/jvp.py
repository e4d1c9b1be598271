"""Forward mode: pushing tangents through a graph.

`pushforward` works inside the current trace on primal and tangent proxies; a tangent of None is
zero and costs nothing.  With `linearizing`, ops that hold graphs emit two nodes, a primal one that
also returns residuals and a linear one that consumes them, so that the result can be split by
dependence on the tangents without looking inside a node.

The rule of an op: `jvp(out, primals, tangents) -> tangent`, tangents of None being zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stax.graph import Graph, Node, Project
from stax.interpreters.interpret import interpret
from stax.trace import Trace, bind, project, zeros
from stax.types import is_inexact
from stax.verify import verified

Pair = tuple[Any, Any]  # a primal, and its tangent or None


def pushforward(
    graph: Graph,
    primals: Sequence[Any],
    tangents: Sequence[Any | None],
    linearizing: bool = False,
    known: Mapping[Node, Any] | None = None,
) -> tuple[list[Any], list[Any | None]]:
    """Return the outputs of `graph` and their tangents, recorded in the current trace.

    `known` holds values of nodes, which are not computed then.
    """
    values = known or {}

    def rule(node: Node, inputs: list[Pair]) -> Pair:
        xs = [x for x, _ in inputs]
        ts = [t for _, t in inputs]
        if isinstance(node.op, Project):
            t = None if ts[0] is None else ts[0][node.op.position]
            return project(xs[0], node.op.position), t
        if all(t is None for t in ts):
            return values[node] if node in values else bind(node.op, *xs), None
        op: Any = node.op
        if op.holds_graph:
            return (op.linearize if linearizing else op.pushforward)(xs, ts)
        out = values[node] if node in values else bind(node.op, *xs)
        return out, node.op.jvp(out, xs, ts)

    pairs = interpret(graph, list(zip(primals, tangents, strict=True)), rule)
    return [y for y, _ in pairs], [_differentiable(y, t) for y, t in pairs]


def _differentiable(y: Any, t: Any | None) -> Any | None:
    return t if t is not None and is_inexact(y.type.dtype) else None


def jvp(
    graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """Return the graph that also pushes tangents forward, and which outputs have tangents.

    Its inputs are those of `graph` and then a tangent for each flagged one; its outputs are those
    of `graph` and then a tangent for each output that has one.  Outputs that are `wanted` have one
    in any case: zeros.
    """
    key = ("jvp", tuple(flags), None if wanted is None else tuple(wanted))
    return graph.derived(key, lambda: _jvp(graph, flags, wanted))


def _jvp(
    graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None
) -> tuple[Graph, list[bool]]:
    with Trace(graph.name, "jvp") as trace:
        primals, tangents = inputs_with_tangents(trace, graph, flags)
        outs, out_tangents = pushforward(graph, primals, tangents)
        out_tangents = filled(out_tangents, outs, wanted)
        kept = [t for t in out_tangents if t is not None]
        result = trace.finish([*outs, *kept])
    return verified(result, "jvp"), [t is not None for t in out_tangents]


def filled(
    tangents: Sequence[Any | None], outs: Sequence[Any], wanted: Sequence[bool] | None
) -> list[Any | None]:
    """Return `tangents` with zeros in place of those that are wanted and missing."""
    if wanted is None:
        return list(tangents)
    triples = zip(tangents, outs, wanted, strict=True)
    return [zeros(y.type.tangent()) if t is None and w else t for t, y, w in triples]


def inputs_with_tangents(
    trace: Trace, graph: Graph, flags: Sequence[bool]
) -> tuple[list[Any], list[Any | None]]:
    """Give `trace` the inputs of `graph`, then a tangent for each flagged one; return both."""
    primals = [trace.input(x.type, x.label) for x in graph.inputs]
    tangents = [
        trace.input(x.type.tangent(), f"{x.label}_dot") if f else None
        for x, f in zip(graph.inputs, flags, strict=True)
    ]
    return primals, tangents
