"""Packing values into memory: which bytes each has, from the step that makes it to its last reader.

Values that are never alive together may have the same bytes.  The largest are placed first, each at
the lowest place that is free for as long as it lives; before results are written, their memory is
free as well.  Where there are very many values, which that would take long for, each is placed when
it is made, at the best fitting place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stax.lowering.element import ALIGNMENT, aligned

# Up to so many values are placed by size.
MANY = 256


class Life(NamedTuple):
    """The first and the last step that a value is needed in, and its size."""

    first: int
    last: int
    nbytes: int


class Spot(NamedTuple):
    """A place: the number of a result, or -1 for the arena, and how many bytes into it."""

    result: int
    offset: int


@dataclass
class _Room:
    """A stretch of memory: how long it is, the step that it is free until, and what is in it."""

    number: int
    nbytes: int | None = None
    until: int | None = None
    taken: list[tuple[int, int, Life]] = field(default_factory=list)  # begin, end; by begin

    def spot(self, life: Life) -> int | None:
        """Return the lowest place for a value, if there is one."""
        if self.until is not None and life.last >= self.until:
            return None
        size, at = _size(life), 0
        for begin, end, other in self.taken:
            if other.first > life.last or other.last < life.first:
                continue
            if begin - at >= size:
                break
            at = max(at, end)
        return at if self.nbytes is None or at + life.nbytes <= self.nbytes else None

    def put(self, life: Life, at: int) -> None:
        self.taken.append((at, at + _size(life), life))
        self.taken.sort(key=lambda piece: piece[0])


def _size(life: Life) -> int:
    return max(ALIGNMENT, aligned(life.nbytes))


def packed(lives: Sequence[Life], results: Sequence[Life]) -> tuple[list[Spot], int]:
    """Return where values are, and the size of the arena that those need that are in no result.

    `results` says of each result how large it is and, as its first step, when it is written.
    """
    if len(lives) > MANY:
        return _as_they_come(lives)
    rooms = [_Room(i, life.nbytes, life.first) for i, life in enumerate(results)]
    rooms = sorted((r for r in rooms if r.until), key=lambda room: room.nbytes or 0)
    arena = _Room(-1)
    spots = [Spot(-1, 0)] * len(lives)
    for i in sorted(range(len(lives)), key=lambda i: (-lives[i].nbytes, lives[i].first)):
        for room in (*rooms, arena):
            at = room.spot(lives[i])
            if at is not None:
                room.put(lives[i], at)
                spots[i] = Spot(room.number, at)
                break
    return spots, max((end for _, end, _ in arena.taken), default=0)


def _as_they_come(lives: Sequence[Life]) -> tuple[list[Spot], int]:
    """Place values in the order in which they are made."""
    arena, spots = _Arena(), [Spot(-1, 0)] * len(lives)
    dying: dict[int, list[int]] = {}
    for i, life in enumerate(lives):
        dying.setdefault(life.last, []).append(i)
    step = -1
    for i in sorted(range(len(lives)), key=lambda i: lives[i].first):
        while step < lives[i].first - 1:
            step += 1
            for dead in dying.get(step, ()):
                arena.give(spots[dead].offset, _size(lives[dead]))
        spots[i] = Spot(-1, arena.take(_size(lives[i])))
    return spots, arena.size


class _Arena:
    """Hands out stretches of one block of memory: the best fitting free one."""

    def __init__(self) -> None:
        self.size = 0
        self.free: list[tuple[int, int]] = []  # offset, length; sorted by offset, never adjacent

    def take(self, nbytes: int) -> int:
        """Return the offset of a stretch of `nbytes`."""
        fitting = [stretch for stretch in self.free if stretch[1] >= nbytes]
        if fitting:
            offset, length = min(fitting, key=lambda stretch: stretch[1])
            self.free.remove((offset, length))
            if length > nbytes:
                self.give(offset + nbytes, length - nbytes)
            return offset
        if self.free and sum(self.free[-1]) == self.size:
            offset, _ = self.free.pop()
        else:
            offset = self.size
        self.size = offset + nbytes
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """Take a stretch back and join it to free neighbours."""
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self.free, (offset, nbytes)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = merged[-1][0], merged[-1][1] + length
            else:
                merged.append((start, length))
        self.free = merged
