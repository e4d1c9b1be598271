"""Reverse mode: pulling cotangents back through the linear part of a trace.

`pullback` walks the nodes that depend on given tangent inputs from the last to the first and hands
each to its transpose rule; what does not depend on a tangent is an ordinary value there.

The rule of an op: `transpose(ct, *inputs) -> cotangents`, inputs the op is linear in are `Linear`.

A masked cotangent absorbs: transposing a select marks the lanes that were not taken, and a linear
op pulled back through them is evaluated under that mask (`masks.py`), so `where(x < 1, x, sqrt(x))`
has the right gradient at 0, where an infinite derivative is multiplied by a cotangent of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax.graph import Graph, Node, Project
from stax.interpreters.interpret import attributed, inline
from stax.interpreters.masks import Masked, add_masked, apply_mask, pull_mask
from stax.op import Linear
from stax.trace import Proxy, Trace, zeros
from stax.types import TupleType
from stax.verify import verified


def pullback(
    trace: Trace,
    outputs: Sequence[Proxy | None],
    cts: Sequence[Any | None],
    inputs: Sequence[Proxy],
) -> list[Any | None]:
    """Return the cotangents of `inputs`, given those of `outputs`, all of them in `trace`."""
    linear = dependents(trace.builder.nodes, [x.node for x in inputs])
    found: dict[Node, Any] = {}
    for y, ct in zip(outputs, cts, strict=True):
        if y is not None and ct is not None and trace.node(y) in linear:
            _accumulate(found, trace.node(y), Masked(ct, None))
    with attributed(trace) as attribute:
        for node in reversed([n for n in trace.builder.nodes if n in linear]):
            ct = found.pop(node, None)
            if ct is not None:
                attribute(node)
                _transpose_node(trace, node, ct, linear, found)
    return [found[x.node].value if x.node in found else None for x in inputs]


def dependents(nodes: Sequence[Node], roots: Sequence[Node]) -> set[Node]:
    """Return `roots` and the nodes that depend on one of them."""
    result = set(roots)
    for node in nodes:
        if not result.isdisjoint(node.inputs):
            result.add(node)
    return result


def _transpose_node(
    trace: Trace, node: Node, ct: Any, linear: set[Node], found: dict[Node, Any]
) -> None:
    if isinstance(node.op, Project):
        source = node.inputs[0]
        items = found.setdefault(source, [None] * len(source.type.items))
        items[node.op.position] = add_masked(items[node.op.position], ct)
        return
    operands = [Linear(x.type) if x in linear else Proxy(x, trace) for x in node.inputs]
    if isinstance(node.type, TupleType):
        values = node.op.transpose([None if c is None else c.value for c in ct], *operands)  # type: ignore[arg-type]
        masks: Sequence[Any] = [None] * len(operands)
    else:
        values = node.op.transpose(ct.value, *operands)
        masks = pull_mask(node.op, ct, operands)
    for x, value, mask in zip(node.inputs, values, masks, strict=True):
        if value is not None and x in linear:
            _accumulate(found, x, apply_mask(node.op, operands, value, mask))


def _accumulate(found: dict[Node, Any], node: Node, ct: Masked) -> None:
    found[node] = add_masked(found.get(node), ct)


def transpose(
    graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """Return the transpose of a graph that is linear in its flagged inputs.

    Its inputs are the inputs that are not flagged and then a cotangent for each output; its outputs
    are the cotangents of the flagged inputs that have one, which the second result marks.  Flagged
    inputs that are `wanted` have one in any case: zeros.
    """
    key = ("transpose", tuple(flags), None if wanted is None else tuple(wanted))
    return graph.derived(key, lambda: _transpose(graph, flags, wanted))


def _transpose(
    graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None
) -> tuple[Graph, list[bool]]:
    with Trace(graph.name, "transpose") as trace:
        inputs = [trace.input(x.type, x.label) for x in graph.inputs]
        outputs = inline(graph, inputs)
        cts = [trace.input(x.type, f"ct{i}") for i, x in enumerate(graph.outputs)]
        linear = [x for x, f in zip(inputs, flags, strict=True) if f]
        back = pullback(trace, outputs, cts, linear)
        kept = [x.node for x, f in zip(inputs, flags, strict=True) if not f]
        trace.inputs = [*kept, *(c.node for c in cts)]
        if wanted is not None:
            triples = zip(back, linear, wanted, strict=True)
            back = [zeros(x.type) if c is None and w else c for c, x, w in triples]
        result = trace.finish([c for c in back if c is not None])
    return verified(result, "transpose"), [c is not None for c in back]
