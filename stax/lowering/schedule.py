"""How the nest of a region is run: its layout, its stages, and what is kept between them.

The layout follows memory.  A region that reduces its last axis runs *by rows*: a parallel loop over
the axes that are kept, vector loops along the row.  Rows that fill no vector are *short rows*:
vectors go across many of them, and each row is unrolled.  A region that keeps its last axis runs
*by columns*: a parallel loop over blocks of columns, a serial loop down the rows, vector loops
across the block.  A region without reductions is a *map*.

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
from stax.lowering.element import canonical, gathered, is_unit, static_size
from stax.lowering.fuse import (
    MATH_PRICE,
    UNBOUNDED,
    Fusion,
    Read,
    Region,
    axis_var,
    computes,
    is_pointwise,
    price,
)
from stax.lowering.gemm import row_major
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.contract import DotGeneral
from stax.operators.random import RandomBits
from stax.operators.reduce import ArgExtreme
from stax.operators.reshape import Reshape
from stax.operators.shape import Iota
from stax.types import is_float

KEEP_FROM = 8  # simple operations that a second computation may cost before it is kept
SPILL_FROM = 24  # the same where keeping means storing a whole array
SCRATCH_BYTES = 48 << 10
BLOCK = 4096
COLUMN_BLOCKS = (64, 512)
# Rows shorter than this are run several at a time; an axis shorter than that fills no vector.
SHORT_ROW = 32
SHORT_AXIS = 8
# Rows that are unrolled: their lengths at most, also where whole rows are stored, and the
# operations, all of which are in one loop body.
SHORT_REDUCED, SHORT_STORED = 15, 3
UNROLLED = 256
# Rows that vectors go across where what they read can be staged.
STAGED_ROW = 64
# Both sides of what is turned in registers, at least.
TURNED = 16
# Beyond this, a column of a tile may have more lines than a cache has room for where they lie.
TURNED_BYTES = 1 << 21


class Layout(enum.Enum):
    """Which loop runs along memory."""

    MAP = "map"
    ROWS = "rows"
    SHORT_ROWS = "short rows"
    COLUMNS = "columns"


@dataclass(eq=False)
class Schedule:
    """The decisions for one region.

    `stage` says after how many finished reductions a node can be computed; `full_uses` in which
    stages a full value is read; `kept` are full values held in scratch, `kept_outer` outer values
    that later stages or the result need.  A map is flat, or repeats with a `period`: then
    `repeated` says which values it reads per row (True) or per column.  `tile` is two axes to run
    in blocks, the second with vectors along it.  `staged` are values that short rows, or
    the vectors of a tile, read a row apart, and at which axes: they are laid out in scratch.
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
    staged: tuple[tuple[Node, tuple[int, ...]], ...] = ()

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
    plan = Schedule(region, _layout(region))
    local = {n: _local_reads(fusion, region, n) for n in region.nodes}
    _find_needed(plan, local)
    _find_stages(plan, local)
    _find_uses(plan, local)
    if plan.layout in (Layout.ROWS, Layout.COLUMNS):
        _choose_kept(fusion, plan, local)
    if plan.layout in (Layout.ROWS, Layout.SHORT_ROWS) and not plan.kept:
        plan.staged = _staged(fusion, plan)
        plan.layout = Layout.SHORT_ROWS if plan.staged else plan.layout
    if plan.layout is Layout.MAP and len(region.shape) > 1:
        repeated = _repeated(fusion, plan)
        if repeated is not None:
            plan.is_flat, plan.repeated = True, repeated
            plan.period = region.shape[-1] if repeated else 0  # type: ignore[assignment]
        else:
            plan.tile = tile_of(fusion, plan.needed, region)
            plan.staged = _turned(fusion, plan)
    return plan


def _layout(region: Region) -> Layout:
    if not region.axes:
        return Layout.MAP
    if region.axes[-1] != len(region.shape) - 1:
        return Layout.COLUMNS
    return Layout.SHORT_ROWS if _has_short_rows(region) else Layout.ROWS


def _has_short_rows(region: Region) -> bool:
    """Say whether vectors across rows, whose elements lie a row apart, beat those along a row."""
    row, outer = tuple(region.shape[a] for a in region.axes or ()), region.outer
    if not outer or not all(isinstance(n, int) for n in row):
        return False
    length = static_size(row)
    most = SHORT_REDUCED
    if any(map(region.holds_full, region.targets)):
        # Elements are stored one by one, which only work along a row is worth.
        is_dear = any(MATH_PRICE <= price(n.op) < UNBOUNDED for n in region.nodes)
        most = SHORT_AXIS if is_dear else SHORT_STORED
    is_long = not isinstance(outer[-1], int) or outer[-1] >= 2 * SHORT_REDUCED
    is_small = region.weight * length <= UNROLLED
    is_wide = all(n.type.dtype.itemsize >= 4 for n in (*region.reads, *region.targets))
    return 0 < length <= most and is_long and is_small and is_wide


def _staged(fusion: Fusion, plan: Schedule) -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """Return what has to be staged for vectors across rows of one pass; nothing if it is no gain.

    With vectors along such rows, taking the lanes of each sum together would set the pace.
    """
    region, shape = plan.region, plan.region.shape
    if region.axes != (len(shape) - 1,) or len(shape) < 3 or not all(map(_is_known, shape)):
        return ()
    lead, across = len(shape) - 3, len(shape) - 2
    is_fit = shape[-1] <= STAGED_ROW and shape[across] >= SHORT_ROW
    nodes = [n for n in region.nodes if n in plan.needed]
    is_one_pass = all(plan.stage[n] == 0 for n in nodes if plan.is_full(n))
    is_plain = all(is_pointwise(n.op) or isinstance(n.op, Reduction) for n in nodes)
    if not (is_fit and is_one_pass and is_plain) or shape[lead] < SHORT_ROW:
        return ()
    if any(map(region.holds_full, region.targets)):
        return ()
    found: dict[tuple[Node, tuple[int, ...]], None] = {}
    axes = {axis_var(a): a for a in range(len(shape)) if a != lead}
    for read in _memory_reads(fusion, plan.needed, region):
        source = read.source
        if not fusion.in_memory(source, region):
            return ()
        if place_stride(read, axis_var(across)) in (0, 1, -1):
            continue
        pairs = zip(read.place, source.type.shape, strict=True)
        place = [component for component, length in pairs if not is_unit(length)]
        if not all(isinstance(c, ir.Var) and c in axes for c in place):
            return ()
        found[source, tuple(axes[c] for c in place if isinstance(c, ir.Var))] = None
    return tuple(found)


def _turned(fusion: Fusion, plan: Schedule) -> tuple[tuple[Node, tuple[int, ...]], ...]:
    """Return what a tiled map reads along the other axis of its tiles, and just there."""
    if plan.tile is None or any(static_size((plan.region.shape[a],)) < TURNED for a in plan.tile):
        return ()
    found: dict[tuple[Node, tuple[int, ...]], None] = {}
    axes = {axis_var(a): a for a in range(len(plan.region.shape))}
    for read in _memory_reads(fusion, plan.needed, plan.region):
        strides = [place_stride(read, axis_var(a)) for a in plan.tile]
        if strides[0] not in (1, -1) or strides[1] in (0, 1, -1) or not _is_turned(read.source):
            continue
        pairs = zip(read.place, read.source.type.shape, strict=True)
        place = [component for component, length in pairs if not is_unit(length)]
        if all(isinstance(c, ir.Var) and c in axes for c in place):
            found[read.source, tuple(axes[c] for c in place if isinstance(c, ir.Var))] = None
    return tuple(found)


def _is_turned(node: Node) -> bool:
    """Say whether a value is large, and a vector of it no longer than a block."""
    dtype = node.type.dtype
    nbytes = static_size(node.type.shape) * int(dtype.itemsize)
    return nbytes >= TURNED_BYTES and (dtype.itemsize >= 4 or is_float(dtype))


def _is_known(length: Dimension) -> bool:
    return isinstance(length, int) and length > 0


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
    *_, last = read.source.type.shape or (0,)
    is_part = isinstance(last, int) and last == 2 and isinstance(read.place[-1], ir.Const)
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
    # The wider a block, the longer the stretches of memory that are read of each row.
    low, high = COLUMN_BLOCKS
    wanted = max(low, min(high, columns // 2))
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
