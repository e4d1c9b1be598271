"""`scipy.linalg` against JAX: values, dtypes, weak types and shapes; eager and compiled."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.scipy.linalg as jax_linalg
import numpy as np
import pytest
import scipy.linalg

import stax
from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.scipy import linalg

RNG = np.random.default_rng(4)
Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...]]


def draw(dtype: str, *shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if dtype == "complex64" else x).astype(dtype)


def factorizations(dtype: str) -> Iterator[Case]:
    a, b, v = draw(dtype, 2, 4, 4), draw(dtype, 2, 4, 3), draw(dtype, 4)
    positive = a @ np.conj(a.transpose(0, 2, 1)) + np.eye(4, dtype=dtype)
    factor = np.linalg.cholesky(positive)
    for low in (False, True):
        yield f"cholesky-{low}", lambda m, x, k=low: m.cholesky(x, lower=k), (positive,)
        yield f"cho_solve-{low}", lambda m, x, y, k=low: m.cho_solve((x, k), y), (factor, b)
        for t in (0, 1, "C"):
            solve = lambda m, x, y, t=t, k=low: m.solve_triangular(x, y, t, k)  # noqa: E731
            yield f"solve_triangular-{t}-{low}", solve, (a, b)
    unit = lambda m, x, y: m.solve_triangular(x, y, unit_diagonal=True)  # noqa: E731
    yield "solve_triangular-vector", unit, (a[0], v)
    yield "lu", lambda m, x: m.lu(x), (b[0],)
    yield "lu-permuted", lambda m, x: m.lu(x, permute_l=True), (np.ascontiguousarray(b[0].T),)
    for t in (0, 1, 2):
        solve = lambda m, x, y, t=t: m.lu_solve(m.lu_factor(x), y, t)  # noqa: E731
        yield f"lu_solve-{t}", solve, (a, b)
    yield "solve", lambda m, x, y: m.solve(x, y), (a, b)
    yield "solve-positive", lambda m, x, y: m.solve(x, y, assume_a="pos"), (positive[0], b[0])
    yield "inv", lambda m, x: m.inv(x), (a,)
    yield "det", lambda m, x: m.det(x), (a,)
    for mode in ("full", "r", "economic"):
        yield f"qr-{mode}", lambda m, x, k=mode: m.qr(x, mode=k), (b,)
    yield "qr-pivoted", lambda m, x: m.qr(x, mode="economic", pivoting=True), (b[0],)
    yield "qr_multiply", lambda m, x, y: m.qr_multiply(x, y), (b[0], draw(dtype, 5, 4))
    left = lambda m, x, y: m.qr_multiply(x, y, "left", True, True)  # noqa: E731
    yield "qr_multiply-left", left, (b[0], draw(dtype, 3))
    yield "svd", lambda m, x: m.svd(x), (b,)
    yield "eigh", lambda m, x: m.eigh(x), (positive,)
    yield "eigh-values", lambda m, x: m.eigh(x, eigvals_only=True), (positive,)
    yield "polar", lambda m, x: m.polar(x), (b[0],)
    yield "polar-left", lambda m, x: m.polar(x, "left", method="svd"), (a[0],)
    yield "schur", lambda m, x: m.schur(x), (a[0],)
    yield "schur-complex", lambda m, x: m.schur(x, "complex"), (a[0],)
    yield "hessenberg", lambda m, x: m.hessenberg(x, calc_q=True), (a,)
    yield "expm", lambda m, x: m.expm(x), (a,)
    yield "expm-large", lambda m, x: m.expm(x * 4), (a[0],)
    yield "expm_frechet", lambda m, x, y: m.expm_frechet(x, y), (a[0], a[1])
    yield "sqrtm", lambda m, x: m.sqrtm(x), (positive[0],)
    yield "funm", lambda m, x: m.funm(x, lambda v: v**2 + 1), (a[0],)
    bounded = lambda m, x: m.funm(x, lambda v: 1 / (3 + v), disp=False)  # noqa: E731
    yield "funm-bound", bounded, (positive[0],)
    if dtype == "float32":
        yield "rsf2csf", lambda m, x: m.rsf2csf(*m.schur(x)), (a[0],)
    regular = a[0] + 5 * np.eye(4, dtype=dtype)
    sylvester = regular, positive[0], draw(dtype, 4, 4)
    yield "solve_sylvester", lambda m, x, y, z: m.solve_sylvester(x, y, z), sylvester


def patterns() -> Iterator[Case]:
    v, w, b = (draw("float32", *s) for s in ((4,), (6,), (2, 4, 3)))
    yield "block_diag", lambda m, *x: m.block_diag(*x), (b[0], v, b[1])
    yield "block_diag-none", lambda m: m.block_diag(), ()
    for name, given in (("toeplitz", (v,)), ("hankel", (v,)), ("circulant", (b,))):
        yield name, lambda m, *x, n=name: getattr(m, n)(*x), given
    for name in ("toeplitz", "hankel"):
        yield f"{name}-row", lambda m, *x, n=name: getattr(m, n)(*x), (b, w)
    complex_ = (v + 1j * v[::-1]).astype("complex64")
    yield "toeplitz-complex", lambda m, x: m.toeplitz(x), (complex_,)
    yield "companion", lambda m, x: m.companion(x), (b,)
    yield "leslie", lambda m, x, y: m.leslie(x, y), (b, b[..., :-1])
    for n in (1, 2, 5, 6):
        row = draw("float32", 2, n)
        yield f"fiedler_companion-{n}", lambda m, x: m.fiedler_companion(x), (row,)
    yield "fiedler", lambda m, x: m.fiedler(x), (b,)
    for mode in ("full", "same", "valid"):
        for n in (3, 8):
            matrix = lambda m, x, n=n, k=mode: m.convolution_matrix(x, n, k)  # noqa: E731
            yield f"convolution_matrix-{mode}-{n}", matrix, (w,)
    for name in ("hilbert", "invhilbert", "pascal", "invpascal", "dft", "helmert"):
        for n in (1, 5):
            yield f"{name}-{n}", lambda m, n=n, name=name: getattr(m, name)(n), ()
    yield "pascal-lower", lambda m: m.pascal(4, "lower"), ()
    yield "invpascal-upper", lambda m: m.invpascal(4, "upper"), ()
    yield "helmert-full", lambda m: m.helmert(4, True), ()
    yield "dft-unitary", lambda m: m.dft(4, "sqrtn"), ()
    yield "hadamard", lambda m: m.hadamard(8), ()


def assert_same(found: Any, expected: Any) -> None:
    """Compare pytrees; numbers relative to the largest of an array."""
    ours, theirs = stax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert (x.dtype, x.shape, x.weak_type) == (y.dtype, y.shape, y.weak_type)
        a, b = np.asarray(x), np.asarray(y)
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a / scale, b / scale, rtol=5e-3, atol=1e-4)


# JAX takes long to compile these, and complex factorizations are the same code as real ones.
LONG_TO_COMPILE = {
    "expm", "expm-large", "expm_frechet", "funm", "funm-bound", "inv", "lu_solve-1", "lu_solve-2",
    "polar", "rsf2csf", "schur-complex", "solve", "solve_sylvester", "sqrtm",
}  # fmt: skip
REAL = list(factorizations("float32"))
COMPLEX = [(f"{c[0]}-complex", *c[1:]) for c in factorizations("complex64")]


def param(case: Case) -> Any:
    is_slow = case[0] in LONG_TO_COMPILE or case in COMPLEX
    return pytest.param(case, id=case[0], marks=[pytest.mark.slow] if is_slow else [])


@pytest.mark.parametrize("case", [param(c) for c in (*REAL, *COMPLEX, *patterns())])
def test_values(case: Case) -> None:
    _, function, arrays = case
    expected = jax.jit(lambda *xs: function(jax_linalg, *xs))(*arrays)
    assert_same(function(linalg, *arrays), expected)
    assert_same(stax.jit(lambda *xs: function(linalg, *xs))(*arrays), expected)


def test_exponential_in_both_precisions() -> None:
    a = RNG.normal(size=(3, 3))
    for factor in (0.0, 0.01, 1.0, 30.0):
        expected = scipy.linalg.expm(a * factor)
        scale = np.abs(expected).max()
        found = np.asarray(linalg.expm((a * factor).astype("float32")))
        np.testing.assert_allclose(found / scale, expected / scale, atol=2e-5)
        with stax.enable_x64(True):
            found = np.asarray(stax.jit(linalg.expm)(a * factor))
        np.testing.assert_allclose(found / scale, expected / scale, atol=1e-12)
    assert np.isnan(np.asarray(linalg.expm(a.astype("float32") * 1e6))).all()


def test_derivatives_of_the_exponential() -> None:
    a, e = RNG.normal(size=(2, 3, 3))
    with stax.enable_x64(True):
        found = np.asarray(linalg.expm_frechet(a, e, compute_expm=False))
        slope = np.asarray(stax.grad(lambda x: linalg.expm(x).sum())(a))
    np.testing.assert_allclose(found, scipy.linalg.expm_frechet(a, e)[1], rtol=1e-9)
    ones = np.ones((3, 3))
    np.testing.assert_allclose(slope, scipy.linalg.expm_frechet(a.T, ones)[1], rtol=1e-9)


def test_tridiagonal_eigenvalues() -> None:
    d, e = draw("float32", 6), draw("float32", 5)
    values, vectors = scipy.linalg.eigh_tridiagonal(d, e)
    found = linalg.eigh_tridiagonal(d, e)
    np.testing.assert_allclose(np.asarray(found[0]), values, atol=1e-5)
    np.testing.assert_allclose(np.abs(np.asarray(found[1])), np.abs(vectors), atol=1e-4)
    some = linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3))
    np.testing.assert_allclose(np.asarray(some), values[1:4], atol=1e-5)
    with pytest.raises(UnsupportedError, match="select"):
        linalg.eigh_tridiagonal(d, e, select="v", select_range=(0, 1))


def test_gradient_of_a_gaussian_likelihood() -> None:
    x, y = draw("float32", 6, 2), draw("float32", 6)

    def loss(jx: Any) -> Callable[..., Any]:
        def value(scale: Any) -> Any:
            d = ((x[:, None] - x[None]) ** 2).sum(-1)
            k = jx.numpy.exp(-d * scale) + 0.1 * np.eye(6, dtype="float32")
            factor = jx.numpy.linalg.cholesky(k)
            z = jx.scipy.linalg.solve_triangular(factor, y, lower=True)
            return (z**2).sum() / 2 + jx.numpy.log(jx.numpy.diag(factor)).sum()

        return value

    expected = jax.jit(jax.grad(loss(jax)))(np.float32(0.5))
    for grad in (stax.grad(loss(stax)), stax.jit(stax.grad(loss(stax)))):
        np.testing.assert_allclose(float(grad(np.float32(0.5))), float(expected), rtol=1e-4)


def test_errors() -> None:
    x = np.eye(3, dtype="float32")
    with pytest.raises(ShapeError, match="as many rows"):
        linalg.solve(x, np.ones(4))
    with pytest.raises(ArgumentValueError, match="way to turn"):
        linalg.solve_triangular(x, x, trans="X")
    with pytest.raises(UnsupportedError, match="not supported"):
        linalg.eigh(x, x)
    with pytest.raises(ArgumentValueError, match="no mode"):
        linalg.qr(x, mode="reduced")
    with pytest.raises(ArgumentValueError, match="no power of 2"):
        linalg.hadamard(6)
    with pytest.raises(ArgumentValueError, match="no size"):
        linalg.helmert(0)
