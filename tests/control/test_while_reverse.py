"""Reverse mode of while loops, which JAX has not, against loops in Python that are unrolled.

JAX differentiates those for first derivatives; for others, which it takes long for, Stax does.
"""

import _thread
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import errors, lax
from stax.control import Scan, While
from stax.runtime import memory

pytestmark = pytest.mark.filterwarnings("error")

X = np.array([0.4, 1.3, 2.2], np.float32)
W = np.array([[0.3, 0.2, 0.1], [0.1, 0.5, 0.2], [0.4, 0.1, 0.3]], np.float32)


class Unrolled:
    """Stands for `lax`: loops run in Python, so that what was computed is differentiated."""

    @staticmethod
    def while_loop(cond: Any, body: Any, init: Any, **_: Any) -> Any:
        while cond(init):
            init = body(init)
        return init


def newton(J: Any, L: Any, N: Any, x: Any) -> Any:
    far = lambda c: N.max(N.abs(c * c - x)) > 1e-3  # noqa: E731
    return L.while_loop(far, lambda c: 0.5 * (c + x / c), N.ones(3))


def captured(J: Any, L: Any, N: Any, x: Any) -> Any:
    """The condition and the step close over what is differentiated, and over a constant."""
    far = lambda c: N.sum(c[0]) < 4 + x[0]  # noqa: E731
    return L.while_loop(far, lambda c: (c[0] + N.tanh(c[0] @ W) * x, c[0] * x), (x, x))[1]


def discrete(J: Any, L: Any, N: Any, x: Any) -> Any:
    """Integers, a bool and a random key are carried beside floats."""

    def step(c: Any) -> Any:
        y, i, odd, key = c
        key, now = J.random.split(key)
        y = N.where(odd, y * x, N.sin(y)) + J.random.uniform(now, (3,))
        return y, i + 1, ~odd, key

    start = (x, 0, N.asarray(True), J.random.key(3))
    return L.while_loop(lambda c: (c[1] < 5) | c[2], step, start)[0]


def updated(J: Any, L: Any, N: Any, x: Any) -> Any:
    def step(c: Any) -> Any:
        i, a = c
        return i + 1, a.at[i % 3].set(N.sin(a[(i + 1) % 3]) * x[i % 3])

    return L.while_loop(lambda c: c[0] < 7, step, (0, N.asarray(x)))[1]


def swapped(J: Any, L: Any, N: Any, x: Any) -> Any:
    step = lambda c: (c[1], N.sin(c[0]) + x, c[2] + 1)  # noqa: E731
    a, b, _ = L.while_loop(lambda c: c[2] < 5, step, (x, x * 2, 0))
    return a * b


def no_step(J: Any, L: Any, N: Any, x: Any) -> Any:
    return L.while_loop(lambda c: N.sum(c) < -1, lambda c: c / 0, x * x)


def one_step(J: Any, L: Any, N: Any, x: Any) -> Any:
    return L.while_loop(lambda c: c[1], lambda c: (N.sin(c[0] * x), False), (x, True))[0]


def without_residuals(J: Any, L: Any, N: Any, x: Any) -> Any:
    return L.while_loop(lambda c: N.sum(c) < 50, lambda c: c + x, x) * x


def complex_carry(J: Any, L: Any, N: Any, x: Any) -> Any:
    near = lambda c: (N.max(N.abs(c[0])) < 9) & (c[1] < 6)  # noqa: E731
    step = lambda c: (c[0] * c[0] * (0.3 + 0.1j) + x, c[1] + 1)  # noqa: E731
    z, _ = L.while_loop(near, step, (N.asarray(x) * (1 + 0.5j), 0))
    return N.real(z) * N.imag(z)


def nested(J: Any, L: Any, N: Any, x: Any) -> Any:
    """A loop whose inner one takes another number of steps each time."""

    def step(c: Any) -> Any:
        y, i = c
        inner = L.while_loop(lambda d: d[1] < i, lambda d: (N.sin(d[0] * x), d[1] + 1), (y, 0))
        return inner[0] + y, i + 1

    return L.while_loop(lambda c: c[1] < 4, step, (x, 0))[0]


PROGRAMS = {
    f.__name__: f
    for f in (
        newton, captured, discrete, updated, swapped, no_step, one_step, without_residuals,
        complex_carry, nested,
    )
}  # fmt: skip


def total(program: Any, J: Any, L: Any, N: Any) -> Callable[[Any], Any]:
    return lambda x: N.sum(N.sin(program(J, L, N, x)))


def gradient_along(f: Any) -> Callable[[Any], Any]:
    return stax.grad(lambda x: snp.sum(stax.grad(f)(x) * snp.asarray(X)))


def close(ours: Any, theirs: Any, tolerance: float = 2e-4) -> None:
    for a, b in zip(stax.tree_util.tree_leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * 0.1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str) -> None:
    ours = total(PROGRAMS[name], stax, lax, snp)
    theirs = total(PROGRAMS[name], jax, Unrolled, jnp)
    expected = jax.value_and_grad(theirs)(X)
    close(stax.value_and_grad(ours)(X), expected)
    close(stax.jit(stax.value_and_grad(ours))(X), expected)


@pytest.mark.parametrize("name", PROGRAMS)
def test_second_derivatives(name: str) -> None:
    ours = total(PROGRAMS[name], stax, lax, snp)
    expected = gradient_along(total(PROGRAMS[name], stax, Unrolled, snp))(X)
    close(stax.jit(gradient_along(ours))(X), expected, 1e-3)
    forward = stax.jit(lambda x: stax.jvp(stax.grad(ours), (x,), (snp.asarray(X),))[1])
    close(forward(X), expected, 1e-3)


MANY = np.stack([X, X * 0.5, X * 3, X * 1.5]).astype(np.float32)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lanes_end_by_themselves(name: str) -> None:
    """The derivative of a lane is that of the lane alone, however long the others go on."""
    ours = total(PROGRAMS[name], stax, lax, snp)
    unrolled = total(PROGRAMS[name], stax, Unrolled, snp)
    expected = np.stack([stax.grad(unrolled)(x) for x in MANY])
    close(stax.jit(stax.vmap(stax.grad(ours)))(MANY), expected, 1e-3)
    close(stax.jit(stax.grad(lambda x: snp.sum(stax.vmap(ours)(x))))(MANY), expected, 1e-3)


def test_lanes_that_ended_contribute_nothing() -> None:
    """The step is not finite where a lane has ended, nor is its derivative."""

    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c > 0, lambda c: c - snp.sqrt(c) * x / x, x * x)

    lanes = np.array([1.0, 0.5, 2.0], np.float32)
    expected = [stax.grad(f)(x) for x in lanes]
    assert np.all(np.isfinite(expected))
    for wrap in (lambda g: g, stax.jit):
        np.testing.assert_allclose(wrap(stax.vmap(stax.grad(f)))(lanes), expected, rtol=1e-5)
        summed = wrap(stax.grad(lambda x: stax.vmap(f)(x).sum()))
        np.testing.assert_allclose(summed(lanes), expected, rtol=1e-5)


def test_lanes_of_lanes() -> None:
    f = lambda x, y: lax.while_loop(lambda c: c < y, lambda c: c * x, x)  # noqa: E731
    xs, ys = np.array([1.5, 2.0, 4.0], np.float32), np.array([3.0, 9.0, 1.0, 40.0], np.float32)
    expected = [[stax.grad(f)(x, y) for y in ys] for x in xs]
    table = stax.vmap(stax.vmap(stax.grad(f), (None, 0)), (0, None))
    np.testing.assert_allclose(stax.jit(table)(xs, ys), expected, rtol=1e-5)
    np.testing.assert_allclose(table(xs, ys), expected, rtol=1e-5)


# --- inside other transforms and loops ---


def powers(L: Any, x: Any, y: Any) -> Any:
    """Multiply by `x` until `y` is reached, eight times at most."""
    step = lambda c: (c[0] * x, c[1] + 1)  # noqa: E731
    return L.while_loop(lambda c: (c[0] < y) & (c[1] < 8), step, (x, 0))[0]


NESTINGS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "scan": lambda J, L, N, x: _scan(L, lambda c, a: (powers(L, c, a * 9) * 0.3 + a, c), x[1], x),
    "cond": lambda J, L, N, x: _cond(L, x[0] < 1, lambda v: powers(L, v, 9), lambda v: v * v, x[1]),
    "checkpoint": lambda J, L, N, x: _checkpoint(L, lambda v: powers(L, v, 9))(x[2]) * x[1],
    "jit, twice": lambda J, L, N, x: (
        _jit(J, L, lambda v, w: powers(L, v, w))(x[1], x[2] * 3) * x[0]
    ),
    "custom_vjp": lambda J, L, N, x: _clipped(J, L)(x[1]) * x[0],
    "fori_loop": lambda J, L, N, x: _fori(L, N.sum(N.asarray(x) > 1) + 3, x[1], x[0]),
    "grad": lambda J, L, N, x: J.grad(lambda v: powers(L, v, 9) * x[0])(x[1]),
}


def _scan(L: Any, f: Any, c: Any, xs: Any) -> Any:
    if L is lax:
        return snp.sum(lax.scan(f, c, xs)[1]) + lax.scan(f, c, xs)[0]
    ys = []
    for i in range(3):
        c, y = f(c, xs[i])
        ys.append(y)
    return sum(ys) + c


def _cond(L: Any, holds: Any, a: Any, b: Any, x: Any) -> Any:
    return lax.cond(holds, a, b, x) if L is lax else a(x) if holds else b(x)


def _jit(J: Any, L: Any, f: Any) -> Any:
    inner = stax.jit(f) if L is lax else f
    return lambda x, y: inner(x, y) + inner(y, y * x)


def _checkpoint(L: Any, f: Any) -> Any:
    return stax.checkpoint(f) if L is lax else f


def _clipped(J: Any, L: Any) -> Any:
    if L is not lax:
        return lambda x: powers(L, x, 9)
    f = stax.custom_vjp(lambda x: powers(L, x, 9))
    f.defvjp(lambda x: stax.vjp(lambda v: powers(L, v, 9), x), lambda back, ct: back(ct))
    return f


def _fori(L: Any, n: Any, x: Any, y: Any) -> Any:
    step = lambda i, c: c * y + i  # noqa: E731
    if L is lax:
        return lax.fori_loop(0, n, step, x)
    for i in range(int(n)):
        x = step(i, x)
    return x


@pytest.mark.parametrize("name", NESTINGS)
def test_nested(name: str) -> None:
    f = lambda x: NESTINGS[name](stax, lax, snp, x)  # noqa: E731
    expected = jax.grad(lambda x: NESTINGS[name](jax, Unrolled, jnp, x))(X)
    close(stax.grad(f)(X), expected)
    close(stax.jit(stax.grad(f))(X), expected)
    unrolled = stax.grad(lambda x: NESTINGS[name](stax, Unrolled, snp, x))
    lanes = np.stack([unrolled(x) for x in MANY])
    close(stax.jit(stax.vmap(stax.grad(f)))(MANY), lanes)


def test_a_loop_inside_a_loop_is_taken_again() -> None:
    """What the inner loop records has no place among what the outer one stacks."""
    graph = stax.make_graph(stax.grad(total(nested, stax, lax, snp)))(X)
    (loop,) = [n.op for n in graph.nodes if isinstance(n.op, While)]
    (back,) = [n.op for n in graph.nodes if isinstance(n.op, Scan)]
    inner = [n.op for n in loop.body.nodes if isinstance(n.op, While)]
    again = [n.op for n in back.body.nodes if isinstance(n.op, While)]
    assert len(inner) == len(again) == 1
    assert again[0].length is not None


def test_the_length_is_an_extent() -> None:
    graph = stax.make_graph(stax.grad(lambda x: powers(lax, x, 9.0)))(2.0)
    (loop,) = [n for n in graph.nodes if isinstance(n.op, While)]
    stacks = loop.type.items[loop.op.carry :]
    assert len(stacks) >= 2
    assert all(t.shape[0] == loop.op.length for t in stacks)


@given(st.floats(1.2, 3.0), st.floats(0.1, 60.0))
@settings(max_examples=25, deadline=None)
def test_any_number_of_steps(x: float, y: float) -> None:
    expected, n = x, 1
    while expected < y:
        expected, n = expected * x, n + 1
    f = COMPILED_POWERS
    value, gradient = f(snp.float32(x), snp.float32(y))
    np.testing.assert_allclose(gradient, n * float(value) / x, rtol=1e-4)


COMPILED_POWERS = stax.jit(
    stax.value_and_grad(lambda x, y: lax.while_loop(lambda c: c < y, lambda c: c * x, x))
)


@pytest.mark.parametrize("name", ["captured", "nested", "updated"])
def test_programs_are_what_graphs_mean(name: str) -> None:
    """Outside of jit so few steps are evaluated."""
    f = stax.vmap(stax.grad(total(PROGRAMS[name], stax, lax, snp)))
    np.testing.assert_allclose(stax.jit(f)(MANY), f(MANY), rtol=1e-5, atol=1e-6)


def test_double_precision() -> None:
    with stax.enable_x64():
        f = total(newton, stax, lax, snp)
        x = np.array([0.4, 1.3, 2.2])
        found = stax.jit(stax.grad(f))(x)
        assert found.dtype == np.float64
        h = 1e-6
        for i, e in enumerate(np.eye(3) * h):
            np.testing.assert_allclose(found[i], (f(x + e) - f(x - e)) / (2 * h), rtol=1e-6)


def test_many_steps_outside_of_jit() -> None:
    """A long loop is a program, whose stacks come after those of the first steps."""
    known = lambda x: lax.fori_loop(0, 5000, lambda _, c: snp.sin(c * x) + 0.3, x)  # noqa: E731
    found = stax.grad(lambda x: counted(x, 5000))(1.2)
    np.testing.assert_allclose(found, stax.grad(known)(1.2), rtol=1e-6)


# --- residuals that leave the program ---


@pytest.mark.parametrize("steps", [0, 1, 2, 30])
@pytest.mark.parametrize("outer", [lambda f: f, stax.jit], ids=["eager", "jit"])
def test_pullbacks_as_values(steps: int, outer: Any) -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: c[1] < steps, lambda c: (snp.sin(c[0] * x), c[1] + 1), (x, 0))[0]  # fmt: skip  # noqa: E501

    y, back = outer(lambda x: stax.vjp(f, x))(0.9)
    lengths = {x.shape[0] for x in stax.tree_util.tree_leaves(back) if x.ndim}
    assert lengths <= {steps}
    (expected,) = stax.vjp(f, 0.9)[1](1.0)
    assert float(y) == float(f(0.9))
    np.testing.assert_allclose(back(1.0)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(stax.jit(back)(1.0)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(stax.vmap(back)(snp.ones(2))[0], [expected] * 2, rtol=1e-6)


def test_a_pullback_inside_a_loop() -> None:
    """What a loop recorded is a constant of another loop."""

    def f(x: Any) -> Any:
        _, back = stax.vjp(lambda v: powers(lax, v, 9.0), x)
        return lax.scan(lambda c, _: (back(c)[0] * 0.1, c), x, None, length=3)[0]

    expected = 2.0
    for _ in range(3):
        expected *= 4 * 8 * 0.1
    for wrap in (lambda g: g, stax.jit):
        np.testing.assert_allclose(wrap(f)(2.0), expected, rtol=1e-5)


def test_one_graph_applied_twice_has_two_lengths() -> None:
    g = stax.jit(stax.grad(lambda x, y: lax.while_loop(lambda c: c < y, lambda c: c * x, x)))
    found = stax.jit(lambda z: (g(2.0, 9.0) + z, g(3.0, 100.0) + z, g(5.0, 1.0) + z))
    assert [float(y) for y in found(0.0)] == [32.0, 405.0, 1.0]
    assert [complex(y) for y in found(1j)] == [32 + 1j, 405 + 1j, 1 + 1j]


@pytest.mark.parametrize("outer", [lambda f: f, stax.jit], ids=["eager", "jit"])
def test_linear_maps_as_values(outer: Any) -> None:
    _, push = outer(lambda x: stax.linearize(lambda v: powers(lax, v, 9.0), x))(2.0)
    assert float(push(1.0)) == float(stax.jit(push)(1.0)) == 32.0
    assert float(stax.grad(push)(1.0)) == float(stax.jit(stax.grad(push))(1.0)) == 32.0
    assert stax.vmap(push)(snp.arange(3.0)).tolist() == [0.0, 32.0, 64.0]


def test_branches_by_lane_that_loop() -> None:
    branches = [lambda v: powers(lax, v, 9.0), lambda v: v * v, lambda v: powers(lax, v * 1.1, 20)]
    f = lambda i, x: lax.switch(i, branches, x)  # noqa: E731
    which, xs = np.array([0, 1, 2, 0], np.int32), np.array([1.5, 2.0, 2.5, 3.0], np.float32)
    expected = [stax.grad(f, 1)(i, x) for i, x in zip(which, xs, strict=True)]
    np.testing.assert_allclose(stax.jit(stax.vmap(stax.grad(f, 1)))(which, xs), expected, rtol=1e-5)
    summed = stax.jit(stax.grad(lambda x: stax.vmap(f)(which, x).sum()))
    np.testing.assert_allclose(summed(xs), expected, rtol=1e-5)


def test_linear_loops_are_transposed() -> None:
    f = lambda x: lax.while_loop(lambda c: c[1] < 4, lambda c: (c[0] * 3, c[1] + 1), (x, 0))[0]  # noqa: E731
    (found,) = stax.linear_transpose(f, 1.0)(2.0)
    assert float(found) == 162.0
    with pytest.raises(errors.MissingRule, match="not linear in its arguments"):
        stax.linear_transpose(lambda x: powers(lax, x * 3, 9.0), 1.0)(2.0)


# --- limits ---


def counted(x: Any, n: Any, **options: Any) -> Any:
    step = lambda c: (snp.sin(c[0] * x) + 0.3, c[1] + 1)  # noqa: E731
    return lax.while_loop(lambda c: c[1] < n, step, (x, 0), **options)[0]


OPTIONS: list[dict[str, int]] = [
    {"checkpoint_every": 7}, {"max_steps": 50}, {"checkpoint_every": 7, "max_steps": 50},
    {"checkpoint_every": 100}, {"checkpoint_every": 1, "max_steps": 51},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_change_no_derivative(options: dict[str, int]) -> None:
    expected = stax.value_and_grad(lambda x: counted(x, 50))(1.2)
    f = lambda x: counted(x, 50, **options)  # noqa: E731
    for wrap in (lambda g: g, stax.jit):
        np.testing.assert_allclose(wrap(stax.value_and_grad(f))(1.2), expected, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 7}], ids=str)
@pytest.mark.parametrize("most", [0, 49])
def test_a_loop_beyond_its_limit(most: int, options: dict[str, int]) -> None:
    f = lambda x, n=50: counted(x, n, max_steps=most, **options)  # noqa: E731
    lanes = lambda n: stax.vmap(f)(snp.ones(3), n)  # noqa: E731
    for wrap in (lambda g: g, stax.jit):
        for call, x in ((f, 1.2), (stax.grad(f), 1.2), (lanes, snp.array([0, 50, 0]))):
            with pytest.raises(errors.StepLimitError, match=f"after max_steps={most} steps"):
                wrap(call)(x)
    assert float(stax.jit(f)(1.2, 0)) == np.float32(1.2)


def test_the_error_of_a_program_names_the_line() -> None:
    with pytest.raises(
        errors.StepLimitError, match=r"while_loop .*test_while_reverse\.py:"
    ) as info:
        stax.jit(lambda x: counted(x, 9, max_steps=8))(1.0)
    assert isinstance(info.value, errors.JaxRuntimeError)


@pytest.mark.parametrize("options", [{"max_steps": -1}, {"checkpoint_every": 0}], ids=str)
def test_numbers_of_steps_that_make_no_sense(options: dict[str, int]) -> None:
    with pytest.raises(errors.ArgumentValueError, match="is at least"):
        counted(1.0, 5, **options)


def test_what_is_checkpointed_takes_less_memory() -> None:
    def largest(**options: int) -> int:
        f = stax.jit(lambda x: stax.vjp(lambda v: counted(v, 4096, **options), x)[1])
        return max(x.size for x in stax.tree_util.tree_leaves(f(1.2)))

    assert largest() == 4096
    assert largest(checkpoint_every=64) == 64


# --- memory ---


def test_memory_is_given_back() -> None:
    f = stax.jit(stax.grad(lambda x, n: counted(x, n)))
    bad = stax.jit(stax.grad(lambda x, n: counted(x, n, max_steps=3000)))

    def round_of_calls() -> None:
        for n in (0, 1, 7, 3000, 30):
            f(1.2, n)
        with pytest.raises(errors.StepLimitError):
            bad(1.2, 4000)

    round_of_calls()
    before = memory.statistics()
    for _ in range(200):
        round_of_calls()
    after = memory.statistics()
    assert after["misses"] == before["misses"]
    assert after["held"] == before["held"]


@pytest.mark.usefixtures("interrupts")
def test_memory_is_given_back_after_an_interrupt() -> None:
    step = lambda c: (c[0] + c[1], c[1])  # noqa: E731
    endless = stax.jit(stax.grad(lambda x: lax.while_loop(lambda c: c[1] > 0, step, (x, x))[0]))
    endless(-1.0)  # ends at once; it is compiled now
    before = memory.statistics()
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        endless(1.0)
    timer.join()
    after = memory.statistics()
    assert after["held"] > before["held"]


def test_two_threads_at_once() -> None:
    f = stax.jit(stax.grad(lambda x, n: counted(x, n)))
    counts = [3, 2000]
    expected = [float(f(1.2, n)) for n in counts]
    wrong: list[Any] = []

    def call(n: int, value: float) -> None:
        wrong.extend(y for _ in range(100) if (y := float(f(1.2, n))) != value)

    threads = [
        threading.Thread(target=call, args=pair) for pair in zip(counts, expected, strict=True)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
