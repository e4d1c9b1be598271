"""Reductions in two steps: when they are cut, and that nothing is lost."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.lowering.prepare import prepare
from stax.lowering.split import MANY_ELEMENTS, fold_of
from tests.lowering.examples import fusion_of, normal


def prepared_ops(function: Any, *args: Any) -> list[str]:
    return [n.op.name for n in prepare(stax.make_graph(function)(*args)).nodes if n.inputs]


SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((70_000,), None),
    ((32_771,), 0),
    ((40_001, 3), 0),
    ((40_001, 3), None),
    ((9_001, 16), 0),
    ((700, 65), 0),
    ((3, 20_011), 1),
    ((3, 20_011), None),
    ((2, 5_003, 7), 1),
    ((100, 101, 5), (0, 1)),
    ((7, 9, 1_001), (0, 2)),
    ((50_000, 1), 0),
]


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_cut_reductions_reduce_everything_once(shape: tuple[int, ...], axes: Any) -> None:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape) % 1009
    f = stax.jit(lambda x: ((x * 3 + 1).sum(axes), x.max(axes), (x > 1007).any(axes)))
    y = x * 3 + 1
    expected = y.sum(axes, dtype=np.int32), x.max(axes), (x > 1007).any(axes)
    for got, want in zip(f(x), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_narrow_floats_are_rounded_once() -> None:
    x = np.ones(MANY_ELEMENTS, np.float16) / 16
    assert float(stax.jit(snp.sum)(x)) == MANY_ELEMENTS / 16


def test_what_is_reduced_is_not_stored_first() -> None:
    fusion = fusion_of(lambda x: snp.tanh(x).sum(), normal(MANY_ELEMENTS + 1))
    assert all(n.type.size < 1000 for n in fusion.stored)


def test_a_value_that_is_used_elsewhere_is_stored_once() -> None:
    def f(x: Any) -> Any:
        y = snp.tanh(x)
        return y.sum(), y

    assert prepared_ops(f, normal(MANY_ELEMENTS)).count("tanh") == 1


def test_values_per_row_and_per_column_join_a_cut() -> None:
    x, rows, columns = normal(20_000, 3), normal(20_000, seed=1), normal(3, seed=2)

    def f(x: Any, rows: Any, columns: Any) -> Any:
        return (x * rows[:, None]).sum(0), ((x - columns) ** 2).sum(0)

    for got, want in zip(stax.jit(f)(x, rows, columns), f(x, rows, columns), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-4)


@pytest.mark.parametrize("shape", [(100, 100), (20_000, 300), (0, 3), (64, 3_000)])
def test_enough_rows_or_columns_are_not_cut(shape: tuple[int, ...]) -> None:
    axis = 1 if shape[0] == 64 else 0
    graph = stax.make_graph(lambda x: x.sum(axis))(np.zeros(shape, np.float32))
    (node,) = (n for n in graph.nodes if n.op.name == "reduce_sum")
    assert fold_of(node) is None


@pytest.mark.parametrize(
    "product",
    [
        lambda a, x: a @ x,
        lambda a, x: x @ a.T,
        lambda a, x: (a.T @ x[:40, None])[:, 0] if a.shape[0] == 40 else a @ x,
        lambda a, x: snp.einsum("ij,ij->i", a, a),
    ],
)
def test_products_with_a_vector_are_sums(product: Any) -> None:
    a, x = normal(40, 50), normal(50, seed=1)
    assert "dot_general" not in prepared_ops(product, a, x)
    np.testing.assert_allclose(
        np.asarray(stax.jit(product)(a, x)), np.asarray(product(snp.array(a), snp.array(x))),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip
