"""What is drawn from distributions, against JAX: the same bits, and values to the last places."""

from collections.abc import Callable
from typing import Any

import jax
import jax.random as jr
import numpy as np
import pytest

import stax
import stax.numpy as snp
import stax.random as sr
from stax.operators.random import fma
from tests.like_jax import assert_like_jax

N = (60,)
RISING = np.linspace(0.1, 3, 60).astype(np.float32)
Sampler = Callable[[Any, Any], Any]
SAMPLERS: dict[str, Sampler] = {
    "normal": lambda r, k: r.normal(k, N),
    "normal complex": lambda r, k: r.normal(k, N, "complex64"),
    "normal 16": lambda r, k: r.normal(k, N, "bfloat16"),
    "truncated_normal": lambda r, k: r.truncated_normal(k, -1.5, RISING),
    "truncated_normal narrow": lambda r, k: r.truncated_normal(k, 0.5, 0.5001, N),
    "lognormal": lambda r, k: r.lognormal(k, RISING),
    "lognormal 1": lambda r, k: r.lognormal(k, shape=N),
    "maxwell": lambda r, k: r.maxwell(k, (20, 5)),
    "double_sided_maxwell": lambda r, k: r.double_sided_maxwell(k, 0.5, RISING[:3], (20,)),
    "double_sided_maxwell 1": lambda r, k: r.double_sided_maxwell(k, 0.5, 2.0),
    "exponential": lambda r, k: r.exponential(k, N),
    "exponential 16": lambda r, k: r.exponential(k, N, "float16"),
    "cauchy": lambda r, k: r.cauchy(k, N),
    "laplace": lambda r, k: r.laplace(k, N),
    "logistic": lambda r, k: r.logistic(k, N),
    "gumbel": lambda r, k: r.gumbel(k, N),
    "gumbel high": lambda r, k: r.gumbel(k, N, mode="high"),
    "gumbel highest": lambda r, k: r.gumbel(k, N, mode="highest"),
    "pareto": lambda r, k: r.pareto(k, RISING + 1),
    "rayleigh": lambda r, k: r.rayleigh(k, RISING),
    "weibull_min": lambda r, k: r.weibull_min(k, 2.5, 1.5, N),
    "wald": lambda r, k: r.wald(k, RISING),
    "triangular": lambda r, k: r.triangular(k, -1.0, RISING - 1, 3.0),
}
WIDE = ["normal", "truncated_normal", "laplace", "gumbel high", "wald"]


def assert_near(from_jax: Any, sampler: Sampler, tolerance: float) -> None:
    """Compare a sampler of (jax.random or stax.random, key), eager and jitted."""
    expected = from_jax(lambda: sampler(jr, jr.key(5)))
    assert_like_jax(sampler(sr, sr.key(5)), expected, tolerance)
    assert_like_jax(stax.jit(lambda k: sampler(sr, k))(sr.key(5)), expected, tolerance)


@pytest.mark.parametrize("name", SAMPLERS)
def test_values(from_jax: Any, name: str) -> None:
    assert_near(
        from_jax, SAMPLERS[name], {"normal 16": 2e-2, "exponential 16": 2e-3}.get(name, 2e-5)
    )


@pytest.mark.parametrize("name", WIDE)
def test_values_of_64_bits(from_jax: Any, name: str) -> None:
    with stax.config.override(enable_x64=True), jax.enable_x64(True):
        assert_near(from_jax, SAMPLERS[name], 1e-10)


def test_ends_are_left_out() -> None:
    draws = np.asarray(sr.truncated_normal(sr.key(0), -1e-3, 1e-3, (10000,)))
    assert (draws > -1e-3).all() and (draws < 1e-3).all()
    assert np.isfinite(sr.normal(sr.key(1), (100000,))).all()


GRADIENTS: dict[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "normal": (lambda r, k, m, s: m + s * r.normal(k, (7,)), (0.5, 2.0)),
    "truncated_normal": (lambda r, k, a, b: r.truncated_normal(k, a, b, (7,)), (-2.0, 1.0)),
    "lognormal": (lambda r, k, s: r.lognormal(k, s, (7,)), (0.5,)),
    "double_sided_maxwell": (lambda r, k, m, s: r.double_sided_maxwell(k, m, s, (7,)), (0.5, 2.0)),
    "pareto": (lambda r, k, b: r.pareto(k, b, (7,)), (2.0,)),
    "rayleigh": (lambda r, k, s: r.rayleigh(k, s, (7,)), (2.0,)),
    "weibull_min": (lambda r, k, s, c: r.weibull_min(k, s, c, (7,)), (2.0, 1.5)),
    "wald": (lambda r, k, m: r.wald(k, m, (7,)), (2.0,)),
    "triangular": (lambda r, k, a, b, c: r.triangular(k, a, b, c, (7,)), (-2.0, 1.0, 4.0)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_by_parameters(from_jax: Any, name: str) -> None:
    sampler, parameters = GRADIENTS[name]
    which = tuple(range(len(parameters)))
    theirs = jax.grad(lambda *p: sampler(jr, jr.key(3), *p).sum(), which)
    expected = from_jax(lambda: theirs(*parameters))
    ours = stax.grad(lambda *p: sampler(sr, sr.key(3), *p).sum(), which)
    for gradient in (ours, stax.jit(ours)):
        assert_like_jax(gradient(*parameters), expected, 1e-4)


def test_mapped_over_keys(from_jax: Any) -> None:
    ours = stax.jit(stax.vmap(lambda k: sr.normal(k, (3,))))(sr.split(sr.key(0), 5))
    theirs = jax.vmap(lambda k: jr.normal(k, (3,)))
    assert_like_jax(ours, from_jax(lambda: theirs(jr.split(jr.key(0), 5))), 2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_rounding(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=3000).astype(dtype) for _ in range(3))
    z[:1000] = -(x * y)[:1000]  # nothing is left but what the product's rounding left out
    z[1000:1500] *= 1e-9
    with stax.config.override(enable_x64=True):
        ours = np.asarray(fma(*map(snp.asarray, (x, y, z))))
        machine = stax.jit(fma)(*map(snp.asarray, (x, y, z)))
    np.testing.assert_array_equal(ours, machine)
    exact = x[:1000].astype(np.longdouble) * y[:1000] + z[:1000]
    if dtype == "float32":
        np.testing.assert_array_equal(ours[:1000], exact.astype(dtype))


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "dtype": (lambda: sr.normal(sr.key(0), (2,), "int32"), ValueError, "floating or complex"),
    "complex": (lambda: sr.laplace(sr.key(0), (2,), "complex64"), ValueError, "floating dtype"),
    "mode": (lambda: sr.gumbel(sr.key(0), mode="medium"), ValueError, "no mode 'medium'"),
    "shape": (lambda: sr.pareto(sr.key(0), snp.ones(3), (2,)), ValueError, "broadcast"),
    "wide": (
        lambda: sr.pareto(sr.key(0), snp.ones(3, "float32"), dtype="float16"),
        ValueError,
        "does not fit the dtype f16",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    function, kind, rule = MISTAKES[name]
    with pytest.raises(kind, match=rule):
        function()
