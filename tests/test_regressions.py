"""Programs that random tests found wrong once, each in its smallest form."""

from __future__ import annotations

import copy
import functools
import threading
import time
from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ConcretizationTypeError


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


def test_functions_that_call_each_other_in_two_threads() -> None:
    """No lock is held while a function is traced, so there is no order of locks to get wrong."""
    even = stax.jit(lambda n, x: x if n == 0 else pause() or odd(n - 1, x), static_argnums=0)
    odd = stax.jit(lambda n, x: x if n == 0 else pause() or even(n - 1, x), static_argnums=0)

    def pause() -> None:
        time.sleep(0.05)

    threads = [
        threading.Thread(target=f, args=(n, 1.0), daemon=True) for f, n in ((even, 4), (odd, 5))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)


def test_the_absolute_value_of_complex_numbers_is_real() -> None:
    x = snp.asarray([3 + 4j])
    assert (abs(x).dtype, abs(x).tolist()) == (np.float32, [5])


def test_containers_of_traced_arrays_can_be_copied() -> None:
    x = snp.ones(2)
    assert stax.jit(lambda d: copy.deepcopy(d)["a"] * 2)({"a": x}).tolist() == [2, 2]
    assert stax.grad(lambda d: copy.copy(d)["a"].sum())({"a": x})["a"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("x", "slope"), [(0.0, np.inf), (-0.0, np.inf), (np.inf, 0.0), (8.0, 1 / 12)]
)
def test_derivative_of_the_cube_root(x: float, slope: float) -> None:
    assert float(stax.grad(snp.cbrt)(x)) == pytest.approx(slope)


def test_a_static_name_that_is_no_parameter() -> None:
    with pytest.raises(ValueError, match="'typo', which f does not take"):

        @functools.partial(stax.jit, static_argnames="typo")
        def f(x: Any) -> Any:
            return x


@pytest.mark.parametrize("shape", [(7,), (3, 4), (0,)])
@pytest.mark.parametrize("size", [0, 2, 20])
def test_nonzero_of_a_given_size_under_jit(shape: tuple[int, ...], size: int) -> None:
    x = (np.arange(np.prod(shape)).reshape(shape) % 3).astype(np.float32)
    found = stax.jit(lambda x: snp.nonzero(x, size=size, fill_value=-1))(x)
    # Of an empty array JAX fills with 0 whatever it is told.
    library = jax.numpy if x.size else snp
    wanted = library.nonzero(x, size=size, fill_value=-1)
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.tolist()) == (b.dtype, b.tolist())
    rows = stax.vmap(lambda x: snp.flatnonzero(x, size=2))(snp.asarray([[0, 1, 2], [3, 0, 0]]))
    assert rows.tolist() == [[1, 2], [0, 0]]
    with pytest.raises(ConcretizationTypeError, match="how many elements"):
        stax.jit(snp.nonzero)(x)
