"""Scatters that become choices, against the reference evaluator, and those that must not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.interpreters.evaluate import evaluate
from stax.lowering.decisions import deciding
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import compile_graph

ROWS, COLUMNS = 6, 40
PLACES = np.array([0, 39, 40, -1, -41, 17], np.int32)
VALUES = np.array([1.5, -0.0, 2.0, np.nan, np.inf, -3.0], np.float32)


def along(kind: str, mode: Any = None, fill: float = 0.0, axis: int = 1) -> Callable[..., Any]:
    def function(places: Any, values: Any) -> Any:
        shape = (ROWS, COLUMNS) if axis else (COLUMNS, ROWS)
        x = snp.full(shape, fill, values.dtype)
        index = (snp.arange(ROWS), places) if axis else (places, snp.arange(ROWS))
        return getattr(x.at[index], kind)(values, mode=mode)

    return function


def windows(places: Any, values: Any) -> Any:
    """One row of a matrix of each example."""
    updates = values[:, None] * stax.lax.iota(values.dtype, 5)
    return snp.zeros((ROWS, COLUMNS, 5), values.dtype).at[snp.arange(ROWS), places].set(updates)


def turned(places: Any, values: Any) -> Any:
    updates = values[:, None] * stax.lax.iota(values.dtype, 5)
    zeros = snp.zeros((5, COLUMNS, ROWS), values.dtype)
    return zeros.at[:, places, snp.arange(ROWS)].add(updates.T)


def one(places: Any, values: Any) -> Any:
    """One element of an array: as it comes out, and as a step reads it."""
    x = snp.zeros((COLUMNS, 3), values.dtype).at[places[:1], places[:1] % 3].add(values[:1])
    return x, x.sum(0)


def mean_picked(x: Any, places: Any) -> Any:
    return snp.take_along_axis(stax.nn.log_softmax(x), places[:, None], 1).mean()


def collide(places: Any, values: Any) -> Any:
    return snp.zeros((ROWS, COLUMNS), values.dtype).at[places % 2, snp.arange(ROWS)].add(values)


def repeated(places: Any, values: Any) -> Any:
    return snp.zeros(COLUMNS, values.dtype).at[places].add(values)


def shifted(places: Any, values: Any) -> Any:
    return snp.zeros((COLUMNS, ROWS), values.dtype).at[snp.arange(1, ROWS + 1), places].set(values)


def beyond(places: Any, values: Any) -> Any:
    return snp.zeros((ROWS - 2, COLUMNS), values.dtype).at[snp.arange(ROWS), places].set(values)


CHOICES = {
    **{f"{kind} {mode}": along(kind, mode) for kind in ("set", "add") for mode in (None, "clip")},
    "multiply": along("multiply", fill=-2.0),
    "promise": along("add", "promise_in_bounds"),
    "other axis": along("add", axis=0),
    "windows": windows,
    "turned": turned,
    "one": one,
}
SCATTERS = {
    "collide": collide,
    "repeated": repeated,
    "shifted": shifted,
    "beyond": beyond,
    "least": along("min", fill=1.0),
}


def bits(x: Any) -> np.ndarray:
    """The elements as numbers that are equal if the bits are, but for those of a NaN."""
    wide = np.asarray(x).astype(np.float64)
    return np.where(np.isnan(wide), np.float64(np.nan), wide).view(np.uint64)


def run(graph: Any, args: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in compile_graph(graph).run(args)]


def compare(function: Callable[..., Any], *args: np.ndarray) -> list[str]:
    graph = stax.make_graph(function)(*args)
    with deciding() as decisions:
        lower_graph(graph)
    want, got = evaluate(graph, args), run(graph, args)
    for x, y in zip(want, got, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(bits(x), bits(y))
    return [d.what for d in decisions]


@pytest.mark.parametrize("name", CHOICES)
def test_choices(name: str) -> None:
    decisions = compare(CHOICES[name], PLACES, VALUES)
    assert any("as a choice" in what for what in decisions)


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_stay(name: str) -> None:
    decisions = compare(SCATTERS[name], PLACES, VALUES)
    assert not any("as a choice" in what for what in decisions)


@pytest.mark.parametrize("dtype", ["float16", "int8", "int32", "bool", "bfloat16"])
@pytest.mark.parametrize("places", ["int8", "uint8", "uint32"])
def test_dtypes(dtype: str, places: str) -> None:
    values = np.array([1, 0, 2, 5, 7, -3]).astype(
        stax.dtypes.bfloat16 if dtype == "bfloat16" else dtype
    )
    compare(along("set"), PLACES.astype(places), values)
    compare(along("add", "clip"), PLACES.astype(places), values)


def test_a_short_counter_that_wraps_is_no_counter() -> None:
    def function(values: Any) -> Any:
        rows = stax.lax.iota(np.int8, 200)
        return snp.zeros((200, 3), np.float32).at[rows, rows % 3].add(values, mode="drop")

    compare(function, np.arange(200, dtype=np.float32))


def test_small_values_join_a_large_nest() -> None:
    """What follows from labels is ready when the kernel of the loss runs."""
    x = np.random.default_rng(0).normal(size=(64, 1000)).astype(np.float32)
    labels = np.arange(64, dtype=np.int32) * 7
    graph = stax.make_graph(stax.grad(mean_picked))(x, labels)
    assert sum(len(part.steps) for part in lower_graph(graph).parts) == 2
    (got,), (want,) = run(graph, [x, labels]), evaluate(graph, [x, labels])
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-8)
