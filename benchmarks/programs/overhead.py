"""What is not arithmetic: the cost of a call, and that of compiling much."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark
from stax.compare.programs import Workload, normal, uniform


@benchmark("forty small arrays updated", small={"side": 3}, odd={"side": 49})
def many_parameters(lib: Any, side: int = 50) -> Workload:
    def update(parameters: Any, gradients: Any) -> Any:
        return lib.tree_util.tree_map(lambda p, g: p - 0.01 * g, parameters, gradients)

    def arrays(seed: int) -> list[np.ndarray]:
        return [normal(side, side, seed=seed + index) for index in range(40)]

    return update, (arrays(0), arrays(100))


@benchmark("four numbers", small={"count": 3}, odd={"count": 5}, plain=True)
def few_numbers(lib: Any, count: int = 4) -> Workload:
    def combine(x: Any, y: Any) -> Any:
        return lib.numpy.sqrt(x * x + y * y), x.sum() - y.sum()

    return combine, (normal(count), normal(count, seed=1))


@benchmark("a small gradient", small={"count": 3}, odd={"count": 9})
def small_gradient(lib: Any, count: int = 8) -> Workload:
    def loss(parameters: Any, x: Any) -> Any:
        return (lib.numpy.tanh(parameters["gain"] * x + parameters["shift"]) ** 2).mean()

    parameters = {"gain": normal(count), "shift": np.float32(0.5)}
    return lib.value_and_grad(loss), (parameters, normal(count, seed=1))


@benchmark("a deep network of narrow layers", small={"layers": 3, "width": 4},
           odd={"layers": 31, "width": 15})  # fmt: skip
def deep_network(lib: Any, layers: int = 32, width: int = 16) -> Workload:
    """Each layer is written out: compiling them takes longer than many calls."""

    def loss(weights: Any, x: Any) -> Any:
        for matrix in weights:
            x = lib.nn.relu(x @ matrix) + x
        return (x * x).mean()

    weights = [normal(width, width, scale=0.1, seed=index) for index in range(layers)]
    return lib.grad(loss), (weights, normal(16, width))


@benchmark("a continued fraction, written out", small={"count": 5, "terms": 6},
           odd={"count": 999, "terms": 151})  # fmt: skip
def continued_fraction(lib: Any, count: int = 1000, terms: int = 150) -> Workload:
    def fraction(x: Any) -> Any:
        value = 1.0 + x
        for term in range(terms, 0, -1):
            value = term + x * x / value
        return value.sum()

    return lib.value_and_grad(fraction), (uniform(0.1, 1.0, count),)


@benchmark("a training step of many small parameters", small={"layers": 2, "width": 3},
           odd={"layers": 7, "width": 5}, tolerance=1e-4)  # fmt: skip
def many_states(lib: Any, layers: int = 8, width: int = 4) -> Workload:
    """Nested dictionaries of parameters and of two moments of each, as an optimizer keeps them."""
    tree_map = lib.tree_util.tree_map

    def loss(parameters: Any, x: Any) -> Any:
        for name in sorted(parameters):
            x = lib.numpy.tanh(x @ parameters[name]["weight"] + parameters[name]["shift"])
        return (x * x).mean()

    def step(state: Any, x: Any) -> Any:
        value, gradient = lib.value_and_grad(loss)(state["parameters"], x)
        first = tree_map(lambda m, g: 0.9 * m + 0.1 * g, state["first"], gradient)
        second = tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, state["second"], gradient)
        parameters = tree_map(
            lambda p, m, v: p - 0.01 * m / (lib.numpy.sqrt(v) + 1e-3),
            state["parameters"], first, second,
        )  # fmt: skip
        return {"parameters": parameters, "first": first, "second": second}, value

    def layer(seed: int) -> dict[str, np.ndarray]:
        return {"weight": normal(width, width, seed=seed), "shift": normal(width, seed=seed + 50)}

    parameters = {f"layer{index}": layer(index) for index in range(layers)}
    zeros = {name: {k: 0 * v for k, v in node.items()} for name, node in parameters.items()}
    state = {"parameters": parameters, "first": zeros, "second": zeros}
    return step, (state, normal(4, width, seed=99))


@benchmark("forty results of one array", small={"count": 3}, odd={"count": 5})
def many_results(lib: Any, count: int = 4) -> Workload:
    def multiples(x: Any) -> Any:
        return [x * number for number in range(40)]

    return multiples, (normal(count),)
