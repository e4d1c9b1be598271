"""The loop IR: construction, traversal, printing, verification."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stax.errors import InternalError
from stax.lowering.loop_ir import (
    BOOL,
    INDEX,
    Alloc,
    Apply,
    Buffer,
    Const,
    For,
    Init,
    Let,
    Load,
    Set,
    Stmt,
    Store,
    Update,
    Var,
    add,
    apply,
    children,
    convert,
    flat_index,
    floordiv,
    index,
    map_children,
    mod,
    mul,
    sub,
    substitute,
    walk,
)
from stax.lowering.loop_printer import execute, print_kernel
from stax.lowering.loop_verify import verify_kernel
from stax.types import bfloat16, float32, float64, int32
from tests.lowering import kernels
from tests.lowering.kernels import Case, K, R, kernel, rows, vector

P, J = Var("p", INDEX), Var("j", INDEX)
X = Buffer("x", float32, (4, 8))
OUT = Buffer("out", float32, (4, 8))
CASES = [
    *[
        build(9, float32)
        for build in (
            *(kernels.chain, kernels.softmax, kernels.column_sum, kernels.transposed),
            *(kernels.transposed_store, kernels.reversal, kernels.padded, kernels.gathered),
            *(kernels.masked_sum, kernels.in_place, kernels.symbolic, kernels.argmax_like),
            *(kernels.reductions,),
        )
    ],
    kernels.iota(9),
]


# Index arithmetic


def test_index_constructors_fold() -> None:
    assert add(2, 3) == index(5) and mul(2, 3) == index(6)
    assert add(P, 0) is P and mul(P, 1) is P and floordiv(P, 1) is P
    assert mul(P, 0) == index(0) and mod(P, 1) == index(0) and sub(P, P) == index(0)
    assert add(2, P) == add(P, 2) == Apply("add", (P, index(2)), INDEX)
    assert add(add(P, 2), 3) == add(P, 5) and add(P, add(J, 2)) == add(add(P, J), 2)
    assert mul(mul(P, 2), 3) == mul(P, 6)
    assert floordiv(mul(P, 8), 4) == mul(P, 2) and floordiv(mul(P, 2), 8) == floordiv(P, 4)
    assert floordiv(floordiv(P, 2), 3) == floordiv(P, 6)
    assert mod(mul(P, 8), 4) == index(0) and mod(mod(P, 8), 4) == mod(P, 4)


def test_index_constructors_keep_values() -> None:
    def value(expression: Any, i: int) -> int:
        text = print_kernel(kernel("k", [], [], rows(1, Let(J, substitute(expression, {P: R})))))
        return int(eval(text.splitlines()[-1].split("= ")[1], {"r": i}))

    random = np.random.default_rng(0)
    operations = {add: "+", sub: "-", mul: "*", floordiv: "//", mod: "%"}
    for _ in range(300):
        expression: Any = P
        text = "p"
        for _ in range(4):
            f, symbol = list(operations.items())[random.integers(5)]
            constant = int(random.integers(1, 7))
            if f is sub:
                f, symbol = add, "+"
            expression, text = f(expression, constant), f"(({text}) {symbol} {constant})"
        for i in (0, 1, 5, 17):
            assert value(expression, i) == eval(text, {"p": i}), text


def test_flat_index_is_row_major() -> None:
    assert flat_index((4, 8), (P, J)) == add(mul(P, 8), J)
    assert flat_index((), ()) == index(0)
    n = Var("n", INDEX)
    assert flat_index((2, 3, n), (P, J, R)) == add(mul(add(mul(P, 3), J), n), R)


def test_constants_are_compared_by_bits() -> None:
    assert Const(0.0, float32) != Const(-0.0, float32)
    assert Const(True, BOOL) != Const(1, int32)
    assert Const(np.nan, float32) == Const(np.nan, float32)
    assert len({Const(1, float32), Const(1.0, float32), Const(1, float64)}) == 2


# Traversal


def test_map_children_gives_the_same_object_when_nothing_changes() -> None:
    for case in CASES:
        for node in walk(*case.kernel.body):
            assert map_children(node, lambda child: child) is node


def test_map_children_changes_every_child() -> None:
    for case in CASES:
        for node in walk(*case.kernel.body):
            seen: list[Any] = []
            map_children(node, lambda child, seen=seen: seen.append(child) or child)
            assert len(seen) == len(list(children(node)))


def test_substitute_shares_and_does_not_recurse() -> None:
    expression: Any = P
    for _ in range(5000):
        expression = apply("add", expression, expression)
    result = substitute(expression, {P: J})
    assert sum(1 for _ in walk(result)) == 5001
    assert substitute(expression, {R: J}) is expression


# Printing


def test_printed_form() -> None:
    assert (
        print_kernel(kernels.softmax(8, float32).kernel)
        == """\
def softmax(x: f32[5,8], out: f32[5,8]):
    for r in parallel(5):
        row = scratch(f32, 8)
        top = f32(-inf)
        for k in vector(8):
            top = maximum(top, x[r, k])
        total = f32(0.0)
        for k in vector(8):
            e = exp(x[r, k] - top)
            row[k] = e
            total += e
        scale = f32(1.0) / total
        for k in vector(8):
            out[r, k] = row[k] * scale
"""
    )


def test_printed_masks_and_symbols() -> None:
    assert (
        print_kernel(kernels.padded(4, float32).kernel)
        == """\
def padded(x: f32[3,4], out: f32[3,9]):
    for r in parallel(3):
        for k in vector(9):
            _1 = k + (-2)
            out[r, k] = (x[r, _1] if (_1 >= 0) & (_1 < 4) else f32(0.0))
"""
    )
    text = print_kernel(kernels.symbolic(4, float32).kernel)
    assert "def symbolic(x: f32[m,n], out: f32[m,n], m: int, n: int):" in text


def test_brackets_follow_precedence() -> None:
    a, b, c = (Var(v, float32) for v in "abc")
    cases = {
        apply("mul", apply("add", a, b), c): "(a + b) * c",
        apply("add", apply("mul", a, b), c): "a * b + c",
        apply("sub", a, apply("sub", b, c)): "a - (b - c)",
        apply("sub", apply("sub", a, b), c): "a - b - c",
        apply("eq", apply("lt", a, b), apply("lt", b, c)): "(a < b) == (b < c)",
        apply("neg", apply("add", a, b)): "neg(a + b)",
        convert(apply("div", a, b), int32): "convert(a / b, i32)",
    }
    for expression, text in cases.items():
        made = kernel("k", [], [], rows(1, Let(Var("y", expression.dtype), expression)))
        assert print_kernel(made).splitlines()[-1].strip() == f"y = {text}"


def test_shared_and_deep_expressions_are_cut() -> None:
    value: Any = Load(X, (R, K))
    for i in range(60):
        value = apply("mul", value, value) if i % 2 else apply("sub", value, Const(0.5, float32))
    for _ in range(700):
        value = apply("sin", value)
    body = rows(4, vector(8, Store(OUT, (R, K), value)))
    made = kernel("deep", [X, OUT], ["out"], body)
    assert max(len(line) for line in print_kernel(made).splitlines()) < 200
    out = np.zeros((4, 8), float32)
    execute(made, [np.full((4, 8), 0.7, float32), out])
    assert np.isfinite(out).all()


def test_execute_refuses_indices_out_of_range() -> None:
    for at in (add(K, 8), add(K, -1)):
        body = rows(4, vector(1, Store(OUT, (R, at), Const(0, float32))))
        with pytest.raises(IndexError):
            execute(kernel("k", [OUT], ["out"], body), [np.zeros((4, 8), float32)])


def test_execute_against_numpy() -> None:
    case = kernels.softmax(9, float64)
    execute(case.kernel, case.arrays)
    e = np.exp(case.arrays[0] - case.arrays[0].max(1, keepdims=True))
    np.testing.assert_allclose(case.arrays[1], e / e.sum(1, keepdims=True), 1e-14)
    case = kernels.column_sum(5, float64)
    execute(case.kernel, case.arrays)
    np.testing.assert_allclose(case.arrays[1], case.arrays[0].sum(0), 1e-14)


# Verification


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kernel.name)
def test_good_kernels_verify(case: Case) -> None:
    assert verify_kernel(case.kernel) is case.kernel


A = Var("a", float32)
LOAD = Load(X, (R, K))
ZERO = Const(0, float32)
STORE = Store(OUT, (R, K), LOAD)
BROKEN: dict[str, tuple[Stmt, ...]] = {
    "k is used outside of its scope": (STORE,),
    "the name a is bound twice": (Let(A, ZERO), Init(A, ZERO), vector(8, STORE)),
    "a is not a mutable local in scope": (Let(A, ZERO), Set(A, ZERO), vector(8, STORE)),
    "1 indices for f32[4,8]": (vector(8, Store(OUT, (K,), LOAD)),),
    "a i32 value for f32[4,8]": (vector(8, Store(OUT, (R, K), Const(1, int32))),),
    "add(f32, i32): operands must have one dtype": (
        vector(8, Store(OUT, (R, K), apply("add", LOAD, Const(1, int32)))),
    ),
    "a mask of type f32": (vector(8, Store(OUT, (R, K), LOAD, LOAD)),),
    "an index of type i32": (vector(8, Store(OUT, (R, Const(0, int32)), LOAD)),),
    "lt(f32, f32) gives bool, not f32": (
        vector(8, Store(OUT, (R, K), Apply("lt", (LOAD, ZERO), float32))),
    ),
    "frobnicate is not a scalar function": (
        vector(8, Store(OUT, (R, K), apply("frobnicate", LOAD))),
    ),
    "select takes 3 arguments": (vector(8, Store(OUT, (R, K), apply("select", LOAD, LOAD))),),
    "sqrt is a function of floats": (Let(P, apply("sqrt", R)), vector(8, STORE)),
    "xor is a function of integers": (Let(A, apply("xor", ZERO, ZERO)), vector(8, STORE)),
    "a vector loop inside a vector loop": (For(J, index(2), "vector", (vector(8, STORE),)),),
    "a parallel loop inside another loop": (For(J, index(2), "parallel", (vector(8, STORE),)),),
    "an unrolled loop needs a static extent": (For(J, R, "unroll", (vector(8, STORE),)),),
    "may only Update locals begun outside": (Init(A, ZERO), vector(8, Set(A, LOAD), STORE)),
    "a is looked at while a vector loop is updating it": (
        Init(A, ZERO),
        vector(8, Update("add", A, LOAD), Store(OUT, (R, K), A)),
    ),
    "div is not one of": (Init(A, ZERO), vector(8, Update("div", A, LOAD), STORE)),
    "scratch takes 800000 bytes": (Alloc(Buffer("s", float64, (100_000,))), vector(8, STORE)),
    "scratch must have a static shape": (Alloc(Buffer("s", float64, (R,))), vector(8, STORE)),
    "x: f32[4,8] is used as bf16[4,8]": (
        vector(8, Store(OUT, (R, K), convert(Load(replace(X, dtype=bfloat16), (R, K)), float32))),
    ),
    "param x is not among the outputs": (vector(8, Store(X, (R, K), LOAD), STORE),),
    "output out is never stored to": (vector(8, Let(A, LOAD)),),
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_kernels_are_refused(message: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_kernel(kernel("k", [X, OUT], ["out"], rows(4, *BROKEN[message])))
    assert message in str(caught.value)


def test_body_must_end_in_a_parallel_loop() -> None:
    with pytest.raises(InternalError, match="must end in a parallel loop"):
        verify_kernel(kernel("k", [X, OUT], ["out"], vector(8, Store(OUT, (K, K), ZERO))))
    with pytest.raises(InternalError, match="only Let and Alloc"):
        verify_kernel(kernel("k", [X, OUT], ["out"], Init(A, ZERO), rows(4, vector(8, STORE))))
