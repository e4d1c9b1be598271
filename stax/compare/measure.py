"""Runs a program on both sides: is the result the same, and what does a call cost?

Times on a shared machine drift, so calls are timed in turns, a burst of one side and a burst of the
other, and the figure is the median over the rounds of the ratio of two neighbouring bursts.  The
spread is the middle half of those ratios.  Every call is waited for.
"""

from __future__ import annotations

import gc
import math
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax.compare.programs import Program
from stax.compare.side import Side, Work

BURST_SECONDS = 0.01
FEWEST_ROUNDS = 7
MOST_ROUNDS = 200


@dataclass(frozen=True)
class Ratio:
    """A median with its lower and upper quartile."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Figures:
    """What one side took for a program; `page_faults` are minor ones, per call."""

    nodes: int
    kernels: int
    bytes_moved: int
    first_seconds: float
    call_seconds: float
    page_faults: float
    accuracy: float | None


@dataclass(frozen=True)
class Row:
    """One program, measured; ratios are JAX's time over that of Stax, so above 1 Stax is ahead.

    Where `failure` is set, figures that could not be taken are None.
    """

    name: str
    title: str
    failure: str | None = None
    # The largest difference over the largest value of JAX's result; 0 means the same bits.
    error: float | None = None
    stax: Figures | None = None
    jax: Figures | None = None
    speedup: Ratio | None = None
    first_speedup: float | None = None


class ProgramFailed(Exception):
    """A program could not be run, or its results differ; the message is one line."""


@dataclass
class Contestant:
    """A program built and compiled for one side."""

    side: Side
    function: Callable[..., Any]
    arguments: Any
    result: Any
    work: Work
    first_seconds: float
    times: list[float]
    faults: int = 0
    calls: int = 0

    def burst(self, calls: int) -> float:
        """Call the function, and return the seconds that a call took."""
        before = page_faults()
        start = time.perf_counter()
        for _ in range(calls):
            wait(self.function(*self.arguments))
        seconds = (time.perf_counter() - start) / calls
        self.faults += page_faults() - before
        self.calls += calls
        self.times.append(seconds)
        return seconds

    def figures(self, accuracy: float | None) -> Figures:
        """Sum up what was measured."""
        return Figures(
            self.work.nodes,
            self.work.kernels,
            self.work.bytes_moved,
            self.first_seconds,
            call_seconds=float(np.median(self.times)),
            page_faults=self.faults / max(1, self.calls),
            accuracy=accuracy,
        )


def warm_up(side: Side) -> None:
    """Start the library's compiler and threads, which are part of no program."""
    side.library.jit(lambda x: x * 2.0 + 1.0)(side.library.numpy.ones(1000))


def measure(program: Program, ours: Side, theirs: Side, seconds: float) -> Row:
    """Run a program on both sides for about `seconds`; a program that fails says so in its row."""
    error = None
    try:
        mine, other = (prepare(program, side) for side in (ours, theirs))
        error = largest_error(other.result, mine.result)
        ratios = run_in_turns(mine, other, seconds)
        reached = [_accuracy(program, x) for x in (mine, other)]
    except ProgramFailed as failed:
        return Row(program.name, program.title, str(failed), error)
    failure = None if error <= program.tolerance else _too_large(error, program.tolerance)
    low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
    return Row(
        program.name,
        program.title,
        failure,
        error,
        mine.figures(reached[0]),
        other.figures(reached[1]),
        Ratio(median, low, high),
        other.first_seconds / mine.first_seconds,
    )


def _too_large(error: float, tolerance: float) -> str:
    if error == math.inf:
        return "one result is finite where the other is not"
    return f"the results differ by {error:.1e} of their scale, allowed are {tolerance:.0e}"


@contextmanager
def blame(side: Side) -> Iterator[None]:
    """Turn whatever a program raises into one line that names the library."""
    try:
        yield
    except Exception as error:
        first = (str(error).splitlines() or [""])[0]
        raise ProgramFailed(f"{side.name}: {type(error).__name__}: {first}") from error


def prepare(program: Program, side: Side) -> Contestant:
    """Build and compile a program for one side, and time its first call."""
    with blame(side):
        function, arguments = program.build(side.library)
        arguments = side.library.tree_util.tree_map(side.library.numpy.asarray, arguments)
        gc.collect()
        compiled = side.library.jit(function)
        start = time.perf_counter()
        result = wait(compiled(*arguments))
        seconds = time.perf_counter() - start
        work = side.work(function, arguments)
        return Contestant(side, compiled, arguments, result, work, seconds, [])


def run_in_turns(mine: Contestant, other: Contestant, seconds: float) -> list[float]:
    """Time bursts of calls in turns; returns the ratios other over mine."""
    once = max(mine.burst(2), other.burst(2))
    for x in (mine, other):  # what was timed so far only says how long a burst is
        x.times, x.faults, x.calls = [], 0, 0
    calls = max(1, int(BURST_SECONDS / max(once, 1e-7)))
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while len(ratios) < MOST_ROUNDS and (len(ratios) < FEWEST_ROUNDS or time.perf_counter() < end):
        # Each goes first in every other round, so that neither always finds warmer caches.
        pair = (mine, other) if len(ratios) % 2 else (other, mine)
        for contestant in pair:
            with blame(contestant.side):
                contestant.burst(calls)
        ratios.append(other.times[-1] / mine.times[-1])
    return ratios


def _accuracy(program: Program, contestant: Contestant) -> float | None:
    if program.accuracy is None:
        return None
    with blame(contestant.side):
        return program.accuracy(contestant.side.library, contestant.function)


def leaves(tree: Any) -> list[Any]:
    """Return the arrays of a result in one order, whichever library made it."""
    if isinstance(tree, dict):
        return [x for key in sorted(tree) for x in leaves(tree[key])]
    if isinstance(tree, list | tuple):
        return [x for part in tree for x in leaves(part)]
    return [] if tree is None else [tree]


def wait(tree: Any) -> Any:
    """Wait until a result is there, and return it."""
    for leaf in leaves(tree):
        leaf.block_until_ready()
    return tree


def page_faults() -> int:
    """Return the number of minor page faults of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def largest_error(want: Any, got: Any) -> float:
    """Return the largest difference relative to the scale of the array that it is in."""
    expected, found = ([np.asarray(x) for x in leaves(tree)] for tree in (want, got))
    kinds = [[(x.dtype.name, x.shape) for x in arrays] for arrays in (expected, found)]
    if kinds[0] != kinds[1]:
        raise ProgramFailed(f"the results have different types: JAX {kinds[0]}, Stax {kinds[1]}")
    return max(map(_relative, expected, found), default=0.0)


def _relative(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x.astype(np.float64), y.astype(np.float64)
    differs = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if not differs.any():
        return 0.0
    if not (np.isfinite(x[differs]) & np.isfinite(y[differs])).all():
        return math.inf
    scale = np.abs(x[np.isfinite(x)]).max()
    return float(np.abs(x - y)[differs].max() / (scale or 1.0))
