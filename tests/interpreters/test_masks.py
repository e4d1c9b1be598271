"""A masked cotangent absorbs, by mask, never by value: to any order, in any nesting."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax

MODES = [pytest.param(lambda f: f, id="eager"), pytest.param(stax.jit, id="jit")]
both = pytest.mark.parametrize("mode", MODES)
FIRST, SECOND = snp.array([True, False]), snp.array([False, True])
Mode = Callable[[Callable[..., Any]], Callable[..., Any]]


def close(result: Any, right: Any) -> None:
    np.testing.assert_allclose(np.asarray(result), np.asarray(right, np.float32), 1e-6)


def branch(x: Any) -> Any:
    return snp.where(x < 1, x, snp.sqrt(x))


NESTINGS: list[tuple[str, Any, Any]] = [
    ("grad", stax.vmap(stax.grad(branch)), [1, 1, 0.25]),
    ("jacfwd", stax.vmap(stax.jacfwd(branch)), [1, 1, 0.25]),
    ("grad of grad", stax.vmap(stax.grad(stax.grad(branch))), [0, 0, -1 / 32]),
    ("forward over reverse", stax.vmap(stax.jacfwd(stax.grad(branch))), [0, 0, -1 / 32]),
    ("reverse over forward", stax.vmap(stax.grad(stax.jacfwd(branch))), [0, 0, -1 / 32]),
    ("hessian", stax.vmap(stax.hessian(branch)), [0, 0, -1 / 32]),
    ("grad of vmap of grad", stax.grad(lambda v: stax.vmap(stax.grad(branch))(v).sum()),
     [0, 0, -1 / 32]),
    ("hessian of a sum", lambda x: snp.diag(stax.hessian(lambda v: branch(v).sum())(x)),
     [0, 0, -1 / 32]),
    ("third", stax.vmap(stax.grad(stax.grad(stax.grad(branch)))), [0, 0, 3 / 256]),
]  # fmt: skip


@both
@pytest.mark.parametrize(("transform", "right"), [n[1:] for n in NESTINGS],
                         ids=[n[0] for n in NESTINGS])  # fmt: skip
def test_orders_and_nestings(mode: Mode, transform: Any, right: Any) -> None:
    close(mode(transform)(snp.array([0.0, 0.5, 4.0])), right)


def root(x: Any) -> Any:
    """A function whose derivative at 0 is infinite."""
    return snp.sqrt(x)


# A linear op between the root and the select that masks it, the argument, the gradient.
LINEAR: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "multiply": (lambda x: snp.where(FIRST, 0.0, 3 * root(x)), [0.0, 1], [0, 1.5]),
    "divide": (lambda x: snp.where(FIRST, 0.0, root(x) / 2), [0.0, 1], [0, 0.25]),
    "convert": (lambda x: snp.where(FIRST, 0.0, root(x).astype("float16")), [0.0, 1], [0, 0.5]),
    "reshape": (lambda x: snp.where(FIRST, 0.0, root(x).reshape(2)), [[0.0], [1]], [[0], [0.5]]),
    "transpose": (lambda x: snp.where(FIRST, 0.0, root(x).T), [[0.0], [1]], [[0], [0.5]]),
    "slice": (lambda x: snp.where(FIRST, 0.0, root(x)[1:]), [0.0, 0, 1], None),
    "rev": (lambda x: snp.where(FIRST, 0.0, root(x)[::-1]), [1.0, 0], [0.5, 0]),
    "broadcast": (
        lambda x: snp.where(FIRST, 0.0, snp.broadcast_to(root(x), (3, 2))), [0.0, 1], [0, 1.5],
    ),
    "expand": (
        lambda x: snp.where(FIRST[:, None], 0.0, snp.broadcast_to(root(x), (2, 3))),
        [[0.0], [1]], [[0], [1.5]],
    ),
    "concatenate": (
        lambda x: snp.where(FIRST, 0.0, snp.concatenate([root(x), snp.ones(1)])), [0.0], [0],
    ),
    "pad": (lambda x: snp.where(FIRST, 0.0, snp.pad(root(x), (0, 1))), [0.0], [0]),
    "cut": (lambda x: snp.where(FIRST, 0.0, lax.pad(root(x), 0.0, [(-1, 1, 0)])), [1.0, 0], [0, 0]),
    "dilate": (
        lambda x: snp.where(snp.arange(3) < 2, 0.0, lax.pad(root(x), 0.0, [(0, 0, 1)])),
        [0.0, 1], [0, 0.5],
    ),
    "sum": (lambda x: snp.where(FIRST, 0.0, root(x).sum(1)), [[0.0, 0], [1, 4]],
            [[0, 0], [0.5, 0.25]]),
    "running sum": (lambda x: snp.where(SECOND, 0.0, snp.cumsum(root(x))), [1.0, 0], [0.5, 0]),
    "running sum, reverse": (
        lambda x: snp.where(FIRST, 0.0, lax.cumsum(root(x), reverse=True)), [0.0, 1], [0, 0.5],
    ),
    "select": (lambda x: snp.where(FIRST, 0.0, snp.where(SECOND, root(x), 1.0)), [0.0, 1],
               [0, 0.5]),
}  # fmt: skip
LINEAR["slice"] = (
    lambda x: snp.where(snp.arange(3) < 2, 0.0, root(x))[1:], [0.0, 0, 1], [0, 0, 0.5],
)  # fmt: skip


@both
@pytest.mark.parametrize("name", LINEAR)
def test_masks_pass_linear_ops(mode: Mode, name: str) -> None:
    function, x, right = LINEAR[name]
    x = snp.array(x, "float32")
    gradient = stax.grad(lambda x: function(x).sum())
    close(mode(gradient)(x), right)
    close(mode(stax.vmap(gradient))(snp.stack([x, x])), [right, right])


@both
@pytest.mark.parametrize(
    "function",
    [
        lambda x: snp.log(x) * x,
        lambda x: 1 / x,
        lambda x: x**-2,
        lambda x: x**0.5,
        lambda x: snp.exp(snp.sqrt(snp.log(x))),
        lambda x: snp.arctan2(x, x),
    ],
)
def test_what_is_not_taken_adds_nothing(mode: Mode, function: Any) -> None:
    def f(x: Any) -> Any:
        return snp.where(x > 0, function(x), 0.0)

    close(mode(stax.grad(f))(0.0), 0)
    close(mode(stax.grad(stax.grad(f)))(0.0), 0)
    close(mode(stax.hessian(f))(0.0), 0)


@both
def test_a_lane_that_is_live_is_not_absorbed(mode: Mode) -> None:
    assert np.isnan(mode(stax.grad(lambda x: 0.0 * snp.sqrt(x)))(0.0))
    # Live in one of two uses is live.
    f = stax.grad(lambda x: snp.where(x > 0, root(x), 0.0) + 0 * root(x))
    assert np.isnan(mode(f)(0.0))
    assert mode(stax.grad(lambda x: snp.where(x < 1, root(x), 0.0)))(0.0) == math.inf


@both
def test_right_or_nan_never_finite_and_wrong(mode: Mode) -> None:
    gradient = mode(stax.grad(lambda x: snp.sqrt(x) * snp.sqrt(x)))(0.0)
    assert gradient == 1 or np.isnan(gradient)

    def squared(x: Any) -> Any:
        return snp.linalg.norm(x) ** 2

    forward, reverse = stax.jacfwd, stax.jacrev
    for outer in (forward, reverse):
        for inner in (forward, reverse):
            hessian = np.asarray(mode(outer(inner(squared)))(snp.zeros(2)))
            assert np.isnan(hessian).all() or (hessian == 2 * np.eye(2)).all()
            close(mode(outer(inner(squared)))(snp.array([3.0, 4.0])), 2 * np.eye(2))
