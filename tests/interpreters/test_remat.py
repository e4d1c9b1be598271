"""What reverse mode saves and computes again: the minimum cut, its prices, its exactness."""

import itertools
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import types
from stax.graph import Constant, Graph, Node
from stax.interpreters.evaluate import evaluate
from stax.interpreters.linearize import split
from stax.interpreters.remat import (
    STANDARD,
    Cut,
    Prices,
    There,
    fewer_residuals,
    minimum_cut,
    nbytes,
    price_again,
    scaled,
)
from stax.operators.elementwise import exp, mul
from stax.trace import Trace, bind
from stax.types import ArrayType
from tests.effects import Unordered
from tests.operators.calculus import graph_of
from tests.random_graphs import arguments, assert_same_bits, graphs

MATRIX = ArrayType(types.float32, (64, 64))
FREE = There("given", 0)


def names(nodes: Sequence[Node]) -> list[str]:
    return [n.op.name for n in nodes]


def cut_of(graph: Graph, prices: Prices = STANDARD) -> Cut:
    """The cut for all outputs of a graph, whose inputs cost nothing."""
    return minimum_cut(graph, graph.outputs, dict.fromkeys(graph.inputs, FREE), prices)


# --- what is chosen ---


def test_what_is_cheap_is_computed_again_from_what_is_there() -> None:
    found = cut_of(graph_of(lambda x: (x > 0, x * 2 + 1, snp.broadcast_to(x, (3, 64, 64))), MATRIX))
    assert names(found.saved) == ["input"]
    assert {"gt", "mul", "add", "broadcast"} <= set(names(found.recomputed))


def test_one_value_is_saved_in_place_of_many_made_of_it() -> None:
    def body(x: Any, w: Any) -> Any:
        y = x @ w
        return y > 0, y * 3, y * y + 2

    found = cut_of(graph_of(body, MATRIX, MATRIX))
    assert names(found.saved) == ["dot_general"]
    assert found.why[found.saved[0]] == "a product is not computed again"


def test_a_small_value_made_of_a_large_one_is_saved() -> None:
    found = cut_of(graph_of(lambda x: (snp.exp(x).sum() * 2,), MATRIX))
    assert names(found.saved) == ["mul"]
    assert found.why[found.saved[0]] == "cheaper than computing it again"


def effect(x: Any) -> Any:
    return bind(Unordered("seen"), x)


@pytest.mark.parametrize(
    ("body", "op", "why"),
    [
        (lambda x: (x @ x,), "dot_general", "a product is not computed again"),
        (lambda x: (x.sum(0),), "reduce_sum", "a reduction is not computed again"),
        (lambda x: (snp.cumsum(x, 0),), "cumsum", "a reduction is not computed again"),
        (lambda x: (snp.sort(x),), "sort", "a sort is not computed again"),
        (lambda x: (snp.fft.fft(x),), "fft", "its op is not computed again"),
        (lambda x: (stax.lax.cond(x[0, 0] > 0, snp.sin, snp.cos, x),), "project", "a graph is not"),
        (lambda x: (stax.lax.lgamma(x),), "lgamma", "its op is not computed again"),
    ],
)
def test_what_is_computed_again_only_when_asked(
    body: Callable[..., Any], op: str, why: str
) -> None:
    graph = graph_of(body, MATRIX)
    found = cut_of(graph)
    assert names(found.saved) == [op]
    assert found.why[found.saved[0]].startswith(why)
    assert names(cut_of(graph, Prices(byte=1e9, dear=True)).saved) == ["input"]


def test_draws_are_not_made_again() -> None:
    graph = graph_of(lambda x: (stax.random.bits(stax.random.key(0), (64, 64)), x), MATRIX)
    assert "random_bits" in names(cut_of(graph).saved)


def test_effects_are_never_repeated() -> None:
    graph = graph_of(lambda x: (snp.broadcast_to(effect(x), (3, 64, 64)),), MATRIX)
    found = cut_of(graph, Prices(byte=1e9, dear=True))
    assert found.why[found.saved[0]] == "it has an effect"


def test_the_price_of_a_byte_decides() -> None:
    graph = graph_of(lambda x: (snp.sin(snp.cos(snp.exp(x))),), MATRIX)
    assert names(cut_of(graph, Prices(byte=0.01)).saved) == ["sin"]
    assert names(cut_of(graph, Prices(byte=100)).saved) == ["input"]


def test_constants_are_neither_saved_nor_counted() -> None:
    found = cut_of(graph_of(lambda x: (snp.ones(3), x * 2), MATRIX))
    assert not any(isinstance(n.op, Constant) for n in (*found.saved, *found.recomputed))


def test_fixed_values_are_not_computed_again() -> None:
    graph = graph_of(lambda x: (x * 2 > 0,), MATRIX)
    (double,) = [n for n in graph.nodes if n.op.name == "mul"]
    there = {graph.inputs[0]: FREE, double: FREE}
    found = minimum_cut(graph, graph.outputs, there, fixed=frozenset(graph.outputs))
    assert found.saved == list(graph.outputs)


# --- the cut is the cheapest ---


def cost(graph: Graph, saved: set[Node], wanted: Sequence[Node]) -> float:
    """The price of saving `saved` and computing the rest of what is wanted again."""
    price, pending, seen = 0.0, list(wanted), set[Node]()
    while pending:
        x = pending.pop()
        if x in seen or isinstance(x.op, Constant):
            continue
        seen.add(x)
        again = price_again(x, STANDARD)
        if x in saved:
            price += STANDARD.byte * nbytes(x.type) + 16
        elif again is None:
            return np.inf
        else:
            price += again
            pending += x.inputs
    return price


@settings(max_examples=60)
@given(graphs(exact=False, most=9))
def test_no_choice_is_cheaper(graph: Graph) -> None:
    wanted = [x for x in graph.outputs if not isinstance(x.op, Constant)]
    found = minimum_cut(graph, wanted)
    nodes = [x for x in (*graph.inputs, *graph.nodes) if not isinstance(x.op, Constant)]
    if len(nodes) > 11:
        return
    subsets = itertools.chain.from_iterable(
        itertools.combinations(nodes, k) for k in range(len(nodes) + 1)
    )
    best = min(cost(graph, set(subset), wanted) for subset in subsets)
    assert cost(graph, set(found.saved), wanted) == pytest.approx(best, rel=1e-6)


# --- capacities are 32-bit ---


def test_capacities_stay_below_infinity() -> None:
    found = scaled([np.inf, 1 << 40, 1 << 34, 3.0, 0.0])
    assert found.dtype == np.int32
    assert found[0] > int(found[1:].sum())
    assert list(found[1:] > 0) == [True, True, True, False]
    assert found[1] > found[2] > found[3]


@pytest.mark.parametrize("rows", [8, 1 << 16])
def test_arrays_of_more_than_four_gigabytes(rows: int) -> None:
    """The choice depends on how sizes compare, not on how large they are."""
    large = ArrayType(types.float32, (rows, 1 << 16))
    assert rows < 9 or nbytes(large) > 1 << 33

    def body(x: Any) -> Any:
        y = exp(x)
        return y, mul(y, y), y.sum(), (y @ y.T) > 0

    found = cut_of(graph_of(body, large))
    assert names(found.saved) == ["input", "reduce_sum", "gt"]


def test_symbolic_lengths_count_as_typical() -> None:
    n = stax.extent.symbol("n")
    graph = graph_of(lambda x: (x > 0, x.sum(0)), ArrayType(types.float32, (n, 64)))
    assert names(cut_of(graph).saved) == ["input", "reduce_sum"]


# --- the two parts are exact ---


@settings(max_examples=80)
@given(graphs(exact=False, most=20), st.integers(0, 9), st.data())
def test_the_parts_give_the_same_bits(graph: Graph, seed: int, data: Any) -> None:
    flags = [data.draw(st.booleans()) for _ in graph.inputs]
    limit = data.draw(st.integers(0, len(graph.outputs)))
    prices = data.draw(st.sampled_from([STANDARD, Prices(1e9), Prices(1e9, dear=True)]))
    known, unknown, is_known = split(graph, flags, limit)
    found = fewer_residuals(known, unknown, sum(is_known), prices=prices)
    args = arguments(graph, seed, special=True)
    early = [x for x, f in zip(args, flags, strict=True) if not f]
    late = [x for x, f in zip(args, flags, strict=True) if f]
    with np.errstate(all="ignore"):
        first = evaluate(found.known, early)
        second = evaluate(found.unknown, [*first[sum(is_known) :], *late])
        expected = evaluate(graph, args)
    outs = iter(first[: sum(is_known)]), iter(second)
    assert_same_bits([next(outs[not k]) for k in is_known], expected)


def test_copies_keep_the_line_they_come_from() -> None:
    graph = graph_of(lambda x, y: (snp.sin(x) * y,), MATRIX, MATRIX)
    known, unknown, _ = split(graph, [False, True])
    found = fewer_residuals(known, unknown, 0, dict.fromkeys(known.inputs, FREE))
    (copy,) = [n for n in found.unknown.nodes if n.op.name == "sin"]
    assert copy.source == known.outputs[0].source


def test_copies_stand_where_they_are_read() -> None:
    graph = graph_of(lambda x, y: (snp.sin(y) + y * snp.cos(x),), MATRIX, MATRIX)
    known, unknown, _ = split(graph, [False, True])
    found = fewer_residuals(known, unknown, 0, dict.fromkeys(known.inputs, FREE))
    assert names(found.unknown.nodes) == ["sin", "cos", "mul", "add"]


# --- time ---


def large_graph(steps: int) -> Graph:
    """A graph of about twice as many nodes as steps, long and tangled."""
    draw = random.Random(0)
    with Trace("large", "test") as trace:
        values: list[Any] = [trace.input(MATRIX, "x"), trace.input(MATRIX, "w")]
        for _ in range(steps):
            a, b = values[-1], draw.choice(values[-5:])
            kinds = (snp.tanh(a) * 1.5, a * b + 1, snp.sin(a) - b, (a @ b) / 2)
            values.append(draw.choice(kinds))
        return trace.finish(values[2:])


def test_five_thousand_nodes_take_a_moment() -> None:
    graph = large_graph(2500)
    assert len(graph.nodes) > 4000
    wanted = [n for i, n in enumerate(graph.nodes) if i % 2 and n.inputs]

    def seconds() -> float:
        start = time.process_time()
        minimum_cut(graph, wanted)
        return time.process_time() - start

    assert min(seconds() for _ in range(3)) < 0.2  # half of that on an idle machine


def test_long_chains_do_not_recurse() -> None:
    graph = graph_of(lambda x: (_chain(x, 3000),), MATRIX)
    known, unknown, _ = split(graph, [False])
    late = graph_of(lambda y: (y,), MATRIX)
    found = fewer_residuals(known, late, 0, dict.fromkeys(known.inputs, FREE), Prices(byte=1e9))
    assert len(found.unknown.nodes) == len(known.nodes)
    assert unknown.outputs == ()


def _chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = -(x + 1)
    return x
