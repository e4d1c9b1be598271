"""Universal functions: functions of elements that can also reduce, accumulate and make tables.

`add` and its like are objects that are called like functions; `frompyfunc` makes more of them.
Reductions that are ops of their own are those ops.  Any other associative function is joined in
pairs, which takes as many steps as the length has binary digits; a user's function, which need not
be associative, is applied from left to right, one step for each element.

    >>> add.outer(arange(3), arange(2))
    Array([[0, 1],
           [1, 2],
           [2, 3]], dtype=int32)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.numpy import elementwise, reductions
from stax.numpy.arguments import array, refuse_out, static_int
from stax.numpy.joining import concatenate
from stax.numpy.manipulation import moveaxis, sliced
from stax.numpy.taking import take
from stax.numpy.vectorizing import vectorize
from stax.operators import arithmetic, elementwise as ops, reduce as reduce_ops
from stax.operators.elementwise import convert
from stax.operators.reshape import expand_dims, reshape
from stax.operators.shape import broadcast_to
from stax.trace import full, type_of
from stax.types import canonical_axes, canonical_axis, check_dtype

Function = Callable[..., Any]


class ufunc:
    """A function of one or two elements, applied to arrays that broadcast.

    `func` takes `nin` and returns `nout` elements; `call`, if given, takes whole arrays in its
    place.  `reduce`, `accumulate`, `at` and `reduceat` replace the general methods of those names.
    """

    def __init__(
        self,
        func: Function,
        /,
        nin: int,
        nout: int,
        *,
        name: str | None = None,
        nargs: int | None = None,
        identity: Any = None,
        call: Function | None = None,
        reduce: Function | None = None,
        accumulate: Function | None = None,
        at: Function | None = None,
        reduceat: Function | None = None,
    ) -> None:
        self.__doc__ = func.__doc__
        self.__name__ = self.__qualname__ = name or func.__name__
        self.__module__ = "stax.numpy"
        self._func = func
        self._call = call or vectorize(func)
        self._own = {"reduce": reduce, "accumulate": accumulate, "at": at, "reduceat": reduceat}
        self._key = (self.__name__, operator.index(nin), operator.index(nout), nargs, identity)

    @property
    def nin(self) -> int:
        return self._key[1]

    @property
    def nout(self) -> int:
        return self._key[2]

    @property
    def nargs(self) -> int:
        return self._key[3] or self.nin

    @property
    def identity(self) -> Any:
        return self._key[4]

    def __hash__(self) -> int:
        return hash((self._func, self._key))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and (self._func, self._key) == (other._func, other._key)

    def __repr__(self) -> str:
        return f"<stax.numpy.ufunc '{self.__name__}'>"

    def __reduce__(self) -> str:
        return self.__name__

    def __call__(self, *args: Any, out: None = None, where: None = None) -> Any:
        if out is not None or where is not None:
            raise UnsupportedError(
                f"{self.__name__}: out= and where= are not supported, because arrays are "
                "immutable.",
                advice="Use the result, and stax.numpy.where to choose.",
            )
        return self._call(*args)

    def reduce(
        self,
        a: Any,
        axis: Any = 0,
        dtype: Any = None,
        out: Any = None,
        keepdims: bool = False,
        initial: Any = None,
        where: Any = None,
    ) -> Any:
        """Return the elements along `axis` joined by the function.

        Raises ArgumentValueError for other than binary functions, for `where` if the function has
        no identity and there is no `initial`, and for empty axes in that case.
        """
        a = self._binary("reduce", a, out)
        if where is not None and self.identity is None and initial is None:
            raise ArgumentValueError(
                f"{self.__name__} has no identity, so what `where` leaves out has no value.",
                advice="Give initial=, with which the reduction starts.",
            )
        if where is not None and not types.is_bool(type_of(where).dtype):
            raise ArgumentValueError(
                f"{self.__name__}.reduce: `where` must be bool, got {type_of(where)}.",
                advice="Compare it with something: where=x != 0.",
            )
        own = self._own["reduce"]
        if own is not None:
            return own(a, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)
        return self._in_order(a, axis, dtype, keepdims, initial, where)

    def accumulate(self, a: Any, axis: int = 0, dtype: Any = None, out: Any = None) -> Any:
        """Return, at each place along `axis`, the elements up to there joined by the function."""
        a = self._binary("accumulate", a, out)
        own = self._own["accumulate"]
        if own is not None:
            return own(a, axis=axis, dtype=dtype)
        where = canonical_axis(axis, a.ndim)
        x = convert(a, self._result_type(a) if dtype is None else check_dtype(dtype))
        if not x.shape[where]:
            return x
        found = [sliced(x, 0, 1, where)]
        for i in range(1, x.shape[where]):
            found.append(convert(self(found[-1], sliced(x, i, i + 1, where)), x.dtype))
        return concatenate(found, where)

    def at(self, a: Any, indices: Any, b: Any = None, /, *, inplace: bool = True) -> Any:
        """Return `a` with the function applied at `indices`, again for each time one is named.

        Raises UnsupportedError unless inplace=False: arrays never change.
        """
        if inplace:
            raise UnsupportedError(
                f"{self.__name__}.at cannot change an array: arrays are immutable.",
                advice="Write x = f.at(x, indices, values, inplace=False).",
            )
        own = self._own["at"]
        if own is not None:
            return own(array(self.__name__, a), indices, b)
        values = () if b is None else (array(self.__name__, b),)
        a = array(self.__name__, a)
        a = convert(a, self._result_type(a, *values))
        entries = indices if isinstance(indices, tuple) else (indices,)
        numbers = [x for x in entries if not isinstance(x, slice)]
        shape = types.broadcast_shapes(*(type_of(x).shape for x in numbers))
        if not shape:
            return a.at[indices].set(self(a[indices], *values))
        count = math.prod(shape)
        spread = [
            x if isinstance(x, slice) else reshape(broadcast_to(array("at", x), shape), (count,))
            for x in entries
        ]
        values = tuple(_by_place(v, shape) for v in values)
        for i in range(count):
            place = tuple(x if isinstance(x, slice) else x[i] for x in spread)
            a = a.at[place].set(self(a[place], *(v[i] for v in values)))
        return a

    def reduceat(
        self, a: Any, indices: Any, axis: int = 0, dtype: Any = None, out: Any = None
    ) -> Any:
        """Return, for each of `indices`, the elements from there to the next joined.

        Where the next is not after it, the element at the index.
        """
        a, indices = self._binary("reduceat", a, out), array("reduceat", indices)
        if self._own["reduceat"] is not None:
            return self._own["reduceat"](a, indices, axis=axis, dtype=dtype)
        where = canonical_axis(axis, a.ndim)
        if indices.ndim != 1:
            raise ArgumentValueError(
                f"reduceat: indices are a vector, not {indices.type}.",
                advice="Flatten them with ravel().",
            )
        a = convert(a, a.dtype if dtype is None else check_dtype(dtype))
        length, count = a.shape[where], indices.shape[0]
        result = take(a, indices, axis=where)
        thin = tuple(count if i == where else 1 for i in range(a.ndim))
        start = reshape(indices, thin)
        stop = reshape(concatenate([indices[1:], full((1,), length, indices.dtype)]), thin)
        for i in range(length):
            place = full(thin, i, indices.dtype)
            inside = ops.and_(ops.lt(start, place), ops.lt(place, stop))
            joined = convert(self(result, sliced(a, i, i + 1, where)), result.dtype)
            result = elementwise.where(inside, joined, result)
        return result

    def outer(self, A: Any, B: Any, /) -> Any:
        """Return the function of every pair of an element of `A` and one of `B`."""
        A, B = self._binary("outer", A, None), array("outer", B)
        return self(reshape(A, (*A.shape, *[1] * B.ndim)), B)

    def _binary(self, method: str, a: Any, out: Any) -> Any:
        refuse_out(f"{self.__name__}.{method}", out)
        if (self.nin, self.nout) != (2, 1):
            raise ArgumentValueError(
                f"{self.__name__}.{method}: only functions of two elements with one result have "
                "it.",
                advice=f"{self.__name__} takes {self.nin} and returns {self.nout}.",
            )
        return array(f"{self.__name__}.{method}", a)

    def _result_type(self, *args: Any) -> Any:
        """Return the dtype of the function of elements of the arguments."""
        ones = [full((), 1, x.dtype, x.weak_type) for x in args]
        return type_of(self(*(ones * 2 if self.nin > len(ones) else ones))).dtype

    def _in_order(
        self, a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any
    ) -> Any:
        """Reduce by applying the function from left to right."""
        if isinstance(axis, tuple):
            raise UnsupportedError(
                f"{self.__name__}.reduce: several axes have no order.",
                advice="Reduce one axis after the other, or axis=None for all.",
            )
        dtype = self._result_type(a) if dtype is None else check_dtype(dtype)
        axes, x, mask = canonical_axes(axis, a.ndim), _leading(a, axis), None
        if where is not None:
            mask = _leading(broadcast_to(array("where", where), a.shape), axis)
        value = self.identity if initial is None else initial
        count = x.shape[0]
        if value is None and not count:
            raise ArgumentValueError(
                f"{self.__name__}.reduce: nothing to reduce, and the function has no identity.",
                advice="Give initial=.",
            )
        total = x[0] if value is None else broadcast_to(array("initial", value), x.shape[1:])
        total = convert(total, dtype)
        for i in range(value is None, count):
            joined = convert(self(total, convert(x[i], dtype)), dtype)
            total = joined if mask is None else elementwise.where(mask[i], joined, total)
        return expand_dims(total, axes) if keepdims and axes else total


def _leading(x: Any, axis: Any) -> Any:
    """Return `x` with the axis to reduce in front; all axes as one if it is None."""
    return reshape(x, (-1,)) if axis is None else moveaxis(x, axis, 0)


def _by_place(values: Any, shape: Any) -> Any:
    """Return values along one leading axis for all the places of `shape`."""
    rest = values.shape[len(shape) :]
    return reshape(broadcast_to(values, (*shape, *rest)), (math.prod(shape), *rest))


def frompyfunc(func: Function, /, nin: int, nout: int, *, identity: Any = None) -> ufunc:
    """Return a ufunc of `func`, which takes `nin` elements and returns `nout` of them.

    Its reductions are made of as many calls as there are elements, from left to right.
    """
    return ufunc(func, nin, nout, identity=identity)


# --- the reductions of those in this module ---


def _by_op(op: Function) -> Function:
    """Return the reduction made by an op on bits."""

    def reduce(
        a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any, join: Any, one: Any
    ) -> Any:
        a = a if dtype is None else convert(a, check_dtype(dtype))
        result = reductions.reduced(op, a, axis, keepdims, where, one)
        return result if initial is None else join(array("initial", initial), result)

    return reduce


def _of_truth(op: Function) -> Function:
    by_op = _by_op(op)

    def reduce(a: Any, **options: Any) -> Any:
        return by_op(arithmetic.truth(a), **options)

    return reduce


def _by_halves(
    a: Any, axis: Any, dtype: Any, keepdims: bool, initial: Any, where: Any, join: Any, one: Any
) -> Any:
    """Join the first half of the elements with the second, and so on: log2(n) steps."""
    a = convert(a, types.inexact_dtype(a.dtype) if dtype is None else check_dtype(dtype))
    if where is not None:
        a = elementwise.where(where, a, one)
    axes = canonical_axes(axis, a.ndim)
    kept = [i for i in range(a.ndim) if i not in axes]
    x = moveaxis(a, axes, range(len(axes)))
    x = reshape(x, (math.prod(a.shape[i] for i in axes), *(a.shape[i] for i in kept)))
    while x.shape[0] > 1:
        half = x.shape[0] // 2
        pairs = join(sliced(x, 0, half, 0), sliced(x, half, 2 * half, 0))
        x = concatenate([pairs, sliced(x, 2 * half, x.shape[0], 0)]) if x.shape[0] % 2 else pairs
    total = x[0] if x.shape[0] else full(x.shape[1:], one, x.dtype)
    total = expand_dims(total, axes) if keepdims and axes else total
    return total if initial is None else join(array("initial", initial), total)


def _associative(join: Function, reduce: Function, identity: Any, at: Function | None) -> ufunc:
    """Return the ufunc of an associative function, which is accumulated by joining in pairs."""

    def accumulate(a: Any, axis: int = 0, dtype: Any = None) -> Any:
        kind = types.check_dtype(dtype) if dtype is not None else None
        one = full((), 1, a.dtype)
        x = convert(a, kind or type_of(join(one, one)).dtype)
        where = canonical_axis(static_int(join.__name__, "axis", axis), a.ndim)
        (found,) = reduce_ops.running(lambda p, q: (join(p[0], q[0]),), (x,), where)
        return found

    def reduced(a: Any, **options: Any) -> Any:
        return reduce(a, join=join, one=identity, **options)

    return ufunc(
        join, 2, 1, identity=identity, call=join, reduce=reduced, accumulate=accumulate, at=at
    )


def _extreme(join: Function, reduce: Function, running: Function, kind: str) -> ufunc:
    def reduced(a: Any, dtype: Any, **options: Any) -> Any:
        return reduce(a if dtype is None else convert(a, check_dtype(dtype)), **options)

    def accumulate(a: Any, axis: int = 0, dtype: Any = None) -> Any:
        x = a if dtype is None else convert(a, check_dtype(dtype))
        return running(convert(x, x.dtype), canonical_axis(axis, a.ndim))

    return ufunc(join, 2, 1, call=join, reduce=reduced, accumulate=accumulate, at=_updating(kind))


def _updating(kind: str) -> Function:
    """Return the method of `x.at[indices]` that the function is."""
    return lambda a, indices, b: getattr(a.at[indices], kind)(b)


def _accumulating(
    join: Function, reduce: Function, running: Function, one: Any, kind: str
) -> ufunc:
    return ufunc(
        join,
        2,
        1,
        identity=one,
        call=join,
        reduce=reduce,
        accumulate=running,
        at=_updating(kind),
    )


add = _accumulating(arithmetic.add, reductions.sum, reductions.cumsum, 0, "add")
multiply = _accumulating(arithmetic.multiply, reductions.prod, reductions.cumprod, 1, "multiply")
subtract = ufunc(arithmetic.subtract, 2, 1, call=arithmetic.subtract, at=_updating("subtract"))
negative = ufunc(arithmetic.negative, 1, 1, call=arithmetic.negative)
maximum = _extreme(arithmetic.maximum, reductions.max, reduce_ops.cummax, "max")
minimum = _extreme(arithmetic.minimum, reductions.min, reduce_ops.cummin, "min")
bitwise_and = _associative(arithmetic.bitwise_and, _by_op(reduce_ops.reduce_and), -1, None)
bitwise_or = _associative(arithmetic.bitwise_or, _by_op(reduce_ops.reduce_or), 0, None)
bitwise_xor = _associative(arithmetic.bitwise_xor, _by_op(reduce_ops.reduce_xor), 0, None)
logical_and = _associative(arithmetic.logical_and, _of_truth(reduce_ops.reduce_and), True, None)
logical_or = _associative(arithmetic.logical_or, _of_truth(reduce_ops.reduce_or), False, None)
logical_xor = _associative(arithmetic.logical_xor, _of_truth(reduce_ops.reduce_xor), False, None)
logaddexp = _associative(elementwise.logaddexp, _by_halves, -math.inf, None)
logaddexp2 = _associative(elementwise.logaddexp2, _by_halves, -math.inf, None)
