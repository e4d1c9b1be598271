"""What a benchmark is: a program of the comparison that also has odd sizes and a kind."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stax.compare.programs import Program, Workload


@dataclass(frozen=True)
class Benchmark(Program):
    """A program with a second set of sizes that are no multiples of anything.

    `plain` says that it uses no more of a library than `numpy_side` can give, so that NumPy runs
    it as it stands.
    """

    kind: str = ""
    odd: Mapping[str, int] = field(default_factory=dict)
    plain: bool = False

    def sized(self, odd: bool) -> Benchmark:
        """Return this program at its odd sizes, or at the round ones."""
        return replace(self, make=functools.partial(self.make, **self.odd)) if odd else self


BENCHMARKS: dict[str, Benchmark] = {}


def benchmark(
    title: str,
    *,
    small: Mapping[str, int],
    odd: Mapping[str, int],
    tolerance: float = 1e-4,
    plain: bool = False,
) -> Callable[[Callable[..., Workload]], Callable[..., Workload]]:
    """Enter the decorated function under its own name; its kind is the module that it is in.

    The defaults of its parameters are the round sizes, `odd` others, `small` those for tests.
    """

    def enter(make: Callable[..., Workload]) -> Callable[..., Workload]:
        name, kind = make.__name__, make.__module__.rpartition(".")[2]
        if name in BENCHMARKS:
            raise ValueError(f"there are two benchmarks of the name {name}")
        BENCHMARKS[name] = Benchmark(
            name, title, make, small, tolerance, kind=kind, odd=odd, plain=plain
        )
        return make

    return enter


def integers(low: int, high: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Return int32 numbers from `low` to below `high` that depend on shape and seed only."""
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(np.int32)


def complex_normal(*shape: int) -> np.ndarray:
    """Return complex64 numbers with normally distributed parts."""
    drawn = np.random.default_rng(shape).standard_normal((2, *shape)).astype(np.float32)
    return drawn[0] + np.complex64(1j) * drawn[1]


def key_bits(seed: int) -> np.ndarray:
    """Return the bits of a random key, as `random.wrap_key_data` takes them."""
    return np.array([0, seed], np.uint32)


def well_conditioned(*shape: int) -> np.ndarray:
    """Return symmetric positive definite matrices."""
    drawn: Any = np.random.default_rng(shape).standard_normal(shape)
    side = shape[-1]
    return (drawn @ drawn.swapaxes(-1, -2) / side + np.eye(side)).astype(np.float32)
