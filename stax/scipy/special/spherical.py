"""Spherical harmonics, by the recurrence of normalised associated Legendre functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stax.errors import UnsupportedError
from stax.numpy.arguments import array, inexact_operands, static_int
from stax.operators import elementwise as ops
from stax.operators.elementwise import convert, like, select
from stax.operators.reshape import reshape
from stax.operators.shape import broadcast_to


def sph_harm_y(
    n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None
) -> Any:
    """Return the spherical harmonic of degree `n` and order `m` at polar angle `theta` and azimuth
    `phi`, a complex number; arguments broadcast.

    `n_max`, which is part of the program, is at least the largest degree; left out, `n` must be
    known.  A degree above it counts as `n_max`.  Angles have derivatives.  Raises UnsupportedError
    for `diff_n`, as JAX does.
    """
    if diff_n is not None:
        raise UnsupportedError(
            "sph_harm_y: diff_n is not supported.", advice="Differentiate it with stax.jvp."
        )
    largest = static_int("sph_harm_y", "n_max", np.max(n) if n_max is None else n_max)
    theta, phi = inexact_operands("sph_harm_y", theta, phi)
    if not theta.ndim:
        theta, phi = reshape(theta, (1,)), reshape(phi, (1,))
    degree, order = (
        broadcast_to(convert(array("sph_harm_y", x), theta.dtype), theta.shape) for x in (n, m)
    )
    size = ops.abs_(order)
    legendre = _legendre(ops.minimum(degree, like(degree, largest)), size, theta, largest)
    angle = ops.mul(size, phi)
    negative = ops.lt(order, like(order, 0))
    odd = ops.ne(ops.floor(ops.mul(size, like(size, 0.5))), ops.mul(size, like(size, 0.5)))
    flipped = select(ops.and_(negative, odd), ops.neg(legendre), legendre)
    sine = ops.mul(flipped, ops.sin(angle))
    return ops.complex_(ops.mul(flipped, ops.cos(angle)), select(negative, ops.neg(sine), sine))


def _legendre(degree: Any, order: Any, theta: Any, largest: int) -> Any:
    """Return the associated Legendre functions of cos(theta), normalised on the sphere.

    From P_0^0 = 1 / sqrt(4 pi), along the diagonal to P_m^m, and from there up to degree n by the
    recurrence in the degree (NIST DLMF 14.10.3): 0 where m > n.
    """
    x, sine = ops.cos(theta), ops.abs_(ops.sin(theta))
    diagonal = like(x, 0.5 / math.sqrt(math.pi))
    for k in range(1, largest + 1):
        factor = ops.mul(sine, like(x, -math.sqrt(1 + 0.5 / k)))
        within = ops.le(like(order, k), order)
        diagonal = select(within, ops.mul(diagonal, factor), diagonal)
    before, value, square = like(x, 0), diagonal, ops.mul(order, order)
    for k in range(1, largest + 1):
        active = ops.and_(ops.lt(order, like(order, k)), ops.le(like(order, k), degree))
        gap = select(active, ops.sub(like(x, k * k), square), like(x, 1))
        last = select(active, ops.sub(like(x, (k - 1) ** 2), square), like(x, 0))
        scale = ops.sqrt(ops.div(like(x, 4 * k * k - 1), gap))
        weight = ops.sqrt(ops.div(last, like(x, max(4 * (k - 1) ** 2 - 1, 1))))
        above = ops.mul(scale, ops.sub(ops.mul(x, value), ops.mul(weight, before)))
        before, value = select(active, value, before), select(active, above, value)
    return select(ops.le(order, degree), value, like(x, 0))
