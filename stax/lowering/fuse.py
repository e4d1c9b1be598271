"""Deciding which values share a kernel, which are stored, and which are computed where read.

A *region* becomes one kernel.  It has a loop nest of one shape (axes of length 1 left out) and, if
something in it is reduced, the axes that are; values in it are *full*, one per point of the nest,
or *outer*, one per point of the axes that are kept.  Element-wise ops join the region of their
operands; reductions of the same axes do as well, so softmax or a layer norm is one region.

Ops that only move elements (broadcast, slice, pad, transpose, ...) have no region: they are index
arithmetic in whoever reads them.  A value read from another region, or at a shifted index, is
computed again there when that is cheaper than storing and loading it, else it is stored.

Regions are numbered in levels, each above the levels of all it reads, so joining one never makes a
cycle and the whole pass is linear: a node looks only at its operands and at a bounded number of
open regions.  Between the levels of large nests there is room for those of small ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stax.extent import same_shape
from stax.graph import Constant, Graph, Input, Length, Node, Project
from stax.lowering import loop_ir as ir
from stax.lowering.element import (
    Index,
    Trail,
    canonical,
    spread,
    static_size,
)
from stax.lowering.own import is_own_kernel, stored_operands
from stax.lowering.paired import Pairs, library_op, nest_shape
from stax.lowering.patches import Patches
from stax.lowering.split import Copy
from stax.op import Op, has_rule
from stax.operators.bits import Late
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.contract import DotGeneral
from stax.operators.elementwise import Convert, Elementwise, IntegerPow, Select
from stax.operators.index import Scatter
from stax.operators.random import Draw, RandomFoldIn
from stax.operators.reduce import ArgExtreme
from stax.operators.reshape import Reshape, Transpose
from stax.operators.shape import Iota, Pad
from stax.types import Shape, TupleType

# Prices in simple operations per element; a load counts as one.
RECOMPUTE_LIMIT = 8
BROADCAST_LIMIT = 2
# The limit for values that no cache of one processor holds, where a store and a load cost more.
LARGE_LIMIT, LARGE_BYTES = 32, 4 << 20
MANY_SOURCES = 2
UNBOUNDED = 1000
# The limit of a value that is read once, element by element: none but reductions are dearer.
ONCE = UNBOUNDED - 1
MATH_PRICE = 12
DIVISION_PRICE = 3
RANDOM_PRICE = 60
SLOW_PRICE = 400
# A region's code is compiled as one function; LLVM's time grows faster than its size.
REGION_LIMIT = 64
WEIGHTS = {MATH_PRICE: 5, RANDOM_PRICE: 12, SLOW_PRICE: 5}  # of nodes, by price
REGION_READS = 24
OPEN_REGIONS = 4
# Points of a nest from which on its level is a multiple of a number, so that what follows from
# smaller ones of the levels between can still join it.
LARGE_NEST, LEVELS = 1 << 15, 8

_MATH = frozenset(ir.MATH)


class Read(NamedTuple):
    """Where a node reads: a value that is no index op, the index, the price limit of the way."""

    source: Node
    place: Index
    limit: int


@dataclass(eq=False)
class Region:
    """A kernel in the making: nodes that are computed in one loop nest of `shape`.

    `apart` is the region of what its first node reads that it could not join, and why.
    """

    number: int
    level: int
    shape: Shape
    axes: tuple[int, ...] | None = None
    nodes: list[Node] = field(default_factory=list)
    reads: set[Node] = field(default_factory=set)
    targets: list[Node] = field(default_factory=list)
    weight: int = 0
    apart: tuple[Region, str] | None = None

    @property
    def outer(self) -> Shape:
        """The lengths of the axes that are not reduced."""
        reduced = self.axes or ()
        return tuple(n for a, n in enumerate(self.shape) if a not in reduced)

    def holds_full(self, node: Node) -> bool:
        """Say whether a value of the shape of `node` is one per point of the whole nest."""
        return same_shape(canonical(nest_shape(node)), self.shape)

    def index(self, node: Node) -> Index:
        """Return the index at which the nest computes `node`, in terms of its loop variables."""
        reduced = () if self.holds_full(node) else self.axes or ()
        return spread(
            nest_shape(node), [axis_var(a) for a in range(len(self.shape)) if a not in reduced]
        )


def axis_var(axis: int) -> ir.Var:
    """Return the loop variable of an axis of a nest."""
    return ir.Var(f"i{axis}", ir.INDEX)


def is_free(node: Node) -> bool:
    """Say whether a value costs no memory access: constants, counters, lengths."""
    return isinstance(node.op, Constant | Iota | Length)


def is_pointwise(op: Op) -> bool:
    """Say whether an element of the result depends on the elements at the same index alone."""
    return isinstance(op, Elementwise | Select | Convert | IntegerPow | Copy | Pairs)


def computes(op: Op) -> bool:
    """Say whether an op has a place in a nest (it is no index op and no library call)."""
    return is_pointwise(op) or isinstance(
        op, Reduction | DotGeneral | ArgExtreme | Draw | RandomFoldIn
    )


def price(op: Op) -> int:
    """Return what one element of `op` costs."""
    match op:
        case Elementwise(name):
            if name in _MATH:
                return SLOW_PRICE if name in ir.SLOW else MATH_PRICE
            return DIVISION_PRICE if name in ("div", "sqrt", "rsqrt", "rem") else 1
        case Reduction() | DotGeneral() | ArgExtreme():
            return UNBOUNDED
        case Draw() | RandomFoldIn():
            return RANDOM_PRICE
        case Pad(config):  # between spread elements, an index is divided
            spread_out = [n for _, _, n in config if not isinstance(n, int) or n]
            return 1 + 2 * DIVISION_PRICE * len(spread_out)
        case _:
            return 1


def read_limit(node: Node) -> int:
    """Return up to which price a value is computed again when it is read through an index op."""
    if isinstance(node.op, Broadcast | Patches):
        often = 4 if isinstance(node.op, Broadcast) else 2
        grows = static_size(node.type.shape) > often * static_size(node.inputs[0].type.shape)
        return BROADCAST_LIMIT if grows else RECOMPUTE_LIMIT
    if isinstance(node.op, Reshape):
        same = same_shape(canonical(node.type.shape), canonical(node.inputs[0].type.shape))
        return RECOMPUTE_LIMIT if same else 0  # dividing indices costs more than a load
    return RECOMPUTE_LIMIT


def limit_through(node: Node, limit: int, limit_once: Callable[[Node], int]) -> int:
    """Return up to which price a value is computed again that is read through an index op."""
    if limit >= RECOMPUTE_LIMIT:
        limit = max(limit, limit_once(node))
    return limit if limit == ONCE == limit_once(node) else min(limit, read_limit(node))


class Fusion:
    """The regions of a graph and what is stored; `fuse` makes one."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.uses = graph.uses()
        self.results = frozenset(graph.outputs)
        self.sources: dict[Node, frozenset[Node]] = {
            x: frozenset([x] if _nbytes(x) >= LARGE_BYTES else []) for x in graph.inputs
        }
        self.home: dict[Node, Region] = {}
        self.regions: list[Region] = []
        self.stored: dict[Node, str] = {}  # what lies in memory, and why
        self.own: list[Node] = []
        self.level: dict[Node, int] = dict.fromkeys(graph.inputs, 0)
        self.price: dict[Node, int] = dict.fromkeys(graph.inputs, 1)
        self.effects = 0  # the level of the last effect
        self._reads: dict[Node, tuple[Region, list[Read]]] = {}
        self._open: dict[Shape, list[Region]] = defaultdict(list)

    # --- placing ---

    def place(self, node: Node) -> None:
        """Give `node` a region, or leave it to be computed where it is read."""
        self.sources[node] = self._sources(node)
        if is_free(node):
            self.level[node], self.price[node] = 0, 0
        elif is_own_kernel(node):
            self._place_own(node)
        elif computes(node.op):
            self._place_computing(node)
        else:
            self._place_index_op(node)

    def _sources(self, node: Node) -> frozenset[Node]:
        """Return the large arrays that computing `node` reads; of many, some."""
        if isinstance(node.op, Reduction) or is_own_kernel(node):
            return frozenset([node] if _nbytes(node) >= LARGE_BYTES else [])
        found: dict[Node, None] = {}
        for x in node.inputs:
            found |= dict.fromkeys(self.sources[x])
        return frozenset(list(found)[:MANY_SOURCES])

    def _place_own(self, node: Node) -> None:
        if isinstance(node.op, Project):
            self.level[node] = self.level[node.inputs[0]]
        elif isinstance(node.op, Late):
            x, after = node.inputs
            self.store(x, "an effect waits for it")
            self.level[node] = max(self.level[self.view_of(x)], self.level[after])
        else:
            name = library_op(node.op).name
            for x in stored_operands(node):
                self.store(x, f"{name} reads it, which is a step of its own")
            held = list(stored_operands(node))
            if isinstance(node.op, Scatter):
                held += node.inputs[1:]
                self._read_where_put(node)
            levels = (self.level[self.view_of(x)] for x in held)
            self.level[node] = 1 + max(levels, default=0)
            if node.op.effect is not None:
                # Effects happen in the order of the program, as do steps of one level.
                self.level[node] = self.effects = max(self.level[node], self.effects)
            self.own.append(node)
        self.price[node] = 1
        self.stored[node] = "a step of its own makes it"

    def _read_where_put(self, node: Node) -> None:
        """Have the indices and updates of a scatter computed where they are put in, if cheap.

        What reads the operand is stored before that changes.
        """
        changed = self.root_of(node.inputs[0])
        for x in node.inputs[1:]:
            # Where windows are vectors, what finds the row of an element is computed for all of it.
            in_vectors = x is node.inputs[2] and node.op.window.inner  # type: ignore[attr-defined]
            self.demand(x, (2 if in_vectors else 1) * RECOMPUTE_LIMIT, node)
            pending = [x]
            while pending:
                y = pending.pop()
                if isinstance(y.op, Input) or y in self.stored:
                    if self.root_of(y) is changed and not is_free(y):
                        self.store(x, f"{node.op.name} changes what it reads")
                    continue
                pending += y.inputs

    def _place_index_op(self, node: Node) -> None:
        limit = max(read_limit(node), self.limit_once(node))
        # What is dearer than the limit will be stored and loaded, except a chain of index ops.
        prices = (
            self.price[x] if self.price[x] <= limit or x not in self.home else 1
            for x in node.inputs
        )
        self.price[node] = price(node.op) + sum(prices)
        self.level[node] = max((self.level[x] for x in node.inputs), default=0)
        if self.price[node] > 2 * RECOMPUTE_LIMIT:
            self._give_home(node)

    def _place_computing(self, node: Node) -> None:
        own = price(node.op)
        self.price[node] = min(UNBOUNDED, own + sum(self.price[x] for x in node.inputs))
        self._give_home(node)

    def _give_home(self, node: Node) -> None:
        region = self._find_region(node)
        region.nodes.append(node)
        region.weight += weight(node)
        if isinstance(node.op, Reduction) and region.axes is None:
            region.axes = reduced_axes(node)
        self.home[node] = region
        self.level[node] = region.level
        for read in self.reads(node, region):
            if self.home.get(read.source) is not region:
                region.reads.add(read.source)
                self.demand(read.source, max(read.limit, self.limit_for(read, node)), node)

    def _find_region(self, node: Node) -> Region:
        nest = node.inputs[0] if isinstance(node.op, Reduction) else node
        shape = canonical(nest_shape(nest))
        candidates = [self.home[x] for x in self._nearby(node) if x in self.home]
        candidates.sort(key=lambda r: r.level, reverse=True)
        apart: tuple[Region, str] | None = None
        for region in [*candidates, *reversed(self._open[shape][-OPEN_REGIONS:])]:
            obstacle = self._obstacle(node, shape, region)
            if not obstacle:
                return region
            if apart is None and candidates:
                apart = region, obstacle
        reads = self._reads_at(node, nest_index(node))
        level = 1 + max((self.level[r.source] for r in reads), default=0)
        if static_size(shape) >= LARGE_NEST:
            level = -(-level // LEVELS) * LEVELS
        region = Region(len(self.regions), level, shape, apart=apart)
        self.regions.append(region)
        self._open[shape].append(region)
        return region

    def _nearby(self, node: Node) -> Iterator[Node]:
        """Yield the values next to `node`, looking through broadcasts and reshapes."""
        for x in node.inputs:
            while isinstance(x.op, Broadcast | Reshape) and x not in self.home:
                x = x.inputs[0]
            yield x

    def _obstacle(self, node: Node, shape: Shape, region: Region) -> str:
        """Say why `node` cannot be computed in the nest of `region`; nothing if it can."""
        if region.weight >= REGION_LIMIT:
            return "that kernel has as many operations as one may have"
        if len(region.reads) >= REGION_READS:
            return "that kernel reads as many arrays as one may read"
        if not self._shape_fits(node, shape, region):
            is_other = isinstance(node.op, Reduction) and same_shape(shape, region.shape)
            return "it reduces other axes" if is_other else "its loops have other lengths"
        for read in self.reads(node, region):
            home, name = self.home.get(read.source), read.source.op.name
            if home is region:
                if read.place != region.index(read.source) and self.price[read.source] > read.limit:
                    return f"it reads {name} of that kernel at other places"
            elif self.level[read.source] >= region.level:
                return f"it reads {name}, which is not ready when that kernel runs"
        return ""

    def _shape_fits(self, node: Node, shape: Shape, region: Region) -> bool:
        if isinstance(node.op, Reduction):
            axes = reduced_axes(node)
            return same_shape(shape, region.shape) and region.axes in (None, axes)
        if same_shape(shape, region.shape):
            return True
        is_loop = isinstance(node.op, DotGeneral | ArgExtreme)
        return region.axes is not None and not is_loop and same_shape(shape, region.outer)

    # --- reading and storing ---

    def reads(self, node: Node, region: Region) -> list[Read]:
        """Return what `node` reads when it is computed in `region`."""
        known = self._reads.get(node)
        if known is None or known[0] is not region:
            index = nest_index(node) if isinstance(node.op, Reduction) else region.index(node)
            found = self._with_shifted(self._reads_at(node, index), region)
            known = self._reads[node] = region, found
        return known[1]

    def _with_shifted(self, reads: list[Read], region: Region) -> list[Read]:
        """Add what is read by values of the region that are computed again at a shifted index."""
        found: list[Read] = []
        pending = list(reads)
        while pending:
            read = pending.pop()
            found.append(read)
            x = read.source
            shifted = self.home.get(x) is region and read.place != region.index(x)
            if shifted and self.price[x] <= read.limit:
                pending += self._reads_at(x, read.place)
        return found

    def _reads_at(self, node: Node, index: Index) -> list[Read]:
        return reads_of(node, index, self.home, self.limit_once)

    def limit_for(self, read: Read, node: Node) -> int:
        """Return the price up to which a large value is computed again where `node` reads it.

        One that comes from a single array, which then is all that is read: memory is slower.
        """
        x = read.source
        is_direct = read.limit == RECOMPUTE_LIMIT and x in node.inputs
        if not is_direct or x in self.results or _nbytes(x) < LARGE_BYTES:
            return 0
        return LARGE_LIMIT if len(self.sources[x]) <= 1 else 0

    def limit_once(self, node: Node) -> int:
        """Return the price up to which what a transpose reads is computed where that is read.

        What nothing else reads is then computed once as well, in another order.
        """
        if not isinstance(node.op, Transpose) or self.uses[node] > 1:
            return 0
        return ONCE if self.uses[node.inputs[0]] == 1 else 0

    def view_of(self, node: Node) -> Node:
        """Return what `node` is another shape of, or `node` itself."""
        while isinstance(node.op, Reshape) and node not in self.stored:
            node = node.inputs[0]
        return node

    def root_of(self, node: Node) -> Node:
        """Return the value whose memory `node` is another shape or name of, or `node` itself."""
        while isinstance((node := self.view_of(node)).op, Late):
            node = node.inputs[0]
        return node

    def in_memory(self, node: Node, region: Region) -> bool:
        """Say whether `node`, or what it reshapes, is stored before the kernel of `region` runs."""
        root = self.root_of(node)
        return isinstance(root.op, Input) or (
            root in self.stored and self.level[root] < region.level
        )

    def demand(self, node: Node, limit: int, reader: Node) -> None:
        """See to it that `reader` can read `node` elsewhere: store what is dearer than `limit`."""
        pending = [(node, limit)]
        while pending:
            x, limit = pending.pop()
            if is_free(x) or isinstance(x.op, Input) or x in self.stored:
                continue
            if x not in self.home:
                limit = limit_through(x, limit, self.limit_once)
            elif self.price[x] > limit:
                self.store(x, self._dear(x, limit, reader))
                continue
            again = limit if limit < ONCE else RECOMPUTE_LIMIT
            pending += [(y, limit if self.uses[y] == 1 else again) for y in x.inputs]

    def _dear(self, node: Node, limit: int, reader: Node) -> str:
        """Say why `node` is not computed again where `reader` reads it."""
        cost = self.price[node]
        much = "too much" if cost >= UNBOUNDED else f"{cost} operations, more than {limit},"
        return f"{reader.op.name} reads it in another kernel; {much} to compute again"

    def store(self, node: Node, why: str) -> None:
        """Have `node` in memory; reshaping is another view of the same memory."""
        while isinstance(node.op, Reshape) and node not in self.home:
            node = node.inputs[0]
        if node in self.stored or isinstance(node.op, Input):
            return
        if node not in self.home:
            self._give_home(node)
        self.stored[node] = why
        self.home[node].targets.append(node)

    def move(self, nodes: Sequence[Node], region: Region, reader: Region) -> None:
        """Compute `nodes`, which stand in the order of the graph, in a later region."""
        moving = set(nodes)
        region.nodes = [n for n in region.nodes if n not in moving]
        region.targets = [n for n in region.targets if n not in moving]
        reader.reads -= moving
        for node in nodes:
            self.stored.pop(node, None)
            self.home[node], self.level[node] = reader, reader.level
            reader.weight += weight(node)
            region.weight -= weight(node)
        for node in nodes:
            for read in self.reads(node, reader):
                if self.home.get(read.source) is not reader:
                    reader.reads.add(read.source)
                    self.demand(read.source, read.limit, node)
        reader.nodes += nodes


def weight(node: Node) -> int:
    """Return what a node adds to the size of a kernel."""
    return WEIGHTS.get(price(node.op), 1)


def fuse(graph: Graph) -> Fusion:
    """Return the regions of a prepared graph; every output is stored."""
    fusion = Fusion(graph)
    for node in graph.nodes:
        fusion.place(node)
    for node in graph.outputs:
        fusion.store(node, "a result")
    fusion.regions = [r for r in fusion.regions if r.targets]
    return fusion


def reduced_axes(node: Node) -> tuple[int, ...]:
    """Return which axes of the nest a reduction reduces, axes of length 1 not counted."""
    shape = node.inputs[0].type.shape
    places = [a for a in range(len(shape)) if not (isinstance(shape[a], int) and shape[a] == 1)]
    return tuple(places.index(a) for a in node.op.axes if a in places)  # type: ignore[attr-defined]


def nest_index(node: Node) -> Index:
    """Return the index of a node, or of what it reduces, in a nest of its own."""
    nest = node.inputs[0] if isinstance(node.op, Reduction) else node
    shape = nest_shape(nest)
    return spread(shape, [axis_var(a) for a in range(len(canonical(shape)))])


def reads_of(node: Node, index: Index, homes: Any, limit_once: Callable[[Node], int]) -> list[Read]:
    """Return where `node` reads for its element at `index`, looking through index ops."""
    found: list[Read] = []
    # A product reads an operand again for each column, so computing it there is dear.
    limit = BROADCAST_LIMIT if isinstance(node.op, DotGeneral | ArgExtreme) else RECOMPUTE_LIMIT
    limit = read_limit(node) if isinstance(node.op, Patches) else max(limit, limit_once(node))
    pending = [Read(x, i, limit) for x, i in _direct(node, index)]
    while pending:
        read = pending.pop()
        x = read.source
        if (
            isinstance(x.op, Input)
            or is_free(x)
            or computes(x.op)
            or x in homes
            or is_own_kernel(x)
        ):
            if not is_free(x):
                found.append(read)
            continue
        limit = limit_through(x, read.limit, limit_once)
        pending += [Read(y, i, limit) for y, i in _direct(x, read.place)]
    return found


def _direct(node: Node, index: Index) -> Sequence[tuple[Node, Index]]:
    """Return the operands of `node` and where its element at `index` reads them."""
    if is_pointwise(node.op):
        return [(x, index[: x.type.ndim]) for x in node.inputs]
    if isinstance(node.op, Reduction):
        return [(node.inputs[0], index)]
    if isinstance(node.op, Draw):
        (keys,) = node.inputs
        return [(keys, index[: keys.type.ndim])]
    if not has_rule(type(node.op), "lower"):
        return []
    trail = _LoopTrail()
    node.op.lower(trail, index, *(trail.operand(x) for x in node.inputs))
    return [(x, i) for x, i, _ in trail.reads]


class _LoopTrail(Trail):
    """A trail through rules that loop: the loop's variable is a variable like any other."""

    def reduce(self, kind: str, extents: Any, body: Any, dtype: Any) -> ir.Expr:
        body(tuple(ir.Var(f"r{i}", ir.INDEX) for i in range(len(extents))))
        return ir.Var("?", dtype)


def _nbytes(node: Node) -> int:
    """Return the size of a value, 0 where it is not known or there are several."""
    if isinstance(node.type, TupleType) or not all(isinstance(n, int) for n in node.type.shape):
        return 0
    return static_size(node.type.shape) * int(node.type.dtype.itemsize)
