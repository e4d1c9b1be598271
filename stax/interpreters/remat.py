"""Which residuals to save and which to compute again: a minimum cut.

Reverse mode reads values of the primal part.  Each is saved, or computed again from others that
are.  Every value is a pair of vertices joined by an edge whose capacity is the price of saving it;
an edge without bound leads from a value to what is computed from it, one from the source to where
computing again must end, and one from each value that is read to the sink; computing a value again
has a price too, the capacity of an edge from the source.  The cheapest cut is the choice.

Prices are bytes of memory traffic.  What a kernel computes where it is read costs little: moving
elements nothing, arithmetic less than a load, functions such as exp about as much as one.
Products, reductions, sorts, draws, library calls, graphs and effects are not computed again unless
all that is pure may be (`Prices.dear`).

    >>> from stax.types import ArrayType, float32
    >>> from stax.operators.elementwise import exp, mul, sub
    >>> with Trace("f", "example") as trace:
    ...     x = trace.input(ArrayType(float32, (8, 8)), "x")
    ...     e = exp(x)
    ...     graph = trace.finish([e, sub(e, mul(e, e))])
    >>> found = minimum_cut(graph, [graph.outputs[1]], {graph.outputs[0]: There("the result")})
    >>> [node.op.name for node in found.saved], [node.op.name for node in found.recomputed]
    (['exp'], ['mul', 'sub'])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from stax.extensions import extension
from stax.extent import Extent
from stax.graph import ArrayConstant, Constant, Graph, Input, Length, Node, Project, live, multiple
from stax.interpreters.interpret import attributed
from stax.interpreters.transpose import dependents
from stax.op import Op
from stax.operators.bits import Bitcast, Late, OptimizationBarrier, ReducePrecision
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.contract import DotGeneral
from stax.operators.dynamic import DynamicSlice
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.gradient import CheckpointName, StopGradient
from stax.operators.index import Gather
from stax.operators.random import KeyOp
from stax.operators.reduce import ArgExtreme, Cumulative
from stax.operators.reshape import Reshape, Rev, Transpose
from stax.operators.shape import Concatenate, Iota, Pad, Slice
from stax.operators.sort import Sort, TopK
from stax.trace import Proxy, Trace
from stax.types import ArrayType, is_complex, storage
from stax.verify import verified

# --- prices ---

# In simple operations per element.
_DIVISIONS = dict.fromkeys(("div", "rem", "sqrt", "rsqrt"), 3.0)
_FUNCTIONS = dict.fromkeys(
    (
        *("exp", "exp2", "expm1", "log", "log1p", "logistic", "erf", "erfc", "pow", "cbrt"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    ),
    12.0,
)
_SIMPLE = dict.fromkeys(
    (
        *("neg", "add", "sub", "mul", "maximum", "minimum", "abs", "sign", "floor", "ceil"),
        *("trunc", "round", "real", "imag", "conj", "complex", "is_finite"),
        *("eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not"),
        *("shift_left", "shift_right_logical", "shift_right_arithmetic"),
    ),
    1.0,
)
_ELEMENTWISE = {**_SIMPLE, **_DIVISIONS, **_FUNCTIONS}
# Index arithmetic in whoever reads them.
MOVES = Broadcast | Reshape | Transpose | Rev | Slice | Pad | Concatenate | DynamicSlice | Gather
NAMES = Project | StopGradient | CheckpointName | OptimizationBarrier | Late
CONSTANTS = Constant | ArrayConstant
_UNLIKELY = 60.0  # of an op that is a library call, or a loop
# A lane of a vector costs as much as a whole one: small arrays are not cheaper than this many.
_LANES = 8
# What a saved value costs beside its bytes: a buffer to find, to fill and to read.
_BUFFER = 16.0
TYPICAL = 1024  # what a length that is not known is taken for


@dataclass(frozen=True)
class Prices:
    """The price of a byte that is saved, and that of a simple operation on one element.

    `dear` allows all that is pure to be computed again.
    """

    byte: float = 2.0  # it is written and read
    operation: float = 0.5
    dear: bool = False


STANDARD = Prices()


class There(NamedTuple):
    """What is special about saving a value: why it is, the price of a byte, and whether the value
    exists anyway, so that it takes no memory."""

    why: str
    byte: float = 1.0  # it is read
    exists: bool = True


def count(type_: ArrayType) -> int:
    """Return the number of elements of a type; a symbolic length counts as a typical one."""
    return math.prod(
        n.evaluate(dict.fromkeys(n.symbols(), TYPICAL)) if isinstance(n, Extent) else n
        for n in type_.shape
    )


def nbytes(type_: ArrayType) -> int:
    """Return the bytes of an array of a type."""
    return count(type_) * storage(type_.dtype).itemsize


def _operations(op: Op) -> float | None:
    """Return the simple operations per element of an op, None if it is not for computing again."""
    match op:
        case Elementwise(name):
            return _ELEMENTWISE.get(name)
        case Select() | Convert() | Iota() | Length() | Bitcast() | ReducePrecision():
            return 1.0
        case IntegerPow(exponent):
            return 2.0 * max(1, abs(exponent).bit_length()) + (3.0 if exponent < 0 else 0.0)
        case Gather() | DynamicSlice():
            return 2.0
        case _:
            return 0.1 if isinstance(op, MOVES) else 0.0 if isinstance(op, NAMES) else None


def _work(node: Node) -> float:
    """Return the simple operations of a node that is computed again because all may be."""
    inputs = [sum(map(count, _types(x))) for x in node.inputs]
    size = sum(map(count, _types(node)))
    match node.op:
        case DotGeneral(contracting=contracting):
            terms = [node.inputs[0].type.shape[a] for a in contracting[0]]
            return size * max(1, count(node.inputs[0].type.with_shape(tuple(terms))))
        case Reduction() | ArgExtreme():
            return max(inputs)
        case _:
            return _UNLIKELY * (size + sum(inputs))


def _types(node: Node) -> Sequence[ArrayType]:
    return node.type.items if multiple(node) else (node.type,)


def needs(node: Node) -> tuple[Node, ...]:
    """Return what `node` is computed from; a copy of a late value is that of the value itself."""
    return node.inputs[:1] if isinstance(node.op, Late) else node.inputs


def price_again(node: Node, prices: Prices) -> float | None:
    """Return what computing `node` again costs, None if it is not to be."""
    if isinstance(node.op, Input) or node.op.effect is not None or node.op.opens:
        return None
    if isinstance(node.op, Project):
        return None if price_again(node.inputs[0], prices) is None else 0.0
    each = _operations(node.op)
    if each is not None and not multiple(node):
        lanes = 4 if is_complex(node.type.dtype) else 1
        return prices.operation * each * max(count(node.type), _LANES) * lanes
    return prices.operation * _work(node) if prices.dear else None


def reason(node: Node) -> str:
    """Say why a node is not computed again."""
    source = node.inputs[0] if isinstance(node.op, Project) else node
    match source.op:
        case Input():
            return "an argument"
        case DotGeneral():
            return "a product is not computed again"
        case Reduction() | ArgExtreme() | Cumulative():
            return "a reduction is not computed again"
        case Sort() | TopK():
            return "a sort is not computed again"
        case KeyOp():
            return "a draw is not made again"
    if source.op.effect is not None:
        return "it has an effect"
    if source.op.holds_graph:
        return "a graph is not run again"
    return "its op is not computed again"


# --- the cut ---


class Cut(NamedTuple):
    """What is saved and what is computed again, both in program order, and why.

    Of what is saved, `there` exists anyway.
    """

    saved: list[Node]
    recomputed: list[Node]
    why: dict[Node, str]
    there: set[Node]


def minimum_cut(
    graph: Graph,
    wanted: Sequence[Node],
    there: Mapping[Node, There] | None = None,
    prices: Prices = STANDARD,
    stored: frozenset[Node] = frozenset(),
    fixed: frozenset[Node] = frozenset(),
) -> Cut:
    """Return the cheapest way to have the values `wanted`, nodes of `graph`, once more.

    `there` are values that exist anyway, or cost something special to save; those in `stored` have
    to be in memory for their readers, so computing them again writes them too; those in `fixed` are
    not computed again.
    """
    there = there or {}
    again = _candidates(graph, wanted, there, prices, fixed)
    if all(price is None for price in again.values()):
        return _all_saved(again, there)
    saving = {node: _price_saved(node, there, prices) for node in again}
    part_of = _clusters(again, saving, set(wanted))
    heads = [node for node in again if part_of[node] is node]
    places = {node: i for i, node in enumerate(heads)}
    network = _Network(len(heads))
    computing = dict.fromkeys(heads, 0.0)
    for node, price in again.items():
        head = part_of[node]
        if price is None:
            network.end(places[head])
            continue
        computing[head] += price + (nbytes(node.type) if node in stored else 0)
        for x in dict.fromkeys(needs(node)):
            if x in part_of and part_of[x] is not head:
                network.depend(places[part_of[x]], places[head])
    for head, i in places.items():
        network.save(i, saving[head])
        network.compute(i, computing[head])
    for x in dict.fromkeys(wanted):
        if x in places:
            network.want(places[x])
    late = network.sink_side()
    saved = [n for n, i in places.items() if late[2 * i + 1] and not late[2 * i]]
    recomputed = [n for n in again if late[2 * places[part_of[n]]]]
    why = {n: _why(n, there, again[n]) for n in saved}
    return Cut(saved, recomputed, why, {n for n in saved if n in there and there[n].exists})


def _all_saved(again: Mapping[Node, float | None], there: Mapping[Node, There]) -> Cut:
    """Return the one choice where nothing is computed again."""
    why = {n: _why(n, there, None) for n in again}
    return Cut(list(again), [], why, {n for n in again if n in there and there[n].exists})


def _clusters(
    again: dict[Node, float | None], saving: Mapping[Node, float], wanted: set[Node]
) -> dict[Node, Node]:
    """Return, for each node, the last one of those that are computed again together or not at all.

    A value that only they read and that is not cheaper to save than their last is not worth saving.
    """
    found: dict[Node, Node] = {}
    readers: dict[Node, Node | None] = {}  # None: there are several
    for node in reversed(again):
        reader = None if node in wanted else readers.get(node)
        joins = reader is not None and again[node] is not None and saving[node] >= saving[reader]
        head = found[node] = reader if joins and reader is not None else node
        if again[node] is not None:
            for x in needs(node):
                readers[x] = head if readers.get(x, head) is head else None
    return found


def _why(node: Node, there: Mapping[Node, There], again: float | None) -> str:
    if node in there:
        return there[node].why
    return reason(node) if again is None else "cheaper than computing it again"


def _price_saved(node: Node, there: Mapping[Node, There], prices: Prices) -> float:
    if multiple(node):
        return math.inf
    if node in there:
        return there[node].byte * nbytes(node.type)
    return prices.byte * nbytes(node.type) + _BUFFER


def _candidates(
    graph: Graph,
    wanted: Sequence[Node],
    there: Mapping[Node, There],
    prices: Prices,
    fixed: frozenset[Node],
) -> dict[Node, float | None]:
    """Return what computing `wanted` again could need, and the price of computing that again.

    In program order; the price is None where computing again has to end.
    """
    found: dict[Node, float | None] = {}
    pending = [x for x in wanted if not isinstance(x.op, CONSTANTS)]
    while pending:
        node = pending.pop()
        if node in found:
            continue
        is_free = node in there and not there[node].byte
        found[node] = None if is_free or node in fixed else price_again(node, prices)
        if found[node] is not None:
            pending += [x for x in needs(node) if not isinstance(x.op, CONSTANTS)]
    return {n: found[n] for n in (*graph.inputs, *graph.nodes) if n in found}


_UNBOUNDED = (1 << 31) - 1
_LARGEST_SUM = 1 << 30


class _Network:
    """A flow network of values; value i has the vertices 2i, how it is got, and 2i+1, itself."""

    def __init__(self, values: int) -> None:
        self.source, self.sink = 2 * values, 2 * values + 1
        self.edges: dict[tuple[int, int], float] = {}

    def _edge(self, tail: int, head: int, capacity: float) -> None:
        self.edges[tail, head] = capacity + self.edges.get((tail, head), 0.0)

    def save(self, i: int, price: float) -> None:
        """Give the price at which a value is saved."""
        self._edge(2 * i, 2 * i + 1, price)

    def end(self, i: int) -> None:
        """Say that a value is not computed again."""
        self._edge(self.source, 2 * i, math.inf)

    def compute(self, i: int, price: float) -> None:
        """Give the price at which a value is computed again."""
        self._edge(self.source, 2 * i, price)

    def depend(self, i: int, j: int) -> None:
        """Say that value j is computed from value i."""
        self._edge(2 * i + 1, 2 * j, math.inf)

    def want(self, i: int) -> None:
        """Say that a value is read."""
        self._edge(2 * i + 1, self.sink, math.inf)

    def sink_side(self) -> np.ndarray:
        """Return which vertices are on the sink's side of the minimum cut nearest to the sink."""
        tails, heads = np.asarray([*self.edges] or np.empty((0, 2)), np.int32).T
        size = self.sink + 1
        # Imported at the first cut: it takes a while, and without the package around it far less.
        solver, sparse = extension("sparse.csgraph._flow"), import_module("scipy.sparse")
        capacity = sparse.csr_matrix(
            (scaled([*self.edges.values()]), (tails, heads)), shape=(size, size), dtype=np.int32
        )
        flow = solver.maximum_flow(capacity, self.source, self.sink, method="dinic").flow
        left = (capacity - flow).T.tocsr()
        left.eliminate_zeros()
        return _reached(left, self.sink)


def _reached(graph: Any, start: int) -> np.ndarray:
    """Return which vertices a path leads to from `start`; `graph` is a sparse matrix of rows."""
    begins, heads = graph.indptr.tolist(), graph.indices.tolist()
    found = [False] * graph.shape[0]
    found[start], pending = True, [start]
    while pending:
        vertex = pending.pop()
        for head in heads[begins[vertex] : begins[vertex + 1]]:
            if not found[head]:
                found[head] = True
                pending.append(head)
    return np.asarray(found)


def scaled(capacities: Sequence[float]) -> np.ndarray:
    """Return capacities as the 32-bit integers that the solver takes.

    The finite ones add up to less than what stands for infinity, so a cut never goes through one
    that is infinite.
    """
    given = np.asarray(capacities, np.float64)
    finite = np.isfinite(given)
    total = given[finite].sum()
    factor = _LARGEST_SUM / total if total else 1.0
    found = np.full(given.shape, _UNBOUNDED, np.int64)
    found[finite] = np.where(given[finite] > 0, np.maximum(1, given[finite] * factor), 0)
    return found.astype(np.int32)


# --- two graphs with fewer residuals between them ---


class Recut(NamedTuple):
    """A known and an unknown graph, see `linearize.Split`, and the choice between them."""

    known: Graph
    unknown: Graph
    cut: Cut


def fewer_residuals(
    known: Graph,
    unknown: Graph,
    outputs: int,
    there: Mapping[Node, There] | None = None,
    prices: Prices = STANDARD,
    fixed: frozenset[Node] = frozenset(),
) -> Recut:
    """Return the two graphs with the residuals between them chosen by a minimum cut.

    `known` returns `outputs` results and then the residuals, which are the first inputs of
    `unknown`; what is computed again becomes a part of `unknown`, each value where it is needed.
    """
    residuals = known.outputs[outputs:]
    inputs = unknown.inputs[: len(residuals)]
    needed = dict(zip(inputs, residuals, strict=True))
    whole = {x for n in unknown.nodes if _operations(n.op) is None for x in n.inputs}
    stored = frozenset(needed[x] for x in (*whole, *unknown.outputs) if x in needed)
    cut = minimum_cut(known, residuals, there, prices, stored, fixed)
    kept = [*known.outputs[:outputs], *cut.saved]
    early = Graph(known.name, known.inputs, live(known.nodes, kept), kept)
    late = _with_copies(unknown, needed, cut.saved, unknown.inputs[len(residuals) :])
    return Recut(verified(early, "remat"), verified(late, "remat"), cut)


def _with_copies(
    graph: Graph, needed: Mapping[Node, Node], saved: Sequence[Node], others: Sequence[Node]
) -> Graph:
    """Return `graph` of the values `saved` and of `others`.

    Its inputs `needed` are computed from them as the nodes that they stand for were.
    """
    with Trace(graph.name, "remat") as trace:
        given = {x: trace.input(x.type, f"residual{i}").node for i, x in enumerate(saved)}
        new = {x: trace.input(x.type, x.label, source=x.source).node for x in others}
        with attributed(trace) as attribute:

            def made(x: Node) -> Node:
                if x in needed:
                    return copy_from(trace, needed[x], given)
                return new[x]

            for node in graph.nodes:
                inputs = tuple([made(x) for x in node.inputs])
                attribute(node)
                new[node] = trace.apply(node.op, inputs)
            return trace.finish([Proxy(made(x), trace) for x in graph.outputs])


def copy_from(trace: Trace, node: Node, given: dict[Node, Node]) -> Node:
    """Return `node` computed in `trace` from what is `given`, to which it and others are added."""
    pending = [node]
    while pending:
        x = pending[-1]
        missing = [y for y in needs(x) if y not in given] if x not in given else []
        if missing:
            pending += missing
            continue
        if x not in given:
            trace.source, trace.scope = x.source, x.scope
            inputs = tuple([given[y] for y in needs(x)])
            given[x] = inputs[0] if isinstance(x.op, Late) else trace.apply(x.op, inputs)
        pending.pop()
    return given[node]


# --- reports ---


class Entry(NamedTuple):
    """A line of a report: a value, whether it is saved, and why; `there` if it exists anyway."""

    node: Node
    saved: bool
    why: str
    there: bool = False


@dataclass(frozen=True)
class Report:
    """What one graph leaves to its reverse mode; `steps` is how often it does."""

    title: str
    entries: list[Entry]
    steps: int = 1


_reports: ContextVar[list[Report] | None] = ContextVar("stax_residual_reports", default=None)


@contextmanager
def reporting() -> Iterator[list[Report]]:
    """Collect the reports of the choices made in a `with` block."""
    found: list[Report] = []
    token = _reports.set(found)
    try:
        yield found
    finally:
        _reports.reset(token)


def report(title: str, cut: Cut, wanted: Sequence[Node], steps: int = 1) -> None:
    """Tell whoever collects reports what was chosen for the values `wanted`."""
    found = _reports.get()
    if found is None:
        return
    again = set(wanted).intersection(cut.recomputed)
    entries = [Entry(n, True, cut.why[n], n in cut.there) for n in cut.saved]
    entries += [
        Entry(n, False, _instead(n))
        for n in cut.recomputed
        if n in again and not isinstance(n.op, NAMES)
    ]
    found.append(Report(title, entries, steps))


def _instead(node: Node) -> str:
    each = _operations(node.op)
    if each is None:
        return "keeping it costs more"
    if isinstance(node.op, MOVES):
        return "moves elements of what is saved"
    number = f"{each:.3g} operation" if each == 1 else f"{each:.3g} operations"
    return f"keeping it costs more than {number} per element"


def report_policy(title: str, graph: Graph, saved: Sequence[Node], linear: Graph) -> None:
    """Tell whoever collects reports what a policy keeps of `graph` for its `linear` part."""
    found = _reports.get()
    if found is None:
        return
    tangents = linear.inputs[len(graph.inputs) + len(saved) :]
    moving = dependents(linear.nodes, tangents)
    entries = [Entry(x, True, "an argument", there=True) for x in graph.inputs]
    entries += [Entry(x, True, "the policy saves it") for x in saved]
    entries += [
        Entry(x, False, "the policy does not save it")
        for x in linear.nodes
        if x not in moving and not isinstance(x.op, CONSTANTS) and not multiple(x)
    ]
    found.append(Report(title, entries))
