"""Results over donated inputs: where that may be, and it is right with one memory and with two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.api.inspection import _traced
from stax.array import value_of
from stax.graph import Graph
from stax.lowering.donated import Donated
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import compile_graph
from stax.types import ArrayType, float32
from tests.fuzz import graph_of, settings as fuzz_settings
from tests.fuzz_programs import program
from tests.lowering.examples import normal

W, V = normal(40, 40), normal(40, seed=1)
KEYS = stax.random.split(stax.random.key(0), 3)


def adam(p, m, v, g):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 0.1 * m / (snp.sqrt(v) + 1e-8), m, v


def filled(w, n):
    return lax.fori_loop(0, n, lambda i, c: c.at[i].set(c[i - 1] * 2), w)


# A function, how many of its arguments are donated, and which result takes which.
TAKEN: dict[str, tuple[Any, Sequence[Any], int, dict[int, int]]] = {
    "optimizer": (adam, (W, W, W * W, V), 3, {0: 0, 1: 1, 2: 2}),
    "rows": (lambda w: w - w.max(1, keepdims=True), (W,), 1, {0: 0}),
    "one element": (lambda w, i: w.at[i, i].set(1.0), (W, 3), 1, {0: 0}),
    "of itself": (lambda w, i: w.at[i].add(w[i + 1]).at[1].set(V), (W, 3), 1, {0: 0}),
    "scatter": (lambda w, i: w.at[i].add(1.0), (W, np.array([3, 3, 1])), 1, {0: 0}),
    "loop": (filled, (W, 9), 1, {0: 0}),
    "returned": (lambda w, v: (w, w.sum() + v), (W, V), 1, {0: 0}),
    "exchanged": (lambda a, b: (b, a), (W, W + 1), 2, {0: 1, 1: 0}),
    "read meanwhile": (lambda w: w @ w, (W,), 1, {}),
    "read before": (lambda w: snp.tanh(w @ w) @ w[::-1].T, (W,), 1, {0: 0}),
    "dead before": (lambda w, v: snp.tanh(w @ v) @ v, (W, W), 1, {0: 0}),
    "complex": (lambda w: w * w.conj(), (W + 1j,), 1, {0: 0}),
    "keys": (lambda k: (k, stax.random.key_data(k)), (KEYS,), 1, {0: 0}),
    "shifted": (lambda w: snp.roll(w, 1, 1) + w, (W,), 1, {}),
    "other type": (lambda w: w.astype("int32"), (W,), 1, {}),
    "other shape": (lambda w: w.reshape(-1) + 1, (W,), 1, {}),
    "read later": (lambda w: (w * 2, (w @ w).sum()), (W,), 1, {}),
}


def bits(arrays: Sequence[Any]) -> list[bytes]:
    return [value_of(x).tobytes() for x in arrays]


def taken_of(f: Any, args: Sequence[Any], donated: Sequence[int]) -> dict[int, int]:
    """Return which results take which inputs, of a program that is right."""
    args = [snp.asarray(x) for x in args]
    traced = _traced("donated", f, args, {})
    values = [value_of(x) for x in (*args, *traced.captures)]
    return assert_right(traced.graph, values, donated)


def assert_right(
    graph: Graph, values: Sequence[np.ndarray], inputs: Sequence[int]
) -> dict[int, int]:
    """With one memory for each pair, with two, and with one for some of the pairs."""
    plain, donated = compile_graph(graph), compile_graph(graph, None, inputs)
    wanted = bits(plain.run(values))
    for over in ({k for k, _ in donated.taken}, set[int](), {k for k, _ in donated.taken if k % 2}):
        mine = [np.array(x) for x in values]
        given: list[Any] = [None] * len(wanted)
        for k, i in donated.taken:
            given[k] = mine[i] if k in over else None
        assert bits(donated.run(mine, given) if donated.taken else donated.run(mine)) == wanted
        kept = set(range(len(values))) - {i for k, i in donated.taken if k in over}
        assert all(mine[i].tobytes() == values[i].tobytes() for i in kept)
    return dict(donated.taken)


@pytest.mark.parametrize("name", TAKEN)
def test_which_results_take_which_inputs(name: str) -> None:
    f, args, count, taken = TAKEN[name]
    assert taken_of(f, args, range(count)) == taken


def test_what_is_checked_while_it_runs_is_not_written_over() -> None:
    graph = stax.make_graph(lambda x: x + 1)(V)
    assert lower_graph(graph, None, [0]).taken == {0: 0}
    with stax.debug_nans(True):
        assert not lower_graph(graph, None, [0]).taken


def test_temporaries_are_not_where_an_input_is() -> None:
    def f(w, v):
        t = snp.tanh(w @ v)
        return w * t.sum(), t @ t

    assert taken_of(f, (W, W), [0]) == {0: 0}


def test_matching_by_lives() -> None:
    a, b = ArrayType(float32, (4,)), ArrayType(float32, (5,))
    donated = Donated(frozenset({0, 1, 2}), (a, a, b), (a, b, a, a))
    assert donated.usable == [0, 1, 2]
    read, written = {0: 3, 1: 0, 2: -1}, {0: 3, 1: 0, 2: 4, 3: 5}
    assert donated.matched(read, written) == {0: 1, 1: 2, 2: 0}
    assert not donated.matched({0: 3}, {0: 3})


@settings(max_examples=12)
@given(st.integers(0, 100_000), st.sampled_from(["values", "gradients", "scanned", "carried"]))
def test_random_programs(seed: int, mode: str) -> None:
    with fuzz_settings(seed):
        made = program(seed)
        graph, values = graph_of(made, mode)
        assert_right(graph, values, range(len(values)))
