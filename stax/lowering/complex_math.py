"""Functions of complex numbers written with functions of their real and imaginary parts.

A complex value is a pair of real ones.  Sums, products and quotients are the operations of
`operators.complex` in the same order, so they have the bits of the reference evaluator.  The others
keep what NumPy and C promise: their branch cuts with the sides that signed zeros tell apart, the
limits at infinities, no overflow on the way to a result that fits, and no cancellation where an
identity avoids it.  Square roots and inverse functions follow W. Kahan, "Branch cuts for complex
elementary functions, or much ado about nothing's sign bit" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stax.operators import elementwise as ops
from stax.operators.bits import Bitcast, signed
from stax.operators.elementwise import abs_, add, and_, eq, like, lt, mul, neg, or_, select, sub
from stax.trace import bind, type_of


class Planes(NamedTuple):
    """A complex value: its real and its imaginary part, of one type."""

    real: Any
    imag: Any


# --- helpers on real values ---


def _times(x: Any, number: float) -> Any:
    return mul(x, like(x, number))


def _plus(x: Any, number: float) -> Any:
    return add(x, like(x, number))


def _is_negative(x: Any) -> Any:
    """Return whether the sign bit is set, that of -0.0 too."""
    bits = bind(Bitcast(signed(type_of(x).dtype)), x)
    return lt(bits, like(bits, 0))


def _with_sign(size: Any, x: Any) -> Any:
    """Return `size`, which is not negative, with the sign of `x`."""
    return select(_is_negative(x), neg(size), size)


def _is_zero(x: Any) -> Any:
    return eq(x, like(x, 0))


def _is_infinite(x: Any) -> Any:
    return eq(abs_(x), like(x, math.inf))


def _above(x: Any, number: float) -> Any:
    return ops.gt(x, like(x, number))


def _limits(x: Any) -> np.finfo:
    return np.finfo(type_of(x).dtype)


def _two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """Return a product and its rounding error, by Dekker's splitting of both factors."""
    factor = 2.0 ** -(-(_limits(x).nmant + 1) // 2) + 1

    def parts(v: Any) -> tuple[Any, Any]:
        wide = _times(v, factor)
        high = sub(wide, sub(wide, v))
        return high, sub(v, high)

    product, (a, b), (c, d) = mul(x, y), parts(x), parts(y)
    error = sub(product, mul(a, c))
    return product, sub(mul(b, d), sub(sub(error, mul(b, c)), mul(a, d)))


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """Return a sum and its rounding error."""
    total = add(x, y)
    part = sub(total, x)
    return total, add(sub(x, sub(total, part)), sub(y, part))


def _square_sum(x: Any, y: Any, start: Any) -> Any:
    """Return start + x**2 + y**2, with the digits that cancelling would lose."""
    (p, p_error), (q, q_error) = _two_product(x, x), _two_product(y, y)
    first, first_error = _two_sum(start, p)
    total, error = _two_sum(first, q)
    return add(total, add(add(error, first_error), add(p_error, q_error)))


# --- arithmetic ---


def multiply(x: Planes, y: Planes) -> Planes:
    """Return the product, without a fused multiply-add."""
    (a, b), (c, d) = x, y
    return Planes(sub(mul(a, c), mul(b, d)), add(mul(a, d), mul(b, c)))


def divide(x: Planes, y: Planes) -> Planes:
    """Return the quotient by Smith's algorithm, as the reference evaluator does."""
    (a, b), (c, d) = x, y
    across, along = abs_(c), abs_(d)
    first = ops.ge(across, along)
    large, small = select(first, c, d), select(first, d, c)
    ratio = ops.div(small, large)
    real = select(first, add(a, mul(b, ratio)), add(mul(a, ratio), b))
    imag = select(first, sub(b, mul(a, ratio)), sub(mul(b, ratio), a))
    # Over 0, each part is divided by 0: multiplied by infinity.
    at_zero = and_(_is_zero(across), _is_zero(along))
    below = select(at_zero, across, add(large, mul(small, ratio)))
    scale = ops.div(like(a, 1), below)
    return Planes(mul(select(at_zero, a, real), scale), mul(select(at_zero, b, imag), scale))


def conjugate(x: Planes) -> Planes:
    """Return the conjugate."""
    return Planes(x.real, neg(x.imag))


def _each(op: Callable[..., Any]) -> Callable[..., Planes]:
    """Return the function that applies `op` to real and to imaginary parts."""
    return lambda *xs: Planes(op(*(x.real for x in xs)), op(*(x.imag for x in xs)))


add_planes, subtract_planes, negate = _each(add), _each(sub), _each(neg)


def number(x: Planes, value: complex) -> Planes:
    """Return a number in the shape and type of `x`."""
    return Planes(like(x.real, value.real), like(x.imag, value.imag))


def _scales(a: Any, b: Any, shares: tuple[float, ...]) -> list[Any]:
    """Return a power of 2 that makes squares of `a` and `b` neither overflow nor vanish.

    It is returned raised to each of `shares`; 1 for most numbers.
    """
    largest, info = ops.maximum(a, b), _limits(a)
    power = (info.maxexp // 2 + info.nmant + 1) // 2 * 2
    is_large = _above(largest, 2.0 ** (info.maxexp // 2 - 2))
    is_small = lt(largest, like(largest, 2.0 ** (info.minexp // 2 + info.nmant)))
    found = []
    for share in shares:
        up = 2.0 ** (share * power)
        other = select(is_small, like(a, up), like(a, 1))
        found.append(select(is_large, like(a, 1 / up), other))
    return found


def length(x: Planes) -> Any:
    """Return the absolute value."""
    a, b = abs_(x.real), abs_(x.imag)
    scale, back = _scales(a, b, (1, -1))
    p, q = mul(a, scale), mul(b, scale)
    found = mul(ops.sqrt(add(mul(p, p), mul(q, q))), back)
    infinite = or_(_is_infinite(a), _is_infinite(b))
    return select(infinite, like(a, math.inf), found)


def sign(x: Planes) -> Planes:
    """Return the point of the unit circle in the direction of `x`, and 0 at 0."""
    size = length(x)
    safe = select(_is_zero(size), like(size, 1), size)
    return Planes(ops.div(x.real, safe), ops.div(x.imag, safe))


def equal(x: Planes, y: Planes) -> Any:
    """Return whether both parts are equal."""
    return and_(eq(x.real, y.real), eq(x.imag, y.imag))


def differs(x: Planes, y: Planes) -> Any:
    """Return whether a part is not equal."""
    return or_(ops.ne(x.real, y.real), ops.ne(x.imag, y.imag))


def is_nan(x: Planes) -> Any:
    """Return whether a part is NaN."""
    return differs(x, x)


def choose(condition: Any, x: Planes, y: Planes) -> Planes:
    """Return elements of `x` where `condition` holds, of `y` elsewhere."""
    return Planes(select(condition, x.real, y.real), select(condition, x.imag, y.imag))


def extreme(compare: Callable[..., Any]) -> Callable[[Planes, Planes], Planes]:
    """Return maximum (`compare` is gt) or minimum (lt): by real, then by imaginary parts."""

    def function(x: Planes, y: Planes) -> Planes:
        tie = and_(eq(x.real, y.real), ops.not_(compare(y.imag, x.imag)))
        ahead = and_(or_(compare(x.real, y.real), tie), ops.not_(is_nan(y)))
        return choose(or_(ahead, is_nan(x)), x, y)

    return function


# --- exponentials ---


def _split_exponential(x: Any) -> tuple[Any, Any, Any]:
    """Return where `x` is too large for exp, `x` without a share there, and exp of the share.

    The results of the first two are multiplied by the third last, when a sine made them small.
    """
    share = math.floor(math.log(float(_limits(x).max)))
    is_large = _above(x, share)
    shifted = select(is_large, _plus(x, -share), x)
    return is_large, shifted, select(is_large, like(x, math.exp(share)), like(x, 1))


def exp(z: Planes) -> Planes:
    """Return the exponential."""
    x, y = z
    _, shifted, factor = _split_exponential(x)
    size = ops.exp(shifted)
    real = mul(mul(size, ops.cos(y)), factor)
    imag = select(_is_zero(y), y, mul(mul(size, ops.sin(y)), factor))
    # Without an angle, what is infinitely large is so in its real part, and what vanishes does.
    lost = and_(_is_infinite(x), ops.not_(ops.is_finite(y)))
    gone = and_(lost, _is_negative(x))
    return Planes(
        select(lost, select(gone, like(x, 0), x), real),
        select(gone, _with_sign(like(x, 0), y), imag),
    )


def exp2(z: Planes) -> Planes:
    """Return 2 to the power `z`."""
    return exp(Planes(_times(z.real, math.log(2)), _times(z.imag, math.log(2))))


def expm1(z: Planes) -> Planes:
    """Return the exponential less 1, without losing the digits of a small `z`."""
    x, y = z
    less = ops.expm1(x)
    half = ops.sin(_times(y, 0.5))
    real = sub(mul(less, ops.cos(y)), _times(mul(half, half), 2))
    whole = exp(z)
    is_small = lt(x, like(x, 32))
    return Planes(select(is_small, real, _plus(whole.real, -1)), whole.imag)


def logistic(z: Planes) -> Planes:
    """Return 1 / (1 + exp(-z)), by the exponential that does not overflow."""
    positive = ops.ge(z.real, like(z.real, 0))
    e, one = exp(choose(positive, negate(z), z)), number(z, 1)
    return divide(choose(positive, one, e), Planes(_plus(e.real, 1), e.imag))


def _hyperbolic(x: Any) -> tuple[Any, Any, Any]:
    """Return sinh and cosh of a real number, both to be multiplied by the third result."""
    is_large, size, factor = _split_exponential(abs_(x))
    less = ops.expm1(size)
    whole = _plus(less, 1)
    # Beyond the shift, exp(-x) does not count.
    small = select(is_large, like(x, 0), ops.div(like(x, 1), whole))
    minus = select(is_large, whole, add(less, select(is_large, small, mul(less, small))))
    return _with_sign(_times(minus, 0.5), x), _times(add(whole, small), 0.5), factor


def sinh(z: Planes) -> Planes:
    """Return the hyperbolic sine."""
    x, y = z
    s, c, factor = _hyperbolic(x)
    real = mul(mul(s, ops.cos(y)), factor)
    imag = mul(mul(c, ops.sin(y)), factor)
    lost = and_(or_(_is_zero(x), _is_infinite(x)), ops.not_(ops.is_finite(y)))
    return Planes(select(lost, x, real), select(_is_zero(y), y, imag))


def cosh(z: Planes) -> Planes:
    """Return the hyperbolic cosine."""
    x, y = z
    s, c, factor = _hyperbolic(x)
    real = mul(mul(c, ops.cos(y)), factor)
    imag = mul(mul(s, ops.sin(y)), factor)
    no_angle = ops.not_(ops.is_finite(y))
    lost = and_(_is_infinite(x), no_angle)
    flat = or_(and_(_is_zero(x), no_angle), _is_zero(y))
    zero = _with_sign(like(x, 0), y)
    zero = select(_is_negative(x), neg(zero), zero)
    return Planes(select(lost, abs_(x), real), select(flat, zero, imag))


def tanh(z: Planes) -> Planes:
    """Return the hyperbolic tangent, by Kahan's formula in tan(y) and sinh(x)."""
    x, y = z
    size = abs_(x)
    # From here on tanh(x) rounds to 1, and the imaginary part vanishes with exp(-2x).
    is_large = _above(size, (_limits(x).nmant + 3) * math.log(2) / 2)
    t, s = ops.tan(y), ops.sinh(select(is_large, like(x, 1), x))
    beta = _plus(mul(t, t), 1)
    rho = ops.sqrt(_plus(mul(s, s), 1))
    below = _plus(mul(beta, mul(s, s)), 1)
    real = ops.div(mul(mul(beta, rho), s), below)
    tail = mul(ops.div(_times(t, 4), beta), ops.exp(_times(size, -2)))
    infinite = _is_infinite(x)
    lost = and_(infinite, ops.not_(ops.is_finite(y)))
    imag = select(lost, _with_sign(like(y, 0), y), select(is_large, tail, ops.div(t, below)))
    one = _with_sign(like(x, 1), x)
    one = select(infinite, one, add(one, sub(y, y)))  # NaN where there is no angle
    real = select(is_large, one, select(_is_zero(x), x, real))
    return Planes(real, select(_is_zero(y), y, imag))


def _turned(function: Callable[[Planes], Planes]) -> Callable[[Planes], Planes]:
    """Return -i f(iz): sin for sinh, tan for tanh, and their inverses."""

    def turned(z: Planes) -> Planes:
        real, imag = function(Planes(neg(z.imag), z.real))
        return Planes(imag, neg(real))

    return turned


sin, tan = _turned(sinh), _turned(tanh)


def cos(z: Planes) -> Planes:
    """Return the cosine."""
    return cosh(Planes(neg(z.imag), z.real))


# --- logarithms and powers ---


def _log_length(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two numbers, log of the first plus half of log1p of the second: log of a length."""
    a, b = abs_(x), abs_(y)
    large, small = ops.maximum(a, b), ops.minimum(a, b)
    guess = add(mul(large, large), mul(small, small))
    near = and_(_above(guess, 0.5), lt(guess, like(x, 3)))
    excess = _square_sum(large, small, like(x, -1))
    flat = or_(_is_zero(large), or_(_is_infinite(a), _is_infinite(b)))
    ratio = select(flat, like(x, 0), ops.div(small, large))
    infinite = or_(_is_infinite(a), _is_infinite(b))
    large = select(infinite, like(x, math.inf), large)
    return select(near, like(x, 1), large), select(near, excess, mul(ratio, ratio))


def _finish_log(base: Any, excess: Any) -> Any:
    return add(ops.log(base), _times(ops.log1p(excess), 0.5))


def log(z: Planes) -> Planes:
    """Return the logarithm whose imaginary part is in [-pi, pi]."""
    return Planes(_finish_log(*_log_length(z.real, z.imag)), ops.atan2(z.imag, z.real))


def log1p(z: Planes) -> Planes:
    """Return the logarithm of 1 + z, without losing the digits of a small `z`."""
    x, y = z
    above = _plus(x, 1)
    base, excess = _log_length(above, y)
    # |1 + z|**2 - 1 = 2x + x**2 + y**2
    own = _square_sum(x, y, _times(x, 2))
    close = and_(_above(own, -0.5), lt(own, like(x, 3)))
    base, excess = select(close, like(x, 1), base), select(close, own, excess)
    return Planes(_finish_log(base, excess), ops.atan2(y, above))


def power(x: Planes, y: Planes) -> Planes:
    """Return `x` to the power `y`; of 0, 0 if the power's real part is positive, 1 for the power 0,
    else NaN."""
    c, d = y
    size, turn = length(x), ops.atan2(x.imag, x.real)
    at_zero = equal(x, number(x, 0))
    safe = select(at_zero, like(size, 1), size)
    logarithm = _finish_log(*_log_length(select(at_zero, safe, x.real), x.imag))
    result_size = mul(ops.power(safe, c), ops.exp(neg(mul(d, turn))))
    # A real power of something infinite has an angle.
    angle = add(mul(c, turn), select(_is_zero(d), d, mul(d, logarithm)))
    sine = mul(result_size, ops.sin(angle))
    found = Planes(mul(result_size, ops.cos(angle)), select(_is_zero(angle), angle, sine))
    of_zero = choose(_above(c, 0), number(x, 0), number(x, complex(math.nan, math.nan)))
    found = choose(at_zero, of_zero, found)
    return choose(equal(y, number(y, 0)), number(x, 1), found)


# --- roots ---


def sqrt(z: Planes) -> Planes:
    """Return the square root in the right half of the plane."""
    x, y = z
    a, b = abs_(x), abs_(y)
    scale, back = _scales(a, b, (1, -0.5))
    p, q = mul(a, scale), mul(b, scale)
    size = select(_is_infinite(a), a, ops.sqrt(add(mul(p, p), mul(q, q))))
    root = ops.sqrt(_times(add(p, size), 0.5))
    other = select(_is_zero(root), q, ops.div(q, _times(root, 2)))
    root, other = mul(root, back), mul(other, back)
    right = ops.ge(x, like(x, 0))
    real = select(right, root, other)
    imag = _with_sign(select(right, other, root), y)
    infinite = _is_infinite(y)
    return Planes(select(infinite, like(x, math.inf), real), select(infinite, y, imag))


def rsqrt(z: Planes) -> Planes:
    """Return 1 over the square root."""
    return divide(number(z, 1), sqrt(z))


# --- inverse functions ---


class _Scaled(NamedTuple):
    """An argument made so small that its square does not overflow, and the logarithm of by what."""

    z: Planes
    logarithm: Any


def _scaled(z: Planes) -> _Scaled:
    largest, info = ops.maximum(abs_(z.real), abs_(z.imag)), _limits(z.real)
    is_large = _above(largest, 2.0 ** (info.maxexp - 8))
    factor = select(is_large, like(largest, 2.0**-16), like(largest, 1))
    logarithm = select(is_large, like(largest, 16 * math.log(2)), like(largest, 0))
    return _Scaled(Planes(mul(z.real, factor), mul(z.imag, factor)), logarithm)


def _shifted(z: Planes, by: float) -> Planes:
    return Planes(_plus(z.real, by), z.imag)


def _far(z: Planes) -> tuple[Any, Any, Any]:
    """Return whether `z` is infinite, and in which direction: -1, 0 or 1 for each part."""
    one, zero = like(z.real, 1), like(z.real, 0)
    infinite = or_(_is_infinite(z.real), _is_infinite(z.imag))
    x, y = (_with_sign(select(_is_infinite(part), one, zero), part) for part in z)
    return infinite, x, y


def _lengthened(size: Any, z: Planes) -> Any:
    """Return asinh of `size`, made longer by the logarithm of what `z` was scaled by."""
    found = ops.asinh(size)
    return add(found, _with_sign(_scaled(z).logarithm, size))


def asin(z: Planes) -> Planes:
    """Return the inverse sine; cut along the real axis beyond -1 and 1."""
    small = _scaled(z).z
    p, q = sqrt(Planes(sub(like(z.real, 1), small.real), neg(small.imag))), sqrt(_shifted(small, 1))
    real = ops.atan2(small.real, sub(mul(p.real, q.real), mul(p.imag, q.imag)))
    imag = _lengthened(sub(mul(p.real, q.imag), mul(p.imag, q.real)), z)
    infinite, x, y = _far(z)
    real = select(infinite, ops.atan2(x, abs_(y)), real)
    imag = select(infinite, _with_sign(like(y, math.inf), z.imag), imag)
    real = select(and_(infinite, is_nan(z)), like(x, math.nan), real)
    return Planes(select(_is_zero(z.real), z.real, real), imag)


def acos(z: Planes) -> Planes:
    """Return the inverse cosine; cut along the real axis beyond -1 and 1."""
    small = _scaled(z).z
    p, q = sqrt(Planes(sub(like(z.real, 1), small.real), neg(small.imag))), sqrt(_shifted(small, 1))
    real = _times(ops.atan2(p.real, q.real), 2)
    imag = _lengthened(sub(mul(q.real, p.imag), mul(q.imag, p.real)), z)
    infinite, x, y = _far(z)
    real = select(infinite, ops.atan2(abs_(y), x), real)
    imag = select(infinite, neg(_with_sign(like(y, math.inf), z.imag)), imag)
    real = select(and_(infinite, is_nan(z)), like(x, math.nan), real)
    upright = and_(_is_zero(z.real), ops.ne(z.imag, z.imag))
    return Planes(select(upright, like(x, math.pi / 2), real), imag)


def acosh(z: Planes) -> Planes:
    """Return the inverse hyperbolic cosine; cut along the real axis below 1."""
    real, imag = acos(z)
    # It is i acos(z) or -i acos(z), whichever has a real part that is not negative.
    below = _is_negative(z.imag)
    return Planes(abs_(imag), select(below, neg(real), real))


def atanh(z: Planes) -> Planes:
    """Return the inverse hyperbolic tangent; cut along the real axis beyond -1 and 1."""
    x, y = z
    size = abs_(x)
    info = _limits(x)
    largest = ops.maximum(size, abs_(y))
    is_large = _above(largest, 2.0 ** (info.maxexp // 2 - 4))
    gap = sub(like(x, 1), size)
    squared = add(mul(gap, gap), mul(y, y))
    real = _times(ops.log1p(ops.div(_times(size, 4), squared)), 0.25)
    # Above and below 1, where the square may vanish: log(2 / |y|) / 2.
    is_pole = and_(_is_zero(gap), lt(abs_(y), like(y, 2.0**-info.nmant)))
    near_pole = _times(sub(like(x, math.log(2)), ops.log(abs_(y))), 0.5)
    real = select(is_pole, near_pole, select(_is_zero(x), size, real))
    imag = ops.atan2(_times(y, 2), sub(mul(gap, _plus(size, 1)), mul(y, y)))
    a, b = ops.div(size, largest), ops.div(y, largest)
    tail = ops.div(ops.div(a, add(mul(a, a), mul(b, b))), largest)
    infinite, _, _ = _far(z)
    real = select(infinite, like(x, 0), select(is_large, tail, real))
    imag = select(or_(infinite, is_large), _with_sign(like(y, math.pi), y), imag)
    is_nan_there = and_(infinite, ops.ne(y, y))
    imag = select(is_nan_there, y, imag)
    return Planes(_with_sign(real, x), _times(imag, 0.5))


asinh, atan = _turned(asin), _turned(atanh)


def atan2(y: Planes, x: Planes) -> Planes:
    """Return -i log((x + iy) / sqrt(x**2 + y**2)), which is the angle where both are real."""
    turned = add_planes(x, multiply(number(y, 1j), y))
    size = sqrt(add_planes(multiply(x, x), multiply(y, y)))
    real, imag = log(divide(turned, size))
    return Planes(imag, neg(real))


# --- the table ---

# What an element-wise op does to complex operands.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "neg": negate, "add": add_planes, "sub": subtract_planes, "mul": multiply, "div": divide,
    "pow": power, "maximum": extreme(ops.gt), "minimum": extreme(ops.lt), "abs": length,
    "sign": sign, "exp": exp, "exp2": exp2, "expm1": expm1, "log": log, "log1p": log1p,
    "sqrt": sqrt, "rsqrt": rsqrt, "sin": sin, "cos": cos, "tan": tan, "asin": asin, "acos": acos,
    "atan": atan, "atan2": atan2, "sinh": sinh, "cosh": cosh, "tanh": tanh, "asinh": asinh,
    "acosh": acosh, "atanh": atanh, "logistic": logistic, "eq": equal, "ne": differs,
    "real": lambda x: x.real, "imag": lambda x: x.imag, "conj": conjugate, "complex": Planes,
    "is_finite": lambda x: and_(ops.is_finite(x.real), ops.is_finite(x.imag)),
}  # fmt: skip
