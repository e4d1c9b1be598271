"""`lax.linalg` against JAX: values, dtypes and shapes, eager and compiled; empty matrices."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import stax
from stax.errors import ArgumentValueError, DTypeError, MissingRule, ShapeError, UnsupportedError

RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype("float32")


A, LONG, V = draw(2, 5, 5), draw(2, 5, 3), draw(2, 5)
POSITIVE = A @ A.transpose(0, 2, 1) + np.eye(5, dtype="float32")
FACTOR = np.ascontiguousarray(np.linalg.cholesky(POSITIVE).transpose(0, 2, 1))
EXCHANGES = np.array([[1, 2, 2], [4, 1, 3]], "int32")

Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]
CASES: list[Case] = [
    ("cholesky", lambda m, x: m.cholesky(x), (POSITIVE,)),
    ("cholesky half", lambda m, x: m.cholesky(x, symmetrize_input=False), (POSITIVE,)),
    ("cholesky_update", lambda m, r, w: m.cholesky_update(r, w), (FACTOR[0], V[0])),
    ("eig", lambda m, x: m.eig(x), (A,)),
    ("eig values", lambda m, x: m.eig(x, compute_left_eigenvectors=False), (A,)),
    ("eigh", lambda m, x: m.eigh(x), (POSITIVE,)),
    ("eigh half", lambda m, x: m.eigh(x, lower=False, symmetrize_input=False), (A,)),
    ("hessenberg", lambda m, x: m.hessenberg(x), (A,)),
    ("householder_product", lambda m, x, t: m.householder_product(x, t), (LONG, V[:, :3])),
    ("lu", lambda m, x: m.lu(x), (LONG,)),
    ("permutation", lambda m, p: m.lu_pivots_to_permutation(p, 5), (EXCHANGES,)),
    ("ormqr", lambda m, x, t, c: m.ormqr(x, t, c), (LONG, V[:, :3], A)),
    ("ormqr adjoint", lambda m, x, t, c: m.ormqr(x, t, c, transpose=True), (LONG, V[:, :3], A)),
    ("qr", lambda m, x: m.qr(x), (LONG,)),
    ("qr pivoted", lambda m, x: m.qr(x, pivoting=True, full_matrices=False), (LONG,)),
    ("schur", lambda m, x: m.schur(x), (A,)),
    ("schur values", lambda m, x: m.schur(x, compute_schur_vectors=False), (A,)),
    ("svd", lambda m, x: m.svd(x), (LONG,)),
    ("svd values", lambda m, x: m.svd(x, compute_uv=False), (LONG,)),
    (
        "symmetric_product",
        lambda m, x, c: m.symmetric_product(x, c, alpha=2.0, beta=0.5, symmetrize_output=True),
        (LONG, POSITIVE),
    ),
    ("solve left", lambda m, x, y: m.triangular_solve(x, y, left_side=True), (FACTOR, LONG)),
    ("solve vector", lambda m, x, y: m.triangular_solve(x, y), (FACTOR, V)),
    ("tridiagonal", lambda m, x: m.tridiagonal(x), (POSITIVE,)),
    ("tridiagonal upper", lambda m, x: m.tridiagonal(x, lower=False), (POSITIVE,)),
    ("tridiagonal_solve", lambda m, d, x: m.tridiagonal_solve(d, d + 5, d, x), (V, LONG)),
]


def assert_same(found: Any, expected: Any) -> None:
    ours, theirs = stax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-3, atol=1e-4)


SLOW = {"cholesky_update", "ormqr adjoint", "eigh half", "cholesky half"}  # JAX compiles for long


def param(case: Case) -> Any:
    return pytest.param(case, id=case[0], marks=[pytest.mark.slow] if case[0] in SLOW else [])


@pytest.mark.parametrize("case", list(map(param, CASES)))
def test_values(case: Case) -> None:
    _, function, arrays = case
    expected = jax.jit(lambda *xs: function(jax.lax.linalg, *xs))(*arrays)
    assert_same(function(stax.lax.linalg, *arrays), expected)
    assert_same(stax.jit(lambda *xs: function(stax.lax.linalg, *xs))(*arrays), expected)


@pytest.mark.parametrize("shape", [(2, 0, 0), (2, 0, 3), (2, 3, 0), (0, 3, 2)])
@pytest.mark.parametrize("name", ["lu", "qr", "svd"])
def test_empty_matrices(name: str, shape: tuple[int, ...]) -> None:
    x = np.ones(shape, "float32")
    for run in (getattr(stax.lax.linalg, name), stax.jit(getattr(stax.lax.linalg, name))):
        assert_same(run(x), getattr(jax.lax.linalg, name)(x))


def test_names_are_jax_s() -> None:
    missing = set(dir(jax.lax.linalg)) - set(dir(stax.lax.linalg))
    assert not {n for n in missing if not n.startswith("_") and not n.endswith("_p")}
    assert [a.name for a in stax.lax.linalg.SvdAlgorithm] == [
        a.name for a in jax.lax.linalg.SvdAlgorithm
    ]


def test_eigenvectors_have_derivatives_on_demand() -> None:
    def projection(m: Any, x: Any) -> Any:
        vectors = m.lax.linalg.eig(x, compute_left_eigenvectors=False, enable_eigvec_derivs=True)[1]
        return (m.numpy.abs(vectors) ** 2)[0, 1]

    expected = jax.jit(jax.grad(lambda x: projection(jax, x)))(A[0])
    found = stax.jit(stax.grad(lambda x: projection(stax, x)))(A[0])
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-3, atol=1e-4)


def test_errors() -> None:
    linalg = stax.lax.linalg
    with pytest.raises(ShapeError, match="as many columns"):
        linalg.triangular_solve(FACTOR, LONG)
    with pytest.raises(DTypeError, match="must have one dtype"):
        linalg.triangular_solve(FACTOR.astype(np.complex64), LONG, left_side=True)
    with pytest.raises(ShapeError, match="do not fit"):
        linalg.tridiagonal_solve(V[:, :2], V, V, LONG)
    with pytest.raises(ShapeError, match="leading axes"):
        linalg.triangular_solve(FACTOR, LONG[:1], left_side=True)
    with pytest.raises(UnsupportedError, match="subset"):
        linalg.svd(A, subset_by_index=(0, 1))
    with pytest.raises(ArgumentValueError, match="more than 2 rows"):
        linalg.lu_pivots_to_permutation(EXCHANGES, 2)
    with pytest.raises(MissingRule, match="step to"):
        stax.grad(lambda x: linalg.hessenberg(x)[0].sum())(A)
