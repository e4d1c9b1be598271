"""debug_nans and debug_infs: which operation made a value that is not a number, or not finite.

Checked is what a function returns that runs as a whole, compiled or under an eager transform, and
what each step of its loops and each branch taken returns; outside of those, every operation.  What
is masked before that is no error.  Told is the first operation, in the order of the program, that
made such a value of operands without one and on which the result depends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from stax.config import config
from stax.errors import NonFiniteError, Value
from stax.graph import Constant, Graph, Input, Node, Project
from stax.op import Op
from stax.trace import described, doing, operand_rows
from stax.types import ArrayType, is_inexact


def is_bad(value: Any) -> bool:
    """Say whether an array, or one of several, holds what is looked for."""
    if isinstance(value, tuple):
        return any(map(is_bad, value))
    if not is_inexact(value.dtype):
        return False
    wide = value.astype(np.float32) if value.dtype.kind == "V" else value  # bfloat16 and its kin
    nan = config.debug_nans and bool(np.isnan(wide).any())
    return nan or (config.debug_infs and bool(np.isinf(wide).any()))


class Place(NamedTuple):
    """A value that is looked at: the node that made it, and the numbers of those that it read."""

    node: Node
    operands: tuple[int, ...]


def culprit(places: Sequence[Place], bad: Sequence[bool], results: Iterable[int]) -> Node | None:
    """Return the node that made the first bad value that a bad one of `results` depends on.

    An input is told only where no operation is to blame.
    """
    pending, seen = [i for i in results if bad[i]], set[int]()
    makers = []
    while pending:
        i = pending.pop()
        if i in seen:
            continue
        seen.add(i)
        before = [k for k in places[i].operands if bad[k]]
        pending += before
        if not before:
            makers.append(i)
    makers.sort(key=lambda i: (isinstance(places[i].node.op, Input), i))
    return places[makers[0]].node if makers else None


def check_values(graph: Graph, bad: Mapping[Node, bool], inner: bool) -> None:
    """Raise NonFiniteError if an output of `graph` is bad, given which values are.

    An `inner` graph that was given bad values is left for the one around it.
    """
    if not any(bad[x] for x in graph.outputs):
        return
    nodes = [*graph.inputs, *graph.nodes]
    number = {x: i for i, x in enumerate(nodes)}
    places = [Place(x, tuple(number[y] for y in x.inputs)) for x in nodes]
    found = culprit(places, [bad[x] for x in nodes], [number[x] for x in graph.outputs])
    report(found, graph.name, inner)


def report(node: Node | None, name: str, inner: bool) -> None:
    """Raise NonFiniteError for the node that is to blame."""
    if node is None or (inner and isinstance(node.op, Input)):
        return
    source = node.inputs[0] if isinstance(node.op, Project) else node
    if isinstance(node.op, Input):
        rule = f"{name} was given {_what()}, in {node.label or 'an array that it closes over'}"
    else:
        rule = f"{source.op.name} in {name} made {_what()}"
    raise NonFiniteError(
        f"{rule} ({_settings()}).",
        values=list(_rows(node, source)),
        doing=[f"running {name}"],
        advice=_ADVICE,
    )


def _rows(node: Node, source: Node) -> Iterator[Value]:
    label = source.label or source.op.name
    yield label, repr(node.type), source.source.shown() if source.source else ""
    for name, kind, where in operand_rows(
        [x.type for x in source.inputs], [described(x) for x in source.inputs]
    ):
        yield f"  its {name}", kind, where


def check_result(op: Op, types: Sequence[ArrayType], value: Any) -> None:
    """Raise NonFiniteError if an op that was run by itself made what is looked for."""
    if isinstance(op, Constant) or not is_bad(value):
        return
    raise NonFiniteError(
        f"{op.name} made {_what()} ({_settings()}).",
        values=operand_rows(types, [""] * len(types)),
        doing=doing(),
        advice=_ADVICE,
    )


_ADVICE = "Look at its operands, or turn the setting off where such values are meant."


def _what() -> str:
    names = [("a NaN", config.debug_nans), ("an infinity", config.debug_infs)]
    return " or ".join(name for name, on in names if on)


def _settings() -> str:
    return ", ".join(name for name in ("debug_nans", "debug_infs") if config.read(name))
