"""What ops that hold graphs share: effects, checks of types, graphs with other parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from stax.errors import ShapeError, UnsupportedError
from stax.graph import Graph, Input, Node, Project, held_graphs, multiple
from stax.interpreters.interpret import interpret
from stax.interpreters.masks import Masked
from stax.op import ORDERED, Batch, Op
from stax.operators.broadcast import expand_leading
from stax.trace import Trace, bind, project, results, zeros
from stax.types import ArrayType


@dataclass(frozen=True, eq=False)
class HoldsGraphs(Op):
    """Base of ops with graphs among their parameters."""

    interned: ClassVar[bool] = False
    holds_graph: ClassVar[bool] = True
    ends: ClassVar[bool] = True  # whatever the values are

    @property
    def effect(self) -> str | None:  # type: ignore[override]
        effects = {graph.effect for graph in held_graphs(self)}
        return ORDERED if ORDERED in effects else next((e for e in effects if e), None)

    @property
    def applied(self) -> Graph | None:
        """The graph that the op is an application of, if that is all it does."""
        return None

    @property
    def by_lane(self) -> bool:  # type: ignore[override]
        return any(node.op.by_lane for graph in held_graphs(self) for node in graph.nodes)

    @property
    def linear_after(self) -> int | None:
        """After how many operands those come in which the op is linear; None: its graphs say."""
        return None

    def transpose(self, ct: Any, *inputs: Any) -> Sequence[Any]:
        masked = [None if c is None else Masked(c, None) for c in ct]
        found = self.pull(masked, [False] * len(inputs), *inputs)
        return [None if c is None else c.value for c in found]

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        """Return the cotangents of the inputs, with masks where `care` says that those matter.

        An op has this rule or `transpose`, from which the other follows; without masks here.
        """
        found = self.transpose([None if c is None else c.value for c in cts], *inputs)
        return [None if c is None else Masked(c, None) for c in found]

    def masks_matter(self, flags: Sequence[bool], care: Sequence[bool]) -> Sequence[bool]:
        """Say for which results masks of cotangents matter to `pull`, or nothing if for none.

        The op is linear in what is flagged; `care` says for which operands masks matter.
        """
        return []

    def names_axis(self, axis_name: Any) -> bool:
        if axis_name is None:
            return False
        nodes = (node for graph in held_graphs(self) for node in graph.nodes)
        return any(node.op.names_axis(axis_name) for node in nodes)


def check_arguments(name: str, graph: Graph, types: Sequence[ArrayType]) -> None:
    """Raise ShapeError unless `graph` can be applied to arguments of `types`."""
    if len(types) != len(graph.inputs):
        raise ShapeError(
            f"{name}: {graph.name} takes {len(graph.inputs)} arguments, got {len(types)}."
        )
    for given, wanted in zip(types, graph.input_types, strict=True):
        if given.strong() is not wanted.strong():
            raise ShapeError(f"{name}: {graph.name} takes {wanted}, got {given}.")


def with_graphs(op: HoldsGraphs, change: Callable[[Graph], Graph]) -> HoldsGraphs:
    """Return `op` with each of its graphs replaced by `change` of it."""

    def changed(value: Any) -> Any:
        if type(value) is tuple:
            return tuple(map(changed, value))
        return change(value) if isinstance(value, Graph) else value

    return type(op)(*(changed(getattr(op, f.name)) for f in fields(op)))


def rearranged(graph: Graph, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
    """Return `graph` with its inputs in another order, or more of them, and other outputs."""
    return Graph(graph.name, inputs, graph.nodes, outputs)


def without(graph: Graph, dropped: Callable[[Node], bool]) -> Graph:
    """Return `graph`, and what its ops hold, without the effects that are to be `dropped`.

    Those have no results.
    """
    if graph.effect is None:
        return graph

    def rule(node: Node, inputs: list[Any]) -> Any:
        if isinstance(node.op, Project):
            return project(inputs[0], node.op.position)
        if node.op.effect is None:
            return bind(node.op, *inputs)
        if isinstance(node.op, HoldsGraphs):
            return results(bind(with_graphs(node.op, lambda g: without(g, dropped)), *inputs))
        return () if dropped(node) else bind(node.op, *inputs)

    with Trace(graph.name, "checkpoint") as trace:
        args = [trace.input(x.type, x.label, source=x.source) for x in graph.inputs]
        return trace.finish(interpret(graph, args, rule))


def repeated(graph: Graph) -> Graph:
    """Return `graph` as it is computed a second time: without effects, which happened already.

    Raises UnsupportedError if one of them has a result.
    """
    found = without(graph, lambda node: not has_results(node))
    if found.effect is not None:
        raise UnsupportedError(
            f"{graph.name}: effects with results are not repeated, and reverse mode computes it "
            "again.",
            advice="Call io_callback outside of it, and pass on what it returns.",
        )
    return found


def has_results(node: Node) -> bool:
    """Say whether a node has a result, and is not there for its effect alone."""
    return not multiple(node) or bool(node.type.items)


def unused(node: Node) -> Node:
    """Return an input of the type of `node` that nothing reads."""
    return Node(Input(node.label), (), node.type, node.source)


def blank(type_: ArrayType) -> Node:
    """Return an input of `type_` that nothing reads."""
    return Node(Input("unused"), (), type_)


def sections(values: Sequence[Any], *lengths: int) -> list[list[Any]]:
    """Return `values` cut into pieces of these lengths, and what is left."""
    found, start = [], 0
    for n in lengths:
        found.append(list(values[start : start + n]))
        start += n
    return [*found, list(values[start:])]


def given(values: Sequence[Any]) -> list[Any]:
    """Return the values that are there."""
    return [x for x in values if x is not None]


def marked(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Return the values that are flagged."""
    return [x for x, f in zip(values, flags, strict=True) if f]


def spread(values: Sequence[Any], flags: Sequence[bool]) -> list[Any]:
    """Return the next of `values` in each place that is flagged, None elsewhere."""
    found: Iterator[Any] = iter(values)
    return [next(found) if f else None for f in flags]


def instantiated(
    primals: Sequence[Any], tangents: Sequence[Any], flags: Sequence[bool]
) -> list[Any]:
    """Return the tangents that are flagged, zeros in place of those that are None."""
    return [
        zeros(x.type.tangent()) if t is None else t
        for x, t, f in zip(primals, tangents, flags, strict=True)
        if f
    ]


def leading(
    axis: Batch, values: Sequence[Any], flags: Sequence[bool], wanted: Sequence[bool]
) -> list[Any]:
    """Return the values, those `wanted` that are not flagged repeated along a batch axis."""
    return [
        expand_leading(x, axis.size) if w and not f else x
        for x, f, w in zip(values, flags, wanted, strict=True)
    ]


def fixed_point(
    flags: Sequence[bool], first: int, count: int, outcome: Callable[[list[bool]], Sequence[bool]]
) -> list[bool]:
    """Return `flags` with those of the carry, `count` from `first` on, grown until they are stable.

    `outcome` gives the flags of the carry after a step, for the flags of all arguments.
    """
    now = list(flags)
    while True:
        after = outcome(now)[:count]
        carry = [a or b for a, b in zip(now[first : first + count], after, strict=True)]
        if carry == now[first : first + count]:
            return now
        now[first : first + count] = carry
