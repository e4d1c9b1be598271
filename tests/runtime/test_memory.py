"""Large results lie in recycled memory: no page faults after the first, nothing lost, nothing
shared between live arrays."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from stax.runtime import memory

resource = pytest.importorskip("resource")
FLOAT = np.dtype(np.float32)
LARGE = (1 << 20,)


@pytest.fixture(autouse=True)
def nothing_held():
    gc.collect()
    memory.trim()
    yield
    memory.trim()


def test_small_arrays_are_numpys_own() -> None:
    x = memory.empty((3, 5), FLOAT)
    assert x.base is None and x.shape == (3, 5) and x.dtype is FLOAT


def test_large_arrays_are_aligned_and_writeable() -> None:
    x = memory.empty((4, 1 << 18), FLOAT)
    assert x.shape == (4, 1 << 18) and x.dtype is FLOAT and x.flags.c_contiguous
    assert x.ctypes.data % 64 == 0 and type(x) is np.ndarray
    x[:] = 1.0
    assert x.sum() == 1 << 20


def test_a_dead_array_is_used_again() -> None:
    x = memory.empty(LARGE, FLOAT)
    address = x.ctypes.data
    del x
    assert memory.held_bytes() >= 4 << 20
    assert memory.empty(LARGE, FLOAT).ctypes.data == address


def test_a_view_keeps_the_block() -> None:
    x = memory.empty(LARGE, FLOAT)
    view = x[10:20].reshape(2, 5)
    del x
    assert memory.held_bytes() == 0
    y = memory.empty(LARGE, FLOAT)
    y[:] = 1.0
    view[:] = 2.0
    assert y[10] == 1.0
    del view
    assert memory.held_bytes() > 0


def test_no_page_faults_after_the_first_call() -> None:
    def faults_of_five_calls() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            memory.empty((64 << 18,), FLOAT).fill(1.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    faults_of_five_calls()
    assert faults_of_five_calls() < 50


def test_held_memory_is_bounded() -> None:
    limit = memory.statistics()["limit"]
    try:
        memory.set_limit(8 << 20)
        arrays = [memory.empty(LARGE, FLOAT) for _ in range(5)]
        del arrays
        assert 0 < memory.held_bytes() <= 8 << 20
        memory.set_limit(0)
        assert memory.held_bytes() == 0
    finally:
        memory.set_limit(limit)


@pytest.mark.parametrize("nbytes", [1, 4096, 4097, 5 << 20, (5 << 20) + 1, 100_000_000])
def test_arenas_hold_what_was_asked(nbytes: int) -> None:
    arena = memory.Arena(nbytes)
    assert arena.address is not None and arena.address % 64 == 0
    np.ctypeslib.as_array((memory.ctypes.c_uint8 * nbytes).from_address(arena.address))[:] = 7


def test_impossible_sizes_raise() -> None:
    with pytest.raises(MemoryError, match="cannot allocate"):
        memory.empty((1 << 45,), FLOAT)


def test_threads_never_share_a_block() -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(300):
            x = memory.empty((1 << 18,), FLOAT)
            x[::4096] = number
            if not (x[::4096] == number).all():
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_memory_that_only_one_list_refers_to() -> None:
    for shape in ((3,), LARGE):
        arrays = [memory.empty(shape, FLOAT)]
        assert memory.is_private(arrays, 0)
        seen = arrays[0][1:]
        assert not memory.is_private(arrays, 0)
        assert not memory.is_private([seen], 0)
        del seen
        assert memory.is_private(arrays, 0)
    assert not memory.is_private([np.frombuffer(bytes(8), FLOAT)], 0)
