"""Generated LLVM code against the printed kernel run as Python."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from stax.errors import LoweringError
from stax.lowering.llvm import emit_kernel
from stax.lowering.loop_ir import (
    BOOL,
    INDEX,
    Buffer,
    Const,
    For,
    Init,
    Let,
    Load,
    Set,
    Store,
    Update,
    Var,
    add,
    apply,
    index,
    mod,
    mul,
)
from stax.runtime.engine import Target
from stax.types import bfloat16, float32, float64, int64
from tests.lowering import kernels
from tests.lowering.kernel_runs import LibmCalls, check, compiled, machines, run
from tests.lowering.kernels import Case, K, R, kernel, normal, rows, serial, vector

HOST = machines()[-1].values[0]
SIZES = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 100)
DTYPES = (float32, float64, bfloat16)
EXACT = (
    kernels.chain,
    kernels.transposed,
    kernels.transposed_store,
    kernels.reversal,
    kernels.padded,
    kernels.gathered,
    kernels.in_place,
    kernels.aliased,
    kernels.argmax_like,
    kernels.column_sum,
)
REORDERED = (kernels.softmax, kernels.masked_sum, kernels.symbolic, kernels.reductions)
# A bfloat16 accumulator loses what is added to it; kernels of the compiler accumulate in float32.
TOLERANCE = {float32: 3e-5, float64: 1e-12, bfloat16: 0.3}


def sizes(dtype: Any, machine: Target) -> tuple[int, ...]:
    """All sizes on the host in float32, and the tails that differ elsewhere."""
    return SIZES if machine == HOST or dtype == float32 else (1, 3, 9, 17, 100)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("build", EXACT, ids=lambda f: f.__name__)
def test_exact(build: Any, dtype: Any, machine: Target) -> None:
    for n in sizes(dtype, machine):
        check(build(n, dtype), machine)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("build", REORDERED, ids=lambda f: f.__name__)
def test_reordered(build: Any, dtype: Any, machine: Target) -> None:
    for n in sizes(dtype, machine):
        check(build(n, dtype), machine, TOLERANCE[dtype])


@pytest.mark.parametrize("machine", machines())
def test_integers_from_positions(machine: Target) -> None:
    for n in SIZES:
        check(kernels.iota(n), machine)


# Single features

S, TOTAL = Var("s", INDEX), Var("total", float32)
ROW, OUT = Buffer("x", float32, (4, 100)), Buffer("out", float32, (4, 100))
ONE = Buffer("one", float32, (1,))
X = Load(ROW, (R, K))


def text(case: Case, machine: Target = HOST) -> str:
    return emit_kernel(case.kernel, LibmCalls(), machine)


def rowwise(*body: Any, **more: Any) -> Case:
    arrays = [normal(float32, 4, 100), np.zeros((4, 100), float32)]
    return Case(kernel("rowwise", [ROW, OUT], ["out"], rows(4, *body), **more), arrays)


def sum_of_all(columns: int) -> Case:
    x = Buffer("x", float32, (6, columns))
    body = rows(
        1,
        Init(TOTAL, Const(3, float32)),
        serial(S, 6, vector(columns, Update("add", TOTAL, Load(x, (S, K))))),
        Store(ONE, (R,), TOTAL),
    )
    arrays = [normal(float32, 6, columns), np.zeros(1, float32)]
    return Case(kernel("sum_of_all", [x, ONE], ["one"], body), arrays)


@pytest.mark.parametrize("machine", machines())
def test_lanes_are_kept_over_serial_loops(machine: Target) -> None:
    for n in (1, 3, 16, 64, 100):
        check(sum_of_all(n), machine, 1e-5)
    assert text(sum_of_all(64), machine).count("extractelement") == 2


def test_a_sum_that_is_looked_at_is_combined_each_time() -> None:
    case = rowwise(
        Init(TOTAL, Const(0, float32)),
        serial(
            S,
            4,
            vector(100, Update("add", TOTAL, Load(ROW, (S, K)))),
            Store(OUT, (R, S), TOTAL),
        ),
    )
    check(case, HOST, 1e-5)


@pytest.mark.parametrize("n", (16, 100, 1000, 1024))
def test_order_of_a_reduction_is_the_documented_one(n: int) -> None:
    x = Buffer("x", float32, (1, n))
    body = rows(
        1,
        Init(TOTAL, Const(0, float32)),
        vector(n, Update("add", TOTAL, Load(x, (R, K)))),
        Store(ONE, (R,), TOTAL),
    )
    case = Case(kernel("total", [x, ONE], ["one"], body), [normal(float32, 1, n), np.zeros(1, "f")])
    run(compiled(case, HOST), case, case.arrays)
    values, lanes = case.arrays[0][0], HOST.vector_bytes // 4
    sets = np.full((4, lanes), -0.0, float32)
    done = n // (4 * lanes) * 4 * lanes
    for group in values[:done].reshape(-1, 4, lanes):
        sets += group
    total = (sets[0] + sets[1]) + (sets[2] + sets[3])
    for start in range(done, n, lanes):
        group = values[start : start + lanes]
        # The last group is moved back, and holds its elements in its last lanes.
        total[lanes - group.size :] += group
    while total.size > 1:
        total = total[: total.size // 2] + total[total.size // 2 :]
    assert case.arrays[1][0] == float32.type(0) + total[0]


def test_symbolic_extents_of_zero() -> None:
    n = Var("n", INDEX)
    x, out = Buffer("x", float32, (n,)), Buffer("out", float32, (n,))
    value = apply("add", Load(x, (K,)), Load(ONE, (index(0),)))
    made = kernel(
        "shifted", [x, ONE, out], ["out"], rows(1, vector(n, Store(out, (K,), value))), extents=(n,)
    )
    for size in (0, 1, 40):
        arrays = [normal(float32, size), np.ones(1, float32), np.zeros(size, float32)]
        for machine in machines():
            check(Case(made, arrays, (size,)), machine.values[0])


@pytest.mark.parametrize("machine", machines())
def test_masks_that_do_not_depend_on_the_lane(machine: Target) -> None:
    """A position out of range is not touched, wherever the mask and the address come from."""
    far = add(mul(R, 1000), -1000)
    is_second = apply("eq", R, index(1))
    even = apply("eq", mod(K, 2), index(0))
    both = apply("and", is_second, even)
    flags = Buffer("flags", BOOL, (4, 3))
    body = rows(
        4,
        Let(TOTAL, Load(ROW, (far, index(0)), is_second)),
        vector(
            100,
            Store(
                OUT,
                (R, K),
                apply("add", TOTAL, apply("add", Load(ROW, (far, K), is_second), X)),
                apply("lt", add(R, K), index(50)),
            ),
        ),
        vector(100, Store(OUT, (far, K), Load(ROW, (far, index(3)), both), both)),
        Store(flags, (far, index(2)), is_second, is_second),
    )
    arrays = [normal(float32, 4, 100), np.zeros((4, 100), float32), np.zeros((4, 3), BOOL)]
    check(Case(kernel("masks", [ROW, OUT, flags], ["out", "flags"], body), arrays), machine)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("is_moved_back", (False, True))
def test_long_rows_in_blocks(is_moved_back: bool, machine: Target) -> None:
    """A parallel loop over blocks, the last of which is shorter or is moved back."""
    n, block = 83, 32
    x, out = Buffer("x", float32, (n,)), Buffer("out", float32, (n,))
    start, at = Var("start", INDEX), Var("at", INDEX)
    first = mul(R, block)
    extent: Any = index(block)
    if is_moved_back:
        first = apply("minimum", first, index(n - block))
    else:
        extent = apply("minimum", index(block), apply("sub", index(n), start))
    value = apply("select", apply("lt", at, index(70)), Load(x, (at,)), Const(7, float32))
    body = rows(
        3, Let(start, first), vector(extent, Let(at, add(start, K)), Store(out, (at,), value))
    )
    arrays = [normal(float32, n), np.zeros(n, float32)]
    check(Case(kernel("blocks", [x, out], ["out"], body), arrays), machine)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("at", (3, 98, 99))
def test_one_iteration_of_a_vector_loop_stores(at: int, machine: Target) -> None:
    """And a load that only iterations after the last would do is not done."""
    last = Buffer("last", float32, (4,))
    is_it, is_after = apply("eq", K, index(at)), apply("ge", K, index(100))
    value = apply("add", X, Load(ROW, (mul(R, 1000), index(0)), is_after))
    body = rows(
        4,
        vector(
            100,
            Store(last, (R,), value, is_it),
            Store(OUT, (R, K), apply("add", Load(OUT, (R, K)), value)),
        ),
    )
    arrays = [normal(float32, 4, 100), np.ones((4, 100), float32), np.zeros(4, float32)]
    check(Case(kernel("one", [ROW, OUT, last], ["out", "last"], body), arrays), machine)


def test_long_chains_do_not_recurse() -> None:
    value: Any = X
    for i in range(3000):
        value = apply("add" if i % 2 else "mul", value, Const(0.999, float32))
    check(rowwise(vector(4, Store(OUT, (R, K), value))), HOST)


def test_long_integer_sums() -> None:
    x, out = Buffer("x", int64, (3, 20)), Buffer("out", int64, (3, 20))
    value: Any = Load(x, (R, K))
    for i in range(19):
        other = Load(x, (R, index(i)))
        value = apply("mul" if i % 5 == 4 else "sub", value, other)
    numbers = np.random.default_rng(0).integers(-(2**62), 2**62, (3, 20))
    limit = apply("lt", K, Load(x, (R, index(0))))
    value = apply("select", limit, value, Load(x, (R, K)))
    numbers[0, 0] = np.iinfo(np.int64).min
    body = rows(3, vector(20, Store(out, (R, K), value)))
    case = Case(kernel("k", [x, out], ["out"], body), [numbers, np.zeros((3, 20), np.int64)])
    for machine in machines():
        check(case, machine.values[0])


def test_a_store_is_seen_by_loads_after_it() -> None:
    """Also when the loads could move out of a loop, or have been done before."""
    first = Load(OUT, (R, index(0)))
    case = rowwise(
        vector(100, Store(OUT, (R, K), X)),
        Store(OUT, (R, index(1)), apply("mul", first, Const(2, float32))),
        serial(
            S,
            3,
            Store(OUT, (R, index(0)), apply("add", first, Load(OUT, (R, index(1))))),
            vector(8, Store(OUT, (R, add(K, 10)), apply("add", first, X))),
        ),
    )
    for machine in machines():
        check(case, machine.values[0])


def test_invariants_move_out_of_loops() -> None:
    """The row's scalar is loaded and copied to the lanes once, before the loop."""
    value = apply("mul", X, apply("sqrt", Load(ROW, (R, index(5)))))
    code = text(rowwise(vector(96, Store(OUT, (R, K), value))))
    loop = re.split(r"^b\d+:$", code, flags=re.MULTILINE)[3]
    assert "@llvm.sqrt" not in loop and "shufflevector" not in loop and loop.count("load") == 1


def test_equal_expressions_are_computed_once() -> None:
    value = apply("mul", apply("exp", X), apply("exp", Load(ROW, (R, K))))
    assert text(rowwise(vector(96, Store(OUT, (R, K), value)))).count("call") == 1


def test_a_local_of_an_outer_scope_cannot_become_a_vector() -> None:
    case = rowwise(Init(TOTAL, Const(0, float32)), vector(100, Set(TOTAL, X)))
    with pytest.raises(LoweringError, match="begun outside"):
        text(case)
    with pytest.raises(LoweringError, match="vector loop inside a vector loop"):
        text(rowwise(For(S, index(4), "vector", (vector(100, Store(OUT, (R, K), X)),))))


@pytest.mark.parametrize("build", (*EXACT, *REORDERED), ids=lambda f: f.__name__)
def test_text_is_repeatable(build: Any) -> None:
    assert text(build(33, float32)) == text(build(33, float32))


def test_names_of_params_do_not_clash_with_generated_ones() -> None:
    names = ("v1", "entry", "begin", "zero", "b1")
    buffers = [Buffer(name, float32, (4, 20)) for name in names]
    value: Any = Load(buffers[0], (R, K), apply("eq", R, index(1)))
    for buffer in buffers[1:-1]:
        value = apply("add", value, Load(buffer, (R, index(0)), apply("eq", R, index(2))))
    body = rows(4, vector(20, Store(buffers[-1], (R, K), value)))
    arrays = [normal(float32, 4, 20, seed=i) for i in range(5)]
    check(Case(kernel("k", buffers, ["b1"], body), arrays), HOST)
