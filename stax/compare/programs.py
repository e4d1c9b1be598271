"""The programs that the comparison runs, each written once for both libraries.

A program is a function of the library (`stax`, or the module `jax`; the names are the same) that
returns a function and its arguments.  Its keyword parameters are sizes; `small` is a set of them
for tests.  Arguments are NumPy arrays from a fixed seed, so both libraries see the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from stax.compare import digits

Workload = tuple[Callable[..., Any], tuple[Any, ...]]


@dataclass(frozen=True)
class Program:
    """A program: what it is called, what it does, and how it is made for a library."""

    name: str
    title: str
    make: Callable[..., Workload]
    small: Mapping[str, int] = field(default_factory=dict)
    # The largest error, relative to the largest value of the result, that still counts as equal.
    tolerance: float = 1e-4
    # Trains with the compiled function and returns the share of held-out examples that are right.
    accuracy: Callable[[Any, Callable[..., Any]], float] | None = None

    def build(self, library: Any, small: bool = False) -> Workload:
        """Return the function and its arguments for `library`."""
        return self.make(library, **(self.small if small else {}))


PROGRAMS: dict[str, Program] = {}


def program(title: str, tolerance: float = 1e-4, **small: int) -> Callable[..., Any]:
    """Enter the decorated function into the list, under its own name."""

    def enter(make: Callable[..., Workload]) -> Callable[..., Workload]:
        name = make.__name__
        PROGRAMS[name] = Program(name, title, make, small, tolerance)
        return make

    return enter


def normal(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    """Return normally distributed numbers that depend on the shape and the seed only."""
    drawn = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return (drawn * scale).astype(np.float32)


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> np.ndarray:
    """Return uniformly distributed numbers that depend on the shape and the seed only."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(np.float32)


# Reductions with what stands around them: how many passes over memory are left?


@program("softmax loss, gradient", rows=6, classes=11)
def cross_entropy(lib: Any, rows: int = 512, classes: int = 4000) -> Workload:
    np_ = lib.numpy

    def loss(logits: Any, labels: Any) -> Any:
        chosen = labels[:, None] == np_.arange(classes)
        log_probability = lib.nn.log_softmax(logits, axis=-1)
        return -np_.where(chosen, log_probability, 0.0).sum(-1).mean()

    labels = np.random.default_rng(0).integers(0, classes, rows).astype(np.int32)
    return lib.grad(loss), (normal(rows, classes), labels)


@program("layer norm, gradient", rows=5, width=12)
def layer_norm(lib: Any, rows: int = 2048, width: int = 768) -> Workload:
    np_ = lib.numpy

    def loss(x: Any, gain: Any, shift: Any, target: Any) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        spread = np_.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        return np_.abs(centred / spread * gain + shift - target).mean()

    x, target = normal(rows, width), normal(rows, width, seed=1)
    gain, shift = normal(width), normal(width, seed=1)
    return lib.grad(loss, argnums=(0, 1, 2)), (x, gain, shift, target)


@program("four moments of each column", rows=20, columns=7)
def column_moments(lib: Any, rows: int = 10_000, columns: int = 300) -> Workload:
    np_ = lib.numpy

    def moments(x: Any) -> Any:
        mean, deviation = x.mean(0), x.std(0)
        scaled = (x - mean) / deviation
        return mean, deviation, np_.mean(scaled**3, axis=0), np_.mean(scaled**4, axis=0)

    return moments, (normal(rows, columns),)


# Element-wise: bound by memory, or by the mathematical functions.


@program("option prices and greeks", tolerance=1e-3, count=50)
def option_greeks(lib: Any, count: int = 200_000) -> Workload:
    np_ = lib.numpy

    def below(x: Any) -> Any:
        return 0.5 * (1.0 + lib.lax.erf(x * 0.7071067811865476))

    def price(spot: Any, strike: Any, years: Any, volatility: Any) -> Any:
        deviation = volatility * np_.sqrt(years)
        up = np_.log(spot / strike) / deviation + 0.5 * deviation
        return spot * below(up) - strike * below(up - deviation)

    def total(*market: Any) -> Any:
        return price(*market).sum()

    def greeks(*market: Any) -> Any:
        delta = lib.grad(total)
        gamma = lib.grad(lambda *market: delta(*market).sum())
        return price(*market), lib.grad(total, argnums=(0, 2, 3))(*market), gamma(*market)

    spot, strike = uniform(20, 40, count), uniform(20, 40, count, seed=1)
    return greeks, (spot, strike, uniform(0.5, 2, count), uniform(0.1, 0.4, count, seed=1))


@program("escape times, 24 steps", tolerance=1e-3, width=16, height=12)
def mandelbrot(lib: Any, width: int = 640, height: int = 480) -> Workload:
    np_ = lib.numpy

    def picture(real: Any, imaginary: Any) -> Any:
        x, y = real[None, :], imaginary[:, None]
        re, im, steps = 0.0 * (x + y), 0.0 * (x + y), np_.zeros((height, width), np_.int32)
        for _ in range(24):
            inside = re * re + im * im < 4.0
            steps = steps + inside
            re, im = (
                np_.where(inside, re * re - im * im + x, re),
                np_.where(inside, 2.0 * re * im + y, im),
            )
        # One pixel on the border may differ by the rounding of a product: compare rows.
        return steps.mean(1)

    real = np.linspace(-2.2, 0.8, width, dtype=np.float32)
    imaginary = np.linspace(-1.2, 1.2, height, dtype=np.float32)
    return picture, (real, imaginary)


@program("edges of an image, 3 x 3", side=12)
def sobel_edges(lib: Any, side: int = 1500) -> Workload:
    np_ = lib.numpy

    def edges(image: Any) -> Any:
        down, across = image[2:] - image[:-2], image[:, 2:] - image[:, :-2]
        down = down[:, :-2] + 2.0 * down[:, 1:-1] + down[:, 2:]
        across = across[:-2] + 2.0 * across[1:-1] + across[2:]
        return np_.sqrt(down**2 + across**2)

    return edges, (normal(side, side),)


@program("interpolation in a table", count=40, knots=9)
def table_lookup(lib: Any, count: int = 1_000_000, knots: int = 4097) -> Workload:
    np_ = lib.numpy

    def interpolate(table: Any, x: Any) -> Any:
        position = np_.clip(x, 0.0, 1.0) * (knots - 1)
        left = np_.clip(position.astype(np_.int32), 0, knots - 2)
        low, high = table[left], table[left + 1]
        return low + (high - low) * (position - left)

    return interpolate, (normal(knots), uniform(0, 1, count))


# Matrix products and what follows them.


@program("GELU network, training step", batch=6, width=10)
def gelu_network(lib: Any, batch: int = 256, width: int = 256) -> Workload:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        for layer in weights[:-1]:
            x = lib.nn.gelu(x @ layer["kernel"] + layer["bias"])
        return ((x @ weights[-1]["kernel"] + weights[-1]["bias"] - y) ** 2).mean()

    def step(weights: Any, x: Any, y: Any) -> Any:
        value, gradient = lib.value_and_grad(loss)(weights, x, y)
        return value, lib.tree_util.tree_map(lambda w, g: w - 0.05 * g, weights, gradient)

    sizes = [width, 2 * width, width, 8]
    weights = [
        {"kernel": normal(i, o, scale=i**-0.5), "bias": np.zeros(o, np.float32)}
        for i, o in pairwise(sizes)
    ]
    return step, (weights, normal(batch, width), normal(batch, 8))


@program("causal attention", batch=2, length=6, width=4)
def attention(lib: Any, batch: int = 16, length: int = 256, width: int = 64) -> Workload:
    np_ = lib.numpy

    def attend(query: Any, key: Any, value: Any) -> Any:
        score = query @ key.transpose(0, 2, 1) / np.sqrt(width).astype(np.float32)
        position = np_.arange(length)
        score = np_.where(position[:, None] >= position, score, -1e9)
        return lib.nn.softmax(score, axis=-1) @ value

    return attend, tuple(normal(batch, length, width, seed=i) for i in range(3))


@program("forces on bodies, by grad", count=10)
def forces(lib: Any, count: int = 600) -> Workload:
    np_ = lib.numpy

    def energy(place: Any, mass: Any) -> Any:
        apart = ((place[:, None] - place[None]) ** 2).sum(-1) + 0.01
        return -0.5 * (mass[:, None] * mass / np_.sqrt(apart)).sum()

    return lib.grad(energy), (normal(count, 3), uniform(1, 2, count))


# Transforms of transforms.


@program("per-example gradients", examples=5, width=6)
def clipped_gradients(lib: Any, examples: int = 256, width: int = 64) -> Workload:
    """Gradients of single examples, each scaled to a norm of at most 1, as for private training."""
    np_ = lib.numpy

    def loss(weights: Any, x: Any, y: Any) -> Any:
        return ((np_.tanh(x @ weights["in"]) @ weights["out"] - y) ** 2).sum()

    def clipped(weights: Any, x: Any, y: Any) -> Any:
        gradient = lib.grad(loss)(weights, x, y)
        squares = sum((g * g).sum() for g in lib.tree_util.tree_leaves(gradient))
        factor = np_.minimum(1.0, 1.0 / np_.sqrt(squares))
        return lib.tree_util.tree_map(lambda g: g * factor, gradient)

    def mean_clipped(weights: Any, x: Any, y: Any) -> Any:
        each = lib.vmap(clipped, in_axes=(None, 0, 0))(weights, x, y)
        return lib.tree_util.tree_map(lambda g: g.mean(0), each)

    weights = {"in": normal(width, 2 * width, scale=0.1), "out": normal(2 * width, 4, scale=0.1)}
    return mean_clipped, (weights, normal(examples, width), normal(examples, 4))


@program("logistic model, Newton step", tolerance=1e-3, examples=30, features=4)
def newton_step(lib: Any, examples: int = 4000, features: int = 24) -> Workload:
    np_ = lib.numpy

    def loss(weights: Any, x: Any, y: Any) -> Any:
        margin = y * (x @ weights)
        return np_.log1p(np_.exp(-margin)).mean() + 0.05 * (weights * weights).sum()

    def solve(matrix: Any, right: Any) -> Any:
        """Solve by conjugate gradients, unrolled."""
        x, residual, direction = right * 0.0, right, right
        for _ in range(8):
            along = matrix @ direction
            size = residual @ residual
            length = size / (direction @ along)
            x, residual = x + length * direction, residual - length * along
            direction = residual + residual @ residual / size * direction
        return x

    def step(weights: Any, x: Any, y: Any) -> Any:
        curvature = lib.hessian(loss)(weights, x, y)
        return weights - solve(curvature, lib.grad(loss)(weights, x, y))

    x = normal(examples, features)
    y = np.sign(x @ normal(features) + normal(examples)).astype(np.float32)
    return step, (np.zeros(features, np.float32), x, y)


# Time to compile, and the cost of a call.


@program("Chebyshev series, 200 terms", count=20, terms=12)
def chebyshev(lib: Any, count: int = 2000, terms: int = 200) -> Workload:
    """A long chain of small operations: most of its cost is that of the first call."""
    np_ = lib.numpy

    def series(x: Any) -> Any:
        before, current, total = np_.ones_like(x), x, x
        for n in range(2, terms):
            before, current = current, 2.0 * x * current - before
            total = total + current / (n * n)
        return total

    return lib.value_and_grad(lambda x: series(x).sum()), (uniform(-1, 1, count),)


PROGRAMS["digits"] = Program(
    "digits", "real images, training step", digits.training, accuracy=digits.accuracy
)
