"""What the comparison needs to know of a library, and the figures it gets from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Work:
    """What a library made of a program, before it runs.

    `nodes` are the operations of its graph, `kernels` the pieces of compiled code and library
    calls that one call runs, `bytes_moved` what those read and write, `planned_bytes` what it needs
    beside its arguments: temporaries and results.
    """

    nodes: int
    kernels: int
    bytes_moved: int
    planned_bytes: int = 0


class Side(Protocol):
    """One of the two libraries: its name in the table, itself, and how it shows its work."""

    @property
    def name(self) -> str: ...

    @property
    def library(self) -> Any: ...

    def work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Work: ...
