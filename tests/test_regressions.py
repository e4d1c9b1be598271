"""Programs that random tests found wrong once, each in its smallest form."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp


@pytest.mark.parametrize("length", [1, 2, 17])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_zeros_keep_the_first(name: str, length: int) -> None:
    """NumPy's own choice between 0.0 and -0.0 depends on the machine."""
    f = getattr(snp, name)
    for x in (0.0, -0.0):
        operands = np.full(length, x, np.float32), np.full(length, -x, np.float32)
        for found in (f(*operands), stax.jit(f)(*operands)):
            np.testing.assert_array_equal(np.signbit(found), np.signbit(operands[0]))


@pytest.mark.parametrize("x", [0.0, -0.0, 2.0, -2.0])
def test_slope_of_abs_at_zero_is_one(x: float) -> None:
    wanted = 1 if x >= 0 else -1
    assert jax.grad(jax.numpy.abs)(x) == wanted
    assert stax.grad(snp.abs)(x) == stax.jit(stax.grad(snp.abs))(x) == wanted


def test_large_unsigned_index_is_past_the_end() -> None:
    index = np.array([0, 2**32 - 4, 2], np.uint32)
    for f in (lambda x, i: x[i], stax.jit(lambda x, i: x[i])):
        np.testing.assert_array_equal(f(snp.arange(3), snp.asarray(index)), [0, 2, 2])


def test_product_over_an_empty_axis_by_columns() -> None:
    def f(x: stax.Array) -> tuple[stax.Array, stax.Array]:
        wide = x.astype("float64")
        return 3 - snp.squeeze(wide, 2), snp.prod(wide, axis=0, keepdims=True)

    rest, product = stax.jit(f)(np.zeros((0, 3, 1), np.float32))
    assert rest.shape == (0, 3)
    np.testing.assert_array_equal(product, np.ones((1, 3, 1)))


def test_columns_of_an_empty_axis() -> None:
    x = np.ones((2, 1, 0), np.float32)
    assert stax.jit(lambda x: x.sum(0))(x).shape == (1, 0)
    assert stax.jit(lambda x: (x.max(0), x.sum(0)))(x)[1].shape == (1, 0)
