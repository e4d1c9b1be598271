"""Random nestings of transforms give JAX's values, dtypes, shapes and tree structures."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from tests.nestings import BASES, LARGE, TRANSFORMS, assert_like, eager_jax, nest

Word = list[tuple[str, int]]


@st.composite
def nestings(draw: Any, depth: int = 3) -> tuple[str, Word]:
    """Draw a base function and the transforms around it, few of which enlarge it."""
    word: Word = []
    for _ in range(draw(st.integers(1, depth))):
        large = sum(name in LARGE for name, _ in word)
        names = [n for n in TRANSFORMS if large < 1 or n not in LARGE]
        word.append((draw(st.sampled_from(names)), draw(st.integers(0, 11))))
    return draw(st.sampled_from(sorted(BASES))), word


def check(base: str, word: Word) -> None:
    """Compare a nesting with JAX's, eager and jitted."""
    args = BASES[base][1]
    theirs = jax.jit(nest(eager_jax, base, word))(*args)
    program = nest(stax, base, word)
    assert_like(program(*args), theirs)
    assert_like(stax.jit(program)(*args), theirs)


@settings(max_examples=20)
@given(nestings())
def test_nestings_are_those_of_jax(nesting: tuple[str, Word]) -> None:
    check(*nesting)


@pytest.mark.slow
@settings(max_examples=400)
@given(nestings(depth=4))
def test_deep_nestings_are_those_of_jax(nesting: tuple[str, Word]) -> None:
    check(*nesting)


# --- perturbations of one level are not those of another ---


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit], ids=["eager", "jit"])
def test_derivative_of_a_derivative_that_closes_over_its_argument(wrap: Any) -> None:
    inner = lambda x: x * stax.grad(lambda y: x + y)(x)  # noqa: E731
    assert wrap(stax.grad(inner))(5.0) == 1


@pytest.mark.parametrize("outer", ["grad", "jvp", "linearize", "vjp"])
@pytest.mark.parametrize("inner", ["grad", "jvp", "linearize", "vjp"])
def test_perturbations_are_not_confused(outer: str, inner: str) -> None:
    """d/dx [x d/dy (x^2 y + y^2)] at y = 2x is d/dx [x (x^2 + 4x)] with y held: 3x^2 + 2y."""

    def derivative(name: str, f: Any, x: Any) -> Any:
        one = stax.numpy.ones(())
        match name:
            case "grad":
                return stax.grad(f)(x)
            case "jvp":
                return stax.jvp(f, (x,), (one,))[1]
            case "linearize":
                return stax.linearize(f, x)[1](one)
            case _:
                return stax.vjp(f, x)[1](one)[0]

    y = stax.numpy.asarray(6.0, "float32")

    def of_x(x: Any) -> Any:
        return x * derivative(inner, lambda z: x * x * z + z * z, y)

    x = stax.numpy.asarray(3.0, "float32")
    assert derivative(outer, of_x, x) == 3 * 9 + 12
    assert stax.jit(lambda x: derivative(outer, of_x, x))(x) == 3 * 9 + 12


def test_a_closure_over_a_mapped_value_is_mapped() -> None:
    xs, ys = np.arange(3, dtype=np.float32), np.arange(4, dtype=np.float32)

    def table(lib: Any) -> Any:
        return lib.vmap(lambda x: lib.vmap(lambda y: lib.grad(lambda z: z * x * y)(x))(ys))(xs)

    np.testing.assert_array_equal(table(stax), table(jax))


def test_six_derivatives() -> None:
    f = lambda x: 1 / x  # noqa: E731
    for _ in range(6):
        f = stax.grad(f)
    assert f(4.0) == stax.jit(f)(4.0) == 0.0439453125


# --- Python control flow on the values of an eager derivative ---


def _branch(lib: Any, x: Any) -> Any:
    return lib.numpy.sum(x * x) if lib.numpy.sum(x) > 0 else lib.numpy.sum(lib.numpy.sin(x))


def _loop(lib: Any, x: Any) -> Any:
    while lib.numpy.sum(x) < 10:
        x = x * 2
    return lib.numpy.sum(x * x)


def _number(lib: Any, x: Any) -> Any:
    known = lib.lax.stop_gradient(x)
    return sum(x[i] * float(known[i]) for i in range(int(lib.numpy.argmax(known)) + 1))


@pytest.mark.parametrize("f", [_branch, _loop, _number])
@pytest.mark.parametrize("name", ["grad", "grad of grad", "value_and_grad", "jvp", "vjp"])
@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow_on_values(f: Any, name: str, sign: int) -> None:
    x = sign * np.array([0.5, -0.25, 1.0], np.float32)
    if f is _loop and sign < 0:
        x = np.abs(x)

    def run(lib: Any) -> Any:
        g = lambda x: f(lib, x)  # noqa: E731
        match name:
            case "grad":
                return lib.grad(g)(x)
            case "grad of grad":
                return lib.grad(lambda x: lib.numpy.sum(lib.grad(g)(x) * x))(x)
            case "value_and_grad":
                return lib.value_and_grad(g)(x)
            case "jvp":
                return lib.jvp(g, (x,), (x,))
            case _:
                out, pull = lib.vjp(g, x)
                return out, pull(lib.numpy.ones_like(out))

    assert_like(run(stax), run(jax))


def test_control_flow_on_what_is_not_mapped() -> None:
    def run(lib: Any) -> Any:
        f = lambda x, y: x * y if y > 0 else x - y  # noqa: E731
        return lib.vmap(lib.grad(f), in_axes=(0, None))(np.arange(3, dtype=np.float32), 2.0)

    assert_like(run(stax), run(jax))
