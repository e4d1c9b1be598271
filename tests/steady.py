"""Run programs many times: each run, by one thread or by two, gives the same bits.

    python -m tests.steady                          # the programs of benchmarks/ and of `compare`
    python -m tests.steady waves --runs 1000        # one of them
    python -m tests.steady --file workloads.py      # those of a file's WORKLOADS, too

Each program also runs once with bounds checks in its kernels, which must find nothing.  A file's
WORKLOADS are functions by name: given the module that stands for jax, they return a function and
its arguments.  The exit code is 1 if a program fails.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import benchmarks.programs  # noqa: F401
import stax
from benchmarks.benchmark import BENCHMARKS
from stax.compare.programs import PROGRAMS
from tests.fuzz import only

Build = Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]


def programs(files: list[str]) -> dict[str, Build]:
    """Return what makes each program, by name."""
    known = PROGRAMS | BENCHMARKS
    found: dict[str, Build] = {name: lambda p=p: p.build(stax) for name, p in known.items()}
    for file in files:
        for name, build in runpy.run_path(file)["WORKLOADS"].items():
            found[name] = lambda build=build: build(stax)
    return found


def result(function: Callable[..., Any], arguments: tuple[Any, ...]) -> list[np.ndarray]:
    return [np.asarray(x) for x in stax.tree_util.tree_leaves(function(*arguments))]


def is_same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(np.array_equal(_bytes(a), _bytes(b)) for a, b in pairs)


def _bytes(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).reshape(-1).view(np.uint8)


def check(build: Build, runs: int) -> str:
    """Return what is wrong with a program, or nothing."""
    function, arguments = build()
    arguments = stax.tree_util.tree_map(stax.numpy.asarray, tuple(arguments))
    with stax.config.override(check="bounds"):
        result(stax.jit(function), arguments)
    compiled = stax.jit(function)
    first = result(compiled, arguments)
    for count in (1, 2):
        with only(count):
            for number in range(runs):
                if not is_same(first, result(compiled, arguments)):
                    return f"run {number} of {count} threads differs"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="programs; all without a name")
    parser.add_argument("--runs", type=int, default=100, help="by each number of threads (100)")
    parser.add_argument("--file", action="append", default=[], help="a file with WORKLOADS")
    given = parser.parse_args()
    wrong = 0
    for name, build in programs(given.file).items():
        if given.names and name not in given.names:
            continue
        start = time.monotonic()
        try:
            problem = check(build, given.runs)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        wrong += bool(problem)
        print(f"{name:26} {problem or 'same'} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
