"""Less memory at the peak of a graph: values are computed again after it, in place of living on.

The graph is cut at the point in program order at which most bytes live; in a gradient that is where
the backward part begins.  A minimum cut (`remat`) chooses which of the values that are read behind
it are saved.  Copies of the others are computed when they are first read: each reads what is saved
as a value that is not there before another value of that time (`Late`).

In a long chain this alone gains nothing, for a copy of the whole chain is as large as the chain.
With `segments`, what leads from one part of the chain to the next is saved or nothing of it.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from stax.graph import Constant, Graph, Node, Project, multiple
from stax.interpreters.interpret import attributed
from stax.interpreters.remat import (
    CONSTANTS,
    MOVES,
    NAMES,
    Cut,
    Prices,
    There,
    minimum_cut,
    nbytes,
    needs,
)
from stax.operators.bits import Late
from stax.trace import Proxy, Trace
from stax.verify import verified

SOON = 2  # nodes


def recomputing(graph: Graph, prices: Prices, segments: int = 1) -> Graph:
    """Return `graph` with values that are read after its peak computed again; exact."""
    point, _ = _peak(graph)
    early, late = _parts(graph, point)
    wanted = _read_later(early, late)
    before = set(early)
    free = [*graph.inputs, *(x for x in graph.outputs if x in before), *_done_soon(late)]
    there = dict.fromkeys(free, There("", 0))
    fixed = _crossing(early, wanted, segments)
    head = Graph(graph.name, graph.inputs, early, ())
    cut = minimum_cut(head, wanted, there, prices, fixed=fixed)
    return _rewritten(graph, early, late, cut) if cut.recomputed else graph


def peak_bytes(graph: Graph) -> int:
    """Return how many bytes live at once in program order, arguments and results not counted."""
    return _peak(graph)[1]


def _lying(node: Node) -> int:
    """Return the bytes that a node takes in memory, none where it is computed when it is read."""
    if multiple(node) or (isinstance(node.op, CONSTANTS | MOVES | NAMES) and not _is_result(node)):
        return 0
    return nbytes(node.type)


def _is_result(node: Node) -> bool:
    return isinstance(node.op, Project)


def _peak(graph: Graph) -> tuple[int, int]:
    """Return the position in program order after which most bytes live, and how many."""
    last: dict[Node, int] = {}
    for i, node in enumerate(graph.nodes):
        for x in node.inputs:
            while isinstance(x.op, MOVES | NAMES) and x.inputs and not _is_result(x):
                last[x] = i
                x = x.inputs[0]
            last[x] = i
    kept, dying = set(graph.outputs), dict[int, int]()
    live, most, found = 0, 0, 0
    for i, node in enumerate(graph.nodes):
        size = 0 if node in kept else _lying(node)
        live += size
        dying[last.get(node, i)] = dying.get(last.get(node, i), 0) + size
        if live > most:
            most, found = live, i
        live -= dying.pop(i, 0)
    return found, most


def _parts(graph: Graph, point: int) -> tuple[list[Node], list[Node]]:
    """Return the nodes up to `point` and the others; results go with the node they are of."""
    early, later = list(graph.nodes[: point + 1]), []
    before = set(early)
    for node in graph.nodes[point + 1 :]:
        if isinstance(node.op, Project | Constant) and before.issuperset(node.inputs):
            early.append(node)
            before.add(node)
        else:
            later.append(node)
    return early, later


def _read_later(early: Sequence[Node], late: Sequence[Node]) -> list[Node]:
    read = {x for node in late for x in node.inputs}
    return [x for x in early if x in read and not isinstance(x.op, CONSTANTS) and not multiple(x)]


def _done_soon(late: Sequence[Node]) -> set[Node]:
    """Return what the first of these nodes read and the others do not: it dies at once anyway."""
    soon = {x for node in late[:SOON] for x in node.inputs}
    return soon.difference(x for node in late[SOON:] for x in node.inputs)


def _crossing(early: Sequence[Node], wanted: Sequence[Node], segments: int) -> frozenset[Node]:
    """Return what is read in another segment than it is computed in; segments keep equally much."""
    if segments < 2:
        return frozenset()
    keep = set(wanted)
    total = list(itertools.accumulate(_lying(x) if x in keep else 0 for x in early))
    bounds = [total[-1] * k // segments for k in range(1, segments)]
    number = {x: bisect.bisect_left(bounds, t) for x, t in zip(early, total, strict=True)}
    return frozenset(x for n in early for x in n.inputs if number.get(x, number[n]) != number[n])


def _rewritten(graph: Graph, early: Sequence[Node], late: Sequence[Node], cut: Cut) -> Graph:
    again = set(cut.recomputed)
    with Trace(graph.name, "remat") as trace:
        trace.inputs = list(graph.inputs)
        new: dict[Node, Node] = {x: x for x in graph.inputs}
        with attributed(trace) as attribute:
            for node in early:
                attribute(node)
                new[node] = _same(trace, node, new)
            copies = _Copies(trace, new, again)
            for node in late:
                time = copies.time_of(node)
                inputs = tuple([copies.of(x, time) if x in again else new[x] for x in node.inputs])
                attribute(node)
                new[node] = trace.apply(node.op, inputs)
                copies.passed(new[node])
            outputs = [new[x] for x in graph.outputs]
            return verified(trace.finish([Proxy(x, trace) for x in outputs]), "remat")


def _same(trace: Trace, node: Node, new: dict[Node, Node]) -> Node:
    inputs = tuple([new[x] for x in node.inputs])
    return trace.builder.adopt(node) if inputs == node.inputs else trace.apply(node.op, inputs)


class _Copies:
    """Computes values again when they are first asked for."""

    def __init__(self, trace: Trace, new: dict[Node, Node], again: set[Node]) -> None:
        self.trace = trace
        self.new = new
        self.again = again
        self.made: dict[Node, Node] = {}
        self.behind: set[Node] = set()
        self.now = next(x for x in reversed(list(new.values())) if _tells_time(x))

    def passed(self, node: Node) -> None:
        """Say that `node` is computed by now."""
        if _tells_time(node):
            self.now = node
            self.behind.add(node)

    def time_of(self, node: Node) -> Node:
        """Return a value that is computed shortly before `node` and without copies of its own."""
        operands = [self.new[x] for x in node.inputs if x in self.new and x not in self.again]
        recent = [x for x in operands if x in self.behind]
        return recent[-1] if recent else self.now

    def of(self, node: Node, time: Node) -> Node:
        """Return `node` computed again, not before `time` if it is not there yet."""
        pending = [node]
        while pending:
            x = pending[-1]
            missing = [y for y in needs(x) if y in self.again and y not in self.made]
            if x not in self.made and missing:
                pending += missing
                continue
            if x not in self.made:
                self.trace.source, self.trace.scope = x.source, x.scope
                inputs = tuple([self._given(y, time) for y in needs(x)])
                is_name = isinstance(x.op, Late)
                self.made[x] = inputs[0] if is_name else self.trace.apply(x.op, inputs)
            pending.pop()
        return self.made[node]

    def _given(self, x: Node, time: Node) -> Node:
        if x in self.again:
            return self.made[x]
        if isinstance(x.op, CONSTANTS) or multiple(x):
            return self.new[x]
        return self.trace.apply(Late(), (self.new[x], time))


def _tells_time(node: Node) -> bool:
    return bool(node.inputs) and not multiple(node) and not isinstance(node.op, Late)
