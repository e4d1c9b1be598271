"""How a long native loop notices Ctrl-C: `poll`, called at loop back-edges.

The one idea: asking the interpreter takes the GIL, so `poll` asks at most every 20 ms and costs a
clock read otherwise. It returns nonzero when a signal handler raised; the exception is then
pending in this thread, and the program must return PYTHON_EXCEPTION at once. Only the program
itself polls, never a kernel: a pool worker would wait for a GIL that its caller may hold.
"""

from __future__ import annotations

import sys

from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once
from stax.runtime.portable import is_portable

OK = 0
PYTHON_EXCEPTION = -1
"""Status of a program that left a Python exception pending. Positive numbers are its own."""

# Coarse clocks: read without a system call, a few milliseconds exact.
_CLOCK = {"linux": 6, "darwin": 5}
_INTERVAL_NANOSECONDS = 20_000_000

_ASK = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
define internal i32 @ask() noinline cold {
  %state = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  call void @PyGILState_Release(i32 %state)
  ret i32 %raised
}
"""

_TIMED = """
declare i32 @clock_gettime(i32, ptr)
@last = internal global i64 0
define i32 @stax_poll() {{
entry:
  %time = alloca {{ i64, i64 }}
  %r = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr {{ i64, i64 }}, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  %last = load atomic i64, ptr @last monotonic, align 8
  %age = sub i64 %now, %last
  %due = icmp ugt i64 %age, {interval}
  br i1 %due, label %ask, label %fine
ask:
  store atomic i64 %now, ptr @last monotonic, align 8
  %raised = call i32 @ask()
  ret i32 %raised
fine:
  ret i32 0
}}
"""

_ALWAYS = """
define i32 @stax_poll() {
  %raised = call i32 @ask()
  ret i32 %raised
}
"""


@once
def _module() -> CompiledModule:
    clock = None if is_portable() else _CLOCK.get(sys.platform)
    body = _ALWAYS if clock is None else _TIMED.format(clock=clock, interval=_INTERVAL_NANOSECONDS)
    return compile_module(_ASK + body, ["stax_poll"], optimize=False).keep_forever()


def poll_address() -> int:
    """The address of `int32_t poll(void)`: 0, or nonzero when a Python exception is pending."""
    return _module().address("stax_poll")
