"""NumPy and SciPy as a third side, for programs that need no more of a library than they have.

Their loops are Python's, as whoever writes for NumPy would write them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy
import scipy.linalg
import scipy.special

from stax.compare.side import Work
from stax.tree_util import tree_map


def _fori_loop(lower: int, upper: int, body: Callable[..., Any], state: Any) -> Any:
    for index in range(lower, upper):
        state = body(index, state)
    return state


def _while_loop(unfinished: Callable[..., Any], body: Callable[..., Any], state: Any) -> Any:
    while unfinished(state):
        state = body(state)
    return state


def _scan(
    body: Callable[..., Any], state: Any, rows: Any, length: int = 0, reverse: bool = False
) -> Any:
    """Run `body` over the rows of one array or of a tuple of arrays, and stack what it returns."""
    tables = rows if isinstance(rows, tuple) else () if rows is None else (rows,)
    places = range(len(tables[0]) if tables else length)
    results: list[Any] = []
    for place in reversed(places) if reverse else places:
        row = tuple(table[place] for table in tables)
        state, result = body(state, row if isinstance(rows, tuple) else row[0] if row else None)
        results.append(result)
    if reverse:
        results.reverse()
    if isinstance(results[0], tuple):
        return state, tuple(np.stack(parts) for parts in zip(*results, strict=True))
    return state, None if results[0] is None else np.stack(results)


LIBRARY = SimpleNamespace(
    numpy=np,
    scipy=scipy,
    lax=SimpleNamespace(fori_loop=_fori_loop, while_loop=_while_loop, scan=_scan),
    tree_util=SimpleNamespace(tree_map=tree_map),
    jit=lambda function: function,
)


class NumpySide:
    """NumPy, as a side: it compiles nothing and plans nothing."""

    name = "NumPy"
    library = LIBRARY

    def work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Work:
        return Work(0, 0, 0)
