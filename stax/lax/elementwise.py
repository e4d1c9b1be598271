"""`jax.lax`'s element-wise functions: operands of one dtype and shape, or Python numbers."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from stax.extent import same_shape
from stax.numpy.arguments import array, static_int
from stax.operators import bits, elementwise as ops
from stax.operators.arithmetic import in_range, operand
from stax.operators.elementwise import convert, like
from stax.operators.gradient import stop_gradient as hold
from stax.operators.shape import broadcast_to
from stax.trace import full, is_array, type_of
from stax.tree import tree_map
from stax.types import is_python_number

Function = Callable[..., Any]


def operands(name: str, *args: Any) -> list[Any]:
    """Return operands in one type: numbers take that of the arrays, weak dtypes give way.

    Arrays without axes broadcast, and axes of length 1 among arrays of as many axes; raises
    DTypeError where dtypes differ, ShapeError where numbers of axes do.
    """
    found = [operand(name, x) for x in args]
    if all(is_python_number(x) for x in found):
        found[0] = array(name, found[0])
    arrays = [x for x in found if not is_python_number(x)]
    dtype, weak = types.promote(*(type_of(x) for x in arrays))
    strong = {x.dtype for x in arrays if not x.weak_type} or {dtype}
    if len(strong) > 1:
        shown = ", ".join(str(x.dtype) for x in arrays)
        raise DTypeError(
            f"{name}: operands must have one dtype, got {shown}.",
            advice="stax.numpy converts by itself; here, use astype.",
        )
    shape = _common_shape(name, [x.shape for x in arrays if x.shape])
    return [_fitted(name, x, shape, dtype, weak) for x in found]


def _common_shape(name: str, shapes: list[Any]) -> Any:
    if len({len(s) for s in shapes}) > 1:
        raise ShapeError(
            f"{name}: operands must have one shape, got {' and '.join(map(str, shapes))}.",
            advice="stax.numpy broadcasts by itself; here, use broadcast_in_dim.",
        )
    return types.broadcast_shapes(*shapes)


def _fitted(name: str, x: Any, shape: Any, dtype: Any, weak: bool) -> Any:
    if is_python_number(x):
        joined = types.promote(type_of(x), types.ArrayType(dtype, ()))[0]
        if joined != dtype:
            raise DTypeError(
                f"{name}: the number {x!r} does not fit {dtype}.",
                advice="Convert the array first, or pass a number of its kind.",
            )
        return full(shape, in_range(x), dtype, weak)
    x = convert(x, dtype, weak)
    return x if same_shape(x.shape, shape) else broadcast_to(x, shape)


def _unary(name: str, op: Function, accuracy: bool = False) -> Function:
    def plain(x: Any) -> Any:
        return op(array(name, x))

    def accurate(x: Any, *, accuracy: Any = None) -> Any:
        return op(array(name, x))

    function = accurate if accuracy else plain
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Apply `{name}` to each element."
    return function


def _binary(name: str, op: Function, of_numbers: bool = False) -> Function:
    def function(x: Any, y: Any) -> Any:
        x, y = operands(name, x, y)
        return op(_number(name, x), y) if of_numbers else op(x, y)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Apply `{name}` to each pair of elements, which have one dtype and shape."
    return function


neg, sign, floor, ceil = (
    _unary(op.__name__, op) for op in (ops.neg, ops.sign, ops.floor, ops.ceil)
)
exp, exp2, expm1, log, log1p, sqrt, rsqrt, cbrt, sin, cos, tan, tanh, logistic = (
    _unary(op.__name__, op, accuracy=True)
    for op in (
        ops.exp, ops.exp2, ops.expm1, ops.log, ops.log1p, ops.sqrt, ops.rsqrt, ops.cbrt,
        ops.sin, ops.cos, ops.tan, ops.tanh, ops.logistic,
    )
)  # fmt: skip
asin, acos, atan, sinh, cosh, asinh, acosh, atanh = (
    _unary(op.__name__, op)
    for op in (
        ops.asin, ops.acos, ops.atan, ops.sinh, ops.cosh, ops.asinh, ops.acosh, ops.atanh,
    )
)  # fmt: skip
erf, erfc, is_finite = (_unary(op.__name__, op) for op in (ops.erf, ops.erfc, ops.is_finite))
real, imag, conj = (_unary(op.__name__, op) for op in (ops.real, ops.imag, ops.conj))
bitwise_not = _unary("bitwise_not", ops.not_)
population_count, clz = (_unary(op.__name__, op) for op in (bits.population_count, bits.clz))

add, sub, div, rem = (
    _binary(op.__name__, op, of_numbers=True) for op in (ops.add, ops.sub, ops.div, ops.rem)
)
eq, ne, lt, le, gt, ge = (
    _binary(op.__name__, op) for op in (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge)
)
max, min = _binary("max", ops.maximum), _binary("min", ops.minimum)
complex = _binary("complex", ops.complex_)
atan2 = _binary("atan2", ops.atan2)
bitwise_and = _binary("bitwise_and", ops.and_)
bitwise_or = _binary("bitwise_or", ops.or_)
bitwise_xor = _binary("bitwise_xor", ops.xor)
shift_left = _binary("shift_left", ops.shift_left)
shift_right_logical = _binary("shift_right_logical", ops.shift_right_logical)
shift_right_arithmetic = _binary("shift_right_arithmetic", ops.shift_right_arithmetic)


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """Return the product of each pair of elements; with `out_dtype`, of the elements so converted.

    Raises DTypeError where dtypes differ, ShapeError where shapes do not fit.
    """
    x, y = operands("mul", x, y)
    x = _number("mul", x)
    if out_dtype is not None:
        wanted = types.check_dtype(out_dtype)
        x, y = convert(x, wanted), convert(y, wanted)
    return ops.mul(x, y)


def mulhi(x: Any, y: Any, /) -> Any:
    """Return the high half of the product of each pair of integers."""
    return bits.mulhi(*operands("mulhi", x, y))


def nextafter(x1: Any, x2: Any) -> Any:
    """Return the floating number next to each of `x1` in the direction of `x2`.

    Subnormal numbers are neighbours like others.  It is constant between jumps: its derivative
    is zero.  Raises DTypeError for other than floating types.
    """
    return bits.nextafter(*map(_float, ("nextafter",) * 2, operands("nextafter", x1, x2)))


def _number(name: str, x: Any) -> Any:
    if types.is_bool(x.dtype):
        raise DTypeError(
            f"{name} does not accept bool.", advice="Convert it, or use bitwise functions."
        )
    return x


def _float(name: str, x: Any) -> Any:
    if not types.is_float(x.dtype):
        raise DTypeError(
            f"{name} takes floating types, not {x.type}.", advice="Convert it with astype first."
        )
    return x


def abs(x: Any) -> Any:
    """Return the absolute value of each element; raises DTypeError for unsigned integers."""
    x = array("abs", x)
    if x.dtype.kind == "u":
        raise DTypeError(
            f"abs does not accept {x.type}.", advice="Unsigned numbers are not negative."
        )
    return ops.abs_(x)


def pow(x: Any, y: Any) -> Any:
    """Return the floating `x` to the power `y`, which may be an integer.

    Raises DTypeError for integers and bool in place of `x`; see integer_pow.
    """
    x = array("pow", x)
    y = _number("pow", operand("pow", y)) if is_array(y) else operand("pow", y)
    if not types.is_inexact(x.dtype) or isinstance(y, bool):
        raise DTypeError(
            f"pow takes a floating base and a number, not {x.type} and {y!r}.",
            advice="Use integer_pow for integers, or stax.numpy.power.",
        )
    if isinstance(y, int):
        return ops.integer_pow(x, y)
    if not is_python_number(y) and types.is_integer(y.dtype) and types.is_inexact(x.dtype):
        y = convert(y, x.dtype)
    return ops.power(*operands("pow", x, y))


def integer_pow(x: Any, y: int) -> Any:
    """Return `x` to the integer power `y`; raises DTypeError for negative powers of integers."""
    x = array("integer_pow", x)
    if y < 0 and not types.is_inexact(x.dtype):
        raise DTypeError(
            f"integer_pow: {x.type} has no negative powers, got {y}.",
            advice="Convert the base to a floating type.",
        )
    return ops.integer_pow(x, static_int("integer_pow", "the exponent", y))


def square(x: Any) -> Any:
    """Return the square of each element."""
    return ops.integer_pow(array("square", x), 2)


def reciprocal(x: Any) -> Any:
    """Return 1 over each element."""
    return integer_pow(x, -1)


class RoundingMethod(enum.IntEnum):
    """What becomes of halves when rounding."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def round(x: Any, rounding_method: Any = RoundingMethod.AWAY_FROM_ZERO) -> Any:
    """Return each element rounded to the nearest integer; halves away from zero, or to even."""
    x = array("round", x)
    if RoundingMethod(rounding_method) is RoundingMethod.TO_NEAREST_EVEN:
        return ops.round_(x)
    whole = ops.trunc(x)
    far = ops.ge(ops.abs_(ops.sub(x, whole)), like(x, 0.5))
    return ops.select(far, ops.add(whole, ops.sign(x)), whole)


def clamp(min: Any, x: Any, max: Any) -> Any:
    """Return `x` limited to at least `min` and at most `max`."""
    x = array("clamp", x)
    low, x = operands("clamp", min, x)
    x, high = operands("clamp", x, max)
    below, above = ops.lt(x, low), ops.gt(x, high)
    return ops.select(above, high, ops.select(below, low, x))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Return elements of `on_true` where `pred` holds, of `on_false` elsewhere."""
    return select_n(pred, on_false, on_true)


def select_n(which: Any, *cases: Any) -> Any:
    """Return, for each element, that of the case whose number is in `which` (bool: 0 or 1)."""
    if not cases:
        raise ArgumentError(
            "select_n needs at least one case.", advice="Write select_n(which, case0, case1, ...)."
        )
    which = array("select_n", which)
    values = operands("select_n", *cases)
    if len(values) == 1:
        return values[0]
    shape = type_of(values[0]).shape
    which = which if same_shape(which.shape, shape) else broadcast_to(_scalar(which), shape)
    if types.is_bool(which.dtype):
        if len(values) > 2:
            raise ArgumentValueError(
                "select_n: a bool selects one of two cases.",
                advice="Convert the selector to an integer dtype for more cases.",
            )
        return ops.select(which, values[1], values[0])
    result = values[-1]
    for number in range(len(values) - 2, -1, -1):
        result = ops.select(ops.le(which, like(which, number)), values[number], result)
    return result


def _scalar(which: Any) -> Any:
    if which.ndim:
        raise ShapeError(
            f"select_n: the selector {which.type} must have the shape of the cases.",
            advice="Broadcast it first, or pass a scalar.",
        )
    return which


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """Return `operand` with its elements converted to `new_dtype`."""
    x = array("convert_element_type", operand)
    return convert(x, types.check_dtype(new_dtype))


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """Return the bits of `operand` read as numbers of another type.

    A narrower type adds an axis at the end, low bits first; a wider one takes the last axis.
    Raises DTypeError for bool and complex numbers (other than to themselves), ArgumentValueError
    where the last axis does not make up one element.
    """
    return bits.bitcast(array("bitcast_convert_type", operand), types.check_dtype(new_dtype))


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Any:
    """Return `operand` rounded to a floating type of so many bits, in its own type.

    What is too large for that type is infinite, and what is below its normal numbers is zero.
    Linear, so tangents are rounded likewise.  Raises ArgumentValueError for fewer than 1 exponent
    bit or 0 mantissa bits.
    """
    exponent = static_int("reduce_precision", "exponent_bits", exponent_bits)
    mantissa = static_int("reduce_precision", "mantissa_bits", mantissa_bits)
    if exponent < 1 or mantissa < 0:
        raise ArgumentValueError(
            f"reduce_precision: no type has {exponent} exponent bits and {mantissa} mantissa bits.",
            advice="Ask for at least 1 exponent bit and 0 mantissa bits.",
        )
    return bits.reduce_precision(array("reduce_precision", operand), exponent, mantissa)


def optimization_barrier(operand: Any, /) -> Any:
    """Return a tree of arrays unchanged, as values that the compiler takes for new ones.

    What is computed from the results is not merged with the same computed from `operand`.
    """
    return tree_map(lambda x: bits.optimization_barrier(array("optimization_barrier", x)), operand)


def stage(x: Any, /) -> Any:
    """Return a number or an array as a value of the function that is being traced."""
    return array("stage", x)


def dtype(x: Any) -> Any:
    """Return the dtype of an array, a number, or of what names a type, as it enters a program.

    Raises DTypeError for what has none.
    """
    if is_array(x):
        return x.dtype
    if x is None:
        raise ArgumentValueError("None has no dtype.", advice="Pass an array, a number or a dtype.")
    named = isinstance(x, type | str | np.dtype) or not hasattr(x, "dtype")
    if is_python_number(x):
        return type_of(x).dtype
    return types.canonical_dtype(x if named else x.dtype)


def stop_gradient(x: Any) -> Any:
    """Return `x` (a tree of arrays), through which no derivative passes."""
    return tree_map(hold, x)
