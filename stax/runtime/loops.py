"""Loops and draws outside of jit: each runs as a compiled program, found by what it computes.

An eager call traces the body of its loop anew, so programs are kept by the content of the loop, in
which calls count as the graphs that they apply: two traces of one function have one program.
Compiling takes as long as some thousand steps of the evaluator, so what is short is left to that:
a loop that surely takes little is evaluated, and so are the first steps of one whose number of
steps is not known.  Which steps those are depends on the loop alone, never on what ran before, so a
result repeats bit for bit.  Random bits have the same bits either way.
"""

from __future__ import annotations

import math
import warnings
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.array import value_of
from stax.config import config
from stax.control import HoldsGraphs, Scan, Switch, While
from stax.errors import FallbackWarning, LoweringError
from stax.extent import Extent, symbol, symbols_in
from stax.graph import Graph, Node, held_graphs, multiple
from stax.interpreters.lengths import matched, op_with_lengths, replaced_in
from stax.op import Op, typed
from stax.operators.random import Draw
from stax.runtime.compiler import CompiledProgram, compile_graph
from stax.runtime.forking import Lock
from stax.trace import Trace, bind, links, results
from stax.types import ArrayType

# Programs that are kept at once; those that ran last stay.
MOST_PROGRAMS = 512
# What is evaluated: so many applications of an op, each counted once more for so many elements.
EVALUATED = 256
ELEMENTS = 4096
DRAWN = 16  # applications that a draw counts for; NumPy takes a hundred, but compiling takes long


class _Program:
    """The program of a loop once there is one; `failed` says that it cannot be compiled."""

    __slots__ = ("compiled", "failed", "lock")

    def __init__(self) -> None:
        self.compiled: CompiledProgram | None = None
        self.failed = False
        self.lock = Lock()


class _Programs:
    """The programs that there are, by content, types and configuration."""

    def __init__(self) -> None:
        self.found: OrderedDict[Any, _Program] = OrderedDict()
        self.lock = Lock()

    def get(self, key: Any) -> _Program:
        """Return the entry of a key, which may be new."""
        with self.lock:
            entry = self.found.get(key)
            if entry is None:
                entry = self.found[key] = _Program()
                if len(self.found) > MOST_PROGRAMS:
                    self.found.popitem(last=False)
            else:
                self.found.move_to_end(key)
            return entry


_programs = _Programs()


def clear() -> None:
    """Forget the programs of all loops."""
    with _programs.lock:
        _programs.found.clear()


def run_loop(op: Any, types: Sequence[ArrayType], arrays: Sequence[Any]) -> Any:
    """Return the results of a loop for arrays of `types`, from a program if it may take long."""
    if isinstance(op, Draw):
        return _draw(op, types, arrays)
    known = _with_lengths(op, types, arrays)
    if config.disable_jit or _cost_for(op, arrays) <= EVALUATED:
        return known.evaluate(*arrays)
    if type(op) is While:
        return _run_while(op, types, arrays)
    return _run_program(op, types, arrays)


def _draw(op: Draw, types: Sequence[ArrayType], arrays: Sequence[Any]) -> Any:
    cost = DRAWN * (math.prod(op.shape) * arrays[0].size) / ELEMENTS
    program = None if config.disable_jit or cost <= EVALUATED else _compiled(op, types)
    return op.evaluate(*arrays) if program is None else value_of(program.run(arrays)[0])


def _run_program(op: HoldsGraphs, types: Sequence[ArrayType], arrays: Sequence[Any]) -> Any:
    program = _compiled(op, types)
    if program is None:
        return _with_lengths(op, types, arrays).evaluate(*arrays)
    return tuple(map(value_of, program.run(arrays)))


def _run_while(op: While, types: Sequence[ArrayType], arrays: Sequence[Any]) -> Any:
    """Evaluate the first steps of a while loop; if it has not ended then, a program goes on."""
    most = int(EVALUATED // max(1, graph_cost(op.cond) + graph_cost(op.body)))
    known: Any = _with_lengths(op, types, arrays)
    if op.limit is not None and op.limit.steps <= most:
        return known.evaluate(*arrays)
    carry, kept, ended = known.some_steps(arrays, most)
    if ended:
        return (*carry, *op.stacked(kept))
    rest, consts = op.after(most), arrays[: op.cond_consts + op.body_consts]
    found = _run_program(rest, types, [*consts, *carry])
    first, later = op.stacked(kept), found[op.carry :]
    stacks = map(np.concatenate, zip(first, later, strict=True)) if kept else later
    return (*found[: op.carry], *stacks)


def _compiled(op: HoldsGraphs | Draw, types: Sequence[ArrayType]) -> CompiledProgram | None:
    if isinstance(op, HoldsGraphs):
        op, types = _with_plain_symbols(op, types)
    key = content(op), tuple([t.strong() for t in types]), config.key()
    entry = _programs.get(key)
    if entry.compiled is None and not entry.failed:
        with entry.lock:
            if entry.compiled is None and not entry.failed:
                _compile(entry, op, types)
    return entry.compiled


def _compile(entry: _Program, op: Op, types: Sequence[ArrayType]) -> None:
    with Trace(op.name, "a loop outside of jit") as trace:
        args = [trace.input(t.strong()) for t in types]
        graph = trace.finish(results(bind(op, *args)))
    try:
        entry.compiled = compile_graph(graph)
    except LoweringError as error:
        if config.strict:
            raise
        entry.failed = True
        warnings.warn(
            f"{op.name} outside of jit runs on the reference evaluator: {error}",
            FallbackWarning,
            stacklevel=5,
        )


# --- what is evaluated ---


def _with_lengths(
    op: HoldsGraphs, types: Sequence[ArrayType], arrays: Sequence[Any]
) -> HoldsGraphs:
    """Return a loop over symbolic lengths as one over those of `arrays`."""
    given = [t.with_shape(np.shape(x)) for t, x in zip(types, arrays, strict=True)]
    values = matched(types, given)
    return op_with_lengths(op, values) if values else op  # type: ignore[return-value]


def _cost_for(op: HoldsGraphs, arrays: Sequence[Any]) -> float:
    """Return how much is applied in all steps of a loop over `arrays`."""
    if isinstance(op, Scan) and not isinstance(op.length, int):
        return len(arrays[op.consts + op.carry]) * graph_cost(op.body)
    return steps_cost(op)


def steps_cost(op: Op) -> float:
    """Return how much is applied in all steps of what an op holds; infinity where that is open."""
    match op:
        case While():
            return math.inf
        case Scan():
            n = op.length
            return n and n * graph_cost(op.body) if isinstance(n, int) else math.inf
        case Switch():
            return max(map(graph_cost, op.branches))
        case HoldsGraphs():
            return graph_cost(op.applied) if op.applied else math.inf
    return 0


def graph_cost(graph: Graph) -> float:
    """Return how much is applied in a graph, loops counted with their steps."""
    found: float = graph.derived("cost", lambda: sum(map(_cost, graph.nodes)))
    return found


def _cost(node: Node) -> float:
    return (steps_cost(node.op) if node.op.holds_graph else 1) + _elements(node) / ELEMENTS


def _elements(node: Node) -> float:
    types = node.type.items if multiple(node) else (node.type,)
    sizes = [t.size for t in types]
    return math.inf if any(isinstance(n, Extent) for n in sizes) else sum(sizes)


# --- what tells loops apart ---


def content(op: Op) -> Any:
    """Return a key that is equal for ops that compute the same, however often they were traced."""
    if not op.holds_graph:
        return op if op.interned else (type(op), typed(tuple(op.parameters().values())))
    if isinstance(op, HoldsGraphs) and op.applied is not None:
        return _graph_content(op.applied)
    graphs = [_graph_content(graph) for graph in held_graphs(op)]
    return type(op), *graphs, *map(typed, _plain(op))


def _plain(op: Op) -> list[Any]:
    """Return the parameters of an op that are no graphs."""
    # The symbol of a length that a loop finds says nothing, as it has one of its own each time.
    values = [v for v in op.parameters().values() if not (op.opens and isinstance(v, Extent))]
    values.append(bool(op.opens))
    return [v for v in values if not isinstance(v[0] if isinstance(v, tuple) and v else v, Graph)]


def _with_plain_symbols(
    op: HoldsGraphs, types: Sequence[ArrayType]
) -> tuple[HoldsGraphs, Sequence[ArrayType]]:
    """Return a loop and the types of its operands with symbols numbered as they come."""
    names = dict.fromkeys(n for t in types for e in t.shape for n in symbols_in(e))
    if not names:
        return op, types
    plain = {name: symbol(f"n{i}") for i, name in enumerate(names)}
    return op_with_lengths(op, plain), [t.with_shape(replaced_in(t.shape, plain)) for t in types]  # type: ignore[return-value]


def _graph_content(graph: Graph) -> Any:
    return graph.derived("content", lambda: _content_of(graph))


def _content_of(graph: Graph) -> Any:
    position = {node: i for i, node in enumerate(graph.inputs)}
    nodes = []
    for node in graph.nodes:
        nodes.append((content(node.op), *[position[x] for x in node.inputs]))
        position[node] = len(position)
    types = tuple([t.strong() for t in graph.input_types])
    return types, tuple(nodes), tuple([position[x] for x in graph.outputs])


links.run_loop = run_loop
