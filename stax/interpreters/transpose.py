"""Reverse mode: pulling cotangents back through the linear part of a trace.

`pullback` walks the nodes that depend on given tangent inputs from the last to the first and hands
each to its transpose rule; what does not depend on a tangent is an ordinary value there.

The rule of an op: `transpose(ct, *inputs) -> cotangents`, inputs the op is linear in are `Linear`.

A masked cotangent absorbs: transposing a select marks the lanes that were not taken, and a linear
op pulled back through them is evaluated under that mask (`masks.py`), so `where(x < 1, x, sqrt(x))`
has the right gradient at 0, where an infinite derivative is multiplied by a cotangent of zero.
Ops that hold graphs hand masks on: their rule is `pull(cts, care, *inputs)`, of masked cotangents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from stax.graph import Graph, Node, Project, live
from stax.interpreters.interpret import attributed, inline, interpret
from stax.interpreters.masks import Masked, add_masked, apply_mask, matters, pull_mask
from stax.op import Linear
from stax.operators.bits import Late
from stax.trace import Proxy, Trace, bind, full, project, zeros
from stax.types import ArrayType, TupleType, bool_
from stax.verify import verified


def pullback(
    trace: Trace,
    outputs: Sequence[Proxy | None],
    cts: Sequence[Any | None],
    inputs: Sequence[Proxy],
) -> list[Any | None]:
    """Return the cotangents of `inputs`, given those of `outputs`, all of them in `trace`."""
    masked = [None if ct is None else Masked(ct, None) for ct in cts]
    found = pull(trace, outputs, masked, inputs, [False] * len(inputs))
    return [None if ct is None else ct.value for ct in found]


def pull(
    trace: Trace,
    outputs: Sequence[Proxy | None],
    cts: Sequence[Masked | None],
    inputs: Sequence[Proxy],
    care: Sequence[bool],
) -> list[Masked | None]:
    """Return the cotangents of `inputs`, with masks where `care` says that those matter."""
    linear = dependents(trace.builder.nodes, [x.node for x in inputs])
    nodes = [n for n in trace.builder.nodes if n in linear]
    matter = _matter(nodes, linear, {x.node: c for x, c in zip(inputs, care, strict=True)})
    found: dict[Node, Any] = {}
    for y, ct in zip(outputs, cts, strict=True):
        if y is not None and ct is not None and trace.node(y) in linear:
            _accumulate(found, trace.node(y), ct, matter)
    with attributed(trace) as attribute:
        for node in reversed(nodes):
            ct = found.pop(node, None)
            if ct is not None:
                attribute(node)
                _transpose_node(trace, node, ct, matter, found)
    return [found.get(x.node) for x in inputs]


Matter = dict[Node, Any]  # whether masks matter, for each result of a node that has several


def _matter(nodes: Sequence[Node], linear: set[Node], known: Matter) -> Matter:
    """Return for which linear nodes the mask of a cotangent changes a cotangent."""
    found = dict(known)
    for node in nodes:
        if node in found:
            continue
        flags = [x in linear for x in node.inputs]
        before: list[Any] = [
            found[x] if f else False for x, f in zip(node.inputs, flags, strict=True)
        ]
        if isinstance(node.op, Project):
            found[node] = before[0][node.op.position]
        elif not isinstance(node.type, TupleType):
            found[node] = matters(node.op, node.inputs, flags, any(before))
        else:
            held = node.op.holds_graph and node.op.masks_matter(flags, before)  # type: ignore[attr-defined]
            found[node] = held or [False] * len(node.type.items)
    return found


def masks_matter(graph: Graph, flags: Sequence[bool], care: Sequence[bool]) -> list[bool]:
    """Return for which outputs of a graph, linear in its flagged inputs, masks matter.

    `care` says for which inputs they do.
    """

    def make() -> list[bool]:
        roots = [x for x, f in zip(graph.inputs, flags, strict=True) if f]
        linear = dependents(graph.nodes, roots)
        known = {x: c for x, c in zip(graph.inputs, care, strict=True) if x in linear}
        matter = _matter([n for n in graph.nodes if n in linear], linear, known)
        return [matter.get(x, False) for x in graph.outputs]

    return list(graph.derived(("matter", tuple(flags), tuple(care)), make))


def dependents(nodes: Sequence[Node], roots: Sequence[Node]) -> set[Node]:
    """Return `roots` and the nodes that depend on one of them."""
    result = set(roots)
    for node in nodes:
        if not result.isdisjoint(node.inputs):
            result.add(node)
    return result


def _transpose_node(
    trace: Trace, node: Node, ct: Any, matter: Matter, found: dict[Node, Any]
) -> None:
    if isinstance(node.op, Project):
        source = node.inputs[0]
        items = found.setdefault(source, [None] * len(source.type.items))
        items[node.op.position] = add_masked(items[node.op.position], ct)
        return
    operands = [Linear(x.type) if x in matter else Proxy(x, trace) for x in node.inputs]
    if node.op.holds_graph:
        care = [matter.get(x, False) for x in node.inputs]
        cts = node.op.pull(ct, care, *operands)  # type: ignore[attr-defined]
    elif isinstance(node.type, TupleType):
        values = node.op.transpose([None if c is None else c.value for c in ct], *operands)  # type: ignore[arg-type]
        cts = [None if value is None else Masked(value, None) for value in values]
    else:
        values = node.op.transpose(ct.value, *operands)
        masks = pull_mask(node.op, ct, operands)
        cts = [
            None if value is None else apply_mask(node.op, operands, value, mask)
            for value, mask in zip(values, masks, strict=True)
        ]
    for x, pulled in zip(node.inputs, cts, strict=True):
        if pulled is not None and x in matter:
            _accumulate(found, x, pulled, matter)


def _accumulate(found: dict[Node, Any], node: Node, ct: Masked, matter: Matter) -> None:
    found[node] = add_masked(found.get(node), ct if matter[node] else Masked(ct.value, None))


class Transposed(NamedTuple):
    """The transpose of a graph, which of its flagged inputs have a cotangent, and which of these
    have a mask."""

    graph: Graph
    has_ct: list[bool]
    has_mask: list[bool]

    def spread(self, found: Sequence[Any]) -> list[Masked | None]:
        """Return what the graph returned as cotangents of the flagged inputs."""
        values, masks = iter(found[: sum(self.has_ct)]), iter(found[sum(self.has_ct) :])
        return [
            Masked(next(values), next(masks) if m else None) if c else None
            for c, m in zip(self.has_ct, self.has_mask, strict=True)
        ]


def transpose(
    graph: Graph, flags: Sequence[bool], wanted: Sequence[bool] | None = None
) -> tuple[Graph, list[bool]]:
    """Return the transpose of a graph that is linear in its flagged inputs.

    Its inputs are the inputs that are not flagged and then a cotangent for each output; its outputs
    are the cotangents of the flagged inputs that have one, which the second result marks.  Flagged
    inputs that are `wanted` have one in any case: zeros.
    """
    found = transpose_masked(graph, flags, wanted)
    return found.graph, list(found.has_ct)


def transpose_masked(
    graph: Graph,
    flags: Sequence[bool],
    wanted: Sequence[bool] | None = None,
    masked: Sequence[bool | None] | None = None,
    care: Sequence[bool] | None = None,
    wanted_masks: Sequence[bool] | None = None,
) -> Transposed:
    """Return the transpose of a graph, see `transpose`, that also hands on masks of cotangents.

    `masked` says for each output whether its cotangent has a mask, or None if there is none, and
    the graph takes the cotangents and then the masks that there are.  After the cotangents that it
    returns come the masks of those for which `care` says that masks matter, as far as they have
    one, or of those of `wanted_masks` in any case.
    """
    given = [None if x is None else tuple(x) for x in (flags, wanted, masked, care, wanted_masks)]

    def make() -> Transposed:
        none, count = [False] * sum(flags), len(graph.outputs)
        return _transpose(
            graph,
            flags,
            wanted or none,
            masked or [False] * count,
            care or none,
            wanted_masks or none,
        )

    result: Transposed = graph.derived(("transpose", *given), make)
    return result


def _transpose(
    graph: Graph,
    flags: Sequence[bool],
    wanted: Sequence[bool],
    masked: Sequence[bool | None],
    care: Sequence[bool],
    wanted_masks: Sequence[bool],
) -> Transposed:
    graph = _without_waits(graph, flags)
    with Trace(graph.name, "transpose") as trace:
        inputs = [trace.input(x.type, x.label) for x in graph.inputs]
        outputs = inline(graph, inputs)
        cts = [
            None if f is None else trace.input(x.type, f"ct{i}")
            for i, (x, f) in enumerate(zip(graph.outputs, masked, strict=True))
        ]
        masks = [
            trace.input(x.type.with_dtype(bool_), f"mask{i}") if f else None
            for i, (x, f) in enumerate(zip(graph.outputs, masked, strict=True))
        ]
        linear = [x for x, f in zip(inputs, flags, strict=True) if f]
        pairs = zip(cts, masks, strict=True)
        given = [None if ct is None else Masked(ct, mask) for ct, mask in pairs]
        back = pull(trace, outputs, given, linear, care)
        kept = [x.node for x, f in zip(inputs, flags, strict=True) if not f]
        trace.inputs = [*kept, *(x.node for x in (*cts, *masks) if x is not None)]
        rows = zip(back, linear, wanted, care, wanted_masks, strict=True)
        ends = [_instantiated(ct, x.type, w, c or m, m) for ct, x, w, c, m in rows]
        values = [ct.value for ct in ends if ct is not None]
        found = [ct.mask for ct in ends if ct is not None and ct.mask is not None]
        result = _without_effects_of(trace, [x.node for x in linear], [*values, *found])
    return Transposed(
        verified(result, "transpose"),
        [ct is not None for ct in ends],
        [ct is not None and ct.mask is not None for ct in ends],
    )


def _without_effects_of(trace: Trace, inputs: Sequence[Node], outputs: Sequence[Any]) -> Graph:
    """Return the graph of a trace without what depends on `inputs`, of which a transpose has none.

    Nothing reads it any more, and what is there for an effect does not happen.
    """
    nodes = trace.builder.nodes
    unread = dependents(nodes, inputs)
    if not any(n in unread and n.op.effect is not None for n in nodes):
        return trace.finish(outputs)
    ends = list(map(trace.node, outputs))
    kept = live([n for n in nodes if n not in unread], ends)
    whole = Graph(trace.function, trace.inputs, kept, ends)
    with Trace(trace.function, "transpose") as renewed:  # ordered effects are chained anew
        return renewed.finish(inline(whole, [renewed.input(x.type, x.label) for x in whole.inputs]))


def _without_waits(graph: Graph, flags: Sequence[bool]) -> Graph:
    """Return `graph` in which no value waits for one that is linear in the inputs flagged.

    That is the case in what computes cotangents; its transpose takes those and has others.
    """
    if not any(isinstance(n.op, Late) for n in graph.nodes):
        return graph
    linear = {x for x, f in zip(graph.inputs, flags, strict=True) if f}
    for node in graph.nodes:
        read = node.inputs[:1] if isinstance(node.op, Late) else node.inputs
        if not linear.isdisjoint(read):
            linear.add(node)

    def rule(node: Node, inputs: list[Any]) -> Any:
        if isinstance(node.op, Late) and node not in linear and node.inputs[1] in linear:
            return inputs[0]
        if isinstance(node.op, Project):
            return project(inputs[0], node.op.position)
        return bind(node.op, *inputs)

    with Trace(graph.name, "transpose") as trace:
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        return trace.finish(interpret(graph, args, rule))


def _instantiated(
    ct: Masked | None, type_: ArrayType, wanted: bool, care: bool, wanted_mask: bool
) -> Masked | None:
    """Return the cotangent of an input, zeros of which no lane is live where it is wanted."""
    if ct is None:
        dead = full(type_.shape, False, bool_) if care else None
        return Masked(zeros(type_), dead) if wanted else None
    if ct.mask is None and wanted_mask:
        return Masked(ct.value, full(type_.shape, True, bool_))
    return ct
