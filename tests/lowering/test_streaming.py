"""Large results pass the caches by, and memory is asked for ahead: with the same values."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.lowering import streaming
from stax.lowering.pipeline import lower_graph

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "map": lambda x: x + x * x,
    "two results": lambda x: (x + x, x * x),
    "rows": lambda x: x - x.max(-1, keepdims=True),
    "columns": lambda x: x - x.max(0),
    "transpose": lambda x: (x + x).T,
    "pad": lambda x: snp.pad(x, 1) + x[0, 0],
}


def streamed(f: Callable[..., Any], *args: Any) -> int:
    """Return how many results kernels write past the caches."""
    kernels = lower_graph(stax.jit(f).lower(*args).graph).kernels
    return sum(len(kernel.streamed) for kernel in kernels)


@pytest.mark.parametrize("shape", [(33, 777), (64, 1000), (1, 4097)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_at_any_alignment(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("STREAMED_BYTES", "RAGGED_BYTES"):
        monkeypatch.setattr(streaming, limit, 1 << 9)
    f = PROGRAMS[name]
    assert streamed(f, stax.ShapeDtypeStruct(shape, np.float32)) > 0
    for dtype in (np.float32, np.float64, np.int8):
        with stax.enable_x64():
            x = (np.random.default_rng(0).standard_normal(shape) * 50).astype(dtype)
            found = stax.tree.leaves(stax.jit(f)(x))
            with stax.disable_jit():
                want = stax.tree.leaves(f(snp.asarray(x)))
        for a, b in zip(found, want, strict=True):
            np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_what_is_streamed() -> None:
    large = stax.ShapeDtypeStruct((1 << 22,), np.float32)
    small = stax.ShapeDtypeStruct((1 << 16,), np.float32)
    assert streamed(lambda x: x + 1, large) == 1
    assert streamed(lambda x: x + 1, small) == 0
    # Read by another step; an array that a loop updates again.
    assert streamed(lambda x: (y := snp.sin(x), snp.sort(y)), large) == 0
    assert streamed(lambda x: stax.lax.fori_loop(0, 3, lambda i, y: y * 2 + i, x), large) == 0
    # Arithmetic sets the pace.
    assert streamed(lambda x: snp.sin(snp.exp(snp.tan(snp.log(snp.cos(snp.sinh(x)))))), large) == 0
    # Rows that end within a line of the cache have to be larger.
    for length, side, count in ((1504, 1504, 1), (1504, 1501, 0), (4096, 2999, 1)):
        rows = stax.ShapeDtypeStruct((length, side), np.float32)
        assert streamed(lambda x: x - x.max(1, keepdims=True), rows) == count
    assert "past the caches" in str(stax.inspect.explain(lambda x: x + 1)(large))


READ_AGAIN: dict[str, Callable[[Any], Any]] = {
    "rows": stax.nn.softmax,
    "rows to one value": lambda x: x.var(-1),
    "columns": lambda x: (x.var(0), x.max(0)),
}


@pytest.mark.parametrize("shape", [(1200, 200), (1000, 133)])
@pytest.mark.parametrize("name", READ_AGAIN)
def test_memory_that_is_asked_for_ahead(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    f, x = READ_AGAIN[name], np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    want = stax.tree.leaves(stax.jit(lambda x: f(x))(x))
    assert "@llvm.prefetch" not in stax.jit(f).lower(x).as_text("llvm")
    monkeypatch.setattr("stax.lowering.llvm._LARGE", 1 << 14)
    assert "@llvm.prefetch" in stax.jit(f).lower(x).as_text("llvm")
    for a, b in zip(stax.tree.leaves(stax.jit(lambda x: f(x))(x)), want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
