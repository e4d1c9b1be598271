"""What is made of random bits without rounding: JAX's to the last bit, eager, jitted and mapped."""

from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p

import stax
import stax.random as sr
from stax.operators.random import RandomBits
from tests.like_jax import assert_like_jax
from tests.operators.point_kernel import PointKernel, PointOperand

SEEDS = [0, 1, -1, 2**31, 2**40 + 5, -(2**63), np.uint32(7), np.int16(-3), np.uint8(200)]
UNSIGNED = ["uint8", "uint16", "uint32"]
INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32"]
Sampler = Callable[[Any, Any], Any]


def both(x64: bool) -> Any:
    """Both libraries with 64-bit types, or both without."""
    stack = stax.config.override(enable_x64=x64)
    return stack, jax.enable_x64(x64)


def assert_same_bits(from_jax: Any, sampler: Sampler, x64: bool = False) -> None:
    """Compare a sampler of (jax.random or stax.random, key) on both kinds of keys."""
    ours, theirs = both(x64)
    with ours, theirs:
        expected = from_jax(lambda: sampler(jr, jr.key(5)))
        for make in (sr.key, sr.PRNGKey):
            assert_like_jax(sampler(sr, make(5)), expected)
            assert_like_jax(stax.jit(lambda k: sampler(sr, k))(make(5)), expected)


@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("seed", SEEDS, ids=str)
def test_seeds(from_jax: Any, seed: Any, x64: bool) -> None:
    ours, theirs = both(x64)
    with ours, theirs:
        expected = from_jax(lambda: jr.PRNGKey(seed))
        assert_like_jax(sr.PRNGKey(seed), expected)
        assert_like_jax(sr.key_data(sr.key(seed)), expected)


@pytest.mark.parametrize("num", [0, 1, 3, (2, 3), (), (4, 1, 2)])
def test_split(from_jax: Any, num: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.key_data(r.split(k, num)))


@pytest.mark.parametrize("data", [0, 7, 2**32 - 1, 1.5, np.int8(3)])
def test_fold_in(from_jax: Any, data: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.key_data(r.fold_in(k, data)))


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (1, 1), (0, 3), (4, 1, 3)])
@pytest.mark.parametrize("dtype", UNSIGNED)
def test_bits(from_jax: Any, shape: Any, dtype: str) -> None:
    assert_same_bits(from_jax, lambda r, k: r.bits(k, shape, dtype))


@pytest.mark.parametrize("shape", [(), (3, 5)])
def test_bits_of_64(from_jax: Any, shape: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.bits(k, shape), x64=True)


def test_blocks_whose_count_takes_two_words() -> None:
    kernel, key = PointKernel(), sr.key(5)
    operand = PointOperand(key.type, np.asarray(sr.key_data(key)).view(np.uint64)[0])
    shape = (1 << 31, 8)  # far too large to compare as a whole
    op, place = RandomBits(32, shape), (1 << 30, 3)
    count = place[0] * shape[1] + place[1]
    high, low = (np.uint32(x) for x in divmod(count, 1 << 32))
    words = threefry2x32_p.bind(*jr.key_data(jr.key(5)), high, low)
    assert op.lower(kernel, place, operand) == np.bitwise_xor(*map(np.asarray, words))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.3, 1.7), (-3.25, 0)])
def test_uniform(from_jax: Any, dtype: str, ends: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.uniform(k, (3, 40), dtype, *ends))


def test_uniform_of_64_bits(from_jax: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.uniform(k, (100,), None, 0.3, 1.7), x64=True)


def test_uniform_between_arrays(from_jax: Any) -> None:
    ends = np.arange(5, dtype=np.float32)
    assert_same_bits(from_jax, lambda r, k: r.uniform(k, (3, 5), minval=ends, maxval=ends * 2 + 1))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("ends", [(3, 100), (0, 256), (-5, 2**31 - 1), (5, 3)])
def test_randint(from_jax: Any, dtype: str, ends: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.randint(k, (50,), *ends, dtype))


def test_randint_between_arrays(from_jax: Any) -> None:
    ends = np.arange(5)
    assert_same_bits(from_jax, lambda r, k: r.randint(k, (3, 5), ends, ends * 7 + 1))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_randint_of_64_bits(from_jax: Any, dtype: str) -> None:
    assert_same_bits(
        from_jax, lambda r, k: r.randint(k, (50,), -(2**62), 2**63 - 1, dtype), x64=True
    )


@pytest.mark.parametrize("mode", ["low", "high"])
def test_bernoulli(from_jax: Any, mode: str) -> None:
    assert_same_bits(from_jax, lambda r, k: r.bernoulli(k, 0.3, (100,), mode))
    chances = np.linspace(0, 1, 5).astype(np.float32)
    assert_same_bits(from_jax, lambda r, k: r.bernoulli(k, chances, mode=mode))


def test_rademacher(from_jax: Any) -> None:
    assert_same_bits(from_jax, lambda r, k: r.rademacher(k, (100,)))
    assert_same_bits(from_jax, lambda r, k: r.rademacher(k, (100,), "float32"))


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit], ids=["eager", "jit"])
def test_mapped_over_keys(from_jax: Any, wrap: Any) -> None:
    def draw(r: Any, key: Any) -> Any:
        return r.bits(r.fold_in(key, 3), (4,)), r.randint(key, (2, 3), 0, 17)

    ours = wrap(stax.vmap(lambda k: draw(sr, k)))(sr.split(sr.key(1), 5))
    theirs = from_jax(lambda: jax.vmap(lambda k: draw(jr, k))(jr.split(jr.key(1), 5)))
    assert_like_jax(ours, theirs)


def test_mapped_over_seeds(from_jax: Any) -> None:
    seeds = np.arange(4)
    ours = stax.vmap(lambda s: sr.bits(sr.fold_in(sr.key(s), s), (3,)))(seeds)
    theirs = jax.vmap(lambda s: jr.bits(jr.fold_in(jr.key(s), s), (3,)))
    assert_like_jax(ours, from_jax(lambda: theirs(seeds)))


def test_one_kernel_draws_and_consumes() -> None:
    x = np.ones((100, 130), np.float32)
    dropout = stax.jit(lambda k: stax.numpy.where(sr.bernoulli(k, 0.8, x.shape), x / 0.8, 0))
    assert dropout.lower(sr.key(0)).compile().cost_analysis()["kernels"] == 1


def test_gradients_pass_through_the_ends_of_a_range() -> None:
    def total(r: Any, low: Any, high: Any) -> Any:
        return (r.uniform(r.key(3), (7,), minval=low, maxval=high) ** 2).sum()

    ours = stax.grad(lambda a, b: total(sr, a, b), (0, 1))(-2.0, 1.0)
    theirs = jax.grad(lambda a, b: total(jr, a, b), (0, 1))(-2.0, 1.0)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
