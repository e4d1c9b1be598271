"""Printed Triton kernels, run in Triton's interpreter, against the printed loop IR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stax.errors import LoweringError
from stax.lowering.loop_ir import BOOL, Expr, For, Load, Store, apply, convert, index
from stax.lowering.loop_printer import execute
from stax.lowering.triton import emit_triton
from stax.types import bfloat16, float16, float32, float64, int8, int32, int64, uint32
from tests.lowering import kernels
from tests.lowering.kernel_runs import as_bits, guarded_copy
from tests.lowering.kernels import Case, R, elementwise, kernel, normal
from tests.lowering.triton_interpreter import compile_for, launch

DTYPES = (float32, float64, bfloat16, float16)


def check(case: Case, block: int, tolerance: float | None = None) -> None:
    _, expected = guarded_copy(case.arrays)
    execute(case.kernel, expected, case.extents)
    _, actual = guarded_copy(case.arrays)
    names = [extent.name for extent in case.kernel.extents]
    printed = emit_triton(case.kernel, block)
    launch(printed, actual, dict(zip(names, case.extents, strict=True)))
    for a, e in zip(actual, expected, strict=True):
        if tolerance is None or a.dtype.kind in "biu":
            np.testing.assert_array_equal(as_bits(a), as_bits(e))
        else:
            x, y = a.astype(float64), e.astype(float64)
            np.testing.assert_allclose(x, y, tolerance, tolerance)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", (1, 15, 16, 17))
def test_elementwise(n: int, dtype: Any) -> None:
    for build in (kernels.chain, kernels.padded, kernels.gathered, kernels.reversal):
        check(build(n, dtype), 16)


@pytest.mark.parametrize("n", (1, 15, 16, 17, 40))
@pytest.mark.parametrize("dtype", (float32, float64), ids=str)
def test_rows(n: int, dtype: Any) -> None:
    tolerance = {float32: 1e-5, float64: 1e-12}[dtype]
    # Rows that fit a block, and rows that take a loop over blocks.
    check(kernels.softmax(n, dtype), 64, tolerance)
    for block in (16, 64):
        check(kernels.reductions(n, dtype), block, tolerance)
        check(kernels.symbolic(n, dtype), block, tolerance)


def test_flat_loop() -> None:
    """A parallel loop with no vector loop inside is split into blocks."""
    shaped = elementwise(lambda x, y: apply("mul", x, y), [normal(float32, 1, 37)] * 2, float32)
    buffers = [type(b)(b.name, b.dtype, (37,)) for b in shaped.kernel.params]
    value = apply("mul", Load(buffers[0], (R,)), Load(buffers[1], (R,)))
    body = For(R, index(37), "parallel", (Store(buffers[2], (R,), value),))
    arrays = [a.reshape(37) for a in shaped.arrays]
    check(Case(kernel("flat", buffers, ["out"], body), arrays), 16)


def test_integers_and_bools() -> None:
    check(kernels.iota(37), 16)
    flags = np.array([[True, False, True]])

    def f(x: Expr, b: Expr) -> Expr:
        return apply("and", b, apply("gt", x, convert(b, int32)))

    check(elementwise(f, [np.array([[2, 3, 0]], int32), flags], BOOL), 16)


@pytest.mark.parametrize("dtype", (int32, uint32, int8, int64), ids=str)
def test_division_and_shifts_are_total(dtype: Any) -> None:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 7, 31, 32, info.max, info.min, info.min + 1]
    pairs = np.array([(x, y) for x in values for y in [*values, info.max // 3]], dtype).T
    x, y = (np.ascontiguousarray(v[None]) for v in pairs)
    y = np.where(y == info.max // 3, np.array(-1).astype(dtype), y)
    for name in ("div", "rem", "shift_left", "shift_right_logical", "shift_right_arithmetic"):
        check(elementwise(lambda a, b, n=name: apply(n, a, b), [x, y], dtype), 32)


@pytest.mark.parametrize("dtype", (float32, float64, float16, bfloat16), ids=str)
def test_conversions_saturate(dtype: Any) -> None:
    values = [0.5, -1.5, 127.0, 128.0, -129.0, 3e9, -3e9, 1e10, np.inf, -np.inf, np.nan, 65504.0]
    with np.errstate(over="ignore"):
        x = np.array([values]).astype(dtype)
    for to in (int8, int32, uint32, BOOL, float32, bfloat16, float16):
        check(elementwise(lambda v, t=to: convert(v, t), [x], to), 16)


def test_functions_of_the_math_library() -> None:
    for name in ("tanh", "log1p", "trunc", "round", "exp", "erf", "logistic", "sqrt", "sign"):
        case = elementwise(lambda x, n=name: apply(n, x), [normal(float32, 1, 20) ** 2], float32)
        check(case, 32, 1e-6)


def test_source_is_one_jitted_function() -> None:
    printed = emit_triton(kernels.chain(1000, float32).kernel)
    assert printed.source.startswith("import triton\nimport triton.language as tl\n")
    assert printed.source.count("@triton.jit") == 2
    assert printed.block == 1024 and printed.grid({}) == (3, 1)
    assert emit_triton(kernels.softmax(1000, float32).kernel).block == 1024
    assert emit_triton(kernels.symbolic(9, float32).kernel, 16).grid({"m": 3, "n": 9}) == (3,)


@pytest.mark.parametrize(
    ("build", "dtype"),
    (
        (kernels.chain, bfloat16),
        (kernels.softmax, float32),
        (kernels.reductions, float64),
        (kernels.symbolic, float32),
    ),
)
def test_printed_kernels_compile(build: Any, dtype: Any) -> None:
    """What the interpreter accepts, the compiler does too, without contracting to FMA."""
    made = build(100, dtype).kernel
    compiled = compile_for(emit_triton(made, 128), made.params, made.extents)
    assert "fma.rn.f32" not in compiled.asm["ptx"] or build is not kernels.chain


@pytest.mark.parametrize(
    ("build", "message"),
    (
        (kernels.column_sum, "a serial loop"),
        (kernels.argmax_like, "a serial loop"),
        (lambda n, d: kernels.softmax(20_000, d), "scratch row"),
    ),
)
def test_what_is_not_supported_raises(build: Any, message: str) -> None:
    with pytest.raises(LoweringError, match=message):
        emit_triton(build(9, float32).kernel)
