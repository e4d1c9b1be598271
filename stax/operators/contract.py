"""Products: one op, `dot_general`, and NumPy's spellings of it.

The axes of an operand are batch axes (paired with the other's and kept), contracted axes (paired
and summed over) or free.  The result has the batch axes, then the free axes of `lhs`, then those of
`rhs`.  An operand that is not batched under vmap keeps its size: the other's batch axis is one more
free axis.

    dot_general(x, w, (((1,), (0,)), ((), ())))     x[i, k] w[k, j] -> [i, j]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError, ShapeError
from stax.extent import Dimension, same_shape
from stax.op import Batch, Linear, Op
from stax.operators.broadcast import is_one
from stax.operators.elementwise import add, convert
from stax.operators.shape import move_axis, squeeze, transpose
from stax.trace import Proxy, as_array, bind, type_of
from stax.types import ArrayType, accumulator, canonical_axis, promote

Axes = tuple[int, ...]
# Integers below this are exact in float64; and from how many multiplications on BLAS is faster.
_EXACT = 1 << 53
_MANY_MULTIPLICATIONS = 1 << 14


class _Free(NamedTuple):
    """The axes of each operand that are neither contracted nor batch axes."""

    lhs: Axes
    rhs: Axes


class BilinearOp(Op):
    """Base of ops of two operands that are linear in each of them, as products are."""

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (x, y), (x_dot, y_dot) = primals, tangents
        left = None if x_dot is None else bind(self, x_dot, y)
        right = None if y_dot is None else bind(self, x, y_dot)
        if left is None or right is None:
            return right if left is None else left
        return add(left, right)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        x, y = inputs
        return (
            self.pull_lhs(ct, x.type, y) if isinstance(x, Linear) else None,
            self.pull_rhs(ct, x, y.type) if isinstance(y, Linear) else None,
        )

    def pull_lhs(self, ct: Any, x: ArrayType, y: Any) -> Any:
        """Return the cotangent of the first operand, of type `x`."""
        raise self._missing("transpose")

    def pull_rhs(self, ct: Any, x: Any, y: ArrayType) -> Any:
        """Return the cotangent of the second operand, of type `y`."""
        raise self._missing("transpose")


@dataclass(frozen=True, eq=False)
class DotGeneral(BilinearOp):
    """Multiply and sum over `contract` axes, pairing `batch` axes; each is (lhs axes, rhs axes).

    `dtype` is that of the result, or None for that of the operands; `precision` is a wish that
    backends with fast inexact products look at.
    """

    contracting: tuple[Axes, Axes]
    batching: tuple[Axes, Axes]
    dtype: Any = None
    precision: Any = None
    name: ClassVar[str] = "dot_general"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        lhs, rhs = operands
        self._check_axes(lhs, rhs)
        for what, pairs in (("contracted", self.contracting), ("batch", self.batching)):
            for a, b in zip(*pairs, strict=True):
                if not same_shape((lhs.shape[a],), (rhs.shape[b],)):
                    raise _mismatch(what, lhs, rhs, a, b)
        free = self.free(lhs.ndim, rhs.ndim)
        shape = (
            *(lhs.shape[a] for a in self.batching[0]),
            *(lhs.shape[a] for a in free.lhs),
            *(rhs.shape[a] for a in free.rhs),
        )
        if self.dtype is None and lhs.dtype != rhs.dtype:
            shown = f"{types.SHORT_NAMES[lhs.dtype]} and {types.SHORT_NAMES[rhs.dtype]}"
            raise DTypeError(
                f"dot_general: operands must have one dtype, got {shown}.",
                advice="Convert with astype, or name preferred_element_type.",
            )
        return ArrayType(self.dtype or lhs.dtype, shape, lhs.weak and rhs.weak and not self.dtype)

    def _check_axes(self, lhs: ArrayType, rhs: ArrayType) -> None:
        for t, side in ((lhs, 0), (rhs, 1)):
            if t.dtype not in types.NUMERIC:
                raise DTypeError(f"dot_general does not accept {t}.")
            named = (*self.contracting[side], *self.batching[side])
            if len(set(named)) != len(named) or not all(0 <= a < t.ndim for a in named):
                which = ("lhs", "rhs")[side]
                raise ShapeError(
                    f"dot_general: axes {named} of {which} {t} are out of range or named twice.",
                    advice="An axis is a batch axis, a contracted axis or free, and only one.",
                )
        if any(len(a) != len(b) for a, b in (self.contracting, self.batching)):
            raise ShapeError(
                f"dot_general: contracted axes {self.contracting} and batch axes "
                f"{self.batching} must come in pairs.",
                advice="Name as many axes of one operand as of the other.",
            )

    def free(self, lhs_ndim: int, rhs_ndim: int) -> _Free:
        """Return the free axes of operands with so many axes."""
        return _Free(
            _others(lhs_ndim, self.contracting[0], self.batching[0]),
            _others(rhs_ndim, self.contracting[1], self.batching[1]),
        )

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        lhs, rhs = arrays
        free = self.free(lhs.ndim, rhs.ndim)
        out = np.dtype(self.dtype or lhs.dtype)
        wide = self.accumulates(lhs.dtype, rhs.dtype)
        batch = [lhs.shape[a] for a in self.batching[0]]
        rows, columns = [lhs.shape[a] for a in free.lhs], [rhs.shape[a] for a in free.rhs]
        terms = math.prod(lhs.shape[a] for a in self.contracting[0])
        x_order = (*self.batching[0], *free.lhs, *self.contracting[0])
        y_order = (*self.batching[1], *self.contracting[1], *free.rhs)
        x = lhs.astype(wide, copy=False).transpose(x_order)
        y = rhs.astype(wide, copy=False).transpose(y_order)
        with np.errstate(all="ignore"):
            product = _matmul(
                x.reshape((*batch, math.prod(rows), terms)),
                y.reshape((*batch, terms, math.prod(columns))),
            )
            return product.reshape((*batch, *rows, *columns)).astype(out, copy=False)

    def accumulates(self, lhs: Any, rhs: Any) -> np.dtype:
        """Return the type in which products of the dtypes `lhs` and `rhs` are summed."""
        if lhs is rhs and self.dtype is None:
            return accumulator(lhs)
        kinds = [ArrayType(d, ()) for d in (lhs, rhs, self.dtype or lhs)]
        return accumulator(promote(*kinds)[0])

    def pull_lhs(self, ct: Any, x: ArrayType, y: Any) -> Any:
        return self._pull(ct, x, y, 0)

    def pull_rhs(self, ct: Any, x: Any, y: ArrayType) -> Any:
        return self._pull(ct, y, x, 1)

    def _pull(self, ct: Proxy, x: ArrayType, y: Proxy, side: int) -> Any:
        """Return the cotangent of operand number `side`, of type `x`; `y` is the other operand.

        It contracts the cotangent with `y` over y's free axes, which leaves the batch axes, x's
        free axes and y's contracted axes, in that order.
        """
        mine, other = side, 1 - side
        kept = self.free(*((x.ndim, type_of(y).ndim) if side == 0 else (type_of(y).ndim, x.ndim)))
        batches = len(self.batching[0])
        first = batches + (len(kept.lhs) if side == 0 else 0)
        op = DotGeneral(
            (tuple(range(first, first + len(kept[other]))), kept[other]),
            (tuple(range(batches)), self.batching[other]),
            x.dtype if self.dtype is not None else None,
            self.precision,
        )
        # Its contracted axes come out in the order they have in y.
        pairs = sorted(zip(self.contracting[other], self.contracting[mine], strict=True))
        order = (*self.batching[mine], *kept[mine], *(a for _, a in pairs))
        return transpose(bind(op, ct, y), tuple(order.index(a) for a in range(x.ndim)))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        contracting, batching = _shifted(self.contracting, flags), _shifted(self.batching, flags)
        if all(flags):
            pairs = ((0, *batching[0]), (0, *batching[1]))
            return bind(DotGeneral(contracting, pairs, self.dtype, self.precision), *inputs)
        out = bind(DotGeneral(contracting, batching, self.dtype, self.precision), *inputs)
        # The batch axis is the first free axis of the operand that has it.
        before = len(batching[0])
        if flags[1]:
            before += len(self.free(type_of(inputs[0]).ndim, 0).lhs)
        return move_axis(out, before, 0)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        lhs, rhs = operands
        wide = self.accumulates(lhs.type.dtype, rhs.type.dtype)
        free, batches = self.free(lhs.type.ndim, rhs.type.ndim), len(self.batching[0])
        split = batches + len(free.lhs)

        def place(x: Any, side: int, own: Sequence[Any], terms: Sequence[Any]) -> Any:
            axes = (*self.batching[side], *free[side], *self.contracting[side])
            places = dict(zip(axes, (*index[:batches], *own, *terms), strict=True))
            return kernel.convert(x(tuple(places[a] for a in range(x.type.ndim))), wide)

        def term(terms: Sequence[Any]) -> Any:
            x = place(lhs, 0, index[batches:split], terms)
            y = place(rhs, 1, index[split:], terms)
            return kernel.apply("and" if wide == types.bool_ else "mul", x, y)

        extents = [lhs.type.shape[a] for a in self.contracting[0]]
        kind = "or" if wide == types.bool_ else "add"
        return kernel.convert(
            kernel.reduce(kind, extents, term, wide), self.dtype or lhs.type.dtype
        )


def _matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Multiply matrices; large ones of integers by exact products of floats, which BLAS has.

    Modulo 2^32 the product of a 2^16 + b and c 2^16 + d is (a d + b c) 2^16 + b d.
    """
    dtype, terms = x.dtype, x.shape[-1]
    if dtype.kind not in "biu" or not x.size or x.size * y.shape[-1] < _MANY_MULTIPLICATIONS:
        return np.matmul(x, y)
    if dtype.kind == "b":
        return np.matmul(x.astype(np.float32), y.astype(np.float32)) > 0
    sizes = [max(abs(int(a.min())), int(a.max())) for a in (x, y)]
    if math.prod(sizes) * terms < _EXACT:
        return _float_matmul(x, y).astype(dtype)
    if dtype.itemsize > 4 or terms << 32 >= _EXACT:
        return np.matmul(x, y)
    (a, b), (c, d) = ((m >> 16, m & 0xFFFF) for m in (x.astype(np.int64), y.astype(np.int64)))
    high = _float_matmul(a, d) + _float_matmul(b, c)
    return ((high << 16) + _float_matmul(b, d)).astype(dtype)


def _float_matmul(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)


def _shifted(pair: tuple[Axes, Axes], flags: Sequence[bool]) -> tuple[Axes, Axes]:
    """Return axes of lhs and of rhs, one further where an operand has an axis more in front."""
    lhs, rhs = pair
    return tuple(a + flags[0] for a in lhs), tuple(a + flags[1] for a in rhs)


def _others(ndim: int, *groups: Axes) -> Axes:
    """Return the axes that are in none of the groups."""
    named = {a for group in groups for a in group}
    return tuple(a for a in range(ndim) if a not in named)


def _mismatch(what: str, lhs: ArrayType, rhs: ArrayType, a: int, b: int) -> ShapeError:
    paired = {"contracted": "contracted", "batch": "paired"}[what]
    return ShapeError(
        f"dot_general: {what} axes differ in size, {lhs.shape[a]} and {rhs.shape[b]}.",
        advice=f"axis {a} of lhs {lhs} is {paired} with axis {b} of rhs {rhs}.",
    )


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the general product; `dimension_numbers` is (contracted, batch), pairs of axes."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    lhs, rhs = as_array(lhs), as_array(rhs)
    left, right = type_of(lhs).ndim, type_of(rhs).ndim
    dtype = None if preferred_element_type is None else types.check_dtype(preferred_element_type)
    if dtype is not None and dtype == type_of(lhs).dtype == type_of(rhs).dtype:
        dtype = None
    op = DotGeneral(
        (_axes(lhs_contract, left), _axes(rhs_contract, right)),
        (_axes(lhs_batch, left), _axes(rhs_batch, right)),
        dtype,
        None if precision is None else str(precision),
    )
    return bind(op, lhs, rhs)


def _axes(axes: Any, ndim: int) -> Axes:
    return tuple(canonical_axis(a, ndim) for a in axes)


def _promoted(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the operands of a product in one dtype."""
    x, y = as_array(x), as_array(y)
    if x.type.dtype == y.type.dtype and x.type.weak == y.type.weak:
        return x, y
    dtype, weak = promote(x.type, y.type)
    return convert(x, dtype, weak), convert(y, dtype, weak)


# --- NumPy's products ---


def dot(x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return NumPy's `dot`: the last axis of `x` with the last but one of `y`."""
    x, y = _promoted(x, y)
    contracted: Any = ((), ())
    if x.ndim and y.ndim:
        contracted = ((x.ndim - 1,), (max(y.ndim - 2, 0),))
    return dot_general(x, y, (contracted, ((), ())), precision, preferred_element_type)


def matmul(x: Any, y: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Return the product of matrices, or of stacks of them, whose leading axes broadcast."""
    x, y = _promoted(x, y)
    for position, a in enumerate((x, y)):
        if not a.ndim:
            raise ArgumentValueError(
                f"matmul: operand {position} needs at least one axis, got {a.type}.",
                advice="Multiply by a number with *.",
            )
    if x.ndim == y.ndim == 2:
        return dot_general(x, y, (((1,), (0,)), ((), ())), precision, preferred_element_type)
    x_leads, y_leads = x.shape[:-2], y.shape[:-2]
    leads = max(len(x_leads), len(y_leads))
    plan = _pair_leading(x_leads, y_leads, leads)
    x, y = _without(x, plan.x_single), _without(y, plan.y_single)
    x_matrix, y_matrix = type_of(x).ndim - 1, type_of(y).ndim - 1
    if len(plan.x_free) + len(plan.both) < x_matrix:
        plan.x_free.append(leads)
    y_is_matrix = len(plan.y_free) + len(plan.both) < y_matrix
    if y_is_matrix:
        plan.y_free.append(leads + 1)
    numbers = (((x_matrix,), (y_matrix - y_is_matrix,)), (plan.x_batch, plan.y_batch))
    out = dot_general(x, y, numbers, precision, preferred_element_type)
    order = (*plan.both, *plan.x_free, *plan.y_free)
    return transpose(out, tuple(order.index(a) for a in sorted(order)))


class _Leading(NamedTuple):
    """What becomes of the leading axes of a matmul, counted in the broadcast shape."""

    both: list[int]
    x_free: list[int]
    y_free: list[int]
    x_batch: list[int]  # where the axes of `both` are in x, and in y
    y_batch: list[int]
    x_single: list[int]  # axes of length 1 that are dropped
    y_single: list[int]


def _pair_leading(x: Sequence[Dimension], y: Sequence[Dimension], leads: int) -> _Leading:
    """Pair leading axes: equal ones are batch axes; beside one that is missing or 1, it is free."""
    plan = _Leading([], [], [], [], [], [], [])
    for i in range(leads):
        j, k = i - (leads - len(x)), i - (leads - len(y))
        if j < 0:
            plan.y_free.append(i)
        elif k < 0:
            plan.x_free.append(i)
        elif is_one(x[j]):
            plan.x_single.append(j)
            plan.y_free.append(i)
        elif is_one(y[k]):
            plan.y_single.append(k)
            plan.x_free.append(i)
        elif same_shape((x[j],), (y[k],)):
            plan.x_batch.append(len(plan.both) + len(plan.x_free))
            plan.y_batch.append(len(plan.both) + len(plan.y_free))
            plan.both.append(i)
        else:
            raise ShapeError(
                f"matmul: leading axes {tuple(x)} and {tuple(y)} do not broadcast.",
                advice="Leading axes must be equal, or one of them 1.",
            )
    return plan


def _without(x: Any, axes: Sequence[int]) -> Any:
    return squeeze(x, tuple(axes)) if axes else x


def tensordot(
    x: Any, y: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None
) -> Any:
    """Return the product summed over `axes`: a number of adjoining axes, or (axes of x, of y)."""
    x, y = _promoted(x, y)
    if isinstance(axes, int | np.integer):
        if not 0 <= axes <= min(x.ndim, y.ndim):
            raise ArgumentValueError(
                f"tensordot: cannot sum over {axes} axes of {x.type} and {y.type}.",
                advice="There are not so many axes in both.",
            )
        pairs: Any = (range(x.ndim - axes, x.ndim), range(axes))
    else:
        pairs = tuple((a,) if isinstance(a, int | np.integer) else tuple(a) for a in axes)
    if len(pairs) != 2 or len(pairs[0]) != len(pairs[1]):
        raise ArgumentValueError(
            f"tensordot: axes {axes} do not come in pairs.",
            advice="Name as many axes of one operand as of the other.",
        )
    return dot_general(x, y, (pairs, ((), ())), precision, preferred_element_type)
