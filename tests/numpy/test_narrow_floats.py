"""16-bit floats: each operation rounds, also when fused; sums and products are taken in float32."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp

NARROW = ["float16", "bfloat16"]
RNG = np.random.default_rng(0)


def drawn(dtype: str, *shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(jnp.dtype(dtype))


def chain(x: Any, y: Any) -> Any:
    z = x * y + x
    z = snp.where(z > y, z / (snp.abs(y) + 1), z - y * 3)
    return snp.sqrt(snp.abs(z)) * snp.floor(x * 4) - snp.maximum(x, y) % 2


@pytest.mark.parametrize("dtype", NARROW)
def test_a_fused_chain_has_the_bits_of_its_operations(dtype: str) -> None:
    x, y = drawn(dtype, 2000), drawn(dtype, 2000)
    right = np.asarray(chain(snp.asarray(x), snp.asarray(y)))
    assert right.dtype == jnp.dtype(dtype)
    for function in (stax.jit(chain), stax.jit(stax.vmap(chain))):
        np.testing.assert_array_equal(
            np.asarray(function(x, y)).view(np.uint16), right.view(np.uint16)
        )


@settings(max_examples=40)
@given(st.lists(st.sampled_from("+-*/"), min_size=2, max_size=5), st.sampled_from(NARROW))
def test_any_chain(operations: list[str], dtype: str) -> None:
    x, y = drawn(dtype, 64), drawn(dtype, 64)

    def function(x: Any, y: Any) -> Any:
        for name in operations:
            x = {"+": x + y, "-": y - x, "*": x * y, "/": x / y}[name]
        return x

    right = np.asarray(function(snp.asarray(x), snp.asarray(y)))
    found = np.asarray(stax.jit(function)(x, y))
    np.testing.assert_array_equal(found.view(np.uint16), right.view(np.uint16))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("dtype", NARROW)
def test_sums_and_products_accumulate_in_float32(dtype: str, compiled: bool) -> None:
    ones = np.ones(5000, jnp.dtype(dtype))
    apply: Any = stax.jit if compiled else lambda f: f
    total = apply(snp.sum)(ones)
    assert total.dtype == ones.dtype and float(total) == float(ones.dtype.type(5000))
    assert float(apply(snp.dot)(ones, ones)) == float(ones.dtype.type(5000))
    assert float(apply(snp.mean)(ones)) == 1.0
    a, b = drawn(dtype, 70, 300), drawn(dtype, 300, 90)
    wide = a.astype(np.float32) @ b.astype(np.float32)
    product = np.asarray(apply(snp.matmul)(a, b))
    assert product.dtype == a.dtype
    np.testing.assert_allclose(
        product.astype(np.float32), wide, rtol=float(2 * jnp.finfo(dtype).eps), atol=1e-2
    )
    # The sums are float32, so almost all results are those of rounding once.
    assert (product == wide.astype(a.dtype)).mean() > 0.98


@pytest.mark.parametrize("dtype", [*NARROW, "int8", "int32", "uint8", "int16", "bool"])
def test_compiled_products(dtype: str) -> None:
    """Large and small, in batches and transposed, into the own type and another."""
    for shape, other in (((40, 50), (50, 60)), ((3, 2, 5), (3, 5, 2)), ((5,), (5,))):
        if dtype in NARROW:
            a, b = drawn(dtype, *shape), drawn(dtype, *other)
        else:
            a, b = (RNG.integers(0, 120, s).astype(dtype) for s in (shape, other))
        eager = snp.matmul(a, b)
        found = stax.jit(snp.matmul)(a, b)
        assert found.dtype == eager.dtype == jnp.matmul(a, b).dtype
        np.testing.assert_allclose(
            np.asarray(found, np.float32), np.asarray(eager, np.float32), rtol=2e-2, atol=2e-2
        )
        wanted = "float32" if dtype in NARROW else "int32"

        def wide(a: Any, b: Any, wanted: str = wanted) -> Any:
            return snp.matmul(a, b, preferred_element_type=wanted)

        assert stax.jit(wide)(a, b).dtype == np.dtype(wanted)
        np.testing.assert_allclose(stax.jit(wide)(a, b), wide(a, b), rtol=1e-5, atol=1e-4)
