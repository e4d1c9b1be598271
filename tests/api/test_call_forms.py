"""Calls of jitted functions natively: structures, keywords, static, donated and borrowed arguments.

Each test runs with the native entry and with the one in Python, which must not differ.
"""

from __future__ import annotations

import dataclasses
import gc
import sys
import threading
import tracemalloc
from collections import OrderedDict, defaultdict, namedtuple
from functools import partial
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.api.compiled import _Specializer
from stax.runtime import dispatcher, entry as entry_module

Pair = namedtuple("Pair", "first second")
Other = namedtuple("Other", "first second")


@stax.tree_util.register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str = dataclasses.field(default="layer", metadata={"static": True})


@stax.tree_util.register_pytree_node_class
class Box:
    """A class with a method; its static data is `scale`."""

    def __init__(self, value: Any, scale: Any = 1) -> None:
        self.value, self.scale = value, scale

    def tree_flatten(self) -> Any:
        return [self.value], self.scale

    @classmethod
    def tree_unflatten(cls, scale: Any, children: Any) -> Box:
        return cls(*children, scale)

    @stax.jit
    def times(self, x: Any) -> Any:
        return self.value * self.scale * x

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and bool(self.value == other.value)


class Calls:
    """How many calls were slow."""

    slow = 0


@pytest.fixture(params=["native", "python"])
def calls(request, monkeypatch) -> Calls:
    """Counts the slow calls of functions that are jitted in the test."""
    if request.param == "python":
        monkeypatch.setattr(entry_module.dispatcher, "available", lambda: False)
    elif not dispatcher.available():
        pytest.skip("no native calls in this interpreter")
    counted, call = Calls(), _Specializer.call

    def count(self, /, *args, **kwargs):
        counted.slow += 1
        return call(self, *args, **kwargs)

    monkeypatch.setattr(_Specializer, "call", count)
    counted.native = request.param == "native"
    return counted


def arrays(count: int) -> list[Any]:
    return [snp.arange(3.0) + i for i in range(count)]


def plus_one(tree: Any) -> Any:
    return stax.tree_util.tree_map(lambda x: x + 1, tree)


def alike(a: Any, b: Any) -> None:
    """Check structure, values, types and the order of dictionaries."""
    assert stax.tree_util.tree_structure(a) == stax.tree_util.tree_structure(b)
    assert repr(a) == repr(b)


x, y, z = snp.arange(3.0), snp.ones((2, 2)), snp.asarray(7)
STRUCTURES = {
    "leaf": x,
    "dict": {"b": x, "a": {"d": y, "c": z}},
    "numbers as keys": {2: x, 1: y},
    "empty": {"a": {}, "b": [], "c": (), "d": x, "e": None},
    "sequences": [(x, [y]), [z], (x,)],
    "none": (None, x, [None]),
    "named tuple": {"p": Pair(x, Pair([y], None))},
    "ordered": OrderedDict(b=x, a=y),
    "default": defaultdict(list, b=x, a=[y, z]),
    "dataclass": [Layer(x, y), Layer(z, {"a": x}, "other")],
    "class": {"a": [Layer(x, Pair(y, z)), OrderedDict(a=x)]},
    "many": {f"p{i}": {"w": x, "b": (y, z)} for i in range(40)},
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures(calls, name) -> None:
    tree = STRUCTURES[name]
    f = stax.jit(plus_one)
    want = f(tree)
    for _ in range(2):
        alike(f(tree), want)
    assert calls.slow == 1 or not calls.native
    keyed = stax.jit(lambda *, a, b: (b, plus_one(a)))
    first = keyed(a=tree, b=x)
    alike(keyed(b=x, a=tree), first)


def test_one_variant_for_each_structure(calls) -> None:
    f = stax.jit(plus_one)
    trees = [
        {"a": x, "b": y}, {"a": x, "c": y}, {"a": x}, {"a": x, "b": y, "c": z}, {"a": y, "b": x},
        OrderedDict(a=x, b=y), OrderedDict(b=y, a=x), [x, y], (x, y), (x, None), (x, [y]),
        Pair(x, y), Other(x, y), Layer(x, y), Layer(x, y, "other"), x, [x], (x,), None, (),
        {"a": z, "b": y}, {"a": z + 1, "b": y}, {"a": x.astype(int), "b": y},
        {"a": snp.float32(7), "b": y},
    ]  # fmt: skip
    for _ in range(3):
        for tree in trees:
            alike(f(tree), plus_one(tree))
    assert calls.slow == len(trees) - 1 or not calls.native
    assert len(f.variants()) == len(trees) - 1  # of two types only the values differ
    alike(f({"b": y, "a": x}), plus_one({"a": x, "b": y}))


def test_subclasses_of_containers_are_what_the_tree_says(calls) -> None:
    class Sub(dict):
        pass

    f = stax.jit(plus_one)
    f({"a": x})
    with pytest.raises(stax.errors.ArgumentError, match="Sub"):
        f(Sub(a=x))


def test_keywords(calls) -> None:
    f = stax.jit(lambda p, q=2.0, *, r=3.0: p + 10 * q + 100 * r)
    for _ in range(2):
        assert f(x, q=1.0, r=x).tolist() == [10.0, 111.0, 212.0]
        assert f(r=x, q=1.0, p=x).tolist() == [10.0, 111.0, 212.0]
        assert f(x, x).tolist() == [300.0, 311.0, 322.0]
        assert f(x, **{"".join(["", "r"]): x}).tolist() == [20.0, 121.0, 222.0]
    assert calls.slow == 4 or not calls.native
    for bad in ({"s": x}, {"p": x}, {"q": x, "r": x, "s": x}):
        with pytest.raises(TypeError):
            f(x, **bad)
    with pytest.raises(TypeError):
        f()


def test_static_arguments(calls) -> None:
    f = stax.jit(lambda n, a, m=1: a * n + m, static_argnums=0, static_argnames="m")
    for _ in range(2):
        for n, m in ((1, 1), (2, 1), (1.0, 1), (True, 1), (1, 2), (2, 2), (1, 1.0)):
            want = x * n + m
            assert repr(f(n, x, m=m)) == repr(want)
        assert f(3, x).tolist() == [1.0, 4.0, 7.0]
        assert f(3, a=x).tolist() == [1.0, 4.0, 7.0]
    assert calls.slow == 9 or not calls.native
    for bad in ([], {}, [1]):
        with pytest.raises(stax.errors.ArgumentValueError, match="hashable"):
            f(bad, x)


def test_methods(calls) -> None:
    class Model:
        @partial(stax.jit, static_argnums=0)
        def f(self, a: Any, b: Any = 1.0) -> Any:
            return a * 2 + b

        @stax.jit
        @staticmethod
        def g(a: Any) -> Any:
            return a + 1

    model, other = Model(), Model()
    bound = model.f
    for _ in range(2):
        assert model.f(x).tolist() == bound(x).tolist() == other.f(x).tolist() == [1.0, 3.0, 5.0]
        assert model.f(x, b=0.0).tolist() == Model.f(model, x, 0.0).tolist() == [0.0, 2.0, 4.0]
    assert calls.slow == 4 or not calls.native
    assert bound.__self__ is model and bound.__name__ == "f"
    for scale in (1, 2, 1):
        assert Box(x, scale).times(x).tolist() == [0.0, scale, 4.0 * scale]
    assert partial(Box.times, Box(x))(x).tolist() == [0.0, 1.0, 4.0]


def test_numbers(calls) -> None:
    f = stax.jit(lambda a, b: a * b)
    numbers = (2.5, 3, True, -1, float("nan"), 2**31 - 1, -(2**31), False, 1e-50, 2j)
    for _ in range(2):
        for number in numbers:
            for array in (x, z, x > 1):
                alike(f(array, number), array * number)
            alike(f(number, 2.0), snp.asarray(number) * 2.0)
    for big in (2**31, -(2**31) - 1, 2**70):
        with pytest.raises(OverflowError):
            f(x, big)
    with stax.enable_x64(True):
        alike(f(2.5, 3), snp.asarray(2.5) * 3)
        assert f(z, 2**40) == 7 * 2**40
    with pytest.raises(stax.errors.ArgumentError, match="str"):
        f(x, "2")


def numpy_values() -> list[np.ndarray]:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    unaligned = np.empty(13, np.uint8)[1:].view(np.float32)
    unaligned[:] = 1.5
    kinds = ("float64", "int64", "uint8", "bool", "float16", ">f4", "complex64", "int32")
    return [
        base, base.T, base[:, ::2], base[::-1], unaligned, base.view(np.recarray), np.array(2.5),
        np.zeros((0, 3), np.float32), *[base.astype(kind) for kind in kinds], np.float32(3),
        np.int64(3), np.asarray(snp.arange(3)),
    ]  # fmt: skip


def test_numpy_arrays(calls) -> None:
    f = stax.jit(lambda a: {"twice": a + a, "same": a})
    for _ in range(2):
        for value in numpy_values():
            array = snp.asarray(value)
            alike(f(value), {"same": array, "twice": array + array})
    value = np.ones(4, np.float32)
    first = f(value)["same"]
    value[:] = 2.0
    assert first.tolist() == [1.0] * 4 and f(value)["same"].tolist() == [2.0] * 4
    with pytest.raises(stax.errors.StaxError, match="object"):
        f(np.array([None]))


def test_donated_arguments(calls) -> None:
    f = stax.jit(lambda p, s, *, k: (plus_one(p), s * k), donate_argnums=0, donate_argnames="k")
    for _ in range(3):
        a, b, c = arrays(3)
        first, product = f(a, b, k=c)
        assert a.is_deleted() and c.is_deleted() and not b.is_deleted()
        assert first.tolist() == [1.0, 2.0, 3.0] and product.tolist() == [2.0, 6.0, 12.0]
        a, b, c = arrays(3)
        tree = {"a": a, "b": [b, 2.0, np.ones(2, np.float32)]}
        result, product = f(tree, c, k=2.0)
        assert a.is_deleted() and b.is_deleted() and not c.is_deleted()
        assert result["b"][2].tolist() == [2.0, 2.0] and product.tolist() == [4.0, 6.0, 8.0]
        with pytest.raises(stax.errors.DeletedArrayError):
            f(tree, c, k=2.0)
    a, b = arrays(2)
    for p, s, k in (([a, a], b, b), ([a, b], a, 1.0), ([a, b], a, a), ([a], b, a)):
        with pytest.raises(stax.errors.ArgumentValueError, match="twice"):
            f(p, s, k=k)
        assert not a.is_deleted() and not b.is_deleted()


def test_a_failing_program_keeps_what_was_donated(calls) -> None:
    def refuse(a: Any) -> Any:
        if a[0] > 5:
            raise KeyError("too much")
        return a

    f = stax.jit(lambda t: {"r": stax.pure_callback(refuse, t["a"], t["a"])}, donate_argnums=0)
    for _ in range(2):
        assert f({"a": snp.ones(3)})["r"].tolist() == [1.0] * 3
    large = {"a": snp.full(3, 7.0)}
    with pytest.raises(KeyError, match="too much"):
        f(large)
    assert not large["a"].is_deleted()


def test_calls_inside_a_trace_are_part_of_it(calls, capsys) -> None:
    @stax.jit
    def inner(a: Any) -> Any:
        stax.debug.print("ran {}", a[0])
        return a + 1

    for _ in range(2):
        inner(x)
    outer = stax.jit(lambda a: a + inner(x))
    for _ in range(3):
        assert outer(x).tolist() == [1.0, 3.0, 5.0]
    assert capsys.readouterr().out.count("ran") == 5


def test_exceptions_of_a_users_class(calls) -> None:
    class Angry(Box):
        fails = False

        def tree_flatten(self) -> Any:
            if self.fails:
                raise KeyError("no")
            return super().tree_flatten()

    stax.tree_util.register_pytree_node_class(Angry)
    f = stax.jit(lambda box: box)
    box = Angry(x)
    for _ in range(2):
        assert f(box).value.tolist() == x.tolist()
    box.fails = True
    with pytest.raises(KeyError, match="no"):
        f(box)


def test_nothing_leaks(calls) -> None:
    f = stax.jit(
        lambda t, n, s=1: ({"b": t, "a": [t["x"] * n, Pair(t["x"], None)]}, s),
        static_argnames="s",
        donate_argnums=1,
    )
    keys = ("x", "".join(["long", "key"]))
    tree = {keys[0]: x, keys[1]: Layer(y, Box(z))}
    static = ("static", 3)
    numpy_value = np.ones(3, np.float32)
    watched = (x, y, z, tree, tree[keys[1]], *keys, static, numpy_value, Pair, Layer, Box, x.type)

    def many(count: int) -> None:
        for _ in range(count):
            f(tree, 2.5)
            f(tree, numpy_value)
            f(tree, n=2)
            f({**tree, keys[0]: numpy_value}, x * 1.0)
        for bad in ((tree,), ({}, 1.0), ({**tree, "more": None}, "text")):
            with pytest.raises(Exception):  # noqa: B017
                f(*bad)

    many(20)
    gc.collect()
    counts = list(map(sys.getrefcount, watched))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    many(500)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert list(map(sys.getrefcount, watched)) == counts
    assert grown < 100_000


def test_containers_may_change_while_the_program_runs(calls) -> None:
    f = stax.jit(lambda t: {"sum": t["big"] @ t["big"], "rest": t["list"]})
    big, stop = snp.ones((300, 300)), threading.Event()
    tree = {"big": big, "list": [big, big]}
    want = f(tree)

    def change() -> None:
        while not stop.is_set():
            tree["list"].append(big * 1)
            tree["big"] = big + 0
            tree["list"].pop(0)

    worker = threading.Thread(target=change)
    worker.start()
    try:
        for _ in range(60):
            assert f(tree)["sum"][0, 0] == want["sum"][0, 0]
    finally:
        stop.set()
        worker.join()
