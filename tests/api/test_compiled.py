"""jit: variants and what they depend on, calls, static and donated arguments."""

import functools
import gc
import inspect
import pickle
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.errors import (
    ArgumentError,
    ArgumentValueError,
    DeletedArrayError,
)

X = np.asarray([1.0, 2.0, 3.0], np.float32)


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
        {"static_argnames": ["n"]},
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


def test_dtypes() -> None:
    for dtype in ("float16", "bfloat16", "float32", "int8", "int32", "uint16", "bool"):
        x = snp.ones(5, dtype)
        out = stax.jit(lambda x: (x, x == x))(x)
        assert (out[0].dtype, out[1].dtype) == (x.dtype, types.bool_)


def test_tangents_of_integers_are_arguments_of_compiled_programs() -> None:
    nothing = np.zeros(3, types.float0)
    f = stax.jit(lambda x, t: x["f"] - t["f"])
    leaves = {"f": X, "i": np.arange(3)}
    tangent = stax.grad(lambda x: (x["f"] * x["i"]).sum(), allow_int=True)(leaves)
    for _ in range(3):
        assert f(leaves, tangent).tolist() == [1.0, 1.0, 1.0]
        assert f(leaves, {"f": X, "i": nothing}).tolist() == [0.0, 0.0, 0.0]
    assert all(variant.program is not None for variant in f.variants())
