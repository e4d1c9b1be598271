"""The programs by kind; importing this package fills `BENCHMARKS`, in the order of the tables."""

from benchmarks.programs import (  # noqa: I001  the order of the tables
    elementwise,
    reductions,
    products,
    loops,
    transforms,
    access,
    randomness,
    linear_algebra,
    overhead,
)

KINDS = {
    "elementwise": "element by element",
    "reductions": "reductions and sorting",
    "products": "products and convolutions",
    "loops": "loops",
    "transforms": "transforms of transforms",
    "access": "access to memory",
    "randomness": "random numbers",
    "linear_algebra": "linear algebra and Fourier",
    "overhead": "small calls and long programs",
}

__all__ = [
    "KINDS",
    "access",
    "elementwise",
    "linear_algebra",
    "loops",
    "overhead",
    "products",
    "randomness",
    "reductions",
    "transforms",
]
