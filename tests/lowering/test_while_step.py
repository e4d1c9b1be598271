"""Small loops that end by a condition, as one kernel."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.interpreters.evaluate import evaluate
from stax.lowering import loop_ir as ir, while_step
from stax.lowering.loop_printer import execute, print_kernel
from stax.lowering.pipeline import lower_graph
from stax.lowering.while_step import EndingStep
from stax.runtime.compiler import compile_graph
from tests.random_graphs import assert_same_bits

Function = Callable[..., Any]


def check(f: Function, *args: Any, count: int = 1) -> list[EndingStep]:
    """Compare a compiled function with the evaluator; `count` of its loops are one kernel."""
    arrays = [snp.asarray(x) for x in args]
    graph = stax.make_graph(f)(*arrays)
    found = [s for s in lower_graph(graph).steps if isinstance(s, EndingStep)]
    assert len(found) == count
    values = [np.asarray(x) for x in arrays]
    program = compile_graph(graph)
    for _ in range(2):
        assert_same_bits(program.run(values), evaluate(graph, values))
    return found


LOOPS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "a root": (
        lambda a: lax.while_loop(
            lambda s: (abs(s[0] * s[0] - a) > 1e-3) & (s[1] < 1000),
            lambda s: (s[0] - (s[0] * s[0] - a) / (2 * s[0]) * 0.1, s[1] + 1),
            (a, 0),
        ),
        (np.float32(7),),
    ),
    "no step": (lambda a: lax.while_loop(lambda s: s < a, lambda s: s * 2, a), (np.float32(7),)),
    "numbers that change places": (
        lambda a, b: lax.while_loop(lambda s: s[0] < b, lambda s: (s[1] + 1, s[0]), (a, a)),
        (np.float32(7), np.float32(20)),
    ),
    "a short array": (
        lambda a, b: lax.while_loop(
            lambda s: s.sum() < b, lambda s: snp.stack([s[1], s[2], s[0] * 1.5]) + a, a
        ),
        (np.ones(3, np.float32), np.float32(50)),
    ),
    "two conditions": (
        lambda n, a: lax.while_loop(
            lambda s: (s[0] < n) & (s[1][0, 0] < 9), lambda s: (s[0] + 1, s[1] * 1.5 + s[0]), (0, a)
        ),
        (np.int32(7), np.ones((2, 2), np.float32)),
    ),
    "one result": (
        lambda n: lax.while_loop(
            lambda s: s[0] != 1,
            lambda s: (snp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1),
            (n, 0),
        )[1],
        (np.int32(27),),
    ),
    "a flag": (
        lambda x: lax.while_loop(
            lambda s: s[0], lambda s: (s[1][1] < 9, s[1] * 2, s[1][0] < 3), (x[0] > 0, x, x[0] > 0)
        ),
        (np.ones(2, np.float32),),
    ),
    "constants that are read anywhere": (
        lambda x: lax.while_loop(
            lambda s: x[s[0]] < 40, lambda s: (s[0] + 1, s[1] + x[s[0]]), (0, x[0])
        ),
        (np.arange(50, dtype=np.float32),),
    ),
}


@pytest.mark.parametrize("most", [1, 40, 1 << 23])
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(while_step, "POLL_AFTER", most)
    check(LOOPS[name][0], *LOOPS[name][1])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "uint32", "int64"])
def test_dtypes(dtype: str) -> None:
    with stax.enable_x64(True):
        start = snp.asarray([1, 2]).astype(dtype)
        f = lambda x: lax.while_loop(lambda s: s[0] < 50, lambda s: s + s[::-1] + x[0], x)  # noqa: E731
        check(f, start)


def test_inside_of_a_loop() -> None:
    def step(c: Any, x: Any) -> Any:
        root = lax.while_loop(lambda r: r * r < x, lambda r: r * 1.25, c)
        return root * 0.5, root

    f = lambda xs: lax.scan(step, 1.0, xs)  # noqa: E731
    check(f, np.linspace(1, 90, 7, dtype=np.float32), count=0)


def test_what_is_large_is_not_written_out() -> None:
    f = lambda x: lax.while_loop(lambda s: s[0, 0] < 9, lambda s: s * 2, x)  # noqa: E731
    check(f, np.ones((9, 9), np.float32), count=0)
    g = lambda x: lax.while_loop(lambda s: s[0] < 9, lambda s: snp.sort(s) * 2, x)  # noqa: E731
    check(g, np.ones(3, np.float32), count=0)


@settings(max_examples=30)
@given(
    st.lists(st.sampled_from("+-*><sm"), min_size=1, max_size=6),
    st.integers(0, 12),
    st.floats(-2, 2, width=32),
)
def test_random_steps(code: list[str], steps: int, start: float) -> None:
    def body(s: Any) -> Any:
        i, x, y = s
        for op in code:
            z = {
                "+": x + y, "-": x - y, "*": x * y * 0.5, ">": snp.maximum(x, y),
                "<": snp.where(x < y, x, -y), "s": snp.sqrt(abs(x)), "m": x[::-1],
            }[op]  # fmt: skip
            x, y = z, x
        return i + 1, x, y

    def f(n: Any, x: Any) -> Any:
        return lax.while_loop(lambda s: (s[0] < n) & (abs(s[1][0]) < 1e6), body, (0, x, x + 1))

    check(f, np.int32(steps), np.array([start, 0.5], np.float32))


def test_the_printed_loop_ends_by_its_condition() -> None:
    (step,) = check(*LOOPS["one result"][:1], *LOOPS["one result"][1])
    kernel = step.built.kernel
    assert "if not (going0): break" in print_kernel(kernel)
    assert any(isinstance(n, ir.For) and n.going is not None for n in ir.walk(*kernel.body))
    carry = [np.array(27, np.int32), np.array(0, np.int32), np.array(True)]
    execute(kernel, carry, ())
    assert [int(x) for x in carry] == [1, 111, 0]
