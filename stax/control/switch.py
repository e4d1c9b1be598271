"""`switch`: one of several graphs, chosen by an integer at run time.

Under vmap with a batched index every branch that some lane takes runs for all lanes, inside a
switch that skips it when none does, and its results are selected lane by lane inside the branch, so
that a cotangent of a lane that did not take it is masked there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.held import (
    HoldsGraphs,
    check_arguments,
    given,
    marked,
    rearranged,
    spread,
    unused,
)
from stax.control.lanes import by_lane, taking_part
from stax.control.ragged import closed
from stax.errors import DTypeError, ShapeError
from stax.graph import Graph, Input, Node
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import Linearized, linearize
from stax.interpreters.masks import Masked, are_masked, flat
from stax.interpreters.transpose import Transposed, masks_matter, transpose_masked
from stax.op import Batch, Linear
from stax.operators.elementwise import convert, eq, like, maximum, minimum
from stax.operators.reduce import reduce_or
from stax.trace import Trace, bind, results, zeros
from stax.types import ArrayType, TupleType, int32


@dataclass(frozen=True, eq=False)
class Switch(HoldsGraphs):
    """Apply the branch of a number, which is clamped to those there are, to the other operands."""

    branches: tuple[Graph, ...]
    name: ClassVar[str] = "switch"

    def abstract_eval(self, *types: ArrayType) -> TupleType:
        index, *operands = types
        if index.dtype != int32 or index.shape:
            raise DTypeError(f"switch: the index is an i32[], got {index}.")
        outs = self.branches[0].output_types
        for graph in self.branches:
            check_arguments("switch", graph, operands)
            if [t.strong() for t in graph.output_types] != [t.strong() for t in outs]:
                raise ShapeError(f"switch: branches return {outs} and {graph.output_types}.")
        columns = zip(*(g.output_types for g in self.branches), strict=True)
        return TupleType(_joined(column) for column in columns)

    def evaluate(self, *arrays: Any) -> Any:
        number = min(max(int(arrays[0]), 0), len(self.branches) - 1)
        return tuple(evaluate(self.branches[number], arrays[1:]))

    def pushforward(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = [t is not None for t in tangents[1:]]
        wanted = self._union(lambda graph: jvp(graph, flags)[1])
        branches = tuple(jvp(graph, flags, wanted)[0] for graph in self.branches)
        joint = _switch(branches, [*primals, *given(tangents[1:])])
        split_at = len(wanted)
        return joint[:split_at], spread(joint[split_at:], wanted)

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        flags = [t is not None for t in tangents[1:]]
        wanted = self._union(lambda graph: jvp(graph, flags)[1])
        count = len(wanted)
        parts = []
        for graph in self.branches:
            cut = linearize(graph, flags, wanted)
            parts.append(Linearized(*closed(cut.primal, count, cut.linear), cut.has_tangent))
        slots = _Slots([part.primal.outputs[count:] for part in parts])
        primal = tuple(slots.filled(p.primal, n, count) for n, p in enumerate(parts))
        linear = tuple(slots.received(p.linear, n) for n, p in enumerate(parts))
        known = _switch(primal, primals)
        moved = _switch(linear, [primals[0], *known[count:], *given(tangents[1:])])
        return known[:count], spread(moved, wanted)

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        # A branch that leaves an operand alone takes no lane of it.
        index, *operands = inputs
        flags = [isinstance(x, Linear) for x in operands]
        masked, marks = are_masked(cts), marked(care[1:], flags)
        wanted = self._union(lambda graph: transpose_masked(graph, flags, None, masked).has_ct)

        def back(graph: Graph, wanted_masks: Sequence[bool] | None = None) -> Transposed:
            return transpose_masked(graph, flags, wanted, masked, marks, wanted_masks)

        wanted_masks = self._union(lambda graph: back(graph).has_mask)
        parts = [back(graph, wanted_masks) for graph in self.branches]
        known = marked(operands, [not f for f in flags])
        branches = tuple(part.graph for part in parts)
        found = _switch(branches, [index, *known, *flat(cts)])
        return [None, *spread(parts[0].spread(found), flags)]

    def masks_matter(self, flags: Sequence[bool], care: Sequence[bool]) -> Sequence[bool]:
        return self._union(lambda graph: masks_matter(graph, flags[1:], care[1:]))

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        index, *operands = inputs
        if flags[0]:
            return self._batch_lanes(batch_, flags[1:], index, operands)
        wanted = self._union(lambda graph: batch(graph, batch_, flags[1:])[1])
        branches = tuple(batch(graph, batch_, flags[1:], wanted)[0] for graph in self.branches)
        return _switch(branches, inputs), wanted

    def _batch_lanes(
        self, axis: Batch, flags: Sequence[bool], index: Any, operands: Sequence[Any]
    ) -> Any:
        wanted = [True] * len(self.branches[0].outputs)
        last = like(index, len(self.branches) - 1)
        index = maximum(minimum(index, last), like(index, 0))
        outs = [zeros(t.with_leading(axis.size)) for t in self.branches[0].output_types]
        for number, graph in enumerate(self.branches):
            lanes = eq(index, like(index, number))
            taken, _ = batch(graph, axis, flags, wanted)
            runs = convert(reduce_or(lanes, (0,)), int32)
            both = _merging(taken, lanes.type, flags)
            outs = list(_switch(both, [runs, lanes, *outs, *operands]))
        return tuple(outs), wanted

    def _union(self, flags_of: Callable[[Graph], Sequence[bool]]) -> list[bool]:
        """Return which results any branch has."""
        return [any(column) for column in zip(*map(flags_of, self.branches), strict=True)]


def _joined(types: Sequence[ArrayType]) -> ArrayType:
    """Return the type of a result of several branches: weak if it is so in all of them."""
    return types[0] if all(t.weak for t in types) else types[0].strong()


def _merging(graph: Graph, lanes_type: ArrayType, flags: Sequence[bool]) -> tuple[Graph, Graph]:
    """Return branches that keep old results, and that run `graph` and take its lanes' results.

    Both are given the lanes, the old results, and the arguments of `graph`, of which those that
    are flagged have lanes.
    """
    count = len(graph.outputs)
    with Trace(graph.name, "vmap") as trace:
        lanes = trace.input(lanes_type, "lanes")
        old = [trace.input(t.strong(), "old") for t in graph.output_types]
        arguments = [trace.input(x.type, x.label) for x in graph.inputs]
        new = inline(graph, taking_part(lanes, graph, arguments, flags))
        chosen = [by_lane(lanes, y, x) for x, y in zip(old, new, strict=True)]
        run = trace.finish(chosen)
    skip = Graph(
        f"{graph.name}_skipped", fresh := [*map(unused, run.inputs)], [], fresh[1 : 1 + count]
    )
    return skip, run


class _Slots:
    """Where the residuals of branches are handed on: those of one type share a slot."""

    def __init__(self, residuals: Sequence[Sequence[Node]]) -> None:
        self.types: list[ArrayType] = []
        self.places: list[list[int]] = []  # for each branch, the slot of each residual
        for nodes in residuals:
            free = list(range(len(self.types)))
            places = []
            for node in nodes:
                kind = node.type
                at = next((i for i in free if self.types[i] is kind), None)
                if at is None:
                    at = len(self.types)
                    self.types.append(kind)
                else:
                    free.remove(at)
                places.append(at)
            self.places.append(places)

    def filled(self, graph: Graph, number: int, count: int) -> Graph:
        """Return a primal branch that returns `count` results and then every slot."""
        with Trace(graph.name, "linearize") as trace:
            outs = inline(graph, [trace.input(x.type, x.label) for x in graph.inputs])
            by_slot = dict(zip(self.places[number], outs[count:], strict=True))
            slots = [by_slot[i] if i in by_slot else zeros(t) for i, t in enumerate(self.types)]
            return trace.finish([*outs[:count], *slots])

    def received(self, graph: Graph, number: int) -> Graph:
        """Return a linear branch that takes every slot and then its own tangents."""
        places = self.places[number]
        mine = dict(zip(places, graph.inputs, strict=False))
        slots = [mine.get(i) or _blank(t) for i, t in enumerate(self.types)]
        return rearranged(graph, [*slots, *graph.inputs[len(places) :]], graph.outputs)


def _blank(type_: ArrayType) -> Node:
    return Node(Input("unused"), (), type_)


def _switch(branches: tuple[Graph, ...], operands: Sequence[Any]) -> tuple[Any, ...]:
    return results(bind(Switch(branches), *operands))


def switch(index: Any, branches: Sequence[Graph], *operands: Any) -> tuple[Any, ...]:
    """Apply the branch numbered `index` (an i32[], clamped) to `operands` as one node."""
    return _switch(tuple(branches), (index, *operands))
