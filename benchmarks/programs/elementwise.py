"""Every element by itself: bound by memory, or by what the functions cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark, complex_normal, integers
from stax.compare.programs import Workload, normal, uniform

SMALL, ODD = {"count": 37}, {"count": 777_777}


@benchmark("SiLU and softplus", small=SMALL, odd=ODD)
def silu_softplus(lib: Any, count: int = 1_000_000) -> Workload:
    np_ = lib.numpy

    def activations(x: Any) -> Any:
        return x * lib.nn.sigmoid(x) + np_.log1p(np_.exp(-np_.abs(x)))

    return activations, (normal(count),)


@benchmark("Huber loss, gradient", small=SMALL, odd=ODD)
def huber_gradient(lib: Any, count: int = 1_000_000) -> Workload:
    np_ = lib.numpy

    def loss(x: Any, y: Any) -> Any:
        apart = np_.abs(x - y)
        return np_.where(apart < 1.0, 0.5 * apart**2, apart - 0.5).mean()

    return lib.grad(loss), (normal(count), normal(count, scale=2.0, seed=1))


@benchmark("a root on one side of zero", small=SMALL, odd=ODD, plain=True)
def two_branches(lib: Any, count: int = 1_000_000) -> Workload:
    np_ = lib.numpy

    def curve(x: Any) -> Any:
        return np_.where(x > 0.0, np_.sqrt(np_.abs(x)), np_.expm1(x))

    return curve, (normal(count),)


@benchmark("powers with fractions", small=SMALL, odd={"count": 333_333}, plain=True)
def fractional_powers(lib: Any, count: int = 400_000) -> Workload:
    def growth(x: Any, y: Any) -> Any:
        return x**2.5 + x**y

    return growth, (uniform(0.1, 3.0, count), uniform(-2.0, 2.0, count, seed=1))


@benchmark("mixing the bits of integers", small=SMALL, odd=ODD, plain=True)
def mixed_bits(lib: Any, count: int = 1_000_000) -> Workload:
    np_ = lib.numpy

    def mix(x: Any) -> Any:
        for factor in (0x7FEB352D, 0x846CA68B):
            x = (x ^ (x >> np_.uint32(16))) * np_.uint32(factor)
        return x ^ (x >> np_.uint32(15))

    return mix, (integers(0, 2**31 - 1, count).astype(np.uint32),)


@benchmark("remainders and quotients", small=SMALL, odd=ODD, plain=True)
def remainders(lib: Any, count: int = 1_000_000) -> Workload:
    def scramble(x: Any) -> Any:
        return (x * 13 - 5) % 17 // 3

    return scramble, (integers(-9999, 9999, count),)


@benchmark("error and gamma functions", small=SMALL, odd={"count": 99_999}, plain=True)
def special_functions(lib: Any, count: int = 100_000) -> Workload:
    special = lib.scipy.special

    def density(x: Any) -> Any:
        return special.erf(x) * lib.numpy.exp(-x) + special.gammaln(x + 0.5)

    return density, (uniform(0.1, 9.0, count),)


@benchmark("complex numbers turned", small=SMALL, odd={"count": 222_221}, plain=True)
def rotated(lib: Any, count: int = 250_000) -> Workload:
    np_ = lib.numpy

    def turn(z: Any, angle: Any) -> Any:
        turned = z * (np_.cos(angle) + 1j * np_.sin(angle))
        return turned.real, np_.abs(turned + z.conj())

    return turn, (complex_normal(count), uniform(-3.0, 3.0, count))


@benchmark("great circles between places", small={"rows": 5, "columns": 7},
           odd={"rows": 601, "columns": 513}, plain=True)  # fmt: skip
def great_circles(lib: Any, rows: int = 600, columns: int = 512) -> Workload:
    np_ = lib.numpy

    def distance(place: Any, other: Any) -> Any:
        half = 0.5 * (place[:, None] - other[None])
        cosines = np_.cos(place[:, None, 0]) * np_.cos(other[None, :, 0])
        squared = np_.sin(half[..., 0]) ** 2 + cosines * np_.sin(half[..., 1]) ** 2
        return 2.0 * np_.arcsin(np_.sqrt(np_.clip(squared, 0.0, 1.0)))

    return distance, (uniform(-1.5, 1.5, rows, 2), uniform(-1.5, 1.5, columns, 2))
