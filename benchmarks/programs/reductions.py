"""Many elements to few, prefixes, and order."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark, integers
from stax.compare.programs import Workload, normal, uniform

TABLE = {"rows": 6, "columns": 13}


@benchmark("RMS norm, gradient", small=TABLE, odd={"rows": 2047, "columns": 769})
def rms_norm_gradient(lib: Any, rows: int = 2048, columns: int = 768) -> Workload:
    np_ = lib.numpy

    def loss(x: Any, gain: Any) -> Any:
        size = np_.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
        return np_.tanh(x / size * gain).sum()

    return lib.grad(loss, argnums=(0, 1)), (normal(rows, columns), normal(columns))


@benchmark("log-sum-exp of columns", small=TABLE, odd={"rows": 4001, "columns": 511}, plain=True)
def log_sum_exp(lib: Any, rows: int = 4096, columns: int = 512) -> Workload:
    def total(x: Any) -> Any:
        return lib.scipy.special.logsumexp(x, axis=0)

    return total, (normal(rows, columns),)


@benchmark("where rows are largest", small=TABLE, odd={"rows": 2047, "columns": 999}, plain=True)
def largest_places(lib: Any, rows: int = 2048, columns: int = 1000) -> Workload:
    def places(x: Any) -> Any:
        return lib.numpy.argmax(x, axis=-1), lib.numpy.argmin(x, axis=0)

    return places, (normal(rows, columns),)


@benchmark("running product, middle axis", small={"rows": 3, "steps": 7, "lanes": 5},
           odd={"rows": 63, "steps": 255, "lanes": 65}, plain=True)  # fmt: skip
def running_product(lib: Any, rows: int = 64, steps: int = 256, lanes: int = 64) -> Workload:
    def discount(rates: Any) -> Any:
        return lib.numpy.cumprod(1.0 + 0.1 * rates, axis=1)

    return discount, (normal(rows, steps, lanes),)


@benchmark("mean, deviation, extremes", small=TABLE, odd={"rows": 2999, "columns": 1001},
           plain=True)  # fmt: skip
def summary_of_all(lib: Any, rows: int = 3000, columns: int = 1000) -> Workload:
    def summary(x: Any) -> Any:
        return x.mean(), x.std(), x.max(), x.min()

    return summary, (normal(rows, columns),)


@benchmark("sorted columns", small=TABLE, odd={"rows": 999, "columns": 301}, plain=True)
def sorted_columns(lib: Any, rows: int = 1024, columns: int = 256) -> Workload:
    def ordered(x: Any) -> Any:
        return lib.numpy.sort(x, axis=0)

    return ordered, (normal(rows, columns),)


@benchmark("quartiles of rows", small=TABLE, odd={"rows": 201, "columns": 997}, plain=True)
def quartiles(lib: Any, rows: int = 200, columns: int = 1000) -> Workload:
    np_ = lib.numpy
    parts = np.array([0.25, 0.5, 0.75], np.float32)

    def spread(x: Any) -> Any:
        return np_.quantile(x, parts, axis=-1)

    return spread, (normal(rows, columns),)


@benchmark("the ten largest of rows", small={"rows": 3, "columns": 31},
           odd={"rows": 255, "columns": 5003})  # fmt: skip
def ten_largest(lib: Any, rows: int = 256, columns: int = 5000) -> Workload:
    def largest(x: Any) -> Any:
        return lib.lax.top_k(x, 10)

    return largest, (normal(rows, columns),)


@benchmark("a histogram of 64 bins", small={"count": 90}, odd={"count": 200_003}, plain=True)
def histogram(lib: Any, count: int = 200_000) -> Workload:
    def counts(x: Any) -> Any:
        return lib.numpy.histogram(x, bins=64, range=(-4.0, 4.0))[0]

    return counts, (normal(count),)


@benchmark("bytes counted", small={"count": 90}, odd={"count": 499_999}, plain=True)
def counted_bytes(lib: Any, count: int = 500_000) -> Workload:
    def counts(x: Any) -> Any:
        return lib.numpy.bincount(x, minlength=256)

    return (counts if lib.numpy is np else lambda x: lib.numpy.bincount(x, length=256)), (
        integers(0, 256, count),
    )


@benchmark("cross entropy of labels", small=TABLE, odd={"rows": 4095, "columns": 101})
def label_loss(lib: Any, rows: int = 4096, columns: int = 100) -> Workload:
    def loss(logits: Any, labels: Any) -> Any:
        chances = lib.nn.log_softmax(logits)
        return -lib.numpy.take_along_axis(chances, labels[:, None], axis=1).mean()

    return lib.value_and_grad(loss), (normal(rows, columns), integers(0, columns, rows))


@benchmark("rows that pass a test", small=TABLE, odd={"rows": 4093, "columns": 251}, plain=True)
def passing_rows(lib: Any, rows: int = 4096, columns: int = 256) -> Workload:
    def passing(x: Any) -> Any:
        good = (x > 0.01).all(-1) & (x > 0.95).any(-1)
        return good.sum(), (x * good[:, None]).sum(0)

    return passing, (uniform(0.0, 1.5, rows, columns),)


@benchmark("forces between bodies", small={"bodies": 9}, odd={"bodies": 301})
def forces(lib: Any, bodies: int = 300) -> Workload:
    np_ = lib.numpy

    def on_each(x: Any) -> Any:
        apart = x[None] - x[:, None]
        squared = (apart**2).sum(-1) + 0.01
        return (apart * (squared**-1.5)[..., None]).sum(1), np_.sqrt(squared).min(1)

    return on_each, (normal(bodies, 3),)


@benchmark("a few classes, gradient", small={"rows": 40}, odd={"rows": 49_999})
def few_classes(lib: Any, rows: int = 50_000) -> Workload:
    def loss(scores: Any, targets: Any) -> Any:
        return -(lib.nn.log_softmax(scores, axis=-1) * lib.nn.one_hot(targets, 5)).sum(-1).mean()

    return lib.grad(loss), (normal(rows, 5), integers(0, 5, rows))


@benchmark("decaying sums, associative scan", small={"steps": 37}, odd={"steps": 99_999})
def decaying_sums(lib: Any, steps: int = 100_000) -> Workload:
    def later(a: Any, b: Any) -> Any:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def sums(rates: Any, x: Any) -> Any:
        return lib.lax.associative_scan(later, (lib.nn.sigmoid(rates), x))[1]

    return sums, (normal(steps), normal(steps))
