"""Symbolic lengths of graphs, replaced where those are applied."""

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.extent import symbol, symbols_in
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.lengths import fitted, mentions, numbered, renewed, replaced
from stax.trace import Trace
from stax.types import ArrayType, float32
from stax.verify import verify

N = symbol("n")


def open_graph() -> Graph:
    """Return a graph of an array of open length, with that length in parameters and in a loop."""
    f = lambda x: lax.scan(lambda c, a: (c + x * snp.ones_like(x), c * a), x, x)[0]  # noqa: E731
    return stax.jit(f, dynamic={"x": {0: "n"}}).trace(np.ones(3, np.float32))


def recording_graph() -> Graph:
    return stax.make_graph(
        stax.grad(lambda x: lax.while_loop(lambda c: c < 9, lambda c: c * x, x))
    )(2.0)


@pytest.mark.parametrize("length", [0, 1, 5, symbol("m"), 2 * symbol("m") + 1])
def test_symbols_give_way_to_the_lengths_of_arguments(length: object) -> None:
    graph = open_graph()
    assert mentions(graph, ["n"])
    found = verify(fitted(graph, [ArrayType(float32, (length,))]))
    assert not mentions(found, ["n"])
    assert found.output_types[0].shape == (length,)


def test_a_graph_that_fits_is_itself() -> None:
    graph = open_graph()
    assert fitted(graph, graph.input_types) is graph
    assert replaced(graph, {}) is graph


def test_what_a_graph_is_applied_to_decides() -> None:
    graph = open_graph()
    x = np.arange(4, dtype=np.float32)
    (expected,) = evaluate(graph, [x])
    with Trace("outer", "test") as trace:
        (y,) = inline(graph, [trace.input(ArrayType(float32, (4,)))])
        outer = verify(trace.finish([y]))
    np.testing.assert_array_equal(evaluate(outer, [x])[0], expected)


def test_a_second_application_has_symbols_of_its_own() -> None:
    graph = recording_graph()
    (name,) = graph.opens
    assert renewed(graph, []) is graph
    again = renewed(graph, [name])
    assert len(again.opens) == 1
    assert name not in again.opens
    assert again.structural_hash == graph.structural_hash
    with Trace("outer", "test") as trace:
        x = trace.input(graph.input_types[0])
        outs = [y for _ in range(2) for y in inline(graph, [x])]
        outer = verify(trace.finish(outs))
    assert len(outer.opens) == 2


def test_numbers_do_not_depend_on_history() -> None:
    names = [numbered(recording_graph(), 3).opens for _ in range(2)]
    assert names[0] == names[1] == {"steps_3_"}


def test_replacing_in_an_extent() -> None:
    assert (N * N + 3).replaced({"n": 2}) == 7
    assert (N * 2 + 3).replaced({"m": 2}).terms == (N * 2 + 3).terms
    assert (N * 2).replaced({"n": symbol("m") + 1}).terms == (symbol("m") * 2 + 2).terms
    assert symbols_in(4) == ()
    assert symbols_in(N + symbol("m")) == ("m", "n")
