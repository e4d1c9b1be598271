"""Pairs of numbers in memory: one kernel that makes both, whole vectors read and written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.array import asarray
from stax.config import config
from stax.lowering.loop_printer import print_kernel
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import module_text

RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with config.override(enable_x64=True):
        yield


def numbers(*shape: int, dtype: str = "complex64") -> np.ndarray:
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def graph_of(function: Any, *xs: np.ndarray) -> Any:
    return stax.make_graph(function)(*map(asarray, xs))


def test_both_numbers_are_stored_by_the_kernel_that_computes_them() -> None:
    x = numbers(4096)
    program = lower_graph(graph_of(lambda x, y: x * y + x, x, x))
    assert len(program.kernels) == 1
    text = print_kernel(program.kernels[0])
    assert text.count(", 0] =") == text.count(", 1] =") == 1


def test_vectors_of_pairs_are_shuffled() -> None:
    x = numbers(4096)
    text = module_text(graph_of(lambda x: x * x, x))
    assert "shufflevector" in text
    assert "gather" not in text and "insertelement" not in text and "extractelement" not in text


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize(
    "shape", [(), (1,), (2,), (7,), (33,), (5000,), (3, 5), (40, 1), (1, 9, 70)]
)
def test_every_length(shape: tuple[int, ...], dtype: str) -> None:
    x, y = numbers(*shape, dtype=dtype), numbers(*shape, dtype=dtype)

    def function(x: Any, y: Any) -> Any:
        return x + y, x - y.T.T, stax.lax.complex(y.real, x.imag), x.T + 1, x.sum(), x.real

    found = stax.jit(function)(asarray(x), asarray(y))
    wanted = x + y, x - y, y.real + 1j * x.imag, x.T + 1, x.sum(), x.real
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        tolerance = 1e-5 if dtype == "complex64" else 1e-13
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 100)


def test_sums_and_rows_give_pairs() -> None:
    x = numbers(50, 200)
    f = stax.jit(lambda x: (x.sum(0), x.sum(1), x - x.mean(1, keepdims=True), snp.abs(x).sum(0)))
    found = f(asarray(x))
    wanted = x.sum(0), x.sum(1), x - x.mean(1, keepdims=True), np.abs(x).sum(0)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)


def test_one_value_for_two_results() -> None:
    x = numbers(100)
    found = stax.jit(lambda x: (x * 2, x * 2, (x * 2).reshape(10, 10), x))(asarray(x))
    for got, want in zip(found, (x * 2, x * 2, (x * 2).reshape(10, 10), x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_transform_of_what_is_also_a_result() -> None:
    x = numbers(64)
    found = stax.jit(lambda x: (x * 2, snp.fft.fft(x * 2)))(asarray(x))
    np.testing.assert_allclose(found[1], np.fft.fft(x * 2), rtol=1e-4, atol=1e-4)
