"""Scatters that are choices: each place of the result takes at most one update.

A scatter into an array of one number costs that array, and a pass over it for whoever reads it.
Where no two updates can meet, because each goes to an example of its own, whether a place is hit is
one comparison with the index of that example: the result is a choice, which is computed where it is
read.  So it is with the gradient of picking one element of each row, as by labels.

The axes of the updates that count examples are those that the dimension numbers pair, and those
along which a component of the indices counts, as in x[arange(n), labels].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stax.graph import Constant, Node
from stax.lowering.decisions import decided
from stax.lowering.element import is_unit
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import (
    Elementwise,
    Select,
    add,
    and_,
    convert,
    eq,
    maximum,
    minimum,
    mul,
    select,
)
from stax.operators.index import GatherScatterMode, Scatter
from stax.operators.reshape import Reshape, Transpose, reshape
from stax.operators.shape import Concatenate, Iota, iota
from stax.trace import Proxy, bind, full
from stax.types import Shape, int32, int64, is_bool, is_integer, uint64

_COMBINE = {"set": lambda x, update: update, "add": add, "mul": mul}


def as_choice(op: Scatter, operand: Proxy, indices: Proxy, updates: Proxy) -> Proxy | None:
    """Return a scatter into an array of one number as a choice, or None where it is none."""
    type_ = operand.type
    if op.kind not in _COMBINE or not isinstance(operand.node.op, Constant):
        return None
    if is_bool(type_.dtype) and op.kind != "set":
        return None
    components = _components(indices)
    if components is None or not _is_static(type_.shape, updates.type.shape):
        return None
    places = _places(op, type_.shape, updates.type.shape, components)
    if places is None:
        return None
    outer = op.window.outer(updates.type.ndim)
    where = {i: places[b] for i, b in enumerate(outer) if b in places}
    hit: Proxy | None = None
    for axis, start in zip(op.window.starts, components, strict=True):
        if axis in where.values():
            continue
        here = _compared(op, type_.shape, axis, start, where)
        if here is None:
            return None
        hit = here if hit is None else and_(hit, here)
    decided("a scatter whose updates never meet, as a choice at each place", indices.owner.source)
    chosen = _COMBINE[op.kind](operand, _spread(updates, type_.shape, places))
    if hit is not None:
        chosen = select(hit, chosen, operand)
    return convert(chosen, type_.dtype, type_.weak)


def _is_static(*shapes: Shape) -> bool:
    return all(isinstance(n, int) and n > 0 for shape in shapes for n in shape)


def _components(indices: Proxy) -> list[Proxy] | None:
    """Return the components of indices, each without their last axis, if they are at hand."""
    outer, count = indices.type.shape[:-1], indices.type.shape[-1]
    parts: Sequence[Node] = [indices.node]
    if isinstance(indices.node.op, Concatenate) and indices.node.op.axis == len(outer):
        parts = indices.node.inputs
    if len(parts) != count or not all(is_unit(x.type.shape[-1]) for x in parts):
        return None
    return [reshape(Proxy(x, indices.owner), outer) for x in parts]


def _places(
    op: Scatter, shape: Shape, updates: Shape, components: Sequence[Proxy]
) -> dict[int, int] | None:
    """Return the axis of the result for each longer axis of the updates; None if some may meet."""
    window = op.window
    outer, kept = window.outer(len(updates)), window.kept(len(shape))
    places = {outer[b]: a for a, b in zip(window.paired, window.paired_indices, strict=True)}
    for axis, start in zip(window.starts, components, strict=True):
        counted = _counted(start.node)
        if counted is None or axis in kept or outer[counted] in places:
            continue
        if updates[outer[counted]] == shape[axis]:
            places[outer[counted]] = axis
    for axis, b in zip(kept, window.inner, strict=True):
        if axis in window.starts or updates[b] != shape[axis]:
            return None
        places[b] = axis
    found = {*places.values(), *window.starts}
    is_full = all(a in found or is_unit(n) for a, n in enumerate(shape))
    is_apart = all(b in places or is_unit(n) for b, n in enumerate(updates))
    return places if is_full and is_apart else None


def _counted(node: Node) -> int | None:
    """Return the axis along which a value counts from 0, if it does."""
    seen: list[Node] = []
    while not isinstance(node.op, Iota):
        match node.op, node.inputs:
            case Select(), (Node(Elementwise("lt"), (x, zero)), _, y) if x is y and _is_zero(zero):
                pass  # what is negative, which nothing is, counts from the end
            case Reshape(), (x,):
                pass
            case _:
                return None
        seen.append(node)
        node = x
    axis, before = node.op.axis, _longer(node)
    if not is_integer(node.op.dtype) or _length(node, axis) > np.iinfo(node.op.dtype).max:
        return None
    for view in reversed(seen):
        after = _longer(view)
        if [_length(node, a) for a in before] != [_length(view, a) for a in after]:
            return None
        if axis not in before:
            return None
        node, axis, before = view, after[before.index(axis)], after
    return axis


def _length(node: Node, axis: int) -> int:
    length = node.type.shape[axis]
    assert isinstance(length, int)
    return length


def _longer(node: Node) -> list[int]:
    return [a for a, n in enumerate(node.type.shape) if not is_unit(n)]


def _is_zero(node: Node) -> bool:
    return isinstance(node.op, Constant) and not node.op.value


def _compared(
    op: Scatter, shape: Shape, axis: int, start: Proxy, where: dict[int, int]
) -> Proxy | None:
    """Return whether each place of the result is, along an axis, where an update goes."""
    dtype, last = start.type.dtype, shape[axis]
    wide = int32 if dtype == int32 or dtype.itemsize < 4 else int64
    start = convert(start, wide)
    if op.mode is GatherScatterMode.CLIP:
        if dtype == uint64:
            return None
        low, high = (full(start.type.shape, n, wide) for n in (0, last - 1))
        start = minimum(maximum(start, low), high)
    return eq(iota(wide, shape, axis), _spread(start, shape, where))


def _spread(x: Proxy, shape: Shape, places: dict[int, int]) -> Proxy:
    """Return `x` in `shape`, each longer axis of it at its place."""
    kept = _longer(x.node)
    x = reshape(x, tuple(x.type.shape[a] for a in kept))
    order = sorted(range(len(kept)), key=lambda i: places[kept[i]])
    if order != list(range(len(kept))):
        x = bind(Transpose(tuple(order)), x)
    return broadcast_in_dim(x, shape, sorted(places[a] for a in kept))
