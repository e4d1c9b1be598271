"""Long sums: as accurate as NumPy's pairwise ones, right with infinities, cut by length alone."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.lowering.sums import COLUMN_CHUNK, ROW_CHUNK, Cut, cut
from tests.fuzz import only


def error(found: Any, exact: np.ndarray) -> float:
    """Return the root of the mean square of relative errors, in units of a rounding."""
    relative = np.asarray(found, np.float64) / exact - 1
    return float(np.sqrt(np.mean(relative**2)) * 2**24)


SHAPES = [
    ((40, 100_000), 1), ((40, 8193), 1), ((12, 30, 3001), (1, 2)), ((9, 20_011), 1),
    ((1000, 200), 0), ((1003, 77), 0), ((100, 200), 0), ((3000, 7, 50), (0, 1)),
    ((7, 3000, 50), (0, 1)), ((50, 60, 20, 40), (1, 2)), ((300_000,), 0), ((2, 300_000), 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
def test_a_sum_is_about_as_accurate_as_pairwise(shape: tuple[int, ...], axis: Any) -> None:
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    exact = x.astype(np.float64).sum(axis)
    last = np.moveaxis(x, axis, np.arange(-np.size(axis), 0))
    pairwise = np.ascontiguousarray(last).reshape(*exact.shape, -1).sum(-1)
    found = stax.jit(lambda x: (x.sum(axis), x.max(axis), (x * x).mean(axis)))(x)
    assert error(found[0], exact) <= 1.3 * error(pairwise, exact) + 0.7
    np.testing.assert_array_equal(found[1], x.max(axis))
    assert error(found[2], (x.astype(np.float64) ** 2).mean(axis)) < 2.0


@pytest.mark.parametrize("axis", [0, 1])
def test_infinities_stay(axis: int) -> None:
    x = np.ones((4, 20_000), np.float32)
    x[1, 5], x[2, 6], x[2, 19_999], x[3, 7] = np.inf, -np.inf, np.inf, np.nan
    x = np.ascontiguousarray(x.T) if axis == 0 else x
    found = stax.jit(lambda x: snp.sum(x, axis))(x)
    np.testing.assert_array_equal(found, [20_000, np.inf, np.nan, np.nan])


@pytest.mark.parametrize("axis", [0, 1])
def test_every_number_of_threads_gives_the_same_bits(axis: int) -> None:
    x = np.random.default_rng(1).random((9001, 300), dtype=np.float32)
    function = stax.jit(lambda x: snp.sum(x, axis))
    with only(1):
        alone = np.asarray(function(x))
    with only(2):
        np.testing.assert_array_equal(function(x), alone)


def test_where_loops_are_cut() -> None:
    assert cut((8192,), ROW_CHUNK) is None
    assert cut((100_000,), ROW_CHUNK) == Cut(0, 4000)
    assert cut((100_003,), ROW_CHUNK) == Cut(0, ROW_CHUNK)
    assert cut((100_003,), ROW_CHUNK, may_leave=False) is None
    assert cut((30, 10_000), ROW_CHUNK) == Cut(1, 5000)
    assert cut((3000, 100), ROW_CHUNK) == Cut(0, 40)
    assert cut((125,), COLUMN_CHUNK) == Cut(0, 25)
