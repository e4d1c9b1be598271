"""Splitting a graph by what is known: the primal part, the residuals, and the linear part.

`split` cuts a finished graph in two at the nodes that depend on some inputs: the first graph
computes the rest and returns, beside the outputs it knows, the *residuals* that the second reads.
Forward linearization splits a pushforward at the tangents; a pullback splits at the cotangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stax.graph import ArrayConstant, Constant, Graph, Input, Node, live
from stax.interpreters.interpret import attributed, inline
from stax.interpreters.jvp import filled, inputs_with_tangents, pushforward
from stax.interpreters.transpose import dependents, pullback
from stax.trace import Proxy, Trace, zeros
from stax.verify import verified

CONSTANTS = Constant | ArrayConstant


class Split(NamedTuple):
    """Two graphs in place of one, see `split`.

    `known` returns the known outputs and then the residuals; `unknown` takes the residuals and then
    the unknown inputs, and returns the other outputs.  `is_known` says which output is which.
    """

    known: Graph
    unknown: Graph
    is_known: list[bool]


def split(graph: Graph, unknown_inputs: Sequence[bool], known_outputs: int | None = None) -> Split:
    """Cut `graph` at what depends on the inputs marked in `unknown_inputs`.

    Only the first `known_outputs` outputs may count as known (all of them, if it is None).
    """
    roots = marked_inputs(graph, unknown_inputs)
    later = dependents(graph.nodes, roots)
    limit = len(graph.outputs) if known_outputs is None else known_outputs
    is_known = [x not in later and i < limit for i, x in enumerate(graph.outputs)]
    wanted = [x for x, k in zip(graph.outputs, is_known, strict=True) if not k]
    late_nodes = live([n for n in graph.nodes if n in later], wanted)
    residuals = _residuals(late_nodes, wanted, later)
    known_inputs = [x for x, u in zip(graph.inputs, unknown_inputs, strict=True) if not u]
    outputs = [x for x, k in zip(graph.outputs, is_known, strict=True) if k] + residuals
    known = Graph(
        f"{graph.name}_known",
        known_inputs,
        live([n for n in graph.nodes if n not in later], outputs),
        outputs,
    )
    unknown = _rebuild(graph.name, residuals, roots, late_nodes, wanted)
    return Split(verified(known, "split"), verified(unknown, "split"), is_known)


def _residuals(late_nodes: Sequence[Node], wanted: Sequence[Node], later: set[Node]) -> list[Node]:
    """Return what is read from before, each once; constants are made again instead."""
    read = [*(x for node in late_nodes for x in node.inputs), *wanted]
    known = (x for x in read if x not in later and not isinstance(x.op, CONSTANTS))
    return list(dict.fromkeys(known))


def _rebuild(
    name: str,
    residuals: Sequence[Node],
    roots: Sequence[Node],
    nodes: Sequence[Node],
    outputs: Sequence[Node],
) -> Graph:
    with Trace(name, "linearize") as trace:
        new: dict[Node, Node] = {}
        for i, x in enumerate(residuals):
            new[x] = trace.input(x.type, f"residual{i}").node
        for x in roots:
            new[x] = trace.input(x.type, x.label).node

        def made(x: Node) -> Node:
            return new[x] if x in new else trace.apply(x.op, ())  # a constant

        with attributed(trace) as attribute:
            for node in nodes:
                attribute(node)
                new[node] = trace.apply(node.op, tuple([made(x) for x in node.inputs]))
        return trace.finish([Proxy(made(x), trace) for x in outputs])


class Linearized(NamedTuple):
    """A pushforward cut in two: `primal` gives outputs and residuals, `linear` maps residuals and
    tangents to the tangents of the outputs marked in `has_tangent`."""

    primal: Graph
    linear: Graph
    has_tangent: list[bool]


def linearize(
    graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> Linearized:
    """Linearize `graph` in its flagged inputs; outputs that are `wanted` have a tangent."""
    key = ("linearize", tuple(flags), None if wanted is None else tuple(wanted))
    return graph.derived(key, lambda: _linearize(graph, flags, wanted))


def _linearize(graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None) -> Linearized:
    with Trace(graph.name, "linearize") as trace:
        primals, tangents = inputs_with_tangents(trace, graph, flags)
        outs, out_tangents = pushforward(graph, primals, tangents, linearizing=True)
        out_tangents = filled(out_tangents, outs, wanted)
        kept = [t for t in out_tangents if t is not None]
        joint = trace.finish([*outs, *kept])
    unknown = [False] * len(primals) + [True] * (len(joint.inputs) - len(primals))
    cut = split(joint, unknown, known_outputs=len(outs))
    return Linearized(cut.known, cut.unknown, [t is not None for t in out_tangents])


def separated(graph: Graph, flags: Sequence[bool]) -> Graph:
    """Return a graph that is linear in its flagged inputs, written so that it can be transposed.

    Where a rule pushes tangents through a loop, the loop computes results and tangents in one.  A
    linear map is its own derivative, and of that the linear part stands apart.
    """
    moving = dependents(graph.nodes, marked_inputs(graph, flags))
    if not any(node in moving and node.op.holds_graph for node in graph.nodes):
        return graph
    return graph.derived(("separated", tuple(flags)), lambda: _separated(graph, flags))


def _separated(graph: Graph, flags: Sequence[bool]) -> Graph:
    count = len(graph.outputs)
    cut = linearize(graph, flags, [True] * count)
    with Trace(graph.name, "linearize") as trace:
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        pairs = list(zip(args, flags, strict=True))
        residuals = inline(cut.primal, [zeros(x.type) if f else x for x, f in pairs])[count:]
        found = inline(cut.linear, [*residuals, *(x for x, f in pairs if f)])
        return verified(trace.finish(found), "linearize")


def marked_inputs(graph: Graph, flags: Sequence[bool]) -> list[Node]:
    """Return the inputs of `graph` that are flagged."""
    return [x for x, f in zip(graph.inputs, flags, strict=True) if f]


def value_and_pullback(
    trace: Trace, graph: Graph, primals: Sequence[Any], flags: Sequence[bool], cts: Any
) -> tuple[list[Any], list[Any | None]]:
    """Return the outputs of `graph` and the cotangents of its flagged inputs, in `trace`.

    `cts` is called with the outputs and returns a cotangent or None for each.
    """
    tangents = [
        Proxy(_tangent_input(x), trace) if f else None
        for x, f in zip(graph.inputs, flags, strict=True)
    ]
    outs, out_tangents = pushforward(graph, primals, tangents, linearizing=True)
    back = pullback(trace, out_tangents, cts(outs), [t for t in tangents if t is not None])
    found = iter(back)
    return outs, [next(found) if f else None for f in flags]


def _tangent_input(x: Node) -> Node:
    """Return an input that stands for a tangent and is gone from the finished graph."""
    return Node(Input("tangent"), (), x.type.tangent(), x.source)
