"""Train a small network on real handwritten digits, with Stax alone.

The data are scikit-learn's 1,797 images of 8 x 8 pixels; 450 are held out.  One training step
(forward, gradient, Adam) is an ordinary function of its parameters, compiled as a whole by
`stax.jit`.  Run it with `python examples/train_digits.py`; it needs `scikit-learn`.
"""

import time
from itertools import pairwise

import numpy as np
from sklearn.datasets import load_digits

import stax
import stax.numpy as snp

BATCH, EPOCHS, HELD_OUT = 50, 15, 450


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return the images as rows between 0 and 1, and their digits, in a fixed random order."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return (digits.data[order] / 16).astype("float32"), digits.target[order].astype("int32")


def initial_parameters(sizes: list[int]) -> list[dict]:
    generator = np.random.default_rng(1)
    layers = []
    for i, o in pairwise(sizes):
        kernel = (generator.standard_normal((i, o)) / np.sqrt(i)).astype("float32")
        layers.append({"kernel": kernel, "bias": np.zeros(o, "float32")})
    return layers


def scores(parameters, images):
    *hidden, last = parameters
    for layer in hidden:
        images = stax.nn.relu(images @ layer["kernel"] + layer["bias"])
    return images @ last["kernel"] + last["bias"]


def loss(parameters, images, labels):
    log_probability = stax.nn.log_softmax(scores(parameters, images))
    return -(log_probability * stax.nn.one_hot(labels, 10)).sum(-1).mean()


@stax.jit
def step(parameters, mean, square, count, images, labels):
    """Adam: the parameters, two running averages of their gradients, and the number of steps."""
    value, gradient = stax.value_and_grad(loss)(parameters, images, labels)
    count = count + 1.0
    mean = stax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, gradient)
    square = stax.tree.map(lambda s, g: 0.99 * s + 0.01 * g * g, square, gradient)
    rate = 3e-3 * snp.sqrt(1.0 - 0.99**count) / (1.0 - 0.9**count)
    pull = stax.tree.map(lambda m, s: rate * m / (snp.sqrt(s) + 1e-7), mean, square)
    parameters = stax.tree.map(lambda p, change: p - change, parameters, pull)
    return parameters, mean, square, count, value


def main() -> None:
    images, labels = data()
    test_images, test_labels = images[:HELD_OUT], labels[:HELD_OUT]
    images, labels = images[HELD_OUT:], labels[HELD_OUT:]
    parameters = initial_parameters([64, 96, 10])
    zeros = stax.tree.map(np.zeros_like, parameters)
    state = (parameters, zeros, zeros, np.float32(0))
    generator, start = np.random.default_rng(2), time.perf_counter()
    for epoch in range(1, EPOCHS + 1):
        batches = generator.permutation(len(labels))[: len(labels) // BATCH * BATCH]
        for batch in batches.reshape(-1, BATCH):
            *state, value = step(*state, images[batch], labels[batch])
        if epoch in (1, 2, 5, EPOCHS):
            right = np.asarray(scores(state[0], test_images)).argmax(-1) == test_labels
            print(f"epoch {epoch:2}   loss {float(value):.4f}   held out {right.mean():.1%} right")
    print(f"{int(state[3])} steps in {time.perf_counter() - start:.1f} s, the compilation included")


if __name__ == "__main__":
    main()
