"""minimize by BFGS: minima of known functions, compiled and mapped, against JAX and SciPy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.optimize
import numpy as np
import pytest
import scipy.optimize

import stax
import stax.numpy as snp
from stax import errors
from stax.scipy.optimize import OptimizeResults, minimize

Function = Callable[..., Any]


def rosenbrock(N: Any) -> Function:
    return lambda x: N.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(N: Any) -> Function:
    return lambda x: (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def matyas(N: Any) -> Function:
    return lambda x: 0.26 * (x[0] ** 2 + x[1] ** 2) - 0.48 * x[0] * x[1]


def smooth(N: Any) -> Function:
    return lambda x: N.sum(N.exp(x) - 3 * x + N.tanh(x[::-1] * x))


CASES: dict[str, tuple[Function, np.ndarray]] = {
    "rosenbrock": (rosenbrock, np.zeros(2)),
    "rosenbrock of four": (rosenbrock, np.array([1.3, 0.7, 0.8, 1.9])),
    "himmelblau": (himmelblau, np.ones(2)),
    "matyas": (matyas, np.full(2, 3.0)),
    "smooth": (smooth, np.linspace(0, 1, 5)),
    "at the minimum": (matyas, np.zeros(2)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", CASES)
def test_minima_in_double_precision(name: str) -> None:
    f, start = CASES[name]
    with stax.enable_x64():
        found = stax.jit(lambda x: minimize(f(snp), x, method="BFGS"))(start)
        expected = scipy.optimize.minimize(f(np), start, method="BFGS", tol=1e-9)
        np.testing.assert_allclose(found.x, expected.x, atol=2e-5)
        np.testing.assert_allclose(found.fun, expected.fun, atol=1e-9)
    assert bool(found.success)
    assert int(found.status) == 0
    assert np.abs(found.jac).max() < 1e-5
    assert int(found.nfev) >= int(found.nit)


def test_like_jax_where_it_converges() -> None:
    search: Any = jax.scipy.optimize.minimize
    with stax.enable_x64(), jax.enable_x64(True):
        ours = minimize(himmelblau(snp), np.ones(2), method="BFGS")
        theirs = jax.jit(lambda x: search(himmelblau(jnp), x, method="BFGS"))(np.ones(2))
    assert OptimizeResults._fields == type(theirs)._fields
    for a, b in zip(ours, theirs, strict=True):
        assert np.shape(a) == np.shape(b)
    np.testing.assert_allclose(ours.x, theirs.x, atol=1e-7)
    np.testing.assert_allclose(ours.hess_inv, theirs.hess_inv, atol=1e-4)


def test_many_at_once_with_arguments() -> None:
    """Each lane ends where it does alone."""
    starts = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]], np.float32)

    def run(x: Any, shift: Any) -> Any:
        return minimize(lambda x, s: himmelblau(snp)(x - s), x, (shift,), method="bfgs").x

    many = stax.jit(stax.vmap(run, (0, None)))(starts, 0.5)
    for x, y in zip(starts, many, strict=True):
        np.testing.assert_allclose(y, run(x, 0.5), atol=1e-3)
        assert float(himmelblau(np)(np.asarray(y) - 0.5)) < 1e-6


def test_options() -> None:
    start = np.array([1.3, 0.7], np.float32)
    short = minimize(rosenbrock(snp), start, method="BFGS", options={"maxiter": 2})
    assert (int(short.nit), int(short.status), bool(short.success)) == (2, 1, False)
    loose = minimize(rosenbrock(snp), start, method="BFGS", tol=1.0, options={"norm": 2})
    assert np.linalg.norm(loose.jac) < 1
    assert int(loose.nit) < 20
    down = minimize(lambda x: x.sum(), start, method="BFGS", options={"line_search_maxiter": 3})
    assert (int(down.status), bool(down.success)) == (5, False)


BAD: dict[str, tuple[Function, type[Exception]]] = {
    "args is a list": (lambda f: minimize(f, np.ones(2), [1.0], method="BFGS"), TypeError),  # type: ignore[arg-type]
    "no method 'Powell'": (
        lambda f: minimize(f, np.ones(2), method="Powell"), errors.UnsupportedError,
    ),
    "where a vector is needed": (lambda f: minimize(f, 1.0, method="BFGS"), errors.ShapeError),
    "x0 is i32": (lambda f: minimize(f, np.ones(2, int), method="BFGS"), errors.DTypeError),
    "no option 'disp'": (
        lambda f: minimize(f, np.ones(2), method="BFGS", options={"disp": 1}), errors.ArgumentError,
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text: str) -> None:
    f, kind = BAD[text]
    with pytest.raises(kind, match=text):
        f(matyas(snp))
