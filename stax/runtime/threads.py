"""The one native thread pool: a fork-join that generated code calls without going back to Python.

The one idea: a 64-bit ticket, `generation << 32 | tasks left << 16 | taken from the back`. Whoever
takes part, the caller included, claims a task by compare-exchange on the ticket, so the caller
never waits for a worker that claimed nothing, and a busy machine slows a call down but cannot
stall it. The caller takes tasks from the front and workers from the back, so that the next call
over the same arrays finds most of them in the same caches.

Schedulers often wake a worker on its caller's own CPU and leave it there for seconds, with another
CPU idle. So the caller publishes its CPU, and a worker that finds itself on it moves away.

The pool is taken by try-lock: if another thread holds it, or the caller is itself inside a task,
the caller runs everything alone. Workers start at the first parallel call, spin for at most about
50 microseconds after the last task, and then sleep on a futex. Without futexes (not Linux), or
with STAX_POOL=serial or STAX_PORTABLE=1, every call runs on its caller. Workers do not survive
fork(); the child forgets them and starts its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time

from stax.config import choice
from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once
from stax.runtime.portable import is_portable

_SPIN_NANOSECONDS = 50_000
# More tasks than threads even out unequal cores; more than this only costs claims.
_TASKS_PER_THREAD = 16
_MAXIMUM_THREADS = 256

_FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
_PAUSE = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
}
_PAUSE_DECLARATION = {
    "x86_64": "declare void @llvm.x86.sse2.pause()",
    "aarch64": "declare void @llvm.aarch64.hint(i32)",
}

_SERIAL = """
define void @stax_parallel_for(ptr %kernel, ptr %buffers, ptr %extents, i64 %n, i64 %grain) {
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %run, label %done
run:
  call void %kernel(ptr %buffers, ptr %extents, i64 0, i64 %n)
  br label %done
done:
  ret void
}
define i64 @stax_pool_pause(i64 %n) {
  ret i64 %n
}
@stax_pool = global [512 x i8] zeroinitializer, align 64
"""

# Fields of @stax_pool sit on cache lines of their own: settings (line 0), the job (1), the ticket
# all threads contend for (2), the count of finished tasks (3), the wake word and the number of
# sleepers (4), the caller's CPU (5) and the CPUs this process may use (6 and 7). The job is read
# with atomic loads because a slow worker may read it while the next one is being written; its
# compare-exchange then fails and what it read is not used.
_POOL = """
%Pool = type {{ i32, i32, i32, i32, i64, i64, [4 x i64],
               ptr, ptr, ptr, i64, i64, i64, [2 x i64],
               i64, [7 x i64],
               i64, [7 x i64],
               i32, i32, [7 x i64],
               i32, i32, [7 x i64],
               [128 x i8] }}
@stax_pool = global %Pool zeroinitializer, align 64

{pause_declaration}
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)

; All signals but those a fault raises (SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV): they are
; for Python's threads, whose system calls they interrupt.
@signals = internal constant [16 x i64] [
  i64 -1273, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1,
  i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1, i64 -1]

; Fields 0 to 5 are those of _Control; 7 to 12 the job: kernel, buffers, extents, iterations,
; iterations per task, tasks; 14 the ticket, 16 tasks done, 18 the wake word, 19 sleepers, 21 the
; caller's CPU, 24 the allowed CPUs.

define i64 @stax_pool_pause(i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  {pause}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret i64 %next
}}

; Claims and runs tasks until none is left; %back is 0 to take from the front, 1 from the back.
define internal void @drain(i64 %back) noinline {{
entry:
  %ticket.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 14
  %from.back = icmp ne i64 %back, 0
  %step = sub i64 65536, %back
  br label %claim
claim:
  %ticket = load atomic i64, ptr %ticket.p acquire, align 8
  %high = lshr i64 %ticket, 16
  %left = and i64 %high, 65535
  %none = icmp eq i64 %left, 0
  br i1 %none, label %exit, label %read
read:
  %kernel.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 7
  %kernel = load atomic ptr, ptr %kernel.p monotonic, align 8
  %buffers.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 8
  %buffers = load atomic ptr, ptr %buffers.p monotonic, align 8
  %extents.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 9
  %extents = load atomic ptr, ptr %extents.p monotonic, align 8
  %n.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 10
  %n = load atomic i64, ptr %n.p monotonic, align 8
  %grain.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 11
  %grain = load atomic i64, ptr %grain.p monotonic, align 8
  %tasks.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 12
  %tasks = load atomic i64, ptr %tasks.p monotonic, align 8
  %less = sub i64 %ticket, %step
  %claimed = cmpxchg ptr %ticket.p, i64 %ticket, i64 %less acq_rel monotonic, align 8
  %won = extractvalue {{ i64, i1 }} %claimed, 1
  br i1 %won, label %run, label %claim
run:
  %behind = and i64 %ticket, 65535
  %ahead = sub i64 %tasks, %behind
  %last = sub i64 %ahead, 1
  %first = sub i64 %ahead, %left
  %index = select i1 %from.back, i64 %last, i64 %first
  %begin = mul i64 %index, %grain
  %to = add i64 %begin, %grain
  %end = call i64 @llvm.smin.i64(i64 %to, i64 %n)
  call void %kernel(ptr %buffers, ptr %extents, i64 %begin, i64 %end)
  %done.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 16
  %ignored = atomicrmw add ptr %done.p, i64 1 release, align 8
  br label %claim
exit:
  ret void
}}

; Leaves the caller's CPU: restricts this thread to the others. Failure is harmless.
define internal void @move_away() noinline {{
entry:
  %mask = alloca [128 x i8], align 8
  %caller.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 21
  %caller = load atomic i32, ptr %caller.p monotonic, align 4
  %here = call i32 @sched_getcpu()
  %same = icmp eq i32 %here, %caller
  br i1 %same, label %move, label %stay
move:
  %allowed = getelementptr %Pool, ptr @stax_pool, i64 0, i32 24
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr %allowed, i64 128, i1 false)
  %bit = and i32 %caller, 63
  %bit.wide = zext i32 %bit to i64
  %one = shl i64 1, %bit.wide
  %others = xor i64 %one, -1
  %index = lshr i32 %caller, 6
  %word.p = getelementptr i64, ptr %mask, i32 %index
  %word = load i64, ptr %word.p
  %cleared = and i64 %word, %others
  store i64 %cleared, ptr %word.p
  %r = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  ret void
stay:
  ret void
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; A worker: move away, drain, spin on the wake word, sleep until it changes.
define internal ptr @worker(ptr %unused) {{
entry:
  %wake.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 18
  %sleepers.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 19
  %limit.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 4
  ; SIG_SETMASK
  %masked = call i32 @pthread_sigmask(i32 2, ptr @signals, ptr null)
  br label %again
again:
  %seen = load atomic i32, ptr %wake.p seq_cst, align 4
  call void @move_away()
  call void @drain(i64 1)
  %limit = load atomic i64, ptr %limit.p monotonic, align 8
  br label %spin
spin:
  %i = phi i64 [0, %again], [%next, %still]
  %now = load atomic i32, ptr %wake.p acquire, align 4
  %changed = icmp ne i32 %now, %seen
  br i1 %changed, label %again, label %still
still:
  {pause}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %limit
  br i1 %more, label %spin, label %sleep
sleep:
  %up = atomicrmw add ptr %sleepers.p, i32 1 seq_cst, align 4
  ; FUTEX_WAIT | FUTEX_PRIVATE_FLAG: returns at once if the word is no longer what was seen.
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %wake.p, i32 128, i32 %seen, ptr null)
  %down = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst, align 4
  br label %again
}}

; Starts the workers that are missing. A thread that cannot be created is done without.
define internal void @start(i32 %wanted) noinline cold {{
entry:
  %handle = alloca i64
  %started.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 2
  br label %loop
loop:
  %i = phi i32 [1, %entry], [%next, %made]
  %more = icmp slt i32 %i, %wanted
  br i1 %more, label %make, label %exit
make:
  %failed = call i32 @pthread_create(ptr %handle, ptr null, ptr @worker, ptr null)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %exit
made:
  %thread = load i64, ptr %handle
  %ignored = call i32 @pthread_detach(i64 %thread)
  %next = add i32 %i, 1
  br label %loop
exit:
  store atomic i32 %wanted, ptr %started.p release, align 4
  ret void
}}

define void @stax_parallel_for(ptr %kernel, ptr %buffers, ptr %extents, i64 %n, i64 %grain) {{
entry:
  %wanted.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 1
  %wanted = load atomic i32, ptr %wanted.p monotonic, align 4
  %alone = icmp slt i32 %wanted, 2
  %small = icmp sle i64 %n, %grain
  %serial = or i1 %alone, %small
  br i1 %serial, label %caller, label %try
try:
  %taken = cmpxchg ptr @stax_pool, i32 0, i32 1 acquire monotonic, align 4
  %got = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %got, label %publish, label %caller
caller:
  %some = icmp sgt i64 %n, 0
  br i1 %some, label %all, label %nothing
all:
  call void %kernel(ptr %buffers, ptr %extents, i64 0, i64 %n)
  ret void
nothing:
  ret void

publish:
  %cpu.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 21
  %cpu = call i32 @sched_getcpu()
  store atomic i32 %cpu, ptr %cpu.p monotonic, align 4
  %started.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 2
  %started = load atomic i32, ptr %started.p acquire, align 4
  %ready = icmp eq i32 %started, %wanted
  br i1 %ready, label %job, label %launch
launch:
  call void @start(i32 %wanted)
  br label %job
job:
  %per.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 5
  %per = load atomic i64, ptr %per.p monotonic, align 8
  %wide = sext i32 %wanted to i64
  %most = mul i64 %per, %wide
  %n.up = add i64 %n, %most
  %n.less = sub i64 %n.up, 1
  %least = udiv i64 %n.less, %most
  %size = call i64 @llvm.smax.i64(i64 %grain, i64 %least)
  %n.size = add i64 %n, %size
  %n.round = sub i64 %n.size, 1
  %tasks = udiv i64 %n.round, %size
  %kernel.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 7
  store atomic ptr %kernel, ptr %kernel.p monotonic, align 8
  %buffers.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 8
  store atomic ptr %buffers, ptr %buffers.p monotonic, align 8
  %extents.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 9
  store atomic ptr %extents, ptr %extents.p monotonic, align 8
  %total.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 10
  store atomic i64 %n, ptr %total.p monotonic, align 8
  %size.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 11
  store atomic i64 %size, ptr %size.p monotonic, align 8
  %tasks.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 12
  store atomic i64 %tasks, ptr %tasks.p monotonic, align 8
  %done.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 16
  store atomic i64 0, ptr %done.p monotonic, align 8
  %ticket.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 14
  %old = load atomic i64, ptr %ticket.p monotonic, align 8
  %generation = and i64 %old, -4294967296
  %following = add i64 %generation, 4294967296
  %all.left = shl i64 %tasks, 16
  %ticket = or i64 %following, %all.left
  store atomic i64 %ticket, ptr %ticket.p release, align 8
  %wake.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 18
  %bumped = atomicrmw add ptr %wake.p, i32 1 seq_cst, align 4
  %sleepers.p = getelementptr %Pool, ptr @stax_pool, i64 0, i32 19
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %asleep = icmp sgt i32 %sleepers, 0
  br i1 %asleep, label %wake, label %help
wake:
  %others = sub i64 %tasks, 1
  %most.woken = zext i32 %sleepers to i64
  %waking = call i64 @llvm.smin.i64(i64 %others, i64 %most.woken)
  %count = trunc i64 %waking to i32
  ; FUTEX_WAKE | FUTEX_PRIVATE_FLAG
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %wake.p, i32 129, i32 %count)
  br label %help

help:
  call void @drain(i64 0)
  br label %join
join:
  %i = phi i64 [0, %help], [%i.next, %wait]
  %done = load atomic i64, ptr %done.p acquire, align 8
  %all.done = icmp eq i64 %done, %tasks
  br i1 %all.done, label %release, label %wait.more
wait.more:
  {pause}
  %long = icmp sgt i64 %i, 2000
  br i1 %long, label %yield, label %wait
yield:
  %y = call i32 @sched_yield()
  br label %wait
wait:
  %i.next = add i64 %i, 1
  br label %join
release:
  store atomic i32 0, ptr @stax_pool release, align 4
  ret void
}}
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""


class _Control(ctypes.Structure):
    """The first cache line of @stax_pool, as Python writes it."""

    _fields_ = (
        ("lock", ctypes.c_int32),
        ("wanted", ctypes.c_int32),
        ("started", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("spin_limit", ctypes.c_int64),
        ("tasks_per_thread", ctypes.c_int64),
    )


_TICKET_OFFSET, _SLEEPERS_OFFSET, _CPUS_OFFSET = 128, 256 + 4, 384
_CPUS_BYTES = 128


def num_threads() -> int:
    """How many threads take part in a parallel call: the CPUs this process may use, at most
    STAX_NUM_THREADS."""
    if hasattr(os, "sched_getaffinity"):
        available = len(os.sched_getaffinity(0))
    else:
        available = os.cpu_count() or 1
    limit = os.environ.get("STAX_NUM_THREADS")
    if limit is None:
        return min(available, _MAXIMUM_THREADS)
    if not limit.isdecimal() or int(limit) < 1:
        raise ValueError(f"STAX_NUM_THREADS must be a whole number of at least 1, got {limit!r}")
    return min(available, int(limit), _MAXIMUM_THREADS)


def _uses_futex() -> bool:
    wanted = choice("STAX_POOL", ("futex", "serial")) == "futex"
    supported = sys.platform == "linux" and platform.machine() in _PAUSE
    return supported and wanted and not is_portable()


class _Pool:
    """The compiled pool and its control words."""

    def __init__(self) -> None:
        names = ("stax_parallel_for", "stax_pool", "stax_pool_pause")
        # Workers run this code until the process ends.
        self.module: CompiledModule = compile_module(
            self._text(), names, optimize=False
        ).keep_forever()
        self.address = self.module.address("stax_parallel_for")
        self.state = self.module.address("stax_pool")
        self.control = _Control.from_address(self.state)
        self.control.wanted = num_threads() if _uses_futex() else 1
        self.control.tasks_per_thread = _TASKS_PER_THREAD
        self.control.spin_limit = self._pauses(_SPIN_NANOSECONDS)
        if hasattr(os, "sched_getaffinity"):
            self._publish_cpus()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_workers)

    @staticmethod
    def _text() -> str:
        if not _uses_futex():
            return _SERIAL
        machine = platform.machine()
        return _POOL.format(
            pause=_PAUSE[machine],
            pause_declaration=_PAUSE_DECLARATION[machine],
            futex=_FUTEX_SYSCALL[machine],
        )

    def _publish_cpus(self) -> None:
        bits = sum(1 << cpu for cpu in os.sched_getaffinity(0) if cpu < _CPUS_BYTES * 8)
        mask = bits.to_bytes(_CPUS_BYTES, sys.byteorder)
        ctypes.memmove(self.state + _CPUS_OFFSET, mask, _CPUS_BYTES)

    def _pauses(self, nanoseconds: int) -> int:
        # A pause takes from 5 to 150 ns, depending on the CPU; the shortest of a few measurements
        # is the undisturbed one, and errs towards spinning for less time than allowed.
        address = self.module.address("stax_pool_pause")
        pause = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)
        count, shortest = 1000, 1 << 62
        for _ in range(5):
            begin = time.perf_counter_ns()
            pause(count)
            shortest = min(shortest, time.perf_counter_ns() - begin)
        return max(1, min(nanoseconds * count // max(shortest, 1), 50_000))

    def _forget_workers(self) -> None:
        # In the child of fork() only the forking thread exists: no worker, and no other caller
        # that could hold the lock or sleep.
        ctypes.c_int64.from_address(self.state + _TICKET_OFFSET).value = 0
        ctypes.c_int32.from_address(self.state + _SLEEPERS_OFFSET).value = 0
        self.control.started = 0
        self.control.lock = 0


@once
def _pool() -> _Pool:
    return _Pool()


def parallel_for_address() -> int:
    """The address of `void(void* kernel, void** buffers, int64_t* extents, int64_t n, int64_t
    grain)`: runs kernel(buffers, extents, begin, end) over [0, n) in tasks of `grain` iterations
    or more."""
    return _pool().address


def thread_count_address() -> int:
    """The address of an `int32_t`: how many threads take part in a parallel call."""
    return _pool().state + _Control.wanted.offset


def workers_started() -> int:
    """Native workers running now; 0 before the first parallel call and right after a fork."""
    return max(0, _pool().control.started - 1)
