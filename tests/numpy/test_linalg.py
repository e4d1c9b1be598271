"""Linear algebra against JAX: values, dtypes, weak types and shapes; eager, compiled, mapped.

Factors that are unique up to signs are compared as they are, since both libraries call LAPACK.
"""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import DTypeError, MissingRule, ShapeError

RNG = np.random.default_rng(5)
# A function of (module, *arrays), its arrays, and whether it is differentiated.
Case = tuple[str, Callable[..., Any], tuple[np.ndarray, ...], bool]


@pytest.fixture(autouse=True)
def _no_fallback() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", stax.errors.FallbackWarning)
        yield


def draw(dtype: str, *shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if dtype == "complex64" else x).astype(dtype)


def leaves(x: Any) -> list[np.ndarray]:
    return [np.asarray(y) for y in jax.tree.leaves(x)]


def assert_same(found: Any, expected: Any, tolerance: float = 2e-3) -> None:
    """Compare pytrees; numbers relative to the largest of an array."""
    ours, theirs = stax.tree.leaves(found), jax.tree.leaves(expected)
    assert len(ours) == len(theirs)
    for x, y in zip(ours, theirs, strict=True):
        assert (x.dtype, x.shape, x.weak_type) == (y.dtype, y.shape, y.weak_type)
        a, b = np.asarray(x), np.asarray(y)
        scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
        np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance / 20)


def cases(dtype: str) -> Iterator[Case]:
    a, b, v = draw(dtype, 2, 4, 4), draw(dtype, 2, 4, 3), draw(dtype, 4)
    positive = a @ np.conj(a.transpose(0, 2, 1)) + np.eye(4, dtype=dtype)
    yield "cholesky", lambda m, x: m.cholesky(x), (positive,), True
    yield "cholesky-upper", lambda m, x: m.cholesky(x, upper=True), (positive,), True
    yield "cholesky-half", lambda m, x: m.cholesky(x, symmetrize_input=False), (positive,), False
    yield "det", lambda m, x: m.det(x), (a,), True
    for n in (0, 1, 2, 3):
        yield f"det-{n}", lambda m, x: m.det(x), (draw(dtype, 2, n, n),), n > 0
    yield "slogdet", lambda m, x: m.slogdet(x), (a,), True
    yield "inv", lambda m, x: m.inv(x), (a,), True
    yield "solve", lambda m, x, y: m.solve(x, y), (a, b), True
    yield "solve-vector", lambda m, x, y: m.solve(x, y), (a, v), True
    yield "solve-one-matrix", lambda m, x, y: m.solve(x, y), (a[0], b), True
    yield "solve-one-side", lambda m, x, y: m.solve(x, y), (a[:, None], b), True
    yield "eigvals", lambda m, x: m.eigvals(x), (a,), True
    yield "eig", lambda m, x: m.eig(x), (a,), False
    yield "eigh", lambda m, x: m.eigh(x), (positive,), True
    yield "eigh-upper", lambda m, x: m.eigh(x, "U", symmetrize_input=False), (positive,), False
    yield "eigvalsh", lambda m, x: m.eigvalsh(x), (positive,), True
    for name, x in (("long", b), ("wide", np.ascontiguousarray(b.transpose(0, 2, 1)))):
        yield from rectangular(name, x)
    yield "svd-square", lambda m, x: m.svd(x), (a,), True
    yield "svd-hermitian", lambda m, x: m.svd(x, hermitian=True), (positive,), False
    short = lambda m, x: m.svd(x, hermitian=True, compute_uv=False)  # noqa: E731
    yield "svdvals-hermitian", short, (positive,), True
    yield "pinv-hermitian", lambda m, x: m.pinv(x, hermitian=True), (positive,), True
    for p in (1, -1, -2, np.inf, "fro"):
        yield f"cond-{p}", lambda m, x, p=p: m.cond(x, p), (a,), True
    yield from tensors(dtype)


def rectangular(name: str, x: np.ndarray) -> Iterator[Case]:
    """Cases of matrices that are not square."""
    for mode in ("reduced", "r", "complete", "raw"):
        yield f"qr-{mode}-{name}", lambda m, x, k=mode: m.qr(x, k), (x,), mode == "reduced"
    yield f"svd-{name}", lambda m, x: m.svd(x, full_matrices=False), (x,), True
    yield f"svd-full-{name}", lambda m, x: m.svd(x), (x,), False
    yield f"svdvals-{name}", lambda m, x: m.svdvals(x), (x,), True
    yield f"pinv-{name}", lambda m, x: m.pinv(x), (x,), True
    yield f"pinv-cut-{name}", lambda m, x: m.pinv(x, 0.5), (x,), False
    yield f"matrix_rank-{name}", lambda m, x: m.matrix_rank(x), (x,), False
    yield f"matrix_rank-cut-{name}", lambda m, x: m.matrix_rank(x, 1.5), (x,), False
    yield f"cond-{name}", lambda m, x: m.cond(x), (x,), True
    for ord in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        norm = lambda m, x, o=ord: m.norm(x, o, (0, 2))  # noqa: E731
        yield f"norm-{ord}-{name}", norm, (x,), ord in (None, "nuc", 2)
        kept = lambda m, x, o=ord: m.norm(x, o, (2, 1), True)  # noqa: E731
        yield f"norm-kept-{ord}-{name}", kept, (x,), False
    for ord in (None, 0, 1, 3, -2, np.inf):
        yield f"norm-vector-{ord}-{name}", lambda m, x, o=ord: m.norm(x, o, 1), (x,), False
    yield f"lstsq-{name}", lambda m, x: m.lstsq(x, x[:, 0]), (x[0],), True
    yield f"lstsq-cut-{name}", lambda m, x: m.lstsq(x, x[:, :2], 0.5), (x[0],), False


def tensors(dtype: str) -> Iterator[Case]:
    a = draw(dtype, 2, 4, 4)
    yield "tensorinv", lambda m, x: m.tensorinv(x, 1), (draw(dtype, 6, 2, 3),), True
    pair = draw(dtype, 2, 3, 6), draw(dtype, 2, 3)
    yield "tensorsolve", lambda m, x, y: m.tensorsolve(x, y), pair, True
    turned = draw(dtype, 6, 2, 3), draw(dtype, 2, 3)
    yield "tensorsolve-axes", lambda m, x, y: m.tensorsolve(x, y, (0,)), turned, False
    chain = draw(dtype, 4), draw(dtype, 4, 5), draw(dtype, 5, 2), draw(dtype, 2)
    yield "multi_dot", lambda m, *x: m.multi_dot(x), chain, True
    yield "multi_dot-matrices", lambda m, *x: m.multi_dot(x), chain[1:3], False
    for n in (-2, 0, 3):
        yield f"matrix_power-{n}", lambda m, x, n=n: m.matrix_power(x, n), (a,), n != 0
    yield "matrix_rank-vector", lambda m, x: m.matrix_rank(x), (a[0, 0],), False


CASES = [(f"{c[0]}-{d}", *c[1:]) for d in ("float32", "complex64") for c in cases(d)]


# The others take minutes, which JAX spends on compiling.
QUICK_VALUES = {
    "cholesky", "det", "slogdet", "inv", "solve", "eig", "eigvals", "eigh", "tensorinv",
    "multi_dot", "qr-reduced-long", "svd-long", "svdvals-long", "svd-full-wide",
    "pinv-long", "matrix_rank-long", "cond-long", "norm-nuc-long", "norm-2-wide", "lstsq-long",
}  # fmt: skip
QUICK_GRADIENTS = {"cholesky", "solve", "eigh", "svdvals-long", "qr-reduced-long"}
QUICK_COMPLEX = {"cholesky", "eigh", "svdvals-long"}


def each(chosen: list[Case], quick: set[str]) -> Any:
    def param(case: Case) -> Any:
        name, _, dtype = case[0].rpartition("-")
        is_quick = name in quick and (dtype == "float32" or name in QUICK_COMPLEX)
        return pytest.param(case, id=case[0], marks=[] if is_quick else [pytest.mark.slow])

    return pytest.mark.parametrize("case", list(map(param, chosen)))


@each(CASES, QUICK_VALUES)
def test_values(case: Case) -> None:
    _, function, arrays, _ = case
    expected = jax.jit(lambda *xs: function(jnp.linalg, *xs))(*arrays)
    assert_same(function(snp.linalg, *arrays), expected)
    assert_same(stax.jit(lambda *xs: function(snp.linalg, *xs))(*arrays), expected)


def weighted(module: Any, outputs: Any) -> Any:
    """A real number that depends on all of the outputs, but on no phase of a vector."""
    total = 0.0
    for y in jax.tree.leaves(outputs) if module is jnp else stax.tree.leaves(outputs):
        if y.dtype.kind in "fc":
            weights = np.arange(1.0, y.size + 1).reshape(y.shape).astype("float32")
            total = total + module.sum(module.abs(y) ** 2 * weights)
    return total


@each([c for c in CASES if c[3]], QUICK_GRADIENTS)
def test_gradients(case: Case) -> None:
    _, function, arrays, _ = case
    ours, theirs = (lambda *xs, m=m: weighted(m, function(m.linalg, *xs)) for m in (snp, jnp))
    every = tuple(range(len(arrays)))
    expected = jax.jit(jax.grad(theirs, argnums=every))(*arrays)
    found = stax.grad(ours, argnums=every)(*arrays)
    for x, y in zip(found, expected, strict=True):
        scale = max(1.0, float(np.abs(y).max(initial=0)))
        np.testing.assert_allclose(np.asarray(x) / scale, np.asarray(y) / scale, atol=3e-3)


MAPPED = ("cholesky", "solve", "inv", "det", "slogdet", "eigh", "svd", "qr", "pinv", "norm")


@pytest.mark.parametrize("name", MAPPED)
def test_a_batch_is_a_loop(name: str) -> None:
    x = draw("float32", 3, 2, 4, 4)
    x = x @ x.swapaxes(-1, -2) + np.eye(4, dtype="float32")
    y = draw("float32", 2, 4, 3)
    given = ((x, 0), (y, None)) if name == "solve" else ((x, 0),)
    arrays, axes = zip(*given, strict=True)
    function = getattr(snp.linalg, name)
    function = (lambda v: snp.linalg.norm(v, 2, (1, 2))) if name == "norm" else function
    mapped = stax.tree.leaves(stax.jit(stax.vmap(function, in_axes=axes))(*arrays))
    for i in range(3):
        one = stax.tree.leaves(function(x[i], *arrays[1:]))
        for a, b in zip(mapped, one, strict=True):
            np.testing.assert_allclose(np.asarray(a)[i], np.asarray(b), rtol=1e-3, atol=1e-4)


def test_gradient_of_a_mapped_solve() -> None:
    a, b = draw("float32", 4, 4), draw("float32", 5, 4)

    def loss(m: Any, mapped: Any) -> Callable[..., Any]:
        return lambda x, y: m.sum(mapped(m.linalg.solve, in_axes=(None, 0))(x, y) ** 2)

    expected = jax.jit(jax.grad(loss(jnp, jax.vmap), argnums=(0, 1)))(a, b)
    found = stax.jit(stax.grad(loss(snp, stax.vmap), argnums=(0, 1)))(a, b)
    for x, y in zip(found, expected, strict=True):
        scale = float(np.abs(y).max())
        np.testing.assert_allclose(np.asarray(x) / scale, np.asarray(y) / scale, atol=1e-3)


@pytest.mark.parametrize("rank", [4, 3, 2])
def test_derivative_of_a_singular_determinant(rank: int) -> None:
    x = RNG.normal(size=(4, rank)) @ RNG.normal(size=(rank, 4))
    with stax.enable_x64(True):
        slope = np.asarray(stax.grad(snp.linalg.det)(x))
    rows = range(4)
    minors = [[np.delete(np.delete(x, i, 0), j, 1) for j in rows] for i in rows]
    cofactors = [[(-1) ** (i + j) * np.linalg.det(minors[i][j]) for j in rows] for i in rows]
    np.testing.assert_allclose(slope, cofactors, atol=1e-9)


def test_second_derivative_of_a_determinant() -> None:
    x = RNG.normal(size=(4, 4))
    step = 1e-6 * np.eye(16).reshape(16, 4, 4)
    with stax.enable_x64(True):
        slope = stax.jit(stax.grad(snp.linalg.det))
        found = np.asarray(stax.jit(stax.hessian(snp.linalg.det))(x)).reshape(4, 4, 16)
        moved = [np.asarray(slope(x + d)) - np.asarray(slope(x - d)) for d in step]
    np.testing.assert_allclose(found, np.stack(moved, -1) / 2e-6, rtol=1e-5, atol=1e-6)


def test_failure_is_nan() -> None:
    good, bad = np.eye(2, dtype="float32"), -np.eye(2, dtype="float32")
    both = np.stack([good, bad])
    expected = jnp.linalg.cholesky(both)
    for run in (snp.linalg.cholesky, stax.jit(snp.linalg.cholesky)):
        np.testing.assert_array_equal(np.asarray(run(both)), expected)
    nan = np.full((3, 3), np.nan, "float32")
    for name in ("eigh", "svd", "qr", "inv", "eigvals"):
        function = getattr(snp.linalg, name)
        for run in (function, stax.jit(function)):
            assert all(np.isnan(np.asarray(x)).any() for x in _flat(run(nan)))


def _flat(x: Any) -> list[Any]:
    return list(stax.tree.leaves(x))


def test_singular_matrices() -> None:
    x = np.ones((3, 3), "float32")
    sign, size = snp.linalg.slogdet(x)
    assert (float(sign), float(size)) == (0.0, -np.inf)
    assert not np.isfinite(np.asarray(snp.linalg.inv(x))).all()
    assert int(snp.linalg.matrix_rank(x)) == 1
    assert float(snp.linalg.det(np.zeros((4, 4), "float32"))) == 0


def test_no_matrices() -> None:
    x = np.ones((0, 2, 2), "float32")
    for name in ("inv", "pinv", "det", "cholesky", "qr"):
        function = getattr(snp.linalg, name)
        expected = leaves(getattr(np.linalg, name)(x))
        for run in (function, stax.jit(function)):
            assert [y.shape for y in _flat(run(x))] == [y.shape for y in expected]
    assert snp.linalg.solve(x, np.ones(2, "float32")).shape == (0, 2)
    assert stax.grad(lambda v: snp.linalg.inv(v).sum())(x).shape == x.shape


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("name", ["cholesky", "eigh", "svd", "qr", "inv", "slogdet", "eigvals"])
def test_small_matrices(name: str, n: int) -> None:
    x = np.full((2, n, n), 2, "float32")
    function = getattr(snp.linalg, name)
    expected = getattr(np.linalg, name)(x)
    for run in (function, stax.jit(function)):
        for a, b in zip(_flat(run(x)), leaves(expected), strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(np.abs(np.asarray(a)), np.abs(b), rtol=1e-6)


def test_double_precision() -> None:
    x = RNG.normal(size=(5, 5))
    with stax.enable_x64(True):
        run = stax.jit(lambda a: snp.linalg.inv(a) @ a)
        for found in (run(x), run(x + 1j * x.T)):
            np.testing.assert_allclose(np.asarray(found), np.eye(5), atol=1e-10)


def test_integers_become_floats() -> None:
    x = np.array([[2, 1], [1, 3]])
    for name in ("inv", "det", "cholesky", "eigvalsh", "norm"):
        expected = getattr(jnp.linalg, name)(x)
        assert_same(getattr(snp.linalg, name)(x), expected)


def test_tuples_have_names() -> None:
    x = np.eye(2, dtype="float32")
    assert snp.linalg.svd(x)._fields == jnp.linalg.svd(x)._fields
    assert snp.linalg.eigh(x)._fields == jnp.linalg.eigh(x)._fields
    assert snp.linalg.eig(x)._fields == jnp.linalg.eig(x)._fields
    assert snp.linalg.qr(x)._fields == jnp.linalg.qr(x)._fields
    assert snp.linalg.slogdet(x)._fields == jnp.linalg.slogdet(x)._fields


def test_errors() -> None:
    x = np.ones((2, 3), "float32")
    for name in ("cholesky", "inv", "det", "eigh", "eig", "slogdet"):
        with pytest.raises(ShapeError, match="square"):
            getattr(snp.linalg, name)(x)
    with pytest.raises(ShapeError, match="as many rows"):
        snp.linalg.solve(np.eye(2), np.ones(3))
    with pytest.raises(ShapeError, match="last two axes"):
        snp.linalg.svd(np.ones(3))
    with pytest.raises(DTypeError, match="f16"):
        snp.linalg.inv(np.eye(2, dtype="float16"))
    with pytest.raises(ValueError, match="no mode"):
        snp.linalg.qr(x, "best")
    with pytest.raises(MissingRule, match="full matrices"):
        stax.grad(lambda a: snp.sum(snp.linalg.svd(a)[0]))(x)
    with pytest.raises(MissingRule, match="eigenvectors"):
        stax.grad(lambda a: snp.sum(snp.abs(snp.linalg.eig(a)[1])))(x[:, :2])
