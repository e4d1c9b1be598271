"""Every pass is linear and none recurses: 100,000 ops are traced, transformed and evaluated."""

import time
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.interpreters.evaluate import evaluate
from stax.interpreters.simplify import simplify
from stax.printer import to_text
from stax.verify import verify


def chain(count: int) -> Any:
    def f(x: Any) -> Any:
        for _ in range(count // 3):
            x = (snp.sin(x) + x) * 0.5
        return x

    return f


def seconds(count: int) -> float:
    """Return the time that everything takes for `count` ops."""
    start, f = time.perf_counter(), chain(count)
    gradient = stax.make_graph(stax.grad(f))(1.0)
    assert len(gradient.nodes) > count
    verify(gradient)
    assert len(simplify(gradient).nodes) == len(gradient.nodes)
    assert to_text(gradient).count("\n") > count
    assert evaluate(gradient, [np.float32(1)])[0] < 1
    assert isinstance(gradient.structural_hash, int)
    assert stax.vmap(f)(np.ones(2, np.float32)).shape == (2,)
    _, tangent = stax.jvp(f, (1.0,), (1.0,))
    _, pull = stax.vjp(f, 1.0)
    np.testing.assert_allclose(pull(1.0)[0], tangent, rtol=1e-3)
    return time.perf_counter() - start


def test_no_recursion() -> None:
    assert seconds(6_000) < 60


@pytest.mark.slow
def test_a_hundred_thousand_ops() -> None:
    """About 40 s on one core; four times the ops take about four times as long."""
    short = seconds(25_000)
    assert seconds(100_000) < 8 * short
