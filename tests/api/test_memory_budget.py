"""jit(memory_budget=): programs that fit, the same results, and an error where nothing fits."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError
from stax.interpreters.recompute import peak_bytes
from stax.lowering.pipeline import lower_graph

RNG = np.random.default_rng(0)
LAYERS = 12
WEIGHTS = [RNG.normal(scale=0.1, size=(48, 48)).astype(np.float32) for _ in range(LAYERS)]
X = RNG.normal(size=(64, 48)).astype(np.float32)


def network(weights: Any, x: Any) -> Any:
    for w in weights:
        x = snp.tanh(x @ w)
    return (x**2).sum()


def elements(weights: Any, x: Any) -> Any:
    """A long chain of element-wise ops with sums of rows in it."""
    for w in weights:
        x = snp.tanh(x * w[0] + 1) * snp.exp(-x * x)
        x = x - x.sum(-1, keepdims=True) * 0.01
    return (x**2).sum()


@functools.cache
def compiled(f: Callable[..., Any], budget: int | None = None) -> Any:
    return stax.jit(stax.grad(f), memory_budget=budget).lower(WEIGHTS, X).compile()


def temporary(program: Any) -> int:
    found: int = program.memory_analysis().temp_size_in_bytes
    return found


@pytest.mark.parametrize(("f", "share"), [(network, 0.35), (elements, 0.3)])
def test_the_peak_is_brought_under_the_budget(f: Callable[..., Any], share: float) -> None:
    plain = compiled(f)
    budget = int(temporary(plain) * share)
    tight = compiled(f, budget)
    assert temporary(tight) <= budget < temporary(plain)
    assert len(tight.program.lowered.program.steps) < 4 * len(plain.program.lowered.program.steps)
    for a, b in zip(tight(WEIGHTS, X), plain(WEIGHTS, X), strict=True):
        scale = np.abs(np.asarray(b)).max()
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-6 * scale)


def test_products_and_elements_have_the_same_bits() -> None:
    plain = compiled(network)
    tight = compiled(network, int(temporary(plain) * 0.35))
    for a, b in zip(tight(WEIGHTS, X), plain(WEIGHTS, X), strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_more_is_computed_again_than_has_to_be() -> None:
    full = temporary(compiled(network))
    steps = [
        len(lower_graph(stax.jit(stax.grad(network)).trace(WEIGHTS, X), budget).steps)
        for budget in (full, int(full * 0.6), int(full * 0.35))
    ]
    assert steps[0] <= steps[1] < steps[2]


def test_work_that_was_taken_out_of_loops_goes_back_into_them() -> None:
    def f(w: Any, xs: Any) -> Any:
        """Products of inputs, which are done for all steps at once, before the loop."""
        step = lambda h, x: (snp.tanh(x @ w + h @ w), None)  # noqa: E731
        return stax.lax.scan(step, snp.zeros((8, 48)), xs)[0]

    xs = np.repeat(X[None, :8], 40, 0)
    plain = stax.jit(f).lower(WEIGHTS[0], xs).compile()
    budget = temporary(plain) // 8
    tight = stax.jit(f, memory_budget=budget).lower(WEIGHTS[0], xs).compile()
    assert temporary(tight) <= budget
    np.testing.assert_allclose(tight(WEIGHTS[0], xs), plain(WEIGHTS[0], xs), atol=1e-6)


def test_a_budget_that_is_met_anyway_changes_nothing() -> None:
    plain = compiled(network)
    assert compiled(network, temporary(plain)).as_text() == plain.as_text()


def test_calls_and_stages() -> None:
    budget = temporary(compiled(network)) // 2
    jitted = stax.jit(stax.grad(network), memory_budget=budget)
    for a, b in zip(jitted(WEIGHTS, X), stax.grad(network)(WEIGHTS, X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    (variant,) = jitted.variants()
    assert variant.program.lowered.program.arena_bytes <= budget
    kernels = jitted.lower(WEIGHTS, X).as_text("kernels")
    assert kernels != stax.jit(stax.grad(network)).lower(WEIGHTS, X).as_text("kernels")


def test_a_budget_for_one_program() -> None:
    lowered = stax.jit(stax.grad(network)).lower(WEIGHTS, X)
    budget = temporary(compiled(network)) // 2
    tight = lowered.compile(memory_budget=budget)
    assert temporary(tight) <= budget
    assert tight.as_text("kernels") != lowered.compile().as_text("kernels")
    with pytest.raises(ValueError, match="is not a number of bytes"):
        lowered.compile(memory_budget=-1)


def test_the_option_is_part_of_jit() -> None:
    assert inspect.signature(stax.jit).parameters["memory_budget"].default is None
    decorator = stax.jit(memory_budget=1 << 30)
    assert float(decorator(lambda x: x + 1)(1.0)) == 2.0


def test_flat_calls_of_a_budget_are_native() -> None:
    jitted = stax.jit(lambda x: x + 1, memory_budget=1 << 30)
    x = snp.asarray(X)
    for _ in range(3):
        np.testing.assert_array_equal(jitted(x), X + 1)
    assert jitted.variants()[0].calls == 1


# --- errors ---


def test_a_budget_that_cannot_be_met() -> None:
    with pytest.raises(ArgumentValueError) as caught:
        compiled(network, 1000)
    text = str(caught.value)
    found = re.match(
        r"jit: memory_budget=1000 cannot be met: network needs at least (\d+) bytes of temporary "
        r"memory, (\d+) where nothing is computed again\.\n    \w+ +f32\[64,48\]  x = ",
        text,
    )
    assert found, text
    least, full = map(int, found.groups())
    assert full == temporary(compiled(network)) > 2 * least
    assert f"Give it memory_budget={least} or more" in text
    assert temporary(compiled(network, least)) <= least


def test_the_error_comes_from_a_call_too() -> None:
    with pytest.raises(ArgumentValueError, match="cannot be met"):
        stax.jit(stax.grad(network), memory_budget=1000)(WEIGHTS, X)


@pytest.mark.parametrize("budget", [-1, 1.5, "1G", True])
def test_what_is_no_number_of_bytes(budget: Any) -> None:
    with pytest.raises(ValueError, match="is not a number of bytes"):
        stax.jit(network, memory_budget=budget)


def test_lengths_that_are_not_known() -> None:
    jitted = stax.jit(lambda x: snp.tanh(x @ x.T), dynamic={"x": {0: "n"}}, memory_budget=1 << 20)
    with pytest.raises(ValueError, match="needs lengths that are known"):
        jitted(X)


# --- what counts ---


def test_what_a_scan_stacks_counts() -> None:
    def loss(w: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            return snp.tanh(h * w + x), None

        return stax.lax.scan(cell, snp.zeros(1024), xs)[0].sum()

    args = (np.ones(1024, np.float32), np.ones((1000, 1024), np.float32))
    program = stax.jit(stax.grad(loss)).lower(*args).compile()
    stacked = 1000 * 1024 * 4
    assert temporary(program) >= stacked
    assert peak_bytes(program.graph) >= stacked
    analysis = program.memory_analysis()
    assert analysis.peak_memory_in_bytes == temporary(program) + args[0].nbytes * 2 + args[1].nbytes


def test_loops_are_run_again_where_that_is_all_that_helps() -> None:
    def loss(w: Any, xs: Any) -> Any:
        h = snp.zeros(1024)
        for _ in range(4):
            h = stax.lax.scan(lambda h, x: (snp.tanh(h * w + x), None), h, xs)[0]
        return h.sum()

    args = (np.ones(1024, np.float32), RNG.normal(size=(100, 1024)).astype(np.float32))
    plain = stax.jit(stax.grad(loss)).lower(*args).compile()
    budget = int(temporary(plain) * 0.6)
    tight = stax.jit(stax.grad(loss), memory_budget=budget).lower(*args).compile()
    assert temporary(tight) <= budget
    np.testing.assert_array_equal(tight(*args), plain(*args))
