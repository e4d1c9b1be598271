"""Element-wise ops: one row each.

A row gives the name, the NumPy meaning, and for each argument the tangent it contributes, given
that argument's tangent `t`, the result and the arguments.  Everything else about an element-wise op
follows from its being element-wise: the operands have one shape and (but for `select`) one dtype,
a batch axis is one more axis, and one element of the result is the scalar function of one element
of each operand.

Derivatives follow JAX's conventions at ties and kinks: `maximum(x, x)` splits evenly, `abs` has
derivative 1 at 0 and `sign` has 0.  Derivatives are linear maps, of complex numbers too: nothing is
conjugated on the way back, so the gradient of a real function of x + iy is df/dx - i df/dy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.special

from stax import types
from stax.errors import DTypeError, ShapeError
from stax.extent import same_shape
from stax.op import Batch, Linear, Op
from stax.operators import complex
from stax.operators.broadcast import lead_all
from stax.trace import Proxy, bind, full, type_of
from stax.types import (
    ArrayType,
    is_bits,
    is_bool,
    is_comparable,
    is_complex,
    is_float,
    is_inexact,
    is_number,
    is_numeric,
    is_ordered,
)

Partial = Callable[..., Any]


class Row(NamedTuple):
    """What distinguishes one element-wise op from the others."""

    evaluate: Callable[..., Any]
    partials: tuple[Partial | None, ...]
    accepts: Callable[[Any], bool]
    to_bool: bool
    to_real: bool  # of complex operands
    linear: tuple[int, ...]  # arguments in which it is linear, the others held fixed
    to_complex: bool = False  # of real operands
    pulls: tuple[Partial, ...] = ()  # what it pulls a cotangent back to, if not by its partials


ROWS: dict[str, Row] = {}


@dataclass(frozen=True, eq=False)
class Elementwise(Op):
    """The op of one row."""

    name: str  # type: ignore[misc]

    def parameters(self) -> dict[str, Any]:
        return {}

    @property
    def row(self) -> Row:
        return ROWS[self.name]

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        first, row = operands[0], ROWS[self.name]
        if any(other is not first for other in operands[1:]):
            check_same(self.name, operands)
        if not row.accepts(first.dtype):
            raise DTypeError(
                f"{self.name} does not accept {types.SHORT_NAMES[first.dtype]}.",
                advice=f"It accepts {accepted(row.accepts)}; convert with astype.",
            )
        weak = all(t.weak for t in operands)
        if row.to_bool:
            return ArrayType(types.bool_, first.shape, weak)
        dtype = types.real_part(first.dtype) if row.to_real else first.dtype
        if row.to_complex:
            dtype = types.complex_of(dtype)
        return ArrayType(dtype, first.shape, weak)

    def evaluate(self, *arrays: np.ndarray) -> Any:
        with np.errstate(all="ignore"):
            return ROWS[self.name].evaluate(*arrays)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        total = None
        for partial, t in zip(ROWS[self.name].partials, tangents, strict=True):
            if t is not None and partial is not None:
                term = partial(t, out, *primals)
                total = term if total is None else add(total, term)
        return total

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        # Multiplication by something fixed is its own transpose, so the partials serve again.
        row = ROWS[self.name]
        pulls = row.pulls or row.partials
        cts: list[Any] = []
        for i, x in enumerate(inputs):
            if not isinstance(x, Linear):
                cts.append(None)
            elif i in row.linear:
                cts.append(pulls[i](ct, None, *inputs))  # type: ignore[misc]
            else:
                raise self._missing("transpose")
        return cts

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.apply(self.name, *(x(index) for x in operands))


def check_same(name: str, operands: Sequence[ArrayType]) -> None:
    """Raise unless the operands have one shape and one dtype."""
    first = operands[0]
    for other in operands[1:]:
        if other.dtype != first.dtype:
            shown = ", ".join(types.SHORT_NAMES[t.dtype] for t in operands)
            raise DTypeError(
                f"{name}: operands must have one dtype, got {shown}.",
                advice="stax.numpy converts by itself; here, use astype.",
            )
        if not same_shape(other.shape, first.shape):
            shown = ", ".join(str(t.shape) for t in operands)
            raise ShapeError(
                f"{name}: operands must have one shape, got {shown}.",
                advice="stax.numpy broadcasts by itself; here, use broadcast_in_dim.",
            )


def elementwise(
    name: str,
    evaluate: Callable[..., Any],
    *partials: Partial | None,
    accepts: Callable[[Any], bool] = is_inexact,
    to_bool: bool = False,
    to_real: bool = False,
    linear: tuple[int, ...] = (),
    to_complex: bool = False,
    pulls: tuple[Partial, ...] = (),
) -> Callable[..., Any]:
    """Add a row and return the function that applies it."""
    ROWS[name] = Row(evaluate, partials, accepts, to_bool, to_real, linear, to_complex, pulls)
    op = Elementwise(name)

    def function(*args: Any) -> Any:
        return bind(op, *args)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Apply `{name}` to each element; operands have one shape and dtype."
    return function


def like(x: Any, value: float) -> Any:
    """Return the number `value` in the shape and dtype of `x`."""
    t = type_of(x)
    return full(t.shape, value, t.dtype, t.weak)


def accepted(accepts: Callable[[Any], bool]) -> str:
    """Return the dtypes that a row accepts, by kind."""
    kinds = {
        "bool": types.bool_,
        "integers": types.int32,
        "floating types": types.float32,
        "complex types": types.complex64,
    }
    found = [name for name, example in kinds.items() if accepts(example)]
    return " and ".join([", ".join(found[:-1]), found[-1]] if len(found) > 1 else found)


# --- the meaning of ops that NumPy has in another form ---


def _or_complex(function: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    """Make `function` of real numbers that is `other` of complex ones."""

    def evaluate(*arrays: np.ndarray) -> Any:
        return (other if is_complex(arrays[0].dtype) else function)(*arrays)

    return evaluate


_multiply = _or_complex(np.multiply, complex.multiply)


def _divide(x: np.ndarray, y: np.ndarray) -> Any:
    if is_complex(x.dtype):
        return complex.divide(x, y)
    if x.dtype.kind not in "iu":
        return np.true_divide(x, y)
    # Integer division truncates; by zero it gives all ones, and the lowest number over -1 wraps.
    safe = np.where(y == 0, np.ones_like(y), y)
    if x.dtype.kind == "u":
        return np.where(y == 0, np.array(-1).astype(x.dtype), x // safe)
    safe = np.where(safe == -1, np.ones_like(y), safe)
    quotient = x // safe
    quotient = quotient + ((quotient < 0) & (quotient * safe != x)).astype(x.dtype)
    return np.where(y == 0, np.array(-1, x.dtype), np.where(y == -1, np.negative(x), quotient))


def _remainder(x: np.ndarray, y: np.ndarray) -> Any:
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    # Any number over 1 or -1 leaves 0; the machine traps for the lowest number over -1.
    trap = (y == 0) | (y == -1) if x.dtype.kind == "i" else y == 0
    return np.where(y == 0, x, np.fmod(x, np.where(trap, np.ones_like(y), y)))


def _shift(shift: Callable[..., Any], fill: bool) -> Callable[..., Any]:
    def evaluate(x: np.ndarray, y: np.ndarray) -> Any:
        bits = x.dtype.itemsize * 8
        outside = (y < 0) | (y >= bits)
        moved = shift(x, np.where(outside, bits - 1 if fill else 0, y).astype(y.dtype))
        return moved if fill else np.where(outside, np.zeros_like(x), moved)

    return evaluate


def _shift_right_logical(x: np.ndarray, y: np.ndarray) -> Any:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned), y.astype(unsigned)).view(x.dtype)


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function that lacks the 16-bit types: computed in float32, rounded once."""

    def evaluate(*arrays: np.ndarray) -> Any:
        if arrays[0].dtype in (types.float16, types.bfloat16):
            return function(*(a.astype(np.float32) for a in arrays)).astype(arrays[0].dtype)
        return function(*arrays).astype(arrays[0].dtype)

    return evaluate


def _first_of_equals(pick: np.ufunc, holds: np.ufunc) -> Callable[..., Any]:
    """Make `pick` keep its first operand on ties: NumPy's choice between zeros of two signs depends
    on the machine."""

    def evaluate(x: np.ndarray, y: np.ndarray) -> Any:
        return np.where(holds(x, y) | (x != x), x, y) if types.is_float(x.dtype) else pick(x, y)

    return evaluate


def _conjugate(x: np.ndarray) -> Any:
    return np.conj(x.astype(types.complex_of(x.dtype), copy=False))


def _has_parts(dtype: Any) -> bool:
    return dtype in (types.float32, types.float64)


def _has_complex(dtype: Any) -> bool:
    return is_complex(dtype) or _has_parts(dtype)


def _is_real_number(dtype: Any) -> bool:
    return is_number(dtype) and not is_complex(dtype)


def _logistic(x: np.ndarray) -> Any:
    return 1 / (1 + np.exp(-x))


def _rsqrt(x: np.ndarray) -> Any:
    return 1 / np.sqrt(x)


# --- derivatives that take more than a line ---


def _share(x: Any, out: Any, y: Any) -> Any:
    """How much of the tangent of max(x, y) is that of x: all, half at a tie, or none."""
    one, zero = like(x, 1), like(x, 0)
    return div(select(eq(x, out), one, zero), select(eq(y, out), like(x, 2), one))


def _power_base(t: Any, out: Any, x: Any, y: Any) -> Any:
    # x ** 0 is constant, at 0 too, where 0 * 0 ** -1 would be NaN.
    constant = and_(eq(x, like(x, 0)), eq(y, like(y, 0)))
    exponent = select(constant, like(y, 1), sub(y, like(y, 1)))
    return mul(t, mul(y, power(x, exponent)))


def _power_exponent(t: Any, out: Any, x: Any, y: Any) -> Any:
    at_zero = eq(x, like(x, 0))
    logarithm = log(select(at_zero, like(x, 1), x))
    return mul(t, mul(logarithm, power(x, y) if out is None else out))


def _abs_tangent(t: Any, y: Any, x: Any) -> Any:
    if not is_complex(type_of(x).dtype):
        return mul(t, select(ge(x, like(x, 0)), like(x, 1), like(x, -1)))
    # The length of the tangent along x; at 0, where there is no direction, 0.
    length = select(eq(y, like(y, 0)), like(y, 1), y)
    along_real, along_imag = (mul(part(t), div(part(x), length)) for part in (real, imag))
    return add(along_real, along_imag)


def _acosh_slope(x: Any) -> Any:
    below, above = sub(x, like(x, 1)), add(x, like(x, 1))
    if is_complex(type_of(x).dtype):
        # The root of the product has the other sign in the left half of the plane.
        return mul(rsqrt(below), rsqrt(above))
    return rsqrt(mul(below, above))


def _zero_imag(t: Any) -> Any:
    return complex_(t, like(t, 0))


def _zero_real(t: Any) -> Any:
    return complex_(like(t, 0), t)


def _conj_pull(t: Any, out: Any, x: Any) -> Any:
    return conj(t) if is_complex(x.type.dtype) else real(t)


def _erf_slope(t: Any, out: Any, x: Any) -> Any:
    return mul(mul(like(x, 2 / np.sqrt(np.pi)), t), exp(neg(mul(x, x))))


# --- the table ---
# fmt: off

neg   = elementwise("neg",   np.negative, lambda t, y, x: neg(t), accepts=is_number, linear=(0,))
add   = elementwise("add",   np.add,      lambda t, z, x, y: t, lambda t, z, x, y: t, accepts=is_numeric, linear=(0, 1))
sub   = elementwise("sub",   np.subtract, lambda t, z, x, y: t, lambda t, z, x, y: neg(t), accepts=is_number, linear=(0, 1))
mul   = elementwise("mul",   _multiply,   lambda t, z, x, y: mul(t, y), lambda t, z, x, y: mul(x, t), accepts=is_numeric, linear=(0, 1))
div   = elementwise("div",   _divide,     lambda t, z, x, y: div(t, y), lambda t, z, x, y: neg(div(mul(t, z), y)), accepts=is_number, linear=(0,))
rem   = elementwise("rem",   _remainder,  lambda t, z, x, y: t, lambda t, z, x, y: mul(neg(t), trunc(div(x, y))), accepts=_is_real_number)
power = elementwise("pow",   np.power,    _power_base, _power_exponent)

maximum = elementwise("maximum", _first_of_equals(np.maximum, np.greater_equal), lambda t, z, x, y: mul(t, _share(x, z, y)), lambda t, z, x, y: mul(t, _share(y, z, x)), accepts=is_numeric)
minimum = elementwise("minimum", _first_of_equals(np.minimum, np.less_equal), lambda t, z, x, y: mul(t, _share(x, z, y)), lambda t, z, x, y: mul(t, _share(y, z, x)), accepts=is_numeric)

abs_  = elementwise("abs",   np.abs,      _abs_tangent, accepts=is_number, to_real=True)
sign  = elementwise("sign",  _or_complex(_in_float32(np.sign), complex.sign), None, accepts=is_number)
floor = elementwise("floor", np.floor,    None, accepts=is_float)
ceil  = elementwise("ceil",  np.ceil,     None, accepts=is_float)
trunc = elementwise("trunc", np.trunc,    None, accepts=is_float)
round_ = elementwise("round", np.rint,    None, accepts=is_float)

exp   = elementwise("exp",   np.exp,      lambda t, y, x: mul(t, y))
exp2  = elementwise("exp2",  _or_complex(np.exp2, complex.exp2),    lambda t, y, x: mul(like(x, np.log(2)), mul(t, y)))
expm1 = elementwise("expm1", _or_complex(np.expm1, complex.expm1), lambda t, y, x: mul(t, add(y, like(y, 1))))
log   = elementwise("log",   np.log,      lambda t, y, x: div(t, x))
log1p = elementwise("log1p", _or_complex(np.log1p, complex.log1p),   lambda t, y, x: div(t, add(x, like(x, 1))))
sqrt  = elementwise("sqrt",  np.sqrt,     lambda t, y, x: mul(t, div(like(x, 0.5), y)))
rsqrt = elementwise("rsqrt", _or_complex(_rsqrt, complex.rsqrt),   lambda t, y, x: mul(t, mul(like(x, -0.5), div(y, x))))
cbrt  = elementwise("cbrt",  _in_float32(np.cbrt), lambda t, y, x: div(t, mul(like(x, 3), mul(y, y))), accepts=is_float)

sin   = elementwise("sin",   np.sin,      lambda t, y, x: mul(t, cos(x)))
cos   = elementwise("cos",   np.cos,      lambda t, y, x: neg(mul(t, sin(x))))
tan   = elementwise("tan",   np.tan,      lambda t, y, x: mul(t, add(like(x, 1), mul(y, y))))
asin  = elementwise("asin",  np.arcsin,   lambda t, y, x: mul(t, rsqrt(sub(like(x, 1), mul(x, x)))))
acos  = elementwise("acos",  np.arccos,   lambda t, y, x: neg(mul(t, rsqrt(sub(like(x, 1), mul(x, x))))))
atan  = elementwise("atan",  np.arctan,   lambda t, y, x: div(t, add(like(x, 1), mul(x, x))))
atan2 = elementwise("atan2", _or_complex(np.arctan2, complex.atan2), lambda t, z, y, x: mul(t, div(x, add(mul(x, x), mul(y, y)))), lambda t, z, y, x: mul(t, div(neg(y), add(mul(x, x), mul(y, y)))))
sinh  = elementwise("sinh",  np.sinh,     lambda t, y, x: mul(t, cosh(x)))
cosh  = elementwise("cosh",  np.cosh,     lambda t, y, x: mul(t, sinh(x)))
tanh  = elementwise("tanh",  np.tanh,     lambda t, y, x: mul(t, sub(like(x, 1), mul(y, y))))
asinh = elementwise("asinh", np.arcsinh,  lambda t, y, x: mul(t, rsqrt(add(mul(x, x), like(x, 1)))))
acosh = elementwise("acosh", np.arccosh,  lambda t, y, x: mul(t, _acosh_slope(x)))
atanh = elementwise("atanh", np.arctanh,  lambda t, y, x: div(t, sub(like(x, 1), mul(x, x))))

logistic = elementwise("logistic", _or_complex(_logistic, complex.logistic), lambda t, y, x: mul(t, mul(y, sub(like(y, 1), y))))
erf   = elementwise("erf",   _in_float32(scipy.special.erf),  _erf_slope, accepts=is_float)
erfc  = elementwise("erfc",  _in_float32(scipy.special.erfc), lambda t, y, x: neg(_erf_slope(t, y, x)), accepts=is_float)

real  = elementwise("real",  np.real,     lambda t, y, x: real(t), accepts=is_complex, to_real=True, linear=(0,), pulls=(lambda t, y, x: _zero_imag(t),))
imag  = elementwise("imag",  np.imag,     lambda t, y, x: imag(t), accepts=is_complex, to_real=True, linear=(0,), pulls=(lambda t, y, x: _zero_real(neg(t)),))
conj  = elementwise("conj",  _conjugate,  lambda t, y, x: conj(t), accepts=_has_complex, linear=(0,), to_complex=True, pulls=(_conj_pull,))
complex_ = elementwise("complex", complex.join, lambda t, z, x, y: _zero_imag(t), lambda t, z, x, y: _zero_real(t), accepts=_has_parts, linear=(0, 1), to_complex=True, pulls=(lambda t, z, x, y: real(t), lambda t, z, x, y: imag(neg(t))))

is_finite = elementwise("is_finite", np.isfinite, None, accepts=is_inexact, to_bool=True)
eq    = elementwise("eq", np.equal,         None, None, accepts=is_comparable, to_bool=True)
ne    = elementwise("ne", np.not_equal,     None, None, accepts=is_comparable, to_bool=True)
lt    = elementwise("lt", np.less,          None, None, accepts=is_ordered, to_bool=True)
le    = elementwise("le", np.less_equal,    None, None, accepts=is_ordered, to_bool=True)
gt    = elementwise("gt", np.greater,       None, None, accepts=is_ordered, to_bool=True)
ge    = elementwise("ge", np.greater_equal, None, None, accepts=is_ordered, to_bool=True)

and_  = elementwise("and", np.bitwise_and, None, None, accepts=is_bits)
or_   = elementwise("or",  np.bitwise_or,  None, None, accepts=is_bits)
xor   = elementwise("xor", np.bitwise_xor, None, None, accepts=is_bits)
not_  = elementwise("not", np.invert,      None, accepts=is_bits)
shift_left = elementwise("shift_left", _shift(np.left_shift, False), None, None, accepts=types.is_integer)
shift_right_logical = elementwise("shift_right_logical", _shift(_shift_right_logical, False), None, None, accepts=types.is_integer)
shift_right_arithmetic = elementwise("shift_right_arithmetic", _shift(np.right_shift, True), None, None, accepts=types.is_integer)

# fmt: on


@dataclass(frozen=True, eq=False)
class Select(Op):
    """Take an element of `x` where `condition` holds and of `y` elsewhere; a value, not a branch."""

    name: ClassVar[str] = "select"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        condition, x, y = operands
        check_same(self.name, (x, y))
        if not is_bool(condition.dtype):
            raise DTypeError(
                f"select: the condition must be bool, got {condition}.",
                advice="Compare it with something: x != 0.",
            )
        if not same_shape(condition.shape, x.shape):
            raise ShapeError(
                f"select: condition {condition} and operands {x} differ in shape.",
                advice="stax.numpy.where broadcasts by itself.",
            )
        return ArrayType(x.dtype, x.shape, x.weak and y.weak)

    def evaluate(self, *arrays: np.ndarray) -> Any:
        return np.where(*arrays)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        _, x, y = tangents
        zero = like(out, 0)
        return select(primals[0], zero if x is None else x, zero if y is None else y)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        condition, x, y = inputs
        zero = like(ct, 0)
        return (
            None,
            select(condition, ct, zero) if isinstance(x, Linear) else None,
            select(condition, zero, ct) if isinstance(y, Linear) else None,
        )

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.apply("select", *(x(index) for x in operands))


def select(condition: Any, x: Any, y: Any) -> Any:
    """Return elements of `x` where `condition` holds, of `y` elsewhere; one shape, one dtype."""
    return bind(Select(), condition, x, y)


@dataclass(frozen=True, eq=False)
class Convert(Op):
    """Convert each element to `dtype`; the weak flag is part of the result's type.

    A complex number becomes a real one by its real part.
    """

    dtype: Any
    weak: bool
    name: ClassVar[str] = "convert"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        kinds = (self.dtype, operands[0].dtype)
        if any(map(types.is_key, kinds)) and kinds[0] is not kinds[1]:
            raise DTypeError(
                f"convert: {operands[0]} does not become {types.SHORT_NAMES[self.dtype]}.",
                advice="Random keys are no numbers: random.key_data gives their words.",
            )
        return ArrayType(self.dtype, operands[0].shape, self.weak)

    def evaluate(self, *arrays: np.ndarray) -> Any:
        (x,) = arrays
        with np.errstate(all="ignore"):
            if is_complex(x.dtype) and not is_complex(self.dtype):
                x = x.real
            if x.dtype.kind not in "biu" and types.is_integer(self.dtype):
                return _to_integer(x, self.dtype)
            return x.astype(self.dtype)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (t,) = tangents
        return None if t is None or not is_inexact(self.dtype) else convert(t, self.dtype)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (convert(ct, inputs[0].type.dtype),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.convert(operands[0](index), self.dtype)


def _to_integer(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Truncate toward zero, saturate, and take NaN to 0."""
    wide = x.astype(np.float64)
    limits = np.iinfo(dtype)
    inside = (wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)
    cut = np.where(inside, np.trunc(wide), 0.0).astype(dtype)
    ends = np.where(wide > 0, limits.max, np.where(wide < 0, limits.min, 0)).astype(dtype)
    return np.where(inside, cut, ends)


def convert(x: Any, dtype: Any, weak: bool = False) -> Any:
    """Return `x` with its elements converted to `dtype`."""
    t = type_of(x)
    return x if t.dtype == dtype and t.weak == weak else bind(Convert(dtype, weak), x)


@dataclass(frozen=True, eq=False)
class IntegerPow(Op):
    """Raise to a fixed integer power, by repeated squaring in a fixed order."""

    exponent: int
    name: ClassVar[str] = "integer_pow"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        if not is_number(operands[0].dtype):
            raise DTypeError(f"integer_pow does not accept {operands[0]}.")
        return operands[0]

    def evaluate(self, *arrays: np.ndarray) -> Any:
        (x,) = arrays
        with np.errstate(all="ignore"):
            return self.repeated(x, np.ones_like(x), _multiply, _divide)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x,), (t,) = primals, tangents
        if t is None or self.exponent == 0:
            return None
        if self.exponent == 2 and is_complex(x.dtype):
            return mul(t, add(x, x))  # twice an infinite part has no NaN beside it
        slope = mul(like(x, self.exponent), integer_pow(x, self.exponent - 1))
        return mul(t, slope)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        one = kernel.const(1, x.type.dtype)
        return self.repeated(
            x(index),
            one,
            lambda a, b: kernel.apply("mul", a, b),
            lambda a, b: kernel.apply("div", a, b),
        )

    def repeated(
        self, x: Any, one: Any, times: Callable[..., Any], over: Callable[..., Any]
    ) -> Any:
        """Multiply out the power; shared by evaluation and lowering so that their bits agree."""
        rest, square, result = abs(self.exponent), x, None
        while rest:
            if rest & 1:
                result = square if result is None else times(result, square)
            rest >>= 1
            square = times(square, square) if rest else square
        result = one if result is None else result
        return over(one, result) if self.exponent < 0 else result


def integer_pow(x: Any, exponent: int) -> Any:
    """Return `x` to the integer power `exponent`; 0 gives ones, 1 gives `x`."""
    if exponent == 1:
        return x
    return like(x, 1) if exponent == 0 else bind(IntegerPow(exponent), x)
