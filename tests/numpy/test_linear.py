"""Products, einsum and norms, against NumPy and jax.numpy."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ShapeError
from tests.like_jax import assert_like_jax
from tests.like_numpy import compared


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)


PRODUCTS: list[tuple[Any, ...]] = [
    ("dot", normal(3, 4), normal(4, 2)), ("dot", normal(4), normal(4)), ("dot", normal(3, 4), 2.0),
    ("dot", normal(2, 3, 4), normal(5, 4, 2)), ("matmul", normal(2, 3, 4), normal(4, 5)),
    ("matmul", normal(3, 1, 2, 4), normal(2, 4, 5)), ("matmul", normal(4), normal(3, 4, 2)),
    ("matmul", np.arange(6).reshape(2, 3), normal(3, 2)), ("matmul", normal(0, 3), normal(3, 2)),
    ("vdot", normal(2, 3), normal(2, 3)), ("inner", normal(2, 3), normal(4, 3)),
    ("outer", normal(2), normal(3)),
    ("inner", normal(2, 3), np.float32(2)), ("tensordot", normal(2, 3, 4), normal(3, 4, 5)),
    ("tensordot", normal(2, 3), normal(3, 2), 0),
    ("tensordot", normal(2, 3), normal(3, 2), ([0, 1], [1, 0])),
    ("kron", normal(2, 3), normal(3, 2)), ("kron", normal(2), normal(3, 2)),
    ("cross", normal(4, 3), normal(4, 3)),
    ("cross", normal(4, 3), normal(4, 3)[0]), ("vecdot", normal(4, 3), normal(4, 3)),
    ("matvec", normal(2, 3, 4), normal(4)), ("vecmat", normal(3), normal(2, 3, 4)),
    ("matmul", normal(3, 4), normal(3, 4)), ("matmul", normal(3, 4), np.float32(1)),
]  # fmt: skip


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda c: c[0])
def test_products(case: Any) -> None:
    name, *args = case

    def einsum(a: Any, b: Any) -> Any:
        return np.einsum("...ij,j->...i" if name == "matvec" else "i,...ij->...j", a, b)

    compared(name, *args, values=einsum if name in ("matvec", "vecmat") else None)


EINSUMS = [
    ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk", (2, 3), (3, 4)), ("ij->ji", (2, 3)), ("ij->", (2, 3)),
    ("ii->i", (3, 3)), ("ii", (3, 3)), ("bij,bjk,kl->bil", (2, 3, 4), (2, 4, 3), (3, 5)),
    ("i,j->ij", (2,), (3,)), ("...ij,...jk->...ik", (2, 1, 3, 4), (5, 4, 2)), ("...i->...", (2, 3)),
    ("ij,ij->i", (2, 3), (2, 3)), ("i...,i...->...", (2, 3), (2, 3)),
    ("abc,cd,de->abe", (2, 2, 3), (3, 4), (4, 2)),
    ("ij,j,k->ik", (2, 3), (3,), (4,)), ("iij->j", (3, 3, 2)), ("ij,kj->ik", (2, 1), (3, 4)),
    (" i j , j k -> k i ", (2, 3), (3, 4)), ("i,i,i->i", (3,), (3,), (3,)),
    ("ab,c->abc", (2, 0), (3,)),
]  # fmt: skip


@pytest.mark.parametrize("case", EINSUMS, ids=lambda c: c[0])
def test_einsum(case: Any) -> None:
    subscripts, *shapes = case
    operands = [normal(*s) for s in shapes]
    compared("einsum", subscripts, *operands)
    np.testing.assert_allclose(
        snp.einsum(subscripts, *operands, optimize=False),
        np.einsum(subscripts, *operands),
        rtol=1e-4,
        atol=1e-5,
    )


def test_einsum_of_lists_of_axes_and_its_errors() -> None:
    x, y = normal(2, 3), normal(3, 4)
    expected = np.einsum("ij,jk->ki", x, y)
    found = snp.einsum(x, [0, 1], y, [1, 2], [2, 0])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ShapeError, match="'j' names axes of lengths 3 and 2"):
        snp.einsum("ij,jk", x, x)
    for bad in ("ij", "i,jk", "ij,j1", "ij,jk->iq", "ij,jk->ii"):
        with pytest.raises(ValueError):
            snp.einsum(bad, x, y)


def test_einsum_contracts_the_cheapest_pair_first() -> None:
    shapes = [(2, 100), (100, 100), (100,)]
    operands = [snp.array(normal(*s)) for s in shapes]
    graph = stax.make_graph(lambda *a: snp.einsum("ij,jk,k->i", *a))(*operands)
    assert "100,100" not in str(graph).split("dot_general", 1)[1]


@pytest.mark.parametrize("ord", [None, 1, 2, 3, np.inf, -np.inf, 0])
def test_vector_norms(ord: Any) -> None:
    x = normal(3, 4)
    for options in ({"axis": 0}, {"axis": -1, "keepdims": True}):
        ours = snp.linalg.norm(x, ord, **options)
        np.testing.assert_allclose(ours, np.linalg.norm(x, ord, **options), rtol=1e-5)


@pytest.mark.parametrize("ord", [None, "fro", 1, -1, np.inf, -np.inf])
def test_matrix_norms(ord: Any) -> None:
    x = normal(2, 3, 4)
    ours = snp.linalg.norm(x, ord, axis=(1, 2))
    np.testing.assert_allclose(ours, np.linalg.norm(x, ord, axis=(1, 2)), rtol=1e-5)
    assert_like_jax(snp.linalg.norm(x), jnp.linalg.norm(x), 1e-5)


def test_gradient_of_the_squared_norm_at_zero() -> None:
    gradient = stax.grad(lambda x: snp.linalg.norm(x) ** 2)(snp.zeros(2))
    np.testing.assert_array_equal(gradient, [0.0, 0.0])
    ours = stax.grad(snp.linalg.norm)(snp.array([3.0, 4.0]))
    assert_like_jax(ours, jax.grad(jnp.linalg.norm)(jnp.array([3.0, 4.0])), 1e-6)


def test_matrix_power_and_the_rest_of_linalg() -> None:
    x = normal(3, 3)
    for n in (0, 1, 5):
        ours = snp.linalg.matrix_power(x, n)
        np.testing.assert_allclose(ours, np.linalg.matrix_power(x, n), rtol=1e-4, atol=1e-5)
    assert_like_jax(snp.linalg.trace(x), jnp.linalg.trace(x), 1e-6)
    assert_like_jax(snp.linalg.diagonal(x), jnp.linalg.diagonal(x))
    assert_like_jax(snp.linalg.vector_norm(x), jnp.linalg.vector_norm(x), 1e-6)
    assert_like_jax(snp.linalg.matrix_norm(x), jnp.linalg.matrix_norm(x), 1e-6)


def test_linalg_names_take_only_vectors_and_matrices() -> None:
    x, y = np.ones((2, 3), np.float32), np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(snp.linalg.outer(y, y), np.outer(y, y))
    np.testing.assert_array_equal(snp.linalg.cross(x, y), np.linalg.cross(x, y))
    with pytest.raises(TypeError, match="takes vectors"):
        snp.linalg.outer(x, y)
    with pytest.raises(TypeError, match="length 3"):
        snp.linalg.cross(x[:, :2], y[:2])
