"""Iterative solvers of linear equations, which need no more than products with the matrix.

The operator is a square matrix, or a function of a tree of arrays like `b`.  Gradients are those of
the solution: they solve an equation of the same kind (see `lax.custom_linear_solve`), and are right
if both solves converge.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from stax import tree
from stax.dtypes import finfo
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.flatten_util import ravel_pytree
from stax.lax.control_flow import fori_loop, while_loop
from stax.lax.solves import custom_linear_solve
from stax.numpy.complex import conj, real
from stax.numpy.creation import arange, asarray, eye, zeros, zeros_like
from stax.numpy.elementwise import (
    absolute,
    isnan,
    maximum,
    minimum,
    sqrt,
    square,
    where,
)
from stax.numpy.linear import vdot
from stax.scipy.linalg import solve_triangular
from stax.trace import as_array, type_of
from stax.types import is_complex

__all__ = ["bicgstab", "cg", "gmres"]

Operator = Callable[[Any], Any]


def cg(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solve A x = b for a Hermitian and positive definite A by conjugate gradients.

    Returns `(x, None)`.  Steps end when the norm of b - A x is at most max(tol * norm(b), atol), or
    after `maxiter`, ten times the number of elements by default.  `M` approximates the inverse of A
    (a preconditioner), `x0` is where to start.  The algorithm is that of Hestenes and Stiefel.

    Raises ArgumentError and ShapeError if A is no square matrix or function, or x0 is not like b.
    """
    is_real = not any(is_complex(type_of(x).dtype) for x in tree.tree_leaves(b))
    return _solved(_cg, A, b, x0, tol, atol, maxiter, M, symmetric=is_real), None


def bicgstab(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    maxiter: int | None = None,
    M: Any = None,
) -> tuple[Any, None]:
    """Solve A x = b for any A by stabilised bi-conjugate gradients (van der Vorst, 1992).

    Arguments, results and errors are those of `cg`.
    """
    return _solved(_bicgstab, A, b, x0, tol, atol, maxiter, M), None


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Any]:
    """Solve A x = b for any A by generalised minimal residuals (Saad and Schultz, 1986).

    Returns `(x, info)`; `info` is -1 if x holds NaN, else 0.  It minimises the residual over a
    space of `restart` dimensions and starts anew there, `maxiter` times at most.  With
    `solve_method="incremental"` a round ends as soon as the residual is small enough.  Other
    arguments and errors are those of `cg`.

    Raises ArgumentValueError for another `solve_method`.
    """
    if solve_method not in ("batched", "incremental"):
        raise ArgumentValueError(
            f"gmres: there is no solve_method {solve_method!r}.",
            advice="Use 'batched' or 'incremental'.",
        )
    size = sum(as_array(x).size for x in tree.tree_leaves(b))
    solve = functools.partial(
        _gmres, restart=min(restart, size), early=solve_method == "incremental"
    )
    x = _solved(solve, A, b, x0, tol, atol, maxiter, M)
    failed = isnan(_norm(ravel_pytree(x)[0]))
    return x, where(failed, -1, 0)


def _solved(
    solve: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    tol: Any,
    atol: Any,
    maxiter: int | None,
    M: Any,
    symmetric: bool = False,
) -> Any:
    """Apply a solver of vectors to an equation of trees."""
    name = getattr(solve, "func", solve).__name__.strip("_")
    b = tree.tree_map(as_array, b)
    start, precondition = _start(name, b, x0), _operator(name, "M", M)
    flat_start, unravel = ravel_pytree(start)
    most = 10 * flat_start.size if maxiter is None else maxiter

    def flat(f: Operator) -> Operator:
        return lambda v: ravel_pytree(f(unravel(v)))[0]

    def of_trees(matvec: Operator, b: Any) -> Any:
        right = ravel_pytree(b)[0]
        limit = maximum(tol * _norm(right), atol)
        x = solve(flat(matvec), right, flat_start, limit, most, flat(precondition))
        return unravel(x)

    matvec = _operator(name, "A", A)
    return custom_linear_solve(matvec, b, of_trees, of_trees, symmetric=symmetric)


def _start(name: str, b: Any, x0: Any) -> Any:
    if x0 is None:
        return tree.tree_map(zeros_like, b)
    if tree.tree_structure(x0) != tree.tree_structure(b):
        raise ArgumentError(
            f"{name}: x0 and b are different trees.",
            values=[(n, "", str(tree.tree_structure(x))) for n, x in (("x0", x0), ("b", b))],
            advice="Start from a tree like b, or leave out x0.",
        )
    for x, y in zip(tree.tree_leaves(x0), tree.tree_leaves(b), strict=True):
        if type_of(x).shape != type_of(y).shape:
            raise ShapeError(
                f"{name}: x0 has shape {type_of(x).shape} where b has {type_of(y).shape}.",
                advice="Start from a tree like b, or leave out x0.",
            )
    return tree.tree_map(lambda x, y: asarray(x, y.dtype), x0, b)


def _operator(name: str, label: str, f: Any) -> Operator:
    """Return a matrix or a function as a function; None is the identity."""
    if f is None:
        return lambda x: x
    if callable(f):
        return f
    try:
        shape = type_of(f).shape
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name}: {label} is of type {type(f).__name__}.",
            advice="Pass a square matrix, or a function that multiplies with one.",
        ) from None
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShapeError(
            f"{name}: {label} has shape {shape}.", advice="It has to be a square matrix."
        )
    return functools.partial(operator.matmul, as_array(f))


def _norm(v: Any) -> Any:
    return sqrt(real(vdot(v, v)))


def _cg(A: Operator, b: Any, start: Any, limit: Any, most: Any, M: Operator) -> Any:
    def going(carry: Any) -> Any:
        _, r, _, _, k = carry
        return (_norm(r) > limit) & (k < most)

    def step(carry: Any) -> Any:
        x, r, p, gamma, k = carry
        q = A(p)
        alpha = gamma / real(vdot(p, q))
        x, r = x + alpha * p, r - alpha * q
        z = M(r)
        after = real(vdot(r, z))
        return x, r, z + after / gamma * p, after, k + 1

    r = b - A(start)
    z = M(r)
    return while_loop(going, step, (start, r, z, real(vdot(r, z)), 0))[0]


def _bicgstab(A: Operator, b: Any, start: Any, limit: Any, most: Any, M: Operator) -> Any:
    def going(carry: Any) -> Any:
        _, r, *_, k = carry
        return (_norm(r) > limit) & (k < most)

    def step(carry: Any) -> Any:
        x, r, p, rho, k = carry
        moved = M(p)
        v = A(moved)
        alpha = rho / vdot(shadow, v)
        s = r - alpha * v
        t_from = M(s)
        t = A(t_from)
        size = real(vdot(t, t))
        # A step of half the length is enough if nothing is left.
        omega = where(size > 0, vdot(t, s) / where(size > 0, size, 1), 0)
        x, r = x + alpha * moved + omega * t_from, s - omega * t
        after = vdot(shadow, r)
        broken = (after == 0) | (omega == 0) | (alpha == 0)
        p = r + (after / rho) * (alpha / omega) * (p - omega * v)
        return x, r, p, after, where(broken, most, k + 1)

    shadow = b - A(start)
    most = asarray(most, "int32")
    carry = start, shadow, shadow, vdot(shadow, shadow), zeros((), "int32")
    return while_loop(going, step, carry)[0]


# --- gmres ---


def _gmres(
    A: Operator,
    b: Any,
    start: Any,
    limit: Any,
    most: Any,
    M: Operator,
    restart: int,
    early: bool,
) -> Any:
    # The residual that a round sees is multiplied by M.
    inner = _norm(M(b)) * minimum(1.0, limit / where(_norm(b) > 0, _norm(b), 1))

    def going(carry: Any) -> Any:
        _, left, k = carry
        return (left > limit) & (k < most)

    def step(carry: Any) -> Any:
        x, _, k = carry
        x = x + _krylov(lambda v: M(A(v)), M(b - A(x)), inner if early else 0, restart)
        return x, _norm(b - A(x)), k + 1

    return while_loop(going, step, (start, _norm(b - A(start)), 0))[0]


def _krylov(A: Operator, r: Any, limit: Any, restart: int) -> Any:
    """Return the x in the span of r, A r, A A r, ... for which A x is closest to r.

    `basis` holds an orthonormal basis of that space, `columns` those of the triangular factor of
    the matrix of A in it, which Givens rotations make as columns come, and `rest` the rotated r.
    """
    dtype, size = r.dtype, _norm(r)
    basis = zeros((restart + 1, r.shape[0]), dtype).at[0].set(_unit(r, size))
    rest = zeros(restart + 1, dtype).at[0].set(size.astype(dtype))
    carry = 0, basis, eye(restart, dtype=dtype), zeros((restart, 2), dtype), rest

    def going(carry: Any) -> Any:
        k, basis, _, _, rest = carry
        alive = _norm(basis[k]) > 0
        return (k < restart) & alive & (absolute(rest[k]) > limit)

    def step(carry: Any) -> Any:
        k, basis, columns, turns, rest = carry
        basis, column = _orthogonalised(A(basis[k]), basis, k)
        column = fori_loop(0, k, lambda i, h: _turned(h, i, turns[i]), column)
        turn = _rotation(column[k], column[k + 1])
        column, rest = _turned(column, k, turn), _turned(rest, k, turn)
        columns = columns.at[k].set(column[:restart])
        return k + 1, basis, columns, turns.at[k].set(turn), rest

    k, basis, columns, _, rest = while_loop(going, step, carry)
    used = where(arange(restart) < k, rest[:restart], 0)
    return solve_triangular(columns.T, used) @ basis[:restart]


def _unit(v: Any, size: Any) -> Any:
    return where(size > 0, v / where(size > 0, size, 1), 0)


def _orthogonalised(w: Any, basis: Any, k: Any) -> tuple[Any, Any]:
    """Return the basis with what is new in `w` as its vector k + 1, and `w` in terms of it.

    Twice is enough for Gram and Schmidt (Giraud and others, 2005).
    """
    before = _norm(w)
    column = zeros(basis.shape[0], basis.dtype)
    for _ in range(2):
        part = conj(basis) @ w
        w, column = w - part @ basis, column + part
    size = _norm(w)
    size = where(size > float(10 * finfo(size.dtype).eps) * before, size, 0)
    column = column.at[k + 1].set(size.astype(basis.dtype))
    return basis.at[k + 1].set(_unit(w, size)), column


def _rotation(a: Any, b: Any) -> Any:
    """Return the cosine and the sine of the rotation that takes (a, b) to (d, 0), b being real."""
    d = sqrt(real(a * conj(a)) + square(real(b)))
    some = d > 0
    d = where(some, d, 1)
    return asarray([where(some, a / d, 1), where(some, b / d, 0)], a.dtype)


def _turned(v: Any, i: Any, turn: Any) -> Any:
    """Return `v` with its elements i and i + 1 rotated."""
    cosine, sine = turn[0], turn[1]
    x, y = v[i], v[i + 1]
    return v.at[i].set(conj(cosine) * x + sine * y).at[i + 1].set(cosine * y - sine * x)
