"""How the nest of a region is run: its layout, its stages, and what is kept between them.

The layout follows memory.  A region that reduces its last axis runs *by rows*: a parallel loop over
the axes that are kept, vector loops along the row.  One that keeps its last axis runs *by columns*:
a parallel loop over blocks of columns, a serial loop down the rows, vector loops across the block.
A region without reductions is a *map*.

A value that needs a finished reduction belongs to a later *stage*, which is another pass along the
same row; what several stages use is computed again, or kept in scratch if that is dear.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field

from stax.extent import Dimension
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import canonical, gathered, static_size
from stax.lowering.fuse import Fusion, Read, Region, axis_var, computes, is_pointwise, price
from stax.lowering.own import row_major
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.contract import DotGeneral
from stax.operators.random import RandomBits
from stax.operators.reduce import ArgExtreme
from stax.operators.reshape import Reshape
from stax.operators.shape import Iota

KEEP_FROM = 8  # simple operations that a second computation may cost before it is kept
SPILL_FROM = 24  # the same where keeping means storing a whole array
SCRATCH_BYTES = 48 << 10
BLOCK = 4096
COLUMN_BLOCKS = (64, 512)
# Rows shorter than this are run several at a time; an axis shorter than that fills no vector.
SHORT_ROW = 32
SHORT_AXIS = 8


class Layout(enum.Enum):
    """Which loop runs along memory."""

    MAP = "map"
    ROWS = "rows"
    COLUMNS = "columns"


@dataclass(eq=False)
class Schedule:
    """The decisions for one region.

    `stage` says after how many finished reductions a node can be computed; `full_uses` in which
    stages a full value is read; `kept` are full values held in scratch, `kept_outer` outer values
    that later stages or the result need.  A map is flat, or repeats with a `period`: then
    `repeated` says which values it reads per row (True) or per column.  `tile` is two axes to run
    in blocks, the second with vectors along it.
    """

    region: Region
    layout: Layout
    is_flat: bool = False
    period: int = 0
    repeated: dict[Node, bool] = field(default_factory=dict)
    tile: tuple[int, int] | None = None
    stage: dict[Node, int] = field(default_factory=dict)
    full_uses: dict[Node, set[int]] = field(default_factory=dict)
    needed: set[Node] = field(default_factory=set)
    kept: dict[Node, int] = field(default_factory=dict)

    @property
    def can_compute_once(self) -> bool:
        """Say whether the kernel can be built so that it computes each element once."""
        return self.layout is not Layout.MAP or (self.tile is None and not self.period)

    @property
    def stages(self) -> range:
        """The stages that have something to do."""
        return range(max(self.stage[n] for n in self.needed) + 1)

    def reductions(self, stage: int) -> list[Node]:
        """Return the reductions that the loops of a stage compute, in order."""
        return [
            n
            for n in self.region.nodes
            if n in self.needed and isinstance(n.op, Reduction) and self.stage[n] == stage + 1
        ]

    def full_targets(self, stage: int) -> list[Node]:
        """Return the full values that the loops of a stage store."""
        return [n for n in self.region.targets if self.is_full(n) and self.stage[n] == stage]

    def outer_targets(self) -> list[Node]:
        """Return the stored values with one element per point of the kept axes."""
        return [n for n in self.region.targets if not self.is_full(n)]

    def is_full(self, node: Node) -> bool:
        """Say whether a node of the region has one element per point of the whole nest."""
        return not isinstance(node.op, Reduction) and self.region.holds_full(node)

    @property
    def work(self) -> int:
        """The simple operations and loads per point of the nest."""
        return sum(work_of(n) for n in self.needed) + len(self.region.reads)

    def grain(self, inner: int) -> int:
        """Return how many parallel iterations of `inner` points make a task worth handing out."""
        return max(1, math.ceil(60_000 / max(1, inner * self.work)))


def work_of(node: Node) -> int:
    """Return the simple operations of a node per point of the nest."""
    match node.op:
        case Reduction():
            return 1
        case DotGeneral(contracting=(axes, _)):
            return 2 * static_size(tuple(node.inputs[0].type.shape[a] for a in axes))
        case ArgExtreme(axis=axis):
            return 4 * static_size((node.inputs[0].type.shape[axis],))
        case op:
            return price(op)


def schedule(fusion: Fusion, region: Region) -> Schedule:
    """Decide how `region` runs; may add targets to it (values that are kept in memory)."""
    axes = region.axes
    if not axes:
        layout = Layout.MAP
    else:
        layout = Layout.ROWS if axes[-1] == len(region.shape) - 1 else Layout.COLUMNS
    plan = Schedule(region, layout)
    local = {n: _local_reads(fusion, region, n) for n in region.nodes}
    _find_needed(plan, local)
    _find_stages(plan, local)
    _find_uses(plan, local)
    if layout is not Layout.MAP:
        _choose_kept(fusion, plan, local)
    elif len(region.shape) > 1:
        repeated = _repeated(fusion, plan)
        if repeated is not None:
            plan.is_flat, plan.repeated = True, repeated
            plan.period = region.shape[-1] if repeated else 0  # type: ignore[assignment]
        else:
            plan.tile = tile_of(fusion, plan.needed, region)
    return plan


def _local_reads(fusion: Fusion, region: Region, node: Node) -> list[Node]:
    """Return what `node` reads of the region at the index at which the nest computes it."""
    return [
        r.source
        for r in fusion.reads(node, region)
        if fusion.home.get(r.source) is region and r.place == region.index(r.source)
    ]


def _find_needed(plan: Schedule, local: dict[Node, list[Node]]) -> None:
    plan.needed = set(plan.region.targets)
    for node in reversed(plan.region.nodes):
        if node in plan.needed:
            plan.needed.update(local[node])


def _find_stages(plan: Schedule, local: dict[Node, list[Node]]) -> None:
    for node in plan.region.nodes:
        before = max((plan.stage[x] for x in local[node]), default=0)
        plan.stage[node] = before + isinstance(node.op, Reduction)


def _find_uses(plan: Schedule, local: dict[Node, list[Node]]) -> None:
    """Find in the loops of which stages each full value is read."""
    uses: dict[Node, set[int]] = {n: set() for n in plan.region.nodes}
    for node in reversed(plan.region.nodes):
        if node not in plan.needed:
            continue
        if isinstance(node.op, Reduction):
            stages = {plan.stage[node] - 1}
        elif plan.is_full(node):
            if node in plan.region.targets:
                uses[node].add(plan.stage[node])
            stages = uses[node]
        else:
            continue
        for x in local[node]:
            if plan.is_full(x):
                uses[x] |= stages
    plan.full_uses = uses


def _choose_kept(fusion: Fusion, plan: Schedule, local: dict[Node, list[Node]]) -> None:
    """Keep full values that several stages use and that are dear to compute again."""
    by_rows = plan.layout is Layout.ROWS
    row = static_size(tuple(plan.region.shape[a] for a in plan.region.axes or ()))
    if not by_rows:
        row *= column_block(plan.region.outer[-1])
    # By columns, running values need scratch as well.
    room = SCRATCH_BYTES if by_rows else SCRATCH_BYTES // 2
    cost: dict[Node, int] = {}
    for node in plan.region.nodes:
        if not plan.is_full(node) or node not in plan.needed:
            continue
        cost[node] = (
            price(node.op)
            + sum(cost.get(x, 1) for x in local[node])
            + _loads(fusion, plan.region, node)
        )
        nbytes = row * node.type.dtype.itemsize
        fits = nbytes <= room and node not in plan.region.targets
        limit = KEEP_FROM if by_rows or fits else SPILL_FROM
        if len(plan.full_uses[node]) < 2 or cost[node] <= limit:
            continue
        cost[node] = 1
        plan.kept[node] = min(plan.full_uses[node])
        if fits:
            room -= nbytes
        elif node not in plan.region.targets:
            fusion.store(node, "several passes read it, and scratch has no room")


def _loads(fusion: Fusion, region: Region, node: Node) -> int:
    return sum(fusion.home.get(r.source) is not region for r in fusion.reads(node, region))


def _repeated(fusion: Fusion, plan: Schedule) -> dict[Node, bool] | None:
    """Return what a map reads that is one value per row (True) or column, or None.

    None if anything else is not at the point itself and not a single number; empty: it is flat.
    """
    region, found = plan.region, dict[Node, bool]()
    pending = [n for n in region.nodes if n in plan.needed]
    seen = set(pending)
    while pending:
        node = pending.pop()
        if not plan.is_full(node) or not (
            _draws_by_count(node)
            or (is_pointwise(node.op) and not _reads_counters(fusion, node, region))
        ):
            return None
        for read in fusion.reads(node, region):
            source = read.source
            if not canonical(source.type.shape) or _is_number(fusion, region, read):
                continue
            if not region.holds_full(source) or read.place != region.index(source):
                kind = _repeats(fusion, region, read)
                if kind is None or found.setdefault(fusion.root_of(source), kind) != kind:
                    return None
            elif source not in seen and not fusion.in_memory(source, region):
                seen.add(source)
                pending.append(source)
    return found


def _draws_by_count(node: Node) -> bool:
    """Say whether a value is random bits of one key, which the count of a place is enough for."""
    return isinstance(node.op, RandomBits) and not node.inputs[0].type.shape


def _is_number(fusion: Fusion, region: Region, read: Read) -> bool:
    """Say whether a read is of one element of memory, the same for all points."""
    is_fixed = all(isinstance(place, ir.Const) for place in read.place)
    return is_fixed and fusion.in_memory(read.source, region)


def _repeats(fusion: Fusion, region: Region, read: Read) -> bool | None:
    """Say whether a read repeats one value per row (True) or per column in rows that are short."""
    lengths = region.shape
    if not all(isinstance(n, int) for n in lengths) or not fusion.in_memory(read.source, region):
        return None
    is_short = lengths[-1] < SHORT_ROW and static_size(lengths[:-1]) >= SHORT_ROW
    place = gathered(read.source.type.shape, read.place)
    axes = tuple(axis_var(a) for a in range(len(lengths)))
    if not is_short or place not in (axes[:-1], axes[-1:]):
        return None
    return place == axes[:-1]


def tile_of(fusion: Fusion, nodes: set[Node], region: Region) -> tuple[int, int] | None:
    """Return which two axes of a map to run in blocks, vectors along the second, or None.

    Vectors want an axis along which most accesses are next to each other and which is not short.
    Blocks are needed where something is read along another axis.
    """
    shape, last = region.shape, len(region.shape) - 1
    if not all(isinstance(n, int) and n for n in shape):
        return None
    accesses = [
        [_pair_stride(r, axis_var(a)) for a in range(len(shape))]
        for r in _memory_reads(fusion, nodes, region)
    ]
    rows = row_major(shape)  # type: ignore[arg-type]
    accesses += [list(rows)] * len(region.targets)
    fitting = [a for a, n in enumerate(shape) if n >= (SHORT_AXIS if a < last else SHORT_AXIS // 2)]
    if not fitting:
        return None
    score = {a: sum(strides[a] in (0, 1, -1) for strides in accesses) for a in fitting}
    along = max(fitting, key=lambda a: (score[a], a))
    if along != last:
        return last, along
    crossed = [
        a
        for a in fitting[:-1]
        if any(s[a] in (1, -1) and s[last] not in (0, 1, -1) for s in accesses)
    ]
    return (crossed[-1], last) if crossed else None


def _memory_reads(fusion: Fusion, nodes: set[Node], region: Region) -> list[Read]:
    reads = (r for n in region.nodes if n in nodes for r in fusion.reads(n, region))
    return [r for r in reads if fusion.home.get(r.source) is not region]


def _pair_stride(read: Read, axis: ir.Var) -> int | None:
    """Return `place_stride`, but in pairs where one part of pairs (of complex numbers) is read.

    The other part lies in the same lines of the cache.
    """
    stride = place_stride(read, axis)
    is_part = read.source.type.shape[-1:] == (2,) and isinstance(read.place[-1], ir.Const)
    return stride // 2 if is_part and stride is not None and stride % 2 == 0 else stride


def place_stride(read: Read, axis: ir.Var) -> int | None:
    """Return how far apart in memory a read's places for successive `axis` are, if it is known."""
    total = 0
    shape = read.source.type.shape
    is_static = all(isinstance(n, int) for n in shape)
    strides = row_major(shape) if is_static else (None,) * len(shape)
    for component, stride in zip(read.place, strides, strict=True):
        factor = _factor(component, axis)
        if factor != 0 and (factor is None or stride is None):
            return None
        total += (factor or 0) * (stride or 0)
    return total


def _factor(e: ir.Expr, axis: ir.Var) -> int | None:
    """Return the coefficient of a variable in an index expression, None if it is not linear."""
    match e:
        case ir.Var():
            return int(e == axis)
        case ir.Const():
            return 0
        case ir.Apply("add" | "sub" as name, (x, y)):
            a, b = _factor(x, axis), _factor(y, axis)
            return None if a is None or b is None else a + b if name == "add" else a - b
        case ir.Apply("mul", (x, ir.Const(c))):
            a = _factor(x, axis)
            return None if a is None else a * int(c)
    return None if any(node == axis for node in ir.walk(e)) else 0


def _reads_counters(fusion: Fusion, node: Node, region: Region) -> bool:
    """Say whether a value depends on the index itself (iota, padding), so needs all axes."""
    pending = list(node.inputs)
    while pending:
        x = pending.pop()
        if x in fusion.home or x in fusion.stored or not x.inputs:
            # An op on indices that was given a place is computed here unless it is in memory.
            moves = x in fusion.home and not computes(x.op) and not fusion.in_memory(x, region)
            if moves or isinstance(x.op, Iota):
                return True
            continue
        if not isinstance(x.op, Broadcast | Reshape):
            return True
        pending += x.inputs
    return False


def column_block(columns: Dimension) -> int:
    """Return how many columns a task of a by-columns kernel takes, a function of their number."""
    if not isinstance(columns, int):
        return COLUMN_BLOCKS[0]
    low, high = COLUMN_BLOCKS
    wanted = max(low, min(high, columns // 4))
    count = max(1, columns // wanted if wanted < high else -(-columns // high))
    # Blocks of one size, so that little is computed twice where they overlap.
    return max(1, min(columns, -(-columns // (8 * count)) * 8))


def unrolling(rows: Dimension, body: int) -> int:
    """Return how many rows one step of a by-columns kernel takes, by the work per element.

    Several rows share a load and a store of the running values; where there is much work per
    element that is no gain, and the code grows.
    """
    most = 8 if body <= 12 else 4 if body <= 24 else 2 if body <= 48 else 1
    if not isinstance(rows, int):
        return 1
    return max(1, min(most, rows))
