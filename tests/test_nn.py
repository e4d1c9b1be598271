"""stax.nn against jax.nn: values, gradients, second derivatives, masks."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp
from tests.like_jax import assert_like_jax

ACTIVATIONS = [
    "relu", "relu6", "sigmoid", "softplus", "silu", "gelu", "elu", "selu", "celu", "leaky_relu",
    "hard_tanh", "hard_sigmoid", "hard_silu", "log_sigmoid", "soft_sign", "mish", "squareplus",
    "sparse_plus", "sparse_sigmoid", "tanh", "identity",
]  # fmt: skip
# Kinks included: conventions at them are JAX's.
POINTS = np.array([-7.0, -3.0, -1.0, -0.3, 0.0, 0.3, 1.0, 3.0, 6.0, 50.0], np.float32)
X = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
MASK = np.array([[True, False, True, True], [True] * 4, [False, True, False, False]])


def slopes_of_jax(function: Any) -> Any:
    """Return what JAX makes of a function at the points, in double precision and then rounded."""
    with jax.enable_x64(True):
        return jax.jit(function)(POINTS.astype(np.float64)).astype(np.float32)


def total(library: Any, name: str, **options: Any) -> Any:
    return lambda x: getattr(library.nn, name)(x, **options).sum()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name: str) -> None:
    assert_like_jax(getattr(stax.nn, name)(POINTS), jax.jit(getattr(jax.nn, name))(POINTS), 3e-6)
    half = POINTS.astype(np.float16)
    assert getattr(stax.nn, name)(half).dtype == np.float16
    if name != "identity":
        theirs = slopes_of_jax(jax.grad(total(jax, name)))
        assert_like_jax(stax.grad(total(stax, name))(snp.array(POINTS)), theirs, 3e-6)


@pytest.mark.parametrize("name", ["softplus", "gelu", "silu", "log_sigmoid", "elu"])
def test_second_derivative(name: str) -> None:
    ours = stax.grad(lambda x: stax.grad(total(stax, name))(x).sum())(snp.array(POINTS))
    theirs = slopes_of_jax(jax.grad(lambda x: jax.grad(total(jax, name))(x).sum()))
    assert_like_jax(ours, theirs, 1e-5)


def test_exact_gelu_glu_and_integers() -> None:
    assert_like_jax(stax.nn.gelu(X, False), jax.nn.gelu(X, False), 2e-6)
    assert_like_jax(stax.nn.glu(X), jax.nn.glu(X), 2e-6)
    with pytest.raises(ValueError, match="even"):
        stax.nn.glu(X, 0)
    numbers = np.array([-1, 0, 2])
    assert stax.nn.sigmoid(numbers).dtype == np.float32
    for name in ("relu", "gelu", "softplus"):
        ours, theirs = getattr(stax.nn, name)(numbers), getattr(jax.nn, name)(numbers)
        assert_like_jax(ours, theirs, 2e-6)
    positive = np.array([0.1, 0.5, 2.0, 20.0], np.float32)
    assert_like_jax(stax.nn.log1mexp(positive), jax.nn.log1mexp(positive), 2e-6)


@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"axis": (0, 1)}, {"where": MASK}], ids=str)
@pytest.mark.parametrize(
    "name", ["softmax", "log_softmax", "standardize", "logsumexp", "logmeanexp"]
)
def test_over_an_axis(name: str, options: dict[str, Any]) -> None:
    if name == "standardize" and "where" in options:
        options = {"where": MASK[1:2]}  # JAX's variance of a single element is not quite 0
    ours = getattr(stax.nn, name)(X, **options)
    theirs = jax.jit(lambda x: getattr(jax.nn, name)(x, **options))(X)
    assert_like_jax(ours, theirs, 5e-6)
    if name == "log_softmax" and "where" in options:
        return
    weight = np.random.default_rng(1).normal(size=ours.shape).astype(np.float32)

    def loss(library: Any) -> Any:
        return lambda x: (getattr(library.nn, name)(x, **options) * weight).sum()

    found = stax.grad(loss(stax))(snp.array(X))
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss(jax)))(X), rtol=2e-4, atol=2e-5)
    assert np.isfinite(np.asarray(found)).all()


def test_softmax_of_infinities() -> None:
    x = np.array([[-np.inf, 0.0], [1e30, 2e30]], np.float32)
    np.testing.assert_array_equal(stax.nn.softmax(x), [[0, 1], [0, 1]])
    gradient = stax.grad(lambda v: stax.nn.softmax(v)[:, 0].sum())(snp.array(x))
    np.testing.assert_array_equal(gradient, np.zeros((2, 2)))


def test_logsumexp_of_nothing_and_of_masked_elements() -> None:
    x = snp.array([0.0, 100.0])
    masked = lambda v: stax.nn.logsumexp(v, where=snp.array([True, False]))  # noqa: E731
    np.testing.assert_array_equal(stax.grad(masked)(x), [1.0, 0.0])
    assert stax.nn.logsumexp(snp.full(3, -np.inf)) == -np.inf
    assert stax.nn.logsumexp(snp.array([np.inf, 0.0])) == np.inf
    for b in (np.array([1.0, -2.0], np.float32), np.array([0.0, 3.0], np.float32)):
        args = (np.array([1.0, 0.5], np.float32),)
        assert_like_jax(stax.nn.logsumexp(*args, b=b), jax.nn.logsumexp(*args, b=b), 1e-6)
        ours = stax.nn.logsumexp(*args, b=b, return_sign=True)
        assert_like_jax(ours, tuple(jax.nn.logsumexp(*args, b=b, return_sign=True)), 1e-6)


def test_over_nothing() -> None:
    nothing = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(stax.nn.logsumexp(nothing, 1), [-np.inf, -np.inf])
    assert stax.nn.softmax(nothing).shape == stax.nn.log_softmax(nothing).shape == (2, 0)


def test_one_hot() -> None:
    for options in ({}, {"axis": 0}, {"dtype": np.int8}):
        for x in (np.array([0, 2, -1, 9]), np.int32(1), np.zeros((2, 0), np.int32)):
            assert_like_jax(stax.nn.one_hot(x, 3, **options), jax.nn.one_hot(x, 3, **options))


@pytest.mark.parametrize("name", [*ACTIVATIONS, "softmax", "log_softmax", "standardize"])
def test_compiled(name: str) -> None:
    function = getattr(stax.nn, name)
    np.testing.assert_allclose(stax.jit(function)(X), function(X), rtol=3e-6, atol=1e-6)
    gradient = stax.grad(lambda x: (function(x) ** 2).sum())
    ours, eager = stax.jit(gradient)(snp.array(X)), gradient(snp.array(X))
    np.testing.assert_allclose(ours, eager, rtol=1e-4, atol=1e-5)


SPECIAL = {
    "erf": 1, "erfc": 1, "expit": 1, "entr": 1, "ndtr": 1, "log_ndtr": 1, "xlogy": 2, "xlog1py": 2,
    "rel_entr": 2, "kl_div": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_special(name: str) -> None:
    low = -0.5 if name == "xlog1py" else -15.0
    grid = np.array([low, -0.5, 0.0, 0.2, 1.0, 4.0, 9.0, 30.0], np.float32)
    grid = np.maximum(grid, 0) if name in ("xlogy", "rel_entr", "kl_div") else grid
    args = (grid,) if SPECIAL[name] == 1 else (grid[:, None], grid[None] + 0 * grid[:, None])
    ours = getattr(stax.scipy.special, name)(*args)
    theirs = jax.jit(getattr(jax.scipy.special, name))(*args)
    assert_like_jax(ours, theirs, 1e-5)


def test_special_values() -> None:
    special = stax.scipy.special
    assert special.xlogy(0.0, 0.0) == 0 and np.isnan(special.xlogy(0.0, np.nan))
    assert stax.grad(special.entr)(0.0) == np.inf
    assert_like_jax(special.logit(np.float32(0.2)), jax.scipy.special.logit(np.float32(0.2)), 1e-6)
    gradient = stax.grad(lambda x: special.xlogy(x, 3.0))(0.0)
    np.testing.assert_allclose(gradient, np.log(3.0), rtol=1e-6)
    np.testing.assert_allclose(special.ndtr(-12.0), 1.776482e-33, rtol=1e-5)
    ours = stax.grad(lambda x: special.log_ndtr(x).sum())(snp.array([-30.0, -3.0, 0.0, 7.0]))
    theirs = jax.jit(jax.grad(lambda x: jax.scipy.special.log_ndtr(x).sum()))(
        np.array([-30.0, -3.0, 0.0, 7.0], np.float32)
    )
    assert_like_jax(ours, theirs, 1e-4)
