"""Random keys and draws in kernels: keys are numbers, draws are computed where they are read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
import stax.random as sr
from stax import types
from stax.api.stages import Compiled
from stax.graph import Graph
from stax.interpreters.simplify import simplify
from stax.lowering.keys import keys_as_numbers
from stax.lowering.prepare import prepare

KEY = sr.key(3)


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    return stax.make_graph(function)(*args)


def compiled(function: Callable[..., Any], *args: Any) -> Compiled:
    return stax.jit(function).lower(*args).compile()


def ops(graph: Graph) -> list[str]:
    return [n.op.name for n in graph.nodes if n.inputs]


def test_keys_become_numbers() -> None:
    graph = prepare(graph_of(lambda k: (sr.split(k), snp.zeros_like(k), k), KEY))
    every = [n.type.dtype for n in (*graph.inputs, *graph.nodes)]
    assert set(every) == {types.uint64}


def test_graphs_without_keys_are_left_alone() -> None:
    graph = graph_of(lambda x: x + 1, snp.ones(3))
    assert keys_as_numbers(graph) is graph


def test_words_wrapped_again_are_the_keys() -> None:
    graph = graph_of(lambda k: sr.wrap_key_data(sr.key_data(k)), KEY)
    assert ops(simplify(graph)) == []


def test_draws_of_one_key_have_any_shape() -> None:
    graph = simplify(graph_of(lambda k: sr.bits(k, (6, 4)).reshape(3, 8), KEY))
    assert ops(graph) == ["random_bits"]
    np.testing.assert_array_equal(
        stax.jit(lambda k: sr.bits(k, (6, 4)).reshape(3, 8))(KEY),
        np.asarray(sr.bits(KEY, (6, 4))).reshape(3, 8),
    )


def test_a_sum_of_draws_stores_none_of_them() -> None:
    def mean(key: Any) -> Any:
        return sr.uniform(key, (64 * 600,)).mean()

    cost = compiled(mean, KEY).cost_analysis()
    assert cost["bytes accessed"] < 1000
    np.testing.assert_allclose(stax.jit(mean)(KEY), mean(KEY), rtol=1e-6)


def test_what_several_kernels_read_is_drawn_once() -> None:
    def twice(key: Any) -> Any:
        draws = sr.bits(key, (40, 50))
        return draws.sum(0), draws.sum(1), draws[::-1]

    kernels = compiled(twice, KEY).lowered.as_text("kernels")
    assert kernels.count("466688986") == 1  # the parity word of the cipher
    for found, wanted in zip(stax.jit(twice)(KEY), twice(KEY), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    "key_of",
    [
        lambda k: k,
        lambda k: sr.split(k, (2, 3))[1, 2],
        lambda k: sr.fold_in(k, 3),
        lambda k: sr.split(sr.key_data(k), 4)[2],
        lambda k: sr.split(k, 3)[snp.array(2)],
    ],
    ids=["input", "split", "fold_in", "words", "gather"],
)
def test_short_rows_run_along_memory(key_of: Callable[[Any], Any]) -> None:
    draw = stax.jit(lambda k: sr.uniform(key_of(k), (2000, 3)) * 2)
    text = draw.lower(KEY).as_text("kernels")
    assert "vector(3)" not in text.split("def ")[-1]
    np.testing.assert_array_equal(draw(KEY), sr.uniform(key_of(KEY), (2000, 3)) * 2)


def test_symbolic_lengths() -> None:
    draw = stax.jit(lambda k, x: sr.bits(k, (x.shape[0], 2)), dynamic={"x": {0: "n"}})
    for n in (2, 7, 300):
        np.testing.assert_array_equal(draw(KEY, snp.ones(n)), sr.bits(KEY, (n, 2)))
    assert len(draw.variants()) == 1
