"""Compare compiled random programs with the reference evaluator, for as long as one likes.

    python -m tests.fuzz --minutes 20            # new programs until the time is over
    python -m tests.fuzz --seed 123 --count 1    # one program again

Each program runs with bounds checks, by one thread and by two, whose results have the same bits;
and as the reference says, up to what the order of operations may change.  Some are differentiated
(also within less memory than they need), mapped, or put into loops first.  What goes wrong is
printed with its number.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import stax
from stax.api.inspection import _traced
from stax.array import value_of
from stax.config import config
from stax.errors import ArgumentValueError as OverBudget, LoweringError, StaxError
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.runtime import threads
from stax.runtime.compiler import compile_graph
from stax.types import is_inexact
from tests.fuzz_programs import Program, program
from tests.lowering.kernel_sizes import assert_sizes_agree

MODES = ("values", "values", "gradients", "mapped", "scanned", "carried", "budgeted")
DIFFERENTIATED = ("gradients", "budgeted")


class Difference(Exception):
    """A compiled program computes something else than the reference."""


@contextmanager
def only(count: int) -> Iterator[None]:
    """Let parallel loops run by `count` threads, for a `with` block."""
    control = threads._pool().control
    before, control.wanted = control.wanted, count
    try:
        yield
    finally:
        control.wanted = before


def settings(seed: int) -> Any:
    """Return what a program runs under: some have 64 bits."""
    return stax.enable_x64(seed % 5 == 4)


def graph_of(made: Program, mode: str) -> tuple[Graph, list[np.ndarray]]:
    """Return the graph of a program, of its gradient or of its map, and values for its inputs."""
    function, arguments = function_of(made, mode)
    traced = _traced("fuzz", function, arguments, {})
    return traced.graph, [*arguments, *map(value_of, traced.captures)]


def function_of(made: Program, mode: str) -> tuple[Callable[..., Any], tuple[np.ndarray, ...]]:
    """Return what is compiled, and its arguments."""
    arguments = made.arguments
    floats = tuple(i for i, x in enumerate(arguments) if is_inexact(x.dtype))
    if mode in DIFFERENTIATED and floats:
        return stax.grad(lambda *xs: total(made(*xs)), floats), arguments
    if mode == "carried":
        return functools.partial(carried, made), arguments
    axes = tuple(
        0 if mode == "scanned" or (made.seed >> i) % 3 else None for i in range(len(arguments))
    )
    if mode in ("mapped", "scanned") and 0 in axes:
        stacked = tuple(
            np.stack([x, np.roll(x, 1), x]) if a == 0 else x
            for x, a in zip(arguments, axes, strict=True)
        )
        return (
            stax.vmap(made, axes) if mode == "mapped" else functools.partial(scanned, made)
        ), stacked
    return made, arguments


def scanned(made: Program, *stacked: Any) -> Any:
    """Run a program in each step of a scan."""
    return stax.lax.scan(lambda i, xs: (i + 1, made(*xs)), 0, stacked)[1]


def carried(made: Program, *arguments: Any) -> Any:
    """Run a program in each step of a loop, its exact results taking the place of its arguments."""

    def step(_: Any, arrays: tuple[Any, ...]) -> tuple[Any, ...]:
        found, after = made(*arrays), []
        for k, x in enumerate(arrays):
            fitting = [
                y
                for y, bound in zip(found, made.bounds, strict=True)
                if (y.shape, y.dtype, bound.error) == (x.shape, x.dtype, 0.0)
            ]
            y = fitting[k % len(fitting)] if fitting else stax.numpy.flip(x)
            after.append(stax.numpy.clip(y, 0 if x.dtype == np.uint8 else -3, 3).astype(x.dtype))
        return tuple(after)

    arrays = tuple(stax.numpy.asarray(x) for x in arguments)
    return stax.lax.fori_loop(0, 4, step, arrays)


def total(results: tuple[Any, ...]) -> Any:
    """Return a weighted sum of all floats, or 0."""
    result = stax.numpy.zeros((), "float32")
    for k, y in enumerate(results):
        if is_inexact(y.dtype):
            result = result + (y.astype("float32") * (k % 3 + 1)).sum()
    return result


def tolerances(made: Program, mode: str, expected: list[np.ndarray]) -> list[float]:
    """Return by how much each result may differ."""
    if mode in DIFFERENTIATED:
        largest = max([1.0, *(float(np.max(abs(_wide(x)), initial=0)) for x in expected)])
        coarse = 0.02 if any(x.dtype.itemsize == 2 for x in expected) else 2e-3
        return [coarse * largest] * len(expected)
    if mode == "carried":
        return [0.0] * len(expected)
    return [2 * v.error for v in made.bounds]


def check(seed: int, mode: str) -> str:
    """Run the program of a number; returns what happened, raises Difference."""
    made = program(seed, mode in DIFFERENTIATED)
    graph, arguments = graph_of(made, mode)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, arguments, inner=False)
    try:
        compiled = compile_graph(graph)
        arena = compiled.lowered.program.arena_bytes
        if mode == "budgeted" and arena:
            compiled = compile_graph(graph, memory_budget=arena * 3 // 4)
    except LoweringError as error:
        print(f"--- seed {seed}, {mode}, is not compiled: {error}", flush=True)
        return "not compiled"
    except OverBudget:
        return "over budget"
    assert_sizes_agree(compiled.lowered.program)
    results = []
    for count in (1, 2):
        with only(count):
            results.append([np.asarray(x) for x in compiled.run(arguments)])
    for one, two in zip(*results, strict=True):
        if one.tobytes() != two.tobytes():
            raise Difference("one thread and two give different bits")
    for k, (ours, theirs, allowed) in enumerate(
        zip(results[0], expected, tolerances(made, mode, expected), strict=True)
    ):
        compare(k, ours, theirs, allowed)
    return mode


def _wide(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "biuc" else x.astype(np.float64)


def compare(k: int, ours: np.ndarray, theirs: np.ndarray, allowed: float) -> None:
    """Raise Difference if a result is more than `allowed` away."""
    theirs = np.asarray(theirs)
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        raise Difference(
            f"result {k} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        )
    a, b = _wide(ours), _wide(theirs)
    equal = (a == b) | ((a != a) & (b != b))
    if ours.dtype.kind not in "biu":
        with np.errstate(all="ignore"):
            equal |= abs(a - b) <= allowed
    if not equal.all():
        where = tuple(int(i) for i in np.argwhere(~equal)[0])
        raise Difference(
            f"result {k}: {np.count_nonzero(~equal)} of {equal.size} differ, first at {where}: "
            f"{a[where]} instead of {b[where]}, allowed {allowed:.3g}"
        )


def describe(seed: int, mode: str) -> str:
    """Return the graph of a program."""
    with settings(seed):
        return str(graph_of(program(seed, mode in DIFFERENTIATED), mode)[0])


def fuzz(first: int, count: int | None, seconds: float, mode: str | None) -> tuple[Counter, int]:
    """Run programs; returns how many of each kind there were, and how many went wrong."""
    end, done, wrong, seed = time.monotonic() + seconds, Counter[str](), 0, first
    while (count is None or seed < first + count) and time.monotonic() < end:
        kind = mode or MODES[seed % len(MODES)]
        try:
            with settings(seed):
                done[check(seed, kind)] += 1
        except (
            Difference,
            StaxError,
            ArithmeticError,
            AssertionError,
            TypeError,
            ValueError,
        ) as error:
            wrong += 1
            print(f"--- seed {seed}, {kind}: {type(error).__name__}: {error}", flush=True)
        seed += 1
        if seed % 500 == 0:
            print(f"{sum(done.values()) + wrong} programs, {wrong} wrong", flush=True)
    return done, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=None, help="the first program")
    parser.add_argument("--count", type=int, default=None, help="how many programs")
    parser.add_argument("--mode", choices=sorted(set(MODES)), default=None)
    parser.add_argument("--show", action="store_true", help="print the graph of the first")
    given = parser.parse_args()
    config.update("check", "bounds")
    first = int(time.time()) % 10_000_000 * 100 if given.seed is None else given.seed
    if given.show:
        print(describe(first, given.mode or MODES[first % len(MODES)]))
    done, wrong = fuzz(first, given.count, 60 * given.minutes, given.mode)
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(done.items()))
    print(f"from seed {first}: {sum(done.values()) + wrong} programs ({kinds}), {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
