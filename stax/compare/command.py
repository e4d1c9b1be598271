"""`python -m stax compare`: the command line of the comparison."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stax.compare import report
from stax.compare.environment import describe
from stax.compare.measure import Row, measure, warm_up
from stax.compare.programs import PROGRAMS, Program
from stax.compare.side import Side
from stax.compare.stax_side import StaxSide

NEEDED = {"jax": "jax", "jaxlib": "jaxlib", "sklearn": "scikit-learn"}
# For output that is no terminal, which has no width.
FILE_WIDTH = 100

DESCRIPTION = """\
Run programs through Stax and through JAX on this machine's CPU, in one process and on the same
bits, and show side by side: the result, the graph, the kernels, the bytes moved, the time of the
first call (trace and compile) and of later ones.  The exit code is 1 if a program failed or its
results differ, 2 if something is missing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("--only", nargs="+", metavar="NAME", help="run only these programs")
    add("--list", action="store_true", help="list the programs and stop")
    add("--seconds", type=_seconds, default=1.0, help="time for later calls, each program (1)")
    add("--json", type=Path, metavar="FILE", help="also write every figure to a file")
    add("--markdown", action="store_true", help="print the table as Markdown")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    if options.list:
        console.print(report.listing(PROGRAMS.values()))
        return 0
    problem = unknown_names(options.only or []) or missing_packages() or unwritable(options.json)
    if problem:
        print(problem, file=sys.stderr)
        return 2
    names = dict.fromkeys(options.only or PROGRAMS)
    rows = compare([PROGRAMS[name] for name in names], options.seconds, console)
    environment = describe()
    if options.json:
        figures = as_json(rows, environment, options.seconds)
        options.json.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n")
    if options.markdown:
        print(report.markdown(rows, environment))
    else:
        console.print(report.page(rows, environment, console.width))
    return int(any(row.failure for row in rows))


def unknown_names(names: list[str]) -> str:
    """Say which names are no programs, if any."""
    unknown = [name for name in names if name not in PROGRAMS]
    if not unknown:
        return ""
    subject = "is no program" if len(unknown) == 1 else "are no programs"
    return f"compare: {', '.join(unknown)} {subject}; there are {', '.join(PROGRAMS)}."


def missing_packages() -> str:
    """Say what has to be installed for the comparison, if anything."""
    missing = [NEEDED[name] for name in NEEDED if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"compare: {' and '.join(missing)} not found; the comparison needs an extra of Stax:\n"
        '    pip install "stax-compiler[compare]"\n'
        "or, in a clone of the repository,\n"
        "    pip install '.[compare]'"
    )


def unwritable(file: Path | None) -> str:
    """Say if the figures cannot be written, before minutes are spent on taking them."""
    try:
        if file is not None:
            file.touch()
    except OSError as error:
        return f"compare: cannot write {file}: {error.strerror}"
    return ""


def compare(programs: list[Program], seconds: float, console: Console) -> list[Row]:
    """Measure the programs one after the other, with a progress bar on a terminal."""
    rows = []
    columns = (
        TextColumn("[bold]{task.fields[name]:<18}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with tempfile.TemporaryDirectory(prefix="stax-compare-") as cache, progress, isolated(cache):
        task = progress.add_task("compare", total=len(programs), name="starting")
        ours, theirs = sides()
        for program in programs:
            progress.update(task, name=program.name)
            rows.append(measure(program, ours, theirs, seconds))
            progress.advance(task)
    return rows


@contextmanager
def isolated(cache: str) -> Iterator[None]:
    """Start with no compiled code from earlier runs, and on the CPU, whatever else there is."""
    variables = {"STAX_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu"}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def sides() -> tuple[Side, Side]:
    """Return both libraries, started."""
    # JAX is an extra: its module is imported only by a comparison that found it installed.
    theirs: Side = importlib.import_module("stax.compare.jax_side").JaxSide()
    both = StaxSide(), theirs
    for side in both:
        warm_up(side)
    return both


def as_json(rows: list[Row], environment: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "environment": environment,
        "seconds": seconds,
        "programs": [_finite(dataclasses.asdict(row)) for row in rows],
        "summary": dataclasses.asdict(report.summarise(rows)),
    }


def _finite(value: Any) -> Any:
    """Return a tree of figures without infinities, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"seconds must be a positive number, not {text!r}")
    return value
