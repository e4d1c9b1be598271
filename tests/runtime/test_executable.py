"""Programs called over NumPy arrays, natively and in Python."""

from __future__ import annotations

import ctypes
import signal
import threading
import time

import numpy as np
import pytest

from stax.runtime import dispatcher, executable
from stax.runtime.executable import Executable, ProgramError
from stax.runtime.products import DESCRIPTOR


@pytest.fixture(params=["native", "python"], autouse=True)
def path(request, monkeypatch) -> str:
    if request.param == "native":
        if not dispatcher.available():
            pytest.skip("no native calls in this interpreter")
    else:
        monkeypatch.setattr(executable.dispatcher, "available", lambda: False)
    return request.param


def test_results_are_fresh_and_read_only(programs, type_of) -> None:
    v = type_of((8,))
    add = Executable(programs, [v, v], [v], name="add8")
    x = np.arange(8, dtype=np.float32)
    first, second = add([x, x])[0], add([x, first_of(add, x)])[0]
    assert first.tolist() == (2 * x).tolist() and second.tolist() == (3 * x).tolist()
    assert type(first) is np.ndarray and first.dtype == np.float32 and not first.flags.writeable


def first_of(add: Executable, x: np.ndarray) -> np.ndarray:
    return add([x, x])[0]


def test_constants_follow_the_inputs(programs, type_of) -> None:
    v = type_of((8,))
    constant = np.full(8, 10, np.float32)
    add = Executable(programs, [v], [v], name="add8", constants=[constant])
    del constant
    assert add([np.ones(8, np.float32)])[0].tolist() == [11.0] * 8


def test_wrong_inputs_are_refused(programs, type_of) -> None:
    v = type_of((8,))
    add = Executable(programs, [v, v], [v], name="add8")
    x = np.ones(8, np.float32)
    with pytest.raises(TypeError, match="takes 2 arrays, got 1"):
        add([x])
    with pytest.raises(TypeError, match=r"float32\[8\].*got \(float32\[8\], float64\[8\]\)"):
        add([x, x.astype(np.float64)])
    with pytest.raises(TypeError, match=r"float32\[8\] \(strided\)"):
        add([x, np.ones(16, np.float32)[::2]])
    with pytest.raises(TypeError, match="list"):
        add([x, [1.0] * 8])  # type: ignore[list-item]


def test_a_status_is_an_error(programs, type_of) -> None:
    with pytest.raises(ProgramError, match="status 7") as caught:
        Executable(programs, [], [type_of((2,))], name="fail")([])
    assert caught.value.status == 7


@pytest.mark.parametrize("nbytes", [64, 16384, 16385, 5 << 20])
def test_the_arena_is_aligned_scratch_memory(programs, type_of, nbytes: int) -> None:
    run = Executable(programs, [], [type_of((), "int64")], name="arena_address", arena_bytes=nbytes)
    assert int(run([])[0]) % 64 == 0


def test_no_outputs_and_no_inputs(programs) -> None:
    assert Executable(programs, [], [], name="nothing")([]) == []


def test_a_large_result_is_recycled(programs, type_of) -> None:
    large = type_of((1 << 19,), "int64")
    count = Executable(
        programs, [], [large], name="parallel_count", extents=(1 << 19, 1 << 14), release_gil=True
    )
    first = count([])[0]
    assert (first == np.arange(1 << 19)).all() and first.ctypes.data % 64 == 0
    address = first.ctypes.data
    del first
    assert count([])[0].ctypes.data == address


def test_two_threads_share_an_executable(programs, type_of) -> None:
    n = 3000
    count = Executable(
        programs, [], [type_of((n,), "int64")], name="parallel_count", extents=(n, 100),
        release_gil=True,
    )  # fmt: skip
    right: list[bool] = []

    def work() -> None:
        right.append(all((count([])[0] == np.arange(n)).all() for _ in range(500)))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert right == [True] * 3


def test_other_threads_run_while_the_gil_is_released(programs, type_of, path: str) -> None:
    if path == "python":
        pytest.skip("the Python path keeps the GIL")
    wait = Executable(programs, [type_of((1,), "int64")], [], name="wait", release_gil=True)
    flag = np.zeros(1, np.int64)
    results: list[list[np.ndarray]] = []
    worker = threading.Thread(target=lambda: results.append(wait([flag])))
    worker.start()
    # Were the GIL held, this thread could not set the flag before the program gives up.
    flag[0] = 1
    worker.join()
    assert results == [[]]


def test_products_through_the_context(programs, type_of) -> None:
    m, k, n = 150, 70, 90
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    given = {"batch": 1, "inner": 1, "m": m, "n": n, "k": k, "lda": k, "ldb": n, "ldc": n}
    product = Executable(
        programs, [type_of((m, k)), type_of((k, n))], [type_of((m, n))], name="product",
        extents=tuple(given.get(field, 0) for field in DESCRIPTOR),
    )  # fmt: skip
    np.testing.assert_allclose(product([x, y])[0], x @ y, rtol=1e-4, atol=1e-4)


class Stop(Exception):
    pass


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs interval timers")
def test_a_signal_stops_a_loop(programs) -> None:
    def stop(number: int, frame: object) -> None:
        raise Stop

    forever = Executable(programs, [], [], name="forever", release_gil=True)
    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        begin = time.perf_counter()
        with pytest.raises(Stop):
            forever([])
        assert time.perf_counter() - begin < 1.0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def test_addresses_are_enough(programs, type_of) -> None:
    v = type_of((8,))
    add = Executable(programs.address("add8"), [v, v], [v])
    x = np.ones(8, np.float32)
    assert add([x, x])[0].tolist() == [2.0] * 8
    assert ctypes.sizeof(dispatcher.VariantTable) == 23 * 8
