"""jit inside and around other transforms, under exceptions, in threads, and its fallback."""

import functools
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.config import config
from stax.errors import (
    FallbackWarning,
    LoweringError,
    TracerBoolConversionError,
)
from stax.operators.elementwise import sin
from stax.trace import bind, current_trace
from tests.api.test_compiled import counted
from tests.effects import Unordered

X = np.asarray([1.0, 2.0, 3.0], np.float32)


def test_inlined_in_an_outer_trace() -> None:
    inner = stax.jit(lambda x: snp.sin(x) * 2)
    graph = stax.make_graph(lambda x: inner(x) + inner(x))(1.0)
    assert [n.op.name for n in graph.nodes if n.inputs] == ["sin", "mul", "add"]


def test_jit_in_every_transform() -> None:
    f = stax.jit(lambda x, w: snp.tanh(x * w).sum())
    g = lambda x, w: snp.tanh(x * w).sum()  # noqa: E731
    batch = np.stack([X, 2 * X])
    for make in (
        lambda f: stax.grad(f)(X, X),
        lambda f: stax.vmap(stax.grad(f), (0, None))(batch, X),
        lambda f: stax.jit(stax.vmap(stax.jit(stax.grad(f)), (0, None)))(batch, X),
        lambda f: stax.grad(lambda x: stax.vmap(f, (0, None))(batch, x).sum())(X),
        lambda f: stax.hessian(f)(X, X),
        lambda f: stax.jit(stax.grad(lambda x: stax.jit(stax.grad(f))(x, X).sum()))(X),
    ):
        np.testing.assert_allclose(make(f), make(g), rtol=2e-5, atol=1e-6)


def test_closed_over_traced_values_are_not_cached() -> None:
    def outer(x: Any) -> Any:
        inner = stax.jit(lambda y: y * x)
        return inner(2.0) + inner(3.0)

    assert float(stax.grad(outer)(1.0)) == 5
    assert float(stax.jit(stax.grad(outer))(1.0)) == 5
    np.testing.assert_array_equal(stax.vmap(outer)(X), 5 * X)


def test_recursion() -> None:
    @functools.partial(stax.jit, static_argnums=1)
    def power(x: Any, n: int) -> Any:
        return x if n == 1 else x * power(x, n - 1)

    assert float(power(2.0, 10)) == 1024
    assert float(stax.grad(power)(2.0, 5)) == 80


# --- exceptions, threads ---


def test_exceptions_leave_nothing_behind() -> None:
    fail = [True]

    @stax.jit
    def f(x: Any) -> Any:
        if fail[0]:
            raise KeyError("mine")
        return x + 1

    for _ in range(2):
        with pytest.raises(KeyError, match="mine"):
            f(X)
        assert current_trace() is None
        assert f.variants() == []
    fail[0] = False
    np.testing.assert_array_equal(f(X), X + 1)
    fail[0] = True
    np.testing.assert_array_equal(f(snp.asarray(X)), X + 1)


def test_exceptions_of_inner_functions() -> None:
    @stax.jit
    def inner(x: Any) -> Any:
        return x + 1 if x > 0 else x

    def outer(x: Any) -> Any:
        try:
            return inner(x)
        except TracerBoolConversionError:
            return x * 2

    np.testing.assert_array_equal(stax.jit(outer)(2.0), 4)
    assert current_trace() is None


def test_threads_call_one_function_at_once() -> None:
    f, calls = counted(lambda x, y: snp.sin(x) @ y)
    jitted, start = stax.jit(f), threading.Barrier(6)
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        start.wait()
        try:
            for size in (3, 40, 3, 40, 90):
                x = rng.normal(size=(size, size)).astype(np.float32)
                expected = np.sin(x) @ x
                np.testing.assert_allclose(
                    jitted(x, snp.asarray(x)), expected, rtol=1e-3, atol=1e-3
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []
    # No lock is held while a function is traced, so threads may trace one variant several times;
    # one of the graphs is kept and compiled.
    assert len(jitted.variants()) == 3
    assert 3 <= len(calls) <= 18


def test_a_function_that_calls_itself_in_another_thread_while_traced() -> None:
    """The lock of one function is not held while another thread waits for what it traces."""
    seen = []
    other = stax.jit(lambda x: x + 1)

    def f(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append(float(other(1.0))))
        thread.start()
        thread.join(timeout=20)
        return x

    stax.jit(f)(1.0)
    assert seen == [2.0]


# --- what does not compile ---


def key_of(x: Any) -> Any:
    return bind(Unordered("not compiled"), sin(x))


def test_strict_raises() -> None:
    assert config.strict
    with pytest.raises(LoweringError, match="unordered"):
        stax.jit(key_of)(X)


def test_fallback_warns_once_and_computes() -> None:
    with config.override(strict=False):
        jitted = stax.jit(key_of)
        with pytest.warns(
            FallbackWarning, match=r"key_of runs on the reference evaluator: .*unordered"
        ):
            out = jitted(X)
        np.testing.assert_allclose(out, np.sin(X), rtol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            jitted(X)
            jitted(snp.asarray(X))
