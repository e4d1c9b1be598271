"""Division by a value that all lanes share has the bits of a division."""

import numpy as np
import pytest

import stax
from stax.lowering import llvm_division

DTYPES = (np.float32, np.float64)


def numbers(dtype: type, seed: int) -> np.ndarray:
    """Return numbers of every size, with zeros, subnormal ones, infinities and NaN."""
    draw = np.random.default_rng(seed)
    kind = np.uint32 if dtype is np.float32 else np.uint64
    patterns = draw.integers(0, np.iinfo(kind).max, 600, dtype=kind, endpoint=True).view(dtype)
    usual = (draw.standard_normal(600) * 10.0 ** draw.integers(-12, 12, 600)).astype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.finfo(dtype).tiny / 4], dtype)
    return np.concatenate([np.tile(usual, 3), patterns, special])


def check(x: np.ndarray, divisor: np.ndarray, found: object) -> None:
    kind = np.uint32 if x.dtype == np.float32 else np.uint64
    with np.errstate(all="ignore"):
        want = x / divisor
    got = np.asarray(found)
    same = (got.view(kind) == want.view(kind)) | (np.isnan(got) & np.isnan(want))
    assert same.all(), (divisor, x[~same][:3], got[~same][:3], want[~same][:3])


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule holds on every machine that has fused operations, if it is used there."""
    monkeypatch.setattr(llvm_division, "WIDE", 16)


@pytest.mark.parametrize("dtype", DTYPES)
def test_divisors_that_come_with_a_call(dtype: type) -> None:
    eps = np.finfo(dtype).eps
    divisors = [*numbers(dtype, 1)[::90], 1 + eps, 2 - eps, 3, 0, -7, np.inf, np.nan, 1e-8, 1e30]
    with stax.enable_x64():
        quotient = stax.jit(lambda x, y: x / y)
        for seed, divisor in enumerate(np.array(divisors, dtype)):
            x = numbers(dtype, seed)
            check(x, divisor, quotient(x, divisor))


@pytest.mark.parametrize("dtype", DTYPES)
def test_constant_divisors(dtype: type) -> None:
    x = numbers(dtype, 0)
    with stax.enable_x64():
        for value in (3.0, 0.1, 255.0, 2.0, -3.0, 1e-30, 1e6):
            divisor = dtype(value)
            check(x, divisor, stax.jit(lambda x, y=divisor: x / y)(x))
