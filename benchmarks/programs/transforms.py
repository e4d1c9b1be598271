"""Derivatives of derivatives, maps of derivatives, rules of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark
from stax.compare.programs import Workload, normal


@benchmark("Hessian times vector", small={"rows": 5, "width": 4}, odd={"rows": 255, "width": 63})
def hessian_product(lib: Any, rows: int = 256, width: int = 64) -> Workload:
    def loss(weights: Any, x: Any) -> Any:
        return (lib.numpy.tanh(x @ weights) ** 2).sum()

    def product(weights: Any, x: Any, direction: Any) -> Any:
        gradient = lib.grad(lambda w: loss(w, x))
        return lib.jvp(gradient, (weights,), (direction,))[1]

    weights = normal(width, 32, scale=0.1)
    return product, (weights, normal(rows, width), normal(width, 32, seed=1))


@benchmark("Jacobian by rows", small={"inputs": 5, "outputs": 3},
           odd={"inputs": 101, "outputs": 61})  # fmt: skip
def jacobian_rows(lib: Any, inputs: int = 100, outputs: int = 64) -> Workload:
    def network(x: Any, inner: Any, outer: Any) -> Any:
        return lib.numpy.tanh(lib.numpy.sin(x @ inner) @ outer)

    weights = normal(inputs, 64, scale=0.2), normal(64, outputs, scale=0.2)
    return lib.jacrev(network), (normal(inputs), *weights)


@benchmark("Laplacian at many places", small={"places": 3, "width": 4},
           odd={"places": 301, "width": 31})  # fmt: skip
def laplacian(lib: Any, places: int = 300, width: int = 32) -> Workload:
    """The sum of second derivatives of a network in three coordinates."""
    np_ = lib.numpy

    def network(place: Any, inner: Any, outer: Any) -> Any:
        return np_.tanh(np_.tanh(place @ inner) @ outer).sum()

    def at(place: Any, inner: Any, outer: Any) -> Any:
        gradient = lib.grad(lambda x: network(x, inner, outer))

        def second(direction: Any) -> Any:
            return lib.jvp(gradient, (place,), (direction,))[1] @ direction

        return lib.vmap(second)(np_.eye(3)).sum()

    weights = normal(3, width), normal(width, width, scale=0.2)
    return lib.vmap(at, in_axes=(0, None, None)), (normal(places, 3), *weights)


@benchmark("third derivative", small={"count": 9}, odd={"count": 99_999}, tolerance=1e-3)
def third_derivative(lib: Any, count: int = 100_000) -> Workload:
    def curve(x: Any) -> Any:
        return lib.numpy.exp(-x * x) * lib.numpy.sin(3.0 * x)

    return lib.vmap(lib.grad(lib.grad(lib.grad(curve)))), (normal(count),)


@benchmark("many small regressions", small={"models": 3, "rows": 5, "width": 2},
           odd={"models": 501, "rows": 39, "width": 7})  # fmt: skip
def many_regressions(lib: Any, models: int = 500, rows: int = 40, width: int = 8) -> Workload:
    def loss(weights: Any, x: Any, y: Any) -> Any:
        return lib.numpy.log1p(lib.numpy.exp(-y * (x @ weights))).mean()

    arguments = normal(models, width), normal(models, rows, width)
    signs = np.sign(normal(models, rows, seed=2)).astype(np.float32)
    return lib.vmap(lib.value_and_grad(loss)), (*arguments, signs)


@benchmark("layers computed again", small={"rows": 3, "width": 4, "layers": 2},
           odd={"rows": 63, "width": 127, "layers": 5})  # fmt: skip
def computed_again(lib: Any, rows: int = 64, width: int = 128, layers: int = 6) -> Workload:
    def layer(x: Any, weights: Any) -> Any:
        return x + lib.numpy.tanh(x @ weights)

    def loss(weights: Any, x: Any) -> Any:
        for index in range(layers):
            x = lib.checkpoint(layer)(x, weights[index])
        return (x * x).mean()

    return lib.grad(loss), (normal(layers, width, width, scale=0.05), normal(rows, width))


@benchmark("rounding with a straight gradient", small={"rows": 4, "width": 6},
           odd={"rows": 999, "width": 201})  # fmt: skip
def straight_through(lib: Any, rows: int = 1000, width: int = 200) -> Workload:
    @lib.custom_vjp
    def rounded(x: Any) -> Any:
        return lib.numpy.round(x * 8.0) / 8.0

    def forward(x: Any) -> Any:
        return rounded(x), lib.numpy.abs(x) < 2.0

    def backward(inside: Any, cotangent: Any) -> Any:
        return (lib.numpy.where(inside, cotangent, 0.0),)

    rounded.defvjp(forward, backward)

    def loss(x: Any, gain: Any) -> Any:
        return (rounded(x * gain) ** 2).mean()

    return lib.grad(loss, argnums=(0, 1)), (normal(rows, width), normal(width))
