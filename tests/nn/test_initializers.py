"""Initial values, against JAX's initializers."""

import inspect
from collections.abc import Callable
from typing import Any

import jax.random as jr
import numpy as np
import pytest
from jax.nn import initializers as theirs

import stax
import stax.random as sr
from stax.nn import initializers as ours
from tests.like_jax import assert_like_jax

Maker = Callable[[Any], Any]
MAKERS: dict[str, tuple[Maker, tuple[int, ...]]] = {
    "zeros": (lambda i: i.zeros, (3, 4)),
    "ones": (lambda i: i.ones, (3, 4)),
    "constant": (lambda i: i.constant(np.arange(4.0)), (3, 4)),
    "uniform": (lambda i: i.uniform(), (3, 4)),
    "normal": (lambda i: i.normal(0.5), (3, 4)),
    "truncated_normal": (lambda i: i.truncated_normal(lower=-1.0), (3, 4)),
    "glorot_uniform": (lambda i: i.glorot_uniform(in_axis=0, out_axis=(1, 2)), (3, 4, 5)),
    "he_normal": (lambda i: i.he_normal(batch_axis=0), (3, 4, 5)),
    "lecun_normal": (lambda i: i.lecun_normal(), (4, 5)),
    "bfloat16": (lambda i: i.glorot_normal(dtype="bfloat16"), (4, 5)),
    "orthogonal": (lambda i: i.orthogonal(2.0), (2, 3, 8)),
    "orthogonal rows": (lambda i: i.orthogonal(column_axis=0), (6, 4)),
    "orthogonal empty": (lambda i: i.orthogonal(), (0, 4)),
    "delta_orthogonal": (lambda i: i.delta_orthogonal(), (3, 2, 4, 5)),
}
MODES = ["fan_in", "fan_out", "fan_avg", "fan_geo_avg"]


@pytest.mark.parametrize("name", MAKERS)
def test_values(from_jax: Any, name: str) -> None:
    make, shape = MAKERS[name]
    expected = from_jax(lambda: make(theirs)(jr.key(1), shape))
    tolerance = 2e-2 if name == "bfloat16" else 3e-5
    assert_like_jax(make(ours)(sr.key(1), shape), expected, tolerance)
    jitted = stax.jit(make(ours), static_argnums=1)(sr.key(1), shape)
    assert_like_jax(jitted, expected, tolerance)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated_normal"])
def test_variance_scaling(from_jax: Any, mode: str, distribution: str) -> None:
    expected = theirs.variance_scaling(2.0, mode, distribution)
    found = ours.variance_scaling(2.0, mode, distribution)(sr.key(1), (3, 4, 5))
    assert_like_jax(found, from_jax(lambda: expected(jr.key(1), (3, 4, 5))), 3e-5)


@pytest.mark.parametrize("distribution", ["uniform", "normal", "truncated_normal"])
def test_complex_parameters(distribution: str) -> None:
    make = [
        i.variance_scaling(1.0, "fan_in", distribution, dtype="complex64") for i in (ours, theirs)
    ]
    assert_like_jax(make[0](sr.key(1), (3, 4)), make[1](jr.key(1), (3, 4)), 3e-5)


def test_the_dtype_of_a_call_counts() -> None:
    init = ours.normal(dtype="float16")
    assert init(sr.key(0), (2,)).dtype == "float16"
    assert init(sr.key(0), (2,), "float32").dtype == "float32"
    assert isinstance(init, ours.Initializer)


def test_names_are_those_of_jax() -> None:
    names = [n for n in dir(theirs) if not n.startswith("_")]
    assert not [n for n in names if not hasattr(ours, n)]
    for name in set(names) - {"Initializer", "zeros", "ones"}:
        found, wanted = (
            list(inspect.signature(getattr(i, name)).parameters) for i in (ours, theirs)
        )
        assert found == wanted, name


@pytest.mark.parametrize(
    "call, rule",
    [
        (lambda: ours.he_normal()(sr.key(0), (3,)), "no axis of inputs"),
        (lambda: ours.orthogonal()(sr.key(0), (3,)), "no matrix"),
        (lambda: ours.delta_orthogonal()(sr.key(0), (3, 5, 4)), "keeps lengths"),
        (lambda: ours.variance_scaling(1.0, "fan", "normal"), "no mode 'fan'"),
        (lambda: ours.variance_scaling(1.0, "fan_in", "cauchy"), "no distribution 'cauchy'"),
    ],
)
def test_mistakes(call: Any, rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        call()
