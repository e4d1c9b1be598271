"""What `explain` returns: a report of a program, and how it is written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A step of a program: what it is, what there is to know of it, and the programs it runs."""

    title: str
    facts: tuple[str, ...] = ()
    inner: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Part:
    """A program that a step runs: what it is to the step, and its own steps."""

    title: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Explanation:
    """How a function is computed.

    `route` says by what, and why; `before` what was rewritten before there were steps; `copies`
    which values are copied, `host_calls` what calls back to Python, and `memory` what a call needs.
    Whatever a loop or a branch does is in the `inner` parts of its entry, and in the last three.
    """

    title: str
    route: str
    before: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    copies: tuple[str, ...] = ()
    host_calls: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()

    @property
    def all_entries(self) -> list[Entry]:
        """The steps in order, each before those of the programs that it runs."""
        return list(_walk(self.entries))

    def __str__(self) -> str:
        lines = [f"{self.title}", f"  route: {self.route}"]
        lines += _section("rewritten before", self.before)
        lines += _steps(self.entries, 1)
        lines += _section("copies", self.copies or (("none",) if self.entries else ()))
        lines += _section("HOST CALLS", self.host_calls)
        lines += _section("memory", self.memory)
        return "\n".join(lines)


def _walk(entries: tuple[Entry, ...]) -> Iterator[Entry]:
    for entry in entries:
        yield entry
        for part in entry.inner:
            yield from _walk(part.entries)


def _section(title: str, facts: tuple[str, ...]) -> list[str]:
    return [f"  {title}:", *(f"    {fact}" for fact in facts)] if facts else []


def _steps(entries: tuple[Entry, ...], depth: int) -> list[str]:
    lines, margin = [], "  " * depth
    for number, entry in enumerate(entries, 1):
        lines.append(f"{margin}{number}. {entry.title}")
        lines += [f"{margin}     {fact}" for fact in entry.facts]
        for part in entry.inner:
            lines.append(f"{margin}     {part.title}:")
            lines += _steps(part.entries, depth + 3)
    return lines
