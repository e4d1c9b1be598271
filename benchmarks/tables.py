"""What was measured as tables, for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table as RichTable

from benchmarks.fresh import Fresh
from benchmarks.programs import KINDS
from benchmarks.result import Result, Summary, by_kind, summarise
from stax.compare import report

NOTES = (
    "error: the largest difference from JAX's result, over its largest value; = means the same "
    "bits.",
    "Stax, JAX, NumPy: the median of later calls, each waited for, in turns in one process.",
    "JAX/Stax, NumPy/Stax: median of the ratios of neighbouring bursts; middle half: of JAX/Stax.",
    "first: the first call in a process that has compiled others, JAX's time over that of Stax.",
    "faults: minor page faults of a call, Stax / JAX.",
)
MEMORY_NOTE = "planned: temporaries and results by each compiler's own analysis; below 1 is less."
FRESH_NOTE = (
    "fresh: a process of its own, import not counted; cold: nothing in the caches on disk, warm: "
    "what that process left there. added: peak of resident memory over that before the call."
)
KIND_NOTES = (
    "later calls, odd sizes: geometric mean of JAX's times over those of Stax, in turns in one "
    "process; at round sizes and at such as 777 777 or 255 × 257.",
    "first call: the same of first calls, which trace and compile.",
    "memory: geometric mean of Stax's planned bytes, temporaries and results, over JAX's.",
    "NumPy: its times over those of Stax, where NumPy runs the program as it stands.",
)


@dataclass(frozen=True)
class Table:
    """Headings and cells; the first column is text, the others are numbers."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]

    def as_rich(self) -> RichTable:
        """Return the table for a terminal."""
        made = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
        made.add_column(self.headings[0], no_wrap=True)
        for heading in self.headings[1:]:
            made.add_column(heading, justify="right", no_wrap=True)
        for line in self.lines:
            made.add_row(*line)
        return made

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        rule = f"|:---|{'---:|' * (len(self.headings) - 1)}"
        lines = [f"| {' | '.join(cells)} |" for cells in (self.headings, *self.lines)]
        return "\n".join([lines[0], rule, *lines[1:]])


def ratio(value: float | None) -> str:
    """Return a ratio, or nothing where it was not taken."""
    return report.times(value) if value else ""


def times_of_calls(measured: Sequence[Result]) -> Table:
    """Return the table of run times, a line for each program."""
    headings = ("program", "error", "Stax", "JAX", "NumPy", "JAX/Stax", "middle half",
                "NumPy/Stax", "first", "faults")  # fmt: skip
    return Table("Later calls", headings, tuple(map(_times, measured)))


def _times(result: Result) -> tuple[str, ...]:
    row = result.row
    if not row.stax or not row.jax or not row.speedup:
        return (row.name, "failed", *[""] * 8)
    return (
        row.name,
        "failed" if row.failure else report.error(row.error),
        report.seconds(row.stax.call_seconds),
        report.seconds(row.jax.call_seconds),
        report.seconds(row.third.call_seconds) if row.third else "",
        ratio(row.speedup.median),
        report.spread(row.speedup),
        ratio(row.third.speedup.median) if row.third else "",
        ratio(row.first_speedup),
        f"{row.stax.page_faults:.0f} / {row.jax.page_faults:.0f}",
    )


def planned_memory(measured: Sequence[Result]) -> Table:
    """Return the table of planned bytes."""
    lines = [
        (
            r.row.name,
            report.size(r.row.stax.planned_bytes),
            report.size(r.row.jax.planned_bytes),
            f"{r.memory:.2f}" if r.memory is not None else "",
        )
        for r in measured
        if r.row.stax and r.row.jax
    ]
    return Table("Planned memory", ("program", "Stax", "JAX", "Stax/JAX"), tuple(lines))


def first_calls(measured: Sequence[Result]) -> Table:
    """Return the table of first calls in fresh processes."""
    headings = ("program", "cold", "JAX cold", "JAX/Stax", "warm", "JAX warm", "JAX/Stax",
                "added", "JAX added")  # fmt: skip
    lines = [_first(r, r.stax_fresh, r.jax_fresh) for r in measured if r.stax_fresh and r.jax_fresh]
    return Table("First calls in fresh processes", headings, tuple(lines))


def _first(result: Result, mine: Fresh, other: Fresh) -> tuple[str, ...]:
    return (
        result.row.name,
        report.seconds(mine.cold.first_seconds),
        report.seconds(other.cold.first_seconds),
        ratio(result.fresh_speedup(warm=False)),
        report.seconds(mine.warm.first_seconds),
        report.seconds(other.warm.first_seconds),
        ratio(result.fresh_speedup(warm=True)),
        report.size(mine.cold.added_bytes),
        report.size(other.cold.added_bytes),
    )


def kinds(measured: Sequence[Result]) -> Table:
    """Return the geometric means of each kind."""
    headings = ("kind", "programs", "agree", "JAX/Stax", "NumPy/Stax", "first", "memory",
                "least ahead")  # fmt: skip
    parts = {KINDS[kind]: summarise(part) for kind, part in by_kind(measured).items()}
    parts["all"] = summarise(measured)
    lines = [
        (
            title,
            str(part.programs),
            str(part.same),
            ratio(part.speedup),
            ratio(part.numpy_speedup),
            ratio(part.first_speedup),
            f"{part.memory:.2f}" if part.memory else "",
            part.slowest or "",
        )
        for title, part in parts.items()
    ]
    return Table("By kind, geometric means", headings, tuple(lines))


def both_sizes(at_round: Sequence[Result], at_odd: Sequence[Result]) -> Table:
    """Return the means of each kind at round and at odd sizes: the table of the README."""
    headings = ("kind", "programs", "later calls", "odd sizes", "first call", "memory", "NumPy")
    rounds, odds = by_kind(at_round), by_kind(at_odd)
    parts = {KINDS[kind]: (summarise(rounds[kind]), summarise(odds[kind])) for kind in rounds}
    parts["all"] = summarise(at_round), summarise(at_odd)
    lines = [
        (
            title,
            str(one.programs),
            ratio(one.speedup),
            ratio(other.speedup),
            ratio(one.first_speedup),
            f"{one.memory:.2f}" if one.memory else "",
            ratio(one.numpy_speedup),
        )
        for title, (one, other) in parts.items()
    ]
    return Table("By kind", headings, tuple(lines))


def verdict(summary: Summary) -> str:
    """Return the outcome in a few sentences."""
    text = f"{summary.same} of {summary.programs} programs agree."
    if summary.speedup:
        text += f" Later calls {ratio(summary.speedup)} as fast as JAX's"
        if summary.without_faults:
            text += f" ({ratio(summary.without_faults)} where neither side has page faults)"
        text += f", the first {ratio(summary.first_speedup)}; least ahead is {summary.slowest}."
    if summary.memory:
        text += f" Planned memory is {summary.memory:.2f} of JAX's, most so in {summary.largest}."
    if summary.cold and summary.warm:
        text += f" In a fresh process {ratio(summary.cold)} cold, {ratio(summary.warm)} warm."
    return text


def heading(environment: dict[str, Any]) -> str:
    """Return what ran where, in a line."""
    text = "Stax {stax}, JAX {jax}, NumPy {numpy}, Python {python}; {processor}, {cores} cores."
    return text.format(**environment)
