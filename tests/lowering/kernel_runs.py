"""Compile and run kernels of the loop IR in this process, beside their reference."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from stax.lowering.llvm import emit_kernel
from stax.lowering.loop_printer import execute
from stax.runtime.engine import CompiledModule, Target, compile_module, target
from stax.types import float64
from tests.lowering.kernels import Case


class LibmCalls:
    """A math library that leaves each function to LLVM's intrinsics, hence to libm."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}

    def call(self, name: str, dtype: np.dtype[Any], lanes: int) -> str:
        element = {4: "float", 8: "double"}[dtype.itemsize]
        kind = element if lanes == 1 else f"<{lanes} x {element}>"
        suffix = f"f{8 * dtype.itemsize}"
        suffix = suffix if lanes == 1 else f"v{lanes}{suffix}"
        symbol = f"@libm.{name}.{suffix}"
        args = ["%x", "%y"] if name in ("pow", "atan2") else ["%x"]
        operands = ", ".join([f"{kind} {x}" for x in args])
        self.functions[symbol] = (
            f"define internal {kind} {symbol}({operands}) {target().attributes} {{\n"
            f"  %r = call {kind} @llvm.{name}.{suffix}({operands})\n  ret {kind} %r\n}}\n"
        )
        return symbol

    def text(self) -> str:
        return "".join(self.functions.values())


def compiled(case: Case, machine: Target) -> CompiledModule:
    library = LibmCalls()
    text = emit_kernel(case.kernel, library, machine)
    return compile_module(text + library.text(), [case.kernel.name])


def run(module: CompiledModule, case: Case, arrays: list[np.ndarray]) -> None:
    signature = ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
    )
    function = signature(module.address(case.kernel.name))
    pointers = (ctypes.c_void_p * len(arrays))(*[x.ctypes.data for x in arrays])
    extents = (ctypes.c_int64 * max(1, len(case.extents)))(*case.extents)
    # In two parts, as two threads would run it.
    middle = case.trips // 2
    for begin, end in ((0, middle), (middle, case.trips)):
        function(pointers, extents, begin, end)


def guarded_copy(arrays: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Copy arrays into the middle of larger ones, to see writes outside; sharing is kept."""
    copies: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for x in arrays:
        if id(x) not in copies:
            outer = np.full(x.nbytes + 256, 0xA5, np.uint8)
            inner = outer[128 : 128 + x.nbytes].view(x.dtype).reshape(x.shape)
            inner[...] = x
            copies[id(x)] = outer, inner
    return [copies[id(x)][0] for x in arrays], [copies[id(x)][1] for x in arrays]


def check(case: Case, machine: Target, tolerance: float | None = None) -> None:
    """Compare code with the reference: to the bit, or reductions with a tolerance."""
    _, expected = guarded_copy(case.arrays)
    execute(case.kernel, expected, case.extents)
    outer, actual = guarded_copy(case.arrays)
    run(compiled(case, machine), case, actual)
    for name, a, e in zip([b.name for b in case.kernel.params], actual, expected, strict=True):
        if tolerance is None or a.dtype.kind in "biu":
            np.testing.assert_array_equal(as_bits(a), as_bits(e), err_msg=name)
        else:
            x, y = a.astype(float64), e.astype(float64)
            np.testing.assert_allclose(x, y, tolerance, tolerance, err_msg=name)
    for memory in outer:
        assert (memory[:128] == 0xA5).all() and (memory[-128:] == 0xA5).all(), "out of bounds"


def as_bits(x: np.ndarray) -> np.ndarray:
    """Give bit patterns, with all NaNs made one."""
    if x.dtype.kind in "biu":
        return x
    one_nan = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x)
    return one_nan.view(f"u{x.dtype.itemsize}")


def machines() -> list[Any]:
    """The host, and the host held to narrower vectors."""
    host = target()
    widths = [w for w in (16, 32, 64) if w <= host.vector_bytes]
    return [
        pytest.param(Target(host.cpu, host.features, w, host.triple), id=f"{w}-byte")
        for w in widths
    ]
