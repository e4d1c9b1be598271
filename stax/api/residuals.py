"""What reverse mode of a function keeps: the report of `inspect.saved_residuals`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stax.api.derivatives import pullback_parts
from stax.api.tracing import (
    check_callable,
    flatten_arguments,
    function_name,
    labels,
    trace_function,
)
from stax.control import HoldsGraphs
from stax.extent import Extent
from stax.graph import Input, Node, Project
from stax.interpreters.remat import TYPICAL, Entry, Report, nbytes, reporting
from stax.operators.bits import OptimizationBarrier
from stax.operators.gradient import CheckpointName
from stax.types import is_inexact


@dataclass(frozen=True)
class SavedResiduals:
    """What is saved and what is computed again: a report of the function, then one of each loop and
    each checkpoint in it.  `str()` of it is a table."""

    reports: tuple[Report, ...]

    @property
    def saved(self) -> list[Entry]:
        """The values that are saved, all reports together."""
        return [e for report in self.reports for e in report.entries if e.saved]

    @property
    def recomputed(self) -> list[Entry]:
        """The values that are read in reverse mode and computed again."""
        return [e for report in self.reports for e in report.entries if not e.saved]

    @property
    def nbytes(self) -> int:
        """The bytes that are saved for reverse mode alone, those of loops included.

        Arguments and results exist anyway and do not count.
        """
        return saved_bytes(self.reports[0])

    def __str__(self) -> str:
        return "\n\n".join(map(_text, self.reports))


def saved_residuals(fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return what the pullback of `fun` keeps for arguments, which may be ShapeDtypeStructs."""
    check_callable("saved_residuals", fun)
    arguments = flatten_arguments("saved_residuals", args, kwargs)
    names = labels(fun, args, kwargs)
    traced = trace_function(fun, arguments, "saved_residuals", names=names)
    with reporting() as found:
        pullback_parts(traced, [is_inexact(t.dtype) for t in arguments.types])
    return SavedResiduals((Report(function_name(fun), found[-1].entries), *found[:-1]))


def print_saved_residuals(f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Print the type and the origin of each value that reverse mode of `f` saves.

    `inspect.saved_residuals` also says why, and what is computed again.
    """
    for entry in saved_residuals(f, args, kwargs).reports[0].entries:
        if entry.saved:
            print(f"{entry.node.type!r} {described(entry.node)}")


def saved_bytes(report: Report) -> int:
    """Return the bytes that are saved for reverse mode alone."""
    entries = [e for e in report.entries if e.saved and not e.there]
    return report.steps * sum(nbytes(e.node.type) for e in entries)


def described(node: Node) -> str:
    """Say what a value is, in the words of JAX."""
    source = _origin(node)
    where = f" from {source.source}" if source.source else ""
    if isinstance(source.op, Input):
        return f"from the argument {source.label}" if source.label else "from a value closed over"
    if isinstance(source.op, CheckpointName):
        return f"named '{source.op.label}'{where}"
    return f"output of {source.op.name}{where}"


def _origin(node: Node) -> Node:
    """Return the node that a person knows a value by: what is behind barriers and in calls."""
    while isinstance(node.op, Project | OptimizationBarrier):
        source = node.inputs[0]
        if isinstance(node.op, Project) and isinstance(source.op, HoldsGraphs):
            held = source.op.applied
            inner = held.outputs[node.op.position] if held else source
            if isinstance(inner.op, Input):
                return source
            source = inner
        node = source
    return node


def _text(report: Report) -> str:
    saved, nbytes_ = sum(e.saved for e in report.entries), saved_bytes(report)
    size = shown_size(nbytes_)
    if report.steps > 1:
        size = f"{shown_size(nbytes_ // report.steps)} a step, {size}"
    again = len(report.entries) - saved
    head = f"{report.title}: {saved} saved, {size} for reverse mode alone; {again} computed again"
    rows = [_row(e) for e in report.entries]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n  ".join([head, *lines])


def _row(entry: Entry) -> tuple[str, ...]:
    type_, source = entry.node.type, _origin(entry.node)
    name, where = source.op.name, source.source.shown() if source.source else ""
    if isinstance(source.op, Input):
        name, where = f"argument {source.label}".rstrip(), ""
    elif isinstance(source.op, CheckpointName):
        name = f"name '{source.op.label}'"
    word, size = "saved" if entry.saved else "again", shown_size(nbytes(type_))
    if any(isinstance(n, Extent) for n in type_.shape):
        size += f" if {TYPICAL} long"
    return word, repr(type_), size, name, entry.why, where


def shown_size(count: int) -> str:
    """Return a number of bytes with a unit, in three digits."""
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(len(units) - 1, int(math.log(count, 1000)) if count else 0)
    return f"{count / 1000**power:.3g} {units[power]}"
