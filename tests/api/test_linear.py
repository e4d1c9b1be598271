"""linear_transpose beside JAX's, and what is not linear."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors

X = np.arange(3, dtype=np.float32)


def test_transposes_of_linear_functions() -> None:
    def transposed(lib: Any) -> Any:
        w = lib.numpy.arange(6.0).reshape(2, 3)
        shape = lib.ShapeDtypeStruct((3,), "float32")
        back = lib.linear_transpose(lambda x: {"a": w @ x, "b": x.sum()}, shape)
        return back({"a": lib.numpy.ones(2), "b": lib.numpy.float32(2)})

    np.testing.assert_array_equal(transposed(stax)[0], transposed(jax)[0])
    back = stax.linear_transpose(lambda x: snp.sin(2.0) * x, X)
    assert stax.jit(lambda f, ct: f(ct))(back, X)[0].shape == (3,)
    affine = (lambda x: x + 1, lambda x: x - x + 1, lambda x: snp.ones(3).at[1].set(x))
    for f in (*affine, lambda x: x * x, snp.sin, lambda x: snp.float32(1.0)):
        with pytest.raises(NotImplementedError, match="is not linear"):
            stax.linear_transpose(f, 1.0)
    with pytest.raises(TypeError, match="mixes floats and integers"):
        stax.linear_transpose(lambda x: x.astype(int), 1.0)


LOOPS = {
    "counter": lambda L, x: L.fori_loop(1, 4, lambda i, c: c * i + x, x),
    "start at zero": lambda L, x: L.scan(lambda c, a: (c + 2 * a, c), 0.0, x)[1],
    "values beside": lambda L, x: L.scan(
        lambda c, a: ((c[0] + 2 * a * c[1], c[1] + 1), c[0] * c[1]), (0.0, 1), x
    )[1],
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str) -> None:
    f, x = LOOPS[name], np.linspace(0, 1, 4, dtype=np.float32)
    (theirs,) = jax.linear_transpose(lambda x: f(jax.lax, x), x)(x)
    (ours,) = stax.linear_transpose(lambda x: f(stax.lax, x), x)(x)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_a_loop_that_adds_a_value_is_not_linear() -> None:
    with pytest.raises(errors.MissingRule, match="not linear"):
        stax.linear_transpose(
            lambda x: stax.lax.scan(lambda c, a: (c + a, c), 1.0, x)[0], snp.ones(3)
        )


def test_arrays_of_zeros_are_known_where_they_are_closed_over() -> None:
    def pulled(lib: Any, start: Any) -> Any:
        sums = lambda x: lib.lax.scan(lambda c, a: (c + 2 * a, None), start, x)[0]  # noqa: E731
        return lib.linear_transpose(sums, lib.numpy.ones((4, 3)))(lib.numpy.arange(3.0))[0]

    for start in (np.zeros(3, np.float32), snp.zeros(3)):
        np.testing.assert_array_equal(pulled(stax, start), pulled(jax, np.asarray(start)))
    with pytest.raises(errors.MissingRule, match="add joins"):
        pulled(stax, snp.ones(3))


def test_a_result_that_is_zero_is_linear() -> None:
    def transposed(lib: Any) -> Any:
        zeros = lib.numpy.zeros(3)
        back = lib.linear_transpose(
            lambda x, y: (lib.numpy.zeros(3), 2 * x), 1.0, lib.numpy.ones(2)
        )
        return back((zeros + 1, 3.0))

    for ours, theirs in zip(transposed(stax), transposed(jax), strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(ours, theirs)
    (zero,) = stax.linear_transpose(lambda x: snp.zeros(3), X)(X)
    np.testing.assert_array_equal(zero, np.zeros(3))
