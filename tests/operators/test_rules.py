"""Every rule of every op, on the samples: each rule is compared with what defines it.

Types are compared with evaluation, tangents with difference quotients, transposes with the
identity <A t, c> = <t, A' c>, batches with a loop, lowered code with evaluation; and the rules of
the results again, to second order.  What happens at single points is in the tests of the modules.
"""

import contextlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stax.config import config
from stax.errors import MissingRule
from stax.graph import Graph
from stax.interpreters.batch import batch
from stax.interpreters.evaluate import evaluate
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.interpreters.transpose import transpose
from stax.op import Batch, Op
from stax.operators.elementwise import ROWS
from stax.types import is_inexact
from tests.operators import matrix_samples
from tests.operators.calculus import traced
from tests.operators.point_kernel import run_rule
from tests.operators.samples import REASONS, SAMPLES, Sample

ALL = [sample for samples in SAMPLES.values() for sample in samples]
WITH_INPUTS = [s for s in ALL if s.arguments(np.random.default_rng(0))]
DIFFERENTIABLE = [s for s in ALL if s.differentiable]
SIZE = 3
STEP = 1e-6


def every(samples: Sequence[Sample]) -> Any:
    return pytest.mark.parametrize("sample", samples, ids=[s.name for s in samples])


@pytest.fixture(autouse=True)
def _wide() -> Any:
    with config.override(enable_x64=True):
        yield


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def flags_of(sample: Sample, count: int) -> list[bool]:
    return [i in sample.differentiable for i in range(count)]


def directions(arrays: Sequence[np.ndarray], flags: Sequence[bool], rng: Any) -> list[np.ndarray]:
    return [drawn(x.shape, x.dtype, rng) for x, f in zip(arrays, flags, strict=True) if f]


def drawn(shape: Any, dtype: Any, rng: Any) -> np.ndarray:
    """Return normal values of a floating or complex type."""
    values = rng.normal(size=shape)
    return (values + 1j * rng.normal(size=shape) if dtype.kind == "c" else values).astype(dtype)


def moved(
    arrays: Sequence[np.ndarray], flags: Sequence[bool], ways: Sequence[np.ndarray], step: float
) -> list[np.ndarray]:
    """Return the arguments moved by `step` along the given directions."""
    found = iter(ways)
    return [x + step * next(found) if f else x for x, f in zip(arrays, flags, strict=True)]


def slope(graph: Graph, arrays: Any, flags: Any, ways: Any) -> list[np.ndarray]:
    """Return the difference quotients of the outputs of `graph`."""
    above = evaluate(graph, moved(arrays, flags, ways, STEP))
    below = evaluate(graph, moved(arrays, flags, ways, -STEP))
    wide = [np.result_type(a, float) for a in above]
    return [
        (a.astype(w) - b.astype(w)) / (2 * STEP) for a, b, w in zip(above, below, wide, strict=True)
    ]


def assert_near(actual: Any, expected: Any, tolerance: float) -> None:
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def sampled_jvp(sample: Sample, arrays: Any) -> tuple[Graph, list[bool], list[bool]]:
    """Return the pushforward, which inputs have tangents, and which outputs have."""
    flags = flags_of(sample, len(arrays))
    pushed, has_tangent = jvp(traced(sample.function, arrays), flags)
    return pushed, flags, has_tangent


@every(ALL)
def test_type_is_that_of_the_value(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    graph = traced(sample.function, arrays)
    for type_, value in zip(graph.output_types, evaluate(graph, arrays), strict=True):
        assert (type_.dtype, type_.shape) == (value.dtype, value.shape)


@every(ALL)
def test_strided_operands(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    graph = traced(sample.function, arrays)
    strided = [np.flip(np.flip(x).copy()) if x.ndim else x for x in arrays]
    # NumPy's own functions differ in the last bit between contiguous and strided arrays.
    assert_near(evaluate(graph, strided), evaluate(graph, arrays), 1e-14)


@every(DIFFERENTIABLE)
def test_jvp_is_the_difference_quotient(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    pushed, flags, has_tangent = sampled_jvp(sample, arrays)
    ways = directions(arrays, flags, rng)
    tangents = evaluate(pushed, [*arrays, *ways])[len(has_tangent) :]
    slopes = slope(traced(sample.function, arrays), arrays, flags, ways)
    expected = [s for s, has in zip(slopes, has_tangent, strict=True) if has]
    assert_near(tangents, expected, max(sample.tolerance, 1e-5) * 10)


@every(WITH_INPUTS)
def test_no_tangent_where_there_is_no_derivative(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    graph = traced(sample.function, arrays)
    flags = [is_inexact(x.dtype) and i not in sample.differentiable for i, x in enumerate(arrays)]
    with contextlib.suppress(MissingRule):  # a derivative that is refused is none either
        _, has_tangent = jvp(graph, flags)
        assert not any(has_tangent)


@every(DIFFERENTIABLE)
def test_transpose_is_the_adjoint(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    assert_adjoint(traced(sample.function, arrays), arrays, flags_of(sample, len(arrays)), rng)


def paired(ct: np.ndarray, t: np.ndarray) -> Any:
    """Return what a cotangent makes of a tangent; of complex ones, the real part, unconjugated."""
    return np.sum(ct * t).real


def assert_adjoint(graph: Graph, arrays: Any, flags: Any, rng: Any) -> None:
    """Check the pullback of `graph` against its pushforward."""
    linearized = linearize(graph, flags)
    outs = evaluate(linearized.primal, arrays)
    residuals = outs[len(graph.outputs) :]
    ways = directions(arrays, flags, rng)
    pushed = evaluate(linearized.linear, [*residuals, *ways])
    cts = [drawn(t.shape, t.dtype, rng) for t in pushed]
    linear = [False] * len(residuals) + [True] * len(ways)
    back, found = transpose(linearized.linear, linear)
    pulled = iter(evaluate(back, [*residuals, *cts]))
    left = sum(paired(c, t) for c, t in zip(cts, pushed, strict=True))
    right = sum(paired(next(pulled), t) for t, f in zip(ways, found, strict=True) if f)
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


@every(DIFFERENTIABLE)
def test_second_derivatives(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    pushed, flags, _ = sampled_jvp(sample, arrays)
    ways, others = directions(arrays, flags, rng), directions(arrays, flags, rng)
    both, both_flags = [*arrays, *ways], flags + [False] * len(ways)
    twice, has_second = jvp(pushed, both_flags)
    seconds = evaluate(twice, [*both, *others])[len(pushed.outputs) :]
    slopes = slope(pushed, both, both_flags, others)
    expected = [s for s, has in zip(slopes, has_second, strict=True) if has]
    assert_near(seconds, expected, max(sample.tolerance, 1e-5) * 100)
    for s, has in zip(slopes, has_second, strict=True):
        assert has or np.allclose(s, 0, atol=1e-4)
    assert_adjoint(pushed, both, both_flags, rng)


@every(WITH_INPUTS)
def test_batch_is_a_loop(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    graph = traced(sample.function, arrays)
    for flags in itertools.product((False, True), repeat=len(arrays)):
        if any(flags):
            draws = [sample.arguments(rng) for _ in range(SIZE)]
            assert_batched(graph, draws, flags, 1e-12)


@every(DIFFERENTIABLE)
def test_batched_derivatives_are_a_loop(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    graph, flags, _ = sampled_jvp(sample, arrays)
    draws = []
    for _ in range(SIZE):
        draw = sample.arguments(rng)
        draws.append([*draw, *directions(draw, flags, rng)])
    assert_batched(graph, draws, [True] * len(graph.inputs), sample.tolerance)


def assert_batched(graph: Graph, draws: Any, flags: Any, tolerance: float) -> None:
    """Compare a batched graph with a loop over draws of its arguments."""
    mapped, marks = batch(graph, Batch(SIZE), flags)
    columns = list(zip(*draws, strict=True))
    stacked = [np.stack(c) if f else c[0] for c, f in zip(columns, flags, strict=True)]
    found = evaluate(mapped, stacked)
    for i in range(SIZE):
        one = [c[i] if f else c[0] for c, f in zip(columns, flags, strict=True)]
        got = [y[i] if m else y for y, m in zip(found, marks, strict=True)]
        assert_near(got, evaluate(graph, one), tolerance)


LOWERED_ELSEWHERE = {"sort", "top_k", "cumsum", "cumprod", "cummax", "cummin", "scatter"}
LOWERED_ELSEWHERE |= {"convolution"}  # as a product
LOWERED_ELSEWHERE |= {row[0] for row in matrix_samples.rows()}


@every([s for name, samples in SAMPLES.items() if name not in LOWERED_ELSEWHERE for s in samples])
def test_lowered_elements_are_the_values(sample: Sample, rng: Any) -> None:
    arrays = sample.arguments(rng)
    graph = traced(sample.function, arrays)
    values = dict(zip(graph.inputs, arrays, strict=True))
    for node in graph.nodes:
        operands = [values[x] for x in node.inputs]
        values[node] = np.asarray(node.op.evaluate(*operands))
        # Functions of NumPy may differ in the last bit between a scalar and an array.
        np.testing.assert_allclose(run_rule(node, operands), values[node], rtol=1e-14, atol=1e-14)


def ops_below(op: type[Op]) -> set[type[Op]]:
    """Return the classes of ops that derive from `op`, families included."""
    found = set(op.__subclasses__())
    return found.union(*map(ops_below, found))


def test_every_op_has_samples_or_a_reason() -> None:
    # Ops that hold graphs are as many as there are graphs; they have tests of their own.
    # Other test modules define ops as well; the library's are meant.
    library = [op for op in ops_below(Op) if op.__module__.startswith("stax.")]
    applied = [op for op in library if isinstance(op.__dict__.get("name"), str)]
    names = {op.name for op in applied if not op.holds_graph} | set(ROWS)
    without = sorted(names - set(SAMPLES) - set(REASONS))
    assert not without, f"add samples (or a reason) for {without}"
    assert not set(REASONS) & set(SAMPLES)
