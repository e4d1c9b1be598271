"""Convolutions against JAX: layouts, strides, dilations, paddings, groups, derivatives, batches."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax import lax
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from tests.like_jax import assert_like_jax

LAYOUTS = {
    0: [("NC", "IO", "NC")],
    1: [("NHC", "HIO", "NHC"), ("NCH", "OIH", "CNH")],
    2: [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HNWC", "IHWO", "CWNH")],
    3: [("NHWDC", "HWDIO", "NHWDC")],
}
CLOSE = 2e-4


class Case(NamedTuple):
    x: np.ndarray
    w: np.ndarray
    options: dict[str, Any]

    def ours(self, x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, **self.options)

    def theirs(self, x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, **self.options)


@st.composite
def cases(draw: Any, dtypes: tuple[str, ...] = ("float32",)) -> Case:
    rank = draw(st.sampled_from([0, 1, 2, 2, 2, 3]))
    names = draw(st.sampled_from(LAYOUTS[rank]))
    by_feature, by_batch = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2)]))
    small = st.integers(1, 3)
    sizes = {
        "N": draw(small) * by_batch,
        "C": draw(small) * by_feature,
        "O": draw(small) * by_feature * by_batch,
    }
    sizes["I"] = sizes["C"] // by_feature
    x_shape = [sizes.get(c) or draw(st.integers(2, 7)) for c in names[0]]
    w_shape = [sizes.get(c) or draw(small) for c in names[1]]

    def each(values: Any) -> list[Any]:
        return draw(st.lists(values, min_size=rank, max_size=rank))

    spread = each(st.integers(1, 2))
    pads = each(st.tuples(st.integers(-1, 2), st.integers(-1, 2)))
    named = st.just(pads) if max([1, *spread]) > 1 else st.sampled_from(["SAME", "VALID", pads])
    options = {
        "window_strides": each(small),
        "padding": draw(named),
        "lhs_dilation": spread,
        "rhs_dilation": each(st.integers(1, 2)),
        "dimension_numbers": names,
        "feature_group_count": by_feature,
        "batch_group_count": by_batch,
    }
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    dtype = draw(st.sampled_from(dtypes))
    x, w = (rng.integers(-3, 4, shape).astype(dtype) for shape in (x_shape, w_shape))
    if dtype == "complex64":
        x, w = x * np.complex64(1 - 0.5j), w * np.complex64(2j)
    return Case(x, w, options)


@given(cases(("float32", "bfloat16", "int32", "uint8", "complex64")))
@settings(max_examples=15)
def test_values(case: Case) -> None:
    theirs = case.theirs(case.x, case.w)
    # The numbers are small and whole, so that every order of summation gives the same.
    assert_like_jax(case.ours(case.x, case.w), theirs)
    assert_like_jax(stax.jit(case.ours)(case.x, case.w), theirs)


@given(cases())
@settings(max_examples=8)
def test_derivatives(case: Case) -> None:
    args, dots = (case.x, case.w), (case.x + 1, case.w - 2)
    shape = jax.eval_shape(case.theirs, *args).shape
    ct = np.random.default_rng(1).integers(-3, 4, shape).astype(np.float32)

    def both(args: Any, dots: Any, ct: Any) -> Any:
        return jax.vjp(case.theirs, *args)[1](ct), jax.jvp(case.theirs, args, dots)

    def pulled(x: Any, w: Any) -> Any:
        return stax.vjp(case.ours, x, w)[1](ct)

    expected, pushed = jax.jit(both)(args, dots, ct)
    assert_like_jax(pulled(*args), expected)
    assert_like_jax(stax.jit(pulled)(*args), expected)
    assert_like_jax(stax.jvp(case.ours, args, dots), pushed)


@given(cases(), st.sampled_from([(0, None), (None, 0), (0, 0), (1, 0), (0, 1)]))
@settings(max_examples=8)
def test_batches(case: Case, axes: Any) -> None:
    x, w = (
        value if axis is None else np.stack([value, -2 * value], axis)
        for value, axis in zip((case.x, case.w), axes, strict=True)
    )
    theirs = jax.jit(jax.vmap(case.theirs, axes))(x, w)
    assert_like_jax(stax.vmap(case.ours, axes)(x, w), theirs)
    assert_like_jax(stax.jit(stax.vmap(case.ours, axes))(x, w), theirs)


def test_second_derivative_of_a_network() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 6, 6, 2)).astype(np.float32)
    w = (rng.standard_normal((3, 3, 2, 2)) / 4).astype(np.float32)

    def loss(library: Any, numpy: Any) -> Any:
        def apply(w: Any) -> Any:
            y = library.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=LAYOUTS[2][0]
            )
            y = numpy.tanh(y)
            y = library.lax.conv_general_dilated(
                y, w, (2, 2), "VALID", dimension_numbers=LAYOUTS[2][0]
            )
            return (y**2).sum()

        return apply

    ours = stax.jit(stax.grad(lambda w: (stax.grad(loss(stax, stax.numpy))(w) ** 2).sum()))(w)
    theirs = jax.jit(jax.grad(lambda w: (jax.grad(loss(jax, jax.numpy))(w) ** 2).sum()))(w)
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=CLOSE, atol=CLOSE)


def test_large_products_and_their_gradients() -> None:
    """Sizes that are worth a call of a library, with and without groups."""
    rng = np.random.default_rng(0)
    for groups in (1, 4):
        x = rng.integers(-2, 3, (4, 16, 16, 16)).astype(np.float32)
        w = rng.integers(-2, 3, (3, 3, 16 // groups, 32)).astype(np.float32)
        options = {"dimension_numbers": LAYOUTS[2][0], "feature_group_count": groups}
        case = Case(x, w, {"window_strides": (1, 1), "padding": "SAME", **options})
        theirs, back = jax.vjp(case.theirs, x, w)
        ours, pull = stax.jit(lambda x, w, f=case.ours: stax.vjp(f, x, w))(x, w)
        assert_like_jax(ours, theirs)
        assert_like_jax(stax.jit(lambda pull, ct: pull(ct))(pull, theirs), back(theirs), CLOSE)


def test_infinities_in_patches_stay_where_they_are() -> None:
    x = np.array([[[1.0, np.inf, 3.0]]], np.float32)
    patches = lax.conv_general_dilated_patches(x, (2,), (1,), "VALID")
    np.testing.assert_array_equal(np.asarray(patches), [[[1, np.inf], [np.inf, 3]]])


def test_symbolic_examples() -> None:
    w = np.ones((3, 3, 1, 2), np.float32)
    f = stax.jit(
        lambda x: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUTS[2][0]),
        dynamic={"x": {0: "n"}},
    )
    for n in (3, 5):
        x = np.ones((n, 4, 4, 1), np.float32)
        theirs = jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUTS[2][0])
        assert_like_jax(f(x), theirs)


X, W = np.ones((2, 5, 5, 4), np.float32), np.ones((3, 3, 4, 6), np.float32)
NHWC = {"dimension_numbers": LAYOUTS[2][0]}


@pytest.mark.parametrize(
    ("args", "options", "error", "message"),
    [
        ((X, W.astype(np.int32), (1, 1), "SAME"), NHWC, DTypeError, "one dtype"),
        ((X, W[0], (1, 1), "SAME"), {}, ArgumentError, "number of axes"),
        ((X, W, (1, 1), "SAME"), {"dimension_numbers": ("NHWC", "HWIO")}, ArgumentError, "three"),
        ((X, W, (1, 1), "SAME"), {"dimension_numbers": ("NHWC", "HWI", "NHWC")}, ArgumentError,
         "does not name"),
        ((X, W, (1, 1), "SAME"), {"dimension_numbers": ("NHWC", "HWII", "NHWC")}, ArgumentError,
         "has to name"),
        ((X, W, (1, 1), "SAME"), {"dimension_numbers": ("NHWC", "HDIO", "NHWC")}, ArgumentError,
         "different spatial axes"),
        ((X, W, (1,), "SAME"), NHWC, ArgumentError, "window_strides"),
        ((X, W, (1, 1), "ALL"), NHWC, ArgumentValueError, "not a padding"),
        ((X, W, (1, 1), "SAME"), {**NHWC, "lhs_dilation": (2, 1)}, ArgumentValueError, "several"),
        ((X, W, (1, 1), "SAME"), {**NHWC, "feature_group_count": 3}, ArgumentValueError,
         "does not divide"),
        ((X, W, (1, 1), "SAME"), {**NHWC, "feature_group_count": 2}, ShapeError, "channels"),
        ((X, W, (0, 1), ((0, 0), (0, 0))), NHWC, ShapeError, "at least 1"),
        ((X, W, (0, 1), "SAME"), NHWC, ArgumentValueError, "strides are at least 1"),
    ],
)  # fmt: skip
def test_errors(args: Any, options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lax.conv_general_dilated(*args, **options)
