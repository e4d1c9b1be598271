"""Symbolic zeros, both kinds of rule on one function, custom_gradient, closure_convert and
linear_call, against JAX."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.custom_derivatives
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import custom_derivatives, errors

Function = Callable[..., Any]
X = np.linspace(0.1, 1, 3, dtype=np.float32)
MANY = np.stack([X, X * np.float32(0.5)])
W = np.float32(0.7)
WRAPS: dict[str, Function] = {
    "eager": lambda J, f: f,
    "jit": lambda J, f: J.jit(f),
    "vmap": lambda J, f: J.vmap(f, (0, None)),
    "jit of vmap": lambda J, f: J.jit(J.vmap(f, (0, None))),
    "scan": lambda J, f: lambda x, w: J.lax.scan(lambda c, a: (c, f(a, w)), 0.0, x)[1],
}


def assert_like(ours: Any, theirs: Any) -> None:
    for a, b in zip(stax.tree_util.tree_leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def both(f: Function, wrap: str) -> tuple[Any, Any]:
    """The results of `f(library, numpy)` under a transform."""
    x = X if wrap in ("eager", "jit") else MANY
    run = WRAPS[wrap]
    return run(stax, f(stax, snp))(snp.asarray(x), W), run(jax, f(jax, jnp))(jnp.asarray(x), W)


def test_the_names_are_those_of_jax() -> None:
    theirs = {n for n in dir(jax.custom_derivatives) if n[0] != "_" and not n.endswith("_p")}
    assert set(custom_derivatives.__all__) == theirs


# --- symbolic zeros ---


def vjp_with_zeros(J: Any, N: Any, log: list[Any]) -> Function:
    cd = J.custom_derivatives

    def dense(x: Any) -> Any:
        return N.zeros(x.shape, x.dtype) if type(x) is cd.SymbolicZero else x

    @J.custom_vjp
    def f(x: Any, y: Any, n: Any) -> Any:
        return {"a": x * y, "b": x + y}

    def fwd(*args: Any) -> Any:
        log.append(tuple(bool(a.perturbed) for a in args))
        x, y, n = cd.custom_vjp_primal_tree_values(args)
        return f(x, y, n), (x, y)

    def bwd(kept: Any, cts: Any) -> Any:
        log.append(tuple(type(cts[k]) is cd.SymbolicZero for k in "ab"))
        _, y = kept
        a, b = map(dense, (cts["a"], cts["b"]))
        return 3 * a * y + b, cd.zero_from_primal(y, symbolic_zeros=True), None

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    return f


@pytest.mark.parametrize("wrap", ["eager", "jit", "vmap"])
@pytest.mark.parametrize(("key", "argnums"), [("a", 0), ("b", 1), ("a", (0, 1))])
def test_symbolic_zeros_of_cotangents(key: str, argnums: Any, wrap: str) -> None:
    logs: dict[Any, list[Any]] = {jax: [], stax: []}

    def of(J: Any, N: Any) -> Function:
        f = vjp_with_zeros(J, N, logs[J])
        return J.grad(lambda x, w: f(x, w * x, 3)[key].sum(), argnums)

    assert_like(*both(of, wrap))
    # Here the rule is first traced with all derivatives, to see what it closes over.
    for length in (2, 3):
        ours, theirs = ([t for t in logs[J] if len(t) == length][-1] for J in (stax, jax))
        assert ours == theirs


@pytest.mark.parametrize("wrap", ["eager", "jit", "vmap"])
def test_symbolic_zeros_of_tangents(wrap: str) -> None:
    logs: dict[Any, list[Any]] = {jax: [], stax: []}

    def of(J: Any, N: Any) -> Function:
        cd = J.custom_derivatives

        @J.custom_jvp
        def f(x: Any, y: Any, n: Any) -> Any:
            return x * y, x + y, n

        def rule(primals: Any, tangents: Any) -> Any:
            is_zero = [type(t) is cd.SymbolicZero for t in tangents]
            logs[J].append(is_zero)
            assert [t.shape for t in tangents] == [x.shape for x in primals]
            x, y, n = primals
            t = tangents[0] * y if is_zero[1] else 5 * tangents[1] * x
            zeros = cd.zero_from_primal((x, n), symbolic_zeros=True)
            return f(*primals), (2 * t, *zeros)

        f.defjvp(rule, symbolic_zeros=True)
        loss = lambda x, w: sum(y.sum() for y in f(x, w * X, N.asarray(2))[:2])  # noqa: E731
        return lambda x, w: (J.grad(loss, 0)(x, w), J.grad(loss, 1)(x, w))

    assert_like(*both(of, wrap))
    assert logs[stax][-1] == logs[jax][-1]


def test_a_symbolic_zero_has_a_type() -> None:
    zero = custom_derivatives.SymbolicZero.from_primal_value(snp.ones((2, 3), "float16"))
    assert (zero.shape, zero.dtype, zero.ndim, repr(zero)) == (
        (2, 3), np.float16, 2, "SymbolicZero",
    )  # fmt: skip
    assert custom_derivatives.SymbolicZero.from_primal_value(3).dtype == stax.float0
    dense = custom_derivatives.zero_from_primal({"a": X, "n": 3})
    assert (dense["a"].dtype, dense["n"].dtype) == (np.float32, stax.float0)
    with pytest.raises(AttributeError):
        zero.nothing  # noqa: B018


def test_bad_symbolic_zeros() -> None:
    f = stax.custom_vjp(snp.sin)
    with pytest.raises(errors.UnsupportedError, match="optimize_remat"):
        f.defvjp(snp.sin, snp.sin, symbolic_zeros=True, optimize_remat=True)
    with pytest.raises(errors.ArgumentError, match="a leaf is of type"):
        custom_derivatives.custom_vjp_primal_tree_values((X,))
    wrong = custom_derivatives.SymbolicZero.from_primal_value(X[:2])
    f.defvjp(lambda x: (snp.sin(x.value), None), lambda kept, ct: (wrong,), symbolic_zeros=True)
    with pytest.raises(errors.ShapeError, match="returns a cotangent"):
        stax.grad(lambda x: f(x).sum())(X)


# --- both rules on one function ---


def test_a_rule_for_each_mode() -> None:
    f = stax.custom_jvp(lambda x: snp.sin(x))
    f.defjvps(lambda t, y, x: 3 * t * snp.cos(x))
    g = stax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (5 * snp.clip(ct, -9, 9) * snp.cos(x),))
    for wrap in (lambda f: f, stax.jit, stax.vmap):
        push = wrap(lambda x: stax.jvp(g, (x,), (snp.ones_like(x),))[1])
        pull = wrap(lambda x: stax.vjp(g, x)[1](snp.ones_like(x))[0])
        np.testing.assert_allclose(push(X), 3 * np.cos(X), rtol=1e-6)
        np.testing.assert_allclose(pull(X), 5 * np.cos(X), rtol=1e-6)


# --- custom_gradient ---


def with_gradient(J: Any, N: Any) -> Function:
    @J.custom_gradient
    def f(x: Any, w: Any) -> Any:
        s = N.sin(x)
        return {"y": s * w}, lambda ct: (3 * ct["y"] * s * w, (ct["y"] * s * 2).sum())

    return lambda x, w: f(x, w)["y"]


@pytest.mark.parametrize(
    ("order", "wrap"), [(1, "eager"), *((2, w) for w in WRAPS if w != "eager"), (0, "scan")]
)
def test_custom_gradient(order: int, wrap: str) -> None:
    def of(J: Any, N: Any) -> Function:
        f = with_gradient(J, N)
        slope = J.grad(lambda x, w: f(x, w).sum(), (0, 1))
        return (f, slope, J.jacrev(slope))[order]

    assert_like(*both(of, wrap))


def test_custom_gradient_of_one_argument() -> None:
    f = stax.custom_gradient(lambda x: (x**2, lambda ct: ct * x))
    g = jax.custom_gradient(lambda x: (x**2, lambda ct: ct * x))
    assert_like(stax.grad(f)(3.0), jax.grad(g)(3.0))
    np.testing.assert_allclose(stax.jvp(f, (3.0,), (1.0,))[1], 3.0)
    assert float(f(3.0)) == 9.0


BAD: dict[str, Function] = {
    "returns a pair|has to return a pair": lambda: stax.custom_gradient(lambda x: x)(1.0),
    "a tuple of 1 cotangents": lambda: stax.grad(
        stax.custom_gradient(lambda x: (x, lambda ct: (ct, ct)))
    )(1.0),
    "converted for other arguments": lambda: stax.closure_convert(snp.sin, X)[0]((X,)),
    "not callable": lambda: stax.custom_gradient(3.0),  # type: ignore[arg-type]
    "another tree": lambda: custom_derivatives.linear_call(
        lambda r, x: x, lambda r, t: (t,), (), 1.0
    ),
    "returns f32": lambda: custom_derivatives.linear_call(
        lambda r, x: x.sum(), lambda r, t: t, (), X
    ),
    "not linear": lambda: stax.grad(
        lambda r: custom_derivatives.linear_call(lambda r, x: x * r, lambda r, t: t * r, r, 1.0)
    )(2.0),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text: str) -> None:
    with pytest.raises(errors.StaxError, match=text):
        BAD[text]()


# --- closure_convert ---


def higher_order(J: Any, N: Any) -> Function:
    """A function of functions, whose rule is given what they close over."""

    @functools.partial(J.custom_vjp, nondiff_argnums=(0,))
    def inner(objective: Function, x: Any, *closed: Any) -> Any:
        return objective(x, *closed)

    def fwd(objective: Function, x: Any, *closed: Any) -> Any:
        return inner(objective, x, *closed), (x, closed)

    def bwd(objective: Function, kept: Any, ct: Any) -> Any:
        x, closed = kept
        slopes = J.grad(objective, tuple(range(1 + len(closed))))(x, *closed)
        return tuple(7 * ct * s for s in slopes)

    inner.defvjp(fwd, bwd)
    scale = N.asarray(X * 2)  # an array stays where it is

    def run(x: Any, w: Any) -> Any:
        converted, closed = J.closure_convert(lambda z: N.sum(N.sin(z * w) * scale), x)
        return inner(converted, x, *closed)

    return run


@pytest.mark.parametrize("wrap", ["jit", "jit of vmap", "scan"])
def test_closure_convert(wrap: str) -> None:
    def of(J: Any, N: Any) -> Function:
        return J.jacrev(J.grad(higher_order(J, N), (0, 1)), (0, 1))

    assert_like(*both(of, wrap))


def test_what_closure_convert_hoists() -> None:
    counts = []

    def f(x: Any, n: Any) -> Any:
        converted, closed = stax.closure_convert(lambda y: y * x * n + snp.asarray(X), X)
        counts.append(len(closed))
        return converted(X, *closed).sum()

    assert float(stax.grad(f)(2.0, 3)) == pytest.approx(3 * X.sum(), rel=1e-6)
    assert counts == [1]
    assert stax.closure_convert(snp.sin, X)[1] == []


# --- linear_call ---


def div(J: Any) -> Function:
    """Division whose transpose is twice what it should be."""
    return lambda x, r: J.custom_derivatives.linear_call(
        lambda r, x: x / r, lambda r, t: 2 * t / r, r, x
    )


def test_linear_call() -> None:
    def of(J: Any, N: Any) -> list[Any]:
        f = div(J)
        back = lambda y: J.linear_transpose(lambda x: f(x, 4.0), 1.0)(y)[0]  # noqa: E731
        again = J.linear_transpose(back, 1.0)
        return [
            f(8.0, 4.0),
            back(8.0),
            again(8.0)[0],
            J.grad(lambda x: f(x**2, 4.0))(3.0),
            J.jit(J.grad(J.grad(lambda x: f(x**3, 4.0))))(3.0),
            J.jvp(lambda x: f(x**2, 4.0), (3.0,), (1.0,)),
        ]

    assert_like(of(stax, snp), of(jax, jnp))


def test_linear_call_of_arrays_that_are_mapped_and_closed_over() -> None:
    """JAX has no vmap of it."""
    w = snp.asarray(X)

    def f(x: Any, r: Any) -> Any:
        call = custom_derivatives.linear_call
        return call(lambda r, x: (x * w) / r, lambda r, t: (2 * t * w) / r, r, x).sum()

    for wrap in (lambda g: g, stax.jit):
        found = wrap(stax.vmap(stax.grad(f), (0, None)))(MANY, 4.0)
        np.testing.assert_allclose(found, np.broadcast_to(X / 2, MANY.shape), rtol=1e-6)
        pushed = wrap(stax.vmap(lambda x: stax.jvp(lambda y: f(y, 4.0), (x,), (x,))[1]))(MANY)
        np.testing.assert_allclose(pushed, (MANY * X / 4).sum(1), rtol=1e-6)
