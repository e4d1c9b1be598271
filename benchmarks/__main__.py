"""`python -m benchmarks`: the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import tables
from benchmarks.benchmark import BENCHMARKS, Benchmark
from benchmarks.fresh import Fresh, ProcessFailed, fresh
from benchmarks.numpy_side import NumpySide
from benchmarks.programs import KINDS
from benchmarks.result import Result, as_json, results, summarise
from stax.compare.command import compare, missing_packages, positive, unwritable
from stax.compare.environment import describe
from stax.compare.measure import Row
from stax.compare.programs import Program
from stax.compare.side import Side

# For output that is no terminal, which has no width.
FILE_WIDTH = 110

DESCRIPTION = """\
Run many programs through Stax, JAX and, where it can, NumPy: on the same bits, in one process, in
turns.  The exit code is 1 if a program failed or its results differ, 2 if something is missing.
A name is that of a program or of a kind: """


def parser() -> argparse.ArgumentParser:
    """Declare the options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=DESCRIPTION + ", ".join(KINDS) + ".",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("names", nargs="*", metavar="NAME", help="run only these programs or kinds")
    add("--list", action="store_true", help="list the programs and stop")
    add("--odd", action="store_true", help="at odd sizes instead of round ones")
    add("--first", action="store_true", help="also first calls in fresh processes, cold and warm")
    add("--memory", action="store_true", help="also show the memory that is planned")
    add("--seconds", type=positive, default=1.0, help="time for later calls, each program (1)")
    add("--json", type=Path, metavar="FILE", help="also write every figure to a file")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = parser().parse_args(arguments)
    if options.list:
        print("\n".join(f"{b.name:26} {b.kind:16} {b.title}" for b in BENCHMARKS.values()))
        return 0
    problem = (
        unknown_names(options.names)
        or missing_packages(("jax", "jaxlib"))
        or unwritable(options.json)
    )
    if problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return 2
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    measured = run(chosen(options.names), options, console)
    if options.json:
        figures = as_json(measured, describe(), options.seconds, options.odd)
        options.json.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n")
    show(measured, options, console)
    return int(any(r.row.failure for r in measured))


def unknown_names(names: Sequence[str]) -> str:
    """Say which names are neither programs nor kinds, if any."""
    unknown = [name for name in names if name not in BENCHMARKS and name not in KINDS]
    if not unknown:
        return ""
    subject = "is no program and no kind" if len(unknown) == 1 else "are no programs and no kinds"
    return f"{', '.join(unknown)} {subject}; --list shows all."


def chosen(names: Sequence[str]) -> list[Benchmark]:
    """Return the programs that names mean, each once, in the order of the list."""
    return [b for b in BENCHMARKS.values() if not names or b.name in names or b.kind in names]


def run(
    benchmarks: Sequence[Benchmark], options: argparse.Namespace, console: Console
) -> list[Result]:
    """Measure what the options ask for."""
    sized = [b.sized(options.odd) for b in benchmarks]
    rows = compare(sized, options.seconds, console, third)
    if not options.first:
        return results(benchmarks, rows)
    taken = [first(row, options.odd) for row in rows]
    return results(benchmarks, [row for row, _ in taken], [pair for _, pair in taken])


def third(program: Program) -> Side | None:
    """Return NumPy for a program that it can run as it stands."""
    return NumpySide() if isinstance(program, Benchmark) and program.plain else None


def first(row: Row, odd: bool) -> tuple[Row, tuple[Fresh, Fresh] | None]:
    """Take the first calls of a program that has not failed; if they do, the row says so."""
    if row.failure:
        return row, None
    try:
        return row, (fresh(row.name, "stax", odd), fresh(row.name, "jax", odd))
    except ProcessFailed as failed:
        return replace(row, failure=str(failed)), None


def show(measured: Sequence[Result], options: argparse.Namespace, console: Console) -> None:
    """Print the tables."""
    shown, notes = [tables.times_of_calls(measured)], list(tables.NOTES)
    if options.memory:
        shown.append(tables.planned_memory(measured))
        notes.append(tables.MEMORY_NOTE)
    if options.first:
        shown.append(tables.first_calls(measured))
        notes.append(tables.FRESH_NOTE)
    shown.append(tables.kinds(measured))
    failures = [f"{r.row.name} failed: {r.row.failure}" for r in measured if r.row.failure]
    lines = [*failures, tables.verdict(summarise(measured))]
    if options.markdown:
        parts = [f"### {table.title}\n\n{table.as_markdown()}" for table in shown]
        notes = [f"- {note}" for note in notes]
        print("\n\n".join([tables.heading(describe()), *parts, *lines, "\n".join(notes)]))
        return
    console.print(tables.heading(describe()), highlight=False)
    for table in shown:
        console.print(table.as_rich())
    for line in (*lines, "", *notes):
        console.print(line, markup=False, highlight=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
