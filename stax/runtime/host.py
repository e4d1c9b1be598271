"""Calls from a program back to Python: ops that a library computes, such as Fourier transforms.

The one idea: the ops of a program stand in a table of its own, and the call gives a number, so
object code names nothing of this process.  The call takes the GIL, wraps the buffers as arrays,
evaluates the op and copies the results out; it costs some 10 microseconds beside the op.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stax.lowering.host import HostStep
from stax.lowering.paired import library_op
from stax.op import Op
from stax.operators.callback import HostOp
from stax.runtime.engine import CompiledModule, compile_module
from stax.runtime.once import once


class HostCall(NamedTuple):
    """What is called: an op, the dtypes and shapes of its operands and of the results wanted, and
    the positions of those."""

    op: Op
    operands: tuple[tuple[Any, tuple[int, ...]], ...]
    results: tuple[tuple[Any, tuple[int, ...]], ...]
    wanted: tuple[int, ...]

    @classmethod
    def of(cls, step: HostStep) -> HostCall:
        """Return what a step of a program calls."""
        nodes = [x for _, x in step.results]
        operands, results = (
            tuple((x.type.dtype, x.type.shape) for x in xs) for xs in (step.node.inputs, nodes)
        )
        return cls(step.node.op, operands, results, tuple(i for i, _ in step.results))

    def run(self, buffers: Sequence[int]) -> None:
        """Evaluate the op on memory: addresses of the operands, then of the results."""
        count = len(self.operands)
        arrays = [_array(at, *t) for at, t in zip(buffers[:count], self.operands, strict=True)]
        if isinstance(library_op(self.op), HostOp):
            arrays = [x.copy() for x in arrays]  # which the user's function may keep
        for x in arrays:
            x.flags.writeable = False
        value = self.op.evaluate(*arrays)
        values = value if isinstance(value, tuple | list) else (value,)
        for at, t, i in zip(buffers[count:], self.results, self.wanted, strict=True):
            _array(at, *t)[...] = values[i]


def _array(address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


def _call(ops: tuple[HostCall, ...], number: int, buffers: int) -> None:
    host = ops[number]
    count = len(host.operands) + len(host.results)
    host.run([at or 0 for at in (ctypes.c_void_p * count).from_address(buffers)])


# Takes the GIL, which a program that runs long has released.  An exception stays pending in this
# thread, and the program ends with its status.
_TEXT = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare ptr @PyObject_CallFunction(ptr, ptr, ...)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear()
@stax_host_callable = global ptr null
@format = internal constant [4 x i8] c"OLK\\00"
define i32 @stax_host_call(ptr %ops, i64 %number, ptr %buffers) {
entry:
  %state = call i32 @PyGILState_Ensure()
  ; A kernel may have left one: see REPORTING in vector_math.external.
  call void @PyErr_Clear()
  %callable = load ptr, ptr @stax_host_callable
  %result = call ptr (ptr, ptr, ...) @PyObject_CallFunction(
      ptr %callable, ptr @format, ptr %ops, i64 %number, ptr %buffers)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %exit, label %drop
drop:
  call void @Py_DecRef(ptr %result)
  br label %exit
exit:
  call void @PyGILState_Release(i32 %state)
  %status = select i1 %failed, i32 -1, i32 0
  ret i32 %status
}
"""


@once
def _module() -> CompiledModule:
    names = ["stax_host_call", "stax_host_callable"]
    module = compile_module(_TEXT, names, optimize=False).keep_forever()
    # The function is part of this module, so it lives as long as the process.
    ctypes.c_void_p.from_address(module.address("stax_host_callable")).value = id(_call)
    return module


def host_call_address() -> int:
    """The address of int32_t(PyObject* ops, int64_t number, void** buffers): OK, or
    PYTHON_EXCEPTION."""
    return _module().address("stax_host_call")
