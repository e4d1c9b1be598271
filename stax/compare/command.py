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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from stax.compare import report
from stax.compare.environment import describe
from stax.compare.measure import Row, measure, warm_up
from stax.compare.own import NoProgram, own_program
from stax.compare.programs import PROGRAMS, Program
from stax.compare.side import Side
from stax.compare.stax_side import StaxSide
from stax.config import config

NEEDED = {"jax": "jax", "jaxlib": "jaxlib", "sklearn": "scikit-learn"}
# For output that is no terminal, which has no width.
FILE_WIDTH = 100

DESCRIPTION = """\
Run programs through Stax and through JAX on this machine's CPU, in one process and on the same
bits, and show side by side: the result, the graph, the kernels, the bytes moved, the time of the
first call (trace and compile) and of later ones.  The exit code is 1 if a program failed or its
results differ, 2 if something is missing.

A target is a function of your own, path/to/file.py:function, compared in place of the programs
here.  The file may import jax or stax; it is run once for each, and both names then mean the
library that it is run for.  Beside the function it has example_args(), which returns a tuple of
arguments."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("targets", nargs="*", metavar="FILE:FUNCTION", help="compare functions of your own")
    add("--grad", action="store_true", help="compare the gradients of the targets")
    add("--tolerance", type=_tolerance, default=1e-4, help="error allowed for the targets (1e-4)")
    add("--only", nargs="+", metavar="NAME", help="run only these programs")
    add("--list", action="store_true", help="list the programs and stop")
    add("--seconds", type=positive, default=1.0, help="time for later calls, each program (1)")
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
    try:
        programs = chosen(options)
    except NoProgram as problem:
        print(f"compare: {problem}", file=sys.stderr)
        return 2
    rows = compare(programs, options.seconds, console)
    environment = describe()
    if options.json:
        figures = as_json(rows, environment, options.seconds)
        options.json.write_text(json.dumps(figures, indent=1, allow_nan=False) + "\n")
    if options.markdown:
        print(report.markdown(rows, environment))
    else:
        console.print(report.page(rows, environment, console.width))
    return int(any(row.failure for row in rows))


def chosen(options: argparse.Namespace) -> list[Program]:
    """Return the programs that the command line asks for; raises NoProgram if it cannot be."""
    needed = ("jax", "jaxlib") if options.targets and not options.only else tuple(NEEDED)
    for problem in (
        unknown_names(options.only or []),
        missing_packages(needed),
        unwritable(options.json),
        "--grad is for a FILE:FUNCTION." if options.grad and not options.targets else "",
    ):
        if problem:
            raise NoProgram(problem)
    with environment_with(JAX_PLATFORMS="cpu"):
        own = [own_program(t, options.grad, options.tolerance) for t in options.targets]
    names = dict.fromkeys(options.only or (() if own else PROGRAMS))
    return [*own, *(PROGRAMS[name] for name in names)]


def unknown_names(names: list[str]) -> str:
    """Say which names are no programs, if any."""
    unknown = [name for name in names if name not in PROGRAMS]
    if not unknown:
        return ""
    subject = "is no program" if len(unknown) == 1 else "are no programs"
    return f"{', '.join(unknown)} {subject}; there are {', '.join(PROGRAMS)}."


def missing_packages(needed: Sequence[str] = tuple(NEEDED)) -> str:
    """Say what has to be installed for the comparison, if anything."""
    missing = [NEEDED[name] for name in needed if importlib.util.find_spec(name) is None]
    if not missing:
        return ""
    return (
        f"{' and '.join(missing)} not found; the comparison needs an extra of Stax:\n"
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
        return f"cannot write {file}: {error.strerror}"
    return ""


def compare(
    programs: Sequence[Program],
    seconds: float,
    console: Console,
    third: Callable[[Program], Side | None] = lambda program: None,
) -> list[Row]:
    """Measure the programs one after the other, with a progress bar on a terminal.

    `third` says which other side, if any, takes part in a program.
    """
    rows = []
    columns = (
        TextColumn("[bold]{task.fields[name]:<18}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    # The CPU, whatever else there is.
    with progress, without_cache(), environment_with(JAX_PLATFORMS="cpu"):
        task = progress.add_task("compare", total=len(programs), name="starting")
        ours, theirs = sides()
        for program in programs:
            progress.update(task, name=program.name)
            rows.append(measure(program, ours, theirs, seconds, third(program)))
            progress.advance(task)
    return rows


@contextmanager
def without_cache() -> Iterator[None]:
    """Compile all programs anew, for a block: the first call is to show what that takes."""
    before = config.enable_compilation_cache
    # For the process: while a setting is overridden for a block, calls do without native entries.
    config.update("enable_compilation_cache", False)
    try:
        yield
    finally:
        config.update("enable_compilation_cache", before)


@contextmanager
def environment_with(**variables: str) -> Iterator[None]:
    """Set environment variables for a block."""
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
        "programs": [finite(dataclasses.asdict(row)) for row in rows],
        "summary": dataclasses.asdict(report.summarise(rows)),
    }


def finite(value: Any) -> Any:
    """Return a tree of figures without infinities, which JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _tolerance(text: str) -> float:
    return positive(text, "a tolerance")


def positive(text: str, what: str = "seconds") -> float:
    """Return a number of the command line; raises ArgumentTypeError unless it is above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{what} must be a positive number, not {text!r}")
    return value
