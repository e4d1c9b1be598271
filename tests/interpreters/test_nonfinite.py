"""debug_nans and debug_infs: the operation and the line that made the first NaN, in every mode."""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import debug, errors, lax, random
from stax.lowering.pipeline import lower_graph

X = np.arange(4, dtype=np.float32)
NAN = np.array([1, np.nan], np.float32)

# Programs of a library, its lax and its numpy, and of an argument that makes a NaN; the operation
# to blame, and what the line with it holds.
PROGRAMS: dict[str, tuple[Callable[..., Any], Any, str]] = {
    "a sum": (lambda J, L, N, x: N.sum(N.log(x - 2) * 2), X, "log"),
    "an infinity times zero": (lambda J, L, N, x: N.exp(x * 1e3) * 0 + x, X, "mul"),
    "masked before": (
        lambda J, L, N, x: N.where(x > 5, N.sqrt(-x), 0.0) + N.arccos(x), X, "acos"
    ),
    "scan": (
        lambda J, L, N, x: L.scan(lambda c, a: (N.sqrt(c) - a, c * 0), x, x)[1], X, "sqrt"
    ),
    "while": (
        lambda J, L, N, x: L.while_loop(
            lambda c: c[1] < 400, lambda c: (N.sqrt(c[0] - 1), c[1] + 1), (x, 0)
        )[0],
        X,
        "sqrt",
    ),
    "a branch": (
        lambda J, L, N, x: L.cond(x[0] < 1, lambda v: N.log(v - 2), lambda v: v, x), X, "log"
    ),
    "a call": (lambda J, L, N, x: 1 + J.jit(lambda v: N.log(v - 2))(x), X, "log"),
    "a derivative": (lambda J, L, N, x: J.grad(lambda v: N.sum(N.sqrt(v) * 0))(x), X, "mul"),
    "a mapped function": (lambda J, L, N, x: J.vmap(lambda v: N.log(v - 2) + 1)(x), X, "log"),
    "complex numbers": (lambda J, L, N, x: N.abs((x * 1j) / (x * 0)), X, "div"),
    "a product": (lambda J, L, N, x: N.exp(x * 1e3) @ (x - 2) + 0, X, "dot_general"),
    "a constant": (lambda J, L, N, x: N.where(x > 2, np.nan, x), X, "constant"),
}  # fmt: skip
MODES: dict[str, Callable[[Any], Any]] = {
    "as a program": stax.jit,
    "under vmap": lambda f: lambda x: stax.vmap(f)(x[None]),
    "compiled under vmap": lambda f: lambda x: stax.jit(stax.vmap(f))(x[None]),
}


@pytest.mark.filterwarnings("ignore:invalid value")  # JAX runs the function again, in NumPy
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_operation_and_its_line_are_told(name: str) -> None:
    program, x, op = PROGRAMS[name]
    line = program.__code__.co_firstlineno
    lines = [f"test_nonfinite.py:{line + i}" for i in range(8)]
    for mode, wrap in MODES.items():
        if name == "a branch" and mode != "as a program":
            continue  # a mapped branch runs where it is taken, and the lanes are chosen after it
        with stax.debug_nans(), pytest.raises(errors.NonFiniteError) as caught:
            wrap(lambda x: program(stax, lax, snp, x))(x)
        assert f"{op} in " in caught.value.rule and "made a NaN (debug_nans)" in caught.value.rule
        assert any(where in str(caught.value) for where in lines), str(caught.value)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jax.block_until_ready(jax.jit(lambda x: program(jax, jax.lax, jnp, x))(x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_eagerly_each_operation_is_looked_at(name: str) -> None:
    program, x, _ = PROGRAMS[name]
    with stax.debug_nans(), pytest.raises(FloatingPointError, match=r"made a NaN \(debug_nans\)"):
        program(stax, lax, snp, snp.asarray(x))


FINE: dict[str, Callable[..., Any]] = {
    "masked": lambda x: snp.where(x > 9, snp.log(-x), x),
    "masked under grad": lambda x: stax.grad(lambda v: snp.sum(snp.where(v > 0, snp.sqrt(v), 0.0)))(
        x
    ),
    "compared": lambda x: snp.isnan(snp.log(x - 2)),
    "not used": lambda x: (snp.log(x - 2), x)[1],
    "in a loop": lambda x: lax.scan(
        lambda c, a: (c + snp.nan_to_num(snp.log(a - 2)), None), 0.0, x
    )[0],
    "a norm": lambda x: stax.grad(lambda v: snp.linalg.norm(v))(x),
    "softmax": lambda x: stax.nn.softmax(snp.where(x > 1, x, -np.inf)),
    "logsumexp": lambda x: stax.nn.logsumexp(snp.where(x > 1, x, -np.inf)),
    "draws": lambda x: random.gamma(random.key(0), 0.5, (4,)) + random.normal(random.key(1), (4,)),
}


@pytest.mark.parametrize("name", FINE)
def test_what_is_masked_is_no_error(name: str) -> None:
    with stax.debug_nans():
        result = stax.jit(FINE[name])(X)
    assert np.isfinite(np.asarray(result, np.float32)).all()


def test_the_setting_is_part_of_the_key() -> None:
    f = stax.jit(lambda x: snp.log(x))
    assert np.isnan(f(-1.0))
    with stax.debug_nans(), pytest.raises(FloatingPointError):
        f(-1.0)
    assert np.isnan(f(-1.0))
    assert f(1.0) == 0
    stax.config.update("jax_debug_nans", True)
    try:
        with pytest.raises(FloatingPointError):
            f(-1.0)
        assert f(1.0) == 0
    finally:
        stax.config.update("jax_debug_nans", False)
    assert np.isnan(f(-1.0))


def test_infinities() -> None:
    f = stax.jit(lambda x: 1 / x)
    with stax.debug_infs(), pytest.raises(FloatingPointError, match=r"div in .* an infinity"):
        f(0.0)
    with stax.debug_infs():
        assert np.isnan(stax.jit(lambda x: snp.log(x))(-1.0))
        with pytest.raises(FloatingPointError, match="exp made an infinity"):
            snp.exp(snp.float32(1000))
    with stax.debug_nans(), stax.debug_infs(), pytest.raises(FloatingPointError) as caught:
        f(0.0)
    assert "a NaN or an infinity (debug_nans, debug_infs)" in str(caught.value)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_every_inexact_dtype(dtype: str) -> None:
    with stax.enable_x64(), stax.debug_nans():
        x = snp.asarray([1, 0], dtype)
        for f in (lambda x: x / x, stax.jit(lambda x: x / x)):
            with pytest.raises(FloatingPointError, match="div"):
                f(x)
        assert stax.jit(lambda x: x + x)(x)[0] == 2


def test_values_that_come_in() -> None:
    for f in (stax.jit(lambda v: v * 2 + 1), lambda v: stax.vmap(lambda w: w * 2)(v)):
        with stax.debug_nans(), pytest.raises(FloatingPointError, match=r"was given a NaN, in v|w"):
            f(NAN)
    with stax.debug_nans():
        assert stax.jit(lambda v: snp.nansum(v))(NAN) == 1
        # The loop is given the NaN, so what made it is told.
        with pytest.raises(FloatingPointError, match="log in function made"):
            stax.jit(lambda v: lax.scan(lambda c, a: (c + a, None), 0.0, snp.log(v - 2))[0])(X)


def test_a_loop_that_would_not_end_is_stopped() -> None:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: ~(c < -100), lambda c: snp.log(c), x)

    for wrap in (lambda f: f, stax.jit):
        with stax.debug_nans(), pytest.raises(FloatingPointError, match="log in"):
            wrap(f)(2.0)


def test_callbacks_before_it_are_called(capsys: Any) -> None:
    with stax.debug_nans(), pytest.raises(FloatingPointError):
        stax.jit(lambda x: (debug.print("x is {}", x), snp.log(x))[1])(-1.0)
    assert capsys.readouterr().out == "x is -1.0\n"


def test_programs_are_those_of_before_without_it() -> None:
    graph = stax.make_graph(lambda x: snp.sum(snp.exp(x) / x))(X)
    before = [k.name for k in lower_graph(graph).kernels]
    with stax.debug_nans():
        assert len(lower_graph(graph).host_steps) == 1
    assert [k.name for k in lower_graph(graph).kernels] == before


def test_no_function_of_the_library_makes_nan_on_its_way() -> None:
    # Eagerly each operation is looked at, also those that functions are made of.
    x, y = snp.asarray([0.0, 0.5, 2.0]), snp.asarray([0.0, -1.0, 3.0])
    functions: list[Callable[[], Any]] = [
        lambda: snp.hypot(x, y), lambda: snp.logaddexp(x, y), lambda: snp.sinc(x),
        lambda: snp.linalg.norm(x), lambda: stax.nn.softmax(y), lambda: stax.nn.gelu(y),
        lambda: snp.var(x), lambda: snp.median(x), lambda: snp.quantile(x, 0.3),
        lambda: snp.interp(0.3, x, y), lambda: snp.nan_to_num(x), lambda: snp.mod(y, 2.0),
        lambda: snp.arctan2(x, y), lambda: snp.sign(y), lambda: snp.power(x, 2.5),
        lambda: stax.scipy.special.gammaln(x + 1), lambda: stax.random.normal(random.key(0)),
        lambda: stax.nn.logsumexp(x), lambda: snp.linalg.inv(snp.eye(3) * 2),
    ]  # fmt: skip
    with stax.debug_nans(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for f in functions:
            assert np.isfinite(np.asarray(f())).all()
