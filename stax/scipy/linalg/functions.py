"""Functions of square matrices.

The exponential is that of N. Higham, "The scaling and squaring method for the matrix exponential
revisited" (SIAM J. Matrix Anal. Appl. 26, 2005): a Pade approximant of a matrix scaled to a small
norm, squared as often as it was halved.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from stax import types
from stax.api.derivatives import jvp
from stax.dtypes import finfo
from stax.errors import ArgumentValueError
from stax.numpy.arguments import inexact
from stax.numpy.elementwise import where
from stax.numpy.linalg import matrix_norm, norm
from stax.numpy.linalg.factors import square
from stax.operators import elementwise as ops, linalg, spectral
from stax.operators.arithmetic import maximum
from stax.operators.elementwise import convert, like
from stax.operators.gradient import stop_gradient
from stax.operators.matrices import (
    adjoint,
    columns_by,
    diagonal,
    identity_like,
    matmul,
    rows_by,
    upper_part,
    with_diagonal,
)
from stax.operators.reshape import expand_dims
from stax.operators.shape import iota
from stax.scipy.linalg.factors import schur

# The degree for each precision, and the norm up to which its approximant is exact to rounding.
_DEGREE = {types.float32: (7, 3.925724783138660), types.float64: (13, 5.371920351148152)}


def _coefficients(degree: int) -> list[float]:
    """Return the coefficients of the numerator of the diagonal Pade approximant."""
    return [
        math.factorial(2 * degree - k) / (math.factorial(degree - k) * math.factorial(k))
        for k in range(degree + 1)
    ]


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Any:
    """Return the exponentials of square matrices; NaN where they need more squarings than allowed.

    `upper_triangular` is accepted and changes nothing.
    """
    a = square("expm", A)
    if 0 in a.shape:
        return a
    degree, bound = _DEGREE[types.real_part(a.dtype)]
    norm = stop_gradient(matrix_norm(a, ord=1))
    halvings = ops.ceil(ops.log(norm / bound) / math.log(2))
    halvings = maximum(halvings, 0)
    scale = ops.exp2(-halvings)
    wide = expand_dims(scale, (scale.ndim, scale.ndim + 1))
    result = _approximant(a * wide, degree)
    for k in range(max_squarings):
        again = expand_dims(halvings > k, (scale.ndim, scale.ndim + 1))
        result = where(again, matmul(result, result), result)
    too_many = expand_dims(halvings > max_squarings, (scale.ndim, scale.ndim + 1))
    return where(too_many, math.nan, result)


def _approximant(a: Any, degree: int) -> Any:
    """Return the diagonal Pade approximant of the exponential."""
    c = _coefficients(degree)
    square_ = matmul(a, a)
    power, even, odd = identity_like(a), None, None
    for k in range(0, degree, 2):
        even_term, odd_term = (ops.mul(power, like(power, c[k + i])) for i in (0, 1))
        even = even_term if even is None else ops.add(even, even_term)
        odd = odd_term if odd is None else ops.add(odd, odd_term)
        power = matmul(power, square_) if k else square_
    odd = matmul(a, odd)
    return linalg.solve(ops.sub(even, odd), ops.add(even, odd))


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """Return exp(`A`) and its derivative in direction `E`, or without `compute_expm` the latter.

    `method` is accepted and changes nothing.
    """
    a, e = square("expm_frechet", A), inexact("expm_frechet", E)
    if a.shape != e.shape:
        raise ArgumentValueError(
            f"expm_frechet: {a.type} and {e.type} differ in shape.",
            advice="The direction is a matrix like A.",
        )
    value, slope = jvp(expm, (a,), (convert(e, a.dtype),))
    return (value, slope) if compute_expm else slope


def funm(A: Any, func: Callable[..., Any], disp: bool = True) -> Any:
    """Return a function of a square matrix, given `func` for its eigenvalues; and an error bound,
    unless `disp`.

    The triangular form is filled in diagonal by diagonal, from T F = F T (B. Parlett, "A recurrence
    among the elements of functions of triangular matrices", Linear Algebra Appl. 14, 1976).
    """
    a = square("funm", A)
    if a.ndim != 2:
        raise ArgumentValueError(f"funm takes one matrix, not {a.type}.", advice="Use vmap.")
    n, dtype = a.shape[0], a.dtype
    t, z = schur(a, "complex")
    values = diagonal(t)
    f = with_diagonal(convert(func(values), t.dtype))
    gaps = columns_by(values, n) - rows_by(values, n)
    apart = gaps != 0
    divisors = where(apart, gaps, 1)
    offsets = iota(types.int32, (n, n), 1) - iota(types.int32, (n, n), 0)
    for k in range(1, n):
        found = (matmul(t, f) - matmul(f, t)) / divisors
        f = where(offsets == k, found, f)
    result = matmul(matmul(z, f), adjoint(z))
    if disp:
        return result
    precision = float(finfo(dtype).eps)
    nearest = ops.abs_(where(offsets > 0, divisors, math.inf)).min()
    bound = maximum(precision, precision / nearest * norm(upper_part(t, strict=True), 1))
    finite = ops.is_finite(result).all()
    return result, where(finite, maximum(bound, precision), math.inf)


def sqrtm(A: Any, blocksize: int = 1) -> Any:
    """Return the principal square roots of square matrices, as complex numbers.

    They have no derivative; `blocksize` is accepted and changes nothing.
    """
    return spectral.square_root(square("sqrtm", A))
