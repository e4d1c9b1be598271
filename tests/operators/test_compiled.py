"""Every op compiled for the CPU, against the evaluator: values, derivatives, transposes, batches.

What the CPU cannot compile yet is skipped, with what the compiler says.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from stax.config import config
from stax.errors import LoweringError
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.interpreters.transpose import transpose
from stax.op import Batch
from stax.runtime.compiler import compile_graph
from tests.operators.calculus import traced
from tests.operators.samples import SAMPLES, Sample

ALL = [sample for samples in SAMPLES.values() for sample in samples]
SIZE = 3


def every(samples: Sequence[Sample]) -> Any:
    return pytest.mark.parametrize("sample", samples, ids=[s.name for s in samples])


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with config.override(enable_x64=True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def drawn(shape: Any, dtype: Any, rng: Any) -> np.ndarray:
    """Return normal values of a floating or complex type."""
    values = rng.normal(size=shape)
    return np.asarray(values + 1j * rng.normal(size=shape) if dtype.kind == "c" else values, dtype)


def assert_compiles(graph: Graph, arrays: Sequence[np.ndarray]) -> None:
    """Compare a compiled graph with its evaluation."""
    try:
        program = compile_graph(graph)
    except LoweringError as error:
        pytest.skip(error.rule)
    expected = evaluate(graph, arrays)
    for array, b in zip(program.run(list(arrays)), expected, strict=True):
        a = np.asarray(array)
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        # Functions such as exp, and the order of sums, differ in the last bits.
        np.testing.assert_allclose(a.astype(b.dtype), b, rtol=1e-11, atol=1e-11)


@every(ALL)
def test_values(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    assert_compiles(traced(sample.function, arrays), arrays)


@every([s for s in ALL if s.differentiable])
def test_derivatives(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    flags = [i in sample.differentiable for i in range(len(arrays))]
    ways = [drawn(x.shape, x.dtype, rng) for x, f in zip(arrays, flags, strict=True) if f]
    pushed, _ = jvp(traced(sample.function, arrays), flags)
    assert_compiles(pushed, [*arrays, *ways])


@every([s for s in ALL if s.differentiable])
def test_transposes(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    flags = [i in sample.differentiable for i in range(len(arrays))]
    graph = traced(sample.function, arrays)
    linearized = linearize(graph, flags)
    residuals = evaluate(linearized.primal, arrays)[len(graph.outputs) :]
    linear = linearized.linear
    back, _ = transpose(linear, [False] * len(residuals) + [True] * sum(flags))
    cts = [drawn(t.shape, t.dtype, rng) for t in linear.output_types]
    assert_compiles(back, [*residuals, *cts])


@every([s for s in ALL if s.arguments(np.random.default_rng(0))])
def test_batches(sample: Sample, rng: Any) -> None:
    draws = [sample.arguments(rng) for _ in range(SIZE)]
    graph = traced(sample.function, draws[0])
    mapped, _ = batch(graph, Batch(SIZE), [True] * len(graph.inputs))
    assert_compiles(mapped, [np.stack(column) for column in zip(*draws, strict=True)])
