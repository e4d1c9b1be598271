"""The functions of bits in LLVM: reading them as another type, counting them, high products.

16-bit floats are float32 values in registers, so their bits are those of the value rounded to its
type, which it already is; reading them costs a conversion, but loses nothing.
"""

from __future__ import annotations

from typing import Any

from stax.errors import LoweringError
from stax.lowering.llvm_writer import REGISTER, Value, Writer, vector_type
from stax.types import bfloat16, check_dtype, float16, int32

DType = Any
_BITS = {dtype: check_dtype(f"uint{8 * dtype.itemsize}") for dtype in REGISTER}


def bitcast(w: Writer, x: Value, dtype: DType) -> Value:
    """Give the bits of `x` as a value of a type of the same width."""
    if x.dtype.itemsize != dtype.itemsize:
        raise LoweringError(f"bitcast: {x.dtype} and {dtype} differ in width.")
    return _from_bits(w, _as_bits(w, x), dtype)


def _reread(w: Writer, x: Value, dtype: DType) -> Value:
    return w.op(f"bitcast {x} to {vector_type(REGISTER[dtype], x.lanes)}", dtype, x.lanes, x.level)


def _as_bits(w: Writer, x: Value) -> Value:
    bits = _BITS[x.dtype]
    if REGISTER[x.dtype] == REGISTER[bits]:
        return Value(x.text, bits, x.lanes, x.level)
    if x.dtype == float16:
        half = vector_type("half", x.lanes)
        name = w.raw(f"fptrunc {x} to {half}", x.level)
        line = f"bitcast {half} {name} to {vector_type('i16', x.lanes)}"
        return w.op(line, bits, x.lanes, x.level)
    if x.dtype == bfloat16:
        wide = w.binary("lshr", _reread(w, x, int32), Value("16", int32, 1, 0))
        return w.op(f"trunc {wide} to {vector_type('i16', x.lanes)}", bits, x.lanes, x.level)
    return _reread(w, x, bits)


def _from_bits(w: Writer, bits: Value, dtype: DType) -> Value:
    if REGISTER[dtype] == REGISTER[bits.dtype]:
        return Value(bits.text, dtype, bits.lanes, bits.level)
    if dtype == float16:
        half = vector_type("half", bits.lanes)
        name = w.raw(f"bitcast {bits} to {half}", bits.level)
        line = f"fpext {half} {name} to {vector_type('float', bits.lanes)}"
        return w.op(line, dtype, bits.lanes, bits.level)
    if dtype == bfloat16:
        line = f"zext {bits} to {vector_type('i32', bits.lanes)}"
        wide = w.op(line, int32, bits.lanes, bits.level)
        return _reread(w, w.binary("shl", wide, Value("16", int32, 1, 0)), dtype)
    return _reread(w, bits, dtype)


def _intrinsic(w: Writer, name: str, x: Value, flags: str = "") -> Value:
    element = REGISTER[x.dtype]
    suffix = element if x.lanes == 1 else f"v{x.lanes}{element}"
    return w.op(f"call {x.type} @llvm.{name}.{suffix}({x}{flags})", x.dtype, x.lanes, x.level)


def population_count(w: Writer, x: Value) -> Value:
    return _intrinsic(w, "ctpop", x)


def leading_zeros(w: Writer, x: Value) -> Value:
    return _intrinsic(w, "ctlz", x, ", i1 false")


def high_product(w: Writer, x: Value, y: Value) -> Value:
    """Give the high half of a product: all of it in twice the width, shifted down."""
    (x, y), lanes, level = w.same_lanes(x, y)
    bits = 8 * x.dtype.itemsize
    wide = vector_type(f"i{2 * bits}", lanes)
    extend = "sext" if x.dtype.kind == "i" else "zext"
    a, b = (w.raw(f"{extend} {v} to {wide}", level) for v in (x, y))
    product = w.raw(f"mul {wide} {a}, {b}", level)
    distance = str(bits) if lanes == 1 else f"splat (i{2 * bits} {bits})"
    high = w.raw(f"lshr {wide} {product}, {distance}", level)
    return w.op(f"trunc {wide} {high} to {x.type}", x.dtype, lanes, level)
