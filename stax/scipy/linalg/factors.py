"""Factorizations, and equations solved with them, under SciPy's signatures."""

from __future__ import annotations

from typing import Any

from stax import types
from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.numpy import linalg as numpy_linalg
from stax.numpy.arguments import inexact, promoted
from stax.numpy.linalg.factors import matrices, square
from stax.operators import linalg, qr as qrs, spectral
from stax.operators.broadcast import broadcast_to
from stax.operators.elementwise import convert
from stax.operators.matrices import (
    adjoint,
    block,
    conj,
    extents,
    identity_like,
    inverse_permutation,
    lower_part,
    matmul,
    permuted_rows,
    real,
    scale_rows,
    symmetrized,
    transposed,
    upper_part,
    with_diagonal,
    zeros_of,
)
from stax.operators.reshape import expand_dims, squeeze
from stax.operators.shape import pad
from stax.trace import bind, full, results


def _pair(name: str, a: Any, b: Any) -> tuple[Any, Any]:
    """Return a matrix and a right side in one floating type."""
    first, second = (inexact(name, x) for x in promoted(name, [a, b]))
    return square(name, first), second


def _with_columns(name: str, a: Any, b: Any, solve: Any) -> Any:
    """Apply `solve` to `a` and `b` as matrices of one batch; a vector `b` is one column."""
    if b.ndim == a.ndim - 1:
        return squeeze(_with_columns(name, a, expand_dims(b, b.ndim), solve), b.ndim)
    if b.ndim < 2 or b.shape[-2] != a.shape[-1]:
        raise ShapeError(
            f"{name}: {b.type} does not have as many rows as {a.type}.",
            advice="The right side is a matrix, or a vector, for each matrix.",
        )
    batch = types.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return solve(*(broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b)))


# --- Cholesky ---


def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """Return the upper (or lower) triangular factor of `a`, of which that triangle is read."""
    a = square("cholesky", a)
    factor = linalg.cholesky(a if lower else adjoint(a))
    return factor if lower else adjoint(factor)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, bool]:
    """Return what `cho_solve` takes: the factor, and whether it is the lower one."""
    return cholesky(a, lower=lower), lower


def cho_solve(
    c_and_lower: tuple[Any, bool], b: Any, overwrite_b: bool = False, check_finite: bool = True
) -> Any:
    """Return x with a x = `b`, given the Cholesky factor of a."""
    factor, lower = c_and_lower
    a, b = _pair("cho_solve", factor, b)

    def solve(a: Any, b: Any) -> Any:
        for turned in (not lower, lower):
            b = linalg.triangular_solve(
                a, b, left_side=True, lower=lower, transpose_a=turned, conjugate_a=turned
            )
        return b

    return _with_columns("cho_solve", a, b, solve)


# --- LU ---


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Any, ...]:
    """Return P, L and U with P L U = `a`, or P L and U where `permute_l`."""
    a = matrices("lu", a)
    both, _, order = linalg.lu(a)
    rows, columns = extents(both)[-2:]
    n = min(rows, columns)
    left = lower_part(block(both, rows, n), strict=True)
    left = left + identity_like(left)
    right = upper_part(block(both, n, columns))
    back = inverse_permutation(order)
    if permute_l:
        return permuted_rows(left, back), right
    square_like = zeros_of(real(a), rows, rows)
    return permuted_rows(identity_like(square_like), back), left, right


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """Return what `lu_solve` takes: both factors in one matrix, and the pivots."""
    return linalg.lu(matrices("lu_factor", a))[:2]


def lu_solve(
    lu_and_piv: tuple[Any, Any],
    b: Any,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Any:
    """Return x with a x = `b`, given the factors of a (`trans` 1: of its transpose, 2: adjoint)."""
    factors, pivots = lu_and_piv
    if trans not in (0, 1, 2):
        raise ArgumentValueError(
            f"lu_solve: trans is 0, 1 or 2, not {trans}.", advice="2 takes the adjoint."
        )
    a, b = _pair("lu_solve", factors, b)
    order = linalg.pivots_to_permutation(convert(pivots, types.int32), a.shape[-1])

    def solve(a: Any, b: Any) -> Any:
        wide = broadcast_to(order, (*a.shape[:-2], a.shape[-1]))
        return linalg.lu_solve(a, wide, b, trans)

    return _with_columns("lu_solve", a, b, solve)


# --- equations ---


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Any:
    """Return x with `a` x = `b`; `assume_a` "pos" says that `a` is positive definite.

    Other structures are accepted and solved as general matrices.
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ArgumentValueError(
            f"solve: assume_a={assume_a!r} is no kind of matrix.",
            advice="Kinds are 'gen', 'sym', 'her' and 'pos'.",
        )
    if assume_a == "pos":
        return cho_solve(cho_factor(a, lower=lower), b)
    a, b = _pair("solve", a, b)
    return _with_columns("solve", a, b, linalg.solve)


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Any:
    """Return x with `a` x = `b`, where one triangle of `a` is read.

    `trans` takes the transpose (1 or "T") or the adjoint (2 or "C") of `a`.
    """
    turns = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in turns:
        raise ArgumentValueError(
            f"solve_triangular: trans={trans!r} is no way to turn a matrix.",
            advice="It is 0 or 'N', 1 or 'T', 2 or 'C'.",
        )
    turn = turns[trans]
    a, b = _pair("solve_triangular", a, b)

    def solve(a: Any, b: Any) -> Any:
        return linalg.triangular_solve(
            a, b, left_side=True, lower=lower, transpose_a=turn > 0, conjugate_a=turn == 2,
            unit_diagonal=unit_diagonal,
        )  # fmt: skip

    return _with_columns("solve_triangular", a, b, solve)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the inverses of square matrices."""
    return numpy_linalg.inv(a)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the determinants of square matrices."""
    return numpy_linalg.det(a)


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Any:
    """Return X with `A` X + X `B` = `C`.

    It is solved as one system of all unknowns, which suits small matrices; `method` and `tol`
    choose between JAX's algorithms and change nothing here.
    """
    given = promoted("solve_sylvester", [A, B, C])
    a, b, c = (matrices("solve_sylvester", x) for x in given)
    rows, columns = c.shape[-2:]
    if a.shape[-2:] != (rows, rows) or b.shape[-2:] != (columns, columns):
        raise ShapeError(
            f"solve_sylvester: {a.type} and {b.type} do not fit {c.type}.",
            advice="A has as many rows and columns as C has rows, B as C has columns.",
        )
    batch = types.broadcast_shapes(a.shape[:-2], b.shape[:-2], c.shape[:-2])
    n = rows * columns
    left = _kronecker(broadcast_to(a, (*batch, rows, rows)), columns, 0)
    right = _kronecker(broadcast_to(transposed(b), (*batch, columns, columns)), rows, 1)
    wide = broadcast_to(c, (*batch, rows, columns)).reshape((*batch, n, 1))
    return linalg.solve(left + right, wide).reshape((*batch, rows, columns))


def _kronecker(x: Any, size: int, side: int) -> Any:
    """Return kron(x, I), or with `side` 1 kron(I, x), for an identity of a size."""
    *batch, n, _ = x.shape
    first = len(batch)
    ones = identity_like(zeros_of(x, size, size))
    own, other = (first, first + 2), (first + 1, first + 3)
    own, other = (other, own) if side else (own, other)
    found = expand_dims(x, other) * expand_dims(ones, own)
    return found.reshape((*batch, n * size, n * size))


# --- orthogonal factors ---


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> tuple[Any, ...]:
    """Return Q and R with Q R = `a`; with `pivoting` also the order in which its columns are.

    Q is square in mode "full"; in mode "economic" it is not; "r" leaves it out.
    """
    if mode not in ("full", "r", "economic"):
        raise ArgumentValueError(
            f"qr: {mode!r} is no mode.", advice="Modes are 'full', 'r' and 'economic'."
        )
    found = qrs.qr(matrices("qr", a), mode != "economic", pivoting)
    return found[1:] if mode == "r" else found


def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> tuple[Any, ...]:
    """Return `c` multiplied by the Q of `a`, and R; with `pivoting` also the order of columns.

    Q stands on the right of `c`, or on its left with `mode` "left"; `conjugate` conjugates it.  A
    vector `c` is a row, or a column.
    """
    if mode not in ("left", "right"):
        raise ArgumentValueError(
            f"qr_multiply: {mode!r} is no side.", advice="It is 'left' or 'right'."
        )
    first, second = promoted("qr_multiply", [a, c])
    a, c = matrices("qr_multiply", first), inexact("qr_multiply", second)
    is_vector = c.ndim == 1
    c = expand_dims(c, 1 if mode == "left" else 0) if is_vector else c
    q, *rest = qrs.qr(a, False, pivoting)
    q = conj(q) if conjugate else q
    found = matmul(q, c) if mode == "left" else matmul(c, q)
    return found.reshape((-1,)) if is_vector else found, *rest


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """Return U, the singular values and Vh as a tuple, or without `compute_uv` the values."""
    found = numpy_linalg.svd(a, full_matrices, compute_uv)
    return tuple(found) if compute_uv else found


def polar(
    a: Any,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Any, Any]:
    """Return unitary U and positive semidefinite P with U P = `a`, or P U with `side` "left".

    They come from the singular values, whatever the `method`.
    """
    if side not in ("left", "right"):
        raise ArgumentValueError(f"polar: {side!r} is no side.", advice="It is 'left' or 'right'.")
    s, u, vh = spectral.svd(matrices("polar", a), False)
    p = (
        matmul(adjoint(vh), scale_rows(vh, s))
        if side == "right"
        else matmul(u, scale_rows(adjoint(u), s))
    )
    return matmul(u, vh), p


# --- eigenvalues ---


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: Any = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Return the eigenvalues of symmetric (Hermitian) matrices, ascending, and eigenvectors.

    `b`, `eigvals` and `type` of generalized problems are not supported.
    """
    if b is not None or eigvals is not None or type != 1:
        raise UnsupportedError(
            "eigh: b, eigvals and type are not supported.",
            advice="Factor b with cholesky, and slice the result.",
        )
    values, vectors = spectral.eigh(symmetrized(square("eigh", a)), lower)
    return values if eigvals_only else (values, vectors)


def schur(a: Any, output: str = "real") -> tuple[Any, Any]:
    """Return (quasi-)triangular T and unitary Z with Z T Z* = `a`; triangular if "complex"."""
    if output not in ("real", "complex"):
        raise ArgumentValueError(
            f"schur: output is 'real' or 'complex', not {output!r}.",
            advice="Real matrices have 2 by 2 blocks on the diagonal of their real form.",
        )
    a = square("schur", a)
    if output == "complex" and not types.is_complex(a.dtype):
        a = convert(a, types.complex64 if a.dtype == types.float32 else types.complex128)
    return results(bind(qrs.Schur(True), a))


def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[Any, Any]:
    """Return the complex Schur form and vectors for real ones, which have 2 by 2 blocks."""
    return spectral.complex_schur(*(square("rsf2csf", x) for x in promoted("rsf2csf", [T, Z])))


def eigh_tridiagonal(
    d: Any,
    e: Any,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[int, int] | None = None,
    tol: float | None = None,
    key: Any = None,
) -> Any:
    """Return the eigenvalues, ascending, and eigenvectors of a symmetric tridiagonal matrix.

    `d` is its diagonal, `e` what is below it.  With `select` "i" those from one index of
    `select_range` to the other are returned.  `tol` and `key` belong to JAX's iteration and change
    nothing here: the matrix is treated as a full one.
    """
    d, e = (inexact("eigh_tridiagonal", x) for x in promoted("eigh_tridiagonal", [d, e]))
    if d.ndim != 1 or e.shape != (d.shape[0] - 1,):
        raise ShapeError(
            f"eigh_tridiagonal: {d.type} and {e.type} do not fit.",
            advice="The second vector is one shorter than the first.",
        )
    if select not in ("a", "i") or (select == "i" and select_range is None):
        raise UnsupportedError(
            f"eigh_tridiagonal: select={select!r} with {select_range=} is not supported.",
            advice="Use 'a' for all, or 'i' and a range of indices.",
        )
    zero = full((), 0, d.dtype)
    off = pad(with_diagonal(e), zero, [(1, 0, 0), (0, 1, 0)])
    values, vectors = spectral.eigh(with_diagonal(d) + off)
    if select == "i":
        first, last = select_range or (0, 0)
        values, vectors = values[first : last + 1], vectors[:, first : last + 1]
    return values if eigvals_only else (values, vectors)


def hessenberg(
    a: Any, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Any:
    """Return the Hessenberg form H of square matrices, and with `calc_q` Q with Q H Q* = `a`."""
    a = square("hessenberg", a)
    n = a.shape[-1]
    if n == 0:
        return (a, a) if calc_q else a
    form, scales = results(bind(qrs.Hessenberg(), a))
    below = lower_part(form, strict=True)
    kept = upper_part(form) + (below - _beyond_first(below))
    if not calc_q:
        return kept
    # The reflectors leave the first row and column alone.
    inner = block(_cut(form), n - 1, n - 1)
    q = bind(qrs.HouseholderProduct(), inner, scales) if n > 1 else inner
    zero, rank = full((), 0, a.dtype), a.ndim
    framed = pad(q, zero, [(0, 0, 0)] * (rank - 2) + [(1, 0, 0)] * 2)
    first = with_diagonal(pad(full((1,), 1, a.dtype), zero, [(0, n - 1, 0)]))
    return kept, framed + broadcast_to(first, framed.shape)


def _cut(x: Any) -> Any:
    """Return matrices without their first row."""
    zeros = [(0, 0, 0)] * (x.ndim - 2)
    return pad(x, full((), 0, x.dtype), [*zeros, (-1, 0, 0), (0, 0, 0)])


def _beyond_first(x: Any) -> Any:
    """Return strictly lower triangular matrices without their first subdiagonal."""
    zeros = [(0, 0, 0)] * (x.ndim - 2)
    moved = lower_part(_cut(x), strict=True)
    return pad(moved, full((), 0, x.dtype), [*zeros, (1, 0, 0), (0, 0, 0)])
