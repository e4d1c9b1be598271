"""grad and its kin against JAX: forms of argnums, aux, pytrees, integers, what they return."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError

X = np.asarray([0.5, -1.0, 2.0], np.float32)
W = {"w": np.asarray([[1, 2, 3], [4, 5, 6]], np.float32), "b": [np.float32(0.5), X]}


def same(ours: Any, theirs: Any, tolerance: float = 2e-5) -> None:
    """Compare two trees: structure, dtypes, shapes and values."""
    a, b = jax.tree.flatten(ours), jax.tree.flatten(theirs)
    assert a[1] == b[1]
    for x, y in zip(a[0], b[0], strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if x.dtype != jax.dtypes.float0:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def both(program: Callable[[Any, Any], Any]) -> None:
    """Run a program of a library and its numpy on both; JAX compiles it as a whole, for speed."""
    same(program(stax, snp), jax.jit(lambda: program(jax, jnp))())


# --- grad and value_and_grad ---


def loss(np_: Any) -> Callable[..., Any]:
    return lambda params, x, scale=1.0: (
        np_.tanh(params["w"] @ x + params["b"][0]).sum() * scale + (params["b"][1] ** 2).sum()
    )


@pytest.mark.parametrize("argnums", [0, 1, -1, (0,), (1, 0), [0, 1], (-1, 0)])
def test_argnums(argnums: Any) -> None:
    both(lambda m, n: m.grad(loss(n), argnums)(W, X))
    both(lambda m, n: m.value_and_grad(loss(n), argnums=argnums)(W, X, scale=2.0))


@pytest.mark.parametrize("argnums", [2, -3, (0, 2)])
def test_argnums_out_of_range(argnums: Any) -> None:
    with pytest.raises(ArgumentError, match="argnums"):
        stax.grad(loss(snp), argnums)(W, X)


def test_structures_are_kept() -> None:
    both(lambda m, n: m.grad(lambda t: (t[0]["a"] * t[1][0]).sum())(({"a": X}, (X, None))))


def test_unused_arguments_have_zero_gradients() -> None:
    both(lambda m, n: m.grad(lambda x, y: (x * 2).sum(), (0, 1))(X, X))


def test_keywords_are_not_differentiated() -> None:
    both(lambda m, n: m.grad(lambda x, *, k, **rest: (x * k * rest["r"]).sum())(X, k=X, r=X))


def test_other_arguments_are_left_alone() -> None:
    """They may be anything, and Python numbers stay numbers, as in JAX."""

    def f(x: Any, kind: str, depth: int, *, scale: Any, flag: bool = True) -> Any:
        assert type(depth) is int
        assert type(scale) is np.ndarray
        for _ in range(depth):
            x = x * scale if kind == "scaled" and flag else x
        return x.sum()

    for m in (stax, jax):
        np.testing.assert_array_equal(m.grad(f)(X, "scaled", 2, scale=X), X**2)
        np.testing.assert_array_equal(m.jacrev(f)(X, "scaled", 2, scale=X), X**2)
        np.testing.assert_array_equal(m.jacfwd(f)(X, "plain", 2, scale=X, flag=False), X * 0 + 1)


def test_errors_name_the_argument_that_was_chosen() -> None:
    with pytest.raises(DTypeError, match="jacfwd: argument n has"):
        stax.jacfwd(lambda x, n: x * n, argnums=1)(X, 3)
    with pytest.raises(ArgumentError, match=r"grad: argument p\['a'\] is not an array"):
        stax.grad(lambda x, p: x, argnums=1)(X, {"a": "text"})


def test_has_aux() -> None:
    def f(x: Any) -> Any:
        return (x * x).sum(), {"double": 2 * x, "more": (x[0], x + 3)}

    both(lambda m, n: m.grad(f, has_aux=True)(X))
    both(lambda m, n: m.value_and_grad(f, has_aux=True)(X))
    jitted = stax.jit(stax.value_and_grad(f, has_aux=True))
    same(jitted(X), jax.jit(jax.value_and_grad(f, has_aux=True))(X))
    with pytest.raises(ArgumentError, match="return a pair"):
        stax.grad(lambda x: x.sum(), has_aux=True)(X)


def test_aux_of_outer_functions() -> None:
    """Auxiliary values may depend on what an outer transform traces."""

    def program(m: Any, n: Any) -> Any:
        inner = lambda x: m.grad(lambda y: ((y * x).sum(), x + y), has_aux=True)(x)  # noqa: E731
        return m.jit(lambda x: inner(x))(X), m.vmap(inner)(np.stack([X, X]))

    both(program)


def test_allow_int() -> None:
    f = lambda i, x: (x * i).sum()  # noqa: E731
    ints = np.arange(3, dtype=np.int32)
    ours = stax.grad(f, argnums=(0, 1), allow_int=True)(ints, X)
    theirs = jax.grad(f, argnums=(0, 1), allow_int=True)(ints, X)
    assert ours[0].dtype == theirs[0].dtype == jax.dtypes.float0
    same(ours, theirs)
    with pytest.raises(DTypeError, match=r"i has type i32\[3\], and integers have no gradient"):
        stax.grad(f)(ints, X)


def test_wrong_outputs() -> None:
    with pytest.raises(ShapeError, match=r"returned shape \(3,\)"):
        stax.grad(lambda x: x)(X)
    with pytest.raises(DTypeError, match="returned i32"):
        stax.grad(lambda x: x.sum().astype(int))(X)
    with pytest.raises(ArgumentError, match="return one scalar"):
        stax.grad(lambda x: (x.sum(), x))(X)
    with pytest.raises(ArgumentError, match="'no array'"):
        stax.grad(lambda x: "no array")(X)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtypes_of_gradients(dtype: str) -> None:
    x = snp.asarray([1.0, 2.0], dtype)
    assert stax.grad(lambda x: (x * x).sum())(x).dtype == x.dtype
    assert stax.grad(lambda x: (x.astype("float32") ** 2).sum())(x).dtype == x.dtype


def test_weak_types_of_gradients() -> None:
    for m, n in ((stax, snp), (jax, jnp)):
        value, gradient = m.value_and_grad(lambda x: x * x)(3.0)
        assert value.weak_type
        assert gradient.weak_type
        assert not m.grad(lambda x: x * x)(n.float32(3)).weak_type


def test_names_and_signature_are_kept() -> None:
    def documented(x: Any) -> Any:
        """Square."""
        return x * x

    for transform in (stax.grad, stax.value_and_grad, stax.jacfwd, stax.jacrev, stax.hessian):
        assert transform(documented).__name__ == "documented"
        assert transform(documented).__doc__ == "Square."


def test_gradients_of_gradients() -> None:
    f = lambda n: lambda x: n.sin(x) * x**3  # noqa: E731
    both(lambda m, n: m.grad(m.grad(m.grad(f(n))))(0.7))
    both(lambda m, n: m.jit(m.grad(m.grad(f(n))))(0.7))
    both(lambda m, n: m.vmap(m.grad(m.grad(f(n))))(X))


# --- vjp and linearize ---


def model(n: Any) -> Callable[..., Any]:
    return lambda p, x: {"out": n.tanh(p["w"] @ x), "norm": (x**2).sum() + p["b"][0]}


def test_vjp() -> None:
    def program(m: Any, n: Any) -> Any:
        out, pull = m.vjp(model(n), W, X)
        return out, pull(jax.tree.map(lambda y: y * 2, out))

    both(program)


def test_vjp_with_aux_and_integers() -> None:
    def program(m: Any, n: Any) -> Any:
        f = lambda x, i: ((x * i, i + 1), {"aux": x})  # noqa: E731
        out, pull, aux = m.vjp(f, X, np.arange(3, dtype=np.int32), has_aux=True)
        return out, aux, pull((out[0], np.zeros(3, jax.dtypes.float0)))

    both(program)


def test_the_pullback_passes_through_jit_and_tree_map() -> None:
    out, pull = stax.vjp(model(snp), W, X)
    assert isinstance(pull, stax.tree_util.Partial)
    expected = pull(out)
    same(stax.jit(lambda p, ct: p(ct))(pull, out), expected)
    same(stax.tree_util.tree_map(lambda x: x, pull)(out), expected)
    same(stax.jit(lambda x: stax.vjp(model(snp), W, x)[1])(X)(out), expected)
    doubled = stax.vmap(lambda c: pull({"out": c, "norm": snp.float32(1)}))(snp.ones((2, 2)))
    assert doubled[1].shape == (2, 3)


def test_cotangents_are_checked() -> None:
    _, pull = stax.vjp(lambda x: (x * 2, x.sum()), X)
    with pytest.raises(ArgumentValueError, match="the cotangent has structure"):
        pull(X)
    with pytest.raises(ShapeError, match=r"f32\[2\]"):
        pull((X[:2], snp.float32(1)))
    with pytest.raises(DTypeError):
        pull((X.astype(np.int32), snp.float32(1)))


def test_linearize() -> None:
    def program(m: Any, n: Any) -> Any:
        out, push = m.linearize(model(n), W, X)
        return out, push(jax.tree.map(lambda y: y * 2, W), X)

    both(program)


def test_a_linear_map_is_a_pytree_and_does_not_run_the_function() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return snp.sin(x) * 2

    _, push = stax.linearize(f, X)
    assert isinstance(push, stax.tree_util.Partial)
    expected = 2 * np.cos(X) * X
    np.testing.assert_allclose(push(X), expected, rtol=1e-5)
    np.testing.assert_allclose(stax.jit(lambda p, t: p(t))(push, X), expected, rtol=1e-5)
    np.testing.assert_allclose(stax.vmap(push)(np.stack([X, X])), [expected] * 2, rtol=1e-5)
    assert len(calls) == 1
    with pytest.raises(ArgumentError, match="takes tangents of structure"):
        push(X, X)


def test_linearize_with_aux() -> None:
    out, push, aux = stax.linearize(lambda x: (x * x, x + 1), X, has_aux=True)
    same((out, push(X), aux), (X * X, 2 * X * X, X + 1))


# --- jvp ---


def test_jvp() -> None:
    both(lambda m, n: m.jvp(model(n), (W, X), (W, X)))
    both(lambda m, n: m.jvp(lambda x: (x * x, 3), (X,), (X,)))
    both(lambda m, n: m.jvp(lambda x: (x * x, {"a": x}), [X], [X], has_aux=True))


def test_jvp_with_float0() -> None:
    ints = np.arange(3, dtype=np.int32)
    zero = np.zeros(3, jax.dtypes.float0)
    both(lambda m, n: m.jvp(lambda x, i: (x * i, i * 2, x > 0), (X, ints), (X, zero)))


def test_tangents_are_checked() -> None:
    f = lambda x: x * 2  # noqa: E731
    with pytest.raises(ShapeError, match=r"the tangent of a f32\[3\] has type f32\[3\], got"):
        stax.jvp(f, (X,), (X[:2],))
    with pytest.raises(DTypeError):
        stax.jvp(f, (X,), (X.astype(np.float16),))
    with pytest.raises(DTypeError, match="float0"):
        stax.jvp(f, (np.arange(3),), (np.arange(3),))
    with pytest.raises(ArgumentError, match="differ in structure"):
        stax.jvp(f, (X,), (X, X))
    with pytest.raises(ArgumentError, match="tuples or lists"):
        stax.jvp(f, X, X)


# --- Jacobians ---


def vector(n: Any) -> Callable[..., Any]:
    return lambda p, x: {"y": n.sin(p["w"] @ x), "z": (p["b"][1] * x[:2, None]).sum(0)}


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
@pytest.mark.parametrize("argnums", [0, 1, (1, 0)])
def test_jacobians(name: str, argnums: Any) -> None:
    both(lambda m, n: getattr(m, name)(vector(n), argnums)(W, X))


@pytest.mark.parametrize("name", ["jacfwd", "jacrev"])
def test_jacobians_with_aux_under_jit_and_vmap(name: str) -> None:
    both(lambda m, n: getattr(m, name)(lambda x: (n.sin(x), x * 2), has_aux=True)(X))
    both(lambda m, n: m.jit(getattr(m, name)(lambda x: n.outer(x, x)))(X))
    both(lambda m, n: m.vmap(getattr(m, name)(lambda x: x * x.sum()))(np.stack([X, 2 * X])))


@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_hessian(argnums: Any) -> None:
    f = lambda n: lambda p, x: n.tanh(p["a"] @ x).sum() * p["s"]  # noqa: E731
    p = {"a": W["w"], "s": np.float32(2)}
    both(lambda m, n: m.hessian(f(n), argnums)(p, X))


def test_jacobian_of_something_constant() -> None:
    both(lambda m, n: m.jacfwd(lambda x: n.ones(2))(X))
    both(lambda m, n: m.jacrev(lambda x: n.ones(2))(X))
