"""Parts of floating numbers and divisors of integers, to the bit, against NumPy."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError
from tests.operators.test_bits import FLOATS, INTEGERS, assert_same_bits, pairs, sample

EXPONENTS = [0, 1, -1, 5, -10, 20, -20, 126, -126, 127, -150, 300, -300, 1000, -1100, 2**31 - 1]
EXPONENTS += [-(2**31)]
# JAX flushes subnormal numbers; NumPy has another spacing of float16, and of zero.
SPACINGS = {"float16": jnp}


def both(function: Any, *args: Any) -> list[Any]:
    return [function(*args), stax.jit(function)(*args)]


def wide(dtype: str) -> Any:
    """Sixty-four bits, where the dtype has them."""
    return stax.config.override(enable_x64="64" in dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sign_mantissa_and_spacing(dtype: str) -> None:
    x = sample(dtype)
    with wide(dtype), jax.enable_x64("64" in dtype), np.errstate(all="ignore"):
        for found in both(snp.signbit, x):
            np.testing.assert_array_equal(found, np.signbit(x))
        mantissa, exponent = np.frexp(x)
        exponent = np.where(np.isfinite(x), exponent, 0).astype(np.int32)
        for ours in both(snp.frexp, x):
            assert_same_bits(ours[0], mantissa)
            np.testing.assert_array_equal(ours[1], exponent)
        nonzero = np.where(x == 0, np.ones_like(x), x)
        right = SPACINGS.get(dtype, np).spacing(nonzero)
        for found in both(snp.spacing, nonzero):
            assert_same_bits(found, right)


@pytest.mark.parametrize("dtype", FLOATS)
def test_ldexp_rounds_once(dtype: str) -> None:
    x = sample(dtype)
    x, n = np.repeat(x, len(EXPONENTS)), np.tile(np.array(EXPONENTS, np.int32), x.size)
    with wide(dtype), np.errstate(all="ignore"):
        right = np.ldexp(x.astype(np.float64), n).astype(x.dtype)
        for found in both(snp.ldexp, x, n):
            assert_same_bits(found, right)


@pytest.mark.parametrize("dtype", FLOATS)
def test_copysign_and_nextafter(dtype: str) -> None:
    x, y = pairs(dtype)
    with wide(dtype), np.errstate(all="ignore"):
        for found in both(snp.copysign, x, y):
            assert_same_bits(found, np.copysign(x, y))
        assert_same_bits(snp.nextafter(x, y), snp.asarray(stax.lax.nextafter(x, y)))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_divisors_and_multiples(dtype: str) -> None:
    x, y = pairs(dtype)
    if dtype[0] == "i":  # the lowest number has no absolute value
        lowest = np.iinfo(dtype).min
        x, y = (np.where(v == lowest, lowest + 1, v).astype(dtype) for v in (x, y))
    with wide(dtype):
        for name in ("gcd", "lcm"):
            for found in both(getattr(snp, name), x, y):
                assert_same_bits(found, getattr(np, name)(x, y))
        assert_same_bits(snp.bitwise_count(x), np.bitwise_count(x))
        mapped = stax.vmap(snp.gcd, (0, None))(x[:5], y[0])
        assert_same_bits(mapped, np.gcd(x[:5], y[0]))


@settings(max_examples=100)
@given(st.floats(allow_nan=False, width=32), st.integers(-300, 300))
def test_frexp_and_ldexp_are_inverse(x: float, n: int) -> None:
    number = np.float32(x)
    mantissa, exponent = snp.frexp(number)
    assert float(snp.ldexp(mantissa, exponent)) == number
    if number and math.isfinite(x):
        assert 0.5 <= abs(float(mantissa)) < 1
    with np.errstate(all="ignore"):
        assert float(snp.ldexp(number, n)) == np.ldexp(number, n)


def test_ldexp_by_unsigned_and_narrow_integers() -> None:
    for n in (np.uint32(2**31), np.uint8(200), np.int8(-128), np.uint64(300), True):
        for x in (np.float32(1.5), np.float16(0.5)):
            with np.errstate(all="ignore"):
                right = np.ldexp(x.astype(np.float64), min(int(n), 2000)).astype(x.dtype)
            assert_same_bits(snp.ldexp(x, n), right)


def test_gradients() -> None:
    for name, args in (("ldexp", (3,)), ("copysign", (-2.0,))):
        ours = stax.grad(lambda x, n=name, a=args: getattr(snp, n)(x, *a))(1.5)
        theirs = jax.grad(lambda x, n=name, a=args: getattr(jnp, n)(x, *a))(1.5)
        assert float(ours) == float(theirs)
    assert float(stax.grad(lambda x: snp.frexp(x)[0])(3.0)) == 0.25
    assert float(stax.grad(lambda x: snp.copysign(2.0, x))(-1.5)) == 0.0


def test_what_is_refused() -> None:
    for name, args in (
        ("signbit", (1j,)), ("spacing", (1j,)), ("ldexp", (1.0, 2.5)), ("gcd", (1.0, 2)),
        ("lcm", (True, False)),
    ):  # fmt: skip
        with pytest.raises(ArgumentValueError):
            getattr(snp, name)(*args)
    with pytest.raises(TypeError):
        snp.copysign(1j, 1.0)
