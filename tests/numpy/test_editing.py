"""Picking out, leaving out and putting in; vectorised functions; histograms; nan-quantiles."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import UnsupportedError
from tests.like_jax import assert_like_jax
from tests.like_numpy import compared

M = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.array([3.0, 0.0, 2.0, 0.0], np.float32)
N = np.array([[1.0, np.nan, 3.0, 7.0], [np.nan] * 4, [2.0, 4.0, np.nan, np.nan]], np.float32)

PICKING: list[tuple[Any, ...]] = [
    ("flatnonzero", V), ("argwhere", M % 3), ("extract", M % 2 == 0, M), ("compress", V > 0, V),
    ("compress", np.array([True, False, True]), M, 0),
    ("choose", np.array([0, 1, 0, 1]), [V, V * 10]),
]  # fmt: skip


@pytest.mark.parametrize("case", PICKING, ids=lambda c: c[0])
def test_picking(case: Any) -> None:
    name, *args = case
    ours, theirs = getattr(snp, name)(*args), getattr(np, name)(*args)
    np.testing.assert_array_equal(ours, theirs)
    assert ours.dtype == getattr(jnp, name)(*args).dtype


def test_picking_a_known_number_of_elements() -> None:
    assert_like_jax(
        snp.flatnonzero(V, size=3, fill_value=9), jnp.flatnonzero(V, size=3, fill_value=9)
    )


@pytest.mark.parametrize("obj", [1, -1, [0, 2], slice(0, 2), np.array([True, False, True])])
def test_delete(obj: Any) -> None:
    for axis in (0, None):
        if axis == 0 or not isinstance(obj, np.ndarray):
            np.testing.assert_array_equal(snp.delete(M, obj, axis), np.delete(M, obj, axis))


@pytest.mark.parametrize("obj", [1, -1, [0, 2], [1, 1], slice(0, 2)])
def test_insert(obj: Any) -> None:
    for axis in (0, 1, None):
        np.testing.assert_array_equal(snp.insert(M, obj, 7, axis), np.insert(M, obj, 7, axis))


def test_put_along_axis() -> None:
    places = np.array([[1], [-1], [0]])
    expected = M.copy()
    np.put_along_axis(expected, places, -5, 1)
    found = snp.put_along_axis(M, places, -5, 1, inplace=False)
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="inplace"):
        snp.put_along_axis(M, places, -5, 1)


def test_indices_of_flattened_arrays() -> None:
    places = np.array([0, 5, 11])
    ours, theirs = snp.unravel_index(places, (3, 4)), np.unravel_index(places, (3, 4))
    np.testing.assert_array_equal(np.stack(ours), np.stack(theirs))
    np.testing.assert_array_equal(snp.ravel_multi_index(ours, (3, 4)), places)
    beyond = (np.array([4]), np.array([-1]))
    assert snp.ravel_multi_index(beyond, (3, 4), mode="wrap") == 7
    with pytest.raises(ValueError, match="outside"):
        snp.ravel_multi_index(beyond, (3, 4))
    rows, columns = snp.ix_(np.array([0, 2]), np.array([1, 3]))
    np.testing.assert_array_equal(snp.array(M)[rows, columns], M[np.ix_([0, 2], [1, 3])])


def test_vectorize() -> None:
    scaled = snp.vectorize(lambda x, w: snp.dot(x, w), signature="(n),(n)->()")
    np.testing.assert_allclose(scaled(M, V), M @ V)
    np.testing.assert_allclose(scaled(M[:, None], np.stack([V, V + 1])), M @ np.stack([V, V + 1]).T)
    pairs = snp.vectorize(lambda x, y: snp.where(x > y, x, y))
    np.testing.assert_array_equal(pairs(M, V), np.maximum(M, V))
    kept = snp.vectorize(lambda x, n: x * n, excluded={1})
    np.testing.assert_array_equal(kept(V, 3), V * 3)
    with pytest.raises(ValueError, match="signature"):
        snp.vectorize(lambda x: x, signature="(n),(n)->()")(V)


def test_apply_along_and_over_axes() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis in (0, 1, -1):
        for function, theirs in ((snp.sum, np.sum), (lambda v: v[::2] * 2, lambda v: v[::2] * 2)):
            ours = snp.apply_along_axis(function, axis, x)
            np.testing.assert_allclose(ours, np.apply_along_axis(theirs, axis, x))
    np.testing.assert_allclose(
        snp.apply_over_axes(snp.sum, x, [0, 2]), np.apply_over_axes(np.sum, x, [0, 2])
    )


@pytest.mark.parametrize(
    "options", [{}, {"bins": 4}, {"range": (0, 2)}, {"density": True}], ids=str
)
def test_histogram(options: dict[str, Any]) -> None:
    x = np.array([0.0, 0.5, 1.0, 1.0, 2.0, 3.0], np.float32)
    theirs = np.histogram(x, **options)
    for wide in (False, True):
        with stax.enable_x64(wide):
            ours = snp.histogram(x, **options)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_gradient_by_differences() -> None:
    np.testing.assert_allclose(snp.gradient(V), np.gradient(V))
    for a, b in zip(snp.gradient(M, 2.0), np.gradient(M, 2.0), strict=True):
        np.testing.assert_allclose(a, b)
    np.testing.assert_allclose(snp.gradient(M, axis=1), np.gradient(M, axis=1))


@pytest.mark.filterwarnings("ignore:All-NaN")
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_quantiles_without_nan(axis: int | None) -> None:
    q = np.array([0.0, 0.3, 1.0], np.float32)
    for method in ("linear", "lower", "nearest", "midpoint"):
        ours = snp.nanquantile(N, q, axis, method=method, keepdims=True)
        theirs = np.nanquantile(N, q, axis, method=method, keepdims=True)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(snp.nanmedian(N, axis), np.nanmedian(N, axis), rtol=1e-6)
    np.testing.assert_allclose(snp.nanpercentile(N, 40, axis), np.nanpercentile(N, 40, axis), 1e-5)


def test_array_api_sums() -> None:
    for dtype in ("int8", "float32"):
        x = M.astype(dtype)
        compared("cumulative_sum", x, axis=1, values=lambda v, axis: np.cumsum(v, axis))
        assert_like_jax(
            snp.cumulative_prod(x, axis=0, include_initial=True),
            jnp.cumulative_prod(x, axis=0, include_initial=True),
        )


def test_negative_indices_of_narrow_types() -> None:
    # The length 300 does not fit int8, so places are counted from the end in a wider type.
    x, places = np.arange(300, dtype=np.float32), np.array([-1, -128, 5], np.int8)
    changed = x.copy()
    changed[places] = 7.0
    np.testing.assert_array_equal(snp.put_along_axis(x, places, 7.0, 0, inplace=False), changed)
    np.testing.assert_array_equal(snp.take(x, places), x[places])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: snp.gradient(np.arange(4.0), edge_order=2), "gradient: edge_order"),
        (lambda: snp.array([1, 2], order="F"), "array: order 'F'"),
        (lambda: snp.asarray([1, 2], order="F"), "asarray: order 'F'"),
        (lambda: snp.pad(np.ones(3), 1, mode="fold"), "pad: mode 'fold'"),
        (lambda: snp.take(np.ones(3), 0, mode="raise"), "take: mode='raise'"),
        (lambda: snp.sum(np.ones(3), out=np.ones(())), "sum: out="),
    ],
)
def test_what_is_not_supported_says_so(call: Any, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        call()


@pytest.mark.parametrize(
    "use",
    [
        lambda np_: np_.take(np.zeros((0, 3)), np.zeros(0, int), axis=0),
        lambda np_: np_.take(np.zeros((2, 0)), np.array([5]), axis=0),
        lambda np_: np_.take_along_axis(np.zeros((0, 3)), np.zeros((0, 1), int), 0),
        lambda np_: np_.take_along_axis(np.zeros((3, 0)), np.zeros((2, 0), int), 0),
        lambda np_: np_.repeat(np.zeros(0, bool), np.zeros(0, int)),
    ],
)
def test_nothing_taken_from_nothing(use: Any) -> None:
    ours, theirs = use(snp), use(jnp)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
