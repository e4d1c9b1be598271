"""Memory that grows while a program runs, and the error of a loop that takes too many steps.

A loop that records what its steps leave behind does not know how many there will be.  The program
keeps the addresses of such memory in a table of its own and gives it back when it ends, however
that is; here is only what it calls.
"""

from __future__ import annotations

import ctypes

from stax.control.while_loop import Limit
from stax.runtime import memory
from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once

# Both may run without the GIL, so they take it to leave an exception.
_TEXT = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyErr_NoMemory()
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare void @Py_DecRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
@stax_allocate_at = global ptr null
@stax_release_at = global ptr null
@stax_exceeded = global ptr null
@format = internal constant [3 x i8] c"Ls\\00"

define i32 @stax_grow(ptr %slot, i64 %used, i64 %wanted) {
entry:
  %allocate = load ptr, ptr @stax_allocate_at
  %release = load ptr, ptr @stax_release_at
  %new = call ptr %allocate(i64 %wanted)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %no.memory, label %made
no.memory:
  %state = call i32 @PyGILState_Ensure()
  %ignored = call ptr @PyErr_NoMemory()
  call void @PyGILState_Release(i32 %state)
  ret i32 -1
made:
  %old = load ptr, ptr %slot
  store ptr %new, ptr %slot
  %first = icmp eq ptr %old, null
  br i1 %first, label %exit, label %move
move:
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %used, i1 false)
  call void %release(ptr %old)
  br label %exit
exit:
  ret i32 0
}

define i32 @stax_step_limit(i64 %steps, ptr %where) {
entry:
  %state = call i32 @PyGILState_Ensure()
  %callable = load ptr, ptr @stax_exceeded
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(
      ptr %callable, ptr @format, i64 %steps, ptr %where)
  call void @PyGILState_Release(i32 %state)
  ret i32 -1
}
"""


def _exceeded(steps: int, where: str) -> None:
    Limit(steps, steps).exceeded(where)


@once
def _module() -> CompiledModule:
    names = ["stax_grow", "stax_step_limit", "stax_allocate_at", "stax_release_at", "stax_exceeded"]
    module = compile_module(_TEXT, names, optimize=False).keep_forever()
    # The function is part of this module, so it lives as long as the process.
    for name, value in (
        ("stax_allocate_at", memory.allocate_address()),
        ("stax_release_at", memory.release_address()),
        ("stax_exceeded", id(_exceeded)),
    ):
        ctypes.c_void_p.from_address(module.address(name)).value = value
    return module


def grow_address() -> int:
    """The address of int32_t(void** slot, int64_t used, int64_t wanted): makes memory of `wanted`
    bytes with the first `used` of what is at `*slot`, which it takes the place of."""
    return _module().address("stax_grow")


def step_limit_address() -> int:
    """The address of int32_t(int64_t steps, char* where): leaves the error of a loop, on a line of
    the user's, that has not ended after so many steps."""
    return _module().address("stax_step_limit")
