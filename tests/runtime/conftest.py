"""Hand-written programs in LLVM IR, as the compiler would emit them, and a way to run a script in a
fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from stax.runtime import libraries
from stax.runtime.engine import CompiledModule, compile_module

_SIGNATURE = "(ptr %context, ptr %inputs, ptr %outputs, ptr %extents)"

PROGRAMS = f"""
; outputs[0][i] = inputs[0][i] + inputs[1][i] over eight float32
define i32 @add8{_SIGNATURE} {{
  %x.p = load ptr, ptr %inputs
  %y.pp = getelementptr ptr, ptr %inputs, i64 1
  %y.p = load ptr, ptr %y.pp
  %z.p = load ptr, ptr %outputs
  %x = load <8 x float>, ptr %x.p, align 4
  %y = load <8 x float>, ptr %y.p, align 4
  %z = fadd <8 x float> %x, %y
  store <8 x float> %z, ptr %z.p, align 4
  ret i32 0
}}

; outputs[0][i] = the pointer outputs[1], which is the arena; outputs[0] is one int64
define i32 @arena_address{_SIGNATURE} {{
  %z.p = load ptr, ptr %outputs
  %a.pp = getelementptr ptr, ptr %outputs, i64 1
  %a.p = load ptr, ptr %a.pp
  %a = ptrtoint ptr %a.p to i64
  store i64 %a, ptr %z.p, align 8
  store i64 -1, ptr %a.p, align 8
  ret i32 0
}}

; outputs[0][i] += 1 for i below extents[0] (int64), as a parallel loop in tasks of extents[1]
define void @count(ptr %buffers, ptr %extents, i64 %begin, i64 %end) {{
entry:
  %p = load ptr, ptr %buffers
  br label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %x.p = getelementptr i64, ptr %p, i64 %i
  store i64 %i, ptr %x.p, align 8
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
define i32 @parallel_count{_SIGNATURE} {{
  %f.pp = getelementptr ptr, ptr %context, i64 {libraries.slot("parallel_for")}
  %f = load ptr, ptr %f.pp
  %n = load i64, ptr %extents
  %grain.p = getelementptr i64, ptr %extents, i64 1
  %grain = load i64, ptr %grain.p
  call void %f(ptr @count, ptr %outputs, ptr %extents, i64 %n, i64 %grain)
  ret i32 0
}}

define i32 @fail{_SIGNATURE} {{
  ret i32 7
}}

declare i32 @usleep(i32)
; waits until inputs[0][0] (int64) is not 0; status 1 after two seconds
define i32 @wait{_SIGNATURE} {{
entry:
  %flag.p = load ptr, ptr %inputs
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%next, %again]
  %flag = load atomic i64, ptr %flag.p acquire, align 8
  %set = icmp ne i64 %flag, 0
  br i1 %set, label %exit, label %again
again:
  %r = call i32 @usleep(i32 1000)
  %next = add i32 %i, 1
  %patient = icmp slt i32 %next, 2000
  br i1 %patient, label %loop, label %exit
exit:
  %status = phi i32 [0, %loop], [1, %again]
  ret i32 %status
}}

; runs until a signal handler raises
define i32 @forever{_SIGNATURE} {{
entry:
  %poll.pp = getelementptr ptr, ptr %context, i64 {libraries.slot("poll")}
  %poll = load ptr, ptr %poll.pp
  br label %loop
loop:
  %raised = call i32 %poll()
  %stop = icmp ne i32 %raised, 0
  br i1 %stop, label %exit, label %loop
exit:
  ret i32 -1
}}

; outputs[0] = inputs[0] @ inputs[1]; the extents are the descriptor
define i32 @product{_SIGNATURE} {{
  %f.pp = getelementptr ptr, ptr %context, i64 {libraries.slot("gemm_f32")}
  %f = load ptr, ptr %f.pp
  %x = load ptr, ptr %inputs
  %y.pp = getelementptr ptr, ptr %inputs, i64 1
  %y = load ptr, ptr %y.pp
  %z = load ptr, ptr %outputs
  call void %f(ptr %x, ptr %y, ptr %z, ptr %extents)
  ret i32 0
}}

; touches nothing
define i32 @nothing{_SIGNATURE} {{
  ret i32 0
}}
"""

_NAMES = (
    "add8", "arena_address", "count", "parallel_count", "fail", "wait", "forever", "product",
    "nothing",
)  # fmt: skip


@dataclass(eq=False)
class Type:
    """Stands for an array type: compared by identity, as interned types are."""

    shape: tuple[int, ...]
    dtype: Any = "float32"

    def __post_init__(self) -> None:
        self.dtype = np.dtype(self.dtype)


@pytest.fixture(scope="session")
def programs() -> CompiledModule:
    libraries.require("parallel_for", "poll", "gemm_f32")
    return compile_module(PROGRAMS, _NAMES)


@pytest.fixture
def type_of() -> type[Type]:
    return Type


@pytest.fixture
def run_script() -> Callable[..., str]:
    """Run source in a fresh interpreter with extra environment variables; returns its output."""

    def run(source: str, **environment: str) -> str:
        result = subprocess.run(
            [sys.executable, "-c", source],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    return run
