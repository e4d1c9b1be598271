"""Masks of cotangents: which lanes a select did not take.

A mask marks the lanes that are live.  It starts at the transpose of a select, follows the cotangent
through element-wise, shape, broadcast and sum ops and into calls, branches and loops, and ends at
products, gathers and everything else, where the zero in a lane that is not live is an ordinary
zero.  Where a cotangent is multiplied by something that may not be finite, the product is taken
under the mask.  What no such product follows has no mask: see `matters`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stax.graph import Constant, Node
from stax.op import Linear, Op
from stax.operators.bits import Late, OptimizationBarrier, ReducePrecision
from stax.operators.elementwise import (
    Convert,
    Elementwise,
    Select,
    add,
    and_,
    convert,
    like,
    ne,
    not_,
    or_,
    select,
)
from stax.operators.gradient import CheckpointName
from stax.operators.reduce import CumSum, ReduceSum, cumsum, reduce_or
from stax.operators.shape import (
    Broadcast,
    Concatenate,
    Pad,
    Reshape,
    Rev,
    Slice,
    Transpose,
    broadcast_in_dim,
)
from stax.trace import Proxy, full
from stax.types import bool_, int32


class Masked(NamedTuple):
    """A cotangent, and the mask of its live lanes (None: all are)."""

    value: Any
    mask: Any | None


def flat(cts: Sequence[Masked | None]) -> list[Any]:
    """Return the values of the cotangents that there are, and then the masks that there are."""
    given = [c for c in cts if c is not None]
    return [*(c.value for c in given), *(c.mask for c in given if c.mask is not None)]


def are_masked(cts: Sequence[Masked | None]) -> list[bool | None]:
    """Say of each cotangent whether it has a mask, or None if there is none."""
    return [None if c is None else c.mask is not None for c in cts]


AND, NOT = Elementwise("and"), Elementwise("not")
# The ops through which a mask passes, apart from those that hold graphs.
PASSED = (
    Elementwise, Convert, ReducePrecision, OptimizationBarrier, Late, CheckpointName, Select,
    Broadcast, Reshape, Transpose, Slice, Rev, Concatenate, Pad, ReduceSum, CumSum,
)  # fmt: skip


def add_masked(a: Masked | None, b: Masked) -> Masked:
    """Return the sum of two cotangents; a lane is live where it is in either."""
    return b if a is None else Masked(add(a.value, b.value), either(a.mask, b.mask))


def either(a: Any | None, b: Any | None) -> Any | None:
    """Return the mask of what is live in `a` or in `b`; both branches of a select make a whole."""
    if a is None or b is None or a.node is b.node:
        return a if b is not None else None
    for x, y in ((a.node, b.node), (b.node, a.node)):
        if _opposite(x, y):
            return None
        both = x.op is y.op is AND and x.inputs[1] is y.inputs[1]
        if both and _opposite(x.inputs[0], y.inputs[0]):
            return Proxy(x.inputs[1], a.owner)
    return or_(a, b)


def _opposite(x: Node, y: Node) -> bool:
    return y.op is NOT and y.inputs[0] is x


def matters(op: Op, operands: Sequence[Node], linear: Sequence[bool], before: bool) -> bool:
    """Say whether a mask of the cotangent of what `op` computes changes a cotangent.

    `before` says whether one of its `linear` operands does, if the mask comes so far.
    """
    fixed = [x for x, f in zip(operands, linear, strict=True) if not f]
    multiplies = isinstance(op, Elementwise) and not all(map(_is_finite_constant, fixed))
    return isinstance(op, PASSED) and (before or multiplies)


def apply_mask(op: Op, operands: Sequence[Any], value: Any, mask: Any | None) -> Masked:
    """Return a cotangent that `op` pulled back, zero in the lanes that are not live."""
    if mask is None:
        return Masked(value, None)
    fixed = [x.node for x in operands if not isinstance(x, Linear)]
    if isinstance(op, Elementwise) and not all(map(_is_finite_constant, fixed)):
        value = select(mask, value, like(value, 0))
    return Masked(value, mask)


def _is_finite_constant(x: Node) -> bool:
    return isinstance(x.op, Constant) and bool(np.isfinite(x.op.value))


def pull_mask(op: Op, ct: Masked, operands: Sequence[Any]) -> Sequence[Any | None]:
    """Return the mask of the cotangent of each operand of `op`."""
    mask = ct.mask
    if isinstance(op, Select):
        taken, other = operands[0], not_(operands[0])
        if mask is not None:
            taken, other = and_(taken, mask), and_(other, mask)
        return None, taken, other
    if mask is None:
        return [None] * len(operands)
    match op:
        case Elementwise() | Convert() | ReducePrecision():
            return [mask] * len(operands)
        case OptimizationBarrier() | Late() | CheckpointName():
            return [mask] * len(operands)
        case Broadcast():
            return (_unbroadcast(op, mask, operands[0].type.shape),)
        case Reshape() | Transpose() | Slice() | Rev() | Concatenate():
            as_bool = list(map(_as_bool, operands))
            return _or_false(op.transpose(mask, *as_bool), as_bool)
        case Pad():
            # The padding is one number; its cotangent is a sum, taken as it is.
            return op.transpose(mask, _as_bool(operands[0]), None)
        case ReduceSum():
            (x,) = operands
            return (broadcast_in_dim(mask, x.type.shape, op.kept(x.type.ndim)),)
        case CumSum():
            # An element is live if a sum that it is in is.
            live = cumsum(convert(mask, int32), op.axis, not op.reverse)
            return (ne(live, like(live, 0)),)
        case _:
            return [None] * len(operands)


def _as_bool(x: Any) -> Any:
    return Linear(x.type.with_dtype(bool_)) if isinstance(x, Linear) else x


def _or_false(masks: Sequence[Any | None], operands: Sequence[Any]) -> list[Any | None]:
    """Where no cotangent arrives at all, no lane is live."""
    return [
        full(x.type.shape, False, bool_) if m is None and isinstance(x, Linear) else m
        for m, x in zip(masks, operands, strict=True)
    ]


def _unbroadcast(op: Broadcast, mask: Any, shape: Any) -> Any:
    new = tuple(a for a in range(len(op.shape)) if a not in op.broadcast_dimensions)
    stretched = tuple(
        i
        for i, a in enumerate(op.broadcast_dimensions)
        if isinstance(shape[i], int) and shape[i] == 1 and mask.type.shape[a] is not shape[i]
    )
    kept = reduce_or(mask, new) if new else mask
    if not stretched:
        return kept
    rest = tuple(i for i in range(len(shape)) if i not in stretched)
    return broadcast_in_dim(reduce_or(kept, stretched), shape, rest)
