"""Loops outside of jit: which are compiled, when they are found again, and what they compute."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.config import config
from stax.errors import FallbackWarning, LoweringError
from stax.interpreters.evaluate import evaluate
from stax.runtime import loops
from stax.trace import bind
from tests.effects import Unordered

X = np.linspace(0.1, 1, 5, dtype=np.float32)
STEPS = 1000


@pytest.fixture
def compiled(monkeypatch: Any) -> Iterator[list[Any]]:
    """The graphs that are compiled outside of jit, none of them known before."""
    graphs: list[Any] = []
    compile_graph = loops.compile_graph

    def counting(graph: Any) -> Any:
        graphs.append(graph)
        return compile_graph(graph)

    loops.clear()
    monkeypatch.setattr(loops, "compile_graph", counting)
    yield graphs
    loops.clear()


def counted(x: Any, slope: float = 0.5) -> Any:
    """Run a long loop; its operations are exact, so every backend has the same bits."""
    return lax.fori_loop(0, STEPS, lambda i, c: c * slope + x / (i + 3), x)


def searched(x: Any, bound: float = 1e6) -> Any:
    return lax.while_loop(lambda c: c[0] < bound, lambda c: (c[0] + 1, c[1] * x + 1), (0.0, x))[1]


def bits_of_evaluator(f: Any, *args: Any) -> Any:
    graph = stax.make_graph(f)(*args)
    return evaluate(graph, [np.asarray(x) for x in args])[0]


def test_draws_of_many_bits_are_programs(compiled: list[Any]) -> None:
    keys = stax.random.split(stax.random.key(1), 2)
    for shape, count in (((100, 100), 0), ((300, 300), 1), ((300, 300), 1)):
        words = np.asarray(stax.random.key_data(keys[0]))
        drawn = stax.random.bits(stax.random.wrap_key_data(words), shape)
        want = bits_of_evaluator(
            lambda k, shape=shape: stax.random.bits(stax.random.wrap_key_data(k), shape), words
        )
        np.testing.assert_array_equal(drawn, want)
        assert len(compiled) == count
    with stax.disable_jit():
        assert stax.vmap(lambda k: stax.random.bits(k, (200, 200)))(keys).shape == (2, 200, 200)
        stax.random.bits(keys[0], (400, 400))
        assert len(compiled) == 1


@pytest.mark.parametrize("f", [counted, lambda x: searched(x, 5000)])
def test_values_are_those_of_the_evaluator(compiled: list[Any], f: Any) -> None:
    np.testing.assert_array_equal(f(X), bits_of_evaluator(f, X))
    assert len(compiled) == 1


@pytest.mark.parametrize("f", [counted, lambda x: searched(x, 5000)])
def test_a_loop_is_compiled_once(compiled: list[Any], f: Any) -> None:
    for _ in range(3):
        f(X)
    assert len(compiled) == 1


def test_what_differs_is_compiled_by_itself(compiled: list[Any]) -> None:
    first, other = counted(X), counted(X, 0.25)
    np.testing.assert_array_equal(counted(X), first)
    assert len(compiled) == 2
    assert not np.array_equal(first, other)
    counted(X[:3])
    assert len(compiled) == 3
    with stax.enable_x64(True):
        counted(X)
    assert len(compiled) == 4


def test_zeros_of_both_signs_are_told_apart(compiled: list[Any]) -> None:
    def last(zero: float) -> Any:
        return lax.fori_loop(0, STEPS, lambda i, c: snp.where(c > 2, c, zero), snp.ones(2))

    assert [np.signbit(last(z)).all() for z in (0.0, -0.0)] == [False, True]
    assert len(compiled) == 2


def test_calls_inside_count_as_what_they_apply(compiled: list[Any]) -> None:
    def f(x: Any) -> Any:
        ruled = stax.custom_jvp(lambda c: c * 0.5 + 1)
        ruled.defjvps(lambda dot, out, c: dot * 0.5)
        step = stax.checkpoint(ruled)
        return lax.fori_loop(0, STEPS, lambda i, c: step(c), x)

    np.testing.assert_array_equal(f(X), f(X))
    assert len(compiled) == 1


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: stax.grad(lambda x: f(x).sum()),
        lambda f: stax.vmap(f),
        lambda f: lambda x: stax.jvp(f, (x,), (x,)),
        lambda f: lambda x: stax.vjp(f, x)[1](x),
        lambda f: stax.checkpoint(f),
        lambda f: lambda x: lax.cond(x[0] > 0, f, lambda v: v, x),
    ],
    ids=["grad", "vmap", "jvp", "vjp", "checkpoint", "cond"],
)
def test_loops_in_transforms_are_compiled(compiled: list[Any], transform: Any) -> None:
    ours = transform(counted)
    first = ours(X)
    count = len(compiled)
    assert count
    for a, b in zip(
        stax.tree_util.tree_leaves(ours(X)), stax.tree_util.tree_leaves(first), strict=True
    ):
        np.testing.assert_array_equal(a, b)
    assert len(compiled) == count
    for a, b in zip(
        stax.tree_util.tree_leaves(stax.jit(ours)(X)),
        stax.tree_util.tree_leaves(first),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=2e-6)


def test_a_value_asked_for_while_tracing_comes_from_a_program(compiled: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = counted(x)
        return (y if y[0] > 0 else x).sum()

    np.testing.assert_allclose(stax.grad(f)(X), stax.grad(lambda x: counted(x).sum())(X))
    assert compiled


def test_short_loops_are_evaluated(compiled: list[Any]) -> None:
    lax.scan(lambda c, a: (c * a, c), 1.0, X)
    searched(X, 10.0)
    lax.map(lambda a: lax.fori_loop(0, 3, lambda i, c: c * a, a), X)
    assert not compiled


def test_long_steps_are_compiled(compiled: list[Any]) -> None:
    lax.scan(lambda c, a: (c * a, None), snp.ones((1000, 1000)), X)
    searched(snp.ones((1000, 1000)), 1.0)
    assert len(compiled) == 2


def test_a_while_loop_goes_on_where_it_was_left(compiled: list[Any]) -> None:
    def counted_to(n: int) -> int:
        return int(lax.while_loop(lambda i: i < n, lambda i: i + 1, 0))

    for n in range(0, 400, 19):
        assert counted_to(n) == n
    assert compiled


def test_few_programs_are_kept(compiled: list[Any], monkeypatch: Any) -> None:
    monkeypatch.setattr(loops, "MOST_PROGRAMS", 2)
    for slope in (0.1, 0.2, 0.3, 0.2, 0.3, 0.1):
        counted(X, slope)
    assert len(compiled) == 4
    stax.clear_caches()
    counted(X, 0.1)
    assert len(compiled) == 5


def test_threads_compile_one_program(compiled: list[Any]) -> None:
    wanted, found = counted(X), []
    loops.clear()
    threads = [threading.Thread(target=lambda: found.append(counted(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and len(compiled) == 2
    assert all(np.array_equal(y, wanted) for y in found)


def noted(x: Any) -> Any:
    return lax.fori_loop(0, STEPS, lambda i, c: bind(Unordered("not compiled"), c * 0.5), x)


def test_what_cannot_be_compiled_is_evaluated_with_one_warning() -> None:
    with pytest.raises(LoweringError, match="unordered"):
        noted(X)
    with config.override(strict=False):
        with pytest.warns(FallbackWarning, match=r"scan outside of jit .* evaluator: .*unordered"):
            first = noted(X)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(noted(X), first)


# --- disable_jit ---


def test_python_runs_the_loops_under_disable_jit() -> None:
    seen: list[float] = []

    def step(c: Any, a: Any) -> Any:
        seen.append(float(a))
        return c + a, {"sum": c, "none": None}

    staged = lax.scan(lambda c, a: (c + a, {"sum": c, "none": None}), 0.0, X, reverse=True)
    with stax.disable_jit():
        last, ys = lax.scan(step, 0.0, X, reverse=True)
    assert seen == [float(a) for a in X[::-1]]
    np.testing.assert_array_equal(ys["sum"], staged[1]["sum"])
    np.testing.assert_array_equal(last, staged[0])
    assert ys["none"] is None


def test_python_runs_every_construct_under_disable_jit() -> None:
    seen: list[Any] = []

    def note(x: Any) -> Any:
        seen.append(x.item())
        return x

    with stax.disable_jit():
        assert lax.while_loop(lambda i: note(i) < 3, lambda i: i + 1, 0) == 3
        assert lax.fori_loop(0, 2, lambda i, c: c + note(snp.asarray(i)), 0) == 1
        assert (
            lax.cond(X[0] > 0, lambda x: note(x) * 2, lambda x: note(x) + 99, snp.float32(2)) == 4
        )
        assert lax.switch(7, [lambda: 0, lambda: 5]) == 5
        np.testing.assert_array_equal(lax.map(note, snp.arange(2)), [0, 1])
    assert seen == [0, 1, 2, 3, 0, 1, 2.0, 0, 1]


def test_derivatives_under_disable_jit() -> None:
    def f(x: Any) -> Any:
        y = lax.while_loop(lambda c: c[0] < 3, lambda c: c * 1.5, x)
        return lax.scan(lambda c, a: (c * a, None), y.sum(), x)[0]

    wanted = stax.jvp(f, (X,), (X,))
    with stax.disable_jit():
        found = stax.jvp(f, (X,), (X,))
        reverse = stax.grad(f)(X)  # the loop is unrolled by Python, so it has a reverse mode
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(snp.vdot(reverse, X), wanted[1], rtol=1e-5)


def test_what_has_no_value_is_staged_under_disable_jit() -> None:
    def f(x: Any) -> Any:
        y = lax.while_loop(lambda c: c < 3, lambda c: c * 1.5, x)
        return lax.cond(x > 0.5, lambda: y, lambda: -y)

    wanted = stax.vmap(f)(X)
    with stax.disable_jit():
        np.testing.assert_array_equal(stax.vmap(f)(X), wanted)
