"""Values computed again behind the peak of a graph: exact, late, and less memory."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import types
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.recompute import peak_bytes, recomputing
from stax.interpreters.remat import STANDARD, Prices
from stax.operators.bits import Late
from stax.types import ArrayType
from tests.effects import Unordered, labels
from tests.operators.calculus import graph_of
from tests.random_graphs import arguments, assert_same_bits, graphs

MATRIX = ArrayType(types.float32, (64, 64))
LARGE = Prices(byte=1e6)
DEAR = Prices(byte=1e6, dear=True)


def gradient_of_layers(count: int) -> Graph:
    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = snp.tanh(x @ w)
        return (x**2).sum()

    matrix = stax.ShapeDtypeStruct((64, 64), "float32")
    return stax.make_graph(stax.grad(loss))([matrix] * count, matrix)


@settings(max_examples=80)
@given(
    graphs(exact=False, most=25),
    st.integers(0, 9),
    st.sampled_from([STANDARD, LARGE, DEAR]),
    st.integers(1, 4),
)
def test_any_choice_gives_the_same_bits(
    graph: Graph, seed: int, prices: Prices, segments: int
) -> None:
    args = arguments(graph, seed)
    with np.errstate(all="ignore"):
        found = evaluate(recomputing(graph, prices, segments), args)
        assert_same_bits(found, evaluate(graph, args))


@settings(max_examples=20)
@given(st.integers(2, 9), st.booleans(), st.integers(1, 4), st.integers(1, 2))
def test_gradients_have_the_same_bits(layers: int, dear: bool, segments: int, rounds: int) -> None:
    graph = found = gradient_of_layers(layers)
    for _ in range(rounds):
        found = recomputing(found, Prices(1e6, dear=dear), segments)
    args = arguments(graph, layers, special=False)
    assert_same_bits(evaluate(found, args), evaluate(graph, args))


def test_less_lives_at_the_peak() -> None:
    graph = gradient_of_layers(16)
    layer = 64 * 64 * 4
    assert peak_bytes(graph) > 30 * layer  # each layer leaves two values
    cheap = recomputing(graph, LARGE)
    assert peak_bytes(cheap) < 20 * layer  # each layer leaves one
    assert peak_bytes(recomputing(graph, DEAR)) > 16 * layer  # a copy of all is as large
    assert peak_bytes(recomputing(cheap, DEAR, segments=4)) < 11 * layer


def test_copies_are_late() -> None:
    found = recomputing(gradient_of_layers(4), LARGE)
    copies = [n for n in found.nodes if any(isinstance(x.op, Late) for x in n.inputs)]
    assert {n.op.name for n in copies} == {"mul"}
    position = {n: i for i, n in enumerate(found.nodes)}
    times = [n.inputs[0].inputs[1] for n in copies]
    assert times == sorted(times, key=position.__getitem__)
    assert len(set(times)) == len(times)  # each is computed at a time of its own


def test_nothing_is_done_where_nothing_lives_on() -> None:
    graph = graph_of(lambda x: (snp.tanh(x).sum(),), MATRIX)
    assert recomputing(graph, LARGE) is graph


def test_effects_happen_once() -> None:
    def body(x: Any) -> Any:
        y = stax.trace.bind(Unordered("seen"), x @ x)
        z = snp.tanh(y)
        return (snp.tanh(z @ z) * z,)

    graph = graph_of(body, MATRIX)
    assert labels(recomputing(graph, DEAR)) == labels(graph) == ["seen"]


@pytest.mark.parametrize("segments", [1, 3])
def test_several_results_are_computed_again_together(segments: int) -> None:
    def body(x: Any) -> Any:
        u, s, v = snp.linalg.svd(x)
        y = snp.tanh(x @ x)
        for _ in range(4):
            y = snp.sin(y @ y)
        return (y + u * s @ v, snp.linalg.qr(y)[0])

    graph = graph_of(body, MATRIX)
    args = arguments(graph, 0, special=False)
    found = recomputing(graph, DEAR, segments)
    assert_same_bits(evaluate(found, args), evaluate(graph, args))
