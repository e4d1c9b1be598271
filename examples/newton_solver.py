"""Reverse mode through a `while_loop`: Newton's method, which stops when it is done.

Kepler's equation `E - e sin E = M` gives the place of a planet on an ellipse of eccentricity `e` at
the time `M`.  Newton's method solves it in a number of steps that depends on the values.
`grad` goes through the loop as it is, and finds what the implicit function theorem says:
`dE/dM = 1 / (1 - e cos E)` and `dE/de = sin E / (1 - e cos E)`.  JAX has no reverse mode here.
With the gradient, the eccentricity of an orbit is found from observations of it.
Run it with `python examples/newton_solver.py`.
"""

import numpy as np

import stax
import stax.numpy as snp
from stax import lax


def solve(mean, eccentricity):
    """Return the solution of Kepler's equation, and how many steps it took."""

    def goes_on(state):
        _, change, count = state
        return (snp.abs(change) > 1e-6) & (count < 50)

    def step(state):
        e, _, count = state
        change = (e - eccentricity * snp.sin(e) - mean) / (1 - eccentricity * snp.cos(e))
        return e - change, change, count + 1

    start = mean + 0.85 * eccentricity * snp.sign(snp.sin(mean)), snp.inf, 0
    e, _, count = lax.while_loop(goes_on, step, start)
    return e, count


def position(mean, eccentricity):
    """Return where on its orbit, of half axis 1, the planet is at the time `mean`."""
    e, _ = solve(mean, eccentricity)
    return snp.stack([snp.cos(e) - eccentricity, snp.sqrt(1 - eccentricity**2) * snp.sin(e)])


def misfit(eccentricity, times, seen):
    places = stax.vmap(position, in_axes=(0, None))(times, eccentricity)
    return snp.mean(snp.sum((places - seen) ** 2, axis=1))


def main() -> None:
    gradient = stax.jit(stax.grad(lambda m, e: solve(m, e)[0], (0, 1)))
    worst = 0.0
    for mean, eccentricity in [(0.3, 0.1), (0.5, 0.6), (0.1, 0.9), (2.5, 0.97)]:
        e, count = solve(mean, eccentricity)
        slope = 1 / (1 - eccentricity * np.cos(float(e)))
        right = np.array([slope, slope * np.sin(float(e))])
        found = np.array([float(g) for g in gradient(mean, eccentricity)])
        worst = max(worst, np.abs(found / right - 1).max())
        print(f"M = {mean}, e = {eccentricity}: {int(count)} steps, gradient {found.round(4)}")
    print(f"the implicit derivatives differ by {worst:.0e} at most")

    generator = np.random.default_rng(0)
    times = generator.uniform(0.1, 6.2, 50).astype("float32")
    exact = stax.vmap(position, in_axes=(0, None))(times, 0.6)
    seen = exact + 0.01 * generator.standard_normal((50, 2)).astype("float32")
    descend, eccentricity = stax.jit(stax.grad(misfit)), 0.2
    for _ in range(30):
        eccentricity = eccentricity - 0.1 * descend(eccentricity, times, seen)
    print(f"the eccentricity seen through noise: {float(eccentricity):.3f}, in truth 0.6")


if __name__ == "__main__":
    main()
