"""Functions of sets against JAX: with known sizes and given ones, eager and compiled."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError, ConcretizationTypeError
from tests.like_jax import assert_like_jax

FLOATS = st.sampled_from([np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, 2.0])
NUMBERS = FLOATS.filter(lambda v: v == v)


def vectors(length: int, elements: Any = FLOATS) -> Any:
    """Draw vectors of one length: JAX compiles anew for every other."""
    lists = st.lists(elements, min_size=length, max_size=length)
    return lists.map(lambda v: np.array(v, np.float32))


FLAGS = ("return_index", "return_inverse", "return_counts")


def size_of(name: str, *args: Any, axis: int | None = None, **options: Any) -> int:
    """Return the length of NumPy's result."""
    axes = {"axis": axis} if name == "unique" else {}
    known = {k: v for k, v in options.items() if k == "equal_nan"}
    found = getattr(np, name)(*args, **axes, **known)
    return (found[0] if isinstance(found, tuple) else found).shape[axis or 0]


def check(name: str, *args: Any, **options: Any) -> None:
    """Compare a function with JAX's, which is compiled: a size that is not given is NumPy's."""
    ours = getattr(snp, name)(*args, **options)
    if options.get("size") is None:
        options["size"] = size_of(name, *args, **options)
    arrays, flags = args[:2], args[2:]
    theirs = jax.jit(lambda *xs: getattr(jnp, name)(*xs, *flags, **options))(*arrays)
    assert_like_jax(tuple(ours) if isinstance(ours, tuple) else ours, theirs)


@given(vectors(6), st.sampled_from([(3, None), (8, None), (8, 7)]), st.booleans())
@settings(max_examples=6)
def test_unique(x: np.ndarray, given_size: Any, equal_nan: bool) -> None:
    size, fill = given_size
    options: dict[str, Any] = {**dict.fromkeys(FLAGS, True), "equal_nan": equal_nan}
    check("unique", x, **options)
    check("unique", x, size=size, fill_value=fill, **options)


@pytest.mark.parametrize("axis", [0, 1])
def test_unique_rows(axis: int | None) -> None:
    x = np.array([[1, 2, 1], [0, 2, 0], [1, 2, 1], [0, 2, 0]], np.int32)
    options = dict.fromkeys(FLAGS, True) | {"axis": axis}
    check("unique", x, **options)
    for size in (1, 5):
        check("unique", x, size=size, **options)
        check("unique", x, size=size, fill_value=-1, **options)


def test_unique_of_nothing() -> None:
    for shape, axis in (((0,), None), ((0, 3), 1), ((0, 3), 0)):
        x = np.zeros(shape, np.float32)
        check("unique", x, axis=axis, size=2, fill_value=5)
    with pytest.raises(ArgumentValueError, match="fill_value"):
        snp.unique(np.zeros(0), size=2)


@pytest.mark.parametrize("size", [None, 2, 6])
def test_named_results(size: int | None) -> None:
    x = np.array([3.0, np.nan, 1.0, 3.0, np.nan], np.float32)
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        check(name, x, size=size)
    found = snp.unique_all(x, size=size)
    assert found._fields == jnp.unique_all(x, size=size)._fields


PAIRS = ["union1d", "intersect1d", "setdiff1d", "setxor1d"]


@given(
    st.sampled_from(PAIRS),
    vectors(6, NUMBERS),
    vectors(4, NUMBERS),
    st.sampled_from([(2, None), (9, None), (9, 5)]),
)
@settings(max_examples=8)
def test_two_sets(name: str, x: np.ndarray, y: np.ndarray, given_size: Any) -> None:
    size, fill = given_size
    check(name, x, y)
    check(name, x, y, size=size, fill_value=fill)
    if name == "intersect1d":
        check(name, x, y, size=size, return_indices=True)


def test_sets_without_repetition() -> None:
    x, y = np.array([3, 1, 7, 4]), np.array([9.0, 7.0, 1.0])
    for name in PAIRS[1:]:
        check(name, x, y, True)
        check(name, x, y, True, size=3)


@pytest.mark.parametrize("name", PAIRS)
def test_compiled(name: str) -> None:
    x, y = np.array([3, 1, 2, 3, 7], np.int32), np.array([[7, 3], [4, 1]], np.int32)
    ours = stax.jit(lambda x, y: getattr(snp, name)(x, y, size=4))(x, y)
    assert_like_jax(ours, getattr(jnp, name)(x, y, size=4))
    with pytest.raises(ConcretizationTypeError, match=r"size=n"):
        stax.jit(getattr(snp, name))(x, y)


def test_unique_when_compiled_and_mapped() -> None:
    x = np.array([[3, 1, 3, 2], [0, 0, 0, 0]], np.int32)

    def ours(x: Any) -> Any:
        return snp.unique(x, True, True, True, size=3)

    for i, found in enumerate(zip(*stax.vmap(ours)(x), strict=True)):
        assert_like_jax(tuple(found), jnp.unique(x[i], True, True, True, size=3))
        assert_like_jax(stax.jit(ours)(x[i]), jnp.unique(x[i], True, True, True, size=3))
    with pytest.raises(ConcretizationTypeError, match=r"size=n"):
        stax.make_graph(snp.unique)(snp.arange(3))


@given(vectors(6), vectors(4), st.booleans())
@settings(max_examples=6)
def test_isin(x: np.ndarray, y: np.ndarray, invert: bool) -> None:
    for method in ("auto", "compare_all", "binary_search", "sort"):
        ours = snp.isin(x, y, invert=invert, method=method)
        assert_like_jax(ours, jnp.isin(x, y, invert=invert))
    many = np.concatenate([y] * 30)
    assert_like_jax(snp.isin(x, many, invert=invert), jnp.isin(x, many, invert=invert))
    assert_like_jax(snp.isin(x, y[:0]), jnp.isin(x, y[:0]))
    with pytest.raises(ArgumentValueError, match="'compare_all'"):
        snp.isin(x, y, method="hash")
