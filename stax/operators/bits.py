"""Ops on the bits of numbers: counting, reading them as another type, rounding some of them away.

Integers are seen as patterns of bits here, so signed and unsigned ones of a width behave alike but
for the high half of a product.  Ops that read a number's bits as another's keep the width; the
functions `bitcast` and `nextafter` are put together from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.op import Batch, Op
from stax.operators import elementwise as ops
from stax.operators.broadcast import LinearOp, broadcast_in_dim, lead_all, reduce_sum
from stax.operators.elementwise import ROWS, check_same, convert, elementwise, like
from stax.operators.shape import iota
from stax.trace import Proxy, bind, type_of
from stax.types import ArrayType, is_float, is_integer


def unsigned(dtype: Any) -> np.dtype:
    """Return the unsigned integer type that is as wide as `dtype`."""
    return types.check_dtype(f"uint{8 * dtype.itemsize}")


def signed(dtype: Any) -> np.dtype:
    """Return the signed integer type that is as wide as `dtype`."""
    return types.check_dtype(f"int{8 * dtype.itemsize}")


# --- counting and multiplying ---


def _pattern(x: Any) -> np.ndarray:
    x = np.asarray(x)
    return x.view(unsigned(x.dtype))


def _population_count(x: Any) -> np.ndarray:
    return np.asarray(np.bitwise_count(_pattern(x))).astype(x.dtype)


def _leading_zeros(x: Any) -> np.ndarray:
    """Set every bit below the highest that is set; the zeros that are left lead."""
    filled, bits = _pattern(x), 8 * x.dtype.itemsize
    for distance in (1, 2, 4, 8, 16, 32):
        if distance < bits:
            filled = filled | filled >> filled.dtype.type(distance)
    return (bits - np.bitwise_count(filled)).astype(x.dtype)


def _high_product(x: Any, y: Any) -> np.ndarray:
    x, y = np.asarray(x), np.asarray(y)
    bits = 8 * x.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}8")
        return np.asarray(x.astype(wide) * y.astype(wide) >> wide.type(bits)).astype(x.dtype)
    # By halves: of a 64-bit product of 32-bit numbers, one more such number fits on top.
    a, b = _pattern(x), _pattern(y)
    half, low = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & low, b >> half, b & low
    middle = a_high * b_low + (a_low * b_low >> half)
    other = a_low * b_high + (middle & low)
    high = a_high * b_high + (middle >> half) + (other >> half)
    if x.dtype.kind == "i":
        # The top bit counts 2**64 too much: once for each operand that is negative.
        none = np.zeros_like(b)
        high = high - np.where(x < 0, b, none) - np.where(y < 0, a, none)
    return np.asarray(high).view(x.dtype)


population_count = elementwise("population_count", _population_count, None, accepts=is_integer)
clz = elementwise("clz", _leading_zeros, None, accepts=is_integer)
mulhi = elementwise("mulhi", _high_product, None, None, accepts=is_integer)


@dataclass(frozen=True, eq=False)
class Gcd(Op):
    """The greatest common divisor of integers that are not negative, by Stein's method.

    J. Stein, Computational problems associated with Racah algebra, J. Comput. Phys. 1 (1967): of
    two odd numbers, the difference is even, and halving it keeps the divisor.  The product of the
    two is at least halved by each step, so that twice as many steps as bits suffice.
    """

    name: ClassVar[str] = "gcd"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        check_same(self.name, operands)
        x, y = operands
        if not is_integer(x.dtype):
            raise DTypeError(
                f"gcd does not accept {x}.", advice="Convert it to an integer dtype with astype."
            )
        return ArrayType(x.dtype, x.shape, x.weak and y.weak)

    def evaluate(self, *arrays: np.ndarray) -> Any:
        return np.gcd(*arrays)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        pattern = unsigned(operands[0].type.dtype)
        x, y = (kernel.bitcast(v(index), pattern) for v in operands)
        zero, apply = kernel.const(0, pattern), kernel.apply

        def halvings(v: Any) -> Any:
            """The zeros at the end: the ones of what borrows when 1 is taken away."""
            ends = apply("and", apply("sub", v, kernel.const(1, pattern)), apply("not", v))
            return apply("population_count", ends)

        def odd(v: Any) -> Any:
            return apply("shift_right_logical", v, halvings(v))

        twos = halvings(apply("or", x, y))
        a, b = odd(x), y
        for _ in range(16 * pattern.itemsize):
            b = odd(b)
            low, high = apply("minimum", a, b), apply("maximum", a, b)
            # At the end b is 0, and a stays.
            a = apply("select", apply("eq", b, zero), a, low)
            b = apply("select", apply("eq", b, zero), zero, apply("sub", high, low))
        found = apply("shift_left", a, twos)
        rest = apply("select", apply("eq", x, zero), y, x)
        either = apply("or", apply("eq", x, zero), apply("eq", y, zero))
        return kernel.bitcast(apply("select", either, rest, found), operands[0].type.dtype)


def gcd(x: Any, y: Any) -> Any:
    """Return the greatest common divisor of integers that are not negative."""
    return bind(Gcd(), x, y)


# --- bits as another type ---


@dataclass(frozen=True, eq=False)
class Bitcast(Op):
    """The bits of each element, read as a number of another type of the same width."""

    dtype: Any
    name: ClassVar[str] = "bitcast"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if x.dtype.itemsize != self.dtype.itemsize or not (
            _has_bits(x.dtype) and _has_bits(self.dtype)
        ):
            raise DTypeError(
                f"bitcast: {x} cannot be read as {types.SHORT_NAMES[self.dtype]}.",
                advice="Both types must be integers or floating types of one width.",
            )
        return ArrayType(self.dtype, x.shape)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(arrays[0]).reshape(arrays[0].shape).view(self.dtype)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.bitcast(operands[0](index), self.dtype)


def _has_bits(dtype: Any) -> bool:
    return bool(is_integer(dtype) or is_float(dtype))


def bitcast(x: Any, dtype: Any) -> Any:
    """Return the bits of `x` read as `dtype`.

    A narrower type adds an axis at the end, low bits first; a wider one takes the last axis, which
    must have as many elements as make up one.  Raises DTypeError for bool and complex numbers
    (other than to themselves), ArgumentValueError where the last axis does not fit.
    """
    t = type_of(x)
    if t.dtype == dtype:
        return convert(x, dtype)
    ratio = dtype.itemsize // t.dtype.itemsize
    if ratio > 1 and (t.shape[-1] if t.ndim else 1) != ratio:
        raise ArgumentValueError(
            f"bitcast: {t} has no last axis of {ratio} elements to make one {dtype} of.",
            advice=f"Reshape it to (..., {ratio}) first.",
        )
    if not (_has_bits(t.dtype) and _has_bits(dtype)):
        raise DTypeError(
            f"bitcast: {t} cannot be read as {types.SHORT_NAMES[dtype]}.",
            advice="Only integers and floating types have bits of other types.",
        )
    if ratio == 1:
        return bind(Bitcast(dtype), x)
    narrow, wide = unsigned(t.dtype), unsigned(dtype)
    source = x if t.dtype == narrow else bind(Bitcast(narrow), x)
    found = _joined(source, wide) if ratio > 1 else _parted(source, wide)
    return found if wide == dtype else bind(Bitcast(dtype), found)


def _parted(x: Any, narrow: Any) -> Any:
    """Return the parts of unsigned numbers along a new last axis, low bits first."""
    t = type_of(x)
    count, bits = t.dtype.itemsize // narrow.itemsize, 8 * narrow.itemsize
    wide = broadcast_in_dim(x, (*t.shape, count), range(t.ndim))
    return convert(ops.shift_right_logical(wide, _places(wide, bits)), narrow)


def _joined(x: Any, wide: Any) -> Any:
    """Return unsigned numbers whose parts lie along the last axis, low bits first."""
    bits = 8 * type_of(x).dtype.itemsize
    parts = convert(x, wide)
    return reduce_sum(ops.shift_left(parts, _places(parts, bits)), (type_of(parts).ndim - 1,))


def _places(x: Any, bits: int) -> Any:
    """Return how far the part at each place of the last axis is shifted."""
    t = type_of(x)
    number = iota(t.dtype, t.shape, t.ndim - 1)
    return ops.mul(number, like(number, bits))


def nextafter(x: Any, y: Any) -> Any:
    """Return the number beside `x` in the direction of `y`.

    Patterns of bits count up with the magnitude, so the neighbour is the pattern next to it.
    """
    dtype = type_of(x).dtype
    pattern = bitcast(x, signed(dtype))
    one, zero = like(pattern, 1), like(x, 0)
    away = ops.eq(ops.gt(y, x), ops.gt(x, zero))
    beside = ops.select(away, ops.add(pattern, one), ops.sub(pattern, one))
    # From zero the way leads to the least number, of the sign of y.
    sign_bit = like(pattern, np.iinfo(signed(dtype)).min)
    least = ops.or_(ops.and_(bitcast(y, signed(dtype)), sign_bit), one)
    moved = bitcast(ops.select(ops.eq(x, zero), least, beside), dtype)
    ordered = ops.and_(ops.eq(x, x), ops.eq(y, y))
    result = ops.select(ops.eq(x, y), y, moved)
    return convert(
        ops.select(ordered, result, ops.add(x, y)), dtype, type_of(x).weak and type_of(y).weak
    )


def signbit(x: Any) -> Any:
    """Return whether the sign bit of floating numbers is set: also of -0.0 and NaN."""
    pattern = bitcast(x, signed(type_of(x).dtype))
    return ops.lt(pattern, like(pattern, 0))


# --- rounding to fewer bits ---


class _Evaluator:
    """Stands for the `kernel` of a lower rule, on whole arrays."""

    def const(self, value: Any, dtype: Any) -> Any:
        return np.asarray(value).astype(dtype)

    def apply(self, name: str, *args: Any) -> Any:
        return np.where(*args) if name == "select" else ROWS[name].evaluate(*args)

    def bitcast(self, x: Any, dtype: Any) -> Any:
        return x.view(dtype)


@dataclass(frozen=True, eq=False)
class ReducePrecision(LinearOp):
    """Round to a type of so many exponent and mantissa bits, and give the value in the own type.

    Numbers beyond the type's are infinite, and those below its normal ones are zero.
    """

    exponent_bits: int
    mantissa_bits: int
    name: ClassVar[str] = "reduce_precision"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if not is_float(x.dtype):
            raise DTypeError(
                f"reduce_precision takes floating types, not {x}.",
                advice="Convert it with astype first.",
            )
        return x

    def evaluate(self, *arrays: np.ndarray) -> Any:
        x = np.ascontiguousarray(arrays[0]).reshape(arrays[0].shape)
        return self._rounded(_Evaluator(), x, x.dtype)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (bind(self, ct),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        return self._rounded(kernel, x(index), x.type.dtype)

    def _rounded(self, kernel: Any, x: Any, dtype: Any) -> Any:
        """Work on the pattern of bits; shared by evaluation and lowering, so that they agree."""
        pattern, limits = unsigned(dtype), ml_dtypes.finfo(dtype)
        exponent, mantissa = int(limits.nexp), int(limits.nmant)

        def number(value: int) -> Any:
            return kernel.const(value, pattern)

        bits = kernel.bitcast(x, pattern)
        if self.mantissa_bits < mantissa:
            bits = self._cut(kernel.apply, number, bits, mantissa)
        if self.exponent_bits < exponent:
            bits = self._limited(kernel.apply, number, bits, exponent, mantissa)
        return kernel.apply("select", kernel.apply("ne", x, x), x, kernel.bitcast(bits, dtype))

    def _cut(self, apply: Callable[..., Any], number: Any, bits: Any, mantissa: int) -> Any:
        """Round to the nearest number with fewer mantissa bits, to even at a tie."""
        dropped = mantissa - self.mantissa_bits
        odd = apply("and", apply("shift_right_logical", bits, number(dropped)), number(1))
        up = apply("add", bits, apply("add", odd, number((1 << dropped - 1) - 1)))
        return apply("and", up, apply("not", number((1 << dropped) - 1)))

    def _limited(
        self, apply: Callable[..., Any], number: Any, bits: Any, exponent: int, mantissa: int
    ) -> Any:
        """Take numbers with an exponent that is too large to infinity, too small to zero."""
        bias, reduced = (1 << exponent - 1) - 1, (1 << self.exponent_bits - 1) - 1
        infinity = ((1 << exponent) - 1) << mantissa
        found = apply("and", bits, number(infinity))
        sign = apply("and", bits, number(1 << exponent + mantissa))
        overflows = apply("gt", found, number((bias + reduced) << mantissa))
        underflows = apply("le", found, number((bias - reduced) << mantissa))
        small = apply("select", underflows, sign, bits)
        return apply("select", overflows, apply("or", sign, number(infinity)), small)


def reduce_precision(x: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Return `x` rounded to a floating type of so many bits, in its own type."""
    return bind(ReducePrecision(exponent_bits, mantissa_bits), x)


# --- identity ---


@dataclass(frozen=True, eq=False)
class OptimizationBarrier(LinearOp):
    """The operand, as a value that no rewriting takes for the same: copies behind it stay apart."""

    name: ClassVar[str] = "optimization_barrier"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        return operands[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (bind(self, ct),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


def optimization_barrier(x: Any) -> Any:
    """Return `x` as a value of its own: what is computed from it is not merged with what is
    computed from `x`."""
    return bind(OptimizationBarrier(), x)


@dataclass(frozen=True, eq=False)
class Late(Op):
    """The first operand, as a value that is not there before the second is computed.

    What is computed from it is computed that late, so what reverse mode computes again does not lie
    in memory from the beginning.
    """

    name: ClassVar[str] = "late"
    marks_batch: ClassVar[bool] = True

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        return operands[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return tangents[0]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return ct, None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs), flags[0]

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


def late(x: Any, after: Any) -> Any:
    """Return `x`, not to be read before the array `after` is computed."""
    return bind(Late(), x, after)
