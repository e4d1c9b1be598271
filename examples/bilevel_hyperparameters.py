"""Learn hyperparameters by the gradient of a validation loss through a whole inner training.

A classifier is trained by gradient descent with one weight decay for each of its inputs.  Which
decays are good only the validation data can tell.  Their gradient is computed in two ways: through
all steps of the training, of which reverse mode keeps only the weights (`scan` of a `checkpoint`),
and by the implicit function theorem, which needs nothing but the trained weights.  Both agree, and
descending along the gradient switches off the inputs that are noise.
Run it with `python examples/bilevel_hyperparameters.py`.
"""

import numpy as np

import stax
import stax.numpy as snp
from stax import lax

INPUTS, USEFUL, STEPS, RATE = 20, 5, 300, 0.5


def data(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return examples of 20 inputs, of which the label depends on the first five, and labels."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, INPUTS)).astype("float32")
    noisy = x[:, :USEFUL].sum(1) + generator.standard_normal(rows)
    return x, np.sign(noisy).astype("float32")


TRAINING, VALIDATION = data(60, 0), data(200, 1)


def misfit(weights, examples):
    x, y = examples
    return snp.mean(stax.nn.softplus(-y * (x @ weights)))


def training_loss(weights, decays):
    return misfit(weights, TRAINING) + 0.5 * snp.sum(snp.exp(decays) * weights**2)


def train(decays):
    """Gradient descent from zero; each step is computed again in the backward pass."""

    @stax.checkpoint
    def step(weights, _):
        return weights - RATE * stax.grad(training_loss)(weights, decays), None

    return lax.scan(step, snp.zeros(INPUTS), None, length=STEPS)[0]


@stax.custom_vjp
def train_implicitly(decays):
    """The same training, differentiated as what it ends at: where the gradient vanishes."""
    return train(decays)


def forward(decays):
    weights = train(decays)
    return weights, (weights, decays)


def backward(solution, cotangent):
    """Solve with the Hessian of the loss, then pull back through its gradient."""
    weights, decays = solution
    hessian = stax.hessian(training_loss)(weights, decays)
    _, pull = stax.vjp(lambda d: stax.grad(training_loss)(weights, d), decays)
    return pull(-snp.linalg.solve(hessian, cotangent))


train_implicitly.defvjp(forward, backward)


def main() -> None:
    unrolled = stax.jit(stax.value_and_grad(lambda d: misfit(train(d), VALIDATION)))
    implicit = stax.jit(stax.value_and_grad(lambda d: misfit(train_implicitly(d), VALIDATION)))
    decays = snp.full(INPUTS, -3.0)
    (first, through_steps), (_, by_theorem) = unrolled(decays), implicit(decays)
    difference = snp.linalg.norm(through_steps - by_theorem) / snp.linalg.norm(by_theorem)
    print(f"the two hypergradients differ by {float(difference):.1e} of their length")
    for _ in range(40):
        last, gradient = implicit(decays)
        decays = decays - 20.0 * gradient
    print(f"validation loss: {float(first):.3f} before, {float(last):.3f} after 40 steps")
    useful, noise = (np.median(np.exp(x)) for x in np.split(np.asarray(decays), [USEFUL]))
    print(f"weight decay of inputs that matter: {useful:.3f}, of noise: {noise:.3f}")


if __name__ == "__main__":
    main()
