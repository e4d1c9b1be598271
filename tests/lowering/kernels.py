"""Kernels built by hand for the tests of the loop IR and its code generators.

Each builder gives a kernel and a function from a random generator to the arrays of its params.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stax.lowering.loop_ir import (
    BOOL,
    INDEX,
    Alloc,
    Apply,
    Buffer,
    Const,
    Expr,
    For,
    Init,
    Kernel,
    Let,
    Load,
    Set,
    Stmt,
    Store,
    Update,
    Var,
    add,
    apply,
    convert,
    index,
    mul,
)
from stax.types import float32, int32, uint32

R, K, U = Var("r", INDEX), Var("k", INDEX), Var("u", INDEX)
DType = np.dtype[Any]


@dataclass(frozen=True)
class Case:
    """A kernel with arrays to run it on."""

    kernel: Kernel
    arrays: list[np.ndarray]
    extents: tuple[int, ...] = ()

    @property
    def trips(self) -> int:
        """The extent of the parallel loop."""
        extent = next(s.extent for s in self.kernel.body if isinstance(s, For))
        if isinstance(extent, Const):
            return int(extent.value)
        names = [v.name for v in self.kernel.extents]
        return self.extents[names.index(extent.name)]


def normal(dtype: DType, *shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def rows(n: int | Expr, *body: Stmt) -> For:
    return For(R, index(n), "parallel", body)


def vector(n: int | Expr, *body: Stmt) -> For:
    return For(K, index(n), "vector", body)


def serial(var: Var, n: int | Expr, *body: Stmt) -> For:
    return For(var, index(n), "serial", body)


def kernel(name: str, params: list[Buffer], outputs: list[str], *body: Stmt, **more: Any) -> Kernel:
    return Kernel(name, tuple(params), more.pop("extents", ()), body, tuple(outputs), **more)


def const(value: float, dtype: DType = float32) -> Const:
    return Const(value, dtype)


def elementwise(
    f: Callable[..., Expr], inputs: list[np.ndarray], out: DType, *, name: str = "elementwise"
) -> Case:
    """out[r, k] = f(inputs at r, k)"""
    shape = inputs[0].shape
    buffers = [Buffer(f"x{i}", x.dtype, shape) for i, x in enumerate(inputs)]
    target = Buffer("out", out, shape)
    value = f(*[Load(b, (R, K)) for b in buffers])
    body = rows(shape[0], vector(shape[1], Store(target, (R, K), value)))
    return Case(kernel(name, [*buffers, target], ["out"], body), [*inputs, np.zeros(shape, out)])


def chain(n: int, dtype: DType) -> Case:
    """Ten operations that are exact to the bit."""

    def f(x: Expr, y: Expr) -> Expr:
        c = Const(1.5, dtype)
        a = apply("add", apply("mul", x, c), y)
        b = apply("maximum", a, Const(-0.5, dtype))
        d = apply("div", b, apply("add", apply("abs", y), c))
        e = apply("sqrt", apply("mul", d, d))
        return apply("select", apply("lt", e, x), apply("neg", e), apply("sub", e, x))

    return elementwise(f, [normal(dtype, 3, n), normal(dtype, 3, n, seed=1)], dtype, name="chain")


def softmax(n: int, dtype: DType, name: str = "softmax") -> Case:
    x, out = Buffer("x", dtype, (5, n)), Buffer("out", dtype, (5, n))
    row = Buffer("row", dtype, (n,))
    top, total, scale, e = (Var(v, dtype) for v in ("top", "total", "scale", "e"))
    body = rows(
        5,
        Alloc(row),
        Init(top, Const(-np.inf, dtype)),
        vector(n, Update("maximum", top, Load(x, (R, K)))),
        Init(total, Const(0, dtype)),
        vector(
            n,
            Let(e, apply("exp", apply("sub", Load(x, (R, K)), top))),
            Store(row, (K,), e),
            Update("add", total, e),
        ),
        Let(scale, apply("div", Const(1, dtype), total)),
        vector(n, Store(out, (R, K), apply("mul", Load(row, (K,)), scale))),
    )
    arrays = [normal(dtype, 5, n), np.zeros((5, n), dtype)]
    return Case(kernel(name, [x, out], ["out"], body), arrays)


def column_sum(n: int, dtype: DType) -> Case:
    """Eight rows at a time accumulated into the output row."""
    x, out = Buffer("x", dtype, (16, n)), Buffer("out", dtype, (n,))
    total = Var("total", dtype)
    eight = For(U, index(8), "unroll", (Update("add", total, Load(x, (add(mul(K8, 8), U), K))),))
    body = rows(
        1,
        vector(n, Store(out, (K,), Const(0, dtype))),
        serial(K8, 2, vector(n, Init(total, Load(out, (K,))), eight, Store(out, (K,), total))),
    )
    arrays = [normal(dtype, 16, n), np.ones(n, dtype)]
    return Case(kernel("column_sum", [x, out], ["out"], body), arrays)


K8 = Var("k8", INDEX)


def transposed(n: int, dtype: DType) -> Case:
    x, y, out = Buffer("x", dtype, (n, 4)), Buffer("y", dtype, (4, n)), Buffer("out", dtype, (4, n))
    value = apply("add", Load(x, (K, R)), Load(y, (R, K)))
    body = rows(4, vector(n, Store(out, (R, K), value)))
    arrays = [normal(dtype, n, 4), normal(dtype, 4, n, seed=1), np.zeros((4, n), dtype)]
    return Case(kernel("transposed", [x, y, out], ["out"], body), arrays)


def transposed_store(n: int, dtype: DType) -> Case:
    x, out = Buffer("x", dtype, (4, n)), Buffer("out", dtype, (n, 4))
    body = rows(4, vector(n, Store(out, (K, R), Load(x, (R, K)))))
    return Case(
        kernel("transposed_store", [x, out], ["out"], body),
        [normal(dtype, 4, n), np.zeros((n, 4), dtype)],
    )


def reversal(n: int, dtype: DType) -> Case:
    x, out = Buffer("x", dtype, (2, n)), Buffer("out", dtype, (2, n))
    back = Apply("sub", (index(n - 1), K), INDEX)
    body = rows(2, vector(n, Store(out, (R, K), Load(x, (R, back)))))
    arrays = [normal(dtype, 2, n), np.zeros((2, n), dtype)]
    return Case(kernel("reversal", [x, out], ["out"], body), arrays)


def padded(n: int, dtype: DType) -> Case:
    """Two zeros before and three after each row, by a masked load."""
    x, out = Buffer("x", dtype, (3, n)), Buffer("out", dtype, (3, n + 5))
    at = add(K, -2)
    inside = apply("and", apply("ge", at, index(0)), apply("lt", at, index(n)))
    body = rows(3, vector(n + 5, Store(out, (R, K), Load(x, (R, at), inside))))
    arrays = [normal(dtype, 3, n), np.ones((3, n + 5), dtype)]
    return Case(kernel("padded", [x, out], ["out"], body), arrays)


def gathered(n: int, dtype: DType) -> Case:
    x, at = Buffer("x", dtype, (50,)), Buffer("at", int32, (2, n))
    out = Buffer("out", dtype, (2, n))
    position = convert(Load(at, (R, K)), INDEX)
    body = rows(2, vector(n, Store(out, (R, K), Load(x, (position,)))))
    positions = np.random.default_rng(2).integers(0, 50, (2, n)).astype(int32)
    arrays = [normal(dtype, 50), positions, np.zeros((2, n), dtype)]
    return Case(kernel("gathered", [x, at, out], ["out"], body), arrays)


def masked_sum(n: int, dtype: DType) -> Case:
    """Masked gather into a sum, and a masked store."""
    x, at = Buffer("x", dtype, (20,)), Buffer("at", int32, (2, n))
    out, flags = Buffer("out", dtype, (2,)), Buffer("flags", BOOL, (2, n))
    total = Var("total", dtype)
    position = convert(Load(at, (R, K)), INDEX)
    inside = apply("and", apply("ge", position, index(0)), apply("lt", position, index(20)))
    body = rows(
        2,
        Init(total, Const(0, dtype)),
        vector(
            n,
            Update("add", total, Load(x, (position,), inside)),
            Store(flags, (R, K), Const(True, BOOL), inside),
        ),
        Store(out, (R,), total),
    )
    positions = np.random.default_rng(2).integers(-20, 40, (2, n)).astype(int32)
    arrays = [normal(dtype, 20), positions, np.zeros(2, dtype), np.zeros((2, n), BOOL)]
    return Case(kernel("masked_sum", [x, at, out, flags], ["out", "flags"], body), arrays)


def in_place(n: int, dtype: DType) -> Case:
    """x = 2 x + 1 in one buffer: no element may be computed twice."""
    x = Buffer("x", dtype, (3, n))
    two, one = Const(2, dtype), Const(1, dtype)
    value = apply("add", apply("mul", Load(x, (R, K)), two), one)
    body = rows(3, vector(n, Store(x, (R, K), value)))
    return Case(kernel("in_place", [x], ["x"], body), [normal(dtype, 3, n)])


def aliased(n: int, dtype: DType) -> Case:
    """The same, as two params that are one array."""
    x, y = Buffer("x", dtype, (3, n)), Buffer("y", dtype, (3, n))
    value = apply("add", apply("mul", Load(x, (R, K)), Const(2, dtype)), Const(1, dtype))
    body = rows(3, vector(n, Store(y, (R, K), value)))
    array = normal(dtype, 3, n)
    made = kernel("aliased", [x, y], ["y"], body, aliases=(("x", "y"),))
    return Case(made, [array, array])


def iota(n: int) -> Case:
    """Random-looking bits from the position, in 32-bit integer arithmetic; and bool output."""
    bits, flags = Buffer("bits", uint32, (2, n)), Buffer("flags", BOOL, (2, n))
    counter = Var("counter", uint32)
    value = apply("xor", counter, apply("shift_left", counter, Const(13, uint32)))
    value = apply("mul", value, Const(2654435761, uint32))
    value = apply("xor", value, apply("shift_right_logical", value, Const(17, uint32)))
    body = rows(
        2,
        vector(
            n,
            Let(counter, convert(add(mul(R, n), K), uint32)),
            Store(bits, (R, K), value),
            Store(flags, (R, K), apply("lt", counter, Const(9, uint32))),
        ),
    )
    arrays = [np.zeros((2, n), uint32), np.zeros((2, n), BOOL)]
    return Case(kernel("iota", [bits, flags], ["bits", "flags"], body), arrays)


def symbolic(n: int, dtype: DType) -> Case:
    """Row means and scaled rows of an array whose extents are arguments."""
    rows_var, n_var = Var("m", INDEX), Var("n", INDEX)
    x, out = Buffer("x", dtype, (rows_var, n_var)), Buffer("out", dtype, (rows_var, n_var))
    total, count = Var("total", dtype), Var("count", dtype)
    body = For(
        R,
        rows_var,
        "parallel",
        (
            Init(total, Const(0, dtype)),
            vector(n_var, Update("add", total, Load(x, (R, K)))),
            Let(count, convert(n_var, dtype)),
            vector(n_var, Store(out, (R, K), apply("div", Load(x, (R, K)), count))),
            Store(out, (R, index(0)), total),
        ),
    )
    made = kernel("symbolic", [x, out], ["out"], body, extents=(rows_var, n_var))
    return Case(made, [normal(dtype, 3, n), np.zeros((3, n), dtype)], (3, n))


def argmax_like(n: int, dtype: DType) -> Case:
    """A serial loop inside a vector loop, with a mutable local of each lane."""
    x, out = Buffer("x", dtype, (4, n)), Buffer("out", int32, (n,))
    best, where = Var("best", dtype), Var("where", int32)
    better = Var("better", BOOL)
    row = Var("row", INDEX)
    body = rows(
        1,
        vector(
            n,
            Init(best, Const(-np.inf, dtype)),
            Init(where, Const(0, int32)),
            serial(
                row,
                4,
                Let(better, apply("gt", Load(x, (row, K)), best)),
                Set(best, apply("select", better, Load(x, (row, K)), best)),
                Set(where, apply("select", better, convert(row, int32), where)),
            ),
            Store(out, (K,), where),
        ),
    )
    arrays = [normal(dtype, 4, n), np.zeros(n, int32)]
    return Case(kernel("argmax_like", [x, out], ["out"], body), arrays)


def reductions(n: int, dtype: DType) -> Case:
    """Every Update operation in one loop."""
    x, out = Buffer("x", dtype, (2, n)), Buffer("out", dtype, (2, 4))
    flags, any_, all_ = Buffer("flags", BOOL, (2, 2)), Var("any_", BOOL), Var("all_", BOOL)
    names = ("add", "mul", "maximum", "minimum")
    accumulators = [Var(f"a{i}", dtype) for i in range(4)]
    value = Load(x, (R, K))
    body = rows(
        2,
        *[Init(v, Const(1, dtype)) for v in accumulators],
        Init(any_, Const(False, BOOL)),
        Init(all_, Const(True, BOOL)),
        vector(
            n,
            *[Update(op, v, value) for op, v in zip(names, accumulators, strict=True)],
            Update("or", any_, apply("gt", value, Const(1, dtype))),
            Update("and", all_, apply("gt", value, Const(-1, dtype))),
        ),
        *[Store(out, (R, index(i)), v) for i, v in enumerate(accumulators)],
        Store(flags, (R, index(0)), any_),
        Store(flags, (R, index(1)), all_),
    )
    arrays = [normal(dtype, 2, n), np.zeros((2, 4), dtype), np.zeros((2, 2), BOOL)]
    return Case(kernel("reductions", [x, out, flags], ["out", "flags"], body), arrays)
