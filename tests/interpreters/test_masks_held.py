"""Masks of cotangents through calls, choices, loops and custom rules: to second order, any way."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.control.scan import Scan

Function = Callable[[Any], Any]


@stax.custom_jvp
def root_by_rule(x: Any) -> Any:
    return snp.sqrt(x)


root_by_rule.defjvp(lambda xs, ts: (root_by_rule(*xs), ts[0] * 0.5 / root_by_rule(*xs)))


def once(f: Function, x: Any) -> Any:
    """`f` of x as the one step of a scan."""
    return lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


def while_once(f: Function, x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 1, lambda c: (c[0] + 1, f(c[1])), (0, x))[1]


def branch(x: Any, taken: Any, other: Any) -> Any:
    return snp.where(x < 1, taken, other)


def root_then_mask(x: Any) -> Any:
    """A root in the first step of a loop that the second step masks."""

    def step(c: Any, k: Any) -> tuple[Any, None]:
        return snp.where(k == 0, snp.sqrt(c), branch(x, x, c)), None

    return lax.scan(step, x, snp.arange(2))[0]


# Each is x below 1 and its root from 1 on; JAX has NaN at 0 for all but the choice of a branch.
WAYS: dict[str, Function] = {
    "around a scan": lambda x: branch(x, x, once(snp.sqrt, x)),
    "around what a scan stacks": lambda x: branch(
        x, x, lax.scan(lambda c, _: (c, snp.sqrt(c)), x, None, length=1)[1][0]
    ),
    "around a map": lambda x: branch(x, x, lax.map(snp.sqrt, x[None])[0]),
    "in a scan": lambda x: once(lambda c: branch(c, c, snp.sqrt(c)), x),
    "in a scan, of an element": lambda x: lax.scan(
        lambda c, root: (branch(x, c, root), None), x, snp.sqrt(x)[None]
    )[0],
    "in a scan, of a constant": lambda x: (lambda root: once(lambda c: branch(x, c, root), x))(
        snp.sqrt(x)
    ),
    "from step to step": root_then_mask,
    "around a while loop": lambda x: branch(x, x, while_once(snp.sqrt, x)),
    "in a while loop": lambda x: while_once(lambda c: branch(c, c, snp.sqrt(c)), x),
    "around a counted loop": lambda x: branch(
        x, x, lax.fori_loop(0, 1, lambda i, c: snp.sqrt(c), x)
    ),
    "around a checkpoint": lambda x: branch(x, x, stax.checkpoint(snp.sqrt)(x)),
    "in a checkpoint": lambda x: stax.checkpoint(lambda x: branch(x, x, snp.sqrt(x)))(x),
    "out of a checkpoint": lambda x: stax.checkpoint(lambda x, r: branch(x, x, r))(x, snp.sqrt(x)),
    "around a jitted function": lambda x: branch(x, x, stax.jit(snp.sqrt)(x)),
    "out of a jitted function": lambda x: stax.jit(lambda x, r: branch(x, x, r))(x, snp.sqrt(x)),
    "a choice": lambda x: lax.cond(x < 1, lambda x: x, snp.sqrt, x),
    "around a choice": lambda x: branch(x, x, lax.cond(x < 9, snp.sqrt, lambda x: x, x)),
    "out of a choice": lambda x: lax.cond(
        x < 1, lambda x, r: x, lambda x, r: r, x, snp.sqrt(x)
    ),
    "around a custom rule": lambda x: branch(x, x, root_by_rule(x)),
    "a loop in a checkpoint": lambda x: branch(
        x, x, stax.checkpoint(lambda x: once(snp.sqrt, x))(x)
    ),
}  # fmt: skip


def pushed(f: Function) -> Function:
    return lambda x: stax.jvp(f, (x,), (snp.ones_like(x),))[1]


SECOND: dict[str, Callable[[Function], Function]] = {
    "grad of grad": lambda f: stax.grad(stax.grad(f)),
    "jvp of grad": lambda f: pushed(stax.grad(f)),
    "grad of jvp": lambda f: stax.grad(pushed(f)),
    "hessian": stax.hessian,
}
POINTS = snp.array([0.0, 0.5, 4.0])


def close(found: Any, right: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(right, np.float32), 1e-5)


@pytest.mark.parametrize("name", WAYS)
def test_first_order(name: str) -> None:
    f = WAYS[name]
    right = [1, 1, 0.25]
    close([stax.grad(f)(x) for x in POINTS], right)
    close(stax.jit(stax.vmap(stax.grad(f)))(POINTS), right)
    close(stax.grad(lambda v: stax.vmap(f)(v).sum())(POINTS), right)


@pytest.mark.parametrize("second", SECOND)
@pytest.mark.parametrize("name", WAYS)
def test_second_order(name: str, second: str) -> None:
    transform = SECOND[second]
    right = [0, 0, -1 / 32]
    close(transform(WAYS[name])(POINTS[0]), right[0])
    close(stax.vmap(transform(WAYS[name]))(POINTS), right)


@pytest.mark.parametrize("name", ["around a scan", "in a while loop", "out of a choice"])
def test_second_order_compiled(name: str) -> None:
    close(stax.jit(stax.vmap(stax.grad(stax.grad(WAYS[name]))))(POINTS), [0, 0, -1 / 32])
    close(stax.jit(stax.hessian(lambda v: stax.vmap(WAYS[name])(v).sum()))(POINTS),
          np.diag([0, 0, -1 / 32]))  # fmt: skip


# --- a zero that is not masked stays an ordinary one ---

UNMASKED: dict[str, Function] = {
    "scan": lambda x: once(lambda c: 0 * snp.sqrt(c), x),
    "around a scan": lambda x: 0 * once(snp.sqrt, x),
    "while": lambda x: while_once(lambda c: 0 * snp.sqrt(c), x),
    "cond": lambda x: lax.cond(x < 1, lambda x: 0 * snp.sqrt(x), lambda x: x, x),
    "checkpoint": lambda x: 0 * stax.checkpoint(snp.sqrt)(x),
    "live in another use": lambda x: branch(x, x, once(snp.sqrt, x)) + 0 * once(snp.sqrt, x),
    "live in another step": lambda x: lax.scan(
        lambda c, k: (snp.where(k == 0, 0 * snp.sqrt(x) + c, c), None), x, snp.arange(2)
    )[0],
}


@pytest.mark.parametrize("name", UNMASKED)
def test_what_is_not_masked_stays(name: str) -> None:
    assert np.isnan(stax.grad(UNMASKED[name])(0.0))
    assert np.isnan(stax.vmap(stax.grad(UNMASKED[name]))(snp.zeros(2))).all()


HOLDERS: dict[str, Callable[[Function], Function]] = {
    "scan": lambda f: lambda x: once(f, x),
    "while": lambda f: lambda x: while_once(f, x),
    "checkpoint": stax.checkpoint,
    "cond": lambda f: lambda x: lax.cond(True, f, lambda x: x, x),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_right_or_nan_never_finite_and_wrong(holder: str) -> None:
    hold = HOLDERS[holder]
    for f in (lambda x: snp.sqrt(x) * snp.sqrt(x), lambda x: hold(snp.sqrt)(x) ** 2):
        gradient = stax.grad(hold(f))(0.0)
        assert gradient == 1 or np.isnan(gradient)

    squared = (
        lambda x: hold(lambda n: n**2)(snp.linalg.norm(x)),
        lambda x: hold(lambda v: snp.full_like(v, snp.linalg.norm(v) ** 2))(x)[0],
    )
    for f in squared:
        close(stax.grad(f)(snp.zeros(2)), [0, 0])
        at_zero = np.asarray(stax.hessian(f)(snp.zeros(2)))
        assert np.isnan(at_zero).all() or (at_zero == 2 * np.eye(2)).all()
        close(stax.hessian(f)(snp.array([3.0, 4.0])), 2 * np.eye(2))


# --- what masks cost ---


def loops(graph: Any) -> list[Scan]:
    return [node.op for node in graph.nodes if isinstance(node.op, Scan)]


def test_a_loop_without_selects_carries_no_mask() -> None:
    def f(w: Any, xs: Any) -> Any:
        return lax.scan(lambda h, x: ((h := snp.tanh(h @ w + x)), h), snp.ones(3), xs)[1].sum()

    graph = stax.make_graph(stax.grad(f))(snp.ones((3, 3)), snp.ones((5, 3)))
    backward = loops(graph)[-1]
    assert all(t.dtype != bool for t in backward.body.input_types)


def test_a_choice_between_a_step_and_none_leaves_no_mask() -> None:
    # Both branches of the select together are all lanes.
    def f(x: Any, valid: Any) -> Any:
        def step(c: Any, v: Any) -> Any:
            return snp.where(v, snp.tanh(c), c), None

        return lax.scan(step, x, valid)[0].sum()

    graph = stax.make_graph(stax.grad(f))(snp.ones(3), snp.ones((5, 3), bool))
    backward = loops(graph)[-1]
    assert not any(t.dtype == bool for t in backward.body.output_types)


def test_jax_still_differs() -> None:
    def of_jax(x: Any) -> Any:
        step = lambda c, _: (jnp.where(c < 1, c, jnp.sqrt(c)), None)  # noqa: E731
        return jax.lax.scan(step, x, None, length=1)[0]

    assert np.isnan(jax.grad(of_jax)(0.0))
