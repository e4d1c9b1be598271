"""Locks and fork(): a child has one thread, so no lock may stay held by another that is not there.

Locks of the compiler are taken for the fork, which waits for a compilation to end, since LLVM's own
state must not be cut in half; all other locks are new in the child, where what they guarded is
either there or made again.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType
from typing import Any, Protocol


class Held(Protocol):
    """A lock as a context manager."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *error: Any) -> Any: ...


class Lock:
    """A re-entrant lock, for `with`, that is free in the child of a fork whoever held it."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self.renew()
        _renewed.add(self)

    def renew(self) -> None:
        """Be free, whoever holds the lock."""
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


_renewed: weakref.WeakSet[Lock] = weakref.WeakSet()
_held: list[Held] = []


def hold_during_fork(lock: Held) -> None:
    """Take `lock` before a fork and give it back after, in the parent and in the child."""
    _held.append(lock)


def _before() -> None:
    for lock in _held:
        lock.__enter__()


def _after() -> None:
    for lock in reversed(_held):
        lock.__exit__(None, None, None)


def _after_in_child() -> None:
    _after()
    for lock in list(_renewed):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
