"""`lax.linalg.qdwh` against JAX, steps counted, and against SciPy's polar decomposition."""

import jax
import numpy as np
import pytest
import scipy.linalg

import stax
from stax.errors import DTypeError, ShapeError
from stax.lax.linalg import qdwh
from tests.beside_jax import Case, compare, draw, named

TALL, COMPLEX = draw(6, 4), draw(5, 5, dtype="complex64")
NEAR_SINGULAR = TALL @ np.diag([1, 1, 1, 1e-5]).astype("float32")
CASES = {
    "tall": Case(lambda m, x: m.qdwh(x), (TALL,)),
    "complex": Case(lambda m, x: m.qdwh(x), (COMPLEX,)),
    "near-singular": Case(lambda m, x: m.qdwh(x), (NEAR_SINGULAR,)),
    "few-steps": Case(lambda m, x: m.qdwh(x, max_iterations=3), (TALL,)),
    "padded": Case(lambda m, x: m.qdwh(x, dynamic_shape=(5, 3)), (TALL,)),
}


SLOW = "few-steps near-singular"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(stax.lax.linalg, jax.lax.linalg, case)


def test_like_scipy() -> None:
    with stax.enable_x64(True):
        for seed, scale in ((0, 1.0), (1, 1e-30), (2, 1e200)):
            x = draw(7, 3, dtype="float64", seed=seed) * scale
            u, h, steps, is_enough = qdwh(x)
            right = scipy.linalg.polar(x)
            np.testing.assert_allclose(u, right[0], atol=1e-13)
            np.testing.assert_allclose(h / scale, right[1] / scale, atol=1e-13)
            assert is_enough and steps < 8


def test_of_zeros_and_mapped() -> None:
    u, h, _, _ = qdwh(np.zeros((3, 2), "float32"))
    np.testing.assert_array_equal(u, np.zeros((3, 2)))
    np.testing.assert_array_equal(h, np.zeros((2, 2)))
    several = draw(3, 4, 4)
    u, h, *_ = stax.jit(stax.vmap(qdwh))(several)
    np.testing.assert_allclose(u @ h, several, atol=1e-5)


def test_errors() -> None:
    with pytest.raises(ShapeError, match="as many rows"):
        qdwh(TALL.T)
    with pytest.raises(ShapeError, match="as many rows"):
        qdwh(draw(2, 3, 3))
    with pytest.raises(DTypeError, match="floating"):
        qdwh(draw(3, 3, dtype="int32"))
