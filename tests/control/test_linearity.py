"""Forward mode over a custom_vjp: which backward rules are linear, and what is said of others."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors, lax

Rule = Callable[[Any], Any]


def pushed(rule: Rule, x: Any = 1.0, t: Any = 2.0) -> Any:
    """The tangent of an identity whose cotangent is pulled back by `rule`."""
    same = stax.custom_vjp(lambda x: x)
    same.defvjp(lambda x: (x, None), lambda _, c: (rule(c),))
    return stax.jvp(same, (x,), (t,))[1]


def pulled(f: Callable[[Any], Any]) -> Rule:
    return lambda c: stax.vjp(f, 0.7)[1](c)[0]


NOT_LINEAR: dict[str, tuple[Rule, str]] = {
    "add": (lambda c: c + 1, "add"),
    "sub": (lambda c: 2 * c - 3, "sub"),
    "constant": (lambda c: snp.float32(5), "array"),
    "full": (lambda c: snp.full((), 5.0), "constant"),
    "concatenate": (lambda c: snp.stack([c, 1.0]).sum(), "concatenate"),
    "pad": (lambda c: snp.pad(c[None], 1, constant_values=1.0).sum(), "pad"),
    "scan": (lambda c: lax.scan(lambda k, _: (k + 1, None), c, None, length=3)[0], "add"),
    "scan carry": (
        lambda c: lax.scan(lambda k, _: (c, None), snp.ones(()), None, length=2)[0],
        "scan",
    ),
    "while condition": (lambda c: lax.while_loop(lambda k: k < 9, lambda k: k * 2, c), "lt"),
    "call": (lambda c: stax.jit(lambda c: c + 1)(c), "add"),
    "branches": (lambda c: lax.cond(True, lambda: c, lambda: snp.float32(1)), "switch"),
    "predicate": (lambda c: lax.cond(c > 0, lambda: c, lambda: c * 2), "gt"),
    "stop_gradient": (lax.stop_gradient, "stop_gradient"),
    "convert": (lambda c: c.astype(snp.int32).astype(snp.float32), "convert"),
    "product": (lambda c: c * c, "mul"),
    "denominator": (lambda c: 1 / c, "div"),
    "contraction": (lambda c: snp.dot(c[None], c[None]), "dot"),
    "mask": (lambda c: snp.where(c > 0, c, 0), "gt"),
    "select": (lambda c: snp.where(snp.arange(2) > 0, c, 1.0).sum(), "select"),
    "nan_to_num": (snp.nan_to_num, "ne"),
    "clip": (lambda c: snp.clip(c, -1, 1), "maximum"),
    "scatter": (lambda c: snp.ones(2).at[0].set(c).sum(), "scatter|dynamic_update_slice"),
    "fill": (lambda c: c[None].at[snp.arange(2)].get(mode="fill", fill_value=1).sum(), "gather"),
}

LINEAR: dict[str, tuple[Rule, float]] = {
    "zero": (lambda c: 0.0, 0.0),
    "zeros": (snp.zeros_like, 0.0),
    "zero added": (lambda c: c * 3 + 0.0, 6.0),
    "mask": (lambda c: snp.where(snp.arange(3) > 0, c, 0).sum(), 4.0),
    "scatter": (lambda c: snp.zeros(3).at[snp.array([0, 1])].add(c).sum(), 4.0),
    "pad": (lambda c: snp.pad(c[None], 1).sum(), 2.0),
    "complex": (lambda c: (1j * c).imag + c, 4.0),
    "loop": (lambda c: lax.fori_loop(0, 3, lambda i, k: k * 2, c), 16.0),
    "while": (
        lambda c: lax.while_loop(lambda k: k[0] < 3, lambda k: (k[0] + 1, k[1] * 2), (0, c))[1],
        16.0,
    ),
    "solve": (
        lambda c: lax.custom_linear_solve(lambda x: 2 * x, c, lambda _, b: b / 2, symmetric=True),
        1.0,
    ),
    "contraction": (lambda c: snp.dot(snp.arange(3.0), snp.ones(3) * c), 6.0),
}

PULLED: dict[str, Callable[[Any], Any]] = {
    "select": lambda x: snp.where(x < 1, x, snp.sqrt(x)),
    "reductions": lambda x: snp.prod(snp.stack([x, x])) + snp.cumsum(x * snp.arange(3.0))[1],
    "scan": lambda x: lax.scan(lambda k, y: (snp.sin(k) * y, k), x, snp.arange(1.0, 4))[0],
    "while": lambda x: lax.while_loop(lambda k: k < 3, lambda k: k * 2, x),
    "cond": lambda x: lax.cond(x > 0, snp.sin, lambda x: snp.ones(()), x),
    "checkpoint": stax.checkpoint(lambda x: snp.sin(snp.sin(x))),
    "matrices": lambda x: snp.linalg.inv(x * snp.eye(2)).sum() + snp.linalg.det(x * snp.eye(2)),
    "sort": lambda x: snp.sort(x * snp.arange(3.0))[1] + snp.fft.fft(x * snp.ones(2)).real.sum(),
}


@pytest.mark.parametrize("name", NOT_LINEAR)
def test_what_is_not_linear_is_named(name: str) -> None:
    rule, op = NOT_LINEAR[name]
    with pytest.raises(errors.MissingRule, match="linear in its cotangents") as caught:
        pushed(rule)
    ((label, _, where),) = caught.value.values
    assert any(label.startswith(x) for x in op.split("|"))
    assert "test_linearity.py" in where


@pytest.mark.parametrize("name", LINEAR)
def test_what_is_linear_is_transposed(name: str) -> None:
    rule, tangent = LINEAR[name]
    np.testing.assert_allclose(pushed(rule), tangent)


@pytest.mark.parametrize("name", PULLED)
def test_what_vjp_makes_is_linear(name: str) -> None:
    f = PULLED[name]
    np.testing.assert_allclose(pushed(pulled(f)), 2 * stax.grad(f)(0.7), rtol=1e-5)


@pytest.mark.parametrize("loop", [False, True])
@pytest.mark.parametrize("ordered", [False, True])
def test_effects_of_backward_rules_have_no_place_in_forward_mode(
    loop: bool, ordered: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(c: Any) -> Any:
        stax.debug.print("ct {}", c, ordered=ordered)
        return c * 3

    def rule(c: Any) -> Any:
        stax.debug.print("rule", ordered=ordered)
        return lax.fori_loop(0, 1, lambda _, k: step(k), c) if loop else step(c)

    for transform in (lambda f: f, stax.jit):
        np.testing.assert_allclose(transform(lambda t: pushed(rule, 1.0, t))(2.0), 6.0)
    stax.effects_barrier()
    assert capsys.readouterr().out == ""
