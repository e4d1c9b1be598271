"""jit with open lengths: one variant for all of them, by `dynamic`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError, LoweringError
from tests.api.test_compiled import counted

X = np.asarray([1.0, 2.0, 3.0], np.float32)


def softmax(x: Any) -> Any:
    e = snp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_one_variant_for_all_lengths() -> None:
    f, calls = counted(lambda x, k: snp.tanh(x) * k)
    jitted = stax.jit(f, dynamic={"x": {0: "n"}})
    for n in (2, 3, 17, 1000, 100_000):
        x = np.linspace(-1, 1, n, dtype=np.float32)
        np.testing.assert_allclose(jitted(x, 2.0), np.tanh(x) * 2, rtol=1e-6)
    assert len(calls) == 1
    for n in (0, 1):  # specialised
        assert jitted(np.ones(n, np.float32), 2.0).shape == (n,)
    assert len(jitted.variants()) == 3


@pytest.mark.parametrize("axes", [{0: "n"}, {1: "m"}, {0: "n", 1: "m"}])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: snp.sum(x * x, 1),
        lambda x: snp.sum(x, 0),
        lambda x: snp.max(x),
        lambda x: x - snp.mean(x, 0),
        softmax,
    ],
    ids=["rows", "columns", "all", "mean", "softmax"],
)
def test_reductions_of_open_lengths(function: Any, axes: Any) -> None:
    jitted = stax.jit(function, dynamic={"x": axes})
    rng = np.random.default_rng(0)
    for rows, columns in ((2, 3), (5, 7), (30, 100)):
        shape = (rows if 0 in axes else 4, columns if 1 in axes else 9)
        x = rng.normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(jitted(x), function(snp.asarray(x)), rtol=1e-5, atol=1e-5)
    assert len(jitted.variants()) == 1


def test_gradients_and_maps_of_open_lengths() -> None:
    grad = stax.jit(stax.grad(lambda x: (snp.sin(x) ** 2).sum()), dynamic={"x": {0: "n"}})
    mapped = stax.jit(stax.vmap(lambda x: (x * x).sum()), dynamic={"x": {0: "n"}})
    for n in (2, 5, 300):
        x = np.linspace(0, 1, n, dtype=np.float32)
        np.testing.assert_allclose(grad(x), np.sin(2 * x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mapped(np.stack([x, x], 1)), 2 * x * x, rtol=1e-6)
    assert len(grad.variants()) == len(mapped.variants()) == 1


def test_axes_that_share_a_symbol_must_agree() -> None:
    jitted = stax.jit(lambda x, y: x + y, dynamic={"x": {0: "n"}, "y": {0: "n"}})
    assert jitted(X, X).shape == (3,)
    with pytest.raises(ArgumentValueError, match="dynamic length n is 3 and 2 in one call"):
        jitted(X, X[:2])


def test_an_open_length_is_a_number_in_arithmetic() -> None:
    jitted = stax.jit(lambda x: x / x.shape[0] + x.size, dynamic={"x": {0: "n"}})
    np.testing.assert_allclose(jitted(X), X / 3 + 3, rtol=1e-6)
    np.testing.assert_allclose(jitted(X[:2]), X[:2] / 2 + 2, rtol=1e-6)


def test_symbols_in_nested_arguments() -> None:
    jitted = stax.jit(
        lambda p: p["a"] * p["b"][0], dynamic={"p['a']": {0: "n"}, "p['b'][0]": {0: "n"}}
    )
    for n in (2, 3):
        np.testing.assert_array_equal(jitted({"a": X[:n], "b": [X[:n]]}), X[:n] ** 2)
    assert len(jitted.variants()) == 1


@pytest.mark.parametrize(
    "function",
    [snp.sort, snp.argsort, snp.cumsum, lambda x: snp.cumprod(x, 0), lambda x: snp.flip(x, 0)],
    ids=["sort", "argsort", "cumsum", "cumprod", "flip"],
)
def test_other_ops_of_open_lengths(function: Any) -> None:
    jitted = stax.jit(lambda x: function(x), dynamic={"x": {0: "n"}})
    for n in (2, 3, 7):
        x = np.random.default_rng(n).random((n, 3)).astype(np.float32)
        np.testing.assert_allclose(jitted(x), function(snp.asarray(x)), rtol=1e-6)
    assert len(jitted.variants()) == 1


def test_what_has_no_kernel_for_open_lengths_raises() -> None:
    x = np.ones((3, 3), np.float32)
    with pytest.raises(LoweringError, match="symbolic lengths are not compiled"):
        stax.jit(lambda x: snp.fft.fft(x), dynamic={"x": {0: "n"}})(x)


def test_lengths_of_what_is_not_there() -> None:
    def f(x: Any, *rest: Any) -> Any:
        return x * len(rest)

    with pytest.raises(ArgumentValueError, match="dynamic names 'y', which f does not take"):
        stax.jit(f, dynamic={"y": {0: "n"}})
    with pytest.raises(ArgumentError, match="for x, not names of axes"):
        stax.jit(f, dynamic={"x": ("n",)})  # type: ignore[dict-item]
    with pytest.raises(ArgumentValueError, match="axis 3 of x, which is f32"):
        stax.jit(f, dynamic={"x": {3: "n"}})(X)
    assert stax.jit(f, dynamic={"arg1": {0: "n"}})(X, X).shape == (3,)


@pytest.mark.parametrize("transform", [stax.vjp, stax.linearize])
def test_linear_maps_leave_the_program_with_the_lengths_of_the_call(transform: Any) -> None:
    functions = [lambda x: snp.sin(x) * 2, lambda x: x[:-1] * 2, lambda x: (x * x).sum()]
    for f in functions:
        jitted = stax.jit(lambda x, f=f: transform(f, x), dynamic={"x": {0: "n"}})
        for n in (3, 5):
            x = np.linspace(0, 1, n, dtype=np.float32)
            y, apply = jitted(x)
            given = y if transform is stax.vjp else x
            _, wanted = transform(f, x)
            for found in (apply(given), stax.jit(lambda g, v: g(v))(apply, given)):
                stax.tree.map(np.testing.assert_allclose, found, wanted(given))
    with pytest.raises(TypeError, match=r"f32\[5\].*f32\[7\]"):
        stax.jit(lambda x: transform(snp.sin, x), dynamic={"x": {0: "n"}})(x)[1](np.ones(7))


LENGTHS: dict[str, Callable[[Any], Any]] = {
    "with floats": lambda x: x.shape[0] * 0.5 - 2.5 + (x.shape[0] - 1.5) * x.sum(),
    "divided": lambda x: (1 / x.shape[0], x.shape[0] / 4, x.shape[0] // 2.5, x.shape[0] % 2.5),
    "powers": lambda x: (x.shape[0] ** 2 + x, x.shape[0] ** 0.5, 2.0 ** x.shape[0]),
    "with arrays": lambda x: (x.shape[0] * x, np.float32(2) - x.shape[0] * np.ones(2, np.float32)),
    "compared": lambda x: x if x.shape[0] >= 1.5 and not x.shape[0] < 2.0 else x[0],
    "quantile": lambda x: (snp.median(x), snp.quantile(x, 0.3)),
    "roll": lambda x: (snp.roll(x, 1), snp.roll(x, -2), snp.roll(x, 7)),
    "search": lambda x: (snp.searchsorted(x, 0.3), snp.interp(x * x, x, x**3)),
    "diagonal": lambda x: (snp.trace(x[:, None] * x), snp.diag(x[:, None] + x)),
    "pairs": lambda x: snp.stack([x, snp.cos(x)], 1).T @ snp.stack([x, x], 1),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_what_is_made_of_an_open_length(name: str) -> None:
    f = LENGTHS[name]
    jitted = stax.jit(lambda x: f(x), dynamic={"x": {0: "n"}})
    for n in (3, 6):
        x = np.linspace(0, 1, n, dtype=np.float32)
        ours, wanted = (tuple(stax.tree.leaves(y)) for y in (jitted(x), stax.jit(f)(x)))
        for a, b in zip(ours, wanted, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    assert len(jitted.variants()) == 1
