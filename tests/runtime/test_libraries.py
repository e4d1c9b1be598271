"""Generated code reaches BLAS, LAPACK and the products through the context table."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from stax.runtime import libraries, threads
from stax.runtime.products import DESCRIPTOR

DTYPES = {"f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}


def function(name: str, count: int):
    libraries.require(name)
    table = (ctypes.c_void_p * 512).from_address(libraries.context_address())
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count)(table[libraries.slot(name)])


def random(rng: np.random.Generator, dtype, *shape: int) -> np.ndarray:
    x = rng.standard_normal(shape)
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def described(batch: int, m: int, n: int, k: int, ta: int, tb: int, **others: int) -> Any:
    """The descriptor of dense products."""
    known = {
        "batch": batch, "inner": 1, "m": m, "n": n, "k": k, "transpose_a": ta, "transpose_b": tb,
        "lda": m if ta else k, "ldb": k if tb else n, "ldc": n,
        "stride_a": m * k, "stride_b": k * n, "stride_c": m * n, **others,
    }  # fmt: skip
    return (ctypes.c_int64 * len(DESCRIPTOR))(*(known.get(name, 0) for name in DESCRIPTOR))


def test_slots_are_fixed_and_named() -> None:
    assert libraries.slot("parallel_for") == 0
    with pytest.raises(KeyError, match="no slot 'nonsense'"):
        libraries.slot("nonsense")


@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("transposes", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize(
    ("batch", "m", "n", "k"),
    [(1, 3, 5, 7), (1, 100, 300, 64), (1, 333, 50, 90), (1, 1, 1000, 200), (1, 200, 1, 300),
     (1, 30, 65, 5000), (7, 64, 64, 64), (3, 300, 300, 300), (50, 8, 8, 8), (0, 4, 4, 4),
     (2, 5, 0, 3), (1, 300, 150, 200), (1, 131, 517, 77), (2, 9, 100, 1200)],
)  # fmt: skip
def test_products(element: str, transposes, batch: int, m: int, n: int, k: int) -> None:
    rng, dtype, (ta, tb) = np.random.default_rng(0), DTYPES[element], transposes
    a = random(rng, dtype, *((batch, k, m) if ta else (batch, m, k)))
    b = random(rng, dtype, *((batch, n, k) if tb else (batch, k, n)))
    c = random(rng, dtype, batch, m, n)
    wanted = (a.swapaxes(1, 2) if ta else a) @ (b.swapaxes(1, 2) if tb else b) + ta * c
    descriptor = described(batch, m, n, k, ta, tb, accumulate=ta)
    call = function(f"gemm_{element}", 4)
    call(a.ctypes.data, b.ctypes.data, c.ctypes.data, ctypes.addressof(descriptor))
    single = element in ("f32", "c64")
    np.testing.assert_allclose(c, wanted, rtol=1e-4 if single else 1e-10, atol=1e-3)


@pytest.mark.parametrize("transposes", [(0, 0), (0, 1), (1, 0)])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(65, 65, 64), (65, 300, 33), (777, 100, 65), (33, 40, 3001)]
)
def test_products_do_not_depend_on_the_number_of_threads(
    transposes, batch: int, m: int, n: int, k: int, monkeypatch
) -> None:
    """BLAS adds up in another order where it is given other pieces."""
    rng, (ta, tb) = np.random.default_rng(0), transposes
    a, b = random(rng, np.float32, batch, m, k), random(rng, np.float32, batch, k, n)
    descriptor, found = described(batch, m, n, k, ta, tb), []
    call = function("gemm_f32", 4)
    for count in (1, 2, 3):
        monkeypatch.setattr(threads._pool().control, "wanted", count)
        c = np.empty((batch, m, n), np.float32)
        call(a.ctypes.data, b.ctypes.data, c.ctypes.data, ctypes.addressof(descriptor))
        found.append(c.tobytes())
    assert len(set(found)) == 1


def test_products_do_not_depend_on_where_operands_lie() -> None:
    """What is not aligned is copied first: to the same numbers."""
    m, n, k, found = 200, 150, 170, []
    memory = np.random.default_rng(0).standard_normal(300 * 200).astype(np.float32)
    a, b = memory[: m * k].copy(), memory[: k * n].copy()
    call, size, descriptor = function("gemm_f32", 4), 4, described(1, m, n, k, 0, 0)
    for offset in (0, 1, 8):
        places = [np.empty(x.size + 32, np.float32) for x in (a, b, np.empty(m * n))]
        at = [(-p.ctypes.data % 64) // size + offset for p in places]
        for place, start, x in zip(places, at, (a, b), strict=False):
            place[start : start + x.size] = x
        pointers = [p.ctypes.data + size * start for p, start in zip(places, at, strict=True)]
        call(*pointers, ctypes.addressof(descriptor))
        found.append(places[2][at[2] : at[2] + m * n].tobytes())
    assert len(set(found)) == 1


def test_an_empty_sum_is_zero() -> None:
    c = np.ones((3, 4), np.float32)
    descriptor = described(1, 3, 4, 0, 0, 0, lda=1)
    x = np.zeros(1, np.float32)
    function("gemm_f32", 4)(x.ctypes.data, x.ctypes.data, c.ctypes.data, descriptor)
    assert (c == 0).all()


def test_blas_keeps_its_thread_count() -> None:
    before = libraries.blas_num_threads()
    if before is None:
        pytest.skip("this BLAS does not tell its thread count")
    try:
        assert libraries.set_blas_num_threads(2)
        x = np.ones((256, 256), np.float32)
        c = np.empty_like(x)
        descriptor = described(1, 256, 256, 256, 0, 0)
        function("gemm_f32", 4)(x.ctypes.data, x.ctypes.data, c.ctypes.data, descriptor)
        assert libraries.blas_num_threads() == 2
        begin, end = function("blas_begin", 0), function("blas_end", 0)
        begin()
        begin()
        assert libraries.blas_num_threads() == 1
        end()
        assert libraries.blas_num_threads() == 1
        end()
        assert libraries.blas_num_threads() == 2
    finally:
        libraries.set_blas_num_threads(before)


def test_products_work_without_thread_control(run_script) -> None:
    source = """
from stax.runtime import libraries
libraries._thread_control = lambda: None
import numpy as np, ctypes
libraries.require("gemm_f64")
table = (ctypes.c_void_p * 512).from_address(libraries.context_address())
call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 4)(table[libraries.slot("gemm_f64")])
x, c = np.ones((200, 200)), np.empty((200, 200))
call(x.ctypes.data, x.ctypes.data, c.ctypes.data,
     (ctypes.c_int64 * 19)(1, 1, 200, 200, 200, 0, 0, 200, 200, 200, *[0] * 9))
print((c == 200).all(), libraries.blas_num_threads(), libraries.set_blas_num_threads(1))
"""
    assert run_script(source) == "True None False"


def test_lapack_is_reached() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((5, 5))
    spd = np.asfortranarray(x @ x.T + 5 * np.eye(5))
    factor = spd.copy(order="F")
    n, info = ctypes.c_int32(5), ctypes.c_int32(-1)
    uplo = ctypes.c_char(b"L")
    pointers = [ctypes.addressof(v) for v in (uplo, n)] + [factor.ctypes.data]
    function("dpotrf", 5)(*pointers, ctypes.addressof(n), ctypes.addressof(info))
    assert info.value == 0
    np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(spd))


def test_every_slot_can_be_filled(run_script) -> None:
    source = """
from stax.runtime import libraries
libraries.require(*libraries._SLOTS)
names = set(libraries._SLOTS) - {libraries.HOST_OPS}  # which is a program's own
print(all(libraries._table[libraries.slot(name)] for name in names))
"""
    assert run_script(source) == "True"


def test_blas_costs_no_import_of_scipy_linalg(run_script) -> None:
    # From SciPy 1.18 on, scipy.special brings scipy.linalg along; then there is nothing to save.
    source = """
import sys
import scipy.special
before = "scipy.linalg" in sys.modules
from stax.runtime import libraries
libraries.require("sgemm")
print(("scipy.linalg" in sys.modules) == before)
import scipy.linalg.blas
"""
    assert run_script(source) == "True"
