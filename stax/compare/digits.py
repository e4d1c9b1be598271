"""Training a small network on scikit-learn's handwritten digits: 1,797 real images of 8 x 8.

The measured function is one step of stochastic gradient descent with momentum.  After it was
measured, the same compiled step trains from the same parameters on the same batches for both
libraries, and each one's accuracy on images that it has not seen is reported.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

BATCH = 64
EPOCHS = 12
HIDDEN = 128
HELD_OUT = 450


class Images(NamedTuple):
    """Images as rows of 64 numbers between 0 and 1, and their digits."""

    pixels: np.ndarray
    labels: np.ndarray


@functools.cache
def load() -> tuple[Images, Images]:
    """Return the images to train on and those held out, in a fixed random order."""
    # scikit-learn comes with an extra, and only this program needs it.
    data = importlib.import_module("sklearn.datasets").load_digits()
    order = np.random.default_rng(0).permutation(len(data.target))
    pixels = (data.data[order] / 16.0).astype(np.float32)
    labels = data.target[order].astype(np.int32)
    train, test = slice(HELD_OUT, None), slice(HELD_OUT)
    return Images(pixels[train], labels[train]), Images(pixels[test], labels[test])


def initial_state() -> dict[str, Any]:
    """Return the first parameters and their velocities."""
    generator = np.random.default_rng(1)

    def drawn(i: int, o: int) -> np.ndarray:
        return (generator.standard_normal((i, o)) * i**-0.5).astype(np.float32)

    layers = [
        {"kernel": drawn(i, o), "bias": np.zeros(o, np.float32)}
        for i, o in ((64, HIDDEN), (HIDDEN, 10))
    ]
    still = [{name: np.zeros_like(value) for name, value in layer.items()} for layer in layers]
    return {"layers": layers, "velocity": still}


def predict(lib: Any, layers: Any, x: Any) -> Any:
    """Return the scores of the ten digits."""
    hidden = lib.nn.relu(x @ layers[0]["kernel"] + layers[0]["bias"])
    return hidden @ layers[1]["kernel"] + layers[1]["bias"]


def training(lib: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return one training step and its arguments: the state and the first batch."""
    tree_map, np_ = lib.tree_util.tree_map, lib.numpy

    def loss(layers: Any, x: Any, labels: Any) -> Any:
        right = labels[:, None] == np_.arange(10)
        return -np_.where(right, lib.nn.log_softmax(predict(lib, layers, x)), 0.0).sum(-1).mean()

    def step(state: Any, x: Any, labels: Any) -> Any:
        value, gradient = lib.value_and_grad(loss)(state["layers"], x, labels)
        velocity = tree_map(lambda v, g: 0.9 * v - 0.05 * g, state["velocity"], gradient)
        layers = tree_map(lambda w, v: w + v, state["layers"], velocity)
        return {"layers": layers, "velocity": velocity}, value

    train, _ = load()
    return step, (initial_state(), train.pixels[:BATCH], train.labels[:BATCH])


def accuracy(lib: Any, step: Callable[..., Any]) -> float:
    """Train with the compiled `step` and return the share of held-out images that are right."""
    train, test = load()
    state = initial_state()
    generator = np.random.default_rng(2)
    for _ in range(EPOCHS):
        order = generator.permutation(len(train.labels))
        # Batches of one size only, so that the step is compiled once.
        for start in range(0, len(order) - BATCH + 1, BATCH):
            chosen = order[start : start + BATCH]
            state, _ = step(state, train.pixels[chosen], train.labels[chosen])
    scores = np.asarray(predict(lib, state["layers"], lib.numpy.asarray(test.pixels)))
    return float((scores.argmax(-1) == test.labels).mean())
