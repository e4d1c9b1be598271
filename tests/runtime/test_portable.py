"""The portable path: half precision without instructions for it, and programs in a process."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stax.runtime.engine import compile_module
from stax.runtime.portable import with_halves

_EACH = """
define void @{name}(ptr %x, ptr %y, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %x.p = getelementptr {source}, ptr %x, i64 %i
  %y.p = getelementptr {target}, ptr %y, i64 %i
  %value = load {source}, ptr %x.p
  %result = call {target} @{function}({source} %value)
  store {target} %result, ptr %y.p
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}}
"""


def converted(x: np.ndarray, dtype: type) -> np.ndarray:
    names: dict[Any, str] = {np.float16: "half", np.float32: "float"}
    function = "__truncsfhf2" if dtype is np.float16 else "__extendhfsf2"
    source, target = names[x.dtype.type], names[dtype]
    text = _EACH.format(name="each", source=source, target=target, function=function)
    module = compile_module(with_halves(text), ["each"])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    y: np.ndarray = np.empty(x.shape, dtype)
    kind(module.address("each"))(x.ctypes.data, y.ctypes.data, x.size)
    return y


def test_every_half_is_widened() -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    found, expected = converted(x, np.float32), x.astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


def test_floats_are_rounded_to_halves() -> None:
    near = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    bits = near.view(np.uint32)
    steps = [0, 1, -1, 4095, 4096, 4097, 8191]
    drawn = np.random.default_rng(0).integers(0, 2**32, 300_000, dtype=np.uint32)
    x = np.concatenate([*(bits + np.uint32(s % 2**32) for s in steps), drawn]).view(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float16)
    found = converted(x, np.float16)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


_PROGRAMS = """
import warnings
import numpy as np
import stax
import stax.numpy as snp
from stax.runtime import dispatcher, threads
from stax.runtime.engine import target
from tests.fuzz import fuzz
warnings.simplefilter("error", stax.errors.FallbackWarning)
x = np.random.default_rng(0).normal(size=(65, 33)).astype(np.float32)
programs = [
    lambda x: snp.sin(x) + snp.exp(x) * snp.tanh(x), stax.nn.softmax, lambda x: x @ x.T,
    lambda x: snp.sort(x, 0), lambda x: abs(snp.fft.fft(x)), lambda x: snp.cumsum(x, 1),
    lambda x: (x.astype("float16") * 2).sum(0), lambda x: x.astype("bfloat16") * 3,
    lambda x: stax.random.normal(stax.random.key(0), (50,)) + x[0, 0],
    lambda x: stax.lax.fori_loop(0, 9, lambda i, c: c * 0.5 + i, x),
    stax.grad(lambda x: (stax.nn.gelu(x) ** 2).mean()), lambda x: snp.linalg.inv(x[:9, :9]),
]
for f in programs:
    jitted = stax.jit(f)
    y = f(snp.asarray(x))
    for _ in range(2):
        found, expected = np.asarray(jitted(x), np.float64), np.asarray(y, np.float64)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)
    assert len(jitted.variants()) == 1
assert fuzz(0, 12, 600, "values")[1] == 0
assert not dispatcher.available() and threads.workers_started() == 0
print(target().features == "", target().vector_bytes)
"""


@pytest.mark.parametrize("check", ["none", "bounds"])
def test_programs_on_the_portable_path(run_script: Any, check: str) -> None:
    root = str(Path(__file__).parents[2])
    output = run_script(_PROGRAMS, PYTHONPATH=root, STAX_PORTABLE="1", STAX_CHECK=check)
    assert output == "True 16"
