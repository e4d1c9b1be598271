"""custom_jvp and custom_vjp under every transform, against JAX where it has the answer."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors

X = np.linspace(0.1, 1, 5, dtype=np.float32)
MANY = np.stack([X, X * np.float32(0.5), X * np.float32(1.5)])
Function = Callable[..., Any]


def programs(J: Any, N: Any) -> dict[str, Function]:
    """Functions with rules that are wrong on purpose, to see that they are used."""

    @J.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return N.sin(x) * y

    @f.defjvp
    def _f_jvp(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), 2 * N.cos(x) * dx * y + N.sin(x) * dy

    @J.custom_vjp
    def g(x: Any, y: Any) -> Any:
        return N.sin(x) * y, x + y

    def g_bwd(kept: Any, cts: Any) -> Any:
        (c, s, y), (a, b) = kept, cts
        return 3 * c * a * y + b, s * a + b

    g.defvjp(lambda x, y: (g(x, y), (N.cos(x), N.sin(x), y)), g_bwd)

    @J.custom_vjp
    def clip(lo: Any, hi: Any, x: Any) -> Any:
        return x

    clip.defvjp(lambda lo, hi, x: (x, (lo, hi)), lambda kept, ct: (None, None, N.clip(ct, *kept)))

    @J.custom_jvp
    def h(x: Any) -> Any:
        return N.exp(x)

    h.defjvps(lambda t, out, x: t * out * 0.5)

    @functools.partial(J.custom_vjp, nondiff_argnums=(0,))
    def apply(fun: Function, x: Any) -> Any:
        return fun(x)

    apply.defvjp(lambda fun, x: (fun(x), x), lambda fun, kept, ct: (ct * kept * 7,))
    scan = J.lax.scan
    return {
        "jvp": lambda x: f(x, x * 2),
        "vjp": lambda x: N.multiply(*g(x, x * x)),
        "by name": lambda x: f(y=x, x=x * x),
        "traced bounds": lambda x: clip(-0.1, N.max(x) * 0.3, x * x),
        "jvps": h,
        "not differentiated": lambda x: apply(N.sin, x),
        "in a scan": lambda x: scan(lambda c, a: (f(c, a), g(c, a)[0]), x[0], x)[1],
        "in a scan, by h": lambda x: scan(lambda c, a: (g(h(c), a)[0], c), x[0], x)[1],
    }


THEIRS, OURS = programs(jax, jnp), programs(stax, snp)


def total(N: Any, f: Function) -> Function:
    return lambda x: N.sum(N.sin(f(x)))


KINDS: dict[str, Callable[[Any, Any, Function, Any, Any], Any]] = {
    "eager": lambda J, N, f, x, many: f(x),
    "jit": lambda J, N, f, x, many: J.jit(f)(x),
    "vmap": lambda J, N, f, x, many: J.vmap(f)(many),
    "grad": lambda J, N, f, x, many: J.grad(total(N, f))(x),
    "jit of grad": lambda J, N, f, x, many: J.jit(J.grad(total(N, f)))(x),
    "vmap of grad": lambda J, N, f, x, many: J.vmap(J.grad(total(N, f)))(many),
    "grad of vmap": lambda J, N, f, x, many: J.grad(lambda m: N.sum(N.sin(J.vmap(f)(m))))(many),
    "vjp of jit": lambda J, N, f, x, many: J.vjp(J.jit(f), x)[1](x),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OURS)
def test_like_jax(name: str, kind: str) -> None:
    run = KINDS[kind]
    ours = run(stax, snp, OURS[name], snp.asarray(X), MANY)
    theirs = jax.jit(lambda x, many: run(jax, jnp, THEIRS[name], x, many))(X, MANY)
    for a, b in zip(stax.tree_util.tree_leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=3e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["jvp", "by name", "jvps"])
def test_second_derivatives(name: str) -> None:
    theirs = jax.jit(jax.hessian(total(jnp, THEIRS[name])))(X)
    for wrap in (lambda f: f, stax.jit):
        ours = wrap(stax.hessian(total(snp, OURS[name])))(X)
        np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["vjp", "not differentiated", "in a scan, by h"])
def test_forward_mode_by_transposing_twice(name: str) -> None:
    f = OURS[name]
    rows = stax.jacrev(f)(X)
    np.testing.assert_allclose(stax.jacfwd(f)(X), rows, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stax.jvp(f, (X,), (X,))[1], rows @ X, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stax.linearize(f, X)[1](X), rows @ X, rtol=1e-5, atol=1e-6)


def test_forward_mode_of_a_rule_that_is_not_linear() -> None:
    with pytest.raises(errors.MissingRule, match="linear in its cotangents"):
        stax.jvp(OURS["traced bounds"], (X,), (X,))


def test_gradient_of_traced_bounds() -> None:
    """The bound is 0.2 at 0.1, whatever the cotangent."""

    @stax.custom_vjp
    def clip(lo: Any, hi: Any, x: Any) -> Any:
        return x

    clip.defvjp(lambda lo, hi, x: (x, (lo, hi)), lambda kept, ct: (None, None, snp.clip(ct, *kept)))
    for wrap in (lambda f: f, stax.jit):
        found = wrap(stax.grad(lambda x: clip(-0.1, x + 0.1, x) * 5.0))(0.1)
        np.testing.assert_allclose(found, 0.2, rtol=1e-6)


def test_an_argument_that_is_not_differentiated_may_be_traced() -> None:
    @functools.partial(stax.custom_vjp, nondiff_argnums=(0,))
    def scaled(k: Any, x: Any) -> Any:
        return k * x

    scaled.defvjp(lambda k, x: (k * x, None), lambda k, kept, ct: (10 * k * ct,))
    found = stax.jit(lambda k, x: stax.grad(lambda x: scaled(k, x))(x))(3.0, 2.0)
    assert float(found) == 30


def test_rules_close_over_traced_values() -> None:
    def f(x: Any) -> Any:
        scale = x * 3

        @stax.custom_vjp
        def twice(y: Any) -> Any:
            return y * 2

        twice.defvjp(lambda y: (y * 2, None), lambda kept, ct: (ct * scale,))
        return twice(x)

    for wrap in (lambda g: g, stax.jit):
        np.testing.assert_allclose(wrap(stax.grad(lambda x: f(x).sum()))(X), X * 3, rtol=1e-6)
        np.testing.assert_allclose(
            wrap(stax.vmap(stax.grad(lambda x: f(x).sum())))(MANY), MANY * 3, rtol=1e-6
        )


def test_a_function_may_not_close_over_what_is_differentiated() -> None:
    def f(x: Any) -> Any:
        @stax.custom_jvp
        def scaled(y: Any) -> Any:
            return y * x

        scaled.defjvps(lambda t, out, y: t)
        return scaled(2.0 * x)

    with pytest.raises(errors.MissingRule, match="closes over a value that is differentiated"):
        stax.grad(f)(3.0)


def test_methods_and_integer_arguments() -> None:
    class Layer:
        @functools.partial(stax.custom_jvp, nondiff_argnums=(0,))
        def power(self, x: Any, n: Any) -> Any:
            return x**n

        @power.defjvp
        def _power_jvp(self, primals: Any, tangents: Any) -> Any:
            (x, n), (dx, dn) = primals, tangents
            assert dn.dtype == stax.float0
            return x**n, 10 * dx

    layer = Layer()
    assert float(stax.grad(lambda x: layer.power(x, 3))(2.0)) == 10
    assert float(layer.power(2.0, 3)) == 8


def no_rule() -> Any:
    return stax.custom_jvp(snp.sin)(1.0)


def with_bwd(bwd: Function) -> Function:
    f = stax.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x * 2, x), bwd)
    return stax.grad(lambda x: f(x).sum())


def with_jvp(jvp: Function) -> Function:
    f = stax.custom_jvp(lambda x: x * 2)
    f.defjvp(jvp)
    return stax.grad(lambda x: f(x).sum())


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no rule": (no_rule, errors.MissingRule, "has no rule"),
    "no function": (lambda: stax.custom_vjp(3), errors.ArgumentError, "not callable"),
    "no tuple": (
        lambda: with_bwd(lambda kept, ct: ct)(X), errors.ArgumentError, "a tuple of 1 cotangents",
    ),
    "two of one": (
        lambda: with_bwd(lambda kept, ct: (ct, ct))(X), errors.ArgumentError, "got a tuple of 2",
    ),
    "shape": (
        lambda: with_bwd(lambda kept, ct: (ct[:2],))(X), errors.ShapeError, "where f32",
    ),
    "dtype": (
        lambda: with_bwd(lambda kept, ct: (ct.astype("float16"),))(X), errors.DTypeError, "f16",
    ),
    "no pair": (
        lambda: with_jvp(lambda p, t: t[0])(X), errors.ArgumentError, "return a pair",
    ),
    "another tree": (
        lambda: with_jvp(lambda p, t: ((p[0],), (t[0],)))(X), errors.ArgumentError, "another tree",
    ),
    "shape of a tangent": (
        lambda: with_jvp(lambda p, t: (p[0] * 2, t[0][:1]))(X), errors.ShapeError, "tangent",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    f, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        f()


@pytest.mark.parametrize("wrap", [lambda J, f: f, lambda J, f: J.jit(f)])
def test_residuals_that_are_python_values_reach_the_rule_as_they_are(wrap: Any) -> None:
    def gradient(J: Any) -> Any:
        power = J.custom_vjp(lambda x, n: x**n, nondiff_argnums=(1,))

        def back(n: int, kept: Any, ct: Any) -> Any:
            x, count, scale = kept
            for _ in range(count - 1):
                ct = ct * x
            return (ct * count * (scale if scale > 0 else 1),)

        power.defvjp(lambda x, n: (x**n, (x, n, 1.0)), back)
        return wrap(J, J.grad(lambda x: power(x, 3)))(2.0)

    np.testing.assert_allclose(gradient(stax), gradient(jax))


def test_what_is_perturbed_may_be_a_residual() -> None:
    def gradients(J: Any) -> Any:
        product = J.custom_vjp(lambda x, y: x * y)

        def back(kept: Any, ct: Any) -> Any:
            x, y, of_x, of_y = kept
            return ct * y if of_x else None, ct * x * 2 if of_y else None

        product.defvjp(
            lambda x, y: (x.value * y.value, (x.value, y.value, x.perturbed, y.perturbed)),
            back,
            symbolic_zeros=True,
        )
        return [J.grad(product, of)(2.0, 3.0) for of in (0, 1)]

    np.testing.assert_allclose(gradients(stax), gradients(jax))


def test_residuals_that_are_no_arrays_are_handed_on() -> None:
    same = stax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, {"kind": "twice", "array": x}), lambda r, ct: (ct * len(r["kind"]),))
    np.testing.assert_allclose(stax.vmap(stax.grad(same))(X), np.full(X.shape, 5))
