"""Where in the user's program a node comes from.

A location is a code object and an instruction offset, the cheapest thing a frame gives; the line
is looked up only when something is printed.  Frames of the library itself are skipped.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_internal: dict[CodeType, bool] = {}


@dataclass(frozen=True, slots=True)
class Source:
    """An instruction of the user's program."""

    code: CodeType
    offset: int

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        number = self.code.co_firstlineno
        for start, end, line in self.code.co_lines():
            if start <= self.offset < end and line is not None:
                number = line
        return number

    def text(self) -> str:
        """Return the source line without indentation, or an empty string where there is none."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    def shown(self) -> str:
        """Return the source line followed by its place, as error messages show it."""
        text = self.text()
        return f"{text}  {self}" if text else str(self)


def is_internal(code: CodeType) -> bool:
    """Say whether code belongs to the library."""
    known = _internal.get(code)
    if known is None:
        known = _internal[code] = code.co_filename.startswith(PACKAGE)
    return known


def user_source() -> Source | None:
    """Return the innermost instruction that is not the library's."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code):
            return Source(code, frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
    return None


_scope: ContextVar[tuple[str, ...]] = ContextVar("stax_name_stack", default=())


def name_stack() -> tuple[str, ...]:
    """Return the names of the `named_scope` blocks in force, outermost first."""
    return _scope.get()


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """Mark the nodes traced in a `with` block with `name`; printed graphs and errors show it."""
    token = _scope.set((*_scope.get(), name))
    try:
        yield
    finally:
        _scope.reset(token)
