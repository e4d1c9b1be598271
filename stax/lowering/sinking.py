"""Computing values where they are read: late, instead of stored early.

Fusion meets a value before its readers, and puts it beside what reads the same.  Where one kernel
alone reads such values, later and element by element, they are computed there, with all that only
they need, if that stores less: what the readers' kernel has to read instead counts as well.
"""

from __future__ import annotations

import math

from stax.extent import Extent, same_shape
from stax.graph import Input, Node
from stax.lowering.decisions import decided
from stax.lowering.fuse import (
    REGION_LIMIT,
    REGION_READS,
    Fusion,
    Region,
    is_free,
    is_pointwise,
    weight,
)


def sunk(fusion: Fusion) -> Fusion:
    """Return `fusion`, of which values have moved to the kernels that read them."""
    users: dict[Node, list[Node]] = {}
    for node in fusion.graph.nodes:
        for x in node.inputs:
            users.setdefault(x, []).append(node)
    kept = set(fusion.graph.outputs)
    number = {node: i for i, node in enumerate(fusion.graph.nodes)}
    changed: dict[Region, None] = {}
    for region in sorted(fusion.regions, key=lambda r: r.level, reverse=True):
        for reader in _readers(fusion, region, users, kept):
            if _move(fusion, region, reader, users, kept):
                changed[reader] = None
    for region in changed:
        region.nodes.sort(key=number.__getitem__)
    fusion.regions = [r for r in fusion.regions if r.targets]
    return fusion


def _readers(
    fusion: Fusion, region: Region, users: dict[Node, list[Node]], kept: set[Node]
) -> list[Region]:
    """Return the later regions of the same nest that read what `region` stores, each once."""
    found: dict[Region, None] = {}
    for x in region.targets:
        homes = {fusion.home.get(u) for u in users.get(x, ())} - {region}
        if x not in kept and len(homes) == 1 and None not in homes:
            found[homes.pop()] = None  # type: ignore[index]
    return [r for r in found if r.level > region.level and same_shape(r.shape, region.shape)]


def _move(
    fusion: Fusion,
    region: Region,
    reader: Region,
    users: dict[Node, list[Node]],
    kept: set[Node],
) -> bool:
    """Move what only `reader` needs there, if less is stored then; says whether it did."""
    moved: dict[Node, None] = {}
    for node in reversed(region.nodes):
        fits = node not in kept and is_pointwise(node.op) and reader.holds_full(node)
        if fits and all(_is_there(fusion, node, u, reader, moved) for u in users.get(node, ())):
            moved[node] = None
    stored = [node for node in moved if node in fusion.stored]
    if not stored:
        return False
    needed = _needed(stored, moved)
    sources = _sources(fusion, needed, reader)
    more = sum(map(weight, needed))
    fits = reader.weight + more <= REGION_LIMIT and len(reader.reads) + len(sources) <= REGION_READS
    if not fits or _size(stored) <= _size(sources):
        return False
    decided(
        f"{', '.join(n.op.name for n in stored)} computed in the kernel that reads them, "
        "instead of stored before",
        stored[0].source,
    )
    fusion.move(needed, region, reader)
    return True


def _is_there(
    fusion: Fusion, node: Node, user: Node, reader: Region, moved: dict[Node, None]
) -> bool:
    """Say whether `user` moves along, or reads `node` in `reader` where that computes it."""
    if user in moved:
        return True
    if fusion.home.get(user) is not reader:
        return False
    reads = [r for r in fusion.reads(user, reader) if r.source is node]
    return bool(reads) and all(r.place == reader.index(node) for r in reads)


def _needed(stored: list[Node], moved: dict[Node, None]) -> list[Node]:
    """Return what moves, in the order in which it is computed."""
    wanted, pending = set(stored), list(stored)
    while pending:
        for x in pending.pop().inputs:
            if x in moved and x not in wanted:
                wanted.add(x)
                pending.append(x)
    return [n for n in reversed(moved) if n in wanted]


def _sources(fusion: Fusion, needed: list[Node], reader: Region) -> list[Node]:
    """Return what `reader` then has to read from memory as well, but for arguments."""
    inside = set(needed)
    found: dict[Node, None] = {}
    for node in needed:
        for read in fusion.reads(node, fusion.home[node]):
            x = read.source
            is_read = x in inside or x in reader.reads or is_free(x)
            is_here = isinstance(fusion.root_of(x).op, Input)
            if not is_read and not is_here:
                found[x] = None
    return list(found)


def _size(nodes: list[Node]) -> float:
    return sum(
        math.inf
        if any(isinstance(n, Extent) for n in node.type.shape)
        else math.prod(node.type.shape) * node.type.dtype.itemsize
        for node in nodes
    )
