"""Parts of floating numbers: sign, exponent, mantissa, neighbours; all exact.

Signs and exponents are read from the bits and have no derivative; what a number is multiplied by
has, so `frexp` and `ldexp` are differentiable in the number.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.numpy.arguments import array, arrays, inexact, inexact_operands, numeric
from stax.operators import bits, elementwise as ops
from stax.operators.arithmetic import broadcast_shapes, cast
from stax.operators.elementwise import convert, like, select
from stax.trace import full


def _real(name: str, *args: Any) -> list[Any]:
    """Return the arguments in one real floating type and one shape; raises for complex numbers."""
    found = inexact_operands(name, *args)
    if types.is_complex(found[0].dtype):
        error = ArgumentValueError if len(args) == 1 and name != "frexp" else DTypeError
        raise error(
            f"{name} does not support complex numbers.", advice="Take real or imaginary parts."
        )
    return found


def signbit(x: Any, /) -> Any:
    """Return whether the sign of each element is minus: also of -0.0 and of negative NaN."""
    x = array("signbit", x)
    if types.is_bool(x.dtype):
        return full(x.shape, False, types.bool_)
    if types.is_integer(x.dtype):
        return convert(ops.lt(x, like(x, 0)), types.bool_)
    return bits.signbit(*_real("signbit", x))


def copysign(x1: Any, x2: Any, /) -> Any:
    """Return the magnitude of `x1` with the sign of `x2`; integers are taken as float32."""
    x1, x2 = _real("copysign", x1, x2)
    magnitude = ops.abs_(x1)
    return select(bits.signbit(x2), ops.neg(magnitude), magnitude)


def nextafter(x: Any, y: Any, /) -> Any:
    """Return the floating number next to `x` in the direction of `y`."""
    return bits.nextafter(*_real("nextafter", x, y))


def spacing(x: Any, /) -> Any:
    """Return the distance to the next number away from zero, with the sign of `x`.

    For float16, as in NumPy, to the next larger number.
    """
    (x,) = _real("spacing", x)
    x = convert(x, x.dtype)
    far = like(x, math.inf)
    if x.dtype != types.float16:
        far = select(bits.signbit(x), ops.neg(far), far)
    return ops.sub(bits.nextafter(x, far), x)


def frexp(x: Any, /) -> tuple[Any, Any]:
    """Return the mantissa, between 0.5 and 1 in magnitude, and the exponent, an int32.

    Zero, infinities and NaN are returned with the exponent 0.
    """
    (x,) = _real("frexp", x)
    x = convert(x, x.dtype)
    exponent = _exponent(x)
    return _scaled(x, ops.neg(exponent)), convert(exponent, types.int32)


def _exponent(x: Any) -> Any:
    """Return the exponent of `frexp` as a signed integer of the width of `x`."""
    limits = ml_dtypes.finfo(x.dtype)
    digits, bias = int(limits.nmant), 1 - int(limits.minexp)
    # Subnormal numbers are brought among the normal ones first.
    small = ops.lt(ops.abs_(x), like(x, float(limits.smallest_normal)))
    raised = select(small, ops.mul(x, like(x, 2.0 ** (digits + 1))), x)
    pattern = bits.bitcast(raised, bits.signed(x.dtype))
    mask = like(pattern, (1 << int(limits.nexp)) - 1)
    field = ops.and_(ops.shift_right_arithmetic(pattern, like(pattern, digits)), mask)
    less = select(small, like(field, bias + digits), like(field, bias - 1))
    ordinary = ops.and_(ops.is_finite(x), ops.ne(x, like(x, 0)))
    return select(ordinary, ops.sub(field, less), like(field, 0))


def _power_of_two(n: Any, dtype: Any) -> Any:
    """Return 2 to the power `n` for exponents of normal numbers, put together from its bits."""
    limits = ml_dtypes.finfo(dtype)
    field = ops.add(n, like(n, 1 - int(limits.minexp)))
    return bits.bitcast(ops.shift_left(field, like(n, int(limits.nmant))), dtype)


def _scaled(x: Any, n: Any) -> Any:
    """Return `x` times 2 to the power `n`, in halves, each of them a normal number."""
    half = ops.shift_right_arithmetic(n, like(n, 1))
    for part in (half, ops.sub(n, half)):
        x = ops.mul(x, _power_of_two(part, x.dtype))
    return x


def ldexp(x1: Any, x2: Any, /) -> Any:
    """Return `x1` times 2 to the power `x2`, an integer; rounded once.

    Raises ArgumentValueError for complex `x1` and for `x2` that is not an integer.
    """
    x1, x2 = arrays("ldexp", x1, x2)
    if types.is_complex(x1.dtype) or types.is_inexact(x2.dtype):
        raise ArgumentValueError(
            f"ldexp takes a real number and an integer, not {x1.type} and {x2.type}.",
            advice="Multiply by 2.0 ** x2 for other exponents.",
        )
    x1 = inexact("ldexp", x1)
    shape = broadcast_shapes("ldexp", x1.type, x2.type)
    x1 = cast(x1, shape, x1.dtype, x1.weak_type)
    limits = ml_dtypes.finfo(x1.dtype)
    reach = 4 * (int(limits.maxexp) + int(limits.nmant))
    x2 = numeric("ldexp", x2)
    own = np.iinfo(x2.dtype)
    n = _clamped(x2, max(-reach, int(own.min)), min(reach, int(own.max)))
    n = cast(n, shape, bits.signed(x1.dtype), False)
    exponent = _exponent(x1)
    mantissa, total = _scaled(x1, ops.neg(exponent)), ops.add(n, exponent)
    # The first factor leads to a normal number, so only the second product is rounded.
    first = _clamped(total, int(limits.minexp) + 1, int(limits.maxexp) - 1)
    second = _clamped(ops.sub(total, first), int(limits.minexp), 2)
    found = ops.mul(mantissa, _power_of_two(first, x1.dtype))
    return ops.mul(found, _power_of_two(second, x1.dtype))


def _clamped(n: Any, low: int, high: int) -> Any:
    return ops.minimum(ops.maximum(n, like(n, low)), like(n, high))
