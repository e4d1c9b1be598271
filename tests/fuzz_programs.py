"""Random programs from a number, for the fuzz: functions of arrays that stress the compiler.

`program(seed)` gives a function and its arguments; what it does depends on shapes and types alone,
so it may be traced, differentiated and mapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import stax.numpy as snp
from stax.config import config
from stax.types import check_dtype
from tests.fuzz_families import FAMILIES as NARROW, LENGTHS
from tests.fuzz_values import Maker, Value
from tests.fuzz_wide import WIDE

FAMILIES = (*NARROW, *WIDE)

OTHERS = ("float16", "bfloat16", "int32", "int8", "uint8", "int16", "float64", "int64")
LARGE = (257, 300, 511, 777, 1025, 2049)


@dataclass(frozen=True)
class Program:
    """A function of arrays, and arguments; `bounds` fills with a size and an error per result."""

    seed: int
    arguments: tuple[np.ndarray, ...]
    steps: int
    most: int
    bounds: list[Value]
    differentiated: bool = False

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        values = [
            Value(snp.asarray(x), max(1.0, float(abs(a).max())), 0.0)
            for x, a in zip(arrays, self.arguments, strict=True)
        ]
        found = Maker(self.seed, values, FAMILIES, self.most, self.differentiated).run(self.steps)
        self.bounds[:] = found
        return tuple(v.array for v in found)


def program(seed: int, differentiated: bool = False, steps: int = 24) -> Program:
    """Return the program of a number.

    One that is to be differentiated has kinks only at exact values.
    """
    rng = np.random.default_rng((seed, 1))
    is_large = rng.random() < 0.2
    lengths = (*LENGTHS[:8], *LARGE) if is_large else LENGTHS
    most = 1_000_000 if is_large else 20_000
    base = [int(rng.choice(lengths)) for _ in range(int(rng.integers(1, 4)))]
    while np.prod(base) > most // 4:
        base.pop()
    arguments = []
    for k in range(int(rng.integers(1, 4))):
        shape = (tuple(base), tuple(base[1:]), (*base[:-1], 1), (base[-1],))[
            rng.integers(4) if k else 0
        ]
        dtype = (
            "float32"
            if rng.random() < 0.7
            else str(rng.choice(OTHERS if config.enable_x64 else OTHERS[:-2]))
        )
        low = 0 if dtype == "uint8" else -3
        arguments.append(_numbers(rng, shape, low, dtype))
    return Program(
        seed, tuple(arguments), int(rng.integers(2, steps + 1)), most, [], differentiated
    )


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], low: int, dtype: str) -> np.ndarray:
    return rng.integers(low, 4, shape).astype(check_dtype(dtype))
