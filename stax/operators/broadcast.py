"""Broadcasting and the sum: each is the other's transpose.

They share a module because each one's transpose rule needs the other op.  Nothing here does
arithmetic through other ops, so every other module of ops may build on this one.

A broadcast constant is a larger constant, so constants stay one number however they are shaped.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import DTypeError, ShapeError
from stax.extent import Dimension, same_shape
from stax.graph import Constant
from stax.op import Batch, Linear, Op
from stax.trace import Proxy, bind, full, is_array, type_of, zeros_like
from stax.types import (
    ArrayType,
    Shape,
    accumulator,
    canonical_axes,
    canonical_shape,
    is_python_number,
)


class LinearOp(Op):
    """Base of ops that are linear in all their operands together: they push tangents through."""

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        if all(t is None for t in tangents):
            return None
        pairs = zip(primals, tangents, strict=True)
        return bind(self, *(zeros_like(x) if t is None else t for x, t in pairs))


def splat(x: Any) -> Any:
    """Return the number that fills `x` if it is known from its form, or None."""
    if type(x) is Proxy:
        return x.node.op.value if isinstance(x.node.op, Constant) else None
    return x if isinstance(x, np.generic) or is_python_number(x) else None


def move(op: Op, x: Any) -> Any:
    """Apply an op that only moves or repeats elements of `x`; nothing moves in a constant."""
    value = splat(x)
    if value is None:
        return bind(op, x)
    type_ = op.abstract_eval(type_of(x))
    assert isinstance(type_, ArrayType)
    return full(type_.shape, value, type_.dtype, type_.weak)


def is_one(extent: Dimension) -> bool:
    """Say whether a length is 1; symbols are at least 2."""
    return isinstance(extent, int) and extent == 1


@dataclass(frozen=True, eq=False)
class Broadcast(LinearOp):
    """Put axis `i` of the operand at axis `broadcast_dimensions[i]`; axes of length 1 expand."""

    shape: Shape
    broadcast_dimensions: tuple[int, ...]
    name: ClassVar[str] = "broadcast"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        dims, ndim = self.broadcast_dimensions, len(self.shape)
        if len(dims) != x.ndim or sorted({*dims} & {*range(ndim)}) != [*dims]:
            raise ShapeError(
                f"broadcast: dimensions {dims} do not place the axes of {x} in {self.shape}.",
                advice="Name one axis of the result for each axis of the operand, in rising order.",
            )
        for extent, d in zip(x.shape, dims, strict=True):
            if not is_one(extent) and not same_shape((extent,), (self.shape[d],)):
                raise ShapeError(
                    f"broadcast: {x} does not broadcast to {self.shape} along {dims}.",
                    advice="An axis keeps its length, or has length 1 and expands.",
                )
        return x.with_shape(self.shape)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        aligned = [1] * len(self.shape)
        for extent, d in zip(x.shape, self.broadcast_dimensions, strict=True):
            aligned[d] = extent
        return np.broadcast_to(x.reshape(aligned), self.shape)  # type: ignore[arg-type]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        # Every copy of an element feeds the same cotangent, so the copies are summed.
        (x,) = inputs
        kept = {
            d
            for extent, d in zip(x.type.shape, self.broadcast_dimensions, strict=True)
            if not is_one(extent) or is_one(self.shape[d])
        }
        total = reduce_sum(ct, [a for a in range(len(self.shape)) if a not in kept])
        places = [i for i, d in enumerate(self.broadcast_dimensions) if d in kept]
        return (broadcast_in_dim(total, x.type.shape, places),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        dims = (0, *(d + 1 for d in self.broadcast_dimensions))
        return broadcast_in_dim(inputs[0], (batch.size, *self.shape), dims)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        places = zip(x.type.shape, self.broadcast_dimensions, strict=True)
        return x(tuple(kernel.extent(0) if is_one(extent) else index[d] for extent, d in places))


def broadcast_in_dim(x: Any, shape: Any, broadcast_dimensions: Sequence[int]) -> Any:
    """Return `x` in `shape`, its axis `i` at axis `broadcast_dimensions[i]`."""
    wanted, dims = canonical_shape(shape), tuple(map(int, broadcast_dimensions))
    in_place = dims == tuple(range(len(wanted)))
    if in_place and is_array(x) and same_shape(type_of(x).shape, wanted):
        return x
    return move(Broadcast(wanted, dims), x)


def broadcast_to(x: Any, shape: Any) -> Any:
    """Return `x` in `shape` by NumPy's rule: axes are aligned at the end."""
    wanted, ndim = canonical_shape(shape), type_of(x).ndim
    if ndim > len(wanted):
        raise ShapeError(
            f"broadcast_to: {type_of(x)} has more axes than {wanted}.",
            advice="Axes are aligned at the end, and none is dropped; index or squeeze it first.",
        )
    return broadcast_in_dim(x, wanted, range(len(wanted) - ndim, len(wanted)))


def expand_leading(x: Any, size: Dimension) -> Any:
    """Return `x` repeated along a new first axis of length `size`."""
    shape = type_of(x).shape
    return broadcast_in_dim(x, (size, *shape), range(1, len(shape) + 1))


def lead_all(batch: Batch, flags: Sequence[bool], inputs: Sequence[Proxy]) -> list[Any]:
    """Return the inputs, all with the batch axis in front."""
    return [x if f else expand_leading(x, batch.size) for x, f in zip(inputs, flags, strict=True)]


class Reduction(Op):
    """Base of reductions over `axes`, which are sorted, distinct and not negative.

    `combine` is the scalar function that joins two elements, `ufunc` its NumPy form.
    """

    axes: tuple[int, ...]
    combine: ClassVar[str]
    ufunc: ClassVar[np.ufunc]

    @staticmethod
    @abc.abstractmethod
    def accepts(dtype: Any) -> bool:
        """Say whether elements of `dtype` can be reduced."""

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        if self.axes and not 0 <= self.axes[0] <= self.axes[-1] < x.ndim:
            raise ShapeError(f"{self.name}: axes {self.axes} are out of range for {x}.")
        if not self.accepts(x.dtype):
            raise DTypeError(
                f"{self.name} does not accept {types.SHORT_NAMES[x.dtype]}.",
                advice="Convert with astype.",
            )
        return x.with_shape(tuple(x.shape[a] for a in self.kept(x.ndim)))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        wide = x.astype(accumulator(x.dtype), copy=False)
        with np.errstate(all="ignore"):
            total = type(self).ufunc.reduce(wide, axis=self.axes, dtype=wide.dtype)
            return np.asarray(total, wide.dtype).astype(x.dtype, copy=False)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(type(self)(tuple(a + 1 for a in self.axes)), *inputs)  # type: ignore[call-arg]

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        (x,) = operands
        wide = accumulator(x.type.dtype)

        def term(reduced: Sequence[Any]) -> Any:
            return kernel.convert(x(self.interleave(index, reduced, x.type.ndim)), wide)

        extents = [x.type.shape[a] for a in self.axes]
        total = kernel.reduce(self.combine, extents, term, wide)
        return kernel.convert(total, x.type.dtype)

    def kept(self, ndim: int) -> tuple[int, ...]:
        """Return the axes of an operand with `ndim` axes that are not reduced."""
        return tuple(a for a in range(ndim) if a not in self.axes)

    def interleave(
        self, index: Sequence[Any], reduced: Sequence[Any], ndim: int
    ) -> tuple[Any, ...]:
        """Return the operand's index made of those of the result and of the reduced axes."""
        places = dict(zip((*self.kept(ndim), *self.axes), (*index, *reduced), strict=True))
        return tuple(places[a] for a in range(ndim))


@dataclass(frozen=True, eq=False)
class ReduceSum(Reduction, LinearOp):
    """Sum over `axes`; 16-bit floats accumulate in float32 and are rounded once."""

    axes: tuple[int, ...]
    name: ClassVar[str] = "reduce_sum"
    combine: ClassVar[str] = "add"
    ufunc: ClassVar[np.ufunc] = np.add
    accepts = staticmethod(types.is_number)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        # Every summed element fed the same result, so each gets the whole cotangent.
        x: Linear = inputs[0]
        return (broadcast_in_dim(ct, x.type.shape, self.kept(x.type.ndim)),)


def reduce_sum(x: Any, axes: int | Sequence[int] | None = None) -> Any:
    """Sum `x` over `axes`, or over all of them."""
    return reduce_with(ReduceSum, x, axes)


def reduce_with(kind: Callable[[tuple[int, ...]], Reduction], x: Any, axes: Any) -> Any:
    """Reduce `x` over `axes` (None means all) with the class of reductions `kind`."""
    where = canonical_axes(axes, type_of(x).ndim)
    return x if not where and is_array(x) else bind(kind(where), x)
