"""Every scalar function on every dtype, at the values where semantics differ."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from stax.lowering.loop_ir import (
    BOOL,
    COMPARISONS,
    COUNTING,
    INDEX,
    MATH,
    SHIFTS,
    Buffer,
    Const,
    Expr,
    For,
    Load,
    Store,
    Var,
    apply,
    arity,
    bitcast,
    convert,
    index,
)
from stax.runtime.engine import Target
from stax.types import (
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tests.lowering.kernel_runs import check, machines
from tests.lowering.kernels import Case, K, R, kernel

FLOATS = (float16, bfloat16, float32, float64)
INTEGERS = (int8, int16, int32, int64, uint8, uint16, uint32, uint64)
ON_ALL = ("add", "mul", "maximum", "minimum", *COMPARISONS)
ON_NUMBERS = ("sub", "neg", "abs", "sign", "div", "rem")
ON_FLOATS = ("floor", "ceil", "trunc", "round", "sqrt", "rsqrt", "is_finite")
ON_BITS = ("and", "or", "xor", "not")
# Functions that LLVM has an intrinsic for.
LIBM = (
    *("exp", "exp2", "log", "pow", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
    *("asin", "acos", "atan", "atan2"),
)


def special_values(dtype: Any) -> np.ndarray:
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        near = [info.min, info.min + 1, info.max - 1, info.max]
        small = [0, 1, 2, 3, 5, 7, 31, 64, 100]
        return np.array(near + small + ([-1, -2, -7] if info.min else [8, 9, 13]), dtype)
    values = [0.0, 1.0, 1.5, 2.5, 0.1, 3.7, 1e-3, 100.0, 65504.0, 1e5, 3e9, 1e19, 1e30, 1e300]
    values += [1e-7, 1e-40, 6e-8, 1e-310, np.inf, np.nan]
    with np.errstate(all="ignore"):
        return np.array([*values, *[-v for v in values]]).astype(dtype)


def table(functions: list[Any], inputs: list[np.ndarray], name: str) -> Case:
    """One kernel with an output for each function of the inputs."""
    n = inputs[0].size
    buffers = [Buffer(f"x{i}", x.dtype, (1, n)) for i, x in enumerate(inputs)]
    loads: list[Expr] = [Load(b, (R, K)) for b in buffers]
    values = [f(*loads) for f in functions]
    outs = [Buffer(f"y{i}", v.dtype, (1, n)) for i, v in enumerate(values)]
    stores = [Store(b, (R, K), v) for b, v in zip(outs, values, strict=True)]
    body = For(R, index(1), "parallel", (For(K, index(n), "vector", tuple(stores)),))
    arrays = [x.reshape(1, n) for x in inputs] + [np.zeros((1, n), b.dtype) for b in outs]
    return Case(kernel(name, buffers + outs, [b.name for b in outs], body), arrays)


def pairs(dtype: Any) -> list[np.ndarray]:
    values = special_values(dtype)
    both = np.array(list(itertools.product(values, values)), dtype)
    return [np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])]


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, BOOL), ids=str)
def test_exact_functions(dtype: Any, machine: Target) -> None:
    names = list(ON_ALL)
    names += ON_NUMBERS if dtype != BOOL else ()
    names += ON_FLOATS if dtype in FLOATS else ON_BITS
    names += (*SHIFTS, *COUNTING) if dtype in INTEGERS else ()

    def call(name: str) -> Any:
        return lambda x, y: apply(name, *(x, y)[: arity(name)])

    def choice(x: Expr, y: Expr) -> Expr:
        return apply("select", apply("lt", x, y), y, x)

    check(table([*map(call, names), choice], pairs(dtype), "functions"), machine)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS, BOOL), ids=str)
def test_conversions(dtype: Any, machine: Target) -> None:
    values = special_values(dtype)
    if dtype == float64:
        # Halfway between neighbouring float16 after a rounding to float32, not before.
        values = np.append(values, [1 + 2.0**-11 + 2.0**-40, 1 + 3 * 2.0**-11 - 2.0**-40])
    to = (*FLOATS, *INTEGERS, BOOL)
    case = table([lambda x, t=t: convert(x, t) for t in to], [values], "conversions")
    check(case, machine)


@pytest.mark.parametrize("machine", machines())
@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=str)
def test_bits_as_another_type(dtype: Any, machine: Target) -> None:
    values = special_values(dtype)
    values = values[values == values]  # one NaN is as good as another
    to = [t for t in (*FLOATS, *INTEGERS) if t.itemsize == dtype.itemsize]
    case = table([lambda x, t=t: bitcast(x, t) for t in to], [values], "bits")
    check(case, machine)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("by", (0, 1, -1, 3), ids=str)
def test_division_by_constants(dtype: Any, by: int) -> None:
    constant = Const(by, dtype)
    functions = [lambda x, n=name: apply(n, x, constant) for name in ("div", "rem", *SHIFTS)]
    check(table(functions, [special_values(dtype)], "divisions"), machines()[-1].values[0])


@pytest.mark.parametrize("name", [n for n in MATH if n in LIBM])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_functions_of_the_math_library(name: str, dtype: Any) -> None:
    x = np.linspace(0.1, 0.9, 37).astype(dtype)
    function = lambda *args: apply(name, *args[: arity(name)])  # noqa: E731
    tolerance = {float16: 2e-3, bfloat16: 2e-2, float32: 1e-6, float64: 1e-14}[dtype]
    check(table([function], [x, x[::-1].copy()], "math"), machines()[-1].values[0], tolerance)


def test_constant_operands() -> None:
    """Literals of every dtype read back as they were, signed zero and NaN included."""
    for dtype in (*FLOATS, *INTEGERS, BOOL):
        values = special_values(dtype)
        out = Buffer("out", dtype, (values.size,))
        stores = [Store(out, (index(i),), Const(v, dtype)) for i, v in enumerate(values)]
        body = For(Var("r", INDEX), index(1), "parallel", tuple(stores))
        case = Case(kernel("literals", [out], ["out"], body), [np.zeros(values.size, dtype)])
        check(case, machines()[-1].values[0])
