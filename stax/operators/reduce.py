"""Reductions: sums, products, extremes, the places of extremes, and the running forms of them.

Reductions follow one pattern (`broadcast.Reduction`); each adds its derivative.  The products are
differentiated without dividing by an element, so zeros among the factors are harmless to any order:
a product of dual numbers, taken pair by pair, only multiplies and adds.

Sums and products of 16-bit floats accumulate in float32 and are rounded once.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError, ShapeError
from stax.extent import product
from stax.op import Batch, Op
from stax.operators.broadcast import (
    LinearOp,
    ReduceSum as ReduceSum,
    Reduction as Reduction,
    broadcast_in_dim,
    reduce_sum as reduce_sum,
    reduce_with,
)
from stax.operators.elementwise import add, convert, div, eq, like, maximum, minimum, mul, select
from stax.operators.reshape import expand_dims, reshape, rev, transpose
from stax.operators.shape import concatenate, pad, slice_in_dim
from stax.trace import Proxy, bind, full, type_of
from stax.types import (
    ArrayType,
    accumulator,
    canonical_axis,
    is_bits,
    is_number,
    is_numeric,
    is_ordered,
)

# --- products ---


@dataclass(frozen=True, eq=False)
class ReduceProd(Reduction):
    """Multiply over `axes`."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_prod"
    combine: ClassVar[str] = "mul"
    ufunc: ClassVar[np.ufunc] = np.multiply
    accepts = staticmethod(is_number)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x,), (t,) = primals, tangents
        if t is None:
            return None
        x, t = self._flat(x), self._flat(t)
        if type_of(x).shape[-1] == 0:
            return None
        while type_of(x).shape[-1] != 1:
            x, t = _halved(x, t)
        return reshape(t, type_of(out).shape)

    def _flat(self, x: Any) -> Any:
        """Return `x` with the reduced axes merged into one last axis."""
        shape, kept = type_of(x).shape, self.kept(type_of(x).ndim)
        merged = product(tuple(shape[a] for a in self.axes))
        return reshape(transpose(x, [*kept, *self.axes]), (*(shape[a] for a in kept), merged))


def _halved(x: Any, t: Any) -> tuple[Any, Any]:
    """Multiply the first half of the last axis with the second, as dual numbers x + t*e."""
    n = type_of(x).shape[-1]
    if n % 2:
        x, t = _padded(x, 1, 0, 1), _padded(t, 0, 0, 1)
    half = (n + 1) // 2
    x1, x2 = slice_in_dim(x, 0, half, axis=-1), slice_in_dim(x, half, None, axis=-1)
    t1, t2 = slice_in_dim(t, 0, half, axis=-1), slice_in_dim(t, half, None, axis=-1)
    return _product((x1, t1), (x2, t2))


def _product(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
    """Return the product of two dual numbers."""
    return mul(a[0], b[0]), add(mul(a[1], b[0]), mul(a[0], b[1]))


def _padded(x: Any, value: float, low: int, high: int, axis: int = -1) -> Any:
    """Return `x` with a number put before and after it along one axis."""
    type_ = type_of(x)
    config = [(0, 0, 0)] * type_.ndim
    config[axis] = (low, high, 0)
    return pad(x, full((), value, type_.dtype), config)


def reduce_prod(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Multiply the elements of `x` over `axes`, or over all of them."""
    return reduce_with(ReduceProd, x, axes)


# --- extremes ---


class Extreme(Reduction):
    """Base of max and min: NaN wins, and an empty one does not exist.

    Complex numbers are ordered by real, then by imaginary parts.
    """

    accepts = staticmethod(is_numeric)

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        result = super().abstract_eval(*operands)
        check_not_empty(self.name, operands[0], self.axes)
        return result

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x,), (t,) = primals, tangents
        if t is None:
            return None
        # Elements that tie share the tangent evenly.
        shape = type_of(x).shape
        hit = eq(x, broadcast_in_dim(out, shape, self.kept(len(shape))))
        total = reduce_sum(select(hit, t, like(t, 0)), self.axes)
        return div(total, reduce_sum(convert(hit, type_of(t).dtype), self.axes))


def check_not_empty(name: str, x: ArrayType, axes: Sequence[int]) -> None:
    """Raise if there is nothing to find an extreme of."""
    if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes):
        raise ArgumentValueError(
            f"{name}: {x} has no elements along {tuple(axes)}, and an empty extreme has no value.",
            advice="Concatenate the value that an empty array should have, or test the length.",
        )


@dataclass(frozen=True, eq=False)
class ReduceMax(Extreme):
    """The largest element over `axes`."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_max"
    combine: ClassVar[str] = "maximum"
    ufunc: ClassVar[np.ufunc] = np.maximum


@dataclass(frozen=True, eq=False)
class ReduceMin(Extreme):
    """The smallest element over `axes`."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_min"
    combine: ClassVar[str] = "minimum"
    ufunc: ClassVar[np.ufunc] = np.minimum


def reduce_max(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return the largest element of `x` over `axes`, or over all; NaN if there is one."""
    return reduce_with(ReduceMax, x, axes)


def reduce_min(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return the smallest element of `x` over `axes`, or over all; NaN if there is one."""
    return reduce_with(ReduceMin, x, axes)


# --- bits ---


class Bitwise(Reduction):
    """Base of reductions of bits, which have no derivative."""

    accepts = staticmethod(is_bits)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None


@dataclass(frozen=True, eq=False)
class ReduceAnd(Bitwise):
    """Whether all hold over `axes`, bit by bit for integers."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_and"
    combine: ClassVar[str] = "and"
    ufunc: ClassVar[np.ufunc] = np.bitwise_and


@dataclass(frozen=True, eq=False)
class ReduceOr(Bitwise):
    """Whether any holds over `axes`, bit by bit for integers."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_or"
    combine: ClassVar[str] = "or"
    ufunc: ClassVar[np.ufunc] = np.bitwise_or


@dataclass(frozen=True, eq=False)
class ReduceXor(Bitwise):
    """Whether an odd number holds over `axes`, bit by bit for integers."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_xor"
    combine: ClassVar[str] = "xor"
    ufunc: ClassVar[np.ufunc] = np.bitwise_xor


def reduce_and(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return whether all of `x` hold over `axes`, bit by bit for integers."""
    return reduce_with(ReduceAnd, x, axes)


def reduce_or(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return whether any of `x` holds over `axes`, bit by bit for integers."""
    return reduce_with(ReduceOr, x, axes)


def reduce_xor(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Return whether an odd number of `x` holds over `axes`, bit by bit for integers."""
    return reduce_with(ReduceXor, x, axes)


# --- places of extremes ---


@dataclass(frozen=True, eq=False)
class ArgExtreme(Op):
    """Base of argmax and argmin: the first place of the extreme along `axis`; NaN is extreme."""

    axis: int
    index_dtype: np.dtype
    combine: ClassVar[str]
    find: ClassVar[Callable[..., Any]]

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if not 0 <= self.axis < x.ndim:
            raise ShapeError(f"{self.name}: axis {self.axis} is out of range for {x}.")
        if not is_ordered(x.dtype) or not types.is_integer(self.index_dtype):
            raise DTypeError(
                f"{self.name} finds integer places of ordered elements, "
                f"not {self.index_dtype} places in {x}."
            )
        check_not_empty(self.name, x, (self.axis,))
        return ArrayType(self.index_dtype, (*x.shape[: self.axis], *x.shape[self.axis + 1 :]))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = x.astype(accumulator(x.dtype), copy=False)
        return np.asarray(type(self).find(wide, self.axis)).astype(self.index_dtype)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(type(self)(self.axis + 1, self.index_dtype), *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        # Two passes: what the extreme is, then the smallest place that has it (or has a NaN).
        (x,) = operands
        dtype, extent = x.type.dtype, x.type.shape[self.axis]

        def element(reduced: Any) -> Any:
            return x((*index[: self.axis], reduced[0], *index[self.axis :]))

        extreme = kernel.reduce(self.combine, [extent], element, dtype)
        nowhere = kernel.convert(kernel.extent(extent), types.int64)

        def place(reduced: Any) -> Any:
            value = element(reduced)
            hit = kernel.apply("eq", value, extreme)
            if types.is_float(dtype):
                hit = kernel.apply("or", hit, kernel.apply("ne", value, value))
            here = kernel.convert(reduced[0], types.int64)
            return kernel.apply("select", hit, here, nowhere)

        first = kernel.reduce("minimum", [extent], place, types.int64)
        return kernel.convert(first, self.index_dtype)


@dataclass(frozen=True, eq=False)
class ArgMax(ArgExtreme):
    """The first place of the largest element."""

    name: ClassVar[str] = "argmax"
    combine: ClassVar[str] = "maximum"
    find = staticmethod(np.argmax)


@dataclass(frozen=True, eq=False)
class ArgMin(ArgExtreme):
    """The first place of the smallest element."""

    name: ClassVar[str] = "argmin"
    combine: ClassVar[str] = "minimum"
    find = staticmethod(np.argmin)


def argmax(x: Any, axis: int, index_dtype: Any = types.int32) -> Any:
    """Return the first place of the largest element (or of a NaN) along `axis`."""
    return bind(ArgMax(canonical_axis(axis, type_of(x).ndim), np.dtype(index_dtype)), x)


def argmin(x: Any, axis: int, index_dtype: Any = types.int32) -> Any:
    """Return the first place of the smallest element (or of a NaN) along `axis`."""
    return bind(ArgMin(canonical_axis(axis, type_of(x).ndim), np.dtype(index_dtype)), x)


# --- running reductions ---


@dataclass(frozen=True, eq=False)
class Cumulative(Op):
    """Base of running reductions along `axis`, from its end if `reverse`."""

    axis: int
    reverse: bool
    ufunc: ClassVar[np.ufunc]
    combine: ClassVar[str]

    @staticmethod
    @abc.abstractmethod
    def accepts(dtype: Any) -> bool:
        """Say whether elements of `dtype` can be combined."""

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if not 0 <= self.axis < x.ndim:
            raise ShapeError(f"{self.name}: axis {self.axis} is out of range for {x}.")
        if not self.accepts(x.dtype):
            raise DTypeError(f"{self.name} does not accept {types.SHORT_NAMES[x.dtype]}.")
        return x

    @staticmethod
    def wide(dtype: Any) -> Any:
        """Return the dtype of the running values for elements of `dtype`."""
        return accumulator(dtype)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = x.astype(self.wide(x.dtype), copy=False)
        wide = np.flip(wide, self.axis) if self.reverse else wide
        with np.errstate(all="ignore"):
            result = type(self).ufunc.accumulate(wide, axis=self.axis, dtype=wide.dtype)
            result = result.astype(x.dtype, copy=False)
        return np.flip(result, self.axis) if self.reverse else result

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(type(self)(self.axis + 1, self.reverse), *inputs)


@dataclass(frozen=True, eq=False)
class CumSum(Cumulative, LinearOp):
    """Running sums.

    Sums of floats of up to 32 bits run in 64, since one after the other is the least exact order.
    """

    name: ClassVar[str] = "cumsum"
    ufunc: ClassVar[np.ufunc] = np.add
    combine: ClassVar[str] = "add"
    accepts = staticmethod(is_number)

    @staticmethod
    def wide(dtype: Any) -> Any:
        if types.is_complex(dtype):
            return types.complex128
        return types.float64 if types.is_float(dtype) else accumulator(dtype)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        # The sum over what came before pulls back as the sum over what comes after.
        return (cumsum(ct, self.axis, not self.reverse),)


class Dual(Cumulative):
    """Base of running reductions whose derivative is the same one over dual numbers."""

    join: ClassVar[Callable[..., Any]]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x,), (t,) = primals, tangents
        if t is None:
            return None
        pair = (rev(x, self.axis), rev(t, self.axis)) if self.reverse else (x, t)
        _, result = running(type(self).join, pair, self.axis)
        return rev(result, self.axis) if self.reverse else result


def running(join: Callable[..., Any], pair: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    """Return the running values of an associative `join` of tuples of arrays along `axis`.

    Neighbours are joined, the half as many pairs are scanned, and the places between them filled
    in, which takes work in proportion to the length and a depth of its logarithm.
    """
    n = type_of(pair[0]).shape[axis]
    if n < 2:
        return pair

    def part(values: Sequence[Any], start: int, limit: Any, stride: int) -> Any:
        return tuple(slice_in_dim(x, start, limit, stride, axis) for x in values)

    odd = running(join, join(part(pair, 0, n - 1, 2), part(pair, 1, n, 2)), axis)
    if n == 2:
        even = part(pair, 0, 1, 1)
    else:
        between = join(part(odd, 0, (n - 1) // 2, 1), part(pair, 2, n, 2))
        first = part(pair, 0, 1, 1)
        even = tuple(concatenate(both, axis) for both in zip(first, between, strict=True))
    return tuple(_interleaved(a, b, axis) for a, b in zip(even, odd, strict=True))


def _interleaved(even: Any, odd: Any, axis: int) -> Any:
    """Return an array whose even and odd places along `axis` come from two arrays."""
    type_ = type_of(even)
    count, missing = type_.shape[axis], type_.shape[axis] - type_of(odd).shape[axis]
    if missing:
        config = [(0, missing if a == axis else 0, 0) for a in range(type_.ndim)]
        odd = pad(odd, full((), 0, type_.dtype), config)
    pairs = concatenate([expand_dims(x, axis + 1) for x in (even, odd)], axis + 1)
    merged = (*type_.shape[:axis], 2 * count, *type_.shape[axis + 1 :])
    return slice_in_dim(reshape(pairs, merged), 0, 2 * count - missing, axis=axis)


@dataclass(frozen=True, eq=False)
class CumProd(Dual):
    """Running products."""

    name: ClassVar[str] = "cumprod"
    ufunc: ClassVar[np.ufunc] = np.multiply
    combine: ClassVar[str] = "mul"
    accepts = staticmethod(is_number)
    join = staticmethod(_product)


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    """Return the join of two pairs of value and tangent for maximum or minimum."""

    def join(a: tuple[Any, Any], b: tuple[Any, Any]) -> tuple[Any, Any]:
        (x, s), (y, t) = a, b
        picked = pick(x, y)
        mean = mul(like(s, 0.5), add(s, t))
        return picked, select(eq(x, y), mean, select(eq(x, picked), s, t))

    return join


@dataclass(frozen=True, eq=False)
class CumMax(Dual):
    """Running maxima; NaN stays."""

    name: ClassVar[str] = "cummax"
    ufunc: ClassVar[np.ufunc] = np.maximum
    combine: ClassVar[str] = "maximum"
    accepts = staticmethod(is_numeric)
    join = staticmethod(_extreme(maximum))


@dataclass(frozen=True, eq=False)
class CumMin(Dual):
    """Running minima; NaN stays."""

    name: ClassVar[str] = "cummin"
    ufunc: ClassVar[np.ufunc] = np.minimum
    combine: ClassVar[str] = "minimum"
    accepts = staticmethod(is_numeric)
    join = staticmethod(_extreme(minimum))


def cumsum(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Return the running sums of `x` along `axis`."""
    return bind(CumSum(canonical_axis(axis, type_of(x).ndim), reverse), x)


def cumprod(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Return the running products of `x` along `axis`."""
    return bind(CumProd(canonical_axis(axis, type_of(x).ndim), reverse), x)


def cummax(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Return the running maxima of `x` along `axis`."""
    return bind(CumMax(canonical_axis(axis, type_of(x).ndim), reverse), x)


def cummin(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Return the running minima of `x` along `axis`."""
    return bind(CumMin(canonical_axis(axis, type_of(x).ndim), reverse), x)
