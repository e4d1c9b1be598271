"""Loops are compiled without what nobody reads: stacked results, and what is carried for them."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.control import Scan
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.lowering.pipeline import lower_graph
from stax.lowering.unread import without_unread
from stax.verify import verify

XS = np.linspace(0, 1, 12, dtype=np.float32).reshape(6, 2)


def loops(graph: Graph) -> list[Scan]:
    return [n.op for n in graph.nodes if isinstance(n.op, Scan)]


def checked(f: Any, *args: Any) -> Graph:
    """The graph of `f` without unread results, which gives the same values."""
    graph = stax.make_graph(f)(*args)
    found = without_unread(graph)
    verify(found)
    for a, b in zip(evaluate(found, args), evaluate(graph, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return found


def step(carry: Any, x: Any) -> Any:
    total, count, largest = carry
    return (total + x * count, count + 1, snp.maximum(largest, x)), (total, largest * 2)


def run(xs: Any) -> Any:
    return stax.lax.scan(step, (snp.zeros(2), snp.zeros(()), snp.zeros(2)), xs)


@pytest.mark.parametrize(
    ("read", "outputs", "carried"),
    [
        (lambda carry, ys: (carry, ys), 5, 3),
        (lambda carry, ys: carry[0], 2, 2),  # the count is carried for it
        (lambda carry, ys: carry[1], 1, 1),
        (lambda carry, ys: ys[1], 2, 1),
        (lambda carry, ys: (carry[2], ys[0]), 4, 3),
    ],
)
def test_what_is_kept(read: Any, outputs: int, carried: int) -> None:
    graph = checked(lambda xs: read(*run(xs)), XS)
    (op,) = loops(graph)
    assert (len(op.body.outputs), op.carry) == (outputs, carried)


def test_operands_that_are_left_over_go_too() -> None:
    def f(xs: Any, ys: Any) -> Any:
        def body(c: Any, pair: Any) -> Any:
            return c + pair[0], pair[1] * 2

        return stax.lax.scan(body, xs[0], (xs, ys))[0]

    (op,) = loops(checked(f, XS, XS))
    assert len(op.body.inputs) == 2


def test_loops_in_loops() -> None:
    def f(xs: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            carry, _ = stax.lax.scan(lambda c, x: (c + x, c * x), c, xs)
            return carry, None

        return stax.lax.scan(outer, xs[0], None, 3)[0]

    (op,) = loops(checked(f, XS))
    (inner,) = loops(op.body)
    assert len(inner.body.outputs) == 1


def test_nothing_to_do() -> None:
    graph = stax.make_graph(run)(XS)
    assert without_unread(graph) is graph


def test_no_memory_is_taken_for_it() -> None:
    def f(w: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            c = snp.tanh(c @ w + x)
            return c, c

        return stax.lax.scan(body, xs[0], xs)[0]

    program = lower_graph(
        stax.make_graph(f)(np.ones((64, 64), np.float32), np.ones((500, 8, 64), np.float32))
    )
    assert program.arena_bytes < 50 * 8 * 64 * 4
