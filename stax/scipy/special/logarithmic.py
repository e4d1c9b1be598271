"""Logarithms and exponentials joined with products and sums, by their limits at awkward points.

Each is a composition of ops.  Where a formula breaks down (0 * log 0, a power with exponent 0) a
select takes another branch, and the masked gradients of selects keep the first one's NaN out.
"""

from __future__ import annotations

import math
from typing import Any

from stax.numpy import reductions
from stax.numpy.arguments import Axis, inexact, inexact_operands
from stax.numpy.elementwise import isfinite, where as choose
from stax.operators import elementwise as ops
from stax.operators.arithmetic import divide, multiply, promote_operands
from stax.operators.elementwise import like, select
from stax.operators.gradient import stop_gradient
from stax.operators.reshape import squeeze
from stax.types import canonical_axes, is_complex


def expit(x: Any) -> Any:
    """Return the logistic function 1 / (1 + exp(-x))."""
    return ops.logistic(inexact("expit", x))


def logit(x: Any) -> Any:
    """Return log(x / (1 - x)), the inverse of the logistic function."""
    x = inexact("logit", x)
    if is_complex(x.dtype):
        return ops.log(ops.div(x, ops.sub(like(x, 1), x)))
    return ops.sub(ops.log(x), ops.log1p(ops.neg(x)))


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
    size = ops.abs_(logarithm)
    infinite = ops.and_(zero, ops.eq(size, like(size, math.inf)))
    undefined = ops.and_(zero, ops.and_(ops.ne(logarithm, logarithm), ops.eq(y, y)))
    # The root is 0 there and has an infinite slope, as the product has in the limit; of -0 too.
    edge = ops.mul(ops.sign(logarithm), ops.sqrt(ops.add(x, none)))
    product = select(undefined, none, ops.mul(x, logarithm))
    return select(infinite, edge, product)


def entr(x: Any) -> Any:
    """Return -x * log(x): 0 at 0, where its derivative is infinite, and -inf below."""
    x = inexact("entr", x)
    zero = like(x, 0)
    negative = ops.lt(x, zero)
    # At infinity the slope is that of the logarithm, which the other factor's would make NaN.
    far = ops.mul(x, stop_gradient(ops.log(x)))
    product = select(ops.eq(x, like(x, math.inf)), far, xlogy(x, x))
    return select(negative, like(x, -math.inf), ops.neg(product))


def rel_entr(p: Any, q: Any) -> Any:
    """Return p * log(p / q): 0 where `p` is 0 and `q` is not negative; else inf out of range."""
    p, q = inexact_operands("rel_entr", p, q)
    zero = like(p, 0)
    both = ops.and_(ops.gt(p, zero), ops.gt(q, zero))
    none = ops.and_(ops.eq(p, zero), ops.ge(q, zero))
    value = ops.mul(p, _log_quotient(*(select(both, x, like(p, 1)) for x in (p, q))))
    outside = select(ops.or_(ops.ne(p, p), ops.ne(q, q)), ops.add(p, q), like(p, math.inf))
    return select(both, value, select(none, zero, outside))


def _log_quotient(p: Any, q: Any) -> Any:
    """Return log(p / q) of positive numbers, also where the quotient is no finite number.

    The slope by an infinite `p` is taken as 0, so that p times it is no NaN.
    """
    ratio, infinite = ops.div(p, q), like(p, math.inf)
    extreme = ops.or_(ops.eq(ratio, like(p, 0)), ops.eq(ratio, infinite))
    log_p = ops.log(p)
    log_p = select(ops.eq(p, infinite), stop_gradient(log_p), log_p)
    near = ops.log(select(extreme, like(p, 1), ratio))
    return select(extreme, ops.sub(log_p, ops.log(q)), near)


def kl_div(p: Any, q: Any) -> Any:
    """Return p * log(p / q) - p + q, and inf where either is negative."""
    p, q = inexact_operands("kl_div", p, q)
    return ops.add(ops.sub(rel_entr(p, q), p), q)


def boxcox(x: Any, lmbda: Any) -> Any:
    """Return (x^lmbda - 1) / lmbda, and its limit log(x) where `lmbda` is 0."""
    x, lmbda = inexact_operands("boxcox", x, lmbda)
    return _box_cox(ops.log(x), lmbda)


def boxcox1p(x: Any, lmbda: Any) -> Any:
    """Return ((1 + x)^lmbda - 1) / lmbda, and its limit log(1 + x) where `lmbda` is 0."""
    x, lmbda = inexact_operands("boxcox1p", x, lmbda)
    return _box_cox(ops.log1p(x), lmbda)


def _box_cox(logarithm: Any, lmbda: Any) -> Any:
    """Return expm1(lmbda * logarithm) / lmbda.

    At 0 the first terms of its series take its place, which have the right derivatives by `lmbda`;
    JAX's has derivative 0 there.
    """
    zero = ops.eq(lmbda, like(lmbda, 0))
    safe = select(zero, like(lmbda, 1), lmbda)
    quotient = ops.div(ops.expm1(ops.mul(safe, logarithm)), safe)
    power, series = ops.mul(lmbda, logarithm), like(lmbda, 1 / 120)
    for k in (24, 6, 2, 1):
        series = ops.add(ops.mul(series, power), like(lmbda, 1 / k))
    return select(zero, ops.mul(logarithm, series), quotient)


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
