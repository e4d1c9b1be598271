"""Iterative solvers, against JAX and against what they have to solve."""

from collections.abc import Callable
from typing import Any

import jax
import jax.scipy.sparse.linalg as theirs
import numpy as np
import pytest
import scipy.sparse.linalg

import stax
import stax.numpy as snp
import stax.scipy.sparse.linalg as ours
from stax import errors

Function = Callable[..., Any]
DRAW = np.random.RandomState(0)
N = 6
B = DRAW.randn(N).astype(np.float32)
BC = (B + 1j * B[::-1]).astype(np.complex64)
G = (DRAW.randn(N, N) / 4 + 2 * np.eye(N)).astype(np.float32)
C = (G + 1j * DRAW.randn(N, N) / 6).astype(np.complex64)
MATRICES = {
    "cg": ((G @ G.T).astype(np.float32), (C @ C.conj().T).astype(np.complex64)),
    "bicgstab": (G, C),
    "gmres": (G, C),
}
CASES: list[Any] = [(name, k) for name in MATRICES for k in (0, 1) if (name, k) != ("gmres", 1)]
CASES += [pytest.param("gmres", 1, marks=pytest.mark.slow)]
SIDES = (B, BC)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "number"), CASES)
def test_solutions_and_gradients(name: str, number: int) -> None:
    a, b = MATRICES[name][number], SIDES[number]
    x, info = getattr(ours, name)(a, b)
    assert x.dtype == b.dtype
    assert info is None or int(info) == 0
    assert np.linalg.norm(a @ x - b) <= 1.1e-5 * np.linalg.norm(b)

    def slope(J: Any, solve: Function) -> Any:
        return J.jit(J.grad(lambda a, b: abs(solve(a, b)[0]).sum(), (0, 1)))(a, b)

    pairs = slope(stax, getattr(ours, name)), slope(jax, getattr(theirs, name))
    for left, right in zip(*pairs, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_allclose(left, right, rtol=1e-3, atol=2e-4)


OPTIONS: dict[str, dict[str, Any]] = {
    "preconditioner": {"M": np.diag(1 / np.diag(G))},
    "start": {"x0": B * 0.1, "tol": 1e-2},
    "few steps": {"maxiter": 2},
    "none": {"maxiter": 0},
    "loose": {"atol": 0.5},
    "solved": {"x0": np.linalg.solve(G @ G.T, B).astype(np.float32), "atol": 0.1},
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("name", ["cg", "bicgstab"])
def test_steps_are_those_of_jax(name: str, option: str) -> None:
    a, given = MATRICES["cg"][0], OPTIONS[option]
    x, y = (getattr(module, name)(a, B, **given)[0] for module in (ours, theirs))
    np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def test_steps_are_those_of_scipy() -> None:
    a = MATRICES["cg"][0]
    for steps in (1, 2, 3):
        x, _ = scipy.sparse.linalg.cg(a, B, maxiter=steps, rtol=1e-5)
        np.testing.assert_allclose(ours.cg(a, B, maxiter=steps)[0], x, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["batched", "incremental"])
def test_gmres_that_starts_anew(method: str) -> None:
    for restart in (3, N):
        x, info = ours.gmres(G, B, restart=restart, solve_method=method)
        assert np.linalg.norm(G @ x - B) <= 1.1e-5 * np.linalg.norm(B)
        assert int(info) == 0
    one_round = ours.gmres(G, B, restart=3, maxiter=1, solve_method=method)[0]
    expected, _ = scipy.sparse.linalg.gmres(G, B, restart=3, maxiter=1)
    np.testing.assert_allclose(one_round, expected, rtol=1e-3, atol=1e-4)


def test_a_space_that_is_small() -> None:
    """Two steps find the solution, and there is no third direction."""
    a = np.diag([1.0, 1, 1, 3, 3, 3]).astype(np.float32)
    for method in ("batched", "incremental"):
        found = ours.gmres(a, B, solve_method=method)[0]
        np.testing.assert_allclose(found, B / np.diag(a), rtol=1e-5)
    np.testing.assert_array_equal(ours.gmres(a, 0 * B)[0], 0 * B)
    np.testing.assert_array_equal(ours.bicgstab(a, 0 * B)[0], 0 * B)


def test_trees_and_functions() -> None:
    a = MATRICES["cg"][0]

    def times(x: Any) -> Any:
        y = a @ snp.concatenate([x["u"], x["v"][0].ravel()])
        return {"u": y[:2], "v": [y[2:].reshape(2, 2)]}

    side = {"u": B[:2], "v": [B[2:].reshape(2, 2)]}
    expected = np.linalg.solve(a, B)
    for name in ("cg", "bicgstab"):
        found = getattr(ours, name)(times, side)[0]
        np.testing.assert_allclose(found["u"], expected[:2], rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(found["v"][0].ravel(), expected[2:], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["bicgstab", "gmres"])
def test_many_at_once(name: str) -> None:
    a, sides = MATRICES["cg"][0], np.stack([B, 2 * B, 0 * B])
    many = stax.jit(stax.vmap(lambda b: getattr(ours, name)(a, b)[0]))(sides)
    np.testing.assert_allclose(many, np.linalg.solve(a, sides.T).T, rtol=1e-3, atol=1e-4)


BAD: dict[str, Function] = {
    "A has shape .2, 3.": lambda: ours.cg(np.ones((2, 3)), B),
    "A is of type str": lambda: ours.gmres("A", B),
    "M has shape": lambda: ours.bicgstab(G, B, M=B),
    "x0 and b are different trees": lambda: ours.cg(G, B, x0=[B]),
    "x0 has shape .2,. where b has .6,.": lambda: ours.cg(G, B, x0=B[:2]),
    "no solve_method 'fast'": lambda: ours.gmres(G, B, solve_method="fast"),
    "matvec returns another tree": lambda: ours.cg(lambda x: [x], B),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text: str) -> None:
    with pytest.raises(errors.StaxError, match=text):
        BAD[text]()
