"""scipy.interpolate and scipy.integrate beside JAX's and SciPy's."""

import math
from collections.abc import Callable
from typing import Any

import jax.scipy.integrate as jax_integrate
import jax.scipy.interpolate as jax_interpolate
import numpy as np
import pytest
import scipy.interpolate

import stax
from stax.errors import ArgumentValueError, UnsupportedError
from stax.scipy import integrate, interpolate
from tests.beside_jax import Case, compare, draw, named

GRID = np.array([0, 1, 2.5, 3], "float32"), np.array([-1, 0, 0.5, 1, 4], "float32")
POINTS = np.random.default_rng(0).uniform(-1.5, 4.5, (3, 7, 2)).astype("float32")


def by_each_method(fill: Any, axes: int = 2) -> Callable[..., Any]:
    def run(m: Any, values: Any, points: Any) -> list[Any]:
        made = m.RegularGridInterpolator(GRID[:axes], values, fill_value=fill)
        return [made(points[..., :axes]), made(points[..., :axes], "nearest")]

    return run


def by_coordinates(m: Any, values: Any, points: Any) -> list[Any]:
    first = m.RegularGridInterpolator(GRID[:1], values[:, 0])
    both = m.RegularGridInterpolator(GRID, values)
    x, y = points[0, :, 0], points[0, :1, 1]
    return [both((x, y)), both(points[0, 0]), first(x), first((x,))]


VALUES = draw(4, 5)
CASES = {
    "filled": Case(by_each_method(math.nan), (VALUES, POINTS)),
    "extrapolated": Case(by_each_method(None), (VALUES, POINTS), slopes=True),
    "trailing": Case(by_each_method(2.0, 1), (VALUES, POINTS)),
    "coordinates": Case(by_coordinates, (VALUES, POINTS)),
    **{
        kind: Case(by_each_method(1.0), (draw(4, 5, dtype=kind), POINTS))
        for kind in ("int32", "float16", "complex64")
    },
}


SLOW = "float16 complex64"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(interpolate, jax_interpolate, case)


def test_like_scipy() -> None:
    axes = [np.sort(draw(n, seed=n)).astype("float64") for n in (3, 4, 5)]
    values, points = draw(3, 4, 5, dtype="float64"), draw(50, 3, dtype="float64", seed=9)
    right = scipy.interpolate.RegularGridInterpolator(axes, values, bounds_error=False)(points)
    assert 0 < np.isnan(right).sum() < 50
    with stax.enable_x64(True):
        found = stax.jit(lambda v, p: interpolate.RegularGridInterpolator(axes, v)(p))
        np.testing.assert_allclose(found(values, points), right, rtol=1e-12)


REFUSED = {
    "method": lambda: interpolate.RegularGridInterpolator(GRID, VALUES, "cubic"),
    "axes": lambda: interpolate.RegularGridInterpolator(GRID, VALUES[0]),
    "fill": lambda: interpolate.RegularGridInterpolator(GRID, VALUES, fill_value=1j),
    "points": lambda: interpolate.RegularGridInterpolator(GRID, VALUES)(draw(3, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(ArgumentValueError):
        REFUSED[name]()


def test_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="bounds_error"):
        interpolate.RegularGridInterpolator(GRID, VALUES, bounds_error=True)


def test_the_trapezoidal_rule() -> None:
    both = lambda m, y, x: [m.trapezoid(y, dx=0.5), m.trapezoid(y.T, x, axis=0)]  # noqa: E731
    compare(integrate, jax_integrate, Case(both, (VALUES, GRID[1]), slopes=True))
