"""Where in the user's program a node comes from.

A location is a code object and an instruction offset, the cheapest thing a frame gives; the line
is looked up only when something is printed.  Frames of the library itself are skipped.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType, FrameType, TracebackType
from typing import Any

import numpy
import optree

from stax.config import config

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# NumPy asks proxies for their values; optree maps functions over trees.
_SKIPPED = (PACKAGE, *(os.path.dirname(str(m.__file__)) + os.sep for m in (numpy, optree)))
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
    """Say whether code belongs to the library, or to one that calls back into it."""
    known = _internal.get(code)
    if known is None:
        known = _internal[code] = code.co_filename.startswith(_SKIPPED)
    return known


_placed: ContextVar[bool] = ContextVar("stax_placed", default=True)


@contextmanager
def unplaced() -> Iterator[None]:
    """Let nodes that are made in a `with` block come from no line but that of other nodes."""
    token = _placed.set(False)
    try:
        yield
    finally:
        _placed.reset(token)


def user_source() -> Source | None:
    """Return the innermost instruction that is not the library's."""
    if not _placed.get():
        return None
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code):
            return Source(code, frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
    return None


def user_arguments() -> list[tuple[str, Any]]:
    """Return the parameters, by name, of the library's function that the user's line called.

    A leading underscore marks those that are not the user's.
    """
    frame, called = sys._getframe(1), None
    while frame is not None and is_internal(frame.f_code):
        frame, called = frame.f_back, frame  # type: ignore[assignment]
    return [] if called is None else _parameters(called)


def _parameters(frame: FrameType) -> list[tuple[str, Any]]:
    code, variables = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS)
    names = code.co_varnames[:count]
    return [(n, variables[n]) for n in names if n in variables and not n.startswith("_")]


def hide_internal(traceback: TracebackType | None) -> None:
    """Drop the library's own frames after the first, unless the setting full_traceback is on."""
    if config.full_traceback:
        return
    while traceback is not None:
        following = traceback.tb_next
        while following is not None and is_internal(following.tb_frame.f_code):
            following = following.tb_next
        traceback.tb_next = following
        traceback = following


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


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """Return `fun` with the nodes that it makes marked with `name`, or with its own name."""
    scope = name if name is not None else getattr(fun, "__name__", type(fun).__name__)

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        with named_scope(scope):
            return fun(*args, **kwargs)

    return call
