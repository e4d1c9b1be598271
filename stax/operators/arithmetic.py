"""NumPy-shaped arithmetic: what `x + y` means for operands of different types and shapes.

The ops of `elementwise` want operands of one type; the functions here bring them there by JAX's
promotion and NumPy's broadcasting, and put together what is no op of its own (floor division,
powers).  `install_operators` gives them to proxies and arrays as Python's operators.

A Python number becomes a constant of the other operand's type and shape at once, so `2 * x` is one
node and its constant; operands of one type, the common case, go straight to the op.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, DTypeError, ShapeError
from stax.extent import Extent, links as extents, same_shape
from stax.op import Op
from stax.operators import elementwise as ops
from stax.operators.broadcast import broadcast_to
from stax.operators.contract import matmul
from stax.operators.elementwise import Elementwise, convert, like, select
from stax.operators.gradient import stop_gradient
from stax.trace import bind, current_trace, full, is_array, links, recorder, type_of
from stax.types import ArrayType, Shape, is_python_number, promote

Function = Callable[..., Any]


_CONVERT = "Convert it first: stax.numpy.asarray(...)."


def operand(name: str, x: Any) -> Any:
    """Return `x` if it can be an operand, NumPy arrays as arrays; raises ArgumentError."""
    if is_array(x) or is_python_number(x):
        return x
    if isinstance(x, np.ndarray | np.generic | Extent) or hasattr(x, "__jax_array__"):
        return links.as_array(x)
    raise ArgumentError(
        f"{name}: operands are arrays and numbers, not {type(x).__name__}.",
        advice=_CONVERT if isinstance(x, list | tuple) else "Pass an array or a number.",
    )


def broadcast_shapes(name: str, *kinds: ArrayType) -> Shape:
    """Return the shape that operands broadcast to; the error names the op."""
    try:
        return types.broadcast_shapes(*(t.shape for t in kinds))
    except ShapeError:
        shown = " and ".join(str(t.shape) for t in kinds)
        raise ShapeError(
            f"{name}: shapes {shown} do not broadcast.",
            advice="Axes are aligned at the end; each pair must be equal, or one of them 1.",
        ) from None


def cast(x: Any, shape: Shape, dtype: Any, weak: bool) -> Any:
    """Return `x` broadcast to `shape` and converted; a number becomes one constant."""
    if is_python_number(x):
        return full(shape, in_range(x), dtype, weak)
    converted = convert(x, dtype, weak)
    return converted if same_shape(x.shape, shape) else broadcast_to(converted, shape)


def in_range(x: Any) -> Any:
    """Return a Python number; raises NumberRangeError for integers beyond the default integer."""
    if isinstance(x, int) and not -(2**31) <= x < 2**31:
        types.check_range(x, types.int_dtype())
    return x


def promote_operands(name: str, *args: Any, to: Function | None = None) -> list[Any]:
    """Return the operands in one dtype and one shape, by promotion and broadcasting.

    `to`, if given, takes the common dtype to the one the op needs.
    """
    args = tuple(operand(name, x) for x in args)
    common = _common(name, to, *map(type_of, args))
    return [cast(x, common.shape, common.dtype, common.weak) for x in args]


def _common(name: str, to: Function | None, *kinds: ArrayType) -> ArrayType:
    """Return the type that operands are brought to."""
    return _joined(name, to, kinds, *promote(*kinds))


@functools.lru_cache(maxsize=4096)
def _joined(
    name: str, to: Function | None, kinds: tuple[ArrayType, ...], dtype: Any, weak: bool
) -> ArrayType:
    wanted = dtype if to is None else to(dtype)
    return ArrayType(wanted, broadcast_shapes(name, *kinds), weak and dtype != types.bool_)


def _numeric(dtype: Any) -> Any:
    """Bool computes as int32."""
    return types.int32 if types.is_bool(dtype) else dtype


# --- functions made of one op ---


def _same(x: Any, y: Any) -> bool:
    """Say whether two operands are arrays of one type, which need no promotion."""
    return is_array(x) and is_array(y) and x.type is y.type


def _broadcasting(op: Op, common: ArrayType, *args: Any) -> Any:
    """Apply `op` to operands that are brought to a type; eagerly, NumPy broadcasts them."""
    if recorder(args) is not None:
        return bind(op, *(cast(x, common.shape, common.dtype, common.weak) for x in args))
    return links.run(op, [_converted(x, common) for x in args], common)


def _converted(x: Any, common: ArrayType) -> Any:
    """Return an array in the dtype of a type, or a number that fits it."""
    if not is_array(x):
        return in_range(x)
    return x if x.type.dtype is common.dtype else convert(x, common.dtype, common.weak)


def _binary(name: str, op: Op, boolean: Op | None = None, to: Function | None = None) -> Function:
    """Return the function of two operands that promotes them and applies `op`.

    `boolean`, if given, takes its place for bool operands.
    """

    def function(x: Any, y: Any, /) -> Any:
        if _same(x, y) and to is None:
            return bind(chosen(x.type.dtype), x, y)
        x, y = operand(name, x), operand(name, y)
        common = _common(name, to, type_of(x), type_of(y))
        return _broadcasting(chosen(common.dtype), common, x, y)

    def chosen(dtype: Any) -> Op:
        return boolean if boolean is not None and types.is_bool(dtype) else op

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Apply `{name}` to each pair of elements, with promotion and broadcasting."
    return function


_op = Elementwise


def _comparison(name: str, op: Op) -> Function:
    def function(x: Any, y: Any, /) -> Any:
        x, y = operand(name, x), operand(name, y)
        common = _common(name, None, type_of(x), type_of(y))
        if not types.is_complex(common.dtype):
            return _broadcasting(op, common, x, y)
        a, b = promote_operands(name, x, y)
        x, y = ops.real(a), ops.real(b)
        return select(ops.eq(x, y), bind(op, ops.imag(a), ops.imag(b)), bind(op, x, y))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"Apply `{name}` to each pair of elements, with promotion and broadcasting.\n\n"
        "    Complex numbers are ordered by real, then by imaginary parts."
    )
    return function


add = _binary("add", _op("add"), boolean=_op("or"))
subtract = _binary("subtract", _op("sub"))
multiply = _binary("multiply", _op("mul"), boolean=_op("and"))
divide = true_divide = _binary("divide", _op("div"), to=types.inexact_dtype)
maximum = _binary("maximum", _op("maximum"), boolean=_op("or"))
minimum = _binary("minimum", _op("minimum"), boolean=_op("and"))
equal = _binary("equal", _op("eq"))
not_equal = _binary("not_equal", _op("ne"))
less = _comparison("less", _op("lt"))
less_equal = _comparison("less_equal", _op("le"))
greater = _comparison("greater", _op("gt"))
greater_equal = _comparison("greater_equal", _op("ge"))
bitwise_and = _binary("bitwise_and", _op("and"))
bitwise_or = _binary("bitwise_or", _op("or"))
bitwise_xor = _binary("bitwise_xor", _op("xor"))
left_shift = _binary("left_shift", _op("shift_left"), to=_numeric)


def right_shift(x: Any, y: Any, /) -> Any:
    """Shift right: signed numbers keep their sign, unsigned ones are filled with zeros."""
    x, y = promote_operands("right_shift", x, y, to=_numeric)
    if x.dtype.kind == "u":
        return ops.shift_right_logical(x, y)
    return ops.shift_right_arithmetic(x, y)


def negative(x: Any, /) -> Any:
    """Return `-x`; unsigned numbers wrap around."""
    return ops.neg(_array("negative", x))


def positive(x: Any, /) -> Any:
    """Return `x`."""
    return _array("positive", x)


def absolute(x: Any, /) -> Any:
    """Return the absolute value; of complex numbers, the real modulus."""
    x = _array("abs", x)
    return x if types.is_bool(x.dtype) or x.dtype.kind == "u" else ops.abs_(x)


def bitwise_not(x: Any, /) -> Any:
    """Invert every bit, or the truth of bool."""
    return ops.not_(_array("invert", x))


invert = bitwise_not


def _array(name: str, x: Any) -> Any:
    """Return an operand as an array; a number becomes a constant."""
    x = operand(name, x)
    if is_array(x):
        return x
    kind = type_of(x)
    return cast(x, (), kind.dtype, kind.weak)


def truth(x: Any, /) -> Any:
    """Return whether each element is not zero."""
    x = _array("truth", x)
    return x if types.is_bool(x.dtype) else ops.ne(x, like(x, 0))


def _logical(name: str, op: Function) -> Function:
    def function(x: Any, y: Any, /) -> Any:
        return op(*promote_operands(name, truth(x), truth(y)))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Apply `{name}` to the truth of each pair of elements."
    return function


logical_and = _logical("logical_and", ops.and_)
logical_or = _logical("logical_or", ops.or_)
logical_xor = _logical("logical_xor", ops.xor)


def logical_not(x: Any, /) -> Any:
    """Return whether each element is zero."""
    return ops.not_(truth(x))


# --- division with a remainder ---


def floor_divide(x: Any, y: Any, /) -> Any:
    """Return the quotient rounded towards minus infinity."""
    x, y = promote_operands("floor_divide", x, y, to=_numeric)
    if types.is_complex(x.dtype):
        raise DTypeError(
            "floor_divide: complex numbers have no order to round by.",
            advice="Divide with /, or take real parts.",
        )
    if not types.is_integer(x.dtype):
        return _float_divmod(x, y)[0]
    quotient = ops.div(x, y)
    if x.dtype.kind == "u":
        return quotient
    # The truncated quotient is one too large where the signs differ and something is left over.
    uneven = ops.and_(ops.ne(ops.sign(x), ops.sign(y)), truth(ops.rem(x, y)))
    return select(uneven, ops.sub(quotient, like(quotient, 1)), quotient)


def remainder(x: Any, y: Any, /) -> Any:
    """Return what floor division leaves over; it has the sign of `y`, and is 0 for `y` = 0."""
    x, y = promote_operands("remainder", x, y, to=_numeric)
    if types.is_integer(x.dtype):
        y = select(truth(y), y, like(y, 1))
    left = ops.rem(x, y)
    if x.dtype.kind == "u":
        return left
    zero = like(left, 0)
    opposed = ops.ne(ops.lt(left, zero), ops.lt(y, zero))
    left = select(ops.and_(opposed, ops.ne(left, zero)), ops.add(left, y), left)
    return left if types.is_integer(x.dtype) else _signed_like(y, left)


mod = remainder


def fmod(x: Any, y: Any, /) -> Any:
    """Return what truncated division leaves over; it has the sign of `x`."""
    x, y = promote_operands("fmod", x, y, to=_numeric)
    if types.is_integer(x.dtype):
        y = select(truth(y), y, like(y, 1))
    return ops.rem(x, y)


def divmod_(x: Any, y: Any, /) -> tuple[Any, Any]:
    """Return the floor quotient and the remainder."""
    x, y = promote_operands("divmod", x, y, to=_numeric)
    if types.is_inexact(x.dtype):
        return _float_divmod(x, y)
    return floor_divide(x, y), remainder(x, y)


def _float_divmod(x: Any, y: Any) -> tuple[Any, Any]:
    """Divide as CPython's float_divmod does: from the exact remainder, so both are consistent."""
    zero = like(y, 0)
    left = ops.rem(x, y)
    # Where nothing is left over, x itself is divided: it may be -0.
    whole = ops.or_(ops.eq(y, zero), ops.eq(left, zero))
    quotient = ops.div(select(whole, x, ops.sub(x, left)), y)
    opposed = ops.and_(ops.ne(left, zero), ops.ne(ops.sign(y), ops.sign(left)))
    left = select(opposed, ops.add(left, y), left)
    quotient = select(opposed, ops.sub(quotient, like(quotient, 1)), quotient)
    return ops.round_(quotient), _signed_like(y, left)


def _signed_like(y: Any, left: Any) -> Any:
    """Return a remainder whose zero has the sign of the divisor `y`; its derivative is as before.

    A number less itself is 0, and -0 the other way round.
    """
    fixed = stop_gradient(left)
    zero = select(ops.lt(y, like(y, 0)), ops.neg(ops.sub(fixed, left)), ops.sub(left, fixed))
    return select(ops.eq(left, like(left, 0)), zero, left)


# --- powers ---


def power(x: Any, y: Any, /) -> Any:
    """Return `x` to the power `y`.

    A known integer exponent is multiplied out, which is exact for `x ** 2` and differentiable at
    0; so is an integer base.  Everything else is the op `pow`.
    """
    exponent = _known_integer(y)
    x, y = operand("power", x), operand("power", y)
    if exponent is not None:
        return _integer_power(_array("power", x), exponent)
    base, exponents = type_of(x).dtype, type_of(y).dtype
    if types.is_inexact(base) and types.is_integer(exponents):
        # The exponent takes no part in promotion: float16 ** int32 is float16.
        kinds = type_of(x), type_of(y)
        shape, weak = broadcast_shapes("power", *kinds), all(t.weak for t in kinds)
        return ops.power(*(cast(a, shape, base, weak) for a in (x, y)))
    x, y = promote_operands("power", x, y, to=_numeric)
    return _by_squaring(x, y) if types.is_integer(x.dtype) else ops.power(x, y)


def _known_integer(y: Any) -> int | None:
    """Return an integer exponent whose value is part of the program; in eager mode, any value."""
    if isinstance(y, int | np.integer):
        return int(y)
    if isinstance(y, np.ndarray) and not y.ndim and types.is_integer(y.dtype):
        return int(y)
    eager = type(y) is links.array_class and current_trace() is None
    if eager and not y.ndim and types.is_integer(y.dtype):
        return y.__index__()
    return None


def _integer_power(x: Any, exponent: int) -> Any:
    if types.is_bool(x.dtype):
        x = convert(x, types.int32)
    if exponent < 0 and types.is_integer(x.dtype):
        raise DTypeError(
            f"power: integers have no negative powers, got {type_of(x)} to the power {exponent}.",
            advice="Convert the base to a floating type: x.astype(float) ** -1.",
        )
    return ops.integer_pow(x, exponent)


def _by_squaring(x: Any, y: Any) -> Any:
    """Raise integers to integer powers, which beyond 64 steps would overflow anyway.

    As in JAX, the result is never weak.
    """
    x, y = convert(x, x.dtype), convert(y, y.dtype)
    zero, one = like(y, 0), like(y, 1)
    # Zero to any other power than 0 is 0, negative ones included.
    result = select(ops.and_(ops.eq(x, zero), ops.ne(y, zero)), zero, one)
    for _ in range(6):
        result = select(truth(ops.and_(y, one)), ops.mul(result, x), result)
        x, y = ops.mul(x, x), ops.shift_right_logical(y, one)
    return result


# --- Python's operators ---

_REFLECTED: dict[str, Function] = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide,
    "mod": remainder, "divmod": divmod_, "pow": power, "matmul": matmul, "and": bitwise_and,
    "or": bitwise_or, "xor": bitwise_xor, "lshift": left_shift, "rshift": right_shift,
}  # fmt: skip
_COMPARISONS: dict[str, Function] = {
    "eq": equal, "ne": not_equal, "lt": less, "le": less_equal, "gt": greater, "ge": greater_equal,
}  # fmt: skip
_UNARY: dict[str, Function] = {
    "neg": negative, "pos": positive, "abs": absolute, "invert": bitwise_not,
}  # fmt: skip


extents.operators = _REFLECTED


def _understood(x: Any) -> bool:
    """Say whether an operator takes `x`; for others Python asks `x` itself and then raises."""
    return (
        is_array(x)
        or isinstance(x, bool | int | float | complex | np.ndarray | np.generic | Extent)
        or hasattr(x, "__jax_array__")
    )


def _operator(function: Function, swapped: bool = False) -> Function:
    def forward(x: Any, y: Any) -> Any:
        if isinstance(y, list | tuple):
            raise _sequence_error(function, y)
        return function(x, y) if _understood(y) else NotImplemented

    def backward(y: Any, x: Any) -> Any:
        if isinstance(x, list | tuple):
            raise _sequence_error(function, x)
        return function(x, y) if _understood(x) else NotImplemented

    return backward if swapped else forward


def _sequence_error(function: Function, other: Any) -> ArgumentError:
    name, kind = function.__name__.rstrip("_"), type(other).__name__
    return ArgumentError(f"{name}: operands are arrays and numbers, not {kind}.", advice=_CONVERT)


def _unary(function: Function) -> Function:
    def method(self: Any) -> Any:
        return function(self)

    return method


def _round(self: Any, ndigits: int | None = None) -> Any:
    """Round half to even; to an integer dtype if no digits are named, as Python does."""
    if ndigits is not None and ndigits != 0:
        scale = 10.0**ndigits
        return divide(ops.round_(multiply(self, scale)), scale)
    rounded = self if types.is_integer(self.dtype) else ops.round_(self)
    return convert(rounded, types.int_dtype()) if ndigits is None else rounded


def install_operators(cls: type) -> None:
    """Give `cls` (`Proxy` or `Array`) Python's operators."""
    for name, function in _REFLECTED.items():
        setattr(cls, f"__{name}__", _operator(function))
        setattr(cls, f"__r{name}__", _operator(function, swapped=True))
    for name, function in _COMPARISONS.items():
        setattr(cls, f"__{name}__", _operator(function))
    for name, function in _UNARY.items():
        setattr(cls, f"__{name}__", _unary(function))
    cls.__round__ = _round  # type: ignore[attr-defined]
