"""What passes before fusion decide, told to whoever asks: `inspect.explain` does.

These passes write a graph again, so what they decided cannot be seen in it any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from stax.source import Source


class Decision(NamedTuple):
    """What was done, and the line of the user's program that it was done to."""

    what: str
    source: Source | None = None


_decisions: ContextVar[list[Decision] | None] = ContextVar("stax_decisions", default=None)


@contextmanager
def deciding() -> Iterator[list[Decision]]:
    """Collect the decisions made in a `with` block."""
    found: list[Decision] = []
    token = _decisions.set(found)
    try:
        yield found
    finally:
        _decisions.reset(token)


def decided(what: str, source: Source | None = None) -> None:
    """Tell whoever collects decisions what was done, and to which line."""
    found = _decisions.get()
    if found is not None:
        found.append(Decision(what, source))
