"""Functions of one element, or of a pair of elements with broadcasting.

Those that are an op by themselves are made in one line; the functions that combine ops follow.
Functions of real analysis take integers as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import (
    ArgumentValueError,
    ConcretizationTypeError,
    DTypeError,
    ShapeError,
    TracerArrayConversionError,
    UnsupportedError,
)
from stax.extent import same_shape
from stax.numpy.arguments import (
    array,
    inexact,
    inexact_operands,
    numeric,
    refuse_out,
    static_int,
    strong_operands,
)
from stax.numpy.complex import imag, real
from stax.operators import elementwise as ops, special
from stax.operators.arithmetic import (
    absolute,
    add,
    greater,
    less,
    maximum,
    minimum,
    multiply,
    promote_operands,
    remainder,
    truth,
)
from stax.operators.elementwise import convert, like, select
from stax.operators.reduce import cumsum, reduce_and
from stax.operators.reshape import reshape
from stax.operators.shape import broadcast_to, iota
from stax.trace import Proxy, full
from stax.types import inexact_dtype

Function = Callable[..., Any]


def _inexact(name: str, op: Function, meaning: str) -> Function:
    """Return the function that applies `op` to a floating argument."""

    def function(x: Any, /) -> Any:
        return op(inexact(name, x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {meaning} of each element; integers are taken as float32."
    return function


sin = _inexact("sin", ops.sin, "the sine")
cos = _inexact("cos", ops.cos, "the cosine")
tan = _inexact("tan", ops.tan, "the tangent")
arcsin = asin = _inexact("arcsin", ops.asin, "the inverse sine")
arccos = acos = _inexact("arccos", ops.acos, "the inverse cosine")
arctan = atan = _inexact("arctan", ops.atan, "the inverse tangent")
sinh = _inexact("sinh", ops.sinh, "the hyperbolic sine")
cosh = _inexact("cosh", ops.cosh, "the hyperbolic cosine")
tanh = _inexact("tanh", ops.tanh, "the hyperbolic tangent")
arcsinh = asinh = _inexact("arcsinh", ops.asinh, "the inverse hyperbolic sine")
arccosh = acosh = _inexact("arccosh", ops.acosh, "the inverse hyperbolic cosine")
arctanh = atanh = _inexact("arctanh", ops.atanh, "the inverse hyperbolic tangent")
exp = _inexact("exp", ops.exp, "e to the power")
exp2 = _inexact("exp2", ops.exp2, "2 to the power")
expm1 = _inexact("expm1", ops.expm1, "e to the power, less 1,")
log = _inexact("log", ops.log, "the natural logarithm")
log1p = _inexact("log1p", ops.log1p, "the natural logarithm of 1 plus")
sqrt = _inexact("sqrt", ops.sqrt, "the square root")
cbrt = _inexact("cbrt", ops.cbrt, "the cube root")


def arctan2(x1: Any, x2: Any, /) -> Any:
    """Return the angle of the point `(x2, x1)`, in (-pi, pi]."""
    return ops.atan2(*inexact_operands("arctan2", x1, x2))


atan2 = arctan2


def fabs(x: Any, /) -> Any:
    """Return the absolute value, as a float, of each element."""
    return ops.abs_(_ordered("fabs", inexact("fabs", x)))


def log2(x: Any, /) -> Any:
    """Return the logarithm to the base 2 of each element."""
    return _log_to("log2", 2, x)


def log10(x: Any, /) -> Any:
    """Return the logarithm to the base 10 of each element."""
    return _log_to("log10", 10, x)


def _log_to(name: str, base: int, x: Any) -> Any:
    x = inexact(name, x)
    result = ops.log(convert(x, x.dtype))
    if not types.is_complex(x.dtype):
        return ops.div(result, like(result, math.log(base)))
    # A quotient of complex numbers would mix an infinite part into the other.
    parts = (ops.real(result), ops.imag(result))
    return ops.complex_(*(ops.div(part, like(part, math.log(base))) for part in parts))


def square(x: Any, /) -> Any:
    """Return the square of each element."""
    return ops.integer_pow(numeric("square", x), 2)


def reciprocal(x: Any, /) -> Any:
    """Return 1 over each element."""
    return ops.integer_pow(inexact("reciprocal", x), -1)


def float_power(x: Any, y: Any, /) -> Any:
    """Return `x` to the power `y`, as floats."""
    return ops.power(*inexact_operands("float_power", x, y))


def sign(x: Any, /) -> Any:
    """Return -1, 0 or 1 for each element; NaN for NaN."""
    return ops.sign(array("sign", x))


def deg2rad(x: Any, /) -> Any:
    """Convert degrees to radians."""
    x = inexact("deg2rad", x)
    return ops.mul(x, like(x, math.pi / 180))


def rad2deg(x: Any, /) -> Any:
    """Convert radians to degrees."""
    x = inexact("rad2deg", x)
    return ops.mul(x, like(x, 180 / math.pi))


radians, degrees = deg2rad, rad2deg


# --- rounding ---


def _rounding(name: str, op: Function, meaning: str) -> Function:
    """Return the function that applies `op` to floats and leaves integers alone."""

    def function(x: Any, /) -> Any:
        x = array(name, x)
        return op(x) if types.is_inexact(x.dtype) else x

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return each element rounded {meaning}; integers are returned as they are."
    return function


floor = _rounding("floor", ops.floor, "down")
ceil = _rounding("ceil", ops.ceil, "up")
trunc = _rounding("trunc", ops.trunc, "towards zero")


def rint(x: Any, /) -> Any:
    """Return the nearest integer to each element, the even one at a tie, as a float."""
    x = array("rint", x)
    if types.is_complex(x.dtype):
        return round(x)
    weak = x.weak_type and types.is_inexact(x.dtype)
    wanted = x.dtype if types.is_inexact(x.dtype) else types.float_dtype()
    return ops.round_(convert(x, wanted, weak))


def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Return `a` rounded to `decimals` places, half to even; integers only lose digits."""
    refuse_out("round", out)
    a = array("round", a)
    decimals = static_int("round", "decimals", decimals)
    if types.is_bool(a.dtype):
        raise ArgumentValueError("round: bool has no places.", advice="Convert it with astype.")
    if types.is_integer(a.dtype):
        if decimals < 0:
            raise UnsupportedError(
                "round: integers cannot be rounded to negative decimals.",
                advice="Convert them to a floating type first.",
            )
        return a
    if types.is_complex(a.dtype):
        return ops.complex_(*(round(part(a), decimals) for part in (ops.real, ops.imag)))
    if decimals == 0:
        return ops.round_(a)
    wide = convert(a, types.accumulator(a.dtype), a.weak_type)
    scale = like(wide, 10.0**decimals)
    return convert(ops.div(ops.round_(ops.mul(wide, scale)), scale), a.dtype, a.weak_type)


around = round


def modf(x: Any, /, out: Any = None) -> tuple[Any, Any]:
    """Return the fractional and the integral part of each element."""
    refuse_out("modf", out)
    x = inexact("modf", x)
    whole = ops.trunc(x)
    infinite = ops.eq(ops.abs_(x), like(x, math.inf))
    return select(infinite, like(x, 0), ops.sub(x, whole)), whole


# --- questions about floats ---


def isnan(x: Any, /) -> Any:
    """Return whether each element is NaN."""
    x = array("isnan", x)
    return ops.ne(x, x)


def isfinite(x: Any, /) -> Any:
    """Return whether each element is neither infinite nor NaN."""
    x = array("isfinite", x)
    return ops.is_finite(x) if types.is_inexact(x.dtype) else full(x.shape, True, types.bool_)


def _ordered(name: str, *xs: Any) -> Any:
    """Return the first argument; raises DTypeError if one is complex."""
    for x in xs:
        if types.is_complex(x.dtype):
            raise DTypeError(
                f"{name}: complex numbers have no order, got {x.type}.",
                advice="Take real or imaginary parts, or absolute values, first.",
            )
    return xs[0]


def _is_value(name: str, x: Any, value: float, absolutely: bool = False) -> Any:
    x = array(name, x)
    if not types.is_inexact(x.dtype):
        return full(x.shape, False, types.bool_)
    if types.is_complex(x.dtype) and not absolutely:
        raise ArgumentValueError(
            f"{name}: complex numbers have no sign.", advice="Use isinf, or take a part."
        )
    x = ops.abs_(x) if absolutely else x
    return convert(ops.eq(x, like(x, value)), types.bool_)


def isinf(x: Any, /) -> Any:
    """Return whether each element is infinite."""
    return _is_value("isinf", x, math.inf, absolutely=True)


def isposinf(x: Any, /, out: Any = None) -> Any:
    """Return whether each element is positive infinity."""
    refuse_out("isposinf", out)
    return _is_value("isposinf", x, math.inf)


def isneginf(x: Any, /, out: Any = None) -> Any:
    """Return whether each element is negative infinity."""
    refuse_out("isneginf", out)
    return _is_value("isneginf", x, -math.inf)


def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """Return `x` with NaN and infinities replaced: by 0 and the extreme numbers unless given."""
    x = array("nan_to_num", x)
    if not types.is_inexact(x.dtype):
        return x
    if types.is_complex(x.dtype):
        parts = (nan_to_num(part(x), copy, nan, posinf, neginf) for part in (ops.real, ops.imag))
        return ops.complex_(*parts)
    limits = ml_dtypes.finfo(x.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    for replaced, value in ((isnan, nan), (isposinf, high), (isneginf, low)):
        number = types.is_python_number(value)
        given = full((), value, x.dtype) if number else array("nan_to_num", value)
        x = where(replaced(x), convert(given, x.dtype), x)
    return x


# --- choosing ---


def where(
    condition: Any, x: Any = None, y: Any = None, /, *, size: Any = None, fill_value: Any = None
) -> Any:
    """Return elements of `x` where `condition` holds and of `y` elsewhere.

    The gradient of the side that is not taken is zero even if it is infinite or NaN there.  With
    `condition` alone, return the places where it holds, which takes concrete values.
    """
    if x is None and y is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x is None or y is None:
        raise ArgumentValueError(
            "where takes either both x and y or neither of them.",
            advice="Write where(condition, x, y), or where(condition) for places.",
        )
    condition = truth(condition)
    x, y = promote_operands("where", x, y)
    shape = types.broadcast_shapes(condition.shape, x.shape)
    return select(*(broadcast_if_needed(v, shape) for v in (condition, x, y)))


def broadcast_if_needed(x: Any, shape: Any) -> Any:
    """Return `x` in `shape`; nothing is recorded if it has that shape."""
    return x if same_shape(x.shape, shape) else broadcast_to(x, shape)


def nonzero(a: Any, *, size: Any = None, fill_value: Any = None) -> Any:
    """Return the indices of the elements that are not zero, one array for each axis.

    The length depends on values, so under jit it has to be given: `size`, which cuts or fills up
    with `fill_value` (0, a number, or a tuple of one for each axis).
    Raises ConcretizationTypeError for traced arrays without it.
    """
    a = array("nonzero", a)
    size = None if size is None else static_int("nonzero", "size", size)
    if type(a) is Proxy and size is not None:
        return _first_nonzero(a, size, fill_value)
    try:
        found = np.nonzero(np.asarray(a))
    except TracerArrayConversionError:
        raise ConcretizationTypeError(
            "nonzero: how many elements are not zero is not known while tracing.",
            advice="Give the length of the result: nonzero(x, size=n), or use where(mask, x, y).",
        ) from None
    if size is None:
        return tuple(array("nonzero", x.astype(types.int_dtype())) for x in found)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * len(found)
    result = []
    for places, fill in zip(found, fills, strict=True):
        padded = np.full(size, 0 if fill is None else fill, types.int_dtype())
        padded[: len(places[:size])] = places[:size]
        result.append(array("nonzero", padded))
    return tuple(result)


def _first_nonzero(a: Any, size: int, fill_value: Any) -> tuple[Any, ...]:
    """Return the indices of the first `size` elements that are not zero, by their running count."""
    shape, dtype = a.shape, types.int_dtype()
    held = reshape(truth(a), (-1,))
    count = cumsum(convert(held, dtype))
    outside = like(count, size)
    slot = select(held, ops.sub(count, like(count, 1)), outside)
    # What has no slot goes to one behind the end, which is then cut off.
    slots = full((size + 1,), 0, dtype).at[minimum(slot, outside)].set(iota(dtype, held.shape))
    flat = slots[:size]
    total = broadcast_to(count[-1], (size,)) if held.shape[0] else full((size,), 0, dtype)
    is_found = ops.lt(iota(dtype, (size,)), total)
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * len(shape)
    result = []
    for axis, fill in enumerate(fills):
        place = ops.rem(
            ops.div(flat, like(flat, math.prod(shape[axis + 1 :]))), like(flat, shape[axis])
        )
        result.append(select(is_found, place, like(place, 0 if fill is None else fill)))
    return tuple(result)


def clip(arr: Any = None, /, min: Any = None, max: Any = None) -> Any:
    """Return `arr` limited to at least `min` and at most `max`; None is no limit."""
    result = _ordered("clip", *(array("clip", x) for x in (arr, min, max) if x is not None))
    result = result if min is None else maximum(min, result)
    return result if max is None else minimum(max, result)


def fmax(x1: Any, x2: Any) -> Any:
    """Return the larger of each pair; of a number and NaN, the number."""
    x1, x2 = promote_operands("fmax", x1, x2)
    return select(ops.or_(greater(x1, x2), ops.ne(x2, x2)), x1, x2)


def fmin(x1: Any, x2: Any) -> Any:
    """Return the smaller of each pair; of a number and NaN, the number."""
    x1, x2 = promote_operands("fmin", x1, x2)
    return select(ops.or_(less(x1, x2), ops.ne(x2, x2)), x1, x2)


def heaviside(x1: Any, x2: Any, /) -> Any:
    """Return 0 for negative `x1`, 1 for positive, `x2` at 0."""
    x1, x2 = strong_operands("heaviside", x1, x2)
    zero = like(x1, 0)
    step = select(ops.gt(x1, zero), like(x1, 1), x2)
    return select(ops.ne(x1, x1), x1, select(ops.lt(x1, zero), zero, step))


def select_first(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Return, for each place, the choice that goes with the first condition that holds there."""
    if len(condlist) != len(choicelist):
        raise ArgumentValueError(
            f"select: {len(condlist)} conditions do not go with {len(choicelist)} choices.",
            advice="Give one choice for each condition.",
        )
    *choices, result = promote_operands("select", *choicelist, default)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        result = where(condition, choice, result)
    return result


# --- functions made of several ops ---


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """Return the logarithm of the sum of the exponentials of each pair, without overflow.

    Its two operands are ordered by a select, not by maximum: each branch is then the function
    itself, so derivatives of every order are right where the operands are equal.
    """
    x1, x2 = inexact_operands("logaddexp", x1, x2)
    first = ops.ge(real(x1), real(x2))
    difference = select(first, ops.sub(x2, x1), ops.sub(x1, x2))
    result = ops.add(select(first, x1, x2), ops.log1p(ops.exp(difference)))
    # Infinities of one sign: their difference is NaN, and their sum is the answer.
    size = ops.abs_(x1)
    infinite = ops.and_(ops.eq(x1, x2), ops.eq(size, like(size, math.inf)))
    result = select(infinite, ops.add(x1, x2), result)
    if types.is_complex(result.dtype):
        # The logarithm whose imaginary part is an angle in [-pi, pi).
        angle = remainder(ops.add(imag(result), like(imag(result), math.pi)), 2 * math.pi)
        return ops.complex_(real(result), ops.sub(angle, like(angle, math.pi)))
    return result


def logaddexp2(x1: Any, x2: Any, /) -> Any:
    """Return the logarithm to the base 2 of the sum of 2 to the power of each pair."""
    x1, x2 = strong_operands("logaddexp2", x1, x2)
    scale = like(x1, math.log(2))
    return ops.div(logaddexp(ops.mul(x1, scale), ops.mul(x2, scale)), scale)


def hypot(x1: Any, x2: Any, /) -> Any:
    """Return the length of the vector `(x1, x2)`, without overflow; its gradient at 0 is 0."""
    x1, x2 = strong_operands("hypot", x1, x2)
    if types.is_complex(x1.dtype):
        raise ArgumentValueError(
            "hypot does not support complex numbers.", advice="Take absolute values first."
        )
    x1, x2 = ops.abs_(x1), ops.abs_(x2)
    low, high = ops.minimum(x1, x2), ops.maximum(x1, x2)
    ratio = ops.div(low, select(ops.eq(high, like(high, 0)), like(high, 1), high))
    length = ops.mul(high, ops.sqrt(ops.add(like(ratio, 1), ops.mul(ratio, ratio))))
    length = select(ops.eq(high, like(high, 0)), high, length)
    infinite = ops.or_(ops.eq(x1, like(x1, math.inf)), ops.eq(x2, like(x2, math.inf)))
    return select(infinite, like(x1, math.inf), length)


def i0(x: Any) -> Any:
    """Return the modified Bessel function of the first kind of order 0."""
    return special.bessel_i0(inexact("i0", x))


def sinc(x: Any, /) -> Any:
    """Return sin(pi x) / (pi x), and 1 at 0."""
    x = inexact("sinc", x)
    angle = ops.mul(x, like(x, math.pi))
    size = ops.abs_(angle)
    near = ops.lt(size, like(size, 0.25))
    # The series has the derivatives of every order that the quotient lacks at 0.
    squared, series = ops.mul(angle, angle), like(x, -1 / math.factorial(11))
    for k in (9, 7, 5, 3, 1):
        coefficient = (-1) ** (k // 2) / math.factorial(k)
        series = ops.add(ops.mul(series, squared), like(x, coefficient))
    divisor = select(near, like(angle, 1), angle)
    return select(near, series, ops.div(ops.sin(angle), divisor))


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return whether each pair is equal up to `atol + rtol * abs(b)`."""
    a, b = promote_operands("isclose", a, b)
    if not types.is_inexact(a.dtype):
        a, b = (convert(x, inexact_dtype(x.dtype)) for x in (a, b))
    tolerance = add(atol, multiply(rtol, absolute(b)))
    apart = ops.abs_(ops.sub(a, b))
    near = ops.le(apart, convert(tolerance, apart.dtype))
    close = ops.or_(ops.and_(near, ops.and_(isfinite(a), isfinite(b))), ops.eq(a, b))
    return ops.or_(close, ops.and_(isnan(a), isnan(b))) if equal_nan else close


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Return whether all pairs are equal up to `atol + rtol * abs(b)`."""
    return reduce_and(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Return whether two arrays have one shape and equal elements."""
    a1, a2 = asarray(a1), asarray(a2)
    if not same_shape(a1.shape, a2.shape):
        return asarray(False)
    return _all_equal(a1, a2, equal_nan)


def array_equiv(a1: Any, a2: Any) -> Any:
    """Return whether two arrays broadcast to each other and have equal elements."""
    a1, a2 = asarray(a1), asarray(a2)
    try:
        types.broadcast_shapes(a1.shape, a2.shape)
    except ShapeError:
        return asarray(False)
    return _all_equal(a1, a2, False)


def _all_equal(a1: Any, a2: Any, equal_nan: bool) -> Any:
    a1, a2 = promote_operands("array_equal", a1, a2)
    same = ops.eq(a1, a2)
    same = ops.or_(same, ops.and_(isnan(a1), isnan(a2))) if equal_nan else same
    return reduce_and(convert(same, types.bool_))
