"""Runs a program on both sides: is the result the same, and what does a call cost?

Times on a shared machine drift, so calls are timed in turns, a burst of one side and a burst of the
other, and the figure is the median over the rounds of the ratio of two neighbouring bursts.  The
spread is the middle half of those ratios.  Every call is waited for.  A third contestant, such as
the same program in NumPy, may take part in the turns.
"""

from __future__ import annotations

import gc
import math
import resource
import time
from collections.abc import Callable, Iterator, Sequence
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
    planned_bytes: int = 0


@dataclass(frozen=True)
class Third:
    """What a third contestant took; the ratio is its time over that of Stax."""

    error: float
    call_seconds: float
    speedup: Ratio


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
    third: Third | None = None


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
            planned_bytes=self.work.planned_bytes,
        )


def warm_up(side: Side) -> None:
    """Start the library's compiler and threads, which are part of no program."""
    side.library.jit(lambda x: x * 2.0 + 1.0)(side.library.numpy.ones(1000))


def measure(
    program: Program, ours: Side, theirs: Side, seconds: float, third: Side | None = None
) -> Row:
    """Run a program on both sides for about `seconds`; a program that fails says so in its row.

    With a `third` side, that one runs in the same turns, and its result is compared by value.
    """
    error = None
    try:
        mine, other = (prepare(program, side) for side in (ours, theirs))
        error = largest_error(other.result, mine.result)
        also = None if third is None else prepare(program, third)
        run_in_turns([mine, other, *([] if also is None else [also])], seconds)
        reached = [_accuracy(program, x) for x in (mine, other)]
    except ProgramFailed as failed:
        return Row(program.name, program.title, str(failed), error)
    failure = None if error <= program.tolerance else _too_large(error, program.tolerance)
    return Row(
        program.name,
        program.title,
        failure,
        error,
        mine.figures(reached[0]),
        other.figures(reached[1]),
        ratio(other, mine),
        other.first_seconds / mine.first_seconds,
        None if also is None else _third(also, other, mine),
    )


def _third(also: Contestant, other: Contestant, mine: Contestant) -> Third:
    seconds = float(np.median(also.times))
    return Third(error_of_values(other.result, also.result), seconds, ratio(also, mine))


def ratio(over: Contestant, under: Contestant) -> Ratio:
    """Return the ratio of the times that two took in the same rounds."""
    ratios = np.array(over.times) / np.array(under.times)
    low, median, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
    return Ratio(median, low, high)


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


def run_in_turns(contestants: Sequence[Contestant], seconds: float) -> None:
    """Time bursts of calls in turns: the times of a round have the same place in every list."""
    bursts = []
    for x in contestants:
        with blame(x.side):
            once = x.burst(2)
        bursts.append((x, max(1, int(BURST_SECONDS / max(once, 1e-7)))))
        x.times, x.faults, x.calls = [], 0, 0  # that only said how many calls make a burst
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < MOST_ROUNDS and (rounds < FEWEST_ROUNDS or time.perf_counter() < end):
        # The first goes last in every other round, so that none always finds warmer caches.
        for contestant, calls in bursts if rounds % 2 else reversed(bursts):
            with blame(contestant.side):
                contestant.burst(calls)
        rounds += 1


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
        if not isinstance(leaf, np.ndarray | np.generic):
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
    return error_of_values(want, got)


def error_of_values(want: Any, got: Any) -> float:
    """Return the largest error of a result whose dtypes may be wider, as NumPy's often are."""
    expected, found = ([np.asarray(x) for x in leaves(tree)] for tree in (want, got))
    if [x.shape for x in expected] != [x.shape for x in found]:
        raise ProgramFailed("the results have different shapes")
    return max(map(_relative, expected, found), default=0.0)


def _relative(x: np.ndarray, y: np.ndarray) -> float:
    wide = np.complex128 if np.iscomplexobj(x) or np.iscomplexobj(y) else np.float64
    x, y = x.astype(wide), y.astype(wide)
    differs = ~((x == y) | (np.isnan(x) & np.isnan(y)))
    if not differs.any():
        return 0.0
    if not (np.isfinite(x[differs]) & np.isfinite(y[differs])).all():
        return math.inf
    scale = np.abs(x[np.isfinite(x)]).max()
    return float(np.abs(x - y)[differs].max() / (scale or 1.0))
