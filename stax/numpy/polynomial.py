"""Polynomials as vectors of coefficients, the highest power first, as in NumPy's old interface."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError, ConcretizationTypeError, StaxError
from stax.numpy.arguments import array, arrays, inexact, promoted, static_int
from stax.numpy.convolution import convolve
from stax.numpy.elementwise import where
from stax.numpy.joining import concatenate
from stax.numpy.linalg.factors import eigvals
from stax.numpy.linalg.solutions import inv, lstsq
from stax.numpy.manipulation import atleast_1d, roll, sliced
from stax.numpy.padding import pad
from stax.numpy.reductions import all as all_of, argmin
from stax.numpy.statistics import vander
from stax.operators import elementwise as ops
from stax.operators.arithmetic import add, divide, multiply, negative, subtract
from stax.operators.contract import matmul
from stax.operators.elementwise import convert, like
from stax.operators.reduce import reduce_sum
from stax.operators.reshape import expand_dims, reshape, transpose
from stax.operators.shape import concatenate as joined, iota
from stax.trace import full


def _coefficients(name: str, *given: Any, to_inexact: bool = True) -> list[Any]:
    """Return vectors of coefficients in one dtype, each with at least one axis."""
    found = promoted(name, arrays(name, *given))
    if to_inexact:
        found = [inexact(name, x) for x in found]
    return [atleast_1d(x) for x in found]


def polyval(p: Any, x: Any, *, unroll: int = 16) -> Any:
    """Return the polynomial with coefficients `p` at each element of `x`, by Horner's rule.

    Further axes of `p` are those of several polynomials, and broadcast with `x`.  `unroll` is
    accepted and changes nothing: every step is unrolled.
    """
    p, x = promoted("polyval", arrays("polyval", p, x))
    shape = types.broadcast_shapes(p.shape[1:], x.shape)
    result = full(shape, 0, x.dtype, x.weak_type)
    for coefficient in p:
        result = add(multiply(result, x), coefficient)
    return result


def polyadd(a1: Any, a2: Any) -> Any:
    """Return the sum of two polynomials."""
    a1, a2 = _coefficients("polyadd", a1, a2, to_inexact=False)
    length = max(a1.shape[0], a2.shape[0])
    return add(*(pad(a, (length - a.shape[0], 0)) for a in (a1, a2)))


def polysub(a1: Any, a2: Any) -> Any:
    """Return the difference of two polynomials."""
    a1, a2 = _coefficients("polysub", a1, a2, to_inexact=False)
    return polyadd(a1, negative(a2))


def polymul(a1: Any, a2: Any, *, trim_leading_zeros: bool = False) -> Any:
    """Return the product of two polynomials, as floats.

    With `trim_leading_zeros`, which takes known values, without zeros in front of either.
    """
    a1, a2 = _coefficients("polymul", a1, a2)
    if trim_leading_zeros and (a1.shape[0] > 1 or a2.shape[0] > 1):
        a1, a2 = _trimmed("polymul", a1, 0.0), _trimmed("polymul", a2, 0.0)
    none = full((1,), 0, a1.dtype)
    return convolve(a1 if a1.shape[0] else none, a2 if a2.shape[0] else none)


def _trimmed(name: str, a: Any, tolerance: float) -> Any:
    """Return coefficients without those in front that are no larger than `tolerance`."""
    try:
        large = np.flatnonzero(np.abs(np.asarray(a)) > tolerance)
    except StaxError:
        raise ConcretizationTypeError(
            f"{name}: how many zeros lead is not known while tracing.",
            advice="Leave trim_leading_zeros (strip_zeros for roots) False under jit.",
        ) from None
    return sliced(a, int(large[0]) if large.size else a.shape[0], a.shape[0], 0)


def polydiv(u: Any, v: Any, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Return the quotient and the remainder of two polynomials, as floats.

    With `trim_leading_zeros`, which takes known values, the remainder without zeros in front.
    """
    u, v = _coefficients("polydiv", u, v)
    m, n = u.shape[0] - 1, v.shape[0] - 1
    scale = divide(1.0, v[0])
    quotient = []
    for k in range(m - n + 1):
        d = multiply(scale, u[k])
        quotient.append(reshape(d, (1,)))
        taken = pad(multiply(d, v), (k, m - n - k))
        u = subtract(u, taken)
    q = concatenate(quotient) if quotient else full((1,), 0, u.dtype)
    if trim_leading_zeros:
        u = _trimmed("polydiv", u, math.sqrt(float(types.ml_dtypes.finfo(u.dtype).eps)))
    return convert(q, u.dtype), u


def polyder(p: Any, m: int = 1) -> Any:
    """Return the `m`-th derivative of a polynomial, as floats."""
    (p,) = _coefficients("polyder", p)
    order = _order("polyder", m)
    if not order:
        return p
    powers = np.arange(p.shape[0] - 1, order - 1, -1, dtype=np.float64)
    factors = np.prod([powers - i for i in range(order)], axis=0)
    return multiply(sliced(p, 0, max(p.shape[0] - order, 0), 0), _constants(factors, p))


def _order(name: str, m: Any) -> int:
    order = static_int(name, "m", m)
    if order < 0:
        raise ArgumentValueError(
            f"{name}: the order must not be negative, got {order}.",
            advice="polyder and polyint are each other's inverse.",
        )
    return order


def _constants(values: np.ndarray, x: Any) -> Any:
    return convert(array("polynomial", values), x.dtype, x.weak_type)


def polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    """Return the `m`-th integral of a polynomial, as floats; `k` are its constants (0)."""
    order = _order("polyint", m)
    p, k = _coefficients("polyint", p, 0 if k is None else k)
    if k.shape[0] == 1:
        k = concatenate([k] * order) if order else full((0,), 0, k.dtype)
    if k.shape != (order,):
        raise ArgumentValueError(
            f"polyint: k must be a number or {order} of them, got {k.type}.",
            advice="Give one constant for each time it is integrated.",
        )
    if not order:
        return p
    powers = np.arange(p.shape[0] + order - 1, -1, -1, dtype=np.float64)
    factors = np.prod([np.maximum(powers - i, 1) for i in range(order)], axis=0)
    return divide(concatenate([p, k]), _constants(factors, p))


def poly(seq_of_zeros: Any) -> Any:
    """Return the polynomial with these roots, or the characteristic one of a square matrix."""
    zeros = atleast_1d(inexact("poly", seq_of_zeros))
    if zeros.ndim == 2 and zeros.shape[0] == zeros.shape[1] and zeros.shape[0]:
        zeros = eigvals(zeros)
    if zeros.ndim != 1:
        raise ArgumentValueError(
            f"poly takes a vector of roots or a square matrix, not {zeros.type}.",
            advice="Flatten the roots with ravel().",
        )
    if not zeros.shape[0]:
        return full((), 1, zeros.dtype)
    result = full((1,), 1, zeros.dtype)
    for k in range(zeros.shape[0]):
        factor = concatenate([full((1,), 1, zeros.dtype), reshape(negative(zeros[k]), (1,))])
        result = convolve(result, convert(factor, zeros.dtype))
    return result


def roots(p: Any, *, strip_zeros: bool = True) -> Any:
    """Return the roots of a polynomial: the eigenvalues of its companion matrix, complex.

    Zeros in front are taken off, which takes known values; with strip_zeros=False, as many of the
    results are NaN.
    """
    (p,) = _coefficients("roots", p)
    if p.ndim != 1:
        raise ArgumentValueError(f"roots takes a vector, not {p.type}.", advice="Use ravel().")
    if p.shape[0] < 2:
        return full((0,), 0, types.complex_of(p.dtype))
    if strip_zeros:
        return _roots(_trimmed("roots", p, 0.0))
    zero = ops.eq(p, like(p, 0))
    count = where(all_of(zero), p.shape[0], argmin(zero))
    found = _roots(roll(where(count == p.shape[0], like(p, 1), p), negative(count)))
    order = ops.eq(found, like(found, 0))
    from_end = convert(order, types.int32)
    places = iota(types.int32, found.shape)
    ranked = _last_where(found, from_end)
    left = subtract(found.shape[0], count)
    return where(places < left, ranked, full(found.shape, complex(math.nan, math.nan), found.dtype))


def _last_where(x: Any, late: Any) -> Any:
    """Return `x` with the elements that are `late` behind the others."""
    return x[late.argsort()]


def _roots(p: Any) -> Any:
    """Return the roots of a polynomial whose first coefficient is not 0."""
    size = p.shape[0] - 1
    if size < 1:
        return full((0,), 0, types.complex_of(p.dtype))
    first = expand_dims(divide(negative(sliced(p, 1, size + 1, 0)), p[0]), 0)
    below = convert(array("roots", np.eye(size - 1, size)), p.dtype)
    return eigvals(joined([convert(first, p.dtype), below], 0))


def polyfit(
    x: Any,
    y: Any,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    """Return the polynomial of degree `deg` that fits the points best, by least squares.

    `w` weights the points.  With `full`, also the residuals, rank, singular values and `rcond`;
    with `cov`, also the covariance of the coefficients ("unscaled", without that of the points).
    """
    x, y = arrays("polyfit", x, y)
    order = _order("polyfit", deg) + 1
    if x.ndim != 1 or y.ndim not in (1, 2) or not x.shape[0] or x.shape[0] != y.shape[0]:
        raise ArgumentError(
            f"polyfit takes a vector x and as many rows of y, not {x.type} and {y.type}.",
            advice="Give at least one point.",
        )
    x = inexact("polyfit", x)
    if rcond is None:
        rcond = x.shape[0] * float(types.ml_dtypes.finfo(x.dtype).eps)
    powers, values = vander(x, order), inexact("polyfit", y)
    if w is not None:
        w = inexact("polyfit", w)
        if w.shape != (x.shape[0],):
            raise ArgumentError(
                f"polyfit: weights {w.type} are not one for each point.",
                advice="Give a vector as long as x.",
            )
        powers = multiply(powers, expand_dims(w, 1))
        values = multiply(values, expand_dims(w, 1) if y.ndim == 2 else w)
    scale = ops.sqrt(reduce_sum(ops.mul(powers, powers), (0,)))
    powers = divide(powers, expand_dims(scale, 0))
    found, residuals, rank, singular = lstsq(powers, values, rcond)
    found = divide(found, scale if y.ndim == 1 else expand_dims(scale, 1))
    if full:
        return found, residuals, rank, singular, array("polyfit", rcond)
    if not cov:
        return found
    return found, _covariance(powers, scale, residuals, cov, (x.shape[0], order), y.ndim)


def _covariance(
    powers: Any, scale: Any, residuals: Any, cov: Any, sizes: tuple[int, int], ndim: int
) -> Any:
    """Return the covariance of the coefficients of a fit; for each column of y, along the last."""
    points, order = sizes
    base = divide(inv(matmul(transpose(powers), powers)), multiply(expand_dims(scale, 1), scale))
    if cov == "unscaled":
        factor: Any = array("polyfit", 1.0)
    elif points <= order:
        raise ArgumentValueError(
            f"polyfit: {points} points do not give the covariance of {order} coefficients.",
            advice="Give more points than coefficients, or cov='unscaled'.",
        )
    else:
        factor = divide(residuals, points - order)
    if ndim == 1:
        return multiply(base, expand_dims(atleast_1d(factor), 0))
    return multiply(expand_dims(base, 2), atleast_1d(factor))
