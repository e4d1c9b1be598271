"""Schedules: layouts, stages, what is kept between stages, block sizes."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.extent import symbol
from stax.lowering.fuse import Fusion
from stax.lowering.schedule import (
    COLUMN_BLOCKS,
    SCRATCH_BYTES,
    Layout,
    Schedule,
    column_block,
    schedule,
    unrolling,
)
from tests.lowering.examples import fusion_of, layer_norm, normal, softmax, statistics


def scheduled(function: Any, *args: Any) -> tuple[Fusion, Schedule]:
    fusion = fusion_of(function, *args)
    (region,) = fusion.regions
    return fusion, schedule(fusion, region)


@pytest.mark.parametrize(
    ("function", "layout"),
    [
        (lambda x: snp.exp(x) + 1, Layout.MAP),
        (lambda x: x.sum(1), Layout.ROWS),
        (lambda x: x.sum(), Layout.ROWS),
        (lambda x: x.sum(0), Layout.COLUMNS),
        (softmax, Layout.ROWS),
        (statistics, Layout.COLUMNS),
        (lambda x: x.T.sum(0), Layout.ROWS),
    ],
)
def test_layouts(function: Any, layout: Layout) -> None:
    assert scheduled(function, normal(16, 32))[1].layout is layout


@pytest.mark.parametrize(
    ("function", "shape", "layout"),
    [
        (lambda x: x.sum(1), (64, 3), Layout.SHORT_ROWS),
        (lambda x: x.sum(1), (64, 15), Layout.SHORT_ROWS),
        (lambda x: x.sum(1), (64, 16), Layout.ROWS),
        (lambda x: x.sum((1, 2)), (64, 2, 3), Layout.SHORT_ROWS),
        (lambda x: x.sum(1), (16, 3), Layout.ROWS),  # too few rows to fill vectors
        (lambda x: x.astype("float16").sum(1), (64, 3), Layout.ROWS),  # no gathers of so little
        (lambda x: x - x.mean(1, keepdims=True), (64, 3), Layout.SHORT_ROWS),
        (lambda x: x - x.mean(1, keepdims=True), (64, 7), Layout.ROWS),  # strided stores
        (softmax, (64, 7), Layout.SHORT_ROWS),  # which exponentials pay for
    ],
)
def test_rows_that_fill_no_vector(function: Any, shape: tuple[int, ...], layout: Layout) -> None:
    assert scheduled(function, normal(*shape))[1].layout is layout


@pytest.mark.parametrize("shape", [(100, 3), (3, 65, 2, 2), (1030, 13), (40, 1, 5)])
def test_short_rows_agree_with_the_evaluator(shape: tuple[int, ...]) -> None:
    def function(x: Any) -> Any:
        shares = softmax(x)
        return shares, x.max(-1), snp.sqrt((x * x).sum((0, -1))), (shares * 2).prod(-1)

    x = normal(*shape)
    for compiled, expected in zip(stax.jit(function)(x), function(x), strict=True):
        np.testing.assert_allclose(compiled, expected, rtol=1e-5)


def test_stages_count_the_reductions_before() -> None:
    _, plan = scheduled(softmax, normal(16, 32))
    names = {n.op.name: s for n, s in plan.stage.items()}
    assert names["reduce_max"] == 1
    assert names["exp"] == 1
    assert names["reduce_sum"] == 2
    assert names["div"] == 2
    assert list(plan.stages) == [0, 1, 2]


def test_dear_values_are_kept_in_scratch() -> None:
    _, plan = scheduled(softmax, normal(16, 32))
    assert [n.op.name for n in plan.kept] == ["exp"]
    _, plan = scheduled(lambda x: x - x.mean(1, keepdims=True), normal(16, 32))
    assert plan.kept == {}


def test_long_rows_are_stored_rather_than_kept() -> None:
    long = SCRATCH_BYTES // 4 + 64
    fusion, plan = scheduled(softmax, normal(2, long))
    (exp,) = [n for n in plan.kept if n.op.name == "exp"]
    assert exp in fusion.stored
    fusion, plan = scheduled(softmax, normal(2, 64))
    assert not any(n.op.name == "exp" for n in fusion.stored)


def test_independent_reductions_share_a_stage() -> None:
    _, plan = scheduled(lambda x: (x.sum(1), x.max(1), (x * x).sum(1)), normal(16, 32))
    assert len(plan.reductions(0)) == 3
    assert list(plan.stages) == [0, 1]


def test_targets_by_kind() -> None:
    _, plan = scheduled(lambda x: (x - x.max(1, keepdims=True), x.max(1) * 2), normal(16, 32))
    assert [n.op.name for n in plan.full_targets(1)] == ["sub"]
    assert [n.op.name for n in plan.outer_targets()] == ["mul"]


def test_maps_are_flat_where_every_access_is_at_the_same_place() -> None:
    x = normal(16, 32)
    assert scheduled(lambda x: snp.exp(x) * 2, x)[1].is_flat
    assert scheduled(lambda x: snp.exp(x) * x.reshape(16, 1, 32)[:, 0], x)[1].is_flat is not None
    assert not scheduled(lambda x, v: x + v, x, normal(32))[1].is_flat
    assert not scheduled(lambda x: x + snp.arange(32), x)[1].is_flat
    assert not scheduled(lambda x: x[::-1], x)[1].is_flat


def test_grain_is_smaller_for_dearer_work() -> None:
    _, cheap = scheduled(lambda x: x + 1, normal(16, 32))
    _, dear = scheduled(lambda x: snp.tanh(snp.exp(x)), normal(16, 32))
    assert dear.grain(32) < cheap.grain(32)
    assert cheap.grain(1 << 30) == 1


@pytest.mark.parametrize("columns", [1, 8, 64, 100, 1000, 100_000])
def test_column_blocks(columns: int) -> None:
    block = column_block(columns)
    assert 1 <= block <= min(columns, COLUMN_BLOCKS[1])


def test_symbolic_columns_and_rows() -> None:
    assert column_block(symbol("n")) == COLUMN_BLOCKS[0]
    assert unrolling(symbol("n"), 4) == 1


def test_unrolling_fits_the_rows() -> None:
    """Short bodies take more rows at a time, and no step takes more than there are."""
    for rows in range(1, 40):
        steps = [unrolling(rows, body) for body in (1, 8, 9, 20, 21, 100)]
        assert steps == sorted(steps, reverse=True)
        assert 1 <= steps[-1] <= steps[0] <= rows


def test_layer_norm_is_three_passes() -> None:
    _, plan = scheduled(layer_norm, normal(16, 32), normal(32), normal(32))
    assert len(plan.stages) == 3
