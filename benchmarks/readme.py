"""`python -m benchmarks.readme`: make the tables of README.md anew, on this machine.

The table of `stax compare` stands between the marks `figures`, that of the benchmarks by kind
between the marks `benchmarks`.  A table is written only if all of its programs agree.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import tables
from benchmarks.__main__ import third
from benchmarks.benchmark import BENCHMARKS
from benchmarks.result import Result, results, summarise
from stax.compare import report
from stax.compare.command import compare, missing_packages, positive
from stax.compare.environment import describe
from stax.compare.programs import PROGRAMS

README = Path(__file__).parent.parent / "README.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and write the tables; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.readme", description=__doc__)
    parser.add_argument("--seconds", type=positive, default=1.0, help="for each program (1)")
    parser.add_argument("--only", choices=("figures", "benchmarks"), help="make one of them")
    options = parser.parse_args(arguments)
    if problem := missing_packages():
        print(f"benchmarks.readme: {problem}", file=sys.stderr)
        return 2
    for name, make in (("figures", figures), ("benchmarks", by_kind)):
        if options.only in (None, name):
            made = make(options.seconds)
            if made is None:
                return 1
            README.write_text(replaced(README.read_text(), name, made))
    return 0


def figures(seconds: float) -> str | None:
    """Return the table of the comparison, or None if a program failed."""
    rows = compare(list(PROGRAMS.values()), seconds, Console(stderr=True))
    failures = [f"{row.name} failed: {row.failure}" for row in rows if row.failure]
    print(*failures, sep="\n", file=sys.stderr)
    return None if failures else report.markdown(rows, describe())


def by_kind(seconds: float) -> str | None:
    """Return the table of the benchmarks by kind, or None if a program failed."""
    at_round, at_odd = (_measured(odd, seconds) for odd in (False, True))
    failed = [r.row for r in (*at_round, *at_odd) if r.row.failure]
    print(*[f"{row.name} failed: {row.failure}" for row in failed], sep="\n", file=sys.stderr)
    return None if failed else page(at_round, at_odd)


def page(at_round: Sequence[Result], at_odd: Sequence[Result]) -> str:
    """Return what stands between the marks `benchmarks`."""
    lines = [
        tables.heading(describe()),
        tables.both_sizes(at_round, at_odd).as_markdown(),
        tables.verdict(summarise(at_round)),
        "\n".join(f"- {note}" for note in tables.KIND_NOTES),
    ]
    return "\n\n".join(lines)


def _measured(odd: bool, seconds: float) -> list[Result]:
    benchmarks = list(BENCHMARKS.values())
    sized = [b.sized(odd) for b in benchmarks]
    return results(benchmarks, compare(sized, seconds, Console(stderr=True), third))


def replaced(text: str, name: str, made: str) -> str:
    """Return a text with what is between two marks replaced; raises ValueError without them."""
    marks = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not marks.search(text):
        raise ValueError(f"README.md has no text between the marks {name} and /{name}")
    return marks.sub(lambda found: f"{found[1]}{made}\n{found[2]}", text)


if __name__ == "__main__":
    sys.exit(main())
