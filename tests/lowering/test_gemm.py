"""Products by BLAS read and write what lies in memory otherwise, without copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.array import asarray
from stax.lowering.gemm import GEMM_FROM, Laid
from stax.lowering.prepare import prepare
from tests.operators.calculus import traced

HEADS = (2, 65, 3, 16)


def heads(x: Any) -> Any:
    return x.reshape(4, 32, 2, 16).transpose(0, 2, 1, 3)


def attention(x: Any) -> Any:
    q, k, v = (heads(t) for t in snp.split(x, 3, axis=-1))
    return (q @ k.swapaxes(-1, -2) @ v).transpose(0, 2, 1, 3).reshape(4, 32, 32)


def einsum(spec: str) -> Callable[..., Any]:
    return lambda *xs: snp.einsum(spec, *xs)


# Programs, the shapes of their arguments, and how many copies they make.
VIEWS: dict[str, tuple[Callable[..., Any], list[Any], int]] = {
    "scores": (einsum("bqhd,bkhd->bhqk"), [HEADS, HEADS], 0),
    "values": (einsum("bhqk,bkhd->bqhd"), [(2, 3, 65, 65), HEADS], 0),
    "by columns": (einsum("bqhd,bkhd->bhkq"), [HEADS, HEADS], 0),
    "batch within": (einsum("bqhd,bkhd->qbhk"), [HEADS, HEADS], 0),
    "sums in another order": (einsum("abc,dcb->ad"), [(20, 30, 40), (50, 40, 30)], 1),
    "sums of two axes": (einsum("abc,dbc->da"), [(20, 30, 40), (50, 30, 40)], 0),
    "batch last": (einsum("kib,kjb->bij"), [(8, 33, 17), (8, 34, 17)], 2),
    "slices": (lambda x, y: x[3:60:2, 5:] @ y[:, :40], [(70, 80), (75, 90)], 0),
    "a slice by columns": (lambda x, y: (x[:, 1:9].T @ y[:, 7:]).T, [(640, 80), (640, 90)], 0),
    "a slice of rows": (lambda x, y: x[:, ::2] @ y, [(70, 80), (40, 90)], 1),
    "projections": (attention, [(4, 32, 96)], 0),
    "rows of two axes": (lambda x, y: x[:, 1:] @ y, [(3, 70, 80), (80, 90)], 0),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    function, shapes, copies = VIEWS[name]
    rng = np.random.default_rng(0)
    xs = [asarray(rng.standard_normal(s).astype(np.float32)) for s in shapes]
    want = np.asarray(function(*xs))
    np.testing.assert_allclose(stax.jit(function)(*xs), want, rtol=1e-4, atol=1e-4)
    shown = str(stax.inspect.explain(function)(*xs))
    assert shown.partition("  copies:")[2].partition("  memory:")[0].count("f32[") == copies, shown


def test_a_transpose_is_the_order_of_a_result() -> None:
    rows = GEMM_FROM // 64
    xs = [np.ones((rows, 8, 8), np.float32), np.ones((8, 8), np.float32)]

    def turned(x: Any, y: Any) -> Any:
        return snp.einsum("abc,cd->bad", x, y)

    assert not any(isinstance(n.op, Laid) for n in prepare(traced(turned, xs)).nodes)

    def batched(x: Any, y: Any) -> Any:
        return snp.einsum("abc,adc->bad", x, y)

    prepared = prepare(traced(batched, [xs[0], xs[0]]))
    (node,) = (n for n in prepared.nodes if isinstance(n.op, Laid))
    found = node.op.evaluate(*(np.broadcast_to(np.arange(8.0), (rows, 8, 8)),) * 2)
    assert found.shape == (8, rows, 8)
    again = prepare(prepared)  # as a loop does with the body of a block
    assert [n.op.name for n in again.nodes] == [n.op.name for n in prepared.nodes]


@pytest.mark.parametrize("wide", [None, "int32", "uint16"])
@pytest.mark.parametrize(
    "dtypes", [("int8",), ("uint8",), ("int16",), ("uint16",), ("int8", "uint8")]
)
def test_short_integers(dtypes: tuple[str, ...], wide: str | None) -> None:
    """They are multiplied as floats in which they are exact, and wrap."""
    if wide is None and len(dtypes) > 1:
        wide = "int32"
    rng = np.random.default_rng(0)
    x, y = (
        rng.integers(np.iinfo(d).min, np.iinfo(d).max, s, d, endpoint=True)
        for d, s in ((dtypes[0], (65, 300)), (dtypes[-1], (300, 40)))
    )

    def product(x: Any, y: Any) -> Any:
        dimensions = (((1,), (0,)), ((), ()))
        return lax.dot_general(x, y, dimensions, preferred_element_type=wide)

    assert "exact in float" in str(stax.inspect.explain(product)(x, y))
    want = (x.astype(np.int64) @ y.astype(np.int64)).astype(wide or x.dtype)
    got = np.asarray(stax.jit(product)(x, y))
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)
