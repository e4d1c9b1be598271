"""jax.lax's special functions: values and types as JAX's, and what their operands must be."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import DTypeError, MissingRule, ShapeError
from tests.like_jax import assert_like_jax

# Arguments of each function; JAX takes seconds to compile the later ones.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "lgamma": (np.float32([0.5, 3.0, -1.5]),),
    "digamma": (np.float32([0.5, 3.0, -1.5]),),
    "erf_inv": (np.float32([0.5, -0.25, 0.999]),),
    "bessel_i0e": (np.float32([0.5, -3.0, 20.0]),),
    "bessel_i1e": (np.float32([0.5, -3.0, 20.0]),),
    "polygamma": (np.float32([0.0, 1.0, 3.0]), np.float32([0.5, 3.0, 9.0])),
    "zeta": (np.float32([1.5, 2.0, 3.0]), np.float32([0.5, 3.0, 9.0])),
    "igamma": (np.float32([0.5, 3.0, 9.0]), np.float32([0.7, 2.0, 9.0])),
    "igammac": (np.float32([0.5, 3.0, 9.0]), np.float32([0.7, 2.0, 9.0])),
    "igamma_grad_a": (np.float32([0.5, 3.0, 9.0]), np.float32([0.7, 2.0, 9.0])),
    "random_gamma_grad": (np.float32([0.5, 3.0, 9.0]), np.float32([0.7, 2.0, 9.0])),
    "betainc": (np.float32([0.5, 3.0]), np.float32([0.7, 2.0]), np.float32([0.2, 0.9])),
}  # fmt: skip
QUICK = list(ARGUMENTS)[:7]


def compare(name: str) -> None:
    given = ARGUMENTS[name]
    ours, theirs = getattr(stax.lax, name), jax.jit(getattr(jax.lax, name))
    expected = theirs(*given)
    assert_like_jax(ours(*given), expected, 2e-5)
    assert_like_jax(stax.jit(ours)(*given), expected, 2e-5)


@pytest.mark.parametrize("name", QUICK)
def test_values(name: str) -> None:
    compare(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in ARGUMENTS if n not in QUICK])
def test_values_of_loops(name: str) -> None:
    compare(name)


@pytest.mark.parametrize("name", ARGUMENTS)
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_types(name: str, dtype: Any) -> None:
    with stax.enable_x64(True):
        given = [x.astype(dtype) for x in ARGUMENTS[name]]
        for found in (getattr(stax.lax, name)(*given), stax.jit(getattr(stax.lax, name))(*given)):
            assert (found.dtype, found.shape) == (dtype, given[0].shape)


def test_numbers_and_arrays() -> None:
    x = snp.array([0.5, 2.0])
    np.testing.assert_array_equal(stax.lax.igamma(2.0, x), stax.lax.igamma(snp.full(2, 2.0), x))
    assert stax.lax.lgamma(3.0).weak_type
    assert stax.lax.zeta(2.0, 1.0).weak_type


def test_operands_that_do_not_fit() -> None:
    x = np.float32([0.5, 2.0])
    with pytest.raises(DTypeError, match="lgamma does not accept i32"):
        stax.lax.lgamma(np.arange(3))
    with pytest.raises(DTypeError, match="igamma: operands must have one dtype"):
        stax.lax.igamma(x, x.astype(np.float16))
    with pytest.raises(ShapeError, match="do not broadcast"):
        stax.lax.betainc(x, x, np.float32([0.5, 0.5, 0.5]))


def test_no_derivatives() -> None:
    with pytest.raises(MissingRule, match="random_gamma_grad has no derivative by a"):
        stax.grad(stax.lax.random_gamma_grad)(1.0, 2.0)
    with pytest.raises(MissingRule, match="polygamma has no derivative by its order"):
        stax.grad(stax.lax.polygamma)(1.0, 2.0)
