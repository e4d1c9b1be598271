"""Late values in programs, and the plans that meet a budget of memory."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.lowering.budget import PLANS, lower_within
from stax.lowering.pipeline import lower_graph
from stax.lowering.prepare import prepare
from stax.lowering.program import KernelStep, Program, lower
from stax.operators.bits import late
from stax.runtime.compiler import compile_graph
from tests.random_graphs import arguments, assert_same_bits, graphs

X = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
MATRIX = X.nbytes


def steps_named(program: Program, name: str) -> list[int]:
    """The positions of the kernels that compute an op of this name."""
    return [
        i
        for i, step in enumerate(program.steps)
        if isinstance(step, KernelStep)
        and step.region is not None
        and any(n.op.name == name for n in step.region.nodes)
    ]


def with_late_copy(x: Any) -> Any:
    """Sines before and after a product; the second ones are of a late value."""
    y = x @ x
    z = snp.sin(y) @ x
    return z + snp.sin(late(y, z)) + snp.cos(z)


def test_a_late_value_is_read_late_and_not_copied() -> None:
    program = lower_graph(stax.make_graph(with_late_copy)(X))
    early, behind = steps_named(program, "sin")
    assert early < behind
    assert len(program.steps) == 4  # two products, two kernels


def test_late_values_compile_to_the_same_bits() -> None:
    (found,) = compile_graph(stax.make_graph(with_late_copy)(X)).run([X])
    (plain,) = compile_graph(
        stax.make_graph(lambda x: (z := snp.sin(x @ x) @ x) + snp.sin(x @ x) + snp.cos(z))(X)
    ).run([X])
    np.testing.assert_array_equal(found, plain)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: late(x, x @ x),
        lambda x: (late(x, x @ x).T, late(x, x @ x)),
        lambda x: late(x.T, x @ x) @ x,
        lambda x: late(x.reshape(-1), x @ x) * 2,
        lambda x: late(late(x + 1, x @ x), x * 2) + 1,
        lambda x: late(snp.ones(3), x @ x) + 1,
        lambda x: late(stax.lax.iota("float32", 3), x @ x),
        lambda x: late(x[:, 0], x @ x) @ x,
        lambda x: abs(late(x * 1j, x @ x)),
        lambda x: late(x, x * 1j) + 1,
    ],
)
def test_late_values_of_every_kind(f: Any) -> None:
    graph = stax.make_graph(f)(X)
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, [X])
    for a, b in zip(compile_graph(graph).run([X]), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


# --- plans ---


def chain() -> Graph:
    def loss(x: Any) -> Any:
        y = x
        for _ in range(12):
            y = snp.tanh(y @ x)
        return (y * y).sum()

    return stax.make_graph(stax.grad(loss))(X)


def test_plans_that_repeat_little_come_first() -> None:
    assert not any(round_.dear for round_ in PLANS[0])
    assert all(any(round_.dear for round_ in plan) for plan in PLANS[1:])


def test_each_budget_is_met_or_refused() -> None:
    graph = prepare(chain())
    full = lower(graph).arena_bytes
    with pytest.raises(ArgumentValueError, match=r"at least (\d+) bytes") as caught:
        lower_within(graph, 0)
    least = int(str(caught.value).split("at least ")[1].split()[0])
    assert least < full / 2
    arenas = [lower_within(graph, budget).arena_bytes for budget in (least, full // 2, full)]
    assert arenas[0] <= least
    assert arenas[1] <= full // 2
    assert arenas[2] == full


@settings(max_examples=15)
@given(graphs(most=20), st.integers(0, 9), st.sampled_from([0.5, 0.8]))
def test_exact_programs_have_the_same_bits(graph: Graph, seed: int, share: float) -> None:
    """Where a budget can be met, the program computes what it did without."""
    budget = int(lower_graph(graph).arena_bytes * share)
    try:
        program = compile_graph(graph, budget)
    except ArgumentValueError:
        return
    args = arguments(graph, seed)
    with np.errstate(all="ignore"):
        assert_same_bits(program.run(args), evaluate(graph, args))
