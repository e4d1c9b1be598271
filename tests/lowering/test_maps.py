"""Maps: which loops they become, and that each of them computes every element."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.lowering.schedule import Layout, Schedule, schedule
from tests.lowering.examples import fusion_of, normal


def plan_of(function: Any, *args: Any) -> Schedule:
    fusion = fusion_of(function, *args)
    (region,) = fusion.regions
    plan = schedule(fusion, region)
    assert plan.layout is Layout.MAP
    return plan


def check(function: Any, *args: np.ndarray) -> None:
    """Compiled element-wise arithmetic has the bits of NumPy's."""
    np.testing.assert_array_equal(np.asarray(stax.jit(function)(*args)), function(*args))


@pytest.mark.parametrize("rows", [32, 33, 1000, 5003])
@pytest.mark.parametrize("columns", [2, 3, 7, 31])
def test_short_rows_repeat(rows: int, columns: int) -> None:
    x, row, column = normal(rows, columns), normal(columns, seed=1), normal(rows, seed=2)

    def f(x: Any, row: Any, column: Any) -> Any:
        return x * row + column[:, None]

    plan = plan_of(f, x, row, column)
    assert plan.period == columns
    assert sorted(plan.repeated.values()) == [False, True]
    check(f, x, row, column)


def test_few_or_long_rows_do_not_repeat() -> None:
    for shape in ((31, 3), (100, 32)):
        assert not plan_of(lambda x, v: x + v, normal(*shape), normal(shape[-1])).period


@pytest.mark.parametrize("shape", [(8, 8), (64, 64), (65, 129), (100, 1000), (9, 300), (300, 9)])
def test_transposed_reads_run_in_tiles(shape: tuple[int, int]) -> None:
    x, y = normal(*shape), normal(*shape[::-1], seed=1)
    assert plan_of(lambda x, y: x + y.T, x, y).tile == (0, 1)
    check(lambda x, y: x + y.T, x, y)


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2)])
@pytest.mark.parametrize("shape", [(2, 3, 20, 70), (3, 66, 5, 17), (1, 2, 300, 3)])
def test_permuted_axes(order: tuple[int, ...], shape: tuple[int, ...]) -> None:
    check(lambda x: x.transpose(order) * 2, normal(*shape))


def test_vectors_avoid_a_short_last_axis() -> None:
    plan = plan_of(lambda x: x.transpose(1, 2, 0) * 2, normal(3, 50, 60))
    assert plan.tile == (2, 1)


def test_empty_axes() -> None:
    check(lambda x: x.T * 2, np.zeros((0, 100), np.float32))
    check(lambda x: x.T * 2, np.zeros((100, 0), np.float32))


def test_values_at_the_point_are_flat() -> None:
    plan = plan_of(lambda x: snp.exp(x) * 2, normal(100, 3))
    assert (plan.is_flat, plan.period, plan.tile) == (True, 0, None)


TURNED: dict[str, Any] = {
    "copied": lambda x: x.T,
    "added": lambda x: x.T * x.T + x.T,
    "computed before": lambda x: snp.tanh(x).T,
    "computed after": lambda x: snp.tanh(x.T * 2) + 1,
    "reduced": lambda x: (snp.exp(x).T * 2).max(-1),
    "in a batch": lambda x: snp.sin(snp.stack([x, 2 * x])).transpose(2, 0, 1),
}


@pytest.mark.parametrize("shape", [(17, 40), (64, 64), (33, 257)])
@pytest.mark.parametrize("name", TURNED)
def test_blocks_are_transposed_in_scratch(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stax.lowering.schedule.TURNED_BYTES", 0)
    for dtype in ("float32", "float64", "float16", "int8"):
        with stax.enable_x64():
            x = (normal(*shape) * 3).astype(dtype)
            found = stax.jit(TURNED[name])(x)
            with stax.disable_jit():
                want = TURNED[name](snp.asarray(x))
        a, b = (np.asarray(z).astype("float64") for z in (found, want))
        near = 2e-3 if dtype in ("float16", "int8") else 1e-5
        np.testing.assert_allclose(a, b, rtol=near, atol=near)


def test_what_only_a_transpose_reads_is_computed_there() -> None:
    x = normal(100, 70)
    assert len(fusion_of(lambda x: snp.exp(snp.sin(x)).T + 1, x).regions) == 1
    both = fusion_of(lambda x: (y := snp.sin(x), y.T + 1), x)
    assert len(both.regions) == 2
    assert "transposed in scratch" in str(stax.inspect.explain(lambda x: x.T + 1)(normal(800, 900)))
