"""Donated arguments: results are written over them where nobody else sees their memory.

Each test runs with the native entry and with the one in Python, which must not differ.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.array import value_of
from stax.errors import DeletedArrayError
from stax.runtime import dispatcher, entry as entry_module

SMALL, LARGE = (5, 3), (600, 1000)  # NumPy's memory, and recycled memory


@pytest.fixture(params=["native", "python"], autouse=True)
def entries(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "python":
        monkeypatch.setattr(entry_module.dispatcher, "available", lambda: False)
    elif not dispatcher.available():
        pytest.skip("native calls do not work in this interpreter")
    return str(request.param)


def array(shape: tuple[int, ...] = SMALL, seed: int = 0) -> Any:
    return snp.asarray(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def places(tree: Any) -> list[int]:
    return [x.unsafe_buffer_pointer() for x in stax.tree.leaves(tree)]


def momentum(state: Any, gradient: Any, rate: Any = 0.1) -> Any:
    v = stax.tree.map(lambda v, g: 0.9 * v + g, state["v"], gradient)
    p = stax.tree.map(lambda p, v: p - rate * v, state["p"], v)
    return {"p": p, "v": v, "step": state["step"] + 1}


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_a_tree_of_parameters_stays_where_it_is(shape: tuple[int, ...]) -> None:
    donating, plain = stax.jit(momentum, donate_argnums=0), stax.jit(momentum)
    weights = {"w": array(shape), "b": array((3,), 1)}
    state = {"p": weights, "v": stax.tree.map(lambda x: x * 0, weights), "step": snp.asarray(0)}
    gradient, other = {"w": array(shape, 2), "b": array((3,), 3)}, copy.deepcopy(state)
    first = places(state)
    for _ in range(4):
        state, before = donating(state, gradient), state
        other = plain(other, gradient)
        assert all(x.is_deleted() for x in stax.tree.leaves(before))
        assert not any(x.is_deleted() for x in stax.tree.leaves(gradient))
        assert places(state) == first
        stax.tree.map(np.testing.assert_array_equal, state, other)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: x.at[i].set(7.0),
        lambda x, i: lax.fori_loop(0, 3, lambda k, c: c.at[k].add(c[i]), x),
        lambda x, i: x,
        lambda x, i: snp.tanh(x) * i,
    ],
    ids=["update", "loop", "identity", "elements"],
)
def test_other_programs(f: Any) -> None:
    donating, plain = stax.jit(f, donate_argnames="x"), stax.jit(f)
    for _ in range(3):
        x = array(LARGE)
        wanted, place = np.asarray(plain(x, 2)).copy(), x.unsafe_buffer_pointer()
        found = donating(x, 2)
        assert x.is_deleted() and found.unsafe_buffer_pointer() == place
        np.testing.assert_array_equal(found, wanted)


SEEN: dict[str, Callable[[Any], Any]] = {
    "NumPy": np.asarray,
    "a part of it": lambda x: np.asarray(x)[1:],
    "a buffer": lambda x: memoryview(np.asarray(x)),
    "DLPack": np.from_dlpack,
    "a copy": lambda x: x.copy(),
    "snp.array": snp.array,
    "a view": lambda x: x.reshape(-1),
    "rows": list,
    "astype": lambda x: x.astype("float32", copy=True),
}


@pytest.mark.parametrize("shape", [SMALL, LARGE])
@pytest.mark.parametrize("name", SEEN)
def test_memory_that_somebody_sees_is_left_alone(name: str, shape: tuple[int, ...]) -> None:
    f = stax.jit(lambda x: x + 1, donate_argnums=0)
    for _ in range(3):
        x = array(shape)
        place, values = x.unsafe_buffer_pointer(), np.array(np.asarray(x))
        seen = SEEN[name](x)
        found = f(x)
        assert x.is_deleted() and found.unsafe_buffer_pointer() != place
        np.testing.assert_array_equal(found, values + 1)
        left = np.asarray(seen).reshape(-1)
        np.testing.assert_array_equal(left, values.reshape(-1)[-len(left) :])
        del seen, left
        place = found.unsafe_buffer_pointer()
        assert f(found).unsafe_buffer_pointer() == place


def test_memory_of_others_is_left_alone() -> None:
    f = stax.jit(lambda x, y: x + y, donate_argnums=0)
    mine = np.arange(5, dtype=np.float32)
    aliased = stax.dlpack.from_dlpack(mine)
    for x in (mine, mine[::-1], aliased, 1.0, np.float32(2)):
        for _ in range(2):
            given = x.copy() if x is aliased else x
            np.testing.assert_array_equal(f(given, 1.0), np.asarray(x) + 1)
    assert mine.tolist() == [0, 1, 2, 3, 4]


def test_another_argument_and_a_captured_array_are_left_alone() -> None:
    x = array()
    values = np.array(np.asarray(x))
    shared = x.copy()
    f = stax.jit(lambda a, b: (a * 2, b), donate_argnums=0)
    doubled, same = f(x, shared)
    np.testing.assert_array_equal(doubled, values * 2)
    np.testing.assert_array_equal(same, values)
    held = shared.copy()
    g = stax.jit(lambda a: a + held, donate_argnums=0)
    for _ in range(3):
        np.testing.assert_array_equal(g(held.copy()), values * 2)
    assert not held.is_deleted()


class Wrapped:
    def __init__(self, x: Any) -> None:
        self.x = x

    def __jax_array__(self) -> Any:
        return self.x


def test_an_array_that_an_object_keeps_is_left_alone() -> None:
    f, x = stax.jit(lambda x: x + 1, donate_argnums=0), array()
    values = np.array(np.asarray(x))
    for _ in range(3):
        np.testing.assert_array_equal(f(Wrapped(x)), values + 1)
        np.testing.assert_array_equal(x, values)


def test_a_keyword_is_donated_by_its_number() -> None:
    f = stax.jit(lambda x, y: x * y, donate_argnums=0)
    for _ in range(3):
        x, y = array(), array(seed=1)
        place = x.unsafe_buffer_pointer()
        assert f(y=y, x=x).unsafe_buffer_pointer() == place
        assert x.is_deleted() and not y.is_deleted()


def test_a_program_that_fails() -> None:
    def refuse(a: Any) -> Any:
        raise KeyError("no")

    def f(x, y, z):
        return y * 2, stax.pure_callback(refuse, z, z + 1), x.sum()

    jitted = stax.jit(f, donate_argnums=(0, 1))
    for _ in range(3):
        x, y, z = array((4,)), array(seed=1), array(seed=2)
        values = [np.array(np.asarray(a)) for a in (x, y, z)]
        with pytest.raises(KeyError, match="no"):
            jitted(x, y, z)
        assert y.is_deleted()  # a result was to be written over it
        with pytest.raises(DeletedArrayError):
            np.asarray(y)
        np.testing.assert_array_equal(x, values[0])
        np.testing.assert_array_equal(z, values[2])


@contextmanager
def running(work: Callable[[int], None], count: int) -> Iterator[None]:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()


def test_threads() -> None:
    f = stax.jit(lambda x: snp.sqrt(x * x + 1), donate_argnums=0)
    found: dict[int, Any] = {}

    def work(n: int) -> None:
        x = snp.full((200, 300), float(n))
        for step in range(20):
            kept = (np.asarray(x), np.array(x[0, 0])) if step % 3 == 0 else None
            x = f(x)
            if kept is not None:
                assert (kept[0] == kept[1]).all()
        found[n] = x

    with running(work, 4):
        pass
    for n in range(4):
        np.testing.assert_allclose(found[n], np.full((200, 300), np.sqrt(n * n + 20.0)), rtol=1e-5)


def test_one_array_in_two_threads_is_donated_once() -> None:
    f, x = stax.jit(lambda x: x + 1, donate_argnums=0), array(LARGE)
    f(array(LARGE))
    wanted, outcomes = np.asarray(x) + 1, []

    def work(n: int) -> None:
        try:
            outcomes.append(f(x))
        except DeletedArrayError:
            outcomes.append(None)

    with running(work, 4):
        pass
    done = [y for y in outcomes if y is not None]
    assert done and all(np.array_equal(y, wanted) for y in done)


def test_a_compiled_stage() -> None:
    lowered = stax.jit(momentum, donate_argnums=0).lower({"p": 1.0, "v": 1.0, "step": 1}, 1.0)
    assert lowered.donate_argnums == (0, 1, 2)
    x, y = array(LARGE), array(LARGE, 1)
    compiled = stax.jit(lambda x, y: (x + y, x.sum()), donate_argnums=0).lower(x, y).compile()
    analysis = compiled.memory_analysis()
    assert analysis.alias_size_in_bytes == x.nbytes
    assert analysis.peak_memory_in_bytes == 2 * x.nbytes + 4 + analysis.temp_size_in_bytes
    for _ in range(3):
        place = x.unsafe_buffer_pointer()
        x, before = compiled(x, y)[0], x
        assert before.is_deleted() and x.unsafe_buffer_pointer() == place
    with pytest.raises(DeletedArrayError):
        compiled(before, y)
    with pytest.raises(stax.errors.ArgumentValueError, match="twice"):
        compiled(x, x)


def test_explain_says_what_becomes_of_donated_arrays(capsys: Any) -> None:
    f = stax.jit(lambda a, b, c: (a * 2, b @ b, c.sum()), donate_argnums=(0, 1, 2))
    text = str(stax.inspect.explain(f)(snp.ones(3), snp.ones((4, 4)), snp.ones(7)))
    assert "donated a: result 0 takes its memory" in text
    assert "donated b: not written over, it is read while results of its type" in text
    assert "donated c: not written over, no result is f32[7]" in text


def test_results_keep_their_values_when_the_next_call_is_made() -> None:
    f, x = stax.jit(lambda x: (x + 1, x * 2), donate_argnums=0), array()
    value = np.array(np.asarray(x))
    kept = []
    for _ in range(5):
        x, double = f(x)
        kept.append(double)
    for n, double in enumerate(kept):
        np.testing.assert_allclose(double, (value + n) * 2, rtol=1e-5)
    assert not value_of(x).flags.writeable


def test_an_array_that_was_deleted_is_not_said_to_be_given_twice() -> None:
    f = stax.jit(lambda x, y: x + y, donate_argnums=0)
    x = array()
    f(x, array())
    for y in (x, array()):
        with pytest.raises(DeletedArrayError, match="after it was deleted"):
            f(x, y)
