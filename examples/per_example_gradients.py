"""The gradient of every single example, at once: `vmap(grad(loss))`.

Frameworks give the gradient of a mean; the gradients of its terms say which examples pull hardest.
Here 256 examples follow one rule, and one has a wrong label.  Its gradient is by far the longest.
Run it with `python examples/per_example_gradients.py`.
"""

import numpy as np

import stax
import stax.numpy as snp

EXAMPLES, WIDTH, WRONG = 256, 16, 123


def loss(weights, x, y):
    """The squared error for one example."""
    hidden = snp.tanh(x @ weights["in"])
    return (hidden @ weights["out"] - y) ** 2


def problem() -> tuple[dict, np.ndarray, np.ndarray]:
    """Return weights that are nearly right, inputs, and labels of which one is wrong."""
    generator = np.random.default_rng(0)

    def draw(*shape: int) -> np.ndarray:
        return generator.standard_normal(shape).astype("float32")

    truth = {"in": draw(WIDTH, 8) / 4, "out": draw(8)}
    x = draw(EXAMPLES, WIDTH)
    y = np.tanh(x @ truth["in"]) @ truth["out"] + 0.05 * draw(EXAMPLES)
    y[WRONG] += 5.0
    return {name: w + 0.02 * draw(*w.shape) for name, w in truth.items()}, x, y


def main() -> None:
    weights, x, y = problem()
    gradient = stax.grad(loss)
    per_example = stax.jit(stax.vmap(gradient, in_axes=(None, 0, 0)))

    together = per_example(weights, x, y)
    shapes = {name: g.shape for name, g in together.items()}
    print(f"gradients of {EXAMPLES} examples in one call: {shapes}")

    one_by_one = [gradient(weights, x[i], y[i]) for i in range(EXAMPLES)]
    for name, g in together.items():
        looped = np.stack([np.asarray(one[name]) for one in one_by_one])
        np.testing.assert_allclose(np.asarray(g), looped, rtol=1e-4, atol=1e-5)
    print("a loop over the examples gives the same")

    mean = stax.grad(lambda w: stax.vmap(loss, in_axes=(None, 0, 0))(w, x, y).mean())(weights)
    for name, g in together.items():
        np.testing.assert_allclose(np.asarray(g).mean(0), mean[name], rtol=1e-3, atol=1e-5)
    print("their mean is the gradient of the mean loss")

    flat = np.concatenate([np.asarray(g).reshape(EXAMPLES, -1) for g in together.values()], axis=1)
    norms = np.linalg.norm(flat, axis=1)
    outlier = int(norms.argmax())
    print(f"norms: median {np.median(norms):.2f}, largest {norms.max():.2f}")
    print(f"the outlier is example {outlier}, the one with the wrong label")
    assert outlier == WRONG


if __name__ == "__main__":
    main()
