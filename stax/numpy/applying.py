"""A function applied to the elements of an array, to each as often as a count says.

This is what `x.at[index].apply(func)` comes to, where an index may name an element several times.
A number of rounds that is known and small is unrolled, and so has every derivative; else a loop
runs until no element is due.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stax.array import asarray
from stax.control.while_loop import while_loop
from stax.graph import Graph
from stax.operators.arithmetic import add, greater
from stax.operators.elementwise import convert, select
from stax.operators.reduce import reduce_or
from stax.trace import Trace, type_of
from stax.types import ArrayType, int32

# So many rounds are unrolled, at most.
MOST_ROUNDS = 16


def apply_counted(x: Any, counts: Any, func: Callable[[Any], Any], most: int) -> Any:
    """Return `x` with `func` applied to each element as often as `counts` says, at most `most`."""
    if most > MOST_ROUNDS:
        return _looped(x, counts, func)
    for done in range(most):
        x = _round(x, counts, done, func)
    return x


def _round(x: Any, counts: Any, done: Any, func: Callable[[Any], Any]) -> Any:
    """Apply a function to the elements that are due after `done` rounds."""
    new = convert(asarray(func(x)), x.dtype, x.weak_type)
    return select(greater(counts, done), new, x)


def _looped(x: Any, counts: Any, func: Callable[[Any], Any]) -> Any:
    """Apply a function round by round, until no element is due."""
    kinds = [ArrayType(int32, ()), type_of(counts), type_of(x)]
    with Trace("apply", "while_loop") as trace:
        done, many, value = (trace.input(t) for t in kinds)
        body = trace.finish([add(done, 1), many, _round(value, many, done, func)])
        consts = list(trace.captures)
    with Trace("is_due", "while_loop") as trace:
        done, many, _ = (trace.input(t) for t in kinds)
        is_due = trace.finish([reduce_or(greater(many, done))])
    # What the function closes over comes last in a trace, and first in a loop.
    own, rest = body.inputs[: len(kinds)], body.inputs[len(kinds) :]
    body = Graph(body.name, [*rest, *own], body.nodes, body.outputs)
    start = convert(asarray(0), int32)
    return while_loop(is_due, body, [], consts, [start, counts, x])[2]
