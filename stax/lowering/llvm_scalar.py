"""The scalar functions of the loop IR as LLVM instructions: one spelling each.

`apply` is given values that are scalars or vectors and writes what the contract of each function
says, which differs from LLVM's own rules in few places: integer division never traps, shifts of
any distance are defined, maximum and minimum propagate NaN and keep the first of equals, and a
conversion to an integer saturates.  16-bit floats are float32 values in registers, rounded to
their type after every operation that can leave it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from stax.errors import LoweringError
from stax.lowering import llvm_bits
from stax.lowering.llvm_division import divide_by_shared, is_shared
from stax.lowering.llvm_writer import REGISTER, Value, Writer, lane_numbers, vector_type
from stax.lowering.loop_ir import MATH, identity_value
from stax.types import SHORT_NAMES, bfloat16, bool_, float16, float32, float64, int32

DType = np.dtype[Any]


class MathLibrary(Protocol):
    """Gives the symbol of a function on vectors, whose text the module then contains."""

    def call(self, name: str, dtype: DType, lanes: int) -> str: ...


def is_float(dtype: DType) -> bool:
    return REGISTER[dtype] in ("float", "double")


def is_small_float(dtype: DType) -> bool:
    return dtype in (bfloat16, float16)


def is_signed(dtype: DType) -> bool:
    return dtype.kind == "i"


def bit_width(dtype: DType) -> int:
    return 1 if dtype == bool_ else 8 * dtype.itemsize


# Literals


def literal(value: Any, dtype: DType) -> Value:
    """Spell a constant; floats as the bits of a double, which is exact and reads back exactly."""
    if dtype == bool_:
        return Value("true" if value else "false", dtype, 1, 0)
    if not is_float(dtype):
        sign_bit = 1 << (8 * dtype.itemsize - 1)
        return Value(str(((int(value) + sign_bit) & (2 * sign_bit - 1)) - sign_bit), dtype, 1, 0)
    with np.errstate(over="ignore"):
        rounded = float(np.asarray(value).astype(dtype))
        if is_small_float(dtype) or dtype == float32:
            rounded = float(np.float32(rounded))
    return Value(f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}", dtype, 1, 0)


def identity(op: str, dtype: DType) -> Value:
    """Give the value that leaves every other unchanged under an Update's operation."""
    return literal(identity_value(op, dtype), dtype)


# Intrinsics and rounding


def _suffix(x: Value) -> str:
    element = REGISTER[x.dtype]
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(element, element)
    return short if x.lanes == 1 else f"v{x.lanes}{short}"


def intrinsic(w: Writer, name: str, *args: Value) -> Value:
    """Call an overloaded intrinsic whose result and operands have one type."""
    vectors, lanes, level = w.same_lanes(*args)
    x = vectors[0]
    operands = ", ".join([str(v) for v in vectors])
    return w.op(f"call {x.type} @llvm.{name}.{_suffix(x)}({operands})", x.dtype, lanes, level)


def rounded(w: Writer, x: Value, dtype: DType) -> Value:
    """Round a float32 register value to a 16-bit float type; other types pass."""
    if dtype == float16:
        half = vector_type("half", x.lanes)
        name = w.raw(f"fptrunc {x} to {half}", x.level)
        return w.op(f"fpext {half} {name} to {x.type}", dtype, x.lanes, x.level)
    if dtype == bfloat16:
        return _rounded_to_bfloat16(w, x)
    return x


def _rounded_to_bfloat16(w: Writer, x: Value) -> Value:
    """Round to nearest, ties to even, in integer arithmetic; x86 has no such instruction."""
    bits = w.op(f"bitcast {x} to {vector_type('i32', x.lanes)}", int32, x.lanes, x.level)
    odd = _with(w, "and", _with(w, "lshr", bits, 16), 1)
    up = w.binary("add", bits, _with(w, "add", odd, 0x7FFF))
    kept = _with(w, "and", up, -0x10000)
    value = w.op(f"bitcast {kept} to {x.type}", bfloat16, x.lanes, x.level)
    # The carry could turn a NaN into infinity.
    is_nan = _compare(w, "fcmp uno", x, x)
    return select(w, is_nan, literal(np.nan, bfloat16), value)


def _with(w: Writer, instruction: str, x: Value, constant: int) -> Value:
    return w.binary(instruction, x, Value(str(constant), x.dtype, 1, 0))


# Comparison and choice


def _compare(w: Writer, instruction: str, x: Value, y: Value) -> Value:
    (x, y), lanes, level = w.same_lanes(x, y)
    return w.op(f"{instruction} {x}, {y.text}", bool_, lanes, level)


_ORDER = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


def compare(w: Writer, name: str, x: Value, y: Value) -> Value:
    """Compare by IEEE rules, or as signed or unsigned integers; False is less than True."""
    if is_float(x.dtype):
        return _compare(w, f"fcmp {_ORDER[name]}", x, y)
    if name in ("eq", "ne"):
        return _compare(w, f"icmp {name}", x, y)
    return _compare(w, f"icmp {'s' if is_signed(x.dtype) else 'u'}{name}", x, y)


def select(w: Writer, condition: Value, x: Value, y: Value) -> Value:
    """Choose by lane, or all lanes at once if the condition is a scalar."""
    (x, y), lanes, level = w.same_lanes(x, y)
    if condition.text == "true":
        return x
    if condition.text == "false":
        return y
    if condition.lanes > lanes:
        lanes = condition.lanes
        x, y = w.splat(x, lanes), w.splat(y, lanes)
    level = max(level, condition.level)
    return w.op(f"select {condition}, {x}, {y}", x.dtype, lanes, level)


def _extremum(w: Writer, x: Value, y: Value, order: str) -> Value:
    if x.dtype == bool_:
        return w.binary("or" if order == "gt" else "and", x, y)
    # `y > x ? y : x` is one machine instruction that keeps x on ties and if either is NaN;
    # what is left is the case that only y is.
    chosen = select(w, _compare(w, f"fcmp o{order}", y, x), y, x)
    return select(w, _compare(w, "fcmp uno", y, y), y, chosen)


def maximum(w: Writer, x: Value, y: Value) -> Value:
    if not is_float(x.dtype) and x.dtype != bool_:
        return intrinsic(w, "smax" if is_signed(x.dtype) else "umax", x, y)
    return _extremum(w, x, y, "gt")


def minimum(w: Writer, x: Value, y: Value) -> Value:
    if not is_float(x.dtype) and x.dtype != bool_:
        return intrinsic(w, "smin" if is_signed(x.dtype) else "umin", x, y)
    return _extremum(w, x, y, "lt")


# Arithmetic


def _arithmetic(name: str, on_bool: str) -> Callable[[Writer, Value, Value], Value]:
    def emit(w: Writer, x: Value, y: Value) -> Value:
        if x.dtype == bool_:
            return w.binary(on_bool, x, y)
        if is_float(x.dtype):
            return rounded(w, w.binary("f" + name, x, y), x.dtype)
        return w.binary(name, x, y)

    return emit


def div(w: Writer, x: Value, y: Value) -> Value:
    """Divide; integers toward zero, by 0 giving -1 and of the least number by -1 itself."""
    if is_float(x.dtype):
        quotient = divide_by_shared(w, x, y) if is_shared(w, x, y) else w.binary("fdiv", x, y)
        return rounded(w, quotient, x.dtype)
    if not is_signed(x.dtype):
        zero, divisor = _safe_unsigned(w, y)
        return select(w, zero, literal(-1, x.dtype), w.binary("udiv", x, divisor))
    zero, divisor, is_negation = _safe_divisor(w, y)
    quotient = w.binary("sdiv", x, divisor)
    quotient = select(w, is_negation, w.binary("sub", literal(0, x.dtype), x), quotient)
    return select(w, zero, literal(-1, x.dtype), quotient)


def rem(w: Writer, x: Value, y: Value) -> Value:
    """Give the remainder with the sign of x; integers by 0 give x."""
    if is_float(x.dtype):
        return rounded(w, w.binary("frem", x, y), x.dtype)
    if not is_signed(x.dtype):
        zero, divisor = _safe_unsigned(w, y)
        return select(w, zero, x, w.binary("urem", x, divisor))
    zero, divisor, is_negation = _safe_divisor(w, y)
    remainder = select(w, is_negation, literal(0, x.dtype), w.binary("srem", x, divisor))
    return select(w, zero, x, remainder)


def _safe_unsigned(w: Writer, y: Value) -> tuple[Value, Value]:
    """Give whether y is 0, and y with 0 replaced by 1."""
    if y.is_constant and y.lanes == 1:  # a division by a literal becomes a multiplication
        is_zero = int(y.text) == 0
        return literal(is_zero, bool_), literal(1, y.dtype) if is_zero else y
    zero = compare(w, "eq", y, literal(0, y.dtype))
    return zero, select(w, zero, literal(1, y.dtype), y)


def _safe_divisor(w: Writer, y: Value) -> tuple[Value, Value, Value]:
    """Give whether y is 0, y with 0 and -1 replaced by 1, and whether y is -1."""
    if y.is_constant and y.lanes == 1:
        n = int(y.text)
        divisor = literal(1, y.dtype) if n in (0, -1) else y
        return literal(n == 0, bool_), divisor, literal(n == -1, bool_)
    zero = compare(w, "eq", y, literal(0, y.dtype))
    is_negation = compare(w, "eq", y, literal(-1, y.dtype))
    traps = w.binary("or", zero, is_negation)
    return zero, select(w, traps, literal(1, y.dtype), y), is_negation


def neg(w: Writer, x: Value) -> Value:
    if is_float(x.dtype):
        return w.op(f"fneg {x}", x.dtype, x.lanes, x.level)
    return x if x.dtype == bool_ else w.binary("sub", literal(0, x.dtype), x)


def absolute(w: Writer, x: Value) -> Value:
    if is_float(x.dtype):
        return intrinsic(w, "fabs", x)
    if not is_signed(x.dtype):
        return x
    line = f"call {x.type} @llvm.abs.{_suffix(x)}({x}, i1 false)"
    return w.op(line, x.dtype, x.lanes, x.level)


def sign(w: Writer, x: Value) -> Value:
    """Give -1, 0 or 1 as NumPy does: NaN stays, -0.0 gives 0.0."""
    zero, one = literal(0, x.dtype), literal(1, x.dtype)
    if x.dtype == bool_:
        return x
    positive = compare(w, "gt", x, zero)
    if not is_float(x.dtype):
        below = literal(-1 if is_signed(x.dtype) else 0, x.dtype)
        return select(w, positive, one, select(w, compare(w, "eq", x, zero), zero, below))
    rest = select(w, compare(w, "eq", x, zero), zero, x)
    negative = select(w, compare(w, "lt", x, zero), literal(-1, x.dtype), rest)
    return select(w, positive, one, negative)


def fma(w: Writer, x: Value, y: Value, z: Value) -> Value:
    """Multiply and add; floats round once, which a product or a reduction may ask for."""
    if is_float(x.dtype):
        return rounded(w, intrinsic(w, "fma", x, y, z), x.dtype)
    return w.binary("add", w.binary("mul", x, y), z)


def sqrt(w: Writer, x: Value) -> Value:
    return rounded(w, intrinsic(w, "sqrt", x), x.dtype)


def rsqrt(w: Writer, x: Value) -> Value:
    root = intrinsic(w, "sqrt", x)
    return rounded(w, w.binary("fdiv", literal(1.0, x.dtype), root), x.dtype)


def _to_integral(name: str) -> Callable[[Writer, Value], Value]:
    def emit(w: Writer, x: Value) -> Value:
        return intrinsic(w, name, x) if is_float(x.dtype) else x

    return emit


def is_finite(w: Writer, x: Value) -> Value:
    if not is_float(x.dtype):
        return literal(True, bool_)
    infinity = literal(np.inf, x.dtype)
    return _compare(w, "fcmp olt", intrinsic(w, "fabs", x), infinity)


# Bits


def logical_not(w: Writer, x: Value) -> Value:
    return w.binary("xor", x, literal(True if x.dtype == bool_ else -1, x.dtype))


def _shift(instruction: str) -> Callable[[Writer, Value, Value], Value]:
    def emit(w: Writer, x: Value, y: Value) -> Value:
        width = bit_width(x.dtype)
        if y.is_constant and y.lanes == 1 and 0 <= int(y.text) < width:
            return w.binary(instruction, x, y)
        # A distance out of range is poison to LLVM; as an unsigned number a negative one is big.
        if instruction == "ashr":
            return w.binary("ashr", x, intrinsic(w, "umin", y, literal(width - 1, y.dtype)))
        in_range = _compare(w, "icmp ult", y, literal(width, y.dtype))
        return select(w, in_range, w.binary(instruction, x, y), literal(0, x.dtype))

    return emit


# Conversion


def convert(w: Writer, x: Value, dtype: DType) -> Value:
    """Convert as NumPy does, except that float to integer saturates and gives 0 for NaN."""
    if x.dtype == dtype:
        return x
    if dtype == bool_:
        return compare(w, "ne", x, literal(0, x.dtype))
    if x.dtype == bool_:
        if x.is_constant and x.lanes == 1:
            return literal(x.text == "true", dtype)
        if is_float(dtype):
            return select(w, x, literal(1, dtype), literal(0, dtype))
        return _cast(w, "zext", x, dtype)
    if is_float(x.dtype):
        return _float_to_float(w, x, dtype) if is_float(dtype) else _saturated(w, x, dtype)
    if is_float(dtype):
        return rounded(w, _cast(w, "sitofp" if is_signed(x.dtype) else "uitofp", x, dtype), dtype)
    if dtype.itemsize == x.dtype.itemsize:
        return Value(x.text, dtype, x.lanes, x.level)
    if dtype.itemsize < x.dtype.itemsize:
        return _cast(w, "trunc", x, dtype)
    return _cast(w, "sext" if is_signed(x.dtype) else "zext", x, dtype)


def _cast(w: Writer, instruction: str, x: Value, dtype: DType) -> Value:
    to = vector_type(REGISTER[dtype], x.lanes)
    return w.op(f"{instruction} {x} to {to}", dtype, x.lanes, x.level)


def _saturated(w: Writer, x: Value, dtype: DType) -> Value:
    """Truncate a float to an integer within the limits of its type; NaN gives 0.

    LLVM's saturating conversions take vectors apart, and its plain ones are undefined outside of
    the limits, so the float is brought within them first.
    """
    x = x.as_type(float64 if x.dtype == float64 else float32)  # as the limits are
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    is_exact = int(x.dtype.type(high)) == high
    if not is_exact:
        inside = w.binary("and", _within(w, "oge", x, low), _within(w, "olt", x, high + 1))
        found = _truncated(w, select(w, inside, x, literal(0.0, x.dtype)), dtype)
        found = select(w, _within(w, "oge", x, high + 1), literal(high, dtype), found)
        return (
            found if not low else select(w, _within(w, "olt", x, low), literal(low, dtype), found)
        )
    above = select(w, _within(w, "ogt", x, low), x, literal(low, x.dtype))
    between = select(w, _within(w, "olt", above, high), above, literal(high, x.dtype))
    # NaN is not above the lower limit, so where that is 0 it is 0 already.
    if low:
        between = select(w, _compare(w, "fcmp uno", x, x), literal(0.0, x.dtype), between)
    return _truncated(w, between, dtype)


def _within(w: Writer, relation: str, x: Value, limit: int) -> Value:
    return _compare(w, f"fcmp {relation}", x, literal(limit, x.dtype))


def _truncated(w: Writer, x: Value, dtype: DType) -> Value:
    """Convert a float within the limits of an integer type; narrow ones by way of int32."""
    wide = dtype if dtype.itemsize >= 4 else int32
    found = _cast(w, "fptosi" if is_signed(wide) else "fptoui", x, wide)
    return found if wide is dtype else _cast(w, "trunc", found, dtype)


def _float_to_float(w: Writer, x: Value, dtype: DType) -> Value:
    if x.dtype == float64:
        if dtype == float16:
            return rounded(w, _double_to_odd_float(w, x), dtype)
        return rounded(w, _cast(w, "fptrunc", x, float32), dtype).as_type(dtype)
    if dtype == float64:
        return _cast(w, "fpext", x, dtype)
    return rounded(w, x, dtype).as_type(dtype)


def _double_to_odd_float(w: Writer, x: Value) -> Value:
    """Round to float32 toward zero, an inexact result to the odd neighbour.

    A second rounding, to float16, is then the right one; rounding twice to nearest is not.
    """
    near = _cast(w, "fptrunc", x, float32)
    back = _cast(w, "fpext", near, float64)
    bits = w.op(f"bitcast {near} to {vector_type('i32', x.lanes)}", int32, x.lanes, x.level)
    away = _compare(w, "fcmp ogt", intrinsic(w, "fabs", back), intrinsic(w, "fabs", x))
    toward_zero = w.binary("sub", bits, convert(w, away, int32))
    inexact = _compare(w, "fcmp one", back, x)
    odd = w.binary("or", toward_zero, convert(w, inexact, int32))
    return w.op(f"bitcast {odd} to {near.type}", float32, x.lanes, x.level)


# Functions of the math library


def math_call(w: Writer, library: MathLibrary, name: str, args: tuple[Value, ...]) -> Value:
    """Call the library's function on whole registers' worth of lanes."""
    vectors, lanes, level = w.same_lanes(*args)
    dtype = vectors[0].dtype
    if not is_float(dtype):
        raise LoweringError(
            f"{name}: no code for {SHORT_NAMES[dtype]} operands.",
            advice="Convert the operands to a floating type first.",
        )
    computed = float64 if dtype == float64 else float32
    widest = w.vector_bytes // computed.itemsize
    if lanes <= widest:
        result = _library_call(w, library, name, vectors, computed, level)
        return rounded(w, result, dtype).as_type(dtype)
    half = lanes // 2
    parts = [
        math_call(w, library, name, tuple([part(w, x, at, half) for x in vectors]))
        for at in (0, half)
    ]
    return joined(w, *parts)


def _library_call(
    w: Writer, library: MathLibrary, name: str, args: Any, dtype: DType, level: int
) -> Value:
    lanes = args[0].lanes
    symbol = library.call(name, dtype, lanes)
    symbol = symbol if symbol.startswith("@") else "@" + symbol
    operands = ", ".join([str(x) for x in args])
    return w.op(f"call {args[0].type} {symbol}({operands})", dtype, lanes, level)


def part(w: Writer, x: Value, at: int, lanes: int) -> Value:
    """Give `lanes` lanes of a vector from lane `at` on."""
    if lanes == 1:
        return w.op(f"extractelement {x}, i64 {at}", x.dtype, 1, x.level)
    mask = lane_numbers("i32", lanes, 1, at)
    line = f"shufflevector {x}, {x.type} poison, <{lanes} x i32> {mask}"
    return w.op(line, x.dtype, lanes, x.level)


def joined(w: Writer, x: Value, y: Value) -> Value:
    """Put the lanes of two vectors side by side."""
    lanes, level = 2 * x.lanes, max(x.level, y.level)
    mask = lane_numbers("i32", lanes)
    return w.op(f"shufflevector {x}, {y}, <{lanes} x i32> {mask}", x.dtype, lanes, level)


_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": _arithmetic("add", "or"),
    "sub": _arithmetic("sub", "xor"),
    "mul": _arithmetic("mul", "and"),
    "div": div,
    "rem": rem,
    "neg": neg,
    "abs": absolute,
    "sign": sign,
    "maximum": maximum,
    "minimum": minimum,
    "fma": fma,
    "floor": _to_integral("floor"),
    "ceil": _to_integral("ceil"),
    "trunc": _to_integral("trunc"),
    "round": _to_integral("roundeven"),
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "is_finite": is_finite,
    "and": lambda w, x, y: w.binary("and", x, y),
    "or": lambda w, x, y: w.binary("or", x, y),
    "xor": lambda w, x, y: w.binary("xor", x, y),
    "not": logical_not,
    "shift_left": _shift("shl"),
    "shift_right_logical": _shift("lshr"),
    "shift_right_arithmetic": _shift("ashr"),
    "population_count": llvm_bits.population_count,
    "clz": llvm_bits.leading_zeros,
    "mulhi": llvm_bits.high_product,
    "select": select,
    # Index arithmetic is not negative, and the unsigned forms are cheaper.
    "floordiv": lambda w, x, y: w.binary("udiv", x, y),
    "mod": lambda w, x, y: w.binary("urem", x, y),
}


def apply(
    w: Writer, library: MathLibrary, name: str, args: tuple[Value, ...], dtype: DType
) -> Value:
    """Write the instructions of a scalar function applied to `args`."""
    emit = _FUNCTIONS.get(name)
    if emit is not None:
        return emit(w, *args)
    if name == "convert":
        return convert(w, args[0], dtype)
    if name == "bitcast":
        return llvm_bits.bitcast(w, args[0], dtype)
    if name in _ORDER:
        return compare(w, name, *args)
    if name in MATH:
        return math_call(w, library, name, args)
    raise LoweringError(f"{name}: the LLVM code generator does not know this scalar function.")
