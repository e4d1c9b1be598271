"""Elements put in place: put, place, fill_diagonal, piecewise; and zeros trimmed off the ends.

Arrays are immutable, so NumPy's functions that write into their argument take `inplace=False`, as
in JAX, and return a new array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax import types
from stax.api.mapping import vmap
from stax.errors import ArgumentError, ArgumentValueError, UnsupportedError
from stax.numpy.arguments import array, arrays, axes_list, promoted
from stax.numpy.creation import ones
from stax.numpy.elementwise import nonzero
from stax.numpy.indexing import Update, update
from stax.numpy.joining import tile
from stax.operators import elementwise as ops
from stax.operators.arithmetic import remainder, truth
from stax.operators.elementwise import convert, like, select
from stax.operators.reshape import reshape
from stax.operators.shape import broadcast_to, iota, slice_in_dim


def _refuse_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ArgumentValueError(
            f"{name}: arrays are immutable, so nothing is written in place.",
            advice="Pass inplace=False and use the result.",
        )


def _repeated(values: Any, size: int) -> Any:
    """Return the elements of `values`, repeated or cut to a vector of `size`."""
    flat = reshape(values, (-1,))
    count = flat.shape[0]
    return slice_in_dim(tile(flat, -(-size // count)) if count < size else flat, 0, size)


def put(a: Any, ind: Any, v: Any, mode: str | None = None, *, inplace: bool = True) -> Any:
    """Return `a` with the elements at the places `ind` of the flattened array replaced by `v`.

    `v` is repeated to the number of places.  Modes are "clip" and "wrap"; by default negative
    places count from the end, and those out of bounds are moved to the nearest.
    """
    _refuse_in_place("put", inplace)
    a, ind, v = arrays("put", a, ind, v)
    if not (a.size and ind.size and v.size):
        return a
    places = reshape(ind, (-1,))
    if mode == "clip":
        places = ops.minimum(ops.maximum(places, like(places, 0)), like(places, a.size - 1))
    elif mode == "wrap":
        places = convert(remainder(places, a.size), places.dtype)
    elif mode is not None:
        raise ArgumentValueError(
            f"put: {mode!r} is not a mode for places out of bounds.",
            advice="Use 'clip' or 'wrap', or leave it out.",
        )
    values = _repeated(v, places.shape[0])
    return reshape(update(reshape(a, (-1,)), places, values, Update("set", "clip")), a.shape)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Any:
    """Return `arr` with the elements where `mask` holds replaced by those of `vals`, in order.

    `vals` is repeated as often as needed.
    """
    _refuse_in_place("place", inplace)
    arr, mask, vals = arrays("place", arr, mask, vals)
    if arr.size != mask.size or not vals.size:
        raise ArgumentValueError(
            f"place: a mask {mask.type} and values {vals.type} do not go with {arr.type}.",
            advice="The mask has as many elements as the array, and there is a value at least.",
        )
    if not arr.size:
        return arr
    (places,) = nonzero(reshape(mask, (-1,)), size=mask.size, fill_value=mask.size)
    values = _repeated(vals, mask.size)
    return reshape(update(reshape(arr, (-1,)), places, values, Update("set")), arr.shape)


def fill_diagonal(a: Any, val: Any, wrap: bool = False, *, inplace: bool = True) -> Any:
    """Return `a` with the elements whose indices are all equal replaced by `val`, repeated."""
    _refuse_in_place("fill_diagonal", inplace)
    if wrap:
        raise UnsupportedError(
            "fill_diagonal: wrap=True is not supported.", advice="Fill the parts one by one."
        )
    a, val = arrays("fill_diagonal", a, val)
    if a.ndim < 2 or (a.ndim > 2 and len(set(a.shape)) > 1):
        raise ArgumentValueError(
            f"fill_diagonal: {a.type} has no main diagonal.",
            advice="Take a matrix, or an array whose axes have one length.",
        )
    count = min(a.shape)
    values = _repeated(val, count) if val.ndim else val
    index = (iota(types.int32, (count,)),) * a.ndim
    return update(a, index, values, Update("set", unique=True))


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    """Return the value of a function, or a constant, at each element: that of the last condition
    that holds.

    One more function than there are conditions is for where none holds, else that is 0.  Functions
    take one element, and `args` and `kw`.
    """
    x, conditions = array("piecewise", x), promoted("piecewise", condlist, types.bool_)
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise ArgumentValueError(
            f"piecewise: {len(functions)} functions do not go with {len(conditions)} conditions.",
            advice="Give one for each, and perhaps one for where none holds.",
        )
    default = functions.pop() if len(functions) > len(conditions) else 0
    result = _piece(x, default, args, kw)
    for condition, function in zip(conditions, functions, strict=True):
        mask = broadcast_to(condition, x.shape)
        result = select(mask, _piece(x, function, args, kw), result)
    return result


def _piece(x: Any, function: Any, args: Any, kw: Any) -> Any:
    """Return a function of each element, or a constant, in the shape and dtype of `x`."""
    if not callable(function):
        return broadcast_to(convert(array("piecewise", function), x.dtype), x.shape)
    mapped: Callable[..., Any] = vmap(lambda element: function(element, *args, **kw))
    found = array("piecewise", mapped(reshape(x, (-1,)))) if x.size else x
    return reshape(convert(found, x.dtype), x.shape)


def mask_indices(
    n: int, mask_func: Callable[..., Any], k: int = 0, *, size: int | None = None
) -> tuple[Any, Any]:
    """Return rows and columns of the elements that a function like `triu` keeps of a square.

    `size` is for functions whose result is traced.
    """
    rows, columns = nonzero(mask_func(ones((n, n)), k), size=size)
    return rows, columns


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    """Return a concrete array without the zeros at the front ("f") and back ("b") of axes.

    Raises TracerArrayConversionError for a traced array.
    """
    filt, how = array("trim_zeros", filt), trim.lower()
    if set(how) - {"f", "b"}:
        raise ArgumentError(
            f"trim_zeros: {trim!r} does not say what to trim.", advice="Use 'f', 'b' or 'fb'."
        )
    held, axes = np.asarray(truth(filt)), axes_list(axis, filt.ndim)
    kept = [slice(None)] * filt.ndim
    for a in axes if how else []:
        (found,) = np.nonzero(held.any(tuple(i for i in range(filt.ndim) if i != a)))
        start = int(found[0]) if "f" in how and len(found) else 0
        stop = int(found[-1]) + 1 if "b" in how and len(found) else filt.shape[a]
        kept[a] = slice(start, stop) if len(found) else slice(0, 0)
    return filt[tuple(kept)]
