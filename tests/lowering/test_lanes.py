"""Loops turned inside out: what is legal, and that nothing but the order of work changes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax import lax
from stax.control import Scan
from stax.interpreters.evaluate import evaluate
from stax.lowering import lane_step
from stax.lowering.lane_step import LaneStep
from stax.lowering.lanes import Lanes, lanes_of
from stax.lowering.pipeline import lower_graph
from stax.runtime.compiler import compile_graph
from tests.random_graphs import assert_same_bits

Function = Callable[..., Any]
N = 37


def values(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    # Of a shape always the same, whichever tests ran before.
    x = np.random.default_rng(shape).normal(size=shape)
    return np.asarray(x * 20 if np.dtype(dtype).kind in "iu" else x).astype(dtype)


def check(f: Function, *args: Any, by_lanes: bool | None = True) -> list[Any]:
    """Compare a compiled function with the evaluator; `by_lanes` says what its loops become."""
    graph = stax.make_graph(f)(*args)
    steps = lower_graph(graph).steps
    found = [s for s in steps if isinstance(s, LaneStep)]
    if by_lanes is not None:
        loops = [n for n in graph.nodes if isinstance(n.op, Scan)]
        assert len(found) == (len(loops) if by_lanes else 0)
    leaves = [np.asarray(x) for x in stax.tree_util.tree_leaves(args)]
    with np.errstate(all="ignore"):
        wanted = evaluate(graph, leaves)
    assert_same_bits(compile_graph(graph).run(leaves), wanted)
    return found


# --- what is legal ---


def lanes(f: Function, *args: Any) -> Lanes | str:
    """Return how the one loop of a function runs by lanes, or why it does not."""
    (step,) = [
        n for n in lower_graph(stax.make_graph(f)(*args)).graph.nodes if isinstance(n.op, Scan)
    ]
    assert isinstance(step.op, Scan)
    return lanes_of(step.op)


def found(f: Function, *args: Any) -> Lanes:
    result = lanes(f, *args)
    assert isinstance(result, Lanes), result
    return result


def rotate(s: Any, _: Any) -> tuple[Any, None]:
    """A step that mixes the first axis and not the second."""
    return snp.stack([s[1] * 0.5, s[2] - s[0], s[0] + 1]), None


def test_all_axes_are_one() -> None:
    plan = found(lambda s: lax.fori_loop(0, 9, lambda i, c: c * c + s, s), values(4, N))
    assert (plan.lengths, plan.is_flat, plan.streams) == ((4, N), True, False)


def test_one_axis() -> None:
    plan = found(lambda s: lax.scan(rotate, s, None, length=9)[0], values(3, N))
    assert (plan.lengths, plan.carried) == ((N,), ((1,),))


def test_a_leading_axis() -> None:
    step = lambda s: lax.scan(rotate, s, None, length=9)[0]  # noqa: E731
    plan = found(stax.vmap(step), values(N, 3))
    assert (plan.lengths, plan.carried) == ((N,), ((0,),))


def test_counters_are_counted() -> None:
    plan = found(lambda s: lax.fori_loop(3, 9, lambda i, c: c * i, s), values(N))
    assert plan.counters == {0: 1}


def test_small_states_are_written_out() -> None:
    step = lambda s, _: (snp.tanh(s @ snp.ones((3, 3))), None)  # noqa: E731
    plan = found(lambda s: lax.scan(step, s, None, length=9)[0], values(3))
    assert (plan.lengths, plan.count) == ((), 1)


NOT_LANES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "a sum over all": (
        lambda s: lax.scan(lambda c, _: (c / c.sum(), None), s, None, length=3)[0],
        (values(99),),
    ),
    "neighbours": (
        lambda s: lax.scan(lambda c, _: (snp.roll(c, 1) + c, None), s, None, length=3)[0],
        (values(99),),
    ),
    "a sort": (
        lambda s: lax.scan(lambda c, _: (snp.sort(c) * 2, None), s, None, length=3)[0],
        (values(99),),
    ),
    "a large product": (
        lambda s, w: lax.scan(lambda c, _: (c @ w, None), s, None, length=3)[0],
        (values(4, 64), values(64, 64)),
    ),
    "an element that is chosen": (
        lambda s: lax.scan(lambda c, i: (c + c[i], None), s, snp.arange(3))[0],
        (values(99),),
    ),
}


@pytest.mark.parametrize("name", NOT_LANES)
def test_other_loops_say_why(name: str) -> None:
    f, args = NOT_LANES[name]
    reason = lanes(f, *args)
    assert isinstance(reason, str) and reason.startswith("a step")


# --- values ---

LOOPS: dict[str, Function] = {
    "elements": lambda s, a, b: lax.scan(lambda c, x: (c * x + a, c - x), s, b),
    "backwards": lambda s, a, b: lax.scan(lambda c, x: (c * x + a, c - x), s, b, reverse=True),
    "counted": lambda s, a, b: lax.fori_loop(
        2, 7, lambda i, c: (c[1] * i + a, c[0] - b[i - 2]), (s, a)
    ),
    "handed on": lambda s, a, b: lax.scan(lambda c, x: ((c[1], c[0]), c[0] * x), (s, a), b),
    "a number": lambda s, a, b: lax.scan(
        lambda c, x: ((c[0] + 0.5, c[1] * c[0]), x + c[0]), (1.0, s), b
    ),
    "a mask": lambda s, a, b: lax.scan(
        lambda c, x: ((c[0] & (x < a), snp.where(c[0], c[1] + x, c[1])), c[0]), (s < 9, s), b
    ),
    "nothing read": lambda s, a, b: lax.scan(lambda c, x: (c * x, a - x), s, b)[1],
    "its input": lambda s, a, b: lax.scan(lambda c, x: (c + x, x), b[0], b),
    "neighbours of a constant": lambda s, a, b: lax.scan(
        lambda c, x: (c + snp.roll(a, 1, -1), c * 2), s, b
    )[0],
}


@pytest.mark.parametrize("shape", [(), (2,), (5,), (N,), (3, N), (2, 3, 8)])
@pytest.mark.parametrize("name", LOOPS)
def test_loops(name: str, shape: tuple[int, ...]) -> None:
    if name == "neighbours of a constant" and not shape:
        return
    by_lanes = None if name == "nothing read" else True
    check(LOOPS[name], values(*shape), values(*shape), values(5, *shape), by_lanes=by_lanes)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8", "int64"])
def test_dtypes(dtype: str) -> None:
    args = [snp.asarray(values(*shape)).astype("float32") for shape in ((N,), (N,), (4, N))]
    with stax.enable_x64(True):
        wide = [(x * 9).astype(dtype) for x in args]
        for f in (LOOPS["elements"], LOOPS["handed on"]):
            check(f, *wide)


@pytest.mark.parametrize("shape", [(3,), (3, N), (3, 1500), (3, 2, 9)])
def test_short_axes(shape: tuple[int, ...]) -> None:
    def step(c: Any, x: Any) -> Any:
        return snp.stack([c[1] * x, c[2] - c[0], c[0] + c[::-1][0] * x]), c[:2] + x

    f = lambda s, xs: lax.scan(step, s, xs)  # noqa: E731
    check(f, values(*shape), values(6, *shape[1:]))
    check(lambda s: lax.scan(step, s, None, length=4)[0] if s is None else f(s, s), values(*shape))
    if len(shape) > 1:
        mapped = stax.vmap(f, in_axes=(len(shape) - 1, len(shape) - 1))
        check(mapped, values(*shape), values(6, *shape[1:]))


@pytest.mark.parametrize("length", [1, 2, 7, 8])
def test_calls_for_some_of_the_steps(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_step, "POLL_AFTER", 60)
    for shape in ((), (2,), (N,), (3, N), (1500,)):
        for name in ("elements", "counted", "handed on", "a number", "its input"):
            b = values(max(length, 5) if name == "counted" else length, *shape)
            check(LOOPS[name], values(*shape), values(*shape), b)
    (step,) = check(LOOPS["elements"], values(), values(), values(99))
    assert step.chunk == 20


COUNTED: dict[str, Function] = {
    "one array": lambda n, x: lax.fori_loop(0, n, lambda i, s: s * 0.5 + i * x, x),
    "two": lambda n, x: lax.fori_loop(n, 4, lambda i, s: (s[1], s[0] * 0.5 + i), (x, x + 1)),
    "the counter": lambda n, x: lax.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * x), (2, x)
    ),
    "known": lambda n, x: lax.while_loop(
        lambda s: s[1] < 5, lambda s: (s[0] * x, s[1] + 1), (x, n)
    )[0],
}


@pytest.mark.parametrize("most", [1, 40, 1 << 24])
@pytest.mark.parametrize("name", COUNTED)
def test_steps_that_are_counted(name: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_step, "POLL_AFTER", most)
    for shape in ((), (N,), (3, N)):
        for n in (-3, 0, 3, 4, 7):
            (step,) = check(COUNTED[name], np.int32(n), values(*shape), by_lanes=None)
            assert step.counted is not None


def test_ends_that_change() -> None:
    def f(n: Any, x: Any) -> Any:
        step = lambda s: (s[0] + 1, s[1] - 1, s[2] * x)  # noqa: E731
        return lax.while_loop(lambda s: s[0] < s[1], step, (0, n, x))

    assert not check(f, np.int32(9), values(N), by_lanes=None)


def test_any_name_of_an_argument() -> None:
    check(lambda x, p, step, c0: lax.fori_loop(0, 3, lambda i, c: c * x + p * step + c0, x),
          *(values(N) for _ in range(4)))  # fmt: skip


def test_nested_in_another_loop() -> None:
    def outer(c: Any, x: Any) -> Any:
        inner = lax.fori_loop(0, 3, lambda i, q: q * 0.5 + x, c)
        return snp.sort(inner), inner.sum()

    f = lambda s, xs: lax.scan(outer, s, xs)[0]  # noqa: E731
    check(f, values(N), values(4, N), by_lanes=None)


def test_long_loops_compile_as_short_ones() -> None:
    def text(length: int) -> str:
        graph = stax.make_graph(lambda s: lax.fori_loop(0, length, lambda i, c: c * c + s, s))
        (step,) = [s for s in lower_graph(graph(values(N))).steps if isinstance(s, LaneStep)]
        return str(step.built.kernel.body).replace(str(length), "length")

    assert len(text(10)) == len(text(10_000))


# --- random steps ---

UNARY: list[Function] = [
    lambda x: -x, abs, lambda x: x * 0.5, lambda x: x + 1, lambda x: x[::-1], lambda x: x[:1],
    lambda x: x[None], snp.floor, lambda x: snp.where(x > 0, x, -x), lambda x: x.max(0),
]  # fmt: skip
BINARY: list[Function] = [
    snp.add, snp.multiply, snp.subtract, snp.maximum, lambda x, y: snp.where(x > y, x, y),
    lambda x, y: snp.concatenate([x, y]),
]  # fmt: skip


@st.composite
def steps(draw: Any) -> Function:
    """A random step on a state (3, N), an element (N,) and a constant (3, N)."""
    code = draw(
        st.lists(
            st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
            min_size=1,
            max_size=10,
        )
    )

    def step(c: Any, x: Any, k: Any) -> tuple[Any, Any]:
        made = [c, x[None], k]
        for is_unary, op, i, j in code:
            a, b = made[i % len(made)], made[j % len(made)]
            try:
                y = UNARY[op](a) if is_unary else BINARY[op % len(BINARY)](a, b)
            except (TypeError, ValueError, IndexError):
                continue
            if y.ndim == 2 and y.shape[0] <= 6 and y.shape[1] == c.shape[1]:
                made.append(y)
        fitting = [y for y in made if y.shape == c.shape]
        return fitting[-1] * 0.5, made[-1]

    return step


@settings(max_examples=30)
@given(steps(), st.integers(1, 6), st.booleans(), st.booleans())
def test_random_steps(step: Function, length: int, reverse: bool, streams: bool) -> None:
    c, xs, k = values(3, 19), values(length, 19), values(3, 19)

    def f(c: Any, xs: Any, k: Any) -> Any:
        carry, ys = lax.scan(lambda s, x: step(s, x, k), c, xs, reverse=reverse)
        return (carry, ys) if streams else carry

    check(f, c, xs, k, by_lanes=None)
    check(stax.vmap(f), *(np.stack([x] * 9) for x in (c, xs, k)), by_lanes=None)
