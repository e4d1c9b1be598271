"""The figures of a comparison as a table for a terminal, and as Markdown.

On a terminal a program takes two lines, Stax above JAX, so that what is compared stands in one
column and the table fits 100 columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stax.compare.measure import Figures, Ratio, Row
from stax.compare.programs import Program

# Narrower terminals are shown fewer columns, closer together.
FULL_WIDTH = 97

NOTES = (
    ("error", "largest difference over the largest value of the result; = means the same bits"),
    (
        "graph",
        "operations of Stax's graph, equations of the jaxpr; inner ones included, constants not",
    ),
    (
        "kernels",
        "what one call runs: Stax's kernels and library calls; XLA's fusions and other "
        "instructions that do work (no parameters, constants, tuples, bitcasts)",
    ),
    ("moved", "bytes that those read and write, by each compiler's own account"),
    ("first", "the first call: trace, compile, run; nothing comes from a cache on disk"),
    ("later", "median of later calls, each waited for, timed in turns Stax, JAX, JAX, Stax"),
    ("speed", "JAX's time over Stax's, median over the turns; below it the middle half of them"),
)


@dataclass(frozen=True)
class Summary:
    """A comparison in a few numbers; the speeds are geometric means."""

    programs: int
    same: int
    speedup: float | None
    first_speedup: float | None


def summarise(rows: Sequence[Row]) -> Summary:
    """Sum up the programs whose results agree."""
    same = [row for row in rows if not row.failure]
    later = [row.speedup.median for row in same if row.speedup]
    first = [row.first_speedup for row in same if row.first_speedup]
    return Summary(len(rows), len(same), geometric_mean(later), geometric_mean(first))


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the mean of ratios, or None of none."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


# Numbers as they are read.


def three_digits(value: float) -> str:
    """Return a positive number with three digits that count."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def seconds(value: float) -> str:
    """Return a time in the unit that fits."""
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if value * factor >= 0.9995:
            return f"{three_digits(value * factor)} {unit}"
    return f"{three_digits(value * 1e6)} µs"


def size(nbytes: float) -> str:
    """Return a number of bytes in the unit that fits."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if nbytes >= 0.9995 * factor:
            return f"{three_digits(nbytes / factor)} {unit}"
    return f"{nbytes:.0f} B"


def error(value: float | None) -> str:
    """Return an error relative to the result's scale."""
    if value is None:
        return ""
    return "=" if value == 0 else f"{value:.0e}"


def times(value: float) -> str:
    """Return a ratio."""
    return f"{three_digits(value)}×"


def spread(ratio: Ratio) -> str:
    """Return the middle half of the measured ratios."""
    return f"{three_digits(ratio.low)}–{three_digits(ratio.high)}"


# The figures of one side that stand in a column of their own.
COLUMNS: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("graph", lambda figures: str(figures.nodes)),
    ("kernels", lambda figures: str(figures.kernels)),
    ("moved", lambda figures: size(figures.bytes_moved)),
    ("first", lambda figures: seconds(figures.first_seconds)),
    ("later", lambda figures: seconds(figures.call_seconds)),
)
WIDE_ONLY = {"graph", "moved"}


def colour(ratio: Ratio) -> str:
    """Return green where Stax is faster and red where it is slower, beyond the spread."""
    if ratio.low > 1:
        return "green"
    return "red" if ratio.high < 1 else "yellow"


def page(rows: Sequence[Row], environment: dict[str, Any], width: int) -> RenderableType:
    """Return everything that is shown after a run."""
    below = [failure(row) for row in rows if row.failure]
    below += [accuracies(row) for row in rows if row.stax and row.stax.accuracy is not None]
    summary = Text(verdict(summarise(rows)), "bold")
    return Group(
        "", title(environment), "", table(rows, width), "", *below, summary, "", notes(width)
    )


def title(environment: dict[str, Any]) -> Text:
    """Return the lines above the table: what ran where."""
    text = Text("Stax {stax} and JAX {jax}, Python {python}".format(**environment), "bold")
    return text.append("\n{processor}, {cores} cores".format(**environment), "not bold dim")


def has_room(column: str, width: int) -> bool:
    """Say whether a terminal of this width shows a column."""
    return width >= FULL_WIDTH or column not in WIDE_ONLY


def table(rows: Sequence[Row], width: int) -> Table:
    """Return the table of all programs, two lines each."""
    shown = [column for column in COLUMNS if has_room(column[0], width)]
    gap = (0, 1 if width >= FULL_WIDTH else 0, 0, 0)
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=gap)
    made.add_column("program", no_wrap=True, min_width=18)
    made.add_column("error", justify="right", no_wrap=True, min_width=6)
    made.add_column("", no_wrap=True, min_width=4)
    for heading, _ in shown:
        made.add_column(
            heading, justify="right", no_wrap=True, min_width=5 if heading == "graph" else 7
        )
    made.add_column("speed", justify="right", no_wrap=True, min_width=9)
    for row in rows:
        for line in lines_of(row, [text for _, text in shown]):
            made.add_row(*line)
    return made


def lines_of(row: Row, texts: Sequence[Callable[[Figures], str]]) -> Iterable[list[Text]]:
    """Return the line of Stax and the line of JAX."""
    mine = [text(row.stax) if row.stax else "" for text in texts]
    other = [text(row.jax) if row.jax else "" for text in texts]
    ratio, middle = Text(), Text()
    if row.speedup:
        ratio = Text(times(row.speedup.median), f"bold {colour(row.speedup)}")
        middle = Text(spread(row.speedup), "dim")
    outcome = Text("failed", "bold red") if row.failure else Text(error(row.error), "green")
    yield [Text(row.name, "bold"), outcome, Text("Stax"), *map(Text, mine), ratio]
    yield [Text(f"  {row.title}", "dim"), *(Text(x, "dim") for x in ("", "JAX", *other)), middle]


def failure(row: Row) -> Text:
    """Return why a program failed."""
    return Text.assemble((f"{row.name} failed: ", "bold red"), row.failure or "")


def accuracies(row: Row) -> Text:
    """Return the accuracy that both sides reached by training."""
    assert row.stax and row.jax
    mine, other = (f"{100 * (side.accuracy or 0):.1f} %" for side in (row.stax, row.jax))
    text = f"{row.name}: after training, {mine} of the images held out are read right by Stax"
    return Text(f"{text}, {other} by JAX.")


def verdict(summary: Summary) -> str:
    """Return the outcome in a sentence or two."""
    if summary.same == summary.programs:
        text = "All programs agree." if summary.programs > 1 else "The program agrees."
    else:
        text = f"{summary.same} of {summary.programs} programs agree."
    if summary.speedup and summary.first_speedup:
        text += f" Geometric means of speed: {times(summary.speedup)} for later calls,"
        text += f" {times(summary.first_speedup)} for the first."
    return text


def notes(width: int) -> Table:
    """Return what the columns mean."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for name, meaning in NOTES:
        if has_room(name, width):
            made.add_row(Text(name, "bold"), Text(meaning, "dim"))
    return made


def listing(programs: Iterable[Program]) -> Table:
    """Return the names of the programs and what they do."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for program in programs:
        made.add_row(Text(program.name, "bold"), Text(program.title))
    return made


def markdown(rows: Sequence[Row], environment: dict[str, Any]) -> str:
    """Return the table as Markdown, a line for each program: Stax / JAX in each cell."""
    where = "Stax {stax} / JAX {jax}, Python {python}; {processor}, {cores} cores."
    lines = [where.format(**environment), ""]
    headings = ["program", "error", *(heading for heading, _ in COLUMNS), "speed", "middle half"]
    lines += [f"| {' | '.join(headings)} |", f"|:---|{'---:|' * (len(headings) - 1)}"]
    for row in rows:
        pairs = [
            f"{text(row.stax)} / {text(row.jax)}" if row.stax and row.jax else ""
            for _, text in COLUMNS
        ]
        ratio = [times(row.speedup.median), spread(row.speedup)] if row.speedup else ["", ""]
        verdict_ = "failed" if row.failure else error(row.error)
        lines.append(f"| {' | '.join([f'{row.title} (`{row.name}`)', verdict_, *pairs, *ratio])} |")
    lines += ["", verdict(summarise(rows)), ""]
    lines += [accuracies(row).plain for row in rows if row.stax and row.stax.accuracy is not None]
    lines += ["", *(f"- {name}: {meaning}." for name, meaning in NOTES)]
    return "\n".join(lines)
