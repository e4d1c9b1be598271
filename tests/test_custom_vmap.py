"""custom_vmap under every transform, against JAX where it has the answer."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.custom_batching
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors
from stax.custom_batching import custom_vmap, sequential_vmap
from tests.like_jax import assert_like_jax

X = np.linspace(0.1, 1, 3, dtype=np.float32)
M = np.cos(np.arange(12, dtype=np.float32)).reshape(4, 3)
Function = Callable[..., Any]


def both(run: Function, tolerance: float = 1e-5) -> None:
    """Compare what `run` does with a library and its numpy, and what the rule was told of."""
    seen: list[list[Any]] = [[], []]
    ours, theirs = run(stax, snp, seen[0]), run(jax, jax.numpy, seen[1])
    leaves = [tuple(J.tree_util.tree_leaves(y)) for J, y in ((stax, ours), (jax, theirs))]
    assert_like_jax(*leaves, tolerance)
    assert seen[0] == seen[1]


def product(J: Any, N: Any, seen: list[Any]) -> Function:
    """sin(x) * y, with a rule that is wrong on purpose, to see that it is used."""

    @J.custom_batching.custom_vmap
    def f(x: Any, y: Any) -> Any:
        return N.sin(x) * y

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, xs: Any, ys: Any) -> Any:
        seen.append((axis_size, in_batched))
        given = list(zip((xs, ys), in_batched, strict=True))
        assert all(a.shape[0] == axis_size for a, b in given if b)
        xs, ys = (a if b else a[None] for a, b in given)
        out = N.cos(xs) * ys
        return (out, True) if any(in_batched) else (out[0], False)

    return f


# --- values ---


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 0), (1, 0), (-1, None)])
def test_the_rule_is_what_vmap_applies(in_axes: Any) -> None:
    args = [M.T if a in (1, -1) else X if a is None else M for a in in_axes]
    args = [M[0] if a is None else x for a, x in zip(in_axes, args, strict=True)]
    both(lambda J, N, seen: J.vmap(product(J, N, seen), in_axes)(*args))
    both(lambda J, N, seen: J.jit(J.vmap(product(J, N, seen), in_axes))(*args))
    both(lambda J, N, seen: J.vmap(J.jit(product(J, N, seen)), in_axes)(*args))


def test_elsewhere_it_is_the_function() -> None:
    both(lambda J, N, seen: product(J, N, seen)(X, X))
    both(lambda J, N, seen: J.jit(product(J, N, seen))(X, 2.0))
    both(lambda J, N, seen: J.vmap(lambda x: product(J, N, seen)(X, 2.0) + x)(X))
    f = product(stax, snp, [])
    assert f.__name__ == "f" and stax.jit(f)(y=1.0, x=snp.zeros(2)).tolist() == [0, 0]


def test_nested() -> None:
    rows = np.stack([M, 2 * M])
    both(lambda J, N, seen: J.vmap(J.vmap(product(J, N, seen)))(rows, rows))
    both(lambda J, N, seen: J.vmap(J.vmap(product(J, N, seen), (0, None)), (None, 0))(X, X))
    both(lambda J, N, seen: J.vmap(J.vmap(product(J, N, seen), (0, None)), (0, 0))(rows, X[:2]))


def test_inside_of_control_flow() -> None:
    def scan(J: Any, N: Any, seen: Any) -> Any:
        f = product(J, N, seen)
        return J.vmap(lambda x: J.lax.scan(lambda c, _: (f(c, x), c), x, None, 3))(X)

    def cond(J: Any, N: Any, seen: Any) -> Any:
        f = product(J, N, seen)
        return J.vmap(lambda x: J.lax.cond(True, f, lambda x, y: x, x, 2.0))(X)

    def loop(J: Any, N: Any, seen: Any) -> Any:
        f = product(J, N, seen)
        return J.vmap(
            lambda x: J.lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1], x)), (0, x))
        )(X)

    def remat(J: Any, N: Any, seen: Any) -> Any:
        return J.vmap(J.checkpoint(product(J, N, seen)))(X, X)

    for program in (scan, loop, cond, remat):
        ours = program(stax, snp, [])
        theirs = program(jax, jax.numpy, [])
        leaves = [tuple(J.tree_util.tree_leaves(y)) for J, y in ((stax, ours), (jax, theirs))]
        assert_like_jax(*leaves, 1e-5)


def test_trees_and_keywords() -> None:
    def program(J: Any, N: Any, seen: Any) -> Any:
        f = J.custom_batching.custom_vmap(
            lambda t, scale=2.0: {"s": t["a"] * scale, "k": (t["b"][0],)}
        )

        @f.def_vmap
        def rule(axis_size: int, in_batched: Any, t: Any, scale: Any) -> Any:
            seen.append(in_batched)
            return {"s": -t["a"] * scale, "k": (t["b"][0],)}, {"s": True, "k": (False,)}

        return J.vmap(f, in_axes=({"a": 0, "b": None},))(
            {"a": N.asarray(X), "b": [N.asarray(X)]}
        ), J.vmap(lambda x: f(scale=x, t={"a": x, "b": [1.0]}))(X)

    both(program)


def test_results_that_are_not_mapped() -> None:
    def program(J: Any, N: Any, seen: Any) -> Any:
        f = J.custom_batching.custom_vmap(lambda x: (x, x))
        f.def_vmap(lambda axis_size, in_batched, x: ((x.sum(), x), (False, True)))
        return J.vmap(f, out_axes=(None, 0))(X), J.vmap(f)(X)

    both(program)


# --- derivatives ---


def test_forward_mode() -> None:
    push = lambda J, f: lambda x, y: J.jvp(f, (x, y), (y, x * y))  # noqa: E731
    both(lambda J, N, seen: push(J, product(J, N, seen))(X, X))
    both(lambda J, N, seen: J.vmap(push(J, product(J, N, seen)))(M, M + 1))
    both(lambda J, N, seen: J.jit(J.vmap(push(J, product(J, N, seen))))(M, M + 1))
    both(lambda J, N, seen: push(J, J.vmap(product(J, N, seen)))(M, M + 1))
    both(lambda J, N, seen: J.jacfwd(product(J, N, seen))(X, X))
    both(lambda J, N, seen: J.jacfwd(J.vmap(product(J, N, seen)))(X, X))
    both(lambda J, N, seen: J.vmap(J.vmap(push(J, product(J, N, seen))))(M[None], M[None]))
    twice = lambda J, f: lambda x: J.jvp(lambda x: J.jvp(f, (x, x), (x, x))[1], (x,), (x,))  # noqa: E731
    both(lambda J, N, seen: J.vmap(twice(J, product(J, N, seen)))(X))


def test_forward_mode_where_some_arguments_are_mapped_or_moved() -> None:
    # JAX maps what is mapped in a value or its tangent alone a second time.
    f = product(stax, snp, [])
    slope = lambda x, y, t, s: s * snp.cos(x) - t * snp.sin(x) * y  # noqa: E731
    y, t = X + 1, X * X
    points: list[Function] = [
        lambda x, y, t: (lambda x: f(x, y), (x,), (t,), slope(x, y, t, 0)),
        lambda x, y, t: (lambda y: f(x, y), (y,), (t,), slope(x, y, 0, t)),
        lambda x, y, t: (f, (x, 2.0), (t, 3.0), slope(x, 2.0, t, 3.0)),
        lambda x, y, t: (f, (x, y), (1.0, t), slope(x, y, 1.0, t)),
        lambda x, y, t: (f, (x, 2.0), (1.0, t), slope(x, 2.0, 1.0, t)),
    ]

    def moved(point: Function, x: Any, y: Any, t: Any) -> Any:
        fun, primals, tangents, wanted = point(x, y, t)
        return (*stax.jvp(fun, primals, tangents), wanted)

    for point in points:
        _, tangent, wanted = stax.vmap(functools.partial(moved, point))(X, y, t)
        np.testing.assert_allclose(tangent, wanted, rtol=1e-5)


def test_reverse_mode_after_vmap_goes_through_the_rule() -> None:
    both(lambda J, N, seen: J.grad(lambda x: J.vmap(product(J, N, seen))(x, X).sum())(X))
    both(lambda J, N, seen: J.jit(J.grad(lambda x: J.vmap(product(J, N, seen))(x, X).sum()))(X))


def test_reverse_mode_elsewhere_is_that_of_the_function() -> None:
    # JAX has none.
    f, plain = product(stax, snp, []), lambda x, y: jax.numpy.sin(x) * y
    wanted = jax.grad(plain, (0, 1))(1.0, 2.0)
    assert_like_jax(stax.grad(f, (0, 1))(1.0, 2.0), wanted, 1e-6)
    assert_like_jax(stax.jit(stax.grad(f, (0, 1)))(1.0, 2.0), wanted, 1e-6)
    assert_like_jax(stax.grad(stax.grad(f))(1.0, 2.0), -2 * jax.numpy.sin(1.0), 1e-6)
    value, push = stax.linearize(f, 1.0, 2.0)
    pushed = jax.jvp(plain, (1.0, 2.0), (3.0, 4.0))
    np.testing.assert_allclose([value, push(3.0, 4.0)], pushed, rtol=1e-6)


def pair(scale: float) -> Function:
    """Two results, of which one depends on one argument, and a rule that scales both."""
    f = custom_vmap(lambda x, y: (snp.sin(x) * y, 2 * x))

    @f.def_vmap
    def rule(axis_size: int, in_batched: Any, x: Any, y: Any) -> Any:
        return (scale * snp.sin(x) * y, scale * 2 * x), (any(in_batched), in_batched[0])

    return lambda x, y: 3 * f(x, y)[0] + f(x, y)[1] ** 2


REVERSED: dict[str, Function] = {
    "both": lambda f: stax.vmap(stax.grad(f, (0, 1)))(X, 2 * X),
    "jit": lambda f: stax.jit(stax.vmap(stax.grad(f, (0, 1))))(X, 2 * X),
    "one is mapped": lambda f: stax.vmap(stax.grad(f, (0, 1)), (0, None))(X, 2.0),
    "the other": lambda f: stax.vmap(stax.grad(f), (None, 0))(2.0, X),
    "cotangents": lambda f: stax.vmap(stax.vjp(f, 1.0, 2.0)[1])(X),
    "jacrev": lambda f: stax.jacrev(f)(X, 2.0),
    "hessian": lambda f: stax.vmap(stax.hessian(f, (0, 1)))(X, 2 * X),
    "second order": lambda f: stax.vmap(stax.grad(stax.grad(f)))(X, 2 * X),
    "forward over reverse": lambda f: stax.vmap(
        lambda x: stax.jvp(stax.grad(f), (x, x), (1.0, 2.0))
    )(X),
    "reverse over forward": lambda f: stax.vmap(
        stax.grad(lambda x: stax.jvp(f, (x, x), (1.0, 2.0))[1])
    )(X),
    "linearize": lambda f: stax.vmap(lambda x: stax.linearize(f, x, x)[1](x, 1.0))(X),
    "vmap twice": lambda f: stax.vmap(stax.vmap(stax.grad(f), (0, None)), (None, 0))(X, X),
    "scan": lambda f: stax.vmap(
        stax.grad(lambda x: stax.lax.scan(lambda c, a: (f(c, a), None), x, snp.asarray(X))[0])
    )(X),
    "remat": lambda f: stax.vmap(stax.grad(stax.checkpoint(f)))(X, X),
    "around": lambda f: stax.grad(lambda x: stax.vmap(stax.grad(f))(x, X).sum())(X),
}


@pytest.mark.parametrize("name", REVERSED)
def test_vmap_of_reverse_mode_is_that_of_the_rule(name: str) -> None:
    """JAX has none.  With a scale of 1 the rule is the function."""

    def scaled(x: Any, y: Any) -> Any:
        return 3 * 1.5 * snp.sin(x) * y + (3 * x) ** 2

    for scale, plain in ((1.0, lambda x, y: 3 * snp.sin(x) * y + 4 * x**2), (1.5, scaled)):
        ours, wanted = (tuple(stax.tree.leaves(REVERSED[name](f))) for f in (pair(scale), plain))
        # Where cotangents alone are mapped, values are those of the function.
        if scale == 1.0 or name not in ("cotangents", "jacrev"):
            assert_like_jax(ours, wanted, 1e-5)


def test_a_mask_of_cotangents_goes_through_a_rule() -> None:
    root = custom_vmap(snp.sqrt)
    root.def_vmap(lambda axis_size, in_batched, x: (snp.sqrt(x), True))
    slopes = stax.vmap(stax.grad(lambda x: snp.where(x < 1, x, root(x))))(4 * snp.arange(2.0))
    np.testing.assert_array_equal(slopes, [1, 0.25])


def test_effects_of_a_rule_happen_once_in_reverse_mode() -> None:
    log: list[Any] = []
    f = custom_vmap(lambda x: (stax.debug.callback(log.append, "function"), snp.sin(x))[1])
    f.def_vmap(
        lambda axis_size, in_batched, x: (
            (stax.debug.callback(log.append, "rule"), snp.sin(x))[1],
            True,
        )
    )
    for wrap in (lambda g: g, stax.jit):
        wrap(stax.grad(f))(1.0)
        wrap(stax.vmap(stax.grad(f)))(X)
    assert log == ["function", "rule"] * 2


def test_inside_of_custom_vjp() -> None:
    def program(J: Any, N: Any, seen: Any) -> Any:
        inner = product(J, N, seen)
        f = J.custom_vjp(lambda x, y: inner(x, y))
        f.defvjp(
            lambda x, y: (inner(x, y), (x, y)), lambda kept, ct: (3 * ct * kept[1], inner(*kept))
        )
        return J.vmap(f)(X, X), J.vmap(J.grad(f, (0, 1)))(X, X), J.grad(f)(1.0, 2.0)

    leaves = (
        stax.tree_util.tree_leaves(program(stax, snp, [])),
        jax.tree_util.tree_leaves(program(jax, jax.numpy, [])),
    )
    assert_like_jax(*map(tuple, leaves), 1e-5)


# --- closures ---


def test_what_a_rule_closes_over() -> None:
    def program(J: Any, N: Any, seen: Any) -> Any:
        table = N.arange(3.0)

        def outer(w: Any) -> Any:
            f = J.custom_batching.custom_vmap(lambda x: w * x)

            @f.def_vmap
            def rule(axis_size: int, in_batched: Any, x: Any) -> Any:
                seen.append(axis_size)
                return w * w * x + table + N.asarray([1.0, 2.0, 3.0]), True

            return J.vmap(f)(X)

        return outer(2.0), J.jit(outer)(2.0), J.jacfwd(outer)(2.0), J.jacrev(outer)(2.0)

    ours, theirs = program(stax, snp, []), program(jax, jax.numpy, [])
    assert_like_jax(ours, theirs, 1e-5)


def test_a_rule_in_a_loop_closes_over_traced_values() -> None:
    # JAX has no constants that are traced there.
    def outer(w: Any) -> Any:
        f = custom_vmap(lambda x: w * x)
        f.def_vmap(lambda axis_size, in_batched, x: (w * w * x + snp.arange(3.0), True))
        return stax.vmap(lambda x: stax.lax.scan(lambda c, _: (f(c), None), x, None, 2)[0])(X)

    for function in (outer, stax.jit(outer)):
        np.testing.assert_allclose(function(2.0), 16 * X + 5 * np.arange(3.0), rtol=1e-6)
        slopes = 32 * X + 4 * np.arange(3.0)
        np.testing.assert_allclose(stax.jacfwd(function)(2.0), slopes, rtol=1e-6)
        np.testing.assert_allclose(stax.jacrev(function)(2.0), slopes, rtol=1e-6)


def test_a_jitted_function_keeps_what_its_rules_close_over() -> None:
    @stax.jit
    def scaled(x: Any, w: Any) -> Any:
        doubled = 2 * w
        f = custom_vmap(lambda x: x * doubled)
        f.def_vmap(lambda axis_size, in_batched, x: (x * doubled + 1, True))
        return f(x)

    for _ in range(2):
        found = stax.vmap(scaled, (0, None))(X, 3.0)
        np.testing.assert_allclose(found, X * 6 + 1, rtol=1e-6)
        np.testing.assert_allclose(scaled(X, 3.0), X * 6, rtol=1e-6)


@pytest.mark.parametrize("of", ["function", "rule"])
def test_what_is_closed_over_is_not_mapped(of: str) -> None:
    def program(x: Any) -> Any:
        f = custom_vmap((lambda y: x * y) if of == "function" else (lambda y: y))
        f.def_vmap(lambda axis_size, in_batched, y: (x * y if of == "rule" else y, in_batched[0]))
        return f(x + 1)

    with pytest.raises(errors.MissingRule, match="closes over a mapped array"):
        stax.vmap(program)(X)


def test_names_of_axes() -> None:
    # A rule knows the axes around the vmap that applies it, and not the one that it is given.
    f = custom_vmap(lambda x: x)
    f.def_vmap(lambda axis_size, in_batched, x: (x + stax.lax.psum(x.sum(), "o"), True))
    nested = stax.vmap(stax.vmap(f, axis_name="i"), axis_name="o")
    np.testing.assert_allclose(nested(M), M + M.sum(), rtol=1e-5)
    f.def_vmap(lambda axis_size, in_batched, x: (stax.lax.psum(x, "i"), True))
    with pytest.raises(errors.UnboundAxisNameError, match="'i'"):
        stax.vmap(f, axis_name="i")(X)


# --- sequential_vmap ---


def test_sequential_vmap() -> None:
    def program(J: Any, N: Any, seen: Any) -> Any:
        f = J.custom_batching.sequential_vmap(lambda t, y: {"z": t["x"] * y, "n": t["x"].sum()})
        return (
            J.vmap(f, (0, None))({"x": M}, X),
            J.jit(J.vmap(f, (0, 0)))({"x": M}, M),
            J.vmap(J.vmap(f, (0, None)), (None, 0))({"x": M}, X),
        )

    both(program)
    graph = stax.make_graph(stax.vmap(sequential_vmap(snp.sin)))(X)
    assert any(node.op.name == "scan" for node in graph.nodes)
    assert sequential_vmap(product).__name__ == "product"
    # JAX has no derivatives of it.
    total = lambda m: stax.vmap(sequential_vmap(lambda x, y: (x * y).sum()), (0, None))(m, X).sum()  # noqa: E731
    for derivative in (stax.jacfwd, stax.grad):
        np.testing.assert_allclose(derivative(total)(M), np.broadcast_to(X, M.shape), rtol=1e-6)


# --- bad input ---


@pytest.mark.parametrize(
    ("rule", "error", "message"),
    [
        (lambda n, b, x: (x, True), errors.ArgumentValueError, "other trees"),
        (lambda n, b, x: ({"a": x}, True), errors.ArgumentValueError, "other trees"),
        (lambda n, b, x: ({"a": x, "b": x}, {"a": True}), errors.ArgumentValueError, "other trees"),
        (lambda n, b, x: {"a": x}, errors.ArgumentError, "has to return a pair"),
        (lambda n, b, x: ({"a": x[:2]}, {"a": True}), errors.ShapeError, "f32.2. where f32.3."),
        (lambda n, b, x: ({"a": x}, {"a": False}), errors.ShapeError, "f32.3. where f32.. is"),
        (lambda n, b, x: ({"a": x > 0}, {"a": True}), errors.DTypeError, "bool.3. where f32.3."),
    ],
)
def test_a_rule_that_returns_something_else(rule: Any, error: Any, message: str) -> None:
    f = custom_vmap(lambda x: {"a": x * 2})
    f.def_vmap(rule)
    with pytest.raises(error, match=message):
        stax.vmap(f)(X)
    with pytest.raises(error, match=message):
        stax.jit(stax.vmap(lambda x: stax.lax.scan(lambda c, _: (c, f(x)), 0, None, 2)))(X)


def test_a_function_without_a_rule() -> None:
    with pytest.raises(errors.MissingRule, match="cube has no rule"):

        @custom_vmap
        def cube(x: Any) -> Any:
            return x**3

        cube(1.0)
    with pytest.raises(errors.ArgumentError, match="not callable"):
        custom_vmap(1)  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match="not callable"):
        cube.def_vmap(None)
