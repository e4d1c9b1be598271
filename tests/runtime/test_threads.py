"""The pool runs every iteration exactly once, whoever calls it and however often."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest

from stax.runtime import libraries, threads
from stax.runtime.engine import compile_module

INCREMENT = f"""
; buffers[0][i] += 1
define void @increment(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {{
entry:
  %p = load ptr, ptr %buffers
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %x.p = getelementptr i64, ptr %p, i64 %i
  %x = load i64, ptr %x.p
  %y = add i64 %x, 1
  store i64 %y, ptr %x.p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}

; each iteration runs a parallel loop of 64 over its own row: extents[0] is the context's address
define void @nested(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {{
entry:
  %p = load ptr, ptr %buffers
  %context = load ptr, ptr %extents
  %f.pp = getelementptr ptr, ptr %context, i64 {libraries.slot("parallel_for")}
  %f = load ptr, ptr %f.pp
  %row = alloca ptr
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %o = mul i64 %i, 64
  %x.p = getelementptr i64, ptr %p, i64 %o
  store ptr %x.p, ptr %row
  call void %f(ptr @increment, ptr %row, ptr %extents, i64 64, i64 8)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""


class Loops:
    """The kernels above, run through the pool."""

    def __init__(self) -> None:
        libraries.require("parallel_for")
        self.module = compile_module(INCREMENT, ["increment", "nested"])
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)
        self.parallel_for = kind(threads.parallel_for_address())

    def run(self, name: str, x: np.ndarray, n: int, grain: int) -> None:
        buffers = (ctypes.c_void_p * 1)(x.ctypes.data)
        extents = (ctypes.c_void_p * 1)(libraries.context_address())
        self.parallel_for(self.module.address(name), buffers, extents, n, grain)


@pytest.fixture(scope="module")
def loops() -> Loops:
    return Loops()


@pytest.mark.parametrize(
    ("n", "grain"), [(0, 1), (1, 1), (2, 1), (7, 3), (1000, 1), (1000, 1000), (4097, 64)]
)
def test_every_iteration_runs_once(loops: Loops, n: int, grain: int) -> None:
    x = np.zeros(n + 1, np.int64)
    for _ in range(200):
        loops.run("increment", x, n, grain)
    assert (x[:n] == 200).all() and x[n] == 0


def test_two_python_threads_at_once(loops: Loops) -> None:
    arrays = [np.zeros(777, np.int64) for _ in range(3)]

    def work(x: np.ndarray) -> None:
        for _ in range(3000):
            loops.run("increment", x, 777, 5)

    workers = [threading.Thread(target=work, args=(x,)) for x in arrays]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all((x == 3000).all() for x in arrays)


def test_a_task_may_call_the_pool(loops: Loops) -> None:
    x = np.zeros((50, 64), np.int64)
    for _ in range(100):
        loops.run("nested", x, 50, 1)
    assert (x == 100).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_starts_its_own_workers(run_script) -> None:
    source = """
import os
from test_threads import Loops, np, threads
loops, x = Loops(), np.zeros(5000, np.int64)
loops.run("increment", x, 5000, 10)
child = os.fork()
if child == 0:
    assert threads.workers_started() == 0
    for _ in range(100):
        loops.run("increment", x, 5000, 10)
    assert threads.workers_started() == threads.num_threads() - 1
    os._exit(0 if (x == 101).all() else 1)
print(os.waitpid(child, 0)[1])
loops.run("increment", x, 5000, 10)
assert (x == 2).all()
"""
    assert run_script(source, PYTHONPATH=_path()) == "0"


@pytest.mark.parametrize("environment", [{"STAX_POOL": "serial"}, {"STAX_NUM_THREADS": "1"}])
def test_without_workers_the_caller_runs_everything(run_script, environment) -> None:
    source = """
from test_threads import Loops, np, threads
loops, x = Loops(), np.zeros(5000, np.int64)
for _ in range(10):
    loops.run("increment", x, 5000, 10)
    loops.run("increment", x, 0, 10)
print((x == 10).all(), threads.workers_started())
"""
    assert run_script(source, PYTHONPATH=_path(), **environment) == "True 0"


def test_num_threads_follows_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("STAX_NUM_THREADS", "1")
    assert threads.num_threads() == 1
    monkeypatch.setenv("STAX_NUM_THREADS", "none")
    with pytest.raises(ValueError, match="whole number of at least 1"):
        threads.num_threads()


def _path() -> str:
    here = os.path.dirname(__file__)
    return os.pathsep.join([here, os.path.dirname(os.path.dirname(here))])
