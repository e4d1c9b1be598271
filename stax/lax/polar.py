"""The polar decomposition, by an iteration of products and factorizations.

Formulas: Y. Nakatsukasa, Z. Bai and F. Gygi, "Optimizing Halley's iteration for computing the
matrix polar decomposition", 2010.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import stax.numpy as snp
from stax import types
from stax.errors import DTypeError, ShapeError
from stax.lax.control_flow import while_loop
from stax.numpy.arguments import array
from stax.operators import linalg, qr as qrs
from stax.operators.elementwise import convert
from stax.operators.matrices import adjoint, matmul
from stax.operators.shape import iota

__all__ = ["qdwh"]

# Above this weight the matrix may be too near to singular for the cheaper step.
_STEEP = 100
_HALLEY = (3.0, 1.0, 3.0)


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Any, Any, Any, Any]:
    """Return u and h with `x` = u h, the number of steps, and whether they were enough.

    `x` has at least as many rows as columns and full rank; u has orthonormal columns, and h is
    Hermitian and positive.  There are at most `max_iterations` steps (10), until one changes less
    than `eps` allows, that of the dtype by default.  With `dynamic_shape` only so many rows and
    columns count.  `is_hermitian` is accepted and changes nothing.  Raises ShapeError for what is
    no such matrix, DTypeError for integers.
    """
    x = array("qdwh", x)
    if x.ndim != 2 or x.shape[0] < x.shape[1]:
        raise ShapeError(
            f"qdwh: {x.type} is no matrix with as many rows as columns.",
            advice="Use vmap for a batch; decompose the adjoint of a wide matrix.",
        )
    if not types.is_inexact(x.dtype):
        raise DTypeError(f"qdwh takes floating numbers, not {x.type}.", advice="Use astype(float).")
    x = convert(x, x.dtype)
    if dynamic_shape is not None:
        counts = (iota(types.int32, x.shape, a) < n for a, n in enumerate(dynamic_shape))
        x = snp.where(snp.logical_and(*counts), x, 0)
    limit = 10 if max_iterations is None else max_iterations
    eps = float(snp.finfo(x.dtype).eps) if eps is None else eps
    bound = snp.sqrt(snp.linalg.norm(x, 1)) * snp.sqrt(snp.linalg.norm(x, math.inf))
    steps, u, moves = _iterated(x / snp.where(bound == 0, 1, bound).astype(x.dtype), eps, limit)
    u = 1.5 * u - 0.5 * matmul(u, matmul(adjoint(u), u))
    h = matmul(adjoint(u), x)
    return u, (h + adjoint(h)) / 2, steps, ~moves


def _iterated(u: Any, eps: float, limit: int) -> tuple[Any, Any, Any]:
    """Return the number of steps from `u` on, where they end, and whether the last still moved."""
    tolerance = (5 * eps) ** (1 / 3)
    done, moves = 0, snp.array(True)
    for a, b, c in _weights(eps, limit):
        steep = c > _STEEP
        after = (_by_qr if steep else _by_cholesky)(u, a, b, c)
        if not steep:
            moves = snp.linalg.norm(after - u) > tolerance
        u, done = after, done + 1

    def is_moving(state: Any) -> Any:
        return state[2] & (state[0] < limit)

    def step(state: Any) -> Any:
        k, u, _ = state
        after = _by_cholesky(u, *_HALLEY)
        return k + 1, after, snp.linalg.norm(after - u) > tolerance

    return while_loop(is_moving, step, (done, u, moves))


def _weights(eps: float, limit: int) -> Iterator[tuple[float, float, float]]:
    """Yield a, b and c of each step, which takes singular values s to s (a + b s^2) / (1 + c s^2).

    The least is at first taken to be `eps`; the steps end when it is near to 1.
    """
    least = eps
    for _ in range(limit):
        if least + 5 * eps >= 1:
            return
        square = least**2
        d = (4 * (1 - square) / square**2) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + math.sqrt(2 - d + 2 * (2 - square) / (square * root))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        yield a, b, c
        least *= (a + b * square) / (1 + c * square)


def _by_qr(u: Any, a: float, b: float, c: float) -> Any:
    """Take a step by a factorization of `u` over the identity, which is always well conditioned."""
    root = math.sqrt(c)
    rows, columns = u.shape
    q, _ = qrs.qr(snp.concatenate([root * u, snp.eye(columns, dtype=u.dtype)]), False)
    return (b / c) * u + (a - b / c) / root * matmul(q[:rows], adjoint(q[rows:]))


def _by_cholesky(u: Any, a: float, b: float, c: float) -> Any:
    """Take a step by solving equations with the identity and `c` times the square of `u`."""
    square = snp.eye(u.shape[1], dtype=u.dtype) + c * matmul(adjoint(u), u)
    factor = linalg.cholesky(square)
    solved = adjoint(u)
    for turned in (False, True):
        solved = linalg.triangular_solve(
            factor, solved, left_side=True, lower=True, transpose_a=turned, conjugate_a=turned
        )
    return (b / c) * u + (a - b / c) * adjoint(solved)
