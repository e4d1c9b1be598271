"""Methods and operators of arrays and of traced arrays, and the facade under jit, grad and vmap."""

import inspect
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.array import Array
from stax.errors import ArgumentValueError, TracerArrayConversionError, UnsupportedError
from stax.numpy import methods
from stax.trace import Proxy
from tests.like_jax import assert_like_jax

X = np.array([[1.5, -2.0, 3.0, 0.5], [2.5, 0.0, -1.0, 4.0]], np.float32)

CALLS: list[tuple[Any, ...]] = [
    ("sum",), ("sum", 0), ("mean", -1), ("var", 1), ("std",), ("min", 0), ("max",), ("prod", 1),
    ("argmax", 1), ("argmin",), ("any",), ("all", 0), ("cumsum", 1), ("cumprod", 0),
    ("reshape", 4, 2),
    ("reshape", (2, -1)), ("reshape", -1), ("ravel",), ("flatten",), ("transpose",),
    ("transpose", 1, 0), ("transpose", (1, 0)), ("swapaxes", 0, 1), ("astype", np.int32),
    ("astype", bool), ("squeeze",), ("clip", -1, 2), ("round", 0), ("conj",), ("sort", 0),
    ("argsort",), ("take", np.array([0, 2])), ("repeat", 2, 0), ("diagonal",), ("copy",),
    ("ptp", 0), ("dot", X.T), ("argpartition", 1),
    ("view", np.int32), ("view", np.uint8), ("byteswap",),
]  # fmt: skip
PROPERTIES = ["T", "mT", "real", "imag", "itemsize", "nbytes", "ndim", "size", "shape"]


def taken(x: Any, call: Any) -> Any:
    return getattr(x, call[0])(*call[1:])


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_method(call: Any) -> None:
    theirs = jax.jit(lambda x: taken(x, call))(X)
    assert_like_jax(taken(snp.array(X), call), theirs, 1e-6)
    assert_like_jax(stax.jit(lambda x: taken(x, call))(X), theirs, 1e-5)


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name: str) -> None:
    ours, theirs = getattr(snp.array(X), name), getattr(jnp.array(X), name)
    if isinstance(theirs, jax.Array):
        assert_like_jax(ours, theirs)
    else:
        assert ours == theirs
    kind = stax.eval_shape(lambda x: snp.asarray(getattr(x, name)), X)
    assert kind.shape == np.shape(theirs)


def test_arrays_and_traced_arrays_have_the_same_methods() -> None:
    for table in (methods._FUNCTIONS, methods._PROPERTIES):
        for name in table:
            assert getattr(Array, name) is not None and getattr(Proxy, name) is not None


def test_items() -> None:
    x = snp.array(X)
    assert x.item(1) == -2.0 and x[0, 0].item() == 1.5 and len(x) == 2
    assert [row.shape for row in x] == [(4,), (4,)]
    assert stax.make_graph(lambda v: sum(row.sum() for row in v))(x) is not None
    with pytest.raises(ValueError, match="one element"):
        x.item()


def test_operators_with_numpy_and_numbers() -> None:
    x = snp.array(X)
    for ours, theirs in ((X + x, X + X), (2 - x, 2 - X), (x @ X.T, X @ X.T), (X.T @ x, X.T @ X)):
        assert isinstance(ours, Array)
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert (snp.array([1], snp.int8) * 2).dtype == np.int8
    assert (x > 1).dtype == bool and (-x).sum() == -X.sum()


FUNCTIONS = {
    "softmax by hand": lambda np_: lambda x: np_.exp(x - x.max(-1, keepdims=True)).sum(0),
    "layers": lambda np_: lambda x: np_.tanh(x @ x.T + np_.arange(2.0)).mean(),
    "masks": lambda np_: lambda x: np_.where(x > 0, np_.sqrt(np_.abs(x) + 1), 0.0).sum(1),
    "joins": lambda np_: lambda x: np_.concatenate([x, np_.flip(x, 1)], 1).std(),
    "norm": lambda np_: lambda x: np_.linalg.norm(x, axis=1),
    "einsum": lambda np_: lambda x: np_.einsum("ij,kj->ik", x, x).ravel(),
    "cumulative": lambda np_: lambda x: np_.cumsum(x, 1)[:, ::2],
    "pad": lambda np_: lambda x: np_.pad(x, ((1, 0), (0, 2)), constant_values=1) * 2,
    "order": lambda np_: lambda x: np_.sort(x, 1)[:, :2],
    "take": lambda np_: lambda x: np_.take_along_axis(x, np_.argmax(x, 1)[:, None], 1),
    "logaddexp": lambda np_: lambda x: np_.logaddexp(x, x.T[:2, :1]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_programs_under_transforms(name: str) -> None:
    ours, theirs = FUNCTIONS[name](snp), FUNCTIONS[name](jnp)
    assert_like_jax(stax.jit(ours)(X), jax.jit(theirs)(X), 1e-5)
    gradient = stax.jit(stax.grad(lambda x: (ours(x) ** 2).sum()))(X)
    expected = jax.jit(jax.grad(lambda x: (theirs(x) ** 2).sum()))(X)
    assert_like_jax(gradient, expected, 1e-4)
    both = np.stack([X, X + 1])
    assert_like_jax(stax.vmap(ours)(both), jax.jit(jax.vmap(theirs))(both), 1e-5)


VIEWED = ["bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64"]


def both_views(x: np.ndarray, dtype: str) -> None:
    """Check that a view is refused where JAX does, and else has JAX's type and the same bytes."""
    try:
        theirs = jax.eval_shape(lambda x: x.view(dtype), jnp.asarray(x))
    except ValueError:
        with pytest.raises(ValueError, match="view"):
            snp.asarray(x).view(dtype)
    else:
        ours = snp.asarray(x).view(dtype)
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert ours.tobytes() == x.tobytes()


@pytest.mark.parametrize("dtype", VIEWED)
def test_views(dtype: str) -> None:
    kind = jnp.dtype(dtype)
    for shape in ((2, 8), (3,), ()):
        data = np.arange(math.prod(shape) * kind.itemsize, dtype=np.uint8) % 2
        x = (data == 1 if dtype == "bool" else data.view(kind)).reshape(shape)
        for other in VIEWED:
            both_views(x, other)
    assert snp.asarray(x).byteswap().tobytes() == x.byteswap().tobytes()


def test_what_methods_refuse() -> None:
    x = snp.array(X)
    for function in (lambda: x.flat, lambda: x.view(type=int)):
        with pytest.raises(UnsupportedError):
            function()
    with pytest.raises(ArgumentValueError, match="vector"):
        assert 3 in x
    assert 3 in x[0] and 17 not in x[0]
    np.testing.assert_array_equal(x.compress(np.array([False, True]), 0), X[1:])
    assert x.tobytes() == X.tobytes() and x.tobytes("F") == X.tobytes("F")
    with pytest.raises(TracerArrayConversionError):
        stax.jit(lambda x: x.tobytes())(x)


@pytest.mark.parametrize("name", ["sum", "argmax", "clip", "round", "searchsorted", "view", "var"])
def test_signatures(name: str) -> None:
    ours = [*inspect.signature(getattr(snp.array(X), name)).parameters]
    theirs = [*inspect.signature(getattr(jnp.array(X), name)).parameters]
    assert [n for n in ours if n != "mean"] == theirs


def test_scalars() -> None:
    for x in (1, 1j, np.ones(()), np.ones(2), "a", [1]):
        assert snp.isscalar(x) == jnp.isscalar(x)
    assert snp.isscalar(snp.ones(())) and not snp.isscalar(snp.ones(1))
