"""Division of many by one: the quotient by a value that all lanes share, without a divider.

A processor divides a vector in the time of some twenty multiplications.  Where the divisor does not
depend on the vector loop, its reciprocal is computed once outside of it, and a quotient takes four
fused operations.  It is the correctly rounded one, the same as by division (P. Markstein,
Computation of elementary functions on the IBM RISC System/6000, 1990): if y is 1 / c rounded to
nearest, q is x / c with an error below one unit in the last place, and r = x - q c is exact, then
q + r y, rounded once, is x / c rounded to nearest.  Such a q is x times 1 / c in two words.

That holds as long as nothing overflows or is rounded as a subnormal number.  Vectors with an
element out of a range in which that is certain, with an infinity or a NaN, and all vectors where
the divisor is not in a range of its own, take a branch to a division.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stax.lowering.decisions import decided
from stax.lowering.llvm_writer import REGISTER, Value, Writer, vector_type
from stax.types import bool_, int32, int64


class _Format(NamedTuple):
    """A floating-point format, and the powers of two between which x and c have to lie.

    r is a multiple of 2^-p x / 2^p, so that is the least x whose r is no subnormal number.
    """

    integer: Any
    precision: int
    least: int
    greatest: int
    divisor: int


# Bytes of a vector; dividers of narrower ones are hardly slower than what replaces them.
WIDE = 64
# Vectors of a loop that it is worth taking 1 / c outside of, at least: the divider works on a short
# row while the next one is begun.
_TRIPS = 32
# Where there is more else to do, the divider works meanwhile.
_OPERATIONS = 8
_FORMATS = {
    "float": _Format(int32, 24, -100, 100, 25),
    "double": _Format(int64, 53, -900, 900, 100),
}


def is_shared(w: Writer, x: Value, y: Value) -> bool:
    """Say whether `x / y` is the division of a vector by one value from outside of the loop."""
    if w.vector_bytes < WIDE or REGISTER[x.dtype] not in _FORMATS:
        return False
    is_inside = x.lanes == w.lanes > 1 and x.level == w.depth and y.lanes == 1
    if w.operations > _OPERATIONS:
        return False
    if y.is_constant:
        return is_inside and not _is_power_of_two(y) and _is_in_range(y)
    return is_inside and y.level < w.depth and w.trips >= _TRIPS


def divide_by_shared(w: Writer, x: Value, y: Value) -> Value:
    """Give `x / y`, correctly rounded, where `is_shared` holds."""
    memo = w.levels[-1].memo
    key = ("quotient", x.text, y.text)
    if key not in memo:
        decided("division of many by one: by its reciprocal, with the bits of a division")
        fast = _quotient(w, x, y)
        branch = w.open_branch(_is_special(w, x, y))
        slow = w.binary("fdiv", x, y)
        first = w.other_branch(branch)
        (memo[key],) = w.close_branch(branch, first, [(slow, fast)])
    found: Value = memo[key]
    return found


def _quotient(w: Writer, x: Value, y: Value) -> Value:
    nearest, high, low = _reciprocal(w, y)
    q = _fma(w, x, high, w.binary("fmul", x, low))
    rest = _fma(w, w.op(f"fneg {q}", q.dtype, q.lanes, q.level), y, x)
    q = _fma(w, rest, nearest, q)
    # A zero has lost its sign; the divisor is positive.
    return _call(w, "copysign", q, x)


def _reciprocal(w: Writer, y: Value) -> tuple[Value, Value, Value]:
    """Give 1 / y rounded to nearest, and 1 / y in two words."""
    one = Value("0x3FF0000000000000", y.dtype, 1, 0)
    high = w.binary("fdiv", one, y)
    negative = w.op(f"fneg {y}", y.dtype, 1, y.level)
    return high, high, w.binary("fmul", _fma(w, negative, high, one), high)


def _is_special(w: Writer, x: Value, y: Value) -> Value:
    """Give whether the quotient of any lane needs the divider."""
    form = _FORMATS[REGISTER[x.dtype]]
    outside = _is_outside(w, x, form, form.least, form.greatest)
    zero = Value("0x0000000000000000", x.dtype, 1, 0)
    some = w.binary("and", outside, _compared(w, "fcmp une", x, w.splat(zero, x.lanes)))
    bits = w.op(f"bitcast {some} to i{x.lanes}", bool_, 1, x.level).text
    special = w.op(f"icmp ne i{x.lanes} {bits}, 0", bool_, 1, x.level)
    if y.is_constant:
        return special
    negative = _compared(w, "fcmp ole", y, zero)
    unfit = w.binary("or", negative, _is_outside(w, y, form, -form.divisor, form.divisor))
    return w.binary("or", special, unfit)


def _is_outside(w: Writer, x: Value, form: _Format, least: int, greatest: int) -> Value:
    """Give whether |x| is not from 2^least to 2^greatest: one comparison, without the sign bit."""
    mantissa = form.precision - 1
    bias = (1 << (8 * form.integer.itemsize - 2 - mantissa)) - 1
    kind = vector_type(REGISTER[form.integer], x.lanes)
    bits = w.op(f"bitcast {x} to {kind}", form.integer, x.lanes, x.level)
    double = w.binary("add", bits, bits)
    low = w.binary("sub", double, _integer(form, (least + bias) << (mantissa + 1)))
    limit = w.splat(_integer(form, (greatest - least) << (mantissa + 1)), x.lanes)
    return _compared(w, "icmp ugt", low, limit)


def _integer(form: _Format, value: int) -> Value:
    bits = 8 * form.integer.itemsize
    signed = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return Value(str(signed), form.integer, 1, 0)


def _compared(w: Writer, instruction: str, x: Value, y: Value) -> Value:
    level = max(x.level, y.level)
    return w.op(f"{instruction} {x}, {y.text}", bool_, x.lanes, level)


def _fma(w: Writer, x: Value, y: Value, z: Value) -> Value:
    return _call(w, "fma", x, y, z)


def _call(w: Writer, name: str, *args: Value) -> Value:
    vectors, lanes, level = w.same_lanes(*args)
    kind = {"float": "f32", "double": "f64"}[REGISTER[args[0].dtype]]
    suffix = kind if lanes == 1 else f"v{lanes}{kind}"
    operands = ", ".join([str(v) for v in vectors])
    line = f"call {vectors[0].type} @llvm.{name}.{suffix}({operands})"
    return w.op(line, vectors[0].dtype, lanes, level)


def _number(y: Value) -> float:
    return float(np.uint64(int(y.text, 16)).view(np.float64))


def _is_power_of_two(y: Value) -> bool:
    """Say whether a constant is one by whose reciprocal LLVM multiplies, which is exact."""
    return math.frexp(_number(y))[0] in (0.5, -0.5)


def _is_in_range(y: Value) -> bool:
    divisor = _FORMATS[REGISTER[y.dtype]].divisor
    return 2.0**-divisor <= _number(y) <= 2.0**divisor
