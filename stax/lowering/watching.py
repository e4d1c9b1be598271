"""Graphs that look at their values while they run, for debug_nans and debug_infs.

Each value has a flag, which the kernel that computes the value computes along; when a result is
flagged, Python is handed all flags and says which operation is to blame (`interpreters.nonfinite`).
The bodies of loops and branches look at what they return likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.config import config
from stax.control.held import HoldsGraphs, with_graphs
from stax.graph import Constant, Graph, Node, Project
from stax.interpreters.interpret import attributed
from stax.interpreters.nonfinite import Place, culprit, is_bad, report
from stax.op import UNORDERED
from stax.operators.broadcast import Broadcast
from stax.operators.callback import HostOp
from stax.operators.elementwise import Elementwise, and_, eq, is_finite, ne, not_, or_
from stax.operators.reduce import reduce_or
from stax.operators.reshape import Reshape, Rev, Transpose
from stax.trace import Proxy, Trace, bind, project, type_of
from stax.types import ArrayType, TupleType, is_inexact
from stax.verify import verified

# A value, or several, and the numbers of the places whose flags stand for it.
_Flagged = tuple[Any, tuple[int, ...]]
_MOVES = Broadcast | Reshape | Rev | Transpose


@dataclass(frozen=True, eq=False)
class Record:
    """What is looked at in a graph; an `inner` one is that of a body or a branch."""

    name: str
    places: tuple[Place, ...]
    results: tuple[int, ...]
    inner: bool


@dataclass(frozen=True, eq=False)
class Watch(HostOp):
    """Raise NonFiniteError for the flags of values, if the first operand says that a result has
    one."""

    record: Record
    name: ClassVar[str] = "watch"
    effect: ClassVar[str | None] = UNORDERED
    guarded: ClassVar[bool] = True

    def abstract_eval(self, *operands: ArrayType) -> TupleType:
        return TupleType(())

    def evaluate(self, *arrays: np.ndarray) -> tuple[()]:
        wanted, *flags = arrays
        if wanted:
            record = self.record
            report(
                culprit(record.places, [bool(f) for f in flags], record.results),
                record.name,
                record.inner,
            )
        return ()


def watched(graph: Graph, inner: bool = False) -> Graph:
    """Return `graph` so that it looks at its values, if a setting asks for it."""
    if not config.watches():
        return graph
    return graph.derived(("watch", inner), lambda: _watched(graph, inner))


def _watched(graph: Graph, inner: bool) -> Graph:
    with Trace(graph.name, "debug_nans") as trace:
        trace.inputs = list(graph.inputs)
        watch = _Watcher(trace)
        args = [watch.placed(x, Proxy(x, trace), ()) for x in graph.inputs]
        outs = watch.walk(graph, args)
        watch.finish(graph.name, outs, inner)
        return verified(trace.finish([y for y, _ in outs]), "debug_nans")


class _Watcher:
    """Records a graph with flags of its values."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.places: list[Place] = []
        self.flags: list[Any] = []

    def walk(self, graph: Graph, args: Sequence[_Flagged]) -> list[_Flagged]:
        """Return the outputs of `graph`; calls are inlined, to the depth that they are nested."""
        values: dict[Node, Any] = dict(zip(graph.inputs, args, strict=True))
        with attributed(self.trace) as attribute:
            for node in graph.nodes:
                attribute(node)
                values[node] = self._value(node, [values[x] for x in node.inputs])
        return [values[x] for x in graph.outputs]

    def _value(self, node: Node, inputs: list[Any]) -> Any:
        op = node.op
        if isinstance(op, Project):
            if isinstance(inputs[0], list):
                return inputs[0][op.position]
            several, sources = inputs[0]
            return self.placed(node, project(several, op.position), sources)
        if isinstance(op, HoldsGraphs) and op.applied is not None:
            return self.walk(op.applied, inputs)
        if isinstance(op, HoldsGraphs):
            op = with_graphs(op, lambda graph: watched(graph, inner=True))
        out = bind(op, *(x for x, _ in inputs))
        sources = tuple(dict.fromkeys(i for _, places in inputs for i in places))
        if isinstance(op, _MOVES) or (isinstance(op, Elementwise) and op.name in ("neg", "abs")):
            return out, sources
        return self.placed(node, out, sources)

    def placed(self, node: Node, value: Any, sources: tuple[int, ...]) -> _Flagged:
        """Give a value a flag, unless it never needs one."""
        if isinstance(type_of(value), TupleType):
            return value, sources
        is_fine = isinstance(node.op, Constant) and not is_bad(np.asarray(node.op.value))
        if not is_inexact(type_of(value).dtype) or is_fine:
            return value, ()
        self.places.append(Place(node, sources))
        self.flags.append(_is_any_bad(value))
        return value, (len(self.places) - 1,)

    def finish(self, name: str, outs: Sequence[_Flagged], inner: bool) -> None:
        """Look at the results."""
        results = tuple(dict.fromkeys(i for _, places in outs for i in places))
        if not results:
            return
        wanted = self.flags[results[0]]
        for i in results[1:]:
            wanted = or_(wanted, self.flags[i])
        bind(Watch(Record(name, tuple(self.places), results, inner)), wanted, *self.flags)


def _is_any_bad(x: Any) -> Any:
    if config.debug_nans and config.debug_infs:
        bad = not_(is_finite(x))
    else:
        bad = ne(x, x) if config.debug_nans else and_(eq(x, x), not_(is_finite(x)))
    return reduce_or(bad) if type_of(x).ndim else bad
