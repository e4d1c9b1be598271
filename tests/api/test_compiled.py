"""jit: variants and what they depend on, static and donated arguments, threads, exceptions."""

import functools
import gc
import inspect
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.config import config
from stax.errors import (
    ArgumentError,
    ArgumentValueError,
    DeletedArrayError,
    FallbackWarning,
    LoweringError,
    TracerBoolConversionError,
)
from stax.operators.elementwise import sin
from stax.trace import bind, current_trace
from tests.effects import Unordered

X = np.asarray([1.0, 2.0, 3.0], np.float32)
TRACES: list[str] = []


@stax.jit
def module_level(x: Any, y: Any = 2.0) -> Any:
    """A function that can be pickled."""
    return x * y


def square(x: Any) -> Any:
    return x * x


def counted(f: Callable[..., Any]) -> tuple[Callable[..., Any], list[int]]:
    """Return a function that notes each time it is traced."""
    calls: list[int] = []

    @functools.wraps(f)
    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return f(*args, **kwargs)

    return counting, calls


# --- variants ---


def test_one_variant_per_types_and_structure() -> None:
    f, calls = counted(lambda x: stax.tree.map(lambda v: v * 2, x))
    jitted = stax.jit(f)
    for x in (X, snp.asarray(X), X[:2], X[:2], {"a": X}, {"a": X}, (X,), X.astype(np.int32)):
        jitted(x)
    assert len(calls) == len(jitted.variants()) == 5
    assert [repr(v) for v in jitted.variants()][:2] == [
        "<variant function(f32[3])>",
        "<variant function(f32[2])>",
    ]


def test_python_numbers_are_arguments() -> None:
    f, calls = counted(lambda x, k: x * k)
    jitted = stax.jit(f)
    assert [float(jitted(2.0, float(k))) for k in range(20)] == [2.0 * k for k in range(20)]
    assert len(calls) == 1
    assert jitted(2.0, 3).weak_type
    assert len(calls) == 2  # an int is another type
    assert jitted(snp.float32(2.0), 3.0).dtype == np.float32
    assert len(jitted.variants()) == 3  # and so is something strong


def test_numpy_scalars_and_lists_of_numbers() -> None:
    jitted = stax.jit(lambda x: x)
    assert jitted(np.float64(1)).dtype == np.float32
    assert jitted(np.int8(1)).dtype == np.int8
    assert jitted(True).dtype == bool
    assert [float(v) for v in jitted([1.0, 2.0])] == [1, 2]


def test_clear_cache() -> None:
    f, calls = counted(lambda x: x + 1)
    jitted = stax.jit(f)
    x = snp.asarray(X)
    for _ in range(3):
        jitted(x)
    jitted.clear_cache()
    assert jitted.variants() == []
    jitted(x)
    assert len(calls) == 2


def test_the_configuration_is_in_the_key() -> None:
    jitted = stax.jit(lambda x: x * 2)
    assert jitted(np.float64(1)).dtype == np.float32
    with stax.enable_x64():
        assert jitted(np.float64(1)).dtype == np.float64
    assert jitted(np.float64(1)).dtype == np.float32
    assert len(jitted.variants()) == 2


def test_closed_over_arrays_are_hidden_arguments() -> None:
    w = snp.arange(100_000.0)
    jitted = stax.jit(lambda x: x + w)
    lowered = jitted.lower(snp.ones(()))
    assert len(lowered.graph.inputs) == 2
    assert len(lowered.as_text("llvm")) < 100_000
    for x in (snp.float32(1), snp.float32(2), 3.0):
        np.testing.assert_array_equal(jitted(x), np.arange(100_000) + np.float32(x))


def test_values_do_not_outlive_the_function() -> None:
    def run() -> weakref.ref[Any]:
        w = snp.arange(3.0)
        stax.jit(lambda x: x + w)(X)
        return weakref.ref(w)

    ref = run()
    gc.collect()
    assert ref() is None


# --- calls ---


def test_keywords_and_defaults() -> None:
    f, calls = counted(lambda x, y=3.0, *, z=1.0: x * y + z)
    jitted = stax.jit(f)
    assert float(jitted(2.0)) == 7
    assert float(jitted(2.0, y=4.0)) == 9
    assert float(jitted(2.0, 4.0, z=0.0)) == 8
    assert float(jitted(x=2.0, y=5.0)) == 11
    assert len(calls) == 4
    with pytest.raises(TypeError):
        jitted()
    with pytest.raises(TypeError):
        jitted(1.0, unknown=2.0)


def test_methods() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

        @stax.jit
        def of_array(self: Any, x: Any) -> Any:
            return self * x

        @functools.partial(stax.jit, static_argnums=0)
        def apply(self, x: Any) -> Any:
            return x * self.factor

        @staticmethod
        @stax.jit
        def twice(x: Any) -> Any:
            return x * 2

    assert float(Scale(3.0).apply(2.0)) == 6
    assert float(Scale(4.0).apply(2.0)) == 8
    assert float(Scale.twice(2.0)) == float(Scale(1.0).twice(2.0)) == 4
    assert float(Scale.of_array(2.0, 3.0)) == 6
    bound = stax.jit(Scale(5.0).apply)
    assert float(bound(2.0)) == 10


def test_partials_and_callables() -> None:
    class Add:
        def __call__(self, x: Any) -> Any:
            return x + 1

    assert float(stax.jit(Add())(1.0)) == 2
    assert float(stax.jit(functools.partial(lambda a, b: a - b, 3.0))(1.0)) == 2
    assert float(stax.jit(functools.partial(lambda a, b: a - b, b=3.0))(1.0)) == -2
    assert float(stax.jit(snp.sin)(0.0)) == 0
    with pytest.raises(ArgumentError, match="3 is not callable"):
        stax.jit(3)


def test_decorator_with_options() -> None:
    @stax.jit(static_argnames="n")
    def power(x: Any, n: int) -> Any:
        return x**n

    assert float(power(2.0, n=3)) == 8


def test_what_is_kept_of_the_function() -> None:
    assert module_level.__name__ == "module_level"
    assert module_level.__doc__ == "A function that can be pickled."
    assert list(inspect.signature(module_level).parameters) == ["x", "y"]
    assert repr(module_level) == "<jitted module_level>"
    assert callable(module_level.__wrapped__)
    assert module_level.__wrapped__(2.0, 3.0) == 6.0


def test_pickle() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    again = pickle.loads(pickle.dumps(stax.jit(square, donate_argnums=0)))
    assert float(again(3.0)) == 9
    assert again._specializer.options.donate_argnums == (0,)


def test_results_of_all_structures() -> None:
    jitted = stax.jit(lambda x: {"a": (x, x), "b": [None, 2], "c": ()})
    out = jitted(X)
    assert out["b"][0] is None
    assert out["c"] == ()
    assert int(out["b"][1]) == 2
    assert stax.jit(lambda: ())() == ()
    assert stax.jit(lambda x: None)(X) is None
    assert int(stax.jit(lambda: 3)()) == 3


def test_arguments_that_are_results() -> None:
    x = snp.asarray(X)
    a, b = stax.jit(lambda x: (x, x))(x)
    for y in (a, b):
        np.testing.assert_array_equal(y, X)
        assert y is not x


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError, match=r"jit: argument .* is not an array or a number, but"):
        stax.jit(lambda x: x)("text")
    with pytest.raises(ArgumentError):
        stax.jit(lambda x: x)(object())


# --- static arguments ---


@pytest.mark.parametrize(
    "options",
    [
        {"static_argnums": 1},
        {"static_argnums": (1,)},
        {"static_argnums": -1},
        {"static_argnames": "n"},
        {"static_argnames": ["n", "absent"]},
    ],
)
def test_static_arguments(options: Any) -> None:
    f, calls = counted(lambda x, n: x * len(range(n)))
    jitted = stax.jit(f, **options)
    for n in (2, 3, 2, 3):
        assert float(jitted(2.0, n)) == 2 * n
    assert len(calls) == 2
    if options != {"static_argnums": -1}:
        assert float(jitted(2.0, n=2)) == 4
        assert float(jitted(x=2.0, n=3)) == 6


def test_static_arguments_in_any_place() -> None:
    f = lambda a, b, c, d: (a, b * 2, c, d * 3)  # noqa: E731
    jitted = stax.jit(lambda *args: f(*args)[1::2], static_argnums=(0, 2))
    assert [float(v) for v in jitted("x", 1.0, None, 2.0)] == [2, 6]


def test_static_values_are_told_apart_by_type() -> None:
    jitted = stax.jit(lambda x, k: x + (10 if k is True else k), static_argnums=1)
    assert [float(jitted(0.0, k)) for k in (1, True, 1.0)] == [1, 10, 1]
    assert len(jitted.variants()) == 3


def test_static_arguments_must_be_hashable() -> None:
    with pytest.raises(ArgumentValueError, match=r"static argument k of function is not hashable"):
        stax.jit(lambda x, k: x, static_argnums=1)(1.0, [1])
    with pytest.raises(ArgumentValueError, match="static argument k"):
        stax.jit(lambda x, k: x, static_argnames="k")(1.0, k={})


# --- donation ---


@pytest.mark.parametrize("options", [{"donate_argnums": 0}, {"donate_argnames": "s"}])
def test_donated_arguments_are_deleted(options: Any) -> None:
    jitted = stax.jit(lambda s, x: {"a": s["a"] + x}, **options)
    for _ in range(3):
        state, x = {"a": snp.asarray(X)}, snp.asarray(X)
        out = jitted(state, x)
        np.testing.assert_array_equal(out["a"], 2 * X)
        assert state["a"].is_deleted()
        assert not x.is_deleted()
        assert not out["a"].is_deleted()
        with pytest.raises(DeletedArrayError):
            state["a"] + 1
        with pytest.raises(DeletedArrayError):
            jitted(state, x)


def test_donation_of_a_keyword() -> None:
    s = snp.asarray(X)
    stax.jit(lambda x, s: x + s, donate_argnames=("s",))(X, s=s)
    assert s.is_deleted()


def test_nothing_is_donated_while_tracing() -> None:
    s = snp.asarray(X)
    inner = stax.jit(lambda s: s * 2, donate_argnums=0)
    stax.jit(lambda x: inner(s) + x)(X)
    assert not s.is_deleted()
    stax.grad(lambda x: inner(x).sum())(s)
    assert not s.is_deleted()


# --- nesting ---


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
    assert len(calls) == len(jitted.variants()) == 3


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


# --- open lengths ---


def softmax(x: Any) -> Any:
    e = snp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_one_variant_for_all_lengths() -> None:
    f, calls = counted(lambda x, k: snp.tanh(x) * k)
    jitted = stax.jit(f, dynamic={"x": {0: "n"}})
    for n in (2, 3, 17, 1000, 100_000):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        np.testing.assert_allclose(jitted(x, 2.0), np.tanh(x) * 2, rtol=1e-6)
    assert len(calls) == 1
    for n in (0, 1):  # specialised
        assert jitted(np.ones(n, np.float32), 2.0).shape == (n,)
    assert len(jitted.variants()) == 3


@pytest.mark.parametrize("axes", [{0: "n"}, {1: "m"}, {0: "n", 1: "m"}])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: snp.sum(x * x, 1),
        lambda x: snp.sum(x, 0),
        lambda x: snp.max(x),
        lambda x: x - snp.mean(x, 0),
        softmax,
    ],
    ids=["rows", "columns", "all", "mean", "softmax"],
)
def test_reductions_of_open_lengths(function: Any, axes: Any) -> None:
    jitted = stax.jit(function, dynamic={"x": axes})
    rng = np.random.default_rng(0)
    for rows, columns in ((2, 3), (5, 7), (30, 100)):
        shape = (rows if 0 in axes else 4, columns if 1 in axes else 9)
        x = rng.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(jitted(x), function(snp.asarray(x)), rtol=1e-5, atol=1e-5)
    assert len(jitted.variants()) == 1


def test_gradients_and_maps_of_open_lengths() -> None:
    grad = stax.jit(stax.grad(lambda x: (snp.sin(x) ** 2).sum()), dynamic={"x": {0: "n"}})
    mapped = stax.jit(stax.vmap(lambda x: (x * x).sum()), dynamic={"x": {0: "n"}})
    for n in (2, 5, 300):
        x = np.linspace(0, 1, n, dtype=np.float32)
        np.testing.assert_allclose(grad(x), np.sin(2 * x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mapped(np.stack([x, x], 1)), 2 * x * x, rtol=1e-6)
    assert len(grad.variants()) == len(mapped.variants()) == 1


def test_axes_that_share_a_symbol_must_agree() -> None:
    jitted = stax.jit(lambda x, y: x + y, dynamic={"x": {0: "n"}, "y": {0: "n"}})
    assert jitted(X, X).shape == (3,)
    with pytest.raises(ArgumentValueError, match="dynamic length n is 3 and 2 in one call"):
        jitted(X, X[:2])


def test_an_open_length_is_a_number_in_arithmetic() -> None:
    jitted = stax.jit(lambda x: x / x.shape[0] + x.size, dynamic={"x": {0: "n"}})
    np.testing.assert_allclose(jitted(X), X / 3 + 3, rtol=1e-6)
    np.testing.assert_allclose(jitted(X[:2]), X[:2] / 2 + 2, rtol=1e-6)


def test_symbols_in_nested_arguments() -> None:
    jitted = stax.jit(
        lambda p: p["a"] * p["b"][0], dynamic={"p['a']": {0: "n"}, "p['b'][0]": {0: "n"}}
    )
    for n in (2, 3):
        np.testing.assert_array_equal(jitted({"a": X[:n], "b": [X[:n]]}), X[:n] ** 2)
    assert len(jitted.variants()) == 1


@pytest.mark.parametrize(
    ("function", "name"),
    [(snp.sort, "sort"), (snp.cumsum, "cumsum")],
)
def test_other_ops_of_open_lengths_raise(function: Any, name: str) -> None:
    x = np.ones((3, 3), np.float32)
    with pytest.raises(LoweringError, match=name):
        stax.jit(lambda x: function(x), dynamic={"x": {0: "n"}})(x)


def test_dtypes() -> None:
    for dtype in ("float16", "bfloat16", "float32", "int8", "int32", "uint16", "bool"):
        x = snp.ones(5, dtype)
        out = stax.jit(lambda x: (x, x == x))(x)
        assert (out[0].dtype, out[1].dtype) == (x.dtype, types.bool_)
