"""check_grads: right derivatives pass, wrong ones are told, in every mode, order and dtype."""

import functools
from collections.abc import Callable
from typing import Any

import jax.test_util
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors, test_util
from stax.test_util import check_grads, check_jvp, check_vjp

Function = Callable[..., Any]
X = np.linspace(0.1, 1, 4, dtype=np.float32)
COMPLEX = (X + 1j * X[::-1]).astype(np.complex64)
SQUARE = np.sin(np.arange(6)).astype(np.float32).reshape(3, 2)

RIGHT: dict[str, tuple[Function, tuple[Any, ...], int]] = {
    "sin": (snp.sin, (X,), 3),
    "two arguments": (lambda x, y: snp.sin(x) * snp.exp(y), (X, X[::-1]), 2),
    "an integer": (lambda x, n: (x**n, n), (X, 3), 2),
    "a tree": (lambda d: {"a": d["x"] @ d["x"].T, "b": [d["x"].sum()]}, ({"x": SQUARE},), 2),
    "a number": (lambda x: x**3, (2.0,), 3),
    "complex": (lambda x: snp.abs(x * x) * snp.conj(x), (COMPLEX,), 2),
    "real of complex": (lambda x: snp.real(x * snp.exp(1j * x)), (X,), 2),
    "half": (snp.sin, (X.astype(np.float16),), 1),
    "bfloat16": (snp.sin, (snp.asarray(X, "bfloat16"),), 1),
    "many": (lambda x: snp.tanh(x @ x.T).sum(0), (np.ones((40, 40), np.float32) * 0.1,), 1),
    "a loop": (
        lambda x: stax.lax.scan(lambda c, a: (snp.sin(c) * a, c), x[0], x)[1], (X,), 2,
    ),
    "nothing": (lambda n: n + 1, (3,), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_right_derivatives(name: str) -> None:
    f, args, order = RIGHT[name]
    check_grads(f, args, order, modes=("fwd", "rev", "lin"))


def test_double_precision() -> None:
    with stax.enable_x64():
        check_grads(lambda x: snp.exp(3 * x), (X.astype(float),), 3, atol=1e-8, rtol=1e-8)


def with_jvp(factor: Function) -> Function:
    f = stax.custom_jvp(lambda x: snp.sin(x))
    f.defjvps(lambda t, y, x: t * snp.cos(x) * factor(x))
    return f


def with_vjp(factor: float) -> Function:
    f = stax.custom_vjp(lambda x: snp.sin(x))
    f.defvjp(lambda x: (snp.sin(x), x), lambda x, ct: (ct * snp.cos(x) * factor,))
    return f


def bent(x: Any) -> Any:
    """One, with a slope: only second derivatives are wrong."""
    return 1 + x - stax.lax.stop_gradient(x)


WRONG: dict[str, tuple[Function, int, str]] = {
    "one element": (with_jvp(lambda x: snp.where(x > 0.9, 1.1, 1.0)), 1, "the jvp of .* in 1 of 4"),
    "vjp": (with_vjp(1.2), 1, "the vjp of function"),
    "second order": (with_jvp(bent), 2, "the (jvp|vjp|linear map) of the (jvp|vjp|linear map) of"),
}


@pytest.mark.parametrize("mode", ["fwd", "rev", "lin"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_derivatives(name: str, mode: str) -> None:
    f, order, text = WRONG[name]
    text = text if name == "second order" or mode == {"vjp": "rev"}.get(name, "fwd") else "of "
    with pytest.raises(AssertionError, match=text) as caught:
        check_grads(f, (X,), order, modes=[mode])
    assert isinstance(caught.value, errors.DerivativeError)
    assert "differences" in str(caught.value)
    check_grads(f, (X,), order, modes=[mode], atol=2.0)


def test_the_place_of_the_difference_is_shown() -> None:
    f = with_jvp(lambda x: snp.where(x > 0.9, 1.5, 1.0))
    with pytest.raises(errors.DerivativeError, match=r"derivative\['b'\]\[0\].*at \(3,\)"):
        check_grads(lambda x: {"a": x, "b": [f(x)]}, (X,), 1, modes=["fwd"])


def test_a_tolerance_by_dtype_and_a_step() -> None:
    f = with_jvp(lambda x: 1.01)
    check_grads(f, (X,), 1, rtol={np.float32: 0.02})
    with pytest.raises(errors.DerivativeError):
        check_grads(f, (X,), 1, rtol={np.float64: 0.02})
    with pytest.raises(errors.DerivativeError):
        check_grads(snp.sin, (100 * X,), 1, modes=["fwd"], eps=2.0)
    with pytest.raises(errors.ArgumentValueError, match="no mode 'forward'"):
        check_grads(snp.sin, (X,), 1, modes=["forward"])


def test_a_kink() -> None:
    """At a kink, the derivative is not that of either side."""
    with pytest.raises(errors.DerivativeError):
        check_grads(lambda x: snp.maximum(x, 0.0) ** 1, (np.zeros(3, np.float32) - 1e-7,), 1)
    check_grads(lambda x: snp.where(x > 0, snp.sqrt(x), 0.0), (-X,), 2)


def test_functions_of_ones_own() -> None:
    check_jvp(snp.sin, functools.partial(stax.jvp, snp.sin), (X,))
    check_vjp(snp.sin, functools.partial(stax.vjp, snp.sin), (X,))
    with pytest.raises(errors.DerivativeError, match="the jvp of cos"):
        check_jvp(snp.cos, lambda x, t: (snp.cos(*x), t[0]), (X,))
    with pytest.raises(errors.DerivativeError, match="its result is not"):
        check_vjp(snp.cos, functools.partial(stax.vjp, snp.sin), (X,), err_msg="mine")
    with pytest.raises(errors.DerivativeError, match="has dtype float16"):
        check_jvp(snp.sin, lambda x, t: (snp.sin(*x), t[0].astype("float16")), (X,))


def test_the_names_are_those_of_jax() -> None:
    assert set(test_util.__all__) == {n for n in dir(jax.test_util) if n.startswith("check_")}
