"""odeint beside JAX's: solutions, cotangents by the adjoint equation, tangents, trees and lanes."""

from typing import Any

import jax
import jax.experimental.ode
import numpy as np
import pytest

import stax
import stax.experimental.ode
import stax.numpy as snp
from stax.errors import ArgumentValueError, DTypeError

T = np.linspace(0, 2, 4, dtype=np.float32)
Y0 = {"angle": np.float32(1.0), "speed": np.array([0.5], np.float32)}


def pendulum(lib: Any, y0: Any, t: Any, length: Any, damping: Any) -> Any:
    """Angles of a pendulum of a function that closes over its damping."""

    def slope(y: Any, t: Any, length: Any) -> Any:
        pull = lib.numpy.sin(y["angle"]) / length + 0.1 * lib.numpy.sin(t)
        return {"angle": y["speed"][0], "speed": -pull - damping * y["speed"]}

    ode = lib.experimental.ode
    return ode.odeint(slope, y0, lib.numpy.asarray(t), length, rtol=1e-5, atol=1e-6)


def test_solutions_and_cotangents_like_jax() -> None:
    def both(lib: Any) -> Any:
        def total(*args: Any) -> Any:
            path = pendulum(lib, *args)
            return (path["angle"] ** 2).sum() + path["speed"][-1, 0]

        return lib.jit(lib.value_and_grad(total, argnums=(0, 1, 2, 3)))(Y0, T, 1.5, 0.2)

    ours, theirs = (jax.tree.leaves(both(lib)) for lib in (stax, jax))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_a_complex_solution_its_tangents_and_lanes() -> None:
    def path(start: Any, rate: Any) -> Any:
        return stax.experimental.ode.odeint(
            lambda y, t, rate: 1j * rate * y, start, snp.asarray(T), rate, rtol=1e-6, atol=1e-6
        )

    rates = np.array([0.5, 3.0], np.float32)
    pushed = stax.vmap(lambda r: stax.jvp(lambda r: path(snp.ones(2) + 0j, r), (r,), (1.0,)))
    ys, dots = stax.jit(pushed)(rates)
    wanted = np.exp(1j * rates[:, None] * T)
    np.testing.assert_allclose(ys[:, :, 0], wanted, atol=1e-4)
    np.testing.assert_allclose(dots[:, :, 1], 1j * T * wanted, atol=1e-3)


def test_the_number_of_steps_is_limited() -> None:
    def last(**limits: Any) -> Any:
        return stax.experimental.ode.odeint(lambda y, t: -y, 1.0, snp.float32([0, 1]), **limits)[1]

    assert abs(float(last()) - np.exp(-1)) < 1e-5
    assert abs(float(last(rtol=1e-3, atol=1e-3, mxstep=1, hmax=0.1)) - np.exp(-1)) > 1e-3


@pytest.mark.parametrize(
    ("times", "error"),
    [(np.arange(2), DTypeError), (0.5, ArgumentValueError), (np.zeros((1, 2)), ArgumentValueError)],
)
def test_times_are_a_vector_of_floats(times: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="odeint: the times are"):
        stax.experimental.ode.odeint(lambda y, t: -y, 1.0, times)
