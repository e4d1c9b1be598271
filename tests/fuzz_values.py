"""Values of random programs, and what makes new ones of them by chance (see `fuzz_programs`).

With each value goes a bound of its magnitude and of the error by which another order of operations
may change it: 0 where all numbers are small multiples of 1, which are computed exactly whatever the
order.  What jumps (comparisons, indices, order) is only applied to exact values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Of a dtype: the spacing of numbers at 1, and up to where whole numbers are exact.
PRECISION = {
    "float32": (2.0**-23, 2.0**20), "float16": (2.0**-10, 2.0**9), "bfloat16": (2.0**-7, 2.0**6),
    "int32": (0.0, 2.0**28), "int8": (0.0, 100.0), "uint8": (0.0, 100.0), "int16": (0.0, 2.0**14),
    "float64": (2.0**-52, 2.0**40), "int64": (0.0, 2.0**50), "bool": (0.0, 1.0),
}  # fmt: skip
LARGEST_ERROR = 0.05


@dataclass(frozen=True)
class Value:
    """An array, a bound of its elements, and of what their order of operations may change."""

    array: Any
    size: float
    error: float = 0.0

    @property
    def dtype(self) -> str:
        return str(self.array.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def is_exact(self) -> bool:
        return self.error == 0

    @property
    def floats(self) -> bool:
        return "float" in self.dtype


Made = Value | None
Family = Callable[["Maker"], Made]


class Maker:
    """Makes one program after the choices of a random generator."""

    def __init__(
        self,
        seed: int,
        values: Sequence[Value],
        families: Sequence[Family],
        most: int,
        differentiated: bool = False,
    ) -> None:
        self.families = families
        self.differentiated = differentiated
        self.rng = np.random.default_rng(seed)
        self.values = list(values)
        self.most = most  # elements of a value

    def run(self, steps: int) -> list[Value]:
        """Return the results: several, later values more often, one perhaps twice."""
        end = len(self.values) + steps
        for _ in range(5 * steps):
            made = self.pick(self.families)(self)
            if made is not None and self.is_kept(made):
                self.values.append(made)
            if len(self.values) == end:
                break
        count = self.whole(1, 6)
        late = self.values[-steps:]
        return [self.pick(late if self.flag(0.7) else self.values) for _ in range(count)]

    def is_kept(self, made: Value) -> bool:
        if made.dtype not in PRECISION or not 0 < math.prod(made.shape) <= self.most:
            return False
        if len(made.shape) > 4 or made.error > LARGEST_ERROR * max(made.size, 1):
            return False
        return made.size <= PRECISION[made.dtype][1]

    # What is chosen

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def flag(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def whole(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def value(self, test: Callable[[Value], bool] = lambda v: True) -> Made:
        """Return a value that passes `test`, later ones more often."""
        found = [v for v in self.values if test(v)]
        if not found:
            return None
        return self.pick(found[-3:] if self.flag(0.5) else found)

    def exact(self) -> Made:
        return self.value(lambda v: v.is_exact and v.dtype != "bool")

    def ranked(self, least: int = 1) -> Made:
        return self.value(lambda v: len(v.shape) >= least)

    def partner(self, v: Value, exact: bool = False) -> Made:
        """Return a value that broadcasts with `v` and has its dtype."""

        def fits(w: Value) -> bool:
            pairs = zip(v.shape[::-1], w.shape[::-1], strict=False)
            shape = all(a == b or 1 in (a, b) for a, b in pairs)
            return shape and v.dtype == w.dtype and (w.is_exact or not exact)

        return self.value(fits)

    def has_kinks(self, *values: Value) -> bool:
        """Say whether the derivative of a kink at these values may depend on how they round."""
        return self.differentiated and not all(v.is_exact for v in values)

    def axis(self, v: Value) -> int:
        return self.whole(0, len(v.shape) - 1)

    def numbers(self, shape: Sequence[int], low: int, high: int) -> np.ndarray:
        return self.rng.integers(low, high + 1, shape).astype(np.int32)


def rounded(v: Value, array: Any, size: float, error: float) -> Value:
    """Return a value that is not exact: rounding adds to its error."""
    eps = PRECISION.get(str(array.dtype), (2.0**-23, 0))[0]
    return Value(
        array,
        size,
        error + 8 * max(eps, 2.0**-23 if "64" not in str(array.dtype) else 0) * max(size, 1),
    )
