"""Rules that close over arrays and over values of every kind of trace, to third order.

JAX refuses most of these programs.  What they mean is what the same program means where the value
is an argument without derivative: that is what JAX runs here.
"""

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
from stax.graph import ArrayConstant, held_graphs
from stax.lowering.hoist import hoisted

Function = Callable[..., Any]
X = np.linspace(0.3, 1, 2, dtype=np.float32)
MANY = np.stack([X, X * np.float32(0.5), X * np.float32(1.5)])
W, WS = np.float32(0.7), np.array([0.7, 0.8, 0.9], np.float32)


def with_jvp(J: Any, fun: Function, rule: Function, w: Any, closing: bool) -> Function:
    """A function whose rule(f, y, dy, w) closes over w, or is given it as an argument."""
    if closing:
        f = J.custom_jvp(fun)
        f.defjvp(lambda primals, dots: rule(f, primals[0], dots[0], w))
        return f
    g = J.custom_jvp(lambda y, v: fun(y))
    g.defjvp(
        lambda primals, dots: rule(lambda y: g(y, primals[1]), primals[0], dots[0], primals[1])
    )
    return lambda y: g(y, w)


def with_vjp(J: Any, fun: Function, fwd: Function, bwd: Function, w: Any, closing: bool) -> Any:
    """The same for fwd(f, y, w) and bwd(f, residuals, ct, w)."""
    if closing:
        f = J.custom_vjp(fun)
        f.defvjp(lambda y: fwd(f, y, w), lambda kept, ct: (bwd(f, kept, ct, w),))
        return f
    g = J.custom_vjp(lambda y, v: fun(y))

    def forward(y: Any, v: Any) -> Any:
        out, kept = fwd(lambda y: g(y, v), y, v)
        return out, (kept, v)

    def backward(both: Any, ct: Any) -> Any:
        kept, v = both
        return bwd(lambda y: g(y, v), kept, ct, v), 0 * v

    g.defvjp(forward, backward)
    return lambda y: g(y, w)


def programs(J: Any, N: Any, closing: bool) -> dict[str, Function]:
    """Functions of x and w with rules that are wrong on purpose."""

    def jvp(rule: Function) -> Function:
        return lambda x, w: with_jvp(J, N.sin, rule, w, closing)(x)

    def twice(rule: Function) -> Function:
        def run(x: Any, w: Any) -> Any:
            f = with_jvp(J, N.sin, rule, w, closing)
            return f(x) * f(x * w)

        return run

    def vjp(fwd: Function, bwd: Function) -> Function:
        return lambda x, w: with_vjp(J, N.sin, fwd, bwd, w, closing)(x)

    def looped(f: Function, y: Any, dy: Any, w: Any) -> Any:
        step = lambda c, _: (c * f(y) * w + dy, None)  # noqa: E731
        return f(y), J.lax.scan(step, dy, None, length=2)[0]

    def chosen(f: Function, y: Any, dy: Any, w: Any) -> Any:
        return f(y), J.lax.cond(w > 0, lambda: dy * w * f(y), lambda: dy)

    return {
        "tangents": jvp(lambda f, y, dy, w: (f(y), dy * N.cos(y) * w)),
        "its own function": twice(lambda f, y, dy, w: (f(y), dy * f(y * w) * w)),
        "a loop": jvp(looped),
        "a choice": jvp(chosen),
        "fwd": vjp(lambda f, y, w: (f(y), N.cos(y) * w), lambda f, kept, ct, w: ct * kept),
        "bwd": vjp(lambda f, y, w: (f(y), y), lambda f, y, ct, w: ct * N.cos(y) * w),
        "both": vjp(
            lambda f, y, w: (f(y), (y, f(y * w))), lambda f, kept, ct, w: ct * f(kept[0]) * kept[1]
        ),
    }


THEIRS, OURS = programs(jax, jnp, False), programs(stax, snp, True)


def total(f: Function) -> Function:
    return lambda x, w: f(x, w).sum()


BOTH = (0, 1)
# JAX has no forward mode over a custom_vjp, so the outer transform is given.
KINDS: dict[str, Function] = {
    "grad": lambda J, f, jacobian: J.grad(total(f), BOTH),
    "forward over reverse": lambda J, f, jacobian: jacobian(J.grad(total(f), BOTH), BOTH),
    "reverse over reverse": lambda J, f, jacobian: J.jacrev(J.grad(total(f), BOTH), BOTH),
    "third": lambda J, f, jacobian: jacobian(jacobian(J.grad(total(f)))),
}
# A transform around, and which of x and w it maps.
AROUND: dict[str, tuple[Function, bool, bool]] = {
    "eager": (lambda J, f: f, False, False),
    "jit": (lambda J, f: J.jit(f), False, False),
    "vmap": (lambda J, f: J.vmap(f), True, True),
    "vmap of w": (lambda J, f: J.vmap(f, (None, 0)), False, True),
    "jit of vmap of x": (lambda J, f: J.jit(J.vmap(f, (0, None))), True, False),
    "scan": (
        lambda J, f: lambda x, w: J.lax.scan(lambda c, a: (c, f(*a)), 0.0, (x, w))[1],
        True,
        True,
    ),
}
THOROUGH = ("its own function", "a loop", "both")
CASES = [
    (name, kind, "eager")
    for name in OURS
    for kind in KINDS
    if name in THOROUGH or kind == "reverse over reverse"
]
CASES += [
    (name, "forward over reverse", around)
    for name in OURS
    for around in (AROUND if name in THOROUGH else ["jit of vmap of x"])
    if around != "eager"
]


def run(J: Any, N: Any, f: Function, kind: str, around: str, jacobian: Function) -> Any:
    wrap, maps_x, maps_w = AROUND[around]
    given = N.asarray(MANY if maps_x else X), N.asarray(WS if maps_w else W)
    return wrap(J, KINDS[kind](J, f, jacobian))(*given)


def assert_like(ours: Any, theirs: Any) -> None:
    for a, b in zip(stax.tree_util.tree_leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("name", "kind", "around"), CASES)
def test_closures(name: str, kind: str, around: str) -> None:
    theirs = jax.jit(lambda: run(jax, jnp, THEIRS[name], kind, around, jax.jacrev))()
    assert_like(run(stax, snp, OURS[name], kind, around, stax.jacfwd), theirs)


def mutual(J: Any, N: Any, w: Any) -> Function:
    """Two functions whose rules apply each other; w is an array."""
    f, g = J.custom_jvp(lambda y: N.sin(y)), J.custom_jvp(lambda y: N.cos(y))
    f.defjvp(lambda p, t: (f(*p), t[0] * g(p[0]) * w))
    g.defjvp(lambda p, t: (g(*p), -t[0] * f(p[0]) * w))
    return lambda x: f(x) * g(x)


def test_rules_that_apply_each_other() -> None:
    theirs = jax.jit(jax.jacfwd(jax.hessian(lambda x: mutual(jax, jnp, W)(x).sum())))(X)
    ours = stax.jit(stax.jacfwd(stax.hessian(lambda x, w: mutual(stax, snp, w)(x).sum())))(X, W)
    assert_like(ours, theirs)


def test_a_rule_that_makes_a_function_like_its_own() -> None:
    def cosine(x: Any, w: Any) -> Any:
        f = stax.custom_jvp(lambda y: snp.sin(y))
        f.defjvp(lambda p, t: (cosine(p[0], w), t[0] * cosine(p[0], w) * w))
        return f(x)

    for order in (1, 2, 3):
        g: Function = lambda x, w: cosine(x, w)  # noqa: E731
        for _ in range(order):
            g = stax.grad(g)
        np.testing.assert_allclose(stax.jit(g)(0.5, 2.0), 2.0**order * np.sin(0.5), rtol=1e-6)


def test_an_array_in_a_loop_to_second_order() -> None:
    """JAX applies the rule in the first order only, if the loop is not unrolled."""

    def of(J: Any, N: Any, loops: bool) -> Function:
        w = N.asarray(X * 3)
        f = J.custom_jvp(lambda x: N.sin(x))
        f.defjvp(lambda p, t: (f(*p), t[0] * w * f(p[0])))

        def value(x: Any) -> Any:
            if loops:
                return J.lax.scan(lambda c, _: (f(c) * 1.1, None), x, None, length=3)[0].sum()
            for _ in range(3):
                x = f(x) * 1.1
            return x.sum()

        return value

    theirs = jax.jit(jax.hessian(of(jax, jnp, loops=False)))(X)
    for transform in (stax.hessian, lambda f: stax.jacrev(stax.grad(f))):
        for wrap in (lambda f: f, stax.jit):
            assert_like(wrap(transform(of(stax, snp, loops=True)))(X), theirs)


@pytest.mark.parametrize("kind", ["while", "switch", "call", "twice"])
def test_arrays_are_hidden_arguments_wherever_they_are(kind: str) -> None:
    w = snp.asarray(X * 3)
    f = stax.custom_jvp(lambda x: snp.sin(x))
    f.defjvp(lambda p, t: (f(*p), t[0] * w * f(p[0])))
    bodies: dict[str, Function] = {
        "while": lambda x: stax.lax.while_loop(
            lambda c: c[1] < 2, lambda c: (f(c[0]), c[1] + 1), (x, 0)
        )[0],
        "switch": lambda x: stax.lax.switch(1, [snp.cos, lambda y: f(f(y))], x),
        "call": stax.checkpoint(lambda x: f(f(x))),
        "twice": lambda x: f(f(x)),
    }
    push = lambda x: stax.jvp(lambda y: stax.jvp(bodies[kind], (y,), (y,))[1], (x,), (x,))[1]  # noqa: E731
    expected = stax.jvp(lambda y: stax.jvp(bodies["twice"], (y,), (y,))[1], (X,), (X,))[1]
    graph = stax.make_graph(push)(X)
    assert arrays_in(graph)
    bare, arrays = hoisted(graph)
    assert [a is w for a in arrays] == [True]
    assert not arrays_in(bare)
    jitted = stax.jit(push)
    for _ in range(2):  # the second call is native
        np.testing.assert_allclose(jitted(snp.asarray(X)), expected, rtol=2e-5)


def arrays_in(graph: Any) -> list[Any]:
    """The arrays that a graph holds."""
    inner = [g for node in graph.nodes for g in held_graphs(node.op)]
    own = [node.op for node in graph.nodes if isinstance(node.op, ArrayConstant)]
    return own + [op for g in inner for op in arrays_in(g)]


def test_the_values_of_an_eager_transform_are_known_in_functions_and_rules() -> None:
    def of(J: Any, N: Any) -> Function:
        f = J.custom_jvp(lambda x: x * 2 if x > 1 else x)
        f.defjvp(lambda p, t: (f(*p), t[0] * (3.0 if p[0] > 1 else 5.0)))
        return f

    for x in (0.5, 2.0):
        assert float(of(stax, snp)(x)) == float(of(jax, jnp)(x))
        assert float(stax.grad(of(stax, snp))(x)) == float(jax.grad(of(jax, jnp))(x))
    with pytest.raises(errors.TracerBoolConversionError):
        stax.jit(of(stax, snp))(2.0)


def test_cotangents_of_what_a_rule_closes_over_and_is_not_mapped() -> None:
    """The cotangent of an argument that vmap does not map is a sum over the lanes."""

    def of(J: Any, N: Any) -> Function:
        f = J.custom_vjp(lambda x, w: N.sin(x) * w)
        f.defvjp(
            lambda x, w: (f(x, w), (x, w)),
            lambda kept, ct: (3 * ct * N.cos(kept[0]) * kept[1], 5 * (ct * N.sin(kept[0])).sum()),
        )
        return lambda w, m: J.vmap(lambda x: f(x, w))(m).sum()

    for wrap in (lambda f: f, stax.jit):
        ours = wrap(stax.grad(of(stax, snp), (0, 1)))(W, MANY)
        assert_like(ours, jax.jit(jax.grad(of(jax, jnp), (0, 1)))(W, MANY))


def test_a_closure_that_was_not_there_at_first() -> None:
    """What only a later trace of the rule closes over has no place among the operands."""
    late: list[Any] = []

    def rule(primals: Any, tangents: Any) -> Any:
        out = f(*primals)
        return out, tangents[0] * out * (late[0] if late else 1.0)

    f = stax.custom_jvp(lambda x: snp.sin(x))
    f.defjvp(rule)

    def value(x: Any, w: Any) -> Any:
        y = stax.grad(f)(x)  # f inside of the rule is traced when it is differentiated
        late.append(w)
        return y

    with pytest.raises(errors.UnexpectedTracerError, match="rule"):
        stax.jit(stax.grad(lambda x, w: stax.grad(value)(x, w)))(0.5, 2.0)


def test_rules_of_methods_close_over_their_object() -> None:
    class Layer:
        def __init__(self, scale: Any) -> None:
            self.scale = scale

        @functools.partial(stax.custom_jvp, nondiff_argnums=(0,))
        def apply(self, x: Any) -> Any:
            return snp.sin(x)

        @apply.defjvp
        def _apply_jvp(self, primals: Any, tangents: Any) -> Any:
            return self.apply(*primals), tangents[0] * self.scale * self.apply(*primals)

    def slope(scale: Any, x: Any) -> Any:
        return stax.grad(stax.grad(Layer(scale).apply))(x)

    for wrap in (lambda f: f, stax.jit):
        np.testing.assert_allclose(wrap(slope)(3.0, 0.5), 9 * np.sin(0.5), rtol=1e-6)
        np.testing.assert_allclose(wrap(stax.grad(slope))(3.0, 0.5), 6 * np.sin(0.5), rtol=1e-6)


STEPS: dict[str, Any] = {
    "scan": lambda lax, g: lambda x: lax.scan(lambda c, _: (g(c), None), x, None, length=3)[0],
    "fori_loop": lambda lax, g: lambda x: lax.fori_loop(0, 3, lambda i, c: g(c), x),
    "while_loop": lambda lax, g: (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, g(c[1])), (0, x))[1]
    ),
    "cond": lambda lax, g: g,
}


@pytest.mark.parametrize("kind", STEPS)
def test_a_rule_that_pushes_tangents_through_a_loop_with_a_choice(kind: str) -> None:
    """Results and tangents come out of one loop, of which reverse mode wants the linear part."""

    def choice(lib: Any, numpy: Any) -> Any:
        return lambda c: lib.lax.cond(c > 0, numpy.sin, lambda c: c * 0.3, c)

    plain = STEPS[kind](stax.lax, choice(stax, snp))
    theirs = STEPS["fori_loop" if kind == "while_loop" else kind](jax.lax, choice(jax, jnp))
    ruled = stax.custom_jvp(plain)
    ruled.defjvp(lambda primals, tangents: stax.jvp(plain, primals, tangents))
    for x in (0.3, -0.3):
        for f, g in (
            (stax.grad(ruled), jax.grad(theirs)),
            (stax.jit(stax.grad(stax.grad(ruled))), jax.grad(jax.grad(theirs))),
            (
                lambda x: stax.jvp(stax.grad(ruled), (x,), (1.0,))[1],
                lambda x: jax.jvp(jax.grad(theirs), (x,), (1.0,))[1],
            ),
        ):
            np.testing.assert_allclose(float(f(x)), float(jax.jit(g)(x)), rtol=1e-5, atol=1e-6)
