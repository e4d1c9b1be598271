"""Arrays that graphs hold become hidden arguments of the program, also those in bodies of loops.

A rule of the user's may be traced in the middle of another graph, where the arrays that it closes
over have no place among the inputs; there they are nodes.  No such node is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from stax.control import Call, HoldsGraphs, Scan, Switch, While
from stax.control.held import rearranged
from stax.errors import InternalError
from stax.graph import ArrayConstant, ByIdentity, Graph, Node, held_graphs
from stax.interpreters.interpret import interpret
from stax.lowering.fourier import transforms_as_passes
from stax.op import Op
from stax.trace import Trace, bind
from stax.verify import verified


class Hoisted(NamedTuple):
    """A graph that holds no arrays, and the values of its last inputs."""

    graph: Graph
    arrays: list[Any]


def hoisted(graph: Graph) -> Hoisted:
    """Return `graph` with the arrays that it holds as further inputs, each once.

    Fourier transforms get theirs, tables, here.
    """
    graph = transforms_as_passes(graph)
    found = _held(graph)
    if not found:
        return Hoisted(graph, [])
    made = _given(graph, found)
    first = len(found)
    inputs = [*made.inputs[first:], *made.inputs[:first]]
    return Hoisted(rearranged(made, inputs, made.outputs), [x.value for x in found])


def _held(graph: Graph) -> list[ByIdentity]:
    """Return the arrays in a graph and in those that it holds, in program order."""
    return graph.derived("arrays", lambda: list(dict.fromkeys(_arrays_of(graph))))


def _arrays_of(graph: Graph) -> list[ByIdentity]:
    found: list[ByIdentity] = []
    for node in graph.nodes:
        if isinstance(node.op, ArrayConstant):
            found.append(node.op.of)
        elif node.op.holds_graph:
            found += _arrays_in(node.op)
    return found


def _arrays_in(op: Op) -> list[ByIdentity]:
    """Return the arrays in the graphs that lowering takes from an op, each once."""
    assert isinstance(op, HoldsGraphs)
    graphs = [op.applied] if op.applied is not None else held_graphs(op)
    return list(dict.fromkeys(x for graph in graphs for x in _held(graph)))


def _given(graph: Graph, arrays: Sequence[ByIdentity]) -> Graph:
    """Return `graph` as one of `arrays` and then its own inputs."""

    def rule(node: Node, inputs: list[Any]) -> Any:
        if isinstance(node.op, ArrayConstant):
            return places[node.op.of]
        mine = _arrays_in(node.op) if node.op.holds_graph else []
        if not mine:
            return bind(node.op, *inputs)
        op, operands = _with_operands(node.op, mine, [places[x] for x in mine], inputs)
        return bind(op, *operands)

    with Trace(graph.name, "prepare") as trace:
        places = {x: trace.input(x.value.type, "held") for x in arrays}
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        result = trace.finish(interpret(graph, args, rule))
    return verified(result, "hoist")


def _with_operands(
    op: Op, arrays: Sequence[ByIdentity], values: Sequence[Any], inputs: Sequence[Any]
) -> tuple[Op, list[Any]]:
    """Return an op whose graphs are given `values` for the arrays they hold, and its operands."""
    count = len(arrays)
    match op:
        case Scan():
            body = _given(op.body, arrays)
            return replace(op, body=body, consts=op.consts + count), [*values, *inputs]
        case While():
            of_cond, rest = inputs[: op.cond_consts], inputs[op.cond_consts :]
            loop = replace(
                op,
                cond=_given(op.cond, arrays),
                body=_given(op.body, arrays),
                cond_consts=op.cond_consts + count,
                body_consts=op.body_consts + count,
            )
            return loop, [*values, *of_cond, *values, *rest]
        case Switch():
            branches = tuple(_given(branch, arrays) for branch in op.branches)
            return Switch(branches), [inputs[0], *values, *inputs[1:]]
        case HoldsGraphs() if op.applied is not None:
            return Call(_given(op.applied, arrays)), [*values, *inputs]
    raise InternalError(f"hoist: {op.name} holds arrays in graphs that are not looked into.")
