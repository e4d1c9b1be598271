"""The entry of a jitted function: what it takes, what it hands on, and that it leaks nothing."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref

import numpy as np
import pytest

from stax.runtime import dispatcher, entry as entry_module
from stax.runtime.call_form import flat_form
from stax.runtime.entry import Entry, PythonEntry, add_variant, make_entry

resource = pytest.importorskip("resource")


class Array:
    """As stax.Array: two slots and weak references."""

    __slots__ = ("__weakref__", "_value", "type")


class SubArray(Array):
    __slots__ = ()


def array(kind, value=1.0) -> Array:
    x = Array()
    x.type, x._value = kind, np.full(kind.shape, value, kind.dtype)
    return x


@pytest.fixture(params=[Entry, PythonEntry])
def make(request, monkeypatch):
    if request.param is Entry and not dispatcher.available():
        pytest.skip("no native calls in this interpreter")
    if request.param is PythonEntry:
        monkeypatch.setattr(entry_module.dispatcher, "available", lambda: False)
    return lambda slow: make_entry(slow, Array)


def add_flat(entry, programs, inputs, outputs, is_tuple=False, **options) -> None:
    form = flat_form(len(inputs), len(outputs), is_tuple)
    add_variant(entry, programs, inputs, outputs, form, **options)


def slow(*arguments: object) -> tuple[str, tuple[object, ...]]:
    return "slow", arguments


def test_hit_and_miss(make, programs, type_of) -> None:
    v, other = type_of((8,)), type_of((8,))
    entry = make(slow)
    x, y = array(v), array(v, 2.0)
    assert entry.call(x, y) == ("slow", (x, y))
    add_flat(entry, programs, [v, v], [v], name="add8")
    z = entry.call(x, y)
    assert type(z) is Array and z.type is v and z._value.tolist() == [3.0] * 8
    assert not z._value.flags.writeable
    assert entry.call(z, z)._value.tolist() == [6.0] * 8
    deleted, unset, view = array(v), Array(), array(v)
    deleted._value, unset.type, view._value = None, v, x._value.view(np.recarray)
    sub = SubArray()
    sub.type, sub._value = v, x._value
    misses = ((), (x,), (x, y, x), (x, 1.0), (x, np.ones(7)), (x, array(other)), (deleted, x))
    for arguments in (*misses, (x, sub), (view, x)):
        assert entry.call(*arguments) == ("slow", arguments)
    if isinstance(entry, Entry):
        assert entry.call(unset, x) == ("slow", (unset, x))


def tree_call(programs, kind, form, count=2, name="add8", **options):
    """A native call of `count` leaves and one result, in the given form."""
    if not dispatcher.available():
        pytest.skip("no native calls in this interpreter")
    entry = Entry(lambda *args, **named: "slow", Array)
    add_variant(entry, programs, [kind] * count, [kind], form, name=name, **options)
    return entry.call


def test_ndarrays_stand_for_arrays_if_they_are_laid_out_alike(programs, type_of) -> None:
    v = type_of((2, 4))
    call = tree_call(programs, v, flat_form(2, 1, False))
    x = np.ones((2, 4), np.float32)
    assert call(x, array(v))._value.tolist() == [[2.0] * 4] * 2
    aligned = np.empty(33, np.uint8)[1:].view(np.float32).reshape(2, 4)
    swapped = x.astype(">f4")
    others = (x.T.copy().T, x[:, ::-1], aligned, swapped, x.view(np.recarray), x.reshape(4, 2))
    for other in (*others, x.astype(np.float64), x.astype(np.int32), x.reshape(8), x[:, :3]):
        assert call(x, other) == "slow"


def test_free_threaded_builds_call_in_python(monkeypatch) -> None:
    monkeypatch.setattr(dispatcher.sysconfig, "get_config_var", lambda name: 1)
    dispatcher.available.cache_clear()
    try:
        assert isinstance(make_entry(slow, Array), PythonEntry)
    finally:
        monkeypatch.undo()
        dispatcher.available.cache_clear()


def test_variants_are_tried_in_order(make, programs, type_of) -> None:
    types = [type_of((8,)) for _ in range(6)]
    entry = make(slow)
    for t in types:
        add_flat(entry, programs, [t, t], [t], name="add8")
    for t in types:
        assert entry.call(array(t), array(t)).type is t


def test_tuples_of_results(make, programs, type_of) -> None:
    v, w, none = type_of((8,)), type_of((2, 3), "int32"), type_of((1,))
    entry = make(slow)
    add_flat(entry, programs, [v], [v, w], is_tuple=True, name="nothing")
    add_flat(entry, programs, [w], [], is_tuple=True, name="nothing")
    add_flat(entry, programs, [none], [w], is_tuple=True, name="nothing")
    first, second = entry.call(array(v))
    assert first.type is v and second.type is w and second._value.shape == (2, 3)
    assert entry.call(array(w)) == () and len(entry.call(array(none))) == 1
    with pytest.raises(ValueError, match="for one result"):
        add_flat(entry, programs, [v], [v, v], name="nothing")


def test_failure_and_exceptions_of_slow(make, programs, type_of) -> None:
    v = type_of((8,))

    def refuse(*arguments: object) -> None:
        raise KeyError(len(arguments))

    entry = make(refuse)
    add_flat(entry, programs, [v], [v], name="fail")
    with pytest.raises(KeyError, match="1"):
        entry.call(array(v))
    with pytest.raises(TypeError, match="keyword"):
        entry.call(x=1)


def test_constants_arena_and_release(make, programs, type_of) -> None:
    v, scalar = type_of((8,)), type_of((), "int64")
    entry = make(slow)
    constant = np.full(8, 5.0, np.float32)
    add_flat(entry, programs, [v], [v], name="add8", constants=[constant], release_gil=True)
    add_flat(entry, programs, [v, v], [scalar], name="arena_address", arena_bytes=100_000)
    del constant
    assert entry.call(array(v))._value.tolist() == [6.0] * 8
    assert int(entry.call(array(v), array(v))._value) % 64 == 0


def test_the_callable_keeps_everything_alive(make, programs, type_of) -> None:
    v = type_of((8,))
    entry = make(lambda *arguments: "slow")
    add_flat(entry, programs, [v, v], [v], name="add8")
    call = entry.call
    del entry
    gc.collect()
    assert call(array(v), array(v)).type is v and call() == "slow"


def test_cycles_through_slow_are_collected(make, programs, type_of) -> None:
    class Jitted:
        def __init__(self) -> None:
            self.call = make(self.slow).call

        def slow(self, *arguments: object) -> str:
            return "slow"

    jitted = Jitted()
    if not hasattr(jitted.call, "__self__"):
        pytest.skip("a plain function")
    watch = weakref.ref(jitted)
    assert jitted.call() == "slow"
    del jitted
    gc.collect()
    assert watch() is None


def test_a_call_may_add_a_variant(make, programs, type_of) -> None:
    v = type_of((8,))

    def compile_and_answer(*arguments: object) -> str:
        add_flat(entry, programs, [v, v], [v], name="add8")
        return "compiled"

    entry = make(compile_and_answer)
    assert entry.call(array(v), array(v)) == "compiled"
    assert entry.call(array(v), array(v)).type is v


def test_nothing_leaks_in_100_000_calls(make, programs, type_of) -> None:
    v, large = type_of((8,)), type_of((1 << 18,))
    entry = make(slow)
    add_flat(entry, programs, [v, v], [v], name="add8")
    add_flat(entry, programs, [v], [v, large], is_tuple=True, name="nothing", release_gil=True)
    add_flat(entry, programs, [v] * 3, [v, v], is_tuple=True, name="fail")
    x, y, call = array(v), array(v), entry.call
    watched = (x, y, v, large, x._value, Array, v.dtype, slow, programs)

    def many(count: int) -> None:
        for _ in range(count):
            call(x, y)
            call(x)
            call(x, y, x)
            call()

    many(100)
    gc.collect()
    counts = [sys.getrefcount(o) for o in watched]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    many(25_000)
    gc.collect()
    assert [sys.getrefcount(o) for o in watched] == counts
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 4096


def test_results_die_with_their_last_reference(make, programs, type_of) -> None:
    v = type_of((8,))
    entry = make(slow)
    add_flat(entry, programs, [v, v], [v], name="add8")
    z = entry.call(array(v), array(v))
    value = z._value
    # A variable and the call's argument; for the value the array as well.
    counts = (sys.getrefcount(z), sys.getrefcount(value))
    assert counts == (2, 3)
    watch = weakref.ref(z)
    del z
    assert watch() is None
    assert value.tolist() == [2.0] * 8


def test_inputs_may_be_deleted_while_the_gil_is_released(make, programs, type_of) -> None:
    if not dispatcher.available():
        pytest.skip("the Python path keeps the GIL")
    flag_type, v = type_of((1,), "int64"), type_of((8,))
    entry = make(slow)
    add_flat(entry, programs, [flag_type, v], [v], name="wait", release_gil=True)
    flag, x = array(flag_type, 0), array(v)
    value = x._value
    alone = sys.getrefcount(value)
    results: list[object] = []
    worker = threading.Thread(target=lambda: results.append(entry.call(flag, x)))
    worker.start()
    # Held once more when the program runs; it waits for two seconds at most.
    while sys.getrefcount(value) == alone and worker.is_alive():
        time.sleep(0.001)
    x._value = None
    held = sys.getrefcount(value)
    flag._value[0] = 1
    worker.join()
    assert (held, sys.getrefcount(value)) == (alone, alone - 1)
    assert type(results[0]) is Array
    assert entry.call(flag, x)[0] == "slow"
