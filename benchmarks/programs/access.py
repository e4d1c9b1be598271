"""Where elements are read and written: gathers, scatters, segments, rearrangements."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark, integers
from stax.compare.programs import Workload, normal, uniform

SEGMENTS = {"count": 60, "segments": 7}
ODD_SEGMENTS = {"count": 99_999, "segments": 1001}


@benchmark("elements picked from a table", small={"side": 9, "count": 20},
           odd={"side": 999, "count": 99_999}, plain=True)  # fmt: skip
def picked(lib: Any, side: int = 1000, count: int = 100_000) -> Workload:
    def pick(table: Any, rows: Any, columns: Any) -> Any:
        return table[rows, columns] * 2.0 - table[columns, rows]

    places = integers(0, side, count), integers(0, side, count, seed=1)
    return pick, (normal(side, side), *places)


@benchmark("rows added up by segment", small=SEGMENTS, odd=ODD_SEGMENTS)
def segment_sums(lib: Any, count: int = 100_000, segments: int = 1000) -> Workload:
    def sums(x: Any, segment: Any) -> Any:
        return lib.ops.segment_sum(x, segment, num_segments=segments)

    return sums, (normal(count, 8), integers(0, segments, count))


@benchmark("extremes by segment", small=SEGMENTS, odd=ODD_SEGMENTS)
def segment_extremes(lib: Any, count: int = 100_000, segments: int = 1000) -> Workload:
    def extremes(x: Any, segment: Any) -> Any:
        low = lib.ops.segment_min(x, segment, num_segments=segments)
        return low, lib.ops.segment_max(x, segment, num_segments=segments)

    return extremes, (normal(count), integers(0, segments, count))


@benchmark("one picture added into another", small={"side": 6, "count": 30},
           odd={"side": 255, "count": 99_999})  # fmt: skip
def splatted(lib: Any, side: int = 256, count: int = 100_000) -> Workload:
    def splat(picture: Any, rows: Any, columns: Any, light: Any) -> Any:
        return picture.at[rows, columns].add(light)

    places = integers(0, side, count), integers(0, side, count, seed=1)
    return splat, (normal(side, side), *places, uniform(0.0, 1.0, count))


@benchmark("interpolation between knots", small={"count": 30, "knots": 6},
           odd={"count": 99_999, "knots": 501}, plain=True)  # fmt: skip
def interpolated(lib: Any, count: int = 100_000, knots: int = 512) -> Workload:
    def interpolate(x: Any, places: Any, values: Any) -> Any:
        return lib.numpy.interp(x, places, values)

    places = np.linspace(-2.0, 2.0, knots, dtype=np.float32)
    return interpolate, (normal(count), places, normal(knots))


@benchmark("places in a sorted list", small={"count": 30, "knots": 6},
           odd={"count": 49_999, "knots": 9999}, plain=True)  # fmt: skip
def searched(lib: Any, count: int = 50_000, knots: int = 10_000) -> Workload:
    def search(places: Any, x: Any) -> Any:
        return lib.numpy.searchsorted(places, x)

    return search, (np.sort(normal(knots)), normal(count))


@benchmark("a matrix and its transpose", small={"side": 7}, odd={"side": 999}, plain=True)
def symmetrised(lib: Any, side: int = 1000) -> Workload:
    def symmetrise(x: Any) -> Any:
        return 0.5 * (x + x.T)

    return symmetrise, (normal(side, side),)


@benchmark("padded, shifted, turned, joined", small={"rows": 5, "columns": 9},
           odd={"rows": 1999, "columns": 501}, plain=True)  # fmt: skip
def rearranged(lib: Any, rows: int = 2000, columns: int = 500) -> Workload:
    np_ = lib.numpy

    def rearrange(x: Any) -> Any:
        padded = np_.pad(x, ((0, 0), (2, 2)))[:, 1:-1]
        turned = np_.roll(x, 3, axis=1)[:, ::-1]
        return np_.concatenate([padded, turned, x[:, ::2]], axis=1).sum(1)

    return rearrange, (normal(rows, columns),)


@benchmark("clusters, one step of k-means", small={"count": 20, "clusters": 3},
           odd={"count": 4999, "clusters": 17})  # fmt: skip
def cluster_step(lib: Any, count: int = 5000, clusters: int = 16) -> Workload:
    np_ = lib.numpy

    def step(points: Any, centres: Any) -> Any:
        apart = ((points[:, None] - centres[None]) ** 2).sum(-1)
        nearest = np_.argmin(apart, axis=1)
        total = lib.ops.segment_sum(points, nearest, num_segments=clusters)
        members = lib.ops.segment_sum(np_.ones(count), nearest, num_segments=clusters)
        return total / np_.maximum(members, 1.0)[:, None]

    return step, (normal(count, 8), normal(clusters, 8))


@benchmark("rows ordered by a column", small={"rows": 9, "columns": 4},
           odd={"rows": 9999, "columns": 31}, plain=True)  # fmt: skip
def ordered_rows(lib: Any, rows: int = 10_000, columns: int = 32) -> Workload:
    def ordered(x: Any) -> Any:
        return x[lib.numpy.argsort(x[:, 0])]

    return ordered, (normal(rows, columns),)
