"""A neural ODE: a network is the velocity of a point, and learns a spiral from its path.

The equation is integrated by Runge-Kutta steps in a `scan`.  Its gradient is computed in two ways:
by reverse mode through the steps, which is exact for the computed path, and by the continuous
adjoint, an equation solved backwards in time, which keeps nothing of the path.  They differ by the
error of the integration, which falls with the fourth power of the step.
Run it with `python examples/neural_ode.py`.
"""

from functools import partial

import numpy as np

import stax
import stax.numpy as snp
from stax import lax
from stax.flatten_util import ravel_pytree
from stax.tree_util import tree_map

HIDDEN, POINTS, INTERVAL, TRAINING = 32, 200, 0.05, 2000
SPIRAL = np.array([[-0.1, 2.0], [-2.0, -0.1]])


def integrate(f, z, span, steps):
    """Return the state `z`, a tree, after `span`, by classical Runge-Kutta steps."""

    def moved(z, slope, h):
        return tree_map(lambda x, v: x + h * v, z, slope)

    def step(z, _):
        h = span / steps
        a = f(z)
        b = f(moved(z, a, h / 2))
        c = f(moved(z, b, h / 2))
        d = f(moved(z, c, h))
        return moved(z, tree_map(lambda a, b, c, d: a + 2 * b + 2 * c + d, a, b, c, d), h / 6), None

    return lax.scan(step, z, None, length=steps)[0]


def velocity(parameters, z):
    inner, outer = parameters
    return snp.tanh(z**3 @ inner) @ outer


def flow(parameters, z, span, steps):
    return integrate(partial(velocity, parameters), z, span, steps)


def flow_and_end(parameters, z, span, steps):
    end = flow(parameters, z, span, steps)
    return end, (parameters, end)


def pull_back_in_time(span, steps, kept, cotangent):
    """From the end: the state, its cotangent, and the gradient of the parameters as it grows."""
    parameters, end = kept

    def backwards(state):
        slope, pull = stax.vjp(velocity, parameters, state[0])
        gradient, change = pull(state[1])
        return -slope, change, gradient

    start = end, cotangent, tree_map(snp.zeros_like, parameters)
    _, cotangent, gradient = integrate(backwards, start, span, steps)
    return gradient, cotangent


flow_by_adjoint = stax.custom_vjp(flow, nondiff_argnums=(2, 3))
flow_by_adjoint.defvjp(flow_and_end, pull_back_in_time)


def loss(weights, tree, path):
    """How far the network goes astray from one point of the path to the next."""
    return snp.mean((flow(tree(weights), path[:-1], INTERVAL, 2) - path[1:]) ** 2)


@stax.jit
def train(parameters, path):
    """Adam, as a scan."""
    weights, tree = ravel_pytree(parameters)

    def step(state, count):
        weights, mean, square = state
        value, gradient = stax.value_and_grad(loss)(weights, tree, path)
        mean, square = 0.9 * mean + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        rate = 0.03 * 0.999**count * snp.sqrt(1 - 0.99**count) / (1 - 0.9**count)
        return (weights - rate * mean / (snp.sqrt(square) + 1e-8), mean, square), value

    state = weights, 0 * weights, 0 * weights
    (weights, *_), values = lax.scan(step, state, snp.arange(1.0, TRAINING + 1))
    return tree(weights), values


def gradient_of_end(flow, parameters, steps):
    def size(parameters):
        return snp.sum(flow(parameters, np.array([1.0, 0.5]), 1.0, steps) ** 2)

    return ravel_pytree(stax.grad(size)(parameters))[0]


def main() -> None:
    draw = np.random.default_rng(0).standard_normal
    parameters = draw((2, HIDDEN)) / 8, draw((HIDDEN, 2))
    with stax.enable_x64():
        for steps in (5, 10, 20):
            exact, adjoint = (
                gradient_of_end(f, parameters, steps) for f in (flow, flow_by_adjoint)
            )
            error = snp.linalg.norm(exact - adjoint) / snp.linalg.norm(exact)
            print(f"{steps:2} steps: the continuous adjoint differs by {float(error):.1e}")
    path = [np.array([2.0, 0.0], "float32")]
    for _ in range(POINTS):
        path.append(np.asarray(integrate(lambda z: z**3 @ SPIRAL, path[-1], INTERVAL, 4)))
    trained, values = train(parameters, np.stack(path))
    print(f"loss: {float(values[0]):.1e} before, {float(values[-1]):.1e} after {TRAINING} steps")
    end = np.asarray(flow(trained, path[0], INTERVAL * 40, 160))
    print(f"after 40 intervals the path is at {path[40].round(2)}, the network at {end.round(2)}")


if __name__ == "__main__":
    main()
