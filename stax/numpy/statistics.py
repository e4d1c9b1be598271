"""Means, sums and extremes that leave out NaN, and what else describes a sample.

A reduction without NaN is the reduction of `reductions` with NaN replaced by what changes nothing,
or left out by `where`.  Histograms are counts by a scatter at places that a binary search finds.
"""

from __future__ import annotations

from typing import Any

from stax import types
from stax.errors import ArgumentValueError, DTypeError, ShapeError, UnsupportedError
from stax.numpy import reductions
from stax.numpy.arguments import (
    Axis,
    array,
    axes_list,
    inexact,
    inexact_operands,
    promoted,
    refuse_out,
    static_int,
)
from stax.numpy.complex import conj, real
from stax.numpy.creation import linspace
from stax.numpy.elementwise import isnan, where as choose
from stax.numpy.joining import concatenate
from stax.numpy.linear import dot
from stax.numpy.manipulation import sliced
from stax.numpy.sorting import argsort, searchsorted
from stax.numpy.taking import diagonal, take
from stax.operators import elementwise as ops
from stax.operators.arithmetic import (
    add,
    divide,
    equal,
    logical_and,
    multiply,
    not_equal,
    power,
    remainder,
    subtract,
)
from stax.operators.elementwise import convert, like
from stax.operators.index import ScatterDimensionNumbers, scatter_add
from stax.operators.reshape import expand_dims, reshape, transpose
from stax.operators.shape import broadcast_in_dim, broadcast_to
from stax.trace import full
from stax.types import canonical_axis, is_index


def average(
    a: Any, axis: Axis = None, weights: Any = None, returned: bool = False, keepdims: bool = False
) -> Any:
    """Return the mean over `axis`, weighted; with `returned`, also the sum of the weights."""
    a = array("average", a)
    if weights is None:
        a = inexact("average", a)
        result = reductions.mean(a, axis, keepdims=keepdims)
        count = reductions.sum(like(a, 1), axis, keepdims=keepdims)
        return (result, count) if returned else result
    weights = array("average", weights)
    if weights.ndim != a.ndim:
        if weights.ndim != 1 or not isinstance(axis, int):
            raise ShapeError(
                f"average: weights {weights.type} do not go with {a.type} and {axis=}.",
                advice="Give weights of the array's shape, or a vector and its axis.",
            )
        weights = broadcast_in_dim(weights, a.shape, (canonical_axis(axis, a.ndim),))
    a, weights = inexact_operands("average", a, weights)
    total = reductions.sum(weights, axis, keepdims=keepdims)
    result = ops.div(reductions.sum(ops.mul(a, weights), axis, keepdims=keepdims), total)
    return (result, total) if returned else result


# --- without NaN ---


def _with(a: Any, value: Any) -> Any:
    """Return `a` with NaN replaced by a number."""
    return choose(isnan(a), convert(array("nan", value), a.dtype, a.weak_type), a)


def _present(a: Any, where: Any) -> Any:
    """Return which elements take part: those selected that are not NaN."""
    there = ops.not_(isnan(a))
    return there if where is None else logical_and(there, where)


def nansum(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the sum over `axis` of the elements that are not NaN."""
    return reductions.sum(_with(array("nansum", a), 0), axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the product over `axis` of the elements that are not NaN."""
    return reductions.prod(
        _with(array("nanprod", a), 1), axis, dtype, out, keepdims, initial, where
    )


def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return running sums in which NaN counts as 0."""
    return reductions.cumsum(_with(array("nancumsum", a), 0), axis, dtype, out)


def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Return running products in which NaN counts as 1."""
    return reductions.cumprod(_with(array("nancumprod", a), 1), axis, dtype, out)


def nanmean(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: bool = False,
    where: Any = None,
) -> Any:
    """Return the mean over `axis` of the elements that are not NaN."""
    a = array("nanmean", a)
    return reductions.mean(a, axis, dtype, out, keepdims, where=_present(a, where))


def nanvar(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Any:
    """Return the variance over `axis` of the elements that are not NaN."""
    a = array("nanvar", a)
    mask = _present(a, where)
    return reductions.var(a, axis, dtype, out, ddof, keepdims, where=mask, mean=mean)


def nanstd(
    a: Any,
    axis: Axis = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: bool = False,
    where: Any = None,
    mean: Any = None,
) -> Any:
    """Return the standard deviation over `axis` of the elements that are not NaN."""
    a = array("nanstd", a)
    mask = _present(a, where)
    return reductions.std(a, axis, dtype, out, ddof, keepdims, where=mask, mean=mean)


def _nan_extreme(
    name: str, a: Any, axis: Axis, keepdims: bool, initial: Any, where: Any, value: Any
) -> Any:
    a = array(name, a)
    reduction = reductions.max if name == "nanmax" else reductions.min
    if not types.is_float(a.dtype):
        return reduction(a, axis, keepdims=keepdims, initial=initial, where=where)
    result = reduction(_with(a, value), axis, keepdims=keepdims, initial=initial, where=where)
    if initial is not None:
        return result
    return choose(
        reductions.all(isnan(a), axis, keepdims=keepdims), like(result, float("nan")), result
    )


def nanmax(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the largest element over `axis` that is not NaN; NaN if there is none."""
    refuse_out("nanmax", out)
    return _nan_extreme("nanmax", a, axis, keepdims, initial, where, -float("inf"))


def nanmin(
    a: Any,
    axis: Axis = None,
    out: Any = None,
    keepdims: bool = False,
    initial: Any = None,
    where: Any = None,
) -> Any:
    """Return the smallest element over `axis` that is not NaN; NaN if there is none."""
    refuse_out("nanmin", out)
    return _nan_extreme("nanmin", a, axis, keepdims, initial, where, float("inf"))


def _nan_place(a: Any, axis: int | None, keepdims: bool | None, find: Any, value: float) -> Any:
    if not types.is_float(a.dtype):
        return find(a, axis, keepdims=keepdims)
    found = find(_with(a, value), axis, keepdims=keepdims)
    none = reductions.all(isnan(a), axis, keepdims=bool(keepdims))
    return choose(none, like(found, -1), found)


def nanargmax(
    a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None
) -> Any:
    """Return the first place of the largest element that is not NaN; -1 if there is none."""
    refuse_out("nanargmax", out)
    a = array("nanargmax", a)
    return _nan_place(a, axis, keepdims, reductions.argmax, -float("inf"))


def nanargmin(
    a: Any, axis: int | None = None, out: Any = None, keepdims: bool | None = None
) -> Any:
    """Return the first place of the smallest element that is not NaN; -1 if there is none."""
    refuse_out("nanargmin", out)
    a = array("nanargmin", a)
    return _nan_place(a, axis, keepdims, reductions.argmin, float("inf"))


# --- covariance ---


def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Any:
    """Return the covariance matrix of variables in rows (in columns unless `rowvar`).

    `fweights` say how often each observation was made, `aweights` how much it counts; both vectors
    are taken as positive.  With a sum of weights w the divisor is w - ddof * sum(w * aweights) / w.
    Raises ArgumentValueError for weights of other shapes, DTypeError for broken numbers of times.
    """
    rows = _variables(m, rowvar)
    if y is not None:
        rows = concatenate([rows, _variables(y, rowvar)], 0)
    less = ddof if ddof is not None else 0 if bias else 1
    if fweights is None and aweights is None:
        centred = subtract(rows, reductions.mean(rows, 1, keepdims=True))
        weighted, divisor = centred, max(0, rows.shape[1] - less)
    else:
        times = _weights("fweights", fweights, rows)
        counts = _weights("aweights", aweights, rows)
        w = multiply(times, counts)
        total = reductions.sum(w)
        centre = divide(reductions.sum(multiply(rows, w), 1, keepdims=True), total)
        centred = subtract(rows, centre)
        weighted = multiply(centred, w)
        doubled = reductions.sum(multiply(w, counts))
        divisor = subtract(total, multiply(divide(doubled, total), less))
    result = divide(dot(centred, transpose(conj(weighted))), divisor)
    result = result if rows.shape[0] > 1 else reshape(result, ())
    return result if dtype is None else convert(result, types.check_dtype(dtype))


def _weights(name: str, given: Any, rows: Any) -> Any:
    """Return the weights of the observations as numbers of a dtype like theirs; ones if None."""
    if given is None:
        return full(rows.shape[1:], 1, real(rows).dtype)
    w = array("cov", given)
    if w.shape != rows.shape[1:]:
        raise ArgumentValueError(
            f"cov: {name} of type {w.type} for {rows.shape[1]} observations.",
            advice="Give one weight for each observation.",
        )
    if name == "fweights" and not types.is_integer(w.dtype):
        raise DTypeError(
            f"cov: fweights are numbers of times, not {w.type}.", advice="Use aweights."
        )
    return ops.abs_(convert(w, types.inexact_dtype(w.dtype)))


def _variables(x: Any, rowvar: bool) -> Any:
    x = inexact("cov", x)
    if x.ndim > 2:
        raise ArgumentValueError(
            f"cov takes at most two axes, not {x.type}.",
            advice="Flatten the observations into one axis.",
        )
    x = expand_dims(x, range(2 - x.ndim)) if x.ndim < 2 else x
    return x if rowvar or x.shape[0] == 1 else transpose(x)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Any:
    """Return the correlation matrix of variables in rows (in columns unless `rowvar`)."""
    found = cov(x, y, rowvar, dtype=dtype)
    if not found.ndim:
        return divide(found, found)
    scale = ops.sqrt(real(diagonal(found)))
    result = divide(divide(found, expand_dims(scale, 1)), expand_dims(scale, 0))
    if types.is_complex(result.dtype):
        return ops.complex_(_within_one(ops.real(result)), _within_one(ops.imag(result)))
    return _within_one(result)


def _within_one(x: Any) -> Any:
    return ops.minimum(ops.maximum(x, like(x, -1)), like(x, 1))


# --- differences and integrals ---


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Return the differences of neighbours along `axis`, `n` times over."""
    a = array("diff", a)
    _check_axes("diff", a)
    if n == 0:
        return a
    where = canonical_axis(axis, a.ndim)
    parts = [_beside(x, a, where) for x in (prepend, append)]
    whole = [x for x in (parts[0], a, parts[1]) if x is not None]
    a = concatenate(whole, where) if len(whole) > 1 else a
    for _ in range(n):
        length = a.shape[where]
        if length == 0:
            return a
        after, before = sliced(a, 1, length, where), sliced(a, 0, length - 1, where)
        a = not_equal(after, before) if types.is_bool(a.dtype) else subtract(after, before)
    return a


def _check_axes(name: str, a: Any) -> None:
    if not a.ndim:
        raise ArgumentValueError(
            f"{name} takes an array with at least one axis.", advice="Add one with x[None]."
        )


def _beside(x: Any, a: Any, axis: int) -> Any:
    if x is None:
        return None
    x = array("diff", x)
    if x.ndim:
        return x
    return broadcast_to(x, tuple(1 if i == axis else n for i, n in enumerate(a.shape)))


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Return the differences of neighbours of the flattened array, with more put around them."""
    flat = reshape(array("ediff1d", ary), (-1,))
    parts = [to_begin, diff(flat), to_end]
    return concatenate([reshape(array("ediff1d", p), (-1,)) for p in parts if p is not None], 0)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Return the integral along `axis` by the trapezoidal rule."""
    y = inexact("trapezoid", y)
    _check_axes("trapezoid", y)
    where = canonical_axis(axis, y.ndim)
    if x is None:
        steps: Any = array("trapezoid", dx)
    else:
        x = array("trapezoid", x)
        steps = diff(x, axis=where if x.ndim > 1 else 0)
        if x.ndim == 1:
            steps = reshape(steps, [-1 if i == where else 1 for i in range(y.ndim)])
    length = y.shape[where]
    middle = add(sliced(y, 1, length, where), sliced(y, 0, length - 1, where))
    return multiply(0.5, reductions.sum(multiply(steps, middle), where))


def interp(
    x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    """Return the piecewise linear function through the points `(xp, fp)` at each element of `x`.

    Outside of the points it has the values `left` and `right`, by default those at the ends, or
    goes on as a line where one is "extrapolate".  With a `period`, `x` and `xp` count modulo it and
    nothing is outside.  Values may be complex; raises DTypeError for complex places.
    """
    x, xp = promoted("interp", [inexact("interp", x), inexact("interp", xp)])
    fp = inexact("interp", fp)
    if types.is_complex(x.dtype):
        raise DTypeError(
            "interp: complex numbers have no order.", advice="Take real parts of x and xp."
        )
    for given in (left, right):
        if isinstance(given, str) and given != "extrapolate":
            raise ArgumentValueError(
                f"interp: left and right are numbers or 'extrapolate', not {given!r}."
            )
    if xp.ndim != 1 or fp.ndim != 1 or xp.shape != fp.shape:
        raise ArgumentValueError(
            f"interp: {xp.type} and {fp.type} are not vectors of one length.",
            advice="Give one value in fp for each point in xp.",
        )
    if period is not None:
        x, xp, fp = _wrapped(x, xp, fp, period)
        left = right = "extrapolate"
    last = xp.shape[0] - 1
    after = searchsorted(xp, x, "right")
    most = broadcast_to(convert(array("interp", max(last, 1)), types.int32), after.shape)
    after = ops.minimum(ops.maximum(after, like(after, 1)), most)
    low, high = take(xp, ops.sub(after, like(after, 1)), mode="clip"), take(xp, after, mode="clip")
    below, above = (
        take(fp, ops.sub(after, like(after, 1)), mode="clip"),
        take(fp, after, mode="clip"),
    )
    width = subtract(high, low)
    flat = ops.eq(width, like(width, 0))
    slope = divide(subtract(above, below), choose(flat, 1, width))
    result = choose(flat, below, add(below, multiply(subtract(x, low), slope)))
    first, final = (reshape(sliced(xp, i, i + 1, 0), ()) for i in (0, last))
    if not isinstance(right, str):
        right = reshape(sliced(fp, last, last + 1, 0), ()) if right is None else right
        result = choose(x > final, right, result)
    if not isinstance(left, str):
        left = reshape(sliced(fp, 0, 1, 0), ()) if left is None else left
        result = choose(x < first, left, result)
    return result


def _wrapped(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Return places within one period, and sorted points with one more at either end."""
    period = array("interp", period)
    if period.ndim:
        raise ArgumentValueError(f"interp: the period is a number, not {period.type}.")
    period = ops.abs_(convert(period, x.dtype))
    x, xp = remainder(x, period), remainder(xp, period)
    order = argsort(xp)
    xp, fp = take(xp, order), take(fp, order)
    n = xp.shape[0]
    before, beyond = subtract(sliced(xp, n - 1, n, 0), period), add(sliced(xp, 0, 1, 0), period)
    return (
        x,
        concatenate([before, xp, beyond]),
        concatenate([sliced(fp, n - 1, n, 0), fp, sliced(fp, 0, 1, 0)]),
    )


# --- counting ---


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """Return how often each of 0, 1, ... occurs in `x`, or the sum of its weights.

    `length` is the number of counts; without it the values of `x` must be known.
    """
    x = array("bincount", x)
    if x.ndim != 1 or not types.is_integer(x.dtype):
        raise ArgumentValueError(
            f"bincount takes a vector of integers, not {x.type}.",
            advice="Flatten it with ravel(), or convert it to an integer dtype.",
        )
    if length is None:
        length = max(minlength, int(reductions.max(x)) + 1 if x.size else 0)
    length = static_int("bincount", "length", length)
    x = ops.maximum(x, like(x, 0))
    units = full(x.shape, 1, types.int_dtype()) if weights is None else array("bincount", weights)
    numbers = ScatterDimensionNumbers((), (0,), (0,))
    zeros = full((length,), 0, units.dtype)
    return scatter_add(zeros, expand_dims(x, 1), units, numbers, mode="drop")


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """Return the edges of `bins` bins of one width over `range`, or over the values.

    `weights` is accepted, as in NumPy, and changes nothing.
    """
    a = reshape(inexact("histogram", a), (-1,))
    if not is_index(bins):
        return convert(array("histogram", bins), a.dtype)
    bins = static_int("histogram", "bins", bins)
    if range is None:
        empty = not a.shape[0]
        low, high = (0.0, 1.0) if empty else (reductions.min(a), reductions.max(a))
    else:
        low, high = range
    same = equal(low, high)
    low, high = choose(same, subtract(low, 0.5), low), choose(same, add(high, 0.5), high)
    return linspace(low, high, bins + 1, dtype=a.dtype)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None
) -> tuple[Any, Any]:
    """Return how many elements of `a` (or what weight) each bin holds, and the bins' edges.

    Edges have the dtype of `a`, made a floating one.
    """
    edges = histogram_bin_edges(a, bins, range, weights)
    a = reshape(inexact("histogram", a), (-1,))
    units = like(a, 1) if weights is None else reshape(array("histogram", weights), (-1,))
    count = edges.shape[0] - 1
    after = searchsorted(edges, a, "right")
    place = ops.sub(after, like(after, 1))
    last = take(edges, full((), count, types.int32))
    # The last bin includes its upper edge.
    place = choose(equal(a, last), count - 1, place)
    inside = choose(ops.lt(place, like(place, 0)), count, place)
    counts = bincount(inside, units, length=count)
    if density:
        counts = divide(divide(counts, diff(edges)), reductions.sum(counts))
    return counts, edges


def gradient(f: Any, *varargs: Any, axis: Axis = None, edge_order: int | None = None) -> Any:
    """Return the derivative along each axis by central differences, one-sided at the ends.

    Spacings are one for all axes or one for each: a number, or the coordinates of the elements, for
    which the inner differences are those of the parabola through three of them.
    """
    if edge_order is not None:
        raise UnsupportedError(
            "gradient: edge_order is not supported.", advice="Leave it out for first order."
        )
    f = inexact("gradient", f)
    axes = axes_list(axis, f.ndim)
    steps = list(varargs) or [1.0]
    steps = steps * len(axes) if len(steps) == 1 else steps
    if len(steps) != len(axes):
        raise ArgumentValueError(
            f"gradient: {len(steps)} spacings do not go with {len(axes)} axes.",
            advice="Give one spacing, or one for each axis.",
        )
    found = [_slopes(f, step, i) for step, i in zip(steps, axes, strict=True)]
    return found[0] if len(found) == 1 else found


def _slopes(f: Any, step: Any, axis: int) -> Any:
    n = f.shape[axis]
    step = array("gradient", step)
    if step.ndim and step.shape != (n,):
        raise ArgumentValueError(
            f"gradient: a spacing is a number or {n} coordinates, not {step.type}.",
            advice="Give a number, or a coordinate for each element along the axis.",
        )
    if n < 2:
        raise ArgumentValueError(
            "gradient takes at least two elements along an axis.",
            advice="Leave the axis out with axis=.",
        )
    first = subtract(sliced(f, 1, 2, axis), sliced(f, 0, 1, axis))
    last = subtract(sliced(f, n - 1, n, axis), sliced(f, n - 2, n - 1, axis))
    if step.ndim:
        shape = [n if i == axis else 1 for i in range(f.ndim)]
        widths = diff(reshape(step, shape), axis=axis)
        first = divide(first, sliced(widths, 0, 1, axis))
        last = divide(last, sliced(widths, n - 2, n - 1, axis))
        before, after = sliced(widths, 0, n - 2, axis), sliced(widths, 1, n - 1, axis)
        inner = _of_parabolas(f, before, after, axis)
        return concatenate([first, inner, last] if n > 2 else [first, last], axis)
    inner = multiply(subtract(sliced(f, 2, n, axis), sliced(f, 0, n - 2, axis)), 0.5)
    return divide(concatenate([first, inner, last] if n > 2 else [first, last], axis), step)


def _of_parabolas(f: Any, before: Any, after: Any, axis: int) -> Any:
    """Return the slopes at inner elements, `before` and `after` being the distances there."""
    n, both = f.shape[axis], add(before, after)
    low, here, high = (sliced(f, i, n - 2 + i, axis) for i in range(3))
    a = divide(multiply(after, -1), multiply(before, both))
    b = divide(subtract(after, before), multiply(before, after))
    c = divide(before, multiply(after, both))
    return add(add(multiply(a, low), multiply(b, here)), multiply(c, high))


def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Return the matrix of the powers of the elements of `x`, falling unless `increasing`."""
    x = array("vander", x)
    count = x.shape[0] if N is None else N
    exponents = list(range(count)) if increasing else list(range(count - 1, -1, -1))
    return concatenate([expand_dims(power(x, k), 1) for k in exponents], 1)
