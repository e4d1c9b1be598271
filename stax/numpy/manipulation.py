"""Functions that put elements elsewhere: shapes, orders of axes, arrays turned, moved or padded.

No element is computed, so compiled programs do most of this by index arithmetic.  `copy` of
`reshape` is accepted and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.extent import SMALLEST, Extent, product
from stax.numpy.arguments import Axis, array, arrays, axes_list, static_int
from stax.numpy.taking import take
from stax.operators import reshape as shapes
from stax.operators.arithmetic import remainder, subtract
from stax.operators.elementwise import convert
from stax.operators.shape import broadcast_to as to_shape, concatenate, iota, slice_
from stax.trace import is_array
from stax.types import canonical_axes, canonical_axis


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None) -> Any:
    """Return the elements of `a` in `shape`, in row-major (or with "F" column-major) order.

    One length may be -1.  Raises ShapeError if the number of elements differs.
    """
    a = array("reshape", a)
    if order not in ("C", "F"):
        raise UnsupportedError(
            f"reshape: order {order!r} is not supported.", advice="Orders are 'C' and 'F'."
        )
    if order == "C":
        return shapes.reshape(a, shape)
    backwards = shape[::-1] if isinstance(shape, Sequence) else shape
    return shapes.transpose(shapes.reshape(shapes.transpose(a), backwards))


def ravel(a: Any, order: str = "C") -> Any:
    """Return the elements of `a` as a vector."""
    return reshape(a, (-1,), order)


def transpose(a: Any, axes: Any = None) -> Any:
    """Return `a` with its axes permuted; None reverses them."""
    return shapes.transpose(array("transpose", a), axes)


def permute_dims(a: Any, /, axes: Any) -> Any:
    """Return `a` with its axes permuted."""
    return transpose(a, axes)


def matrix_transpose(x: Any, /) -> Any:
    """Return the matrices in the last two axes transposed."""
    x = array("matrix_transpose", x)
    if x.ndim < 2:
        raise ArgumentValueError(
            f"matrix_transpose takes at least two axes, not {x.type}.",
            advice="A vector has no transpose; add an axis with x[None].",
        )
    return swapaxes(x, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Return `a` with two axes exchanged."""
    a = array("swapaxes", a)
    order = list(range(a.ndim))
    first, second = canonical_axis(axis1, a.ndim), canonical_axis(axis2, a.ndim)
    order[first], order[second] = second, first
    return shapes.transpose(a, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Return `a` with the axes `source` at the positions `destination`, the others in order."""
    a = array("moveaxis", a)
    sources, places = axes_list(source, a.ndim), axes_list(destination, a.ndim)
    if len(sources) != len(places) or len(set(sources)) != len(sources):
        raise ArgumentValueError(
            f"moveaxis: cannot move axes {source} to {destination}.",
            advice="Give as many distinct sources as destinations.",
        )
    order = [i for i in range(a.ndim) if i not in sources]
    for place, axis in sorted(zip(places, sources, strict=True)):
        order.insert(place, axis)
    return shapes.transpose(a, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """Return `a` with `axis` moved to before the axis that is at `start`."""
    a = array("rollaxis", a)
    source = canonical_axis(axis, a.ndim)
    target = start + a.ndim if start < 0 else start
    return moveaxis(a, source, target - 1 if source < target else target)


def expand_dims(a: Any, axis: Any) -> Any:
    """Return `a` with axes of length 1 at the positions `axis` of the result."""
    return shapes.expand_dims(array("expand_dims", a), axis)


def squeeze(a: Any, axis: Axis = None) -> Any:
    """Return `a` without axes of length 1: those named, or all."""
    return shapes.squeeze(array("squeeze", a), axis)


def broadcast_to(array: Any, shape: Any) -> Any:
    """Return `array` repeated to `shape` by NumPy's rule."""
    return to_shape(_array("broadcast_to", array), shape)


_array = array  # for functions with a parameter of that name


def broadcast_arrays(*args: Any) -> list[Any]:
    """Return the arguments in the shape they broadcast to together."""
    found = arrays("broadcast_arrays", *args)
    shape = types.broadcast_shapes(*(x.shape for x in found))
    return [to_shape(x, shape) for x in found]


def broadcast_shapes(*shapes: Any) -> tuple[Any, ...]:
    """Return the shape to which arrays of `shapes` broadcast."""
    return types.broadcast_shapes(*(types.canonical_shape(s) for s in shapes))


def _at_least(name: str, arys: Any, expand: Any) -> Any:
    found = [expand(x) for x in arrays(name, *arys)]
    return found[0] if len(found) == 1 else found


def atleast_1d(*arys: Any) -> Any:
    """Return each argument with at least one axis."""
    return _at_least("atleast_1d", arys, lambda x: x if x.ndim else shapes.reshape(x, (1,)))


def _two(x: Any) -> Any:
    return shapes.expand_dims(x, 0) if x.ndim == 1 else x if x.ndim else shapes.reshape(x, (1, 1))


def atleast_2d(*arys: Any) -> Any:
    """Return each argument with at least two axes; a vector becomes a row."""
    return _at_least("atleast_2d", arys, _two)


def atleast_3d(*arys: Any) -> Any:
    """Return each argument with at least three axes; a vector lies along the middle one."""
    return _at_least(
        "atleast_3d",
        arys,
        lambda x: x if x.ndim > 2 else shapes.expand_dims(_two(x), 2),
    )


def shape(a: Any) -> tuple[Any, ...]:
    """Return the shape of `a`."""
    return np.shape(a) if isinstance(a, list | tuple) else array("shape", a).shape


def isscalar(element: Any) -> bool:
    """Say whether `element` is a number, or an array without axes."""
    return (
        element.ndim == 0
        if is_array(element) or isinstance(element, np.ndarray)
        else bool(np.isscalar(element))
    )


def ndim(a: Any) -> int:
    """Return how many axes `a` has."""
    return len(shape(a))


def size(a: Any, axis: Axis = None) -> Any:
    """Return how many elements `a` has, or has along `axis`."""
    extents = shape(a)
    return product(tuple(extents[i] for i in axes_list(axis, len(extents))))


# --- order along an axis ---


def flip(m: Any, axis: Axis = None) -> Any:
    """Return `m` with the elements along `axis` (all axes if None) in reverse order."""
    m = array("flip", m)
    return shapes.rev(m, canonical_axes(axis, m.ndim))


def fliplr(m: Any) -> Any:
    """Return `m` with its second axis reversed."""
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Return `m` with its first axis reversed."""
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Return `m` turned `k` times by 90 degrees, from the first of `axes` towards the second."""
    m = array("rot90", m)
    first, second = axes_list(axes, m.ndim)
    if first == second:
        raise ArgumentValueError(
            f"rot90: axes {axes} are the same.", advice="Name the two axes of the plane."
        )
    turns = static_int("rot90", "k", k) % 4
    if turns == 0:
        return m
    if turns == 2:
        return flip(m, (first, second))
    if turns == 1:
        return swapaxes(flip(m, second), first, second)
    return flip(swapaxes(m, first, second), second)


def roll(a: Any, shift: Any, axis: Axis = None) -> Any:
    """Return `a` with elements moved by `shift` along `axis`, those that fall off put in front.

    The shift may be traced.  With no axis, the elements move in row-major order.
    """
    a = array("roll", a)
    if axis is None:
        return shapes.reshape(roll(shapes.reshape(a, (-1,)), shift, 0), a.shape)
    axes = axes_list(axis, a.ndim)
    several = isinstance(shift, tuple | list) or (not isinstance(shift, int) and np.ndim(shift) > 0)
    amounts = list(shift) if several else [shift]
    amounts = amounts * len(axes) if len(amounts) == 1 else amounts
    axes = axes * len(amounts) if len(axes) == 1 else axes
    if len(amounts) != len(axes):
        raise ArgumentValueError(
            f"roll: shifts {shift} do not go with axes {axis}.",
            advice="Give one shift, or one for each axis.",
        )
    for amount, where in zip(amounts, axes, strict=True):
        a = _roll(a, amount, where)
    return a


def _roll(a: Any, shift: Any, axis: int) -> Any:
    length = a.shape[axis]
    if isinstance(length, int) and length == 0:
        return a
    known = None if is_array(shift) else static_int("roll", "shift", shift)
    if known is None or (isinstance(length, Extent) and abs(known) > SMALLEST):
        places = subtract(iota(types.int_dtype(), (length,)), shift)
        return take(a, remainder(places, length), axis=axis, mode="clip")
    if isinstance(length, Extent):
        cut = length - known if known > 0 else -known
    else:
        cut = -known % length
    if isinstance(cut, int) and cut == 0:
        return a
    return concatenate([sliced(a, cut, length, axis), sliced(a, 0, cut, axis)], axis)


def sliced(a: Any, start: Any, stop: Any, axis: int) -> Any:
    """Return `a` from `start` to `stop` along `axis`."""
    starts, stops = [0] * a.ndim, list(a.shape)
    starts[axis], stops[axis] = start, stop
    return slice_(a, starts, stops)


# --- padding ---


def resize(a: Any, new_shape: Any) -> Any:
    """Return an array of `new_shape` filled with the elements of `a`, repeated as needed."""
    a = ravel(a)
    wanted = types.canonical_shape(new_shape)
    total = int(product(wanted))
    if not a.shape[0]:
        return to_shape(convert(0, a.dtype), wanted)
    copies = -(-total // a.shape[0])
    whole = a if copies <= 1 else concatenate([a] * copies, 0)
    return shapes.reshape(sliced(whole, 0, total, 0), wanted)
