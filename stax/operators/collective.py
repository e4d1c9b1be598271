"""Ops across the lanes of a named axis, which is one that vmap maps: sums, gathers, permutations.

An op carries the name and the size of its axis.  While its function is traced an operand is what
one lane has; the batch rule for the axis of that name replaces the op by ordinary ones, so none is
ever lowered.  An operand that is not mapped is the same in every lane, and `evaluate` is the
meaning of an op there, unless lanes differ all the same (`by_lane`).

With `groups`, which are of one length and together hold every lane once, each group is an axis of
its own.

The transpose of a sum across lanes is a sum across lanes, as if each lane had a cotangent of its
own for the sum, which is JAX's convention; a gather and a scattering sum transpose to each other.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from stax.errors import DTypeError, ShapeError
from stax.extent import Dimension, same_shape
from stax.op import Batch, Linear, Op
from stax.operators.broadcast import LinearOp, broadcast_in_dim, expand_leading, reduce_sum
from stax.operators.elementwise import convert, div, eq, like, mul, select
from stax.operators.reduce import reduce_max, reduce_min
from stax.operators.reshape import move_axis, reshape, rev, transpose
from stax.operators.shape import concatenate, iota, slice_in_dim
from stax.trace import Proxy, bind, type_of, zeros
from stax.types import SHORT_NAMES, ArrayType, int32, is_number, is_numeric

Groups = tuple[tuple[int, ...], ...] | None
Marked = tuple[Any, bool]  # a value, and whether it has the axis in front


@dataclass(frozen=True, eq=False)
class Named(Op):
    """Base of ops on the axis `axis_name`, which has `axis_size` lanes."""

    axis_name: Any
    axis_size: Dimension
    marks_batch: ClassVar[bool] = True

    def names_axis(self, axis_name: Any) -> bool:
        return axis_name is not None and bool(self.axis_name == axis_name)


@dataclass(frozen=True, eq=False)
class Collective(Named):
    """Base of ops that combine what the lanes hold."""

    groups: Groups

    @staticmethod
    def accepts(dtype: Any) -> bool:
        """Say whether lanes may hold elements of `dtype`."""
        return True

    @property
    def count(self) -> Dimension:
        """How many lanes go together."""
        return self.axis_size if self.groups is None else len(self.groups[0])

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        if not type(self).accepts(types[0].dtype):
            raise DTypeError(
                f"{self.name} does not accept {SHORT_NAMES[types[0].dtype]}.",
                advice="Convert with astype.",
            )
        return types[0]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        (x,) = inputs
        if not self.names_axis(batch.axis_name):
            return bind(self.beside(), x), True
        if self.groups is not None:
            return self._by_group(x if flags[0] else expand_leading(x, batch.size)), True
        return self.across(x) if flags[0] else self.alike(x)

    def beside(self) -> Self:
        """Return the op for an operand that has a further axis in front."""
        return self

    @abc.abstractmethod
    def across(self, x: Any) -> Marked:
        """Return the result for lanes along the first axis of `x`."""

    @abc.abstractmethod
    def alike(self, x: Any) -> Marked:
        """Return the result where each lane holds `x`."""

    def _by_group(self, x: Any) -> Any:
        """Return the result for groups of the lanes along the first axis of `x`."""
        assert self.groups is not None
        shape, lanes = type_of(x).shape, [lane for group in self.groups for lane in group]
        rows = reshape(take_lanes(x, lanes), (len(self.groups), self.count, *shape[1:]))
        alone = replace(self.beside(), axis_size=self.count, groups=None)
        y, mapped = alone.across(move_axis(rows, 0, 1))
        each = move_axis(y if mapped else expand_leading(y, self.count), 1, 0)
        flat = reshape(each, (len(lanes), *type_of(each).shape[2:]))
        return take_lanes(flat, [lanes.index(lane) for lane in range(len(lanes))])


def take_lanes(x: Any, lanes: Sequence[int | None]) -> Any:
    """Return the rows of `x` that `lanes` numbers, zeros for None, as slices joined together."""
    parts, start = [], 0
    while start < len(lanes):
        end, step = start + 1, _step(lanes, start)
        while end < len(lanes) and _step(lanes, end - 1) == step is not None:
            end += 1
        parts.append(_rows(x, lanes[start], end - start, step))
        start = end
    return concatenate(parts) if parts else x


def _step(lanes: Sequence[int | None], at: int) -> int | None:
    """Return how the next lane follows: 0 after 0 for zeros, one up, one down, or not at all."""
    here, after = lanes[at], lanes[at + 1] if at + 1 < len(lanes) else -2
    if here is None or after is None:
        return 0 if here is after else None
    return after - here if abs(after - here) == 1 else None


def _rows(x: Any, first: int | None, count: int, step: int | None) -> Any:
    if first is None:
        return zeros(type_of(x).with_shape((count, *type_of(x).shape[1:])))
    if step == -1:
        return rev(slice_in_dim(x, first - count + 1, first + 1), 0)
    return slice_in_dim(x, first, first + count)


# --- reductions ---


@dataclass(frozen=True, eq=False)
class PSum(Collective, LinearOp):
    """The sum over the lanes."""

    name: ClassVar[str] = "psum"
    accepts = staticmethod(is_number)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        with np.errstate(all="ignore"):
            return np.multiply(x, np.asarray(int(self.count)).astype(x.dtype)).astype(x.dtype)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (bind(self, ct),)

    def across(self, x: Any) -> Marked:
        return reduce_sum(x, 0), False

    def alike(self, x: Any) -> Marked:
        return mul(x, _number_like(x, self.count)), False


def _number_like(x: Any, count: Dimension) -> Any:
    """Return the number of lanes, which may be symbolic, as an array like `x`."""
    if isinstance(count, int):
        return like(x, count)
    t = type_of(x)
    return broadcast_in_dim(convert(count, t.dtype, t.weak), t.shape, ())


@dataclass(frozen=True, eq=False)
class PExtreme(Collective):
    """Base of the largest and the smallest over the lanes."""

    reduces: ClassVar[Any]
    accepts = staticmethod(is_numeric)

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x,), (t,) = primals, tangents
        if t is None:
            return None
        # Lanes that tie share the tangent evenly, as in a reduction.
        hit, total = eq(x, out), PSum(self.axis_name, self.axis_size, self.groups)
        share = bind(total, convert(hit, type_of(t).dtype))
        return div(bind(total, select(hit, t, like(t, 0))), share)

    def across(self, x: Any) -> Marked:
        return type(self).reduces(x, 0), False

    def alike(self, x: Any) -> Marked:
        return x, False


@dataclass(frozen=True, eq=False)
class PMax(PExtreme):
    """The largest over the lanes; NaN if there is one."""

    name: ClassVar[str] = "pmax"
    reduces = staticmethod(reduce_max)


@dataclass(frozen=True, eq=False)
class PMin(PExtreme):
    """The smallest over the lanes; NaN if there is one."""

    name: ClassVar[str] = "pmin"
    reduces = staticmethod(reduce_min)


# --- gathers and exchanges ---


@dataclass(frozen=True, eq=False)
class AllGather(Collective, LinearOp):
    """What all lanes hold, stacked along a new axis at position `axis`."""

    axis: int
    name: ClassVar[str] = "all_gather"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        (x,) = types
        if not 0 <= self.axis <= x.ndim:
            raise ShapeError(f"all_gather: axis {self.axis} is out of range for a result of {x}.")
        return x.with_shape(self._shape(x))

    def _shape(self, x: ArrayType) -> tuple[Dimension, ...]:
        return (*x.shape[: self.axis], self.count, *x.shape[self.axis :])

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        shape = (*x.shape[: self.axis], int(self.count), *x.shape[self.axis :])
        return np.broadcast_to(np.expand_dims(x, self.axis), shape)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (bind(PSumScatter(self.axis_name, self.axis_size, self.groups, self.axis), ct),)

    def beside(self) -> Self:
        return replace(self, axis=self.axis + 1)

    def across(self, x: Any) -> Marked:
        return move_axis(x, 0, self.axis), False

    def alike(self, x: Any) -> Marked:
        t = type_of(x)
        places = [a for a in range(t.ndim + 1) if a != self.axis]
        return broadcast_in_dim(x, self._shape(t), places), False


@dataclass(frozen=True, eq=False)
class Scattering(Collective):
    """Base of ops that give each lane its part along `axis`, which has one for each."""

    axis: int
    by_lane: ClassVar[bool] = True

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        x = super().abstract_eval(*types)
        if not 0 <= self.axis < x.ndim or not same_shape((x.shape[self.axis],), (self.count,)):
            raise ShapeError(
                f"{self.name}: axis {self.axis} of {x} does not have one part for each of the "
                f"{self.count} lanes of axis {self.axis_name!r}.",
                advice="The positional axis is as long as the named one, or as a group of it.",
            )
        return x

    def beside(self) -> Self:
        return replace(self, axis=self.axis + 1)


@dataclass(frozen=True, eq=False)
class PSumScatter(Scattering, LinearOp):
    """The sum over the lanes, of which each lane keeps its part along `axis`, an axis less."""

    name: ClassVar[str] = "psum_scatter"
    accepts = staticmethod(is_number)

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        (x,) = types
        super().abstract_eval(x)
        return x.with_shape((*x.shape[: self.axis], *x.shape[self.axis + 1 :]))

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (bind(AllGather(self.axis_name, self.axis_size, self.groups, self.axis), ct),)

    def across(self, x: Any) -> Marked:
        return move_axis(reduce_sum(x, 0), self.axis, 0), True

    def alike(self, x: Any) -> Marked:
        return move_axis(mul(x, _number_like(x, self.count)), self.axis, 0), True


@dataclass(frozen=True, eq=False)
class AllToAll(Scattering, LinearOp):
    """What each lane holds for this one: the named axis and `axis` change places."""

    name: ClassVar[str] = "all_to_all"

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        return (bind(self, ct),)

    def across(self, x: Any) -> Marked:
        order = list(range(type_of(x).ndim))
        order[0], order[self.axis + 1] = self.axis + 1, 0
        return transpose(x, order), True

    def alike(self, x: Any) -> Marked:
        t = type_of(x)
        places = [0, *(a for a in range(1, t.ndim + 1) if a != self.axis + 1)]
        return broadcast_in_dim(move_axis(x, self.axis, 0), (self.count, *t.shape), places), True


@dataclass(frozen=True, eq=False)
class PPermute(Collective, LinearOp):
    """What another lane holds: `perm` has pairs of a lane and the one that receives from it.

    A lane that receives nothing has zeros.
    """

    perm: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "ppermute"

    @property
    def by_lane(self) -> bool:  # type: ignore[override]
        return len(self.perm) != self.axis_size

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        back = tuple((target, source) for source, target in self.perm)
        return (bind(replace(self, perm=back), ct),)

    def across(self, x: Any) -> Marked:
        sources = {target: source for source, target in self.perm}
        return take_lanes(x, [sources.get(lane) for lane in range(int(self.count))]), True

    def alike(self, x: Any) -> Marked:
        if not self.by_lane:
            return x, False
        return self.across(expand_leading(x, self.count))


@dataclass(frozen=True, eq=False)
class PBroadcast(Collective, LinearOp):
    """What lane `source` holds."""

    source: int
    name: ClassVar[str] = "pbroadcast"

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        x: Linear = inputs[0]
        total = bind(PSum(self.axis_name, self.axis_size, self.groups), ct)
        lane = bind(AxisIndex(self.axis_name, self.axis_size))
        here = broadcast_in_dim(eq(lane, like(lane, self.source)), x.type.shape, ())
        return (select(here, total, like(total, 0)),)

    def across(self, x: Any) -> Marked:
        row = slice_in_dim(x, self.source, self.source + 1)
        return reshape(row, type_of(x).shape[1:]), False

    def alike(self, x: Any) -> Marked:
        return x, False


@dataclass(frozen=True, eq=False)
class AxisIndex(Named):
    """The number of the lane, an i32[]."""

    name: ClassVar[str] = "axis_index"
    by_lane: ClassVar[bool] = True

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return ArrayType(int32, ())

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return iota(int32, (batch.size,)), True
