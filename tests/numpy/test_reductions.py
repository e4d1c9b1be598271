"""Reductions of stax.numpy against jax.numpy, over shapes, axes, dtypes and masks."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from tests.like_jax import assert_like_jax
from tests.like_numpy import compared

NAMES = [
    "sum", "prod", "mean", "var", "std", "max", "min", "all", "any", "ptp", "count_nonzero",
    "nansum", "nanprod", "nanmean", "nanvar", "nanstd", "nanmax", "nanmin", "median",
]  # fmt: skip
PLACES = ["argmax", "argmin", "nanargmax", "nanargmin"]
RUNNING = ["cumsum", "cumprod", "nancumsum", "nancumprod"]
DTYPES = ["bool", "int8", "int32", "uint8", "uint32", "float16", "bfloat16", "float32"]
SHAPES = [(), (5,), (3, 4), (2, 3, 2), (0, 3)]


def values(shape: tuple[int, ...], dtype: str, nans: bool = False) -> np.ndarray:
    generator = np.random.default_rng(len(shape))
    x = generator.integers(0 if dtype[0] in "ub" else -3, 4, shape) / (1 if dtype[0] in "iu" else 2)
    if nans and dtype.startswith(("f", "b")) and dtype != "bool" and x.size:
        x = np.where(generator.random(shape) < 0.3, np.nan, x)
    return x.astype(jnp.dtype(dtype))


@st.composite
def reductions(draw: Any) -> tuple[np.ndarray, dict[str, Any]]:
    shape = draw(st.sampled_from(SHAPES))
    axes = [None, *range(-len(shape), len(shape))]
    if len(shape) > 1:
        axes += [(0, 1), (-1, 0), ()]
    options = {"axis": draw(st.sampled_from(axes)), "keepdims": draw(st.booleans())}
    return values(shape, draw(st.sampled_from(DTYPES)), draw(st.booleans())), options


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25)
@given(case=reductions())
def test_reduction(name: str, case: Any) -> None:
    x, options = case
    if name == "median" and (options["axis"] == () or not x.size or not x.ndim):
        return
    if "nan" in name and options["axis"] == () and np.isnan(x.astype(float)).any():
        return
    compared(name, x, **options)


@pytest.mark.parametrize("name", PLACES)
@settings(max_examples=25)
@given(case=reductions())
def test_place(name: str, case: Any) -> None:
    x, options = case
    if isinstance(options["axis"], tuple):
        options["axis"] = None
    if x.ndim == 0 and options["axis"] is None and options["keepdims"]:
        return
    try:
        compared(name, x, **options)
    except ValueError as error:  # where JAX gives -1, NumPy has no place to name
        assert "All-NaN" in str(error)


@pytest.mark.parametrize("name", RUNNING)
@settings(max_examples=25)
@given(case=reductions())
def test_running(name: str, case: Any) -> None:
    x, options = case
    axis = options["axis"]
    compared(name, x, axis=None if isinstance(axis, tuple) else axis)


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "std", "max", "min", "any", "all"])
def test_masked(name: str, dtype: str) -> None:
    x = values((3, 4), dtype)
    mask = np.array([[True, False, True, False], [False] * 4, [True] * 4])
    options: dict[str, Any] = {"axis": 1, "where": mask}
    if name in ("max", "min"):
        with pytest.raises(ValueError, match="initial"):
            getattr(snp, name)(x, where=mask)
        options["initial"] = 0
    compared(name, x, **options)
    compared(name, x, **{**options, "axis": None, "where": mask[:1]})


@pytest.mark.parametrize("dtype", ["int8", "int32", "float16", "float32", "bool"])
@pytest.mark.parametrize("name", ["sum", "prod", "mean", "var", "cumsum"])
def test_with_a_named_dtype(name: str, dtype: str) -> None:
    for x in (values((3, 4), "int8"), values((3, 4), "float32")):
        if dtype[0] == "b" and name in ("mean", "var", "cumsum"):
            continue
        if name == "var" and dtype[0] == "i":
            continue
        compared(name, x, axis=1, dtype=dtype)


def test_initial_and_integers_that_are_not_promoted() -> None:
    x = values((3, 4), "int8")
    compared("sum", x, axis=0, initial=3)
    compared("prod", x, axis=0, initial=3)
    compared("sum", x, promote_integers=False)
    compared("max", x, initial=100)
    compared("max", values((0, 3), "float32"), axis=0, initial=2.0)
    compared("min", values((0, 3), "float32"), initial=2.0, keepdims=True)
    compared("var", values((3, 4), "float32"), axis=0, ddof=1)
    assert np.isnan(snp.std(values((3, 4), "float32"), axis=0, correction=3)).all()


def test_results_are_strong() -> None:
    for name in ("sum", "prod", "mean", "max", "cumsum"):
        if name != "cumsum":
            assert_like_jax(getattr(snp, name)(1.5), getattr(jnp, name)(1.5))
        assert_like_jax(getattr(snp, name)(snp.asarray(2)), getattr(jnp, name)(jnp.asarray(2)))


def test_empty_extremes_raise() -> None:
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match="empty"):
            getattr(snp, name)(np.zeros((0, 3), np.float32))
    assert snp.argmax(np.zeros((3, 2, 0), np.float32), 1).shape == (3, 0)
    assert snp.sum(np.zeros(0, np.float32)) == 0 and snp.prod(np.zeros(0, np.float32)) == 1
    assert np.isnan(snp.mean(np.zeros(0, np.float32)))


def test_sixteen_bit_floats_accumulate_in_float32() -> None:
    assert snp.sum(np.ones(20000, np.float16)) == 20000
    assert snp.sum(snp.ones(70000, snp.bfloat16)) == 70144
    assert snp.mean(np.full(2**20, 1e-5, np.float16)) == np.float16(1e-5)


def test_extremes_and_nan() -> None:
    assert snp.argmax(np.array([np.nan, 4.6])) == 0
    assert np.isnan(snp.max(np.array([1, np.nan]))) and np.isnan(snp.max(np.array([np.nan, 1])))
    assert snp.argmax(np.array([-1, -0.0, 1.4e-45], np.float32)) == 2


GRADIENTS = {
    "prod": ([2.0, 0.0, 3.0], [0.0, 6.0, 0.0]),
    "nanvar": ([np.nan, 1.0, 2.0, 3.0, 4.0], [0.0, -0.75, -0.25, 0.25, 0.75]),
    "max": ([1.0, 3.0, 3.0], [0.0, 0.5, 0.5]),
    "var": ([1.0, 2.0, 6.0], [-4 / 3, -2 / 3, 2.0]),
    "nanmean": ([np.nan, 1.0, 2.0], [0.0, 0.5, 0.5]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(name: str) -> None:
    x, expected = GRADIENTS[name]
    found = stax.grad(getattr(snp, name))(snp.array(x))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradient_of_cumprod() -> None:
    found = stax.grad(lambda x: snp.cumprod(x).sum())(snp.array([0.0, 2.0, 3.0]))
    np.testing.assert_allclose(found, [9.0, 0.0, 0.0])
    found = stax.grad(lambda x: snp.cumprod(x).sum())(snp.array([2.0, 0.0, 0.0, 3.0]))
    np.testing.assert_allclose(found, [1.0, 2.0, 0.0, 0.0])


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "prod", "nansum", "median"])
def test_gradients_over_axes(name: str) -> None:
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)

    def loss(library: Any, function: Any) -> Any:
        return library.grad(lambda v: (function(v, axis=1) * library.numpy.arange(3.0)).sum())(x)

    ours, theirs = loss(stax, getattr(snp, name)), loss(jax, getattr(jnp, name))
    assert_like_jax(ours, theirs, 1e-5)


def test_average() -> None:
    x, w = values((3, 4), "float32"), np.arange(4, dtype=np.float32)
    assert_like_jax(snp.average(x, 1, w), jnp.average(x, 1, w), 1e-6)
    assert_like_jax(snp.average(x), jnp.average(x), 1e-6)
    ours, theirs = snp.average(x, 1, w, True), jnp.average(x, 1, w, True)
    assert_like_jax(ours, tuple(theirs), 1e-6)
