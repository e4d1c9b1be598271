"""Special functions, with the values and derivatives at awkward points that their limits have.

Each is a composition of ops.  Where a formula breaks down (0 * log 0, the log of a vanishing tail)
a select takes another branch, and the masked gradients of selects keep the first one's NaN out.
"""

from __future__ import annotations

import math
from typing import Any

from stax import types
from stax.numpy import reductions
from stax.numpy.arguments import Axis, inexact, inexact_operands
from stax.numpy.elementwise import isfinite, where as choose
from stax.operators import elementwise as ops
from stax.operators.arithmetic import divide, multiply, promote_operands
from stax.operators.elementwise import like, select
from stax.operators.gradient import stop_gradient
from stax.operators.reshape import squeeze
from stax.types import canonical_axes

__all__ = [
    "entr", "erf", "erfc", "expit", "kl_div", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "ndtr", "rel_entr", "softmax", "xlog1py", "xlogy",
]  # fmt: skip


def erf(x: Any) -> Any:
    """Return the error function."""
    return ops.erf(inexact("erf", x))


def erfc(x: Any) -> Any:
    """Return 1 less the error function, without cancellation."""
    return ops.erfc(inexact("erfc", x))


def expit(x: Any) -> Any:
    """Return the logistic function 1 / (1 + exp(-x))."""
    return ops.logistic(inexact("expit", x))


def logit(x: Any) -> Any:
    """Return log(x / (1 - x)), the inverse of the logistic function."""
    x = inexact("logit", x)
    return ops.log(ops.div(x, ops.sub(like(x, 1), x)))


def xlogy(x: Any, y: Any) -> Any:
    """Return x * log(y), and 0 where `x` is 0 and `y` is not NaN."""
    x, y = inexact_operands("xlogy", x, y)
    return _masked_product(x, y, ops.log)


def xlog1py(x: Any, y: Any) -> Any:
    """Return x * log(1 + y), and 0 where `x` is 0 and `y` is not NaN."""
    x, y = inexact_operands("xlog1py", x, y)
    return _masked_product(x, y, ops.log1p)


def _masked_product(x: Any, y: Any, log: Any) -> Any:
    """Return `x * log(y)` with its limits where `x` is 0 and the logarithm is infinite or NaN."""
    logarithm = log(y)
    zero, none = ops.eq(x, like(x, 0)), like(x, 0)
    infinite = ops.and_(zero, ops.eq(ops.abs_(logarithm), like(x, math.inf)))
    undefined = ops.and_(zero, ops.and_(ops.ne(logarithm, logarithm), ops.eq(y, y)))
    # The root is 0 there and has an infinite slope, as the product has in the limit.
    edge = ops.mul(ops.sign(logarithm), ops.sqrt(x))
    product = select(undefined, none, ops.mul(x, logarithm))
    return select(infinite, edge, product)


def entr(x: Any) -> Any:
    """Return -x * log(x): 0 at 0, where its derivative is infinite, and -inf below."""
    x = inexact("entr", x)
    zero = like(x, 0)
    negative = ops.lt(x, zero)
    return select(negative, like(x, -math.inf), ops.neg(xlogy(x, x)))


def rel_entr(p: Any, q: Any) -> Any:
    """Return p * log(p / q): 0 where `p` is 0 and `q` is not negative; else inf out of range."""
    p, q = inexact_operands("rel_entr", p, q)
    zero = like(p, 0)
    both = ops.and_(ops.gt(p, zero), ops.gt(q, zero))
    none = ops.and_(ops.eq(p, zero), ops.ge(q, zero))
    one = like(p, 1)
    ratio = ops.div(select(both, p, one), select(both, q, one))
    value = ops.mul(p, ops.log(ratio))
    outside = select(ops.or_(ops.ne(p, p), ops.ne(q, q)), ops.add(p, q), like(p, math.inf))
    return select(both, value, select(none, zero, outside))


def kl_div(p: Any, q: Any) -> Any:
    """Return p * log(p / q) - p + q, and inf where either is negative."""
    p, q = inexact_operands("kl_div", p, q)
    return ops.add(ops.sub(rel_entr(p, q), p), q)


def ndtr(x: Any) -> Any:
    """Return the distribution function of the standard normal distribution."""
    x = inexact("ndtr", x)
    scaled = ops.mul(x, like(x, math.sqrt(0.5)))
    half = like(x, 0.5)
    near = ops.lt(ops.abs_(scaled), like(x, math.sqrt(0.5)))
    middle = ops.add(half, ops.mul(half, ops.erf(scaled)))
    tail = ops.mul(half, ops.erfc(ops.abs_(scaled)))
    side = select(ops.gt(scaled, like(x, 0)), ops.sub(like(x, 1), tail), tail)
    return select(near, middle, side)


def log_ndtr(x: Any, series_order: int = 3) -> Any:
    """Return the logarithm of `ndtr`, by an asymptotic series far below 0."""
    x = inexact("log_ndtr", x)
    low, high = (-20.0, 8.0) if x.dtype == types.float64 else (-10.0, 5.0)
    far, near = ops.lt(x, like(x, low)), ops.gt(x, like(x, high))
    upper = ops.neg(ndtr(ops.neg(x)))
    inner = select(ops.or_(far, near), like(x, 0), x)
    outer = select(far, x, like(x, low))
    squared = ops.mul(outer, outer)
    series, term = like(x, 1), like(x, 1)
    for n in range(1, series_order + 1):
        term = ops.div(ops.mul(term, like(x, -(2.0 * n - 1))), squared)
        series = ops.add(series, term)
    scale = ops.sub(ops.mul(squared, like(x, -0.5)), ops.log(ops.neg(outer)))
    tail = ops.add(ops.sub(scale, like(x, 0.5 * math.log(2 * math.pi))), ops.log(series))
    return select(near, upper, select(far, tail, ops.log(ndtr(inner))))


def logsumexp(
    a: Any,
    axis: Axis = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: Any = None,
) -> Any:
    """Return the logarithm of the sum of `b * exp(a)` over `axis`, without overflow.

    With `return_sign`, return the logarithm of the absolute value, and the sign of the sum.
    """
    a = inexact("logsumexp", a)
    if b is not None:
        a, b = promote_operands("logsumexp", a, b)
        where_b = ops.ne(b, like(b, 0))
        a = select(where_b, a, like(a, -math.inf))
    if where is not None:
        a = choose(where, a, like(a, -math.inf))
    axes = canonical_axes(axis, a.ndim)
    peak = _peak(a, axes)
    peak = select(isfinite(peak), peak, like(peak, 0))
    terms = _exp_masked(a, peak, b, where)
    total = reductions.sum(terms, axes, keepdims=True)
    sign = ops.sign(total)
    if return_sign or b is not None:
        size = ops.abs_(total)
        found = ops.add(ops.log(size), peak)
        if not return_sign:
            found = select(ops.lt(sign, like(sign, 0)), like(found, math.nan), found)
    else:
        found = ops.add(ops.log(total), peak)
    if not keepdims:
        found, sign = (squeeze(v, axes) if axes else v for v in (found, sign))
    return (found, sign) if return_sign else found


def _peak(x: Any, axes: Any) -> Any:
    """Return the largest element over `axes`, held fixed by differentiation; -inf if none is."""
    empty = 0 in [n for n in (x.shape[i] for i in axes) if isinstance(n, int)]
    initial = -math.inf if empty else None
    return stop_gradient(reductions.max(x, axes, keepdims=True, initial=initial))


def _exp_masked(a: Any, peak: Any, b: Any, where: Any) -> Any:
    """Return `b * exp(a - peak)`; elements left out are zero, and so are their derivatives."""
    terms = ops.exp(a - peak)
    if b is not None:
        terms = multiply(terms, b)
    return terms if where is None else choose(where, terms, like(terms, 0))


def softmax(x: Any, /, *, axis: Axis = None) -> Any:
    """Return exp(x) over its sum along `axis`, or over all axes."""
    x = inexact("softmax", x)
    axes = canonical_axes(axis, x.ndim)
    return softmax_over(x, axes, None)


def softmax_over(x: Any, axes: Any, where: Any) -> Any:
    """Return exp(x) over its sum along `axes`, of the elements selected; the others are 0."""
    if where is not None:
        x = choose(where, x, like(x, -math.inf))
    peak = _peak(x, axes)
    terms = ops.exp(x - peak)
    result = divide(terms, reductions.sum(terms, axes, keepdims=True, where=where))
    return result if where is None else choose(where, result, like(result, 0))


def log_softmax(x: Any, /, *, axis: Axis = None) -> Any:
    """Return the logarithm of `softmax` along `axis`, or over all axes."""
    x = inexact("log_softmax", x)
    axes = canonical_axes(axis, x.ndim)
    return log_softmax_over(x, axes, None)


def log_softmax_over(x: Any, axes: Any, where: Any) -> Any:
    """Return the logarithm of `softmax_over`; elements left out are minus infinity."""
    kept = x if where is None else choose(where, x, like(x, -math.inf))
    peak = _peak(kept, axes)
    shifted = x - peak
    terms = ops.exp(shifted)
    result = shifted - ops.log(reductions.sum(terms, axes, keepdims=True, where=where))
    return result if where is None else choose(where, result, like(result, -math.inf))
