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
from stax.lowering.element import canonical, static_size
from stax.lowering.fuse import Fusion, Region, is_pointwise, price
from stax.operators.broadcast import Broadcast, Reduction
from stax.operators.reshape import Reshape
from stax.operators.shape import Iota

KEEP_FROM = 8  # simple operations that a second computation may cost before it is kept
SPILL_FROM = 24  # the same where keeping means storing a whole array
SCRATCH_BYTES = 48 << 10
BLOCK = 4096
COLUMN_BLOCKS = (64, 512)


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
    that later stages or the result need.
    """

    region: Region
    layout: Layout
    is_flat: bool = False
    stage: dict[Node, int] = field(default_factory=dict)
    full_uses: dict[Node, set[int]] = field(default_factory=dict)
    needed: set[Node] = field(default_factory=set)
    kept: dict[Node, int] = field(default_factory=dict)

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

    def grain(self, inner: int) -> int:
        """Return how many parallel iterations of `inner` points make a task worth handing out."""
        work = sum(min(price(n.op), 64) for n in self.needed) + len(self.region.reads)
        return max(1, math.ceil(60_000 / max(1, inner * work)))


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
    plan.is_flat = layout is Layout.MAP and len(region.shape) > 1 and _is_flat(fusion, plan)
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
    limit = KEEP_FROM if by_rows else SPILL_FROM
    row = static_size(tuple(plan.region.shape[a] for a in plan.region.axes or ()))
    room, cost = SCRATCH_BYTES, dict[Node, int]()
    for node in plan.region.nodes:
        if not plan.is_full(node) or node not in plan.needed:
            continue
        cost[node] = (
            price(node.op)
            + sum(cost.get(x, 1) for x in local[node])
            + _loads(fusion, plan.region, node)
        )
        if len(plan.full_uses[node]) < 2 or cost[node] <= limit:
            continue
        cost[node] = 1
        nbytes = row * node.type.dtype.itemsize
        if node in plan.region.targets:
            plan.kept[node] = min(plan.full_uses[node])
        elif by_rows and nbytes <= room:
            room -= nbytes
            plan.kept[node] = min(plan.full_uses[node])
        else:
            plan.kept[node] = min(plan.full_uses[node])
            fusion.store(node)


def _loads(fusion: Fusion, region: Region, node: Node) -> int:
    return sum(fusion.home.get(r.source) is not region for r in fusion.reads(node, region))


def _is_flat(fusion: Fusion, plan: Schedule) -> bool:
    """Say whether every access of a map is at the same place or of a single number."""
    region = plan.region
    pending = [n for n in region.nodes if n in plan.needed]
    seen = set(pending)
    while pending:
        node = pending.pop()
        if not is_pointwise(node.op) or not plan.is_full(node) or _reads_counters(fusion, node):
            return False
        for read in fusion.reads(node, region):
            source = read.source
            if not canonical(source.type.shape):
                continue
            if not region.holds_full(source) or read.place != region.index(source):
                return False
            if source not in seen and not fusion.in_memory(source, region):
                seen.add(source)
                pending.append(source)
    return True


def _reads_counters(fusion: Fusion, node: Node) -> bool:
    """Say whether a value depends on the index itself (iota, padding), so needs all axes."""
    pending = list(node.inputs)
    while pending:
        x = pending.pop()
        if x in fusion.home or x in fusion.stored or not x.inputs:
            if isinstance(x.op, Iota):
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
    return min(columns, max(low, min(high, (columns // 4 + 15) // 16 * 16)))


def unrolling(rows: Dimension, body: int) -> int:
    """Return how many rows one step of a by-columns kernel takes."""
    most = 8 if body <= 8 else 4 if body <= 20 else 1
    if not isinstance(rows, int):
        return 1
    return next(u for u in (8, 4, 2, 1) if u <= most and rows % u == 0)
