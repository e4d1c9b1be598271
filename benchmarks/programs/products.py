"""Matrix products and what is around them, convolutions, pooling."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.benchmark import benchmark, integers
from stax.compare.programs import Workload, normal


@benchmark("dense layer with GELU", small={"rows": 4, "width": 6},
           odd={"rows": 255, "width": 257})  # fmt: skip
def dense_gelu(lib: Any, rows: int = 256, width: int = 256) -> Workload:
    def layer(x: Any, weights: Any, shift: Any) -> Any:
        return lib.nn.gelu(x @ weights + shift)

    weights = normal(width, 4 * width, scale=width**-0.5)
    return layer, (normal(rows, width), weights, normal(4 * width))


@benchmark("product in bfloat16", small={"side": 9}, odd={"side": 251}, tolerance=2e-2)
def bfloat16_product(lib: Any, side: int = 256) -> Workload:
    bfloat16 = lib.numpy.bfloat16

    def product(x: Any, y: Any) -> Any:
        return (x.astype(bfloat16) @ y.astype(bfloat16)).astype(np.float32)

    return product, (normal(side, side), normal(side, side, seed=1))


@benchmark("product of integers", small={"side": 9}, odd={"side": 127}, plain=True)
def integer_product(lib: Any, side: int = 128) -> Workload:
    def product(x: Any, y: Any) -> Any:
        return x @ y

    return product, (integers(-9, 9, side, side), integers(-9, 9, side, side, seed=1))


@benchmark("matrix times vector, and back", small={"rows": 8, "columns": 5},
           odd={"rows": 1999, "columns": 1501}, plain=True)  # fmt: skip
def there_and_back(lib: Any, rows: int = 2048, columns: int = 1536) -> Workload:
    def normal_equations(matrix: Any, vector: Any) -> Any:
        return matrix.T @ (matrix @ vector)

    return normal_equations, (normal(rows, columns, scale=0.03), normal(columns))


@benchmark("second moments of a tall table", small={"rows": 30, "columns": 5},
           odd={"rows": 19_997, "columns": 61}, plain=True)  # fmt: skip
def second_moments(lib: Any, rows: int = 20_000, columns: int = 64) -> Workload:
    def moments(x: Any) -> Any:
        centred = x - x.mean(0)
        return centred.T @ centred / rows

    return moments, (normal(rows, columns),)


@benchmark("outer product, gradient", small={"count": 11}, odd={"count": 999})
def outer_gradient(lib: Any, count: int = 1000) -> Workload:
    np_ = lib.numpy

    def loss(x: Any, y: Any) -> Any:
        return np_.tanh(np_.outer(x, y)).sum()

    return lib.grad(loss, argnums=(0, 1)), (normal(count), normal(count, seed=1))


def _attend(lib: Any, width: int) -> Any:
    np_ = lib.numpy

    def attend(query: Any, key: Any, value: Any) -> Any:
        score = np_.einsum("bqhd,bkhd->bhqk", query, key) * width**-0.5
        return np_.einsum("bhqk,bkhd->bqhd", lib.nn.softmax(score, axis=-1), value)

    return attend


HEADS = {"batch": 2, "length": 5, "heads": 3, "width": 4}
ODD_HEADS = {"batch": 3, "length": 125, "heads": 5, "width": 63}


@benchmark("attention of several heads", small=HEADS, odd=ODD_HEADS)
def several_heads(
    lib: Any, batch: int = 4, length: int = 128, heads: int = 4, width: int = 64
) -> Workload:
    arguments = tuple(normal(batch, length, heads, width, seed=seed) for seed in range(3))
    return _attend(lib, width), arguments


@benchmark("attention, gradient", small=HEADS, odd=ODD_HEADS)
def several_heads_gradient(
    lib: Any, batch: int = 4, length: int = 128, heads: int = 4, width: int = 64
) -> Workload:
    attend, arguments = several_heads(lib, batch, length, heads, width)

    def loss(*heads: Any) -> Any:
        return (attend(*heads) ** 2).mean()

    return lib.grad(loss, argnums=(0, 1, 2)), arguments


@benchmark("a form for each row", small={"rows": 5, "width": 7},
           odd={"rows": 1999, "width": 65}, plain=True)  # fmt: skip
def forms_of_rows(lib: Any, rows: int = 2000, width: int = 64) -> Workload:
    def form(x: Any, metric: Any) -> Any:
        return ((x @ metric) * x).sum(-1)

    return form, (normal(rows, width), normal(width, width))


@benchmark("convolution of signals, gradient",
           small={"batch": 2, "length": 11, "inputs": 3, "outputs": 4},
           odd={"batch": 7, "length": 255, "inputs": 31, "outputs": 63})  # fmt: skip
def signal_convolution(
    lib: Any, batch: int = 8, length: int = 256, inputs: int = 32, outputs: int = 64
) -> Workload:
    def loss(weights: Any, x: Any) -> Any:
        y = lib.lax.conv_general_dilated(
            x, weights, (1,), "SAME", dimension_numbers=("NHC", "HIO", "NHC")
        )
        return (lib.nn.relu(y) ** 2).mean()

    weights = normal(5, inputs, outputs, scale=0.1)
    return lib.grad(loss), (weights, normal(batch, length, inputs))


@benchmark("convolution channel by channel", small={"batch": 1, "side": 6, "channels": 5},
           odd={"batch": 3, "side": 31, "channels": 33})  # fmt: skip
def channel_convolution(lib: Any, batch: int = 4, side: int = 32, channels: int = 32) -> Workload:
    def convolve(weights: Any, x: Any) -> Any:
        return lib.lax.conv_general_dilated(
            x,
            weights,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=channels,
        )

    return convolve, (normal(3, 3, 1, channels), normal(batch, side, side, channels))


@benchmark("convolution, every second pixel", small={"batch": 1, "side": 7, "channels": 4},
           odd={"batch": 7, "side": 31, "channels": 33})  # fmt: skip
def strided_convolution(lib: Any, batch: int = 8, side: int = 32, channels: int = 32) -> Workload:
    def convolve(weights: Any, x: Any) -> Any:
        return lib.nn.relu(lib.lax.conv_general_dilated(x, weights, (2, 2), "SAME"))

    weights = normal(2 * channels, channels, 3, 3, scale=0.1)
    return convolve, (weights, normal(batch, channels, side, side))


@benchmark("largest of windows, gradient", small={"batch": 1, "side": 7, "channels": 3},
           odd={"batch": 15, "side": 31, "channels": 33})  # fmt: skip
def window_gradient(lib: Any, batch: int = 16, side: int = 32, channels: int = 32) -> Workload:
    lax = lib.lax

    def loss(x: Any) -> Any:
        window, step = (1, 3, 3, 1), (1, 2, 2, 1)
        return (lax.reduce_window(x, -np.inf, lax.max, window, step, "SAME") ** 2).sum()

    return lib.grad(loss), (normal(batch, side, side, channels),)
