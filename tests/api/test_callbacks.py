"""Callbacks: what is called, with what and in which order, against JAX under every transform."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import debug, errors, lax
from stax.experimental import io_callback
from stax.lowering.pipeline import lower_graph
from stax.runtime import loops
from stax.runtime.compiler import module_text

X = np.linspace(0.1, 1, 4, dtype=np.float32)
F32 = stax.ShapeDtypeStruct((), np.float32)
Program = Callable[..., Any]  # of a library, its lax, its numpy, a function to call, and x


def told(log: list[Any]) -> Callable[..., None]:
    """A callback that writes down its arguments."""

    def note(*args: Any, **kwargs: Any) -> None:
        every = [*args, *(kwargs[name] for name in sorted(kwargs))]
        log.append([a if isinstance(a, str) else np.asarray(a).tolist() for a in every])

    return note


PROGRAMS: dict[str, Program] = {
    "in line": lambda J, L, N, tell, x: (
        tell("first", x), y := N.sin(x) * 2, tell("then", y, z=x), y
    )[-1],
    "what is not used": lambda J, L, N, tell, x: (
        J.jit(lambda v: (tell("inner", v), N.cos(v))[1])(x), x * 1
    )[-1],
    "the same twice": lambda J, L, N, tell, x: (tell(x), tell(x), x * 1)[-1],
    "late before early": lambda J, L, N, tell, x: (
        tell("late", N.sin(N.sum(N.cos(x * N.ones(5))))), tell("early", x), N.sin(x)
    )[-1],
    "scan": lambda J, L, N, tell, x: L.scan(
        lambda c, a: ((tell("step", c, a), N.sin(c) * a)[1], None), x, N.arange(3.0)
    )[0],
    "a loop that is not used": lambda J, L, N, tell, x: (
        L.fori_loop(0, 2, lambda i, c: (tell(i, c), c * 2)[1], x), N.sin(x)
    )[-1],
    "while": lambda J, L, N, tell, x: L.while_loop(
        lambda c: c < 3.0, lambda c: (tell("step", c), c * 2)[1], x
    ) if not isinstance(x, float) else x,
    "branches": lambda J, L, N, tell, x: L.cond(
        N.sum(x) > 0.5,
        lambda v: (tell("big", v), N.sin(v))[1],
        lambda v: (tell("small", v), v * v)[1],
        x,
    ),
    "one after the other": lambda J, L, N, tell, x: (
        tell("before", x),
        y := L.fori_loop(0, 2, lambda i, c: (tell("step", i), N.sin(c))[1], x),
        tell("between", y),
        z := J.jit(lambda v: (tell("call", v), v * 3)[1])(y),
        tell("after", 1),
        z,
    )[-1],
}  # fmt: skip
KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda J, f: f,
    "vmap": lambda J, f: J.vmap(f),
    "grad": lambda J, f: J.grad(f),
    "vmap of grad": lambda J, f: J.vmap(J.grad(f)),
    "jvp": lambda J, f: lambda x: J.jvp(f, (x,), (x,))[1],
}


def run(
    J: Any, D: Any, L: Any, N: Any, name: str, kind: str, wrap: Any, ordered: bool = True
) -> tuple[Any, Any]:
    """The result of a program, and what its callback was told."""
    log: list[Any] = []
    tell = partial(D.callback, told(log), ordered=ordered)
    f = wrap(KINDS[kind](J, lambda x: PROGRAMS[name](J, L, N, tell, x)))
    result = np.asarray(f(X if "vmap" in kind else X[1]))
    if J is jax:
        jax.effects_barrier()
    return result, log


def close(ours: Any, theirs: Any) -> bool:
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(close, ours, theirs))
    return bool(ours == theirs if isinstance(theirs, str) else abs(ours - theirs) < 1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_ordered_ones_are_called_as_by_jax(name: str, kind: str) -> None:
    if name == "while" and "grad" in kind:
        pytest.skip("JAX has no reverse mode of while_loop")
    expected, told_jax = run(jax, jax.debug, jax.lax, jnp, name, kind, jax.jit)
    for wrap in (stax.jit, lambda f: f):
        result, log = run(stax, debug, lax, snp, name, kind, wrap)
        np.testing.assert_allclose(result, expected, rtol=1e-5)
        # For mapped branches see test_branches_that_lanes_take.
        mapped_branches = "vmap" in kind and name == "branches"
        assert mapped_branches or close(log, told_jax), (log, told_jax)


@pytest.mark.parametrize("name", PROGRAMS)
def test_others_have_the_order_of_the_program(name: str) -> None:
    _, expected = run(stax, debug, lax, snp, name, "plain", lambda f: f, False)
    _, log = run(stax, debug, lax, snp, name, "plain", stax.jit, False)
    assert close(log, expected)


def test_branches_that_lanes_take() -> None:
    # JAX runs both branches for all lanes; here a branch is run if some lane takes it.
    def f(x: Any) -> Any:
        return lax.cond(x > 0.5, lambda v: (tell("big", v), v)[1], lambda v: v * v, x)

    for x, count in ((X, 4), (X * 0.1, 0)):
        log: list[Any] = []
        tell = partial(debug.callback, told(log))
        stax.jit(stax.vmap(f))(x)
        assert len(log) == count


def test_order_of_lanes_of_nested_maps() -> None:
    def lanes(J: Any, D: Any, log: list[Any]) -> None:
        tell = partial(D.callback, told(log), ordered=True)
        inner = J.vmap(lambda a, b: tell(a, b), in_axes=(None, 0))
        J.jit(J.vmap(inner, in_axes=(0, None)))(np.arange(2), np.arange(3))

    log, expected = list[Any](), list[Any]()
    lanes(stax, debug, log)
    lanes(jax, jax.debug, expected)
    jax.effects_barrier()
    assert log == expected


def test_what_is_not_mapped_is_told_once() -> None:
    log: list[Any] = []
    stax.vmap(lambda x: (debug.callback(told(log), 1.5), x)[1])(X)
    assert log == [[1.5]]


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit], ids=["eager", "jit"])
def test_checkpoint_does_not_call_again(wrap: Any) -> None:
    # JAX calls debug callbacks again when values are computed again.
    log: list[Any] = []

    @stax.checkpoint
    def f(x: Any) -> Any:
        debug.callback(told(log), "once", x)
        step = lambda i, c: (debug.callback(told(log), i), snp.sin(c))[1]  # noqa: E731
        return lax.fori_loop(0, 2, step, snp.sin(x))

    wrap(stax.grad(f))(0.5)
    assert log == [["once", 0.5], [0], [1]]


def squared(tell: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: (tell(-c), c < 4.0)[1], lambda c: (tell(c), c * c)[1], x)


def scanned(tell: Any, x: Any) -> Any:
    step = lambda c, a: ((tell(c), snp.sin(c) * a)[1], None)  # noqa: E731
    return lax.scan(step, x, snp.arange(1.0, 5.0), checkpoint_every=2)[0]


@pytest.mark.parametrize("function", [squared, scanned])
@pytest.mark.parametrize("transform", [stax.grad, stax.jacfwd, stax.hessian, stax.checkpoint])
def test_derivatives_call_as_the_function_does(function: Any, transform: Any) -> None:
    expected: list[Any] = []
    function(partial(debug.callback, told(expected)), 1.5)
    for ordered in (False, True):
        log: list[Any] = []
        tell = partial(debug.callback, told(log), ordered=ordered)
        stax.jit(transform(partial(function, tell)))(1.5)
        assert close(log, expected)


# --- what goes wrong, and what is left behind ---


class Stop(Exception):
    pass


def in_line(f: Any, x: Any) -> Any:
    debug.callback(f, x)
    return x * 2


def in_loop(f: Any, x: Any) -> Any:
    return lax.fori_loop(0, 1000, lambda i, c: (debug.callback(f, c), c * 1)[1], x)


def with_result(f: Any, x: Any) -> Any:
    return stax.pure_callback(f, F32, x) + 1


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("use", [in_line, in_loop, with_result])
@pytest.mark.parametrize("error", [Stop("no"), KeyboardInterrupt()])
def test_exceptions_come_out_unchanged(use: Any, wrap: Any, error: BaseException) -> None:
    fails = True

    def callback(x: Any) -> Any:
        if fails:
            raise error
        return np.float32(x)

    f = wrap(partial(use, callback))
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            f(X[1])
        assert caught.value is error
    fails = False
    assert np.isfinite(f(X[1]))


def test_a_function_holds_its_callback_and_no_longer() -> None:
    class Callback:
        def __call__(self, x: Any) -> None:
            pass

    callback = Callback()
    gone = weakref.ref(callback)
    f = stax.jit(lambda x, callback=callback: (debug.callback(callback, x), x)[1])
    del callback
    gc.collect()
    f(1.0)
    assert gone() is not None
    del f
    gc.collect()
    assert gone() is None


def test_arrays_may_be_kept() -> None:
    kept: list[Any] = []
    f = stax.jit(lambda x: (debug.callback(kept.append, snp.sin(x)), snp.cos(x))[1])
    for i in range(3):
        f(X + i)
    for i, y in enumerate(kept):
        assert isinstance(y, stax.Array)
        np.testing.assert_allclose(y, np.sin(X + i), rtol=1e-6)


def test_callbacks_may_call_functions_of_the_library() -> None:
    g = stax.jit(lambda x: snp.sin(x) * 2)
    twice = stax.jit(lambda x: stax.pure_callback(lambda a: g(a) + snp.cos(a), F32, x))
    np.testing.assert_allclose(twice(0.5), 2 * np.sin(0.5) + np.cos(0.5), rtol=1e-6)

    def while_traced(x: Any) -> Any:
        y = stax.pure_callback(lambda a: snp.sin(a) * snp.cos(a), F32, x)
        return x * 2 if y > 0 else x  # asks for the value in the midst of a trace

    assert stax.grad(while_traced)(0.5) == 2


def test_calls_from_several_threads() -> None:
    f = stax.jit(lambda x: stax.pure_callback(lambda a: np.asarray(a) * 2, F32, x) + snp.sin(x))
    found: dict[int, float] = {}

    def work(i: int) -> None:
        found[i] = float(f(np.float32(i)))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(abs(found[i] - (2 * i + np.sin(i))) < 1e-5 for i in range(8))


def test_programs_name_no_address_and_fuse_as_without() -> None:
    def f(x: Any, callback: Any = None) -> Any:
        y = snp.exp(x) * 2 + x
        if callback:
            debug.callback(callback, x, "a")
            debug.callback(callback, x)
        return snp.sum(y)

    plain, noisy = (stax.make_graph(partial(f, callback=c))(X) for c in (None, print))
    assert len(lower_graph(plain).kernels) == len(lower_graph(noisy).kernels)
    other = stax.make_graph(partial(f, callback=lambda *a: None))(X)
    assert module_text(noisy) == module_text(other)
    assert "callback = print" not in str(noisy) and "called=print" in str(noisy)


def test_a_loop_outside_of_jit_is_compiled_once_for_equal_prints(capsys: Any) -> None:
    def sums(x: Any) -> Any:
        step = lambda i, c: (debug.print("{i}", i=i), c + i)[1]  # noqa: E731
        return lax.fori_loop(0, 200, step, x)

    sums(1.0)
    before = len(loops._programs.found)
    sums(2.0)
    assert len(loops._programs.found) == before
    assert capsys.readouterr().out.split() == [*map(str, range(200))] * 2


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint32", "bfloat16", "float16", "complex64"])
@pytest.mark.parametrize("shape", [(), (3,), (0, 2)])
def test_every_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    x = snp.ones(shape, dtype)
    seen: list[Any] = []

    def f(x: Any) -> Any:
        debug.callback(seen.append, x)
        return stax.pure_callback(lambda a: a, stax.ShapeDtypeStruct(shape, x.dtype), x)

    for g in (f, stax.jit(f), stax.jit(lambda x: lax.scan(lambda c, _: (f(c), None), x, X)[0])):
        y = g(x)
        assert (y.dtype, y.shape, y.weak_type) == (x.dtype, shape, False)
        np.testing.assert_array_equal(np.asarray(y), np.asarray(x))
    assert len(seen) == 6
    assert all(s.dtype == x.dtype and s.shape == shape for s in seen)


def test_keys_are_told() -> None:
    seen: list[Any] = []
    key = stax.random.key(3)
    stax.jit(lambda k: debug.callback(seen.append, k))(key)
    assert seen[0].dtype == key.dtype
    assert (stax.random.key_data(seen[0]) == stax.random.key_data(key)).all()


# --- print and log ---


FORMATS: dict[str, Callable[[Any, Any], None]] = {
    "values": lambda D, x: D.print("x is {x} and {}", x * 2, x=x),
    "specifications": lambda D, x: D.print("{0:.3f} {0:8.2e} {x!s}", x[0], x=x),
    "nothing to show": lambda D, x: D.print("hello"),
    "nothing at all": lambda D, x: D.print(""),
    "braces": lambda D, x: D.print("{x} {{}} {{x}}", x=x[1]),
    "braces alone": lambda D, x: D.print("{{}}"),
    "a tree": lambda D, x: D.print("{}", {"a": x[0], "b": (x[1], None, "text")}),
    "strings": lambda D, x: D.print("{} {name}", x[0], name="Ada"),
    "items": lambda D, x: D.print("{0[0]} {d[k]}", [x[0], x[1]], d={"k": x[2]}),
    "options first": lambda D, x: D.print(ordered=True)("{x}", x=x),
    "no check": lambda D, x: D.print("value", x[0], skip_format_check=True),
}


@pytest.mark.parametrize("wrap", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", FORMATS)
def test_print_writes_what_jax_writes(name: str, wrap: bool, capsys: Any) -> None:
    texts = []
    for J, D in ((stax, debug), (jax, jax.debug)):
        f = partial(FORMATS[name], D)
        (J.jit(f) if wrap else f)(snp.asarray(X) if J is stax else jnp.asarray(X))
        jax.effects_barrier()
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert texts[0].endswith("\n")


def test_print_options_are_those_of_the_trace(capsys: Any) -> None:
    with np.printoptions(precision=2):
        f = stax.jit(lambda x: debug.print("{}", x))
        f(X)
    f(X * 2)
    assert capsys.readouterr().out == "[0.1 0.4 0.7 1. ]\n[0.2 0.8 1.4 2. ]\n"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda D: D.print("{x}", 1),
        lambda D: D.print("{}"),
        lambda D: D.print("hi", 1, 2),
        lambda D: D.print("{}", 1, y=2),
        lambda D: D.print("{", 1),
        lambda D: D.print("{} {0}", 1),
        lambda D: D.print(ordered=True, x=3),
        lambda D: D.callback(3),
        lambda D: D.callback(ordered=True, x=3),
    ],
)
def test_wrong_calls_raise_as_in_jax_when_traced(wrong: Any) -> None:
    for J, D in ((jax, jax.debug), (stax, debug)):
        with pytest.raises(Exception) as caught:
            J.jit(lambda D=D: wrong(D)).trace()
        if J is jax:
            kind = type(caught.value)
        else:
            assert isinstance(caught.value, kind)


def test_log(caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "stax.debug"):
        stax.jit(lambda x: debug.log("x is {}", x))(1.5)
    (record,) = caplog.records
    assert record.getMessage() == "x is 1.5"
    assert record.filename == "test_callbacks.py"


# --- callbacks with results ---


METHODS = ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"]


def mapped(J: Any, method: str, seen: list[Any]) -> Any:
    """A callback on a mapped and another argument, and the shapes that it sees."""

    def callback(x: Any, y: Any) -> Any:
        seen.append((np.shape(x), np.shape(y)))
        return np.asarray(x) * 2 + np.sum(np.asarray(y), axis=-1), {"y": np.float32(1) + x}

    S = J.ShapeDtypeStruct((), np.float32)
    call = partial(J.pure_callback, callback, (S, {"y": S}), vmap_method=method)
    return J.vmap(call, in_axes=(0, None))(X, X[:2])


@pytest.mark.parametrize("method", METHODS)
def test_vmap_methods(method: str) -> None:
    seen, expected = list[Any](), list[Any]()
    ours, theirs = mapped(stax, method, seen), mapped(jax, method, expected)
    compiled = stax.jit(lambda: mapped(stax, method, []))()
    assert seen == expected
    found = map(stax.tree.leaves, (ours, compiled, jax.tree.leaves(theirs)))
    for a, b, c in zip(*found, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-6)
        np.testing.assert_allclose(b, c, rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_nested_maps(method: str) -> None:
    table = np.arange(6, dtype=np.float32).reshape(2, 3)

    def nested(J: Any) -> Any:
        S = J.ShapeDtypeStruct((), np.float32)
        f = partial(J.pure_callback, lambda a, b: a * 2 + b, S, vmap_method=method)
        return J.vmap(J.vmap(f, in_axes=(0, None)))(table, table[:, 0])

    if method == "legacy_vectorized":
        with pytest.raises(ValueError):
            nested(stax)
        return
    np.testing.assert_allclose(stax.jit(lambda: nested(stax))(), nested(jax), rtol=1e-6)


def test_io_callbacks_are_called_as_often_as_written() -> None:
    count = iter(range(100))

    def read(x: Any) -> Any:
        return np.float32(next(count))

    def f(x: Any) -> Any:
        a, b = (io_callback(read, F32, x) for _ in range(2))
        io_callback(lambda v: next(count) and None, None, x)
        return lax.scan(lambda c, _: (c + 1, io_callback(read, F32, x)), a, None, length=3)[1], b

    steps, b = stax.jit(f)(1.0)
    assert (steps.tolist(), b) == ([3, 4, 5], 1)
    ys = stax.jit(stax.vmap(lambda x: io_callback(lambda v: v * 2, F32, x)))(X)
    np.testing.assert_allclose(ys, X * 2)
    assert stax.grad(lambda x: x * io_callback(read, F32, 1.0))(1.0) == 6


def test_pure_callbacks_may_be_left_out_and_merged() -> None:
    log: list[Any] = []

    def f(x: Any) -> Any:
        call = partial(stax.pure_callback, lambda a: (log.append(1), a)[1], F32)
        callback = call.args[0]
        stax.pure_callback(callback, F32, x * 2)
        return stax.pure_callback(callback, F32, x) + stax.pure_callback(callback, F32, x)

    assert stax.jit(f)(1.0) == 2
    assert log == [1]


def test_derivatives_by_custom_rules() -> None:
    @stax.custom_jvp
    def sine(x: Any) -> Any:
        return stax.pure_callback(np.sin, F32, x, vmap_method="broadcast_all")

    @sine.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        return sine(primals[0]), snp.cos(primals[0]) * tangents[0]

    np.testing.assert_allclose(stax.jit(stax.grad(sine))(0.5), np.cos(0.5), rtol=1e-6)
    np.testing.assert_allclose(stax.vmap(stax.grad(sine))(X), np.cos(X), rtol=1e-6)


WRONG_RESULTS = {
    "shape": lambda a: np.ones(3, np.float32),
    "dtype": lambda a: np.int32(1),
    "count": lambda a: (1.0, 2.0),
}


@pytest.mark.parametrize("name", WRONG_RESULTS)
def test_results_are_as_announced(name: str) -> None:
    for wrap in (lambda f: f, stax.jit):
        for call in (stax.pure_callback, io_callback):
            f = wrap(partial(call, WRONG_RESULTS[name], F32))
            with pytest.raises(errors.JaxRuntimeError, match="announced"):
                f(1.0)
    np.testing.assert_allclose(stax.pure_callback(lambda: 1.5, F32), 1.5)  # a Python number


def jax_io(*args: Any, **kwargs: Any) -> Any:
    return jax.experimental.io_callback(*args, **kwargs)


IDENTITY = staticmethod(lambda a: a).__func__
REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "a derivative": lambda J, io: J.grad(
        lambda x: J.pure_callback(IDENTITY, J.ShapeDtypeStruct((), np.float32), x)
    )(1.0),
    "a derivative of io_callback": lambda J, io: J.grad(
        lambda x: io(IDENTITY, J.ShapeDtypeStruct((), np.float32), x)
    )(1.0),
    "no method": lambda J, io: J.vmap(
        lambda x: J.pure_callback(IDENTITY, J.ShapeDtypeStruct((), np.float32), x)
    )(X),
    "another method": lambda J, io: J.pure_callback(
        IDENTITY, J.ShapeDtypeStruct((), np.float32), 1.0, vmap_method="other"
    ),
    "lanes of an ordered one": lambda J, io: J.vmap(
        lambda x: io(IDENTITY, J.ShapeDtypeStruct((), np.float32), x, ordered=True)
    )(X),
    "64 bits": lambda J, io: J.pure_callback(
        IDENTITY, J.ShapeDtypeStruct((), np.float64), 1.0
    ),
    "64 bits of io_callback": lambda J, io: io(
        IDENTITY, J.ShapeDtypeStruct((), np.int64), 1.0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_jax_refuses(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        REFUSED[name](jax, jax_io)
    with pytest.raises(errors.StaxError) as ours:
        REFUSED[name](stax, io_callback)
    assert isinstance(ours.value, type(theirs.value))
    assert ours.value.advice
