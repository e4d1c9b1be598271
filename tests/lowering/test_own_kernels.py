"""Ops that are kernels of their own, compiled, against the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from stax.api.compiled import jit
from stax.array import asarray
from stax.config import config
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.lowering import loop_ir as ir
from stax.op import Batch
from stax.operators.dynamic import dynamic_slice, dynamic_update_slice
from stax.operators.elementwise import add, div, full, mul
from stax.operators.fft import Fft
from stax.operators.index import (
    GatherDimensionNumbers,
    ScatterDimensionNumbers,
    gather,
    scatter,
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_mul,
)
from stax.operators.matrices import Carried, MatrixOp
from stax.operators.reduce import cummax, cummin, cumprod, cumsum
from stax.operators.reshape import reshape, transpose
from stax.operators.sort import argsort, sort
from stax.runtime.compiler import compile_graph
from stax.types import bfloat16
from tests.operators.calculus import traced
from tests.operators.samples import SAMPLES

Arrays = Sequence[np.ndarray]

RUNNING = (cumsum, cumprod, cummax, cummin)
SCATTERS = (scatter, scatter_add, scatter_mul, scatter_min, scatter_max)
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
ROWS = ScatterDimensionNumbers((1,), (0,), (0,))
POINTS = ScatterDimensionNumbers((), (0,), (0,))
BATCHED_ROWS = ScatterDimensionNumbers((2,), (1,), (1,), (0,), (0,))


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with config.override(enable_x64=True):
        yield


def bits(x: np.ndarray) -> np.ndarray:
    """The bytes of each element as an integer, so that -0.0 is not 0.0 and NaN equals itself."""
    flat = np.ascontiguousarray(x).reshape(-1)
    return flat.view(f"u{x.itemsize // (2 if x.dtype.kind == 'c' else 1)}")


def compiled(function: Callable[..., Any], xs: Arrays) -> tuple[Arrays, Arrays]:
    """The results of the compiled function and of the evaluator."""
    graph = traced(function, xs)
    return [np.asarray(x) for x in compile_graph(graph).run(xs)], evaluate(graph, xs)


def check(function: Callable[..., Any], *xs: np.ndarray) -> None:
    """Compare bit for bit."""
    for got, want in zip(*compiled(function, xs), strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_array_equal(bits(got), bits(want))


def draw_array(rng: np.random.Generator, dtype: str, shape: Any) -> np.ndarray:
    """An array with ties, signed zeros, NaNs of both signs and infinities."""
    numpy_dtype = bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    if dtype in FLOATS:
        special = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0])
        x = np.where(rng.random(shape) < 0.2, rng.choice(special, shape), rng.normal(size=shape))
        return np.asarray(x.astype(numpy_dtype))
    raw = rng.integers(0, 256, (*shape, numpy_dtype.itemsize), np.uint8)
    if dtype == "bool":
        return np.asarray(raw[..., 0] < 128)
    if rng.random() < 0.5:
        raw[..., 1:] = 0
    return np.ascontiguousarray(raw).view(numpy_dtype)[..., 0]


seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.sampled_from((0, 1, 2, 3, 7, 9, 20, 65)), min_size=1, max_size=3).map(tuple)


# --- running reductions ---


@settings(max_examples=60)
@given(st.sampled_from(RUNNING), shapes, st.integers(0, 2), st.booleans(),
       st.sampled_from(FLOATS + INTEGERS), seeds)  # fmt: skip
def test_running(
    function: Any, shape: Any, axis: int, reverse: bool, dtype: str, seed: int
) -> None:
    x = np.random.default_rng(seed).normal(size=shape) * 3
    x = np.clip(x, 0, None) if dtype.startswith("u") else x
    x = x.astype(bfloat16 if dtype == "bfloat16" else dtype)
    check(lambda x: function(x, axis % len(shape), reverse), x)


@pytest.mark.parametrize("function", [cummax, cummin])
def test_running_truth_values(function: Any) -> None:
    x = np.random.default_rng(0).random((30, 9)) < 0.1
    check(lambda x: function(x, 0), x)
    check(lambda x: function(x, 1), x)


def test_running_keeps_nan_and_minus_zero() -> None:
    check(lambda x: cumsum(x, 0), np.array([-0.0, -0.0, 0.0, -0.0], np.float32))
    check(lambda x: cummax(x, 0), np.array([1.0, np.nan, 2.0, np.inf], np.float32))


def test_running_over_wide_columns() -> None:
    x = np.random.default_rng(0).normal(size=(2, 5, 1500)).astype(np.float32)
    check(lambda x: cumsum(x, 1), x)
    check(lambda x: cumsum(reshape(x, (10, 1500)), 0, True), x)


def test_running_of_what_is_computed() -> None:
    x = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
    check(lambda x: mul(cumsum(mul(x, x), 1), x), x)
    check(lambda x: (cumsum(transpose(x), 1), cumsum(x, 0)), x)
    check(lambda x: cumsum(cumsum(x, 0), 1), x)


def test_half_precision_sums_round_once_an_element() -> None:
    x = np.ones(3000, np.float16)
    (got,), _ = compiled(lambda x: cumsum(x, 0), [x])
    assert got[-1] == 3000


# --- sorting ---


@settings(max_examples=80)
@given(shapes, st.integers(0, 2), st.sampled_from((*FLOATS, *INTEGERS, "bool")), seeds)
def test_sort(shape: Any, axis: int, dtype: str, seed: int) -> None:
    x = draw_array(np.random.default_rng(seed), dtype, shape)
    check(lambda x: sort(x, axis % len(shape)), x)


@settings(max_examples=60)
@given(st.integers(0, 200), st.lists(st.sampled_from((*FLOATS, *INTEGERS, "bool")), min_size=2,
       max_size=4), st.integers(1, 4), seeds)  # fmt: skip
def test_sort_of_several(length: int, dtypes: list[str], num_keys: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs = [draw_array(rng, dtype, (3, length)) for dtype in dtypes]
    check(lambda *xs: sort(xs, 1, min(num_keys, len(xs))), *xs)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_long_rows(dtype: str) -> None:
    x = draw_array(np.random.default_rng(0), dtype, (3, 20_000))
    check(lambda x: (sort(x, 1), argsort(x, 1)), x)
    check(lambda x: sort(x, 0), x)


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint32", "int64", "float16"])
def test_a_long_row_alone_is_sorted_in_parts(dtype: str) -> None:
    x = draw_array(np.random.default_rng(0), dtype, (70_001,))
    check(lambda x: (sort(x, 0), argsort(x, 0)), x)
    check(lambda x, y: sort((x, y), 0)[1], x[::-1].copy(), x)


@pytest.mark.parametrize("axis", [0, 1])
def test_zeros_and_nan_keep_their_order(axis: int) -> None:
    rng = np.random.default_rng(0)
    bits = rng.choice(np.array([0, 0x80000000, 0x7FC00001, 0xFFC00002, 0x3F800000, 0xBF800000],
                               np.uint32), (90, 90))  # fmt: skip
    (got,), _ = compiled(lambda x: sort(x, axis), [bits.view(np.float32)])
    order = np.argsort(np.nan_to_num(bits.view(np.float32), nan=np.inf), axis, kind="stable")
    np.testing.assert_array_equal(got.view(np.uint32), np.take_along_axis(bits, order, axis))


def test_many_rows_in_tasks() -> None:
    rng = np.random.default_rng(0)
    x, y = draw_array(rng, "float32", (777, 60)), draw_array(rng, "int16", (777, 60))
    check(lambda x, y: sort((y, x), 1), x, y)


def test_only_the_results_that_are_read_are_written() -> None:
    rng = np.random.default_rng(0)
    x, y, z = (draw_array(rng, "int32", (40, 50)) for _ in range(3))
    check(lambda x, y, z: sort((x, y, z), 1)[2], x, y, z)
    check(lambda x, y, z: add(sort((x, y, z), 1)[1], sort(z, 1)), x, y, z)
    check(lambda x, y, z: (sort((x, y, z), 0)[1],) * 2, x, y, z)


def test_sort_of_a_sort() -> None:
    x = draw_array(np.random.default_rng(0), "float32", (40, 50))
    check(lambda x: sort(mul(sort(x, 1), x), 0), x)


# --- scatter ---


@settings(max_examples=80)
@given(st.sampled_from(SCATTERS), st.sampled_from(("clip", "drop", "promise_in_bounds")),
       st.sampled_from((*FLOATS, *INTEGERS, "bool")), st.sampled_from(("int32", "int64", "uint8")),
       st.integers(0, 30), st.sampled_from((1, 3, 40, 600)), seeds)  # fmt: skip
def test_scatter_of_rows(
    function: Any, mode: str, dtype: str, places: str, count: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    kind = bfloat16 if dtype == "bfloat16" else dtype
    x, u = (rng.normal(size=(n, width)) * 3 for n in (9, count))
    i = rng.integers(0 if places == "uint8" else -3, 12, (count, 1)).astype(places)
    xs = [np.abs(x).astype(kind), i, np.abs(u).astype(kind)]
    check(lambda x, i, u: function(x, i, u, ROWS, mode=mode), *xs)


NUMBERS = {
    "many rows": ((11, 16), (3000, 1), (3000, 16), ROWS),
    "columns": ((5, 3), (4, 1), (5, 4), ScatterDimensionNumbers((0,), (1,), (1,))),
    "windows": ((50, 600), (9, 2), (9, 530), ScatterDimensionNumbers((1,), (0,), (0, 1))),
    "blocks": ((10, 12), (7, 2), (3, 7, 4), ScatterDimensionNumbers((0, 2), (), (1, 0))),
    "points": ((10, 12), (7, 2), (7,), ScatterDimensionNumbers((), (0, 1), (0, 1))),
    "many points": ((10, 12), (71, 2), (71,), ScatterDimensionNumbers((), (0, 1), (0, 1))),
    "grid": ((10,), (7, 2, 1), (7, 2), POINTS),
    "one": ((10, 12), (1,), (12,), ScatterDimensionNumbers((0,), (0,), (0,))),
    "batch": ((6, 9), (6, 7, 1), (6, 7), ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))),
    "wide batch": ((2, 9, 40), (2, 7, 1), (2, 7, 40), BATCHED_ROWS),
    "late": ((9, 6), (7, 6, 1), (7, 6), ScatterDimensionNumbers((), (0,), (0,), (1,), (1,))),
}  # fmt: skip


@pytest.mark.parametrize("function", SCATTERS)
@pytest.mark.parametrize("case", NUMBERS)
def test_scatter_forms(function: Any, case: str) -> None:
    shape, places, updates, numbers = NUMBERS[case]
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=shape).astype("f4"), rng.normal(size=updates).astype("f4")
    i = rng.integers(-2, 12, places).astype("i4")
    for mode in ("clip", "drop"):
        check(lambda x, i, u, m=mode: function(x, i, u, numbers, mode=m), x, i, u)


def test_scatter_into_zeros_from_what_is_computed() -> None:
    rng = np.random.default_rng(0)
    i, u = rng.integers(0, 9, (50, 1)).astype("i4"), rng.normal(size=(50, 7)).astype("f4")

    def function(i: Any, u: Any) -> Any:
        zeros = full((9, 7), 0, np.dtype("float32"))
        added = scatter_add(zeros, add(i, i), mul(u, u), ROWS)
        return add(added, scatter(added, i, u, ROWS)), added

    check(function, i, u)


def test_updates_are_computed_where_they_are_put_in() -> None:
    rng = np.random.default_rng(0)
    i, u = rng.integers(0, 4, (50, 1)).astype("i4"), rng.normal(size=(50, 7)).astype("f4")

    def function(i: Any, u: Any) -> Any:
        return scatter_add(full((9, 7), 0, np.dtype("float32")), add(i, i), mul(u, u), ROWS)

    check(function, i, u)
    assert compile_graph(traced(function, [i, u])).lowered.program.arena_bytes == 0


def test_updates_that_read_what_they_change_are_stored() -> None:
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=(9, 7)).astype("f4"), rng.integers(0, 9, (50, 1)).astype("i4")
    rows = GatherDimensionNumbers((1,), (0,), (0,))

    def function(x: Any, i: Any) -> Any:
        y = mul(x, x)
        read = gather(y, i, rows, (1, 7))
        return scatter(y, i, add(read, read), ROWS)

    check(function, x, i)
    steps = compile_graph(traced(function, [x, i])).lowered.program.steps
    assert len(steps) == 3  # the operand, the updates, and these put into its memory


def test_indices_that_are_the_updates() -> None:
    i = np.array([3, 1, 3, 0], np.int32)
    zeros = np.zeros(5, np.int32)
    check(lambda x, i: scatter_add(x, reshape(i, (4, 1)), i, POINTS), zeros, i)


def test_sixteen_bit_scatter_rounds_once() -> None:
    x, i, u = np.zeros(2, np.float16), np.zeros((3000, 1), np.int32), np.ones(3000, np.float16)
    (got,), _ = compiled(lambda x, i, u: scatter_add(x, i, u, POINTS), [x, i, u])
    assert got[0] == 3000


# --- slices and gathers at computed places ---


def test_dynamic_slices_in_chains() -> None:
    rng = np.random.default_rng(0)
    x, u = rng.normal(size=(9, 20)).astype("f4"), rng.normal(size=(2, 20)).astype("f4")
    i, j = np.int32(6), np.int32(-3)

    def function(x: Any, u: Any, i: Any, j: Any) -> Any:
        x = dynamic_update_slice(x, u, (i, 0))
        x = dynamic_update_slice(mul(x, x), dynamic_slice(x, (j, i), (3, 5)), (j, j))
        return x, dynamic_slice(x, (i, j), (4, 4)), cumsum(dynamic_slice(x, (i, j), (4, 4)), 1)

    check(function, x, u, np.asarray(i), np.asarray(j))


@pytest.mark.parametrize("mode", ["clip", "fill"])
def test_gathers_in_chains(mode: str) -> None:
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=(9, 20)).astype("f4"), rng.integers(-2, 11, (30, 1)).astype("i4")
    numbers = GatherDimensionNumbers((1,), (0,), (0,))

    def function(x: Any, i: Any) -> Any:
        rows = gather(mul(x, x), i, numbers, (1, 20), mode=mode, fill_value=0)
        return add(rows, rows), sort(rows, 1), scatter_add(x, i, rows, ROWS), cumsum(rows, 0)

    check(function, x, i)


# --- every op ---


def ops_below(op: Any) -> set[Any]:
    """Return an op and the classes that derive from it, those that have a name."""
    below = set().union(*map(ops_below, op.__subclasses__()))
    return below | ({op} if isinstance(op.__dict__.get("name"), str) else set())


# Ops whose order of accumulation is the compiler's.
ACCUMULATING = ("reduce_sum", "reduce_prod", "dot_general", "convolution", "integer_pow")
# Of complex numbers, ops that are composed of roots and products in the compiler's order.
COMPOSED = ("abs", "sign", "cumprod", "cumsum", "sqrt", "rsqrt", "exp2", *ir.MATH)
# What a library computes: its routines differ in the last bits from those NumPy and SciPy call.
LIBRARY = {cls.name for base in (MatrixOp, Carried, Fft) for cls in ops_below(base)}
# Computed by other formulas than SciPy's: near a zero, or far from 0, one of them loses digits.
REWRITTEN = ("lgamma", "erfcx")
EVERY = [sample for samples in SAMPLES.values() for sample in samples]


def compare(name: str, got: np.ndarray, want: np.ndarray) -> None:
    """Compare the results of the sample `name`."""
    op = name.partition("-")[0]
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if name.endswith("-complex") and op in COMPOSED:
        np.testing.assert_allclose(got, want, rtol=1e-14)
    elif op in LIBRARY:
        np.testing.assert_allclose(got, want, rtol=1e-11, atol=1e-11)
    elif op in ACCUMULATING or op in REWRITTEN:
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-15)
    elif op in (*ir.MATH, "rsqrt") and want.dtype.kind == "f":
        np.testing.assert_array_max_ulp(got, want, maxulp=4)
    else:
        np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize("sample", EVERY, ids=[s.name for s in EVERY])
def test_every_op_through_jit(sample: Any) -> None:
    xs = sample.arguments(np.random.default_rng(5))
    results = jit(sample.function)(*map(asarray, xs))
    wanted = evaluate(traced(sample.function, xs), xs)
    for got, want in zip(results if isinstance(results, tuple) else [results], wanted, strict=True):
        compare(sample.name, np.asarray(got), want)


@pytest.mark.parametrize("sample", EVERY, ids=[s.name for s in EVERY])
def test_every_op_in_a_batch(sample: Any) -> None:
    rng = np.random.default_rng(6)
    draws = [sample.arguments(rng) for _ in range(3)]
    if not draws[0]:
        pytest.skip("nothing to batch")
    graph, _ = batch(traced(sample.function, draws[0]), Batch(3), [True] * len(draws[0]))
    xs = [np.stack(column) for column in zip(*draws, strict=True)]
    for got, want in zip(compile_graph(graph).run(xs), evaluate(graph, xs), strict=True):
        compare(sample.name, np.asarray(got), want)


# --- what has no kernel ---


def test_values_are_computed_where_they_are_read_later() -> None:
    """What the first kernel does not need is not stored by it, and results go over operands."""
    rng = np.random.default_rng(0)
    x, k = (rng.normal(size=(40, 60)).astype("f4") for _ in range(2))

    def function(x: Any, k: Any) -> Any:
        factor = div(div(div(k, add(k, k)), mul(k, k)), add(mul(k, k), k))
        return mul(cumsum(mul(x, x), 1), add(factor, mul(factor, k)))

    check(function, x, k)
    program = compile_graph(traced(function, [x, k])).lowered.program
    assert len(program.steps) == 3 and program.arena_bytes <= 40 * 60 * 4
