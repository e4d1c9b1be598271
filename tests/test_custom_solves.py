"""custom_linear_solve and custom_root: values, both modes and second order, mapped and compiled,
against JAX; errors."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors, lax

Function = Callable[..., Any]
A = (np.eye(3) * 4 + np.sin(np.arange(9).reshape(3, 3))).astype(np.float32)
B = np.cos(np.arange(3)).astype(np.float32)
MATRICES, SIDES = np.stack([A, A.T]), np.stack([B, B + 1])
TRIALS = np.linspace(0.3, 1, 3, dtype=np.float32)


def richardson(J: Any) -> Function:
    """An iteration that reverse mode cannot go through in JAX."""

    def solve(matvec: Function, b: Any) -> Any:
        def step(carry: Any) -> Any:
            x, n = carry
            moved = J.tree.map(lambda x, b, y: x + 0.2 * (b - y), x, b, matvec(x))
            return moved, n + 1

        zero = J.tree.map(lambda y: 0 * y, b)
        return J.lax.while_loop(lambda c: c[1] < 60, step, (zero, 0))[0]

    return solve


def linear(J: Any, N: Any) -> Function:
    solve = richardson(J)
    return lambda a, b: J.lax.custom_linear_solve(lambda x: a @ x, b, solve, solve)


def symmetric(J: Any, N: Any) -> Function:
    """A tree, a matrix that is symmetric whatever its parameter, and auxiliary data."""
    solve = richardson(J)

    def run(a: Any, b: Any) -> Any:
        s = a @ a.T * 0.1 + 2 * N.eye(3)
        b = {"u": b, "v": b * b}
        matvec = lambda x: {"u": s @ x["u"], "v": s @ x["v"] + x["v"]}  # noqa: E731
        found = J.lax.custom_linear_solve(
            matvec, b, lambda f, y: (solve(f, y), {"norm": N.sum(y["u"])}), symmetric=True,
            has_aux=True,
        )  # fmt: skip
        return found[0]["u"] * found[0]["v"]

    return run


def newton(J: Any, N: Any) -> Function:
    def solve(f: Function, guess: Any) -> Any:
        def step(carry: Any) -> Any:
            x, n = carry
            return x - f(x) / J.jvp(f, (x,), (N.ones_like(x),))[1], n + 1

        return J.lax.while_loop(lambda c: c[1] < 25, step, (guess, 0))[0]

    return solve


def scalar_root(J: Any, N: Any) -> Function:
    def run(a: Any, b: Any) -> Any:
        f = lambda x: x**3 + a[0, 0] * x - N.sum(b)  # noqa: E731
        return J.lax.custom_root(f, 1.0, newton(J, N), lambda g, y: y / g(1.0))

    return run


def vector_root(J: Any, N: Any) -> Function:
    """A diagonal system, closed over twice."""

    def run(a: Any, b: Any) -> Any:
        scale = N.exp(b)
        f = lambda x: {"x": x["x"] ** 3 + a[0] * x["x"] - scale}  # noqa: E731
        guess = {"x": N.asarray(TRIALS)}

        def solve(f: Function, x: Any) -> Any:
            inner = lambda y: f({"x": y})["x"]  # noqa: E731
            return {"x": newton(J, N)(inner, x["x"])}, (N.sum(x["x"]),)

        def tangent(g: Function, y: Any) -> Any:
            return {"x": y["x"] / g({"x": N.ones(3)})["x"]}

        found, (aux,) = J.lax.custom_root(f, guess, solve, tangent, has_aux=True)
        return found["x"] + aux

    return run


FUNCTIONS = {f.__name__: f for f in (linear, symmetric, scalar_root, vector_root)}


def loss(N: Any, f: Function) -> Function:
    return lambda a, b: N.sum(N.sin(f(a, b)))


KINDS: dict[str, Function] = {
    "value": lambda J, N, f: f,
    "jvp": lambda J, N, f: lambda a, b: J.jvp(f, (a, b), (a * 0.1, b)),
    "grad": lambda J, N, f: J.grad(loss(N, f), (0, 1)),
    "reverse over reverse": lambda J, N, f: J.jacrev(J.grad(loss(N, f), 1), 1),
    "forward over reverse": lambda J, N, f: J.jacfwd(J.grad(loss(N, f), 1), (0, 1)),
}
WRAPS: dict[str, tuple[Function, bool, bool]] = {
    "eager": (lambda J, f: f, False, False),
    "jit": (lambda J, f: J.jit(f), False, False),
    "jit of vmap": (lambda J, f: J.jit(J.vmap(f)), True, True),
    "jit of vmap of b": (lambda J, f: J.jit(J.vmap(f, (None, 0))), False, True),
    "vmap of a": (lambda J, f: J.vmap(f, (0, None)), True, False),
}
CASES = [(name, kind, "jit") for name in FUNCTIONS for kind in KINDS]
CASES += [(name, "grad", "jit of vmap") for name in FUNCTIONS]
CASES += [("linear", "grad", wrap) for wrap in ("eager", "jit of vmap of b", "vmap of a")]
CASES += [(name, "forward over reverse", "jit of vmap") for name in ("linear", "scalar_root")]


def run(J: Any, N: Any, name: str, kind: str, wrap: str) -> Any:
    around, maps_a, maps_b = WRAPS[wrap]
    f = around(J, KINDS[kind](J, N, FUNCTIONS[name](J, N)))
    return f(N.asarray(MATRICES if maps_a else A), N.asarray(SIDES if maps_b else B))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "kind", "wrap"), CASES)
def test_like_jax(name: str, kind: str, wrap: str) -> None:
    theirs, ours = run(jax, jnp, name, kind, wrap), run(stax, snp, name, kind, wrap)
    for a, b in zip(stax.tree_util.tree_leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_solver_of_the_transposed_equation_is_used() -> None:
    """Both solvers are wrong on purpose; the transpose of the transpose is the first again."""

    def run(b: Any, a: Any = A) -> Any:
        times = lambda k: lambda f, y: k * snp.linalg.solve(a, y)  # noqa: E731
        return lax.custom_linear_solve(lambda x: snp.asarray(a) @ x, b, times(2), times(5))

    inverse = np.linalg.inv(A)
    np.testing.assert_allclose(run(B), 2 * inverse @ B, rtol=1e-5)
    np.testing.assert_allclose(stax.jacfwd(run)(B), 2 * inverse, rtol=1e-4)
    np.testing.assert_allclose(stax.jacrev(run)(B), 5 * inverse.T, rtol=1e-4)
    back = lambda y: stax.linear_transpose(run, B)(y)[0]  # noqa: E731
    np.testing.assert_allclose(stax.linear_transpose(back, B)(B)[0], 2 * inverse @ B, rtol=1e-4)


def test_forward_mode_needs_no_transpose() -> None:
    def run(b: Any) -> Any:
        return lax.custom_linear_solve(lambda x: snp.asarray(A) @ x, b, richardson(stax))

    np.testing.assert_allclose(stax.jacfwd(run)(B), np.linalg.inv(A), rtol=1e-4, atol=1e-5)
    with pytest.raises(errors.ArgumentError, match="needs transpose_solve"):
        stax.jit(stax.jacrev(run))(B)


def test_integers_beside_a_root() -> None:
    """JAX asks for tangents of integers here and fails."""

    def run(a: Any) -> Any:
        solve = lambda f, x: (newton(stax, snp)(f, x), 25)  # noqa: E731
        return lax.custom_root(lambda x: x**2 - a, 1.0, solve, lambda g, y: y / g(1.0), True)[0]

    np.testing.assert_allclose(stax.jit(stax.grad(run))(4.0), 0.25, rtol=1e-6)
    np.testing.assert_allclose(stax.jit(stax.grad(stax.grad(run)))(4.0), -1 / 32, rtol=1e-5)


def test_checked_by_differences() -> None:
    f = stax.jit(linear(stax, snp))
    stax.test_util.check_grads(f, (A, B), order=2)
    stax.test_util.check_grads(scalar_root(stax, snp), (A, B), order=2)


def solve_with(matvec: Function, solve: Function, **options: Any) -> Any:
    return lax.custom_linear_solve(matvec, B, solve, **options)


def root_with(f: Function, solve: Function, tangent: Function = lambda g, y: y) -> Any:
    return lax.custom_root(f, B, solve, tangent)


SAME: Function = lambda f, b: b  # noqa: E731
BAD: dict[str, Function] = {
    "matvec returns f32.2. where f32.3. is needed": lambda: solve_with(lambda x: x[:2], SAME),
    "matvec returns another tree": lambda: solve_with(lambda x: (x,), SAME),
    "solve returns f16": lambda: solve_with(lambda x: x, lambda f, b: b.astype("float16")),
    "solve has to return a pair": lambda: solve_with(lambda x: x, SAME, has_aux=True),
    "transpose_solve returns another tree": lambda: solve_with(
        lambda x: x, SAME, transpose_solve=lambda f, b: [b]
    ),
    "not linear": lambda: solve_with(lambda x: x * x, SAME, transpose_solve=SAME),
    "not callable": lambda: solve_with(A, SAME),  # type: ignore[arg-type]
    "f returns another tree": lambda: root_with(lambda x: [x], SAME),
    "custom_root: solve returns f32": lambda: root_with(lambda x: x, lambda f, x: x.sum()),
    "tangent_solve, .*, returns i32": lambda: root_with(
        lambda x: x, SAME, lambda g, y: y.astype("int32")
    ),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text: str) -> None:
    with pytest.raises(errors.StaxError, match=text):
        BAD[text]()
