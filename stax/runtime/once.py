"""Things a process makes once, when first needed, however many threads ask at the same time."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from stax.runtime.forking import Lock

T = TypeVar("T")


def once(create: Callable[[], T]) -> Callable[[], T]:
    """`create`, run at most once; unlike functools.cache, also when threads race. If it raises, the
    next call tries again."""
    lock = Lock()
    made: list[T] = []

    @functools.wraps(create)
    def get() -> T:
        if not made:
            with lock:
                if not made:
                    made.append(create())
        return made[0]

    get.cache_clear = made.clear  # type: ignore[attr-defined]
    return get
