"""Random numbers, and programs that draw some as they go."""

from __future__ import annotations

from typing import Any

from benchmarks.benchmark import benchmark, key_bits
from stax.compare.programs import Workload, normal


@benchmark("a walk of normal steps", small={"walks": 3, "steps": 7},
           odd={"walks": 255, "steps": 999}, tolerance=1e-3)  # fmt: skip
def random_walks(lib: Any, walks: int = 256, steps: int = 1000) -> Workload:
    def walk(bits: Any) -> Any:
        drawn = lib.random.normal(lib.random.wrap_key_data(bits), (walks, steps))
        return lib.numpy.cumsum(drawn, axis=1)[:, -1]

    return walk, (key_bits(7),)


@benchmark("classes drawn by their chances", small={"rows": 4, "classes": 6},
           odd={"rows": 999, "classes": 101})  # fmt: skip
def drawn_classes(lib: Any, rows: int = 1000, classes: int = 100) -> Workload:
    def draw(bits: Any, logits: Any) -> Any:
        return lib.random.categorical(lib.random.wrap_key_data(bits), logits)

    return draw, (key_bits(3), normal(rows, classes))


@benchmark("a shuffled list", small={"count": 40}, odd={"count": 19_999})
def shuffled(lib: Any, count: int = 20_000) -> Workload:
    def shuffle(bits: Any, x: Any) -> Any:
        return lib.random.permutation(lib.random.wrap_key_data(bits), x)

    return shuffle, (key_bits(5), normal(count))


@benchmark("dropout in a layer, gradient", small={"rows": 4, "width": 6},
           odd={"rows": 255, "width": 255})  # fmt: skip
def dropout_gradient(lib: Any, rows: int = 256, width: int = 256) -> Workload:
    def loss(weights: Any, x: Any, bits: Any) -> Any:
        hidden = lib.nn.relu(x @ weights)
        kept = lib.random.bernoulli(lib.random.wrap_key_data(bits), 0.9, hidden.shape)
        return (lib.numpy.where(kept, hidden / 0.9, 0.0) ** 2).mean()

    weights = normal(width // 2, width, scale=0.1)
    return lib.grad(loss), (weights, normal(rows, width // 2), key_bits(2))
