"""LLVM text becomes callable code, with the vector width of the host or the one asked for."""

from __future__ import annotations

import ctypes
import gc

import pytest

from stax.runtime import engine

ADD = """
define i64 @add(i64 %x, i64 %y) {
  %z = add i64 %x, %y
  ret i64 %z
}
"""


def call(address: int, *arguments: int) -> int:
    kinds = [ctypes.c_int64] * len(arguments)
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)(*arguments)


@pytest.mark.parametrize("optimize", [True, False])
def test_text_to_address(optimize: bool) -> None:
    module = engine.compile_module(ADD, ["add"], optimize=optimize)
    assert call(module.address("add"), 2, 40) == 42


def test_object_code_loads_again() -> None:
    code = engine.emit_object(ADD)
    first, second = engine.load_object(code, ["add"]), engine.load_object(code, ["add"])
    assert first.address("add") != second.address("add")
    del first
    gc.collect()
    assert call(second.address("add"), 1, 2) == 3


def test_unknown_name_says_what_there_is() -> None:
    module = engine.compile_module(ADD, ["add"])
    with pytest.raises(KeyError, match="'sub' is not exported"):
        module.address("sub")


def test_malformed_text_raises() -> None:
    with pytest.raises(RuntimeError, match=r"parsing error|expected"):
        engine.compile_module("define i64 @f( {", ["f"])


def test_libm_and_libc_are_found() -> None:
    text = """
    declare double @cbrt(double)
    define double @root(double %x) {
      %y = call double @cbrt(double %x)
      ret double %y
    }
    """
    module = engine.compile_module(text, ["root"])
    root = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(module.address("root"))
    assert root(27.0) == pytest.approx(3.0)


def test_functions_are_inlined_where_asked() -> None:
    text = """
    define internal i64 @twice(i64 %x) alwaysinline {
      %z = shl i64 %x, 1
      ret i64 %z
    }
    define i64 @four_times(i64 %x) {
      %y = call i64 @twice(i64 %x)
      %z = call i64 @twice(i64 %y)
      ret i64 %z
    }
    """
    listing = engine.assembly(text)
    assert "call" not in listing
    assert call(engine.compile_module(text, ["four_times"]).address("four_times"), 5) == 20


def test_full_width_vectors_are_not_split() -> None:
    target = engine.target()
    lanes = target.vector_bytes // 4
    text = f"""
    define void @f(ptr %p) {target.attributes} {{
      %x = load <{lanes} x float>, ptr %p, align 4
      %y = fadd <{lanes} x float> %x, %x
      store <{lanes} x float> %y, ptr %p, align 4
      ret void
    }}
    """
    assert engine.assembly(text).count("addps") == 1


def test_vector_width_can_be_overridden(run_script) -> None:
    source = "from stax.runtime import engine; t = engine.target(); print(t.vector_bytes)"
    assert run_script(source, STAX_VECTOR_BYTES="16") == "16"
    source = """
from stax.runtime import engine
try:
    engine.target()
except ValueError as error:
    print(error)
"""
    assert "must be 16, 32 or 64" in run_script(source, STAX_VECTOR_BYTES="12")
