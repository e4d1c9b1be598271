"""What was measured of a benchmark, and a list of them in a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.benchmark import Benchmark
from benchmarks.fresh import Fresh
from stax.compare.command import finite
from stax.compare.measure import Row
from stax.compare.report import geometric_mean

# A call with fewer page faults than this takes its memory from where it has been before.
FEW_FAULTS = 10


@dataclass(frozen=True)
class Result:
    """A row of the comparison, what the program is, and first calls in fresh processes if taken."""

    kind: str
    row: Row
    stax_fresh: Fresh | None = None
    jax_fresh: Fresh | None = None

    @property
    def speedup(self) -> float | None:
        """JAX's time over that of Stax, later calls."""
        return self.row.speedup.median if self.row.speedup and not self.row.failure else None

    @property
    def numpy_speedup(self) -> float | None:
        """NumPy's time over that of Stax, if NumPy took part."""
        return self.row.third.speedup.median if self.row.third and not self.row.failure else None

    @property
    def first_speedup(self) -> float | None:
        """JAX's time over that of Stax, the first call in a process that is warm."""
        return None if self.row.failure else self.row.first_speedup

    @property
    def memory(self) -> float | None:
        """The planned bytes of Stax over those of JAX."""
        if not self.row.stax or not self.row.jax or not self.row.jax.planned_bytes:
            return None
        return self.row.stax.planned_bytes / self.row.jax.planned_bytes

    @property
    def without_faults(self) -> float | None:
        """The speedup, if neither side had page faults to speak of."""
        sides = (self.row.stax, self.row.jax)
        few = all(side and side.page_faults < FEW_FAULTS for side in sides)
        return self.speedup if few else None

    def fresh_speedup(self, warm: bool) -> float | None:
        """JAX's time over that of Stax, the first call in a fresh process."""
        if self.stax_fresh is None or self.jax_fresh is None:
            return None
        if warm:
            return self.jax_fresh.warm.first_seconds / self.stax_fresh.warm.first_seconds
        return self.jax_fresh.cold.first_seconds / self.stax_fresh.cold.first_seconds


def results(
    benchmarks: Sequence[Benchmark],
    rows: Sequence[Row],
    fresh: Sequence[tuple[Fresh, Fresh] | None] = (),
) -> list[Result]:
    """Put together what was measured of each."""
    found = fresh or [None] * len(rows)
    return [
        Result(b.kind, row, *(pair or (None, None)))
        for b, row, pair in zip(benchmarks, rows, found, strict=True)
    ]


@dataclass(frozen=True)
class Summary:
    """Ratios are geometric means, above 1 where Stax is ahead; memory is below 1 where it is."""

    programs: int
    same: int
    speedup: float | None
    numpy_speedup: float | None
    first_speedup: float | None
    without_faults: float | None
    cold: float | None
    warm: float | None
    memory: float | None
    slowest: str | None
    largest: str | None


def mean(measured: Sequence[Result], figure: Callable[[Result], float | None]) -> float | None:
    """Return the geometric mean of a figure over the results that have it."""
    return geometric_mean([value for r in measured if (value := figure(r))])


def summarise(measured: Sequence[Result]) -> Summary:
    """Sum up results: of a kind, or of all."""
    timed = [r for r in measured if r.speedup is not None]
    planned = [r for r in measured if r.memory is not None]
    slowest = min(timed, key=lambda r: r.speedup or 0.0, default=None)
    largest = max(planned, key=lambda r: r.memory or 0.0, default=None)
    return Summary(
        len(measured),
        sum(not r.row.failure for r in measured),
        mean(measured, lambda r: r.speedup),
        mean(measured, lambda r: r.numpy_speedup),
        mean(measured, lambda r: r.first_speedup),
        mean(measured, lambda r: r.without_faults),
        mean(measured, lambda r: r.fresh_speedup(warm=False)),
        mean(measured, lambda r: r.fresh_speedup(warm=True)),
        mean(measured, lambda r: r.memory),
        slowest.row.name if slowest else None,
        largest.row.name if largest else None,
    )


def by_kind(measured: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the results of each kind, in the order in which they come."""
    kinds: dict[str, list[Result]] = {}
    for result in measured:
        kinds.setdefault(result.kind, []).append(result)
    return kinds


def as_json(
    measured: Sequence[Result], environment: dict[str, Any], seconds: float, odd: bool
) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "environment": environment,
        "seconds": seconds,
        "sizes": "odd" if odd else "round",
        "programs": [finite(_flat(r)) for r in measured],
        "kinds": {kind: asdict(summarise(part)) for kind, part in by_kind(measured).items()},
        "summary": asdict(summarise(measured)),
    }


def _flat(result: Result) -> dict[str, Any]:
    fresh = {"stax": result.stax_fresh, "jax": result.jax_fresh}
    return {
        "kind": result.kind,
        **asdict(result.row),
        "fresh": {side: asdict(x) for side, x in fresh.items() if x} or None,
    }
