"""`jax.lax`'s element-wise functions: operands of one dtype and shape, or Python numbers."""

from __future__ import annotations

import builtins
import enum
from collections.abc import Callable
from typing import Any

from stax import types
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from stax.extent import same_shape
from stax.numpy.arguments import array
from stax.operators import elementwise as ops
from stax.operators.arithmetic import operand
from stax.operators.elementwise import convert, like
from stax.operators.gradient import stop_gradient as hold
from stax.operators.shape import broadcast_to
from stax.trace import full, type_of
from stax.tree import tree_map
from stax.types import is_python_number

Function = Callable[..., Any]


def operands(name: str, *args: Any) -> list[Any]:
    """Return operands in one type: numbers take that of the arrays, weak dtypes give way.

    Arrays without axes broadcast, other shapes must agree; raises DTypeError where dtypes differ.
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
    shape = builtins.max((x.shape for x in arrays), key=len)
    return [_fitted(name, x, shape, dtype, weak) for x in found]


def _fitted(name: str, x: Any, shape: Any, dtype: Any, weak: bool) -> Any:
    if is_python_number(x):
        joined = types.promote(type_of(x), types.ArrayType(dtype, ()))[0]
        if joined != dtype:
            raise DTypeError(
                f"{name}: the number {x!r} does not fit {dtype}.",
                advice="Convert the array first, or pass a number of its kind.",
            )
        return full(shape, x, dtype, weak)
    if x.shape and not same_shape(x.shape, shape):
        raise ShapeError(
            f"{name}: operands must have one shape, got {x.shape} and {shape}.",
            advice="stax.numpy broadcasts by itself; here, use broadcast_in_dim.",
        )
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


def _binary(name: str, op: Function) -> Function:
    def function(x: Any, y: Any) -> Any:
        return op(*operands(name, x, y))

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
bitwise_not = _unary("bitwise_not", ops.not_)

add, sub, mul, div, rem = (
    _binary(op.__name__, op) for op in (ops.add, ops.sub, ops.mul, ops.div, ops.rem)
)
eq, ne, lt, le, gt, ge = (
    _binary(op.__name__, op) for op in (ops.eq, ops.ne, ops.lt, ops.le, ops.gt, ops.ge)
)
max, min = _binary("max", ops.maximum), _binary("min", ops.minimum)
atan2 = _binary("atan2", ops.atan2)
bitwise_and = _binary("bitwise_and", ops.and_)
bitwise_or = _binary("bitwise_or", ops.or_)
bitwise_xor = _binary("bitwise_xor", ops.xor)
shift_left = _binary("shift_left", ops.shift_left)
shift_right_logical = _binary("shift_right_logical", ops.shift_right_logical)
shift_right_arithmetic = _binary("shift_right_arithmetic", ops.shift_right_arithmetic)


def abs(x: Any) -> Any:
    """Return the absolute value of each element."""
    x = array("abs", x)
    return x if x.dtype.kind == "u" else ops.abs_(x)


def pow(x: Any, y: Any) -> Any:
    """Return `x` to the power `y`, which may be an integer for a floating `x`."""
    x = array("pow", x)
    if isinstance(y, int) and not isinstance(y, bool):
        return ops.integer_pow(x, y)
    y = operand("pow", y)
    if not is_python_number(y) and types.is_integer(y.dtype) and types.is_inexact(x.dtype):
        y = convert(y, x.dtype)
    return ops.power(*operands("pow", x, y))


def integer_pow(x: Any, y: int) -> Any:
    """Return `x` to the integer power `y`."""
    return ops.integer_pow(array("integer_pow", x), y)


def square(x: Any) -> Any:
    """Return the square of each element."""
    return ops.integer_pow(array("square", x), 2)


def reciprocal(x: Any) -> Any:
    """Return 1 over each element."""
    return ops.integer_pow(array("reciprocal", x), -1)


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


def stop_gradient(x: Any) -> Any:
    """Return `x` (a tree of arrays), through which no derivative passes."""
    return tree_map(hold, x)
