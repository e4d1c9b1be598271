"""Taylor mode, on the samples of every op: the series that nested forward mode gives on a curve."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stax.config import config
from stax.errors import MissingRule
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.interpreters.interpret import inline
from stax.interpreters.jet import jet
from stax.interpreters.jvp import jvp
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import add, convert, exp, like, mul, sin
from stax.operators.linalg import cholesky
from stax.operators.qr import qr_factors
from stax.trace import Trace
from stax.types import ArrayType, is_inexact
from tests.operators.calculus import traced
from tests.operators.samples import SAMPLES, Sample

DIFFERENTIABLE = [s for samples in SAMPLES.values() for s in samples if s.differentiable]
ORDER = 3


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with config.override(enable_x64=True):
        yield


def along_curve(function: Any, arrays: Sequence[np.ndarray], flags: Sequence[bool]) -> Graph:
    """The graph of `function` along polynomial curves: of the place on them, the arguments, and
    ORDER coefficients of each that moves."""
    with Trace("curve", "test") as trace:
        place = trace.input(ArrayType(np.dtype("float64"), ()), "s")
        xs = [trace.input(ArrayType(x.dtype, x.shape)) for x in arrays]
        for i, f in enumerate(flags):
            power = place
            for _ in range(ORDER if f else 0):
                t = xs[i].type
                wide = broadcast_in_dim(convert(power, t.dtype), t.shape, ())
                xs[i] = add(xs[i], mul(trace.input(t), wide))
                power = mul(power, place)
        out = function(*xs)
        return trace.finish(out if isinstance(out, tuple) else (out,))


def derivative(graph: Graph) -> Graph:
    """The derivative of the outputs that have one in the first input, zeros where there is none."""
    wanted = [is_inexact(t.dtype) for t in graph.output_types]
    pushed, _ = jvp(graph, [True] + [False] * (len(graph.inputs) - 1), wanted)
    with Trace("derivative", "test") as trace:
        xs = [trace.input(x.type, x.label) for x in graph.inputs]
        return trace.finish(inline(pushed, [*xs, like(xs[0], 1)])[len(wanted) :])


def expected_series(sample: Sample, arrays: Any, flags: Any, terms: Any) -> list[list[Any]]:
    """The coefficients of each output that has a derivative, by nested forward mode."""
    graph = along_curve(sample.function, arrays, flags)
    found = []
    for k in range(1, ORDER + 1):
        graph = derivative(graph)
        values = evaluate(graph, [np.array(0.0), *arrays, *terms])
        found.append([v / math.factorial(k) for v in values])
    return [list(column) for column in zip(*found, strict=True)]


def coefficients(arrays: Any, flags: Any) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    found = []
    for x in [x for x, f in zip(arrays, flags, strict=True) if f for _ in range(ORDER)]:
        values = 0.3 * rng.normal(size=x.shape)
        if x.dtype.kind == "c":
            values = values + 0.3j * rng.normal(size=x.shape)
        found.append(np.asarray(values, x.dtype))
    return found


@pytest.mark.parametrize("sample", DIFFERENTIABLE, ids=[s.name for s in DIFFERENTIABLE])
def test_series_of_every_op(sample: Sample) -> None:
    arrays = sample.arguments(np.random.default_rng(0))
    flags = [i in sample.differentiable for i in range(len(arrays))]
    terms = coefficients(arrays, flags)
    graph, moved = jet(traced(sample.function, arrays), flags, ORDER)
    values = evaluate(graph, [*arrays, *terms])
    series = iter(values[len(moved) :])
    inexact = [is_inexact(t.dtype) for t in graph.output_types[: len(moved)]]
    right = iter(expected_series(sample, arrays, flags, terms))
    for m, wanted in zip(moved, inexact, strict=True):
        assert wanted or not m
        for expected in next(right) if wanted else ():
            actual = next(series) if m else np.zeros_like(expected)
            scale = max(1.0, np.abs(expected).max(initial=0))
            np.testing.assert_allclose(actual, expected, 1e-6, 1e-9 * scale)


def test_values_are_those_of_the_graph() -> None:
    x = np.linspace(0.1, 1, 5)
    graph, _ = jet(traced(lambda x: exp(sin(x)), [x]), [True], 2)
    (value, *_) = evaluate(graph, [x, x, x])
    np.testing.assert_array_equal(value, evaluate(traced(lambda x: exp(sin(x)), [x]), [x])[0])


@pytest.mark.parametrize(("function", "limit"), [(sin, 160), (exp, 90), (cholesky, 700)])
def test_the_size_grows_with_the_square_of_the_order(function: Any, limit: int) -> None:
    graph, _ = jet(traced(function, [np.eye(3)]), [True], 8)
    assert len(graph.nodes) < limit


def test_sine_and_cosine_are_computed_once() -> None:
    graph, _ = jet(traced(sin, [np.ones(3)]), [True], 5)
    assert [n.op.name for n in graph.nodes if n.op.name in ("sin", "cos")] == ["sin", "cos"]


def test_a_linear_op_maps_each_coefficient_alone() -> None:
    graph, _ = jet(traced(lambda x: mul(x, like(x, 3)), [np.ones(3)]), [True], 4)
    assert [n.op.name for n in graph.nodes] == ["constant", *["mul"] * 5]


def test_a_long_graph_does_not_recur() -> None:
    def chain(x: Any) -> Any:
        for _ in range(1000):
            x = sin(x)
        return x

    graph, _ = jet(traced(chain, [np.ones(())]), [True], 2)
    assert np.isfinite(evaluate(graph, [np.ones(())] * 3)).all()


def test_an_op_without_a_derivative_is_named() -> None:
    graph = traced(lambda a: qr_factors(a)[0], [np.eye(3)])
    with pytest.raises(MissingRule, match="geqrf has no series"):
        jet(graph, [True], 2)
