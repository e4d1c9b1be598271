"""What a step of a scan leaves for reverse mode: little, and the same derivatives bit for bit."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.control import Scan
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate

ROWS, COLUMNS, STEPS = 3, 4, 5
RNG = np.random.default_rng(0)
W = RNG.normal(scale=0.5, size=(COLUMNS, COLUMNS)).astype(np.float32)
START = RNG.normal(size=(ROWS, COLUMNS)).astype(np.float32)
XS = RNG.normal(size=(STEPS, ROWS, COLUMNS)).astype(np.float32)
ARGS = (W, START, XS)

Step = Callable[[Any, Any, Any], Any]
STEPS_OF: list[Step] = [
    lambda a, b, w: a + b,
    lambda a, b, w: a * b,
    lambda a, b, w: snp.tanh(a @ w),
    lambda a, b, w: snp.where(a > b, a, b * 0.5),
    lambda a, b, w: snp.sin(a) * snp.exp(-b * b),
    lambda a, b, w: a / (1 + b * b),
    lambda a, b, w: snp.maximum(a, 0) - b.mean(-1, keepdims=True),
    lambda a, b, w: a[:, ::-1] + snp.sqrt(1 + b * b),
    lambda a, b, w: stax.checkpoint(lambda c: snp.cos(c) * snp.tanh(c))(a),
    lambda a, b, w: stax.nn.softplus(a) * w[0],
]


def loss_of(steps: Sequence[tuple[int, int, int]], stacked: bool) -> Callable[..., Any]:
    """A scan whose step applies ops to values picked from those there are."""

    def loss(w: Any, start: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            values = [c, x]
            for kind, i, j in steps:
                a, b = values[i % len(values)], values[j % len(values)]
                values.append(STEPS_OF[kind % len(STEPS_OF)](a, b, w))
            return snp.tanh(values[-1]), values[-1] if stacked else None

        last, ys = lax.scan(body, start, xs)
        return last.sum() + (snp.sin(ys).sum() if stacked else 0)

    return loss


def gradient(loss: Callable[..., Any]) -> Graph:
    return stax.make_graph(stax.grad(loss, (0, 1, 2)))(*ARGS)


def stacked_bytes(graph: Graph) -> int:
    """Bytes that the forward loop of a gradient stacks, its results included."""
    op = next(n.op for n in graph.nodes if isinstance(n.op, Scan))
    return sum(t.dtype.itemsize * int(t.size) for t in op.body.output_types[op.carry :])


@settings(max_examples=40)
@given(st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=1, max_size=6), st.booleans())
def test_gradients_have_the_same_bits(steps: Any, stacked: bool) -> None:
    loss = loss_of(steps, stacked)
    found = gradient(loss)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scan, "_minimal", lambda self, cut: cut)
        plain = gradient(loss)
    assert stacked_bytes(found) <= stacked_bytes(plain)
    for a, b in zip(evaluate(found, ARGS), evaluate(plain, ARGS), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_result_that_is_stacked_anyway_is_read() -> None:
    def loss(w: Any, start: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            h = snp.tanh(h @ w + x)
            return h, h

        return (lax.scan(cell, start, xs)[1] ** 2).sum()

    assert stacked_bytes(gradient(loss)) == 2 * START.nbytes  # h, and the h before it


def test_masks_are_computed_again() -> None:
    def loss(w: Any, start: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            y = h @ w + x
            return snp.where(y > 0.5, y * y, y * 0.1), None

        return lax.scan(cell, start, xs)[0].sum()

    assert stacked_bytes(gradient(loss)) == 2 * START.nbytes  # h and y


def test_what_depends_on_xs_alone_is_computed_from_them() -> None:
    def loss(w: Any, start: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: (h * (x * 2 + 1), None), start, xs)[0].sum()

    assert stacked_bytes(gradient(loss)) == START.nbytes


def test_under_vmap_and_jit() -> None:
    loss = loss_of([(2, 0, 1), (3, 2, 1), (4, 3, 0)], True)
    lanes = np.stack([START, START * 0.5, -START])
    per_lane = stax.jit(stax.vmap(stax.grad(loss), (None, 0, None)))(W, lanes, XS)
    for i, lane in enumerate(lanes):
        wanted = stax.grad(loss)(W, lane, XS)
        np.testing.assert_allclose(per_lane[i], wanted, rtol=1e-4, atol=1e-5)
