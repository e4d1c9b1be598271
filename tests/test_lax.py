"""stax.lax against jax.lax: values, types, strictness, gradients."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import DTypeError, ShapeError
from tests.like_jax import assert_like_jax

F = np.array([[-2.5, -0.5, 0.0], [0.5, 1.5, 3.0]], np.float32)
P = np.abs(F) + 1
I = np.array([[-21, 7, 0], [5, -3, 9]], np.int32)  # noqa: E741
J = np.array([[5, -2, 3], [7, 4, 1]], np.int32)  # no 0: XLA would divide by it and die
B = np.array([[True, False, True], [False, True, True]])

CASES: list[tuple[Any, ...]] = [
    *((name, F) for name in (
        "neg", "sign", "floor", "ceil", "exp", "exp2", "expm1", "sin", "cos", "tan", "tanh",
        "logistic", "erf",
        "erfc", "is_finite", "abs", "square", "atan", "sinh", "cosh", "asinh", "round")),
    *((name, P) for name in ("log", "log1p", "sqrt", "rsqrt", "cbrt", "reciprocal", "acosh")),
    *((name, F / 4) for name in ("asin", "acos", "atanh")),
    *((name, F, P) for name in (
        "add", "sub", "mul", "div", "rem", "max", "min", "atan2", "eq", "ne", "lt", "le", "gt",
        "ge")),
    *((name, I, J) for name in (
        "add", "mul", "div", "rem", "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left",
        "shift_right_logical", "shift_right_arithmetic")),
    ("bitwise_not", B), ("bitwise_not", I), ("add", F, 2.0), ("mul", 3, I), ("pow", P, F),
    ("pow", F, 3),
    ("pow", P, J), ("integer_pow", F, -2), ("clamp", -1.0, F, 1.0), ("clamp", F - 1, F, P),
    ("select", B, F, P),
    ("select_n", B, F, P), ("select_n", np.int32(1), F, P, F),
    ("select_n", (I % 3).astype(np.int32), F, P, -F),
    ("convert_element_type", F, np.int8), ("convert_element_type", I, float), ("round", F, 1),
    ("broadcast", F, (2, 1)), ("broadcast_in_dim", F, (2, 4, 3), (0, 2)), ("reshape", F, (3, 2)),
    ("reshape", F, (3, 2), (1, 0)), ("collapse", F[None], 1), ("transpose", F, (1, 0)),
    ("expand_dims", F, (0, 2)),
    ("squeeze", F[None], (0,)), ("rev", F, (1,)), ("concatenate", [F, P], 1),
    ("split", F, (1, 2), 1),
    ("pad", F, np.float32(7), ((1, -1, 0), (0, 2, 1))), ("iota", np.int32, 4),
    ("broadcasted_iota", np.float32, (2, 3), 1),
    ("full", (2,), 3.5), ("full_like", I, 2), ("slice", F, (0, 1), (2, 3)),
    ("slice", F, (0, 0), (2, 3), (1, 2)),
    ("slice_in_dim", F, 1, None, 1, 1), ("slice_in_dim", F, -2, 3, 2, 1),
    ("index_in_dim", F, -1, 1),
    ("index_in_dim", F, 0, 1, False), ("dynamic_slice", F, (1, -2), (1, 2)),
    ("dynamic_slice", F, (np.int32(9), 0), (1, 2)),
    ("dynamic_slice_in_dim", F, np.int32(1), 2, 1),
    ("dynamic_index_in_dim", F, np.uint8(1), 1, False),
    ("dynamic_update_slice", F, P[:1], (np.int32(1), 0)),
    ("dynamic_update_slice_in_dim", F, P[:, :1], 2, 1),
    ("dynamic_update_index_in_dim", F, P[0], np.int32(1), 0), ("reduce_sum", F, (0,)),
    ("reduce_prod", F, (0, 1)),
    ("reduce_max", F, (1,)), ("reduce_min", I, (0,)), ("reduce_and", B, (0,)),
    ("reduce_or", B, (1,)),
    ("argmax", F, 1, np.int32), ("argmin", F, 0, np.int32), ("cumsum", F, 1),
    ("cumsum", F, 1, True),
    ("cumprod", P, 0), ("cummax", I, 1), ("cummin", I, 1, True), ("cumlogsumexp", F, 1),
    ("cumlogsumexp", F, 1, True),
    ("sort", I, 0), ("sort_key_val", I, F), ("top_k", F, 2), ("dot", F, P.T), ("dot", F[0], P[0]),
    ("dot_general", F, P, (((1,), (1,)), ((), ()))),
    ("dot_general", F, P, (((1,), (1,)), ((0,), (0,)))),
    ("batch_matmul", F[None], P.T[None]), ("broadcast_to_rank", F, 4), ("stop_gradient", F),
    ("unstack", F),
]  # fmt: skip
CASES.append(("tile", F, (2, 1)))


def called(library: Any, case: Any) -> Any:
    """Call the function; a list of results becomes a tuple."""
    name, *args = case
    found = getattr(library.lax, name)(*args)
    return tuple(found) if isinstance(found, tuple | list) else found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_like_jax(case: Any) -> None:
    theirs = jax.jit(lambda: called(jax, case))()
    assert_like_jax(called(stax, case), theirs, 2e-6)


def test_sort_of_several_keys() -> None:
    keys = (np.array([1, 0, 1, 0]), np.array([3.0, 2.0, 1.0, 2.0], np.float32), np.arange(4))
    ours, theirs = stax.lax.sort(keys, num_keys=2), jax.lax.sort(keys, num_keys=2)
    assert_like_jax(ours, tuple(theirs))


def test_top_k_of_ties_and_nan() -> None:
    x = np.array([1, 3, np.nan, 3, 3], np.float32)
    values, places = stax.lax.top_k(x, 4)
    np.testing.assert_array_equal(values, [np.nan, 3, 3, 3])
    np.testing.assert_array_equal(places, [2, 1, 3, 4])
    with pytest.raises(ValueError, match="top_k"):
        stax.lax.top_k(x, 6)


def test_dtypes_and_shapes_are_not_reconciled() -> None:
    with pytest.raises(DTypeError, match="one dtype"):
        stax.lax.add(F, I)
    with pytest.raises(ShapeError, match="one shape"):
        stax.lax.add(F, F[0])
    with pytest.raises(DTypeError, match=r"1\.5"):
        stax.lax.add(I, 1.5)
    with pytest.raises(ShapeError):
        stax.lax.split(F, (1, 1), 1)
    assert stax.lax.add(snp.array(F), snp.float32(1)).shape == F.shape


def test_division_of_integers_truncates_and_never_traps() -> None:
    assert stax.lax.div(-21, 5) == -4 and stax.lax.rem(-21, 5) == -1
    low = np.int32(-(2**31))
    assert stax.lax.div(low, np.int32(-1)) == low and stax.lax.div(low, np.int32(0)) == -1
    assert stax.lax.rem(low, np.int32(-1)) == 0 and stax.lax.rem(low, np.int32(0)) == low


def test_clipped_starts() -> None:
    assert stax.lax.dynamic_slice(snp.arange(200), (np.uint8(128),), (1,)) == 128
    jacobian = stax.jacfwd(
        lambda x: stax.vmap(lambda i: stax.lax.dynamic_index_in_dim(x, i, keepdims=False))(
            snp.array([3])
        )
    )(snp.array([2.0]))
    np.testing.assert_array_equal(jacobian, [[1.0]])


def test_stop_gradient() -> None:
    held = lambda x: stax.lax.stop_gradient(x) * x  # noqa: E731
    assert stax.grad(held)(3.0) == 3.0
    assert stax.grad(stax.grad(held))(3.0) == 0.0
    assert stax.jit(stax.grad(held))(3.0) == 3.0
    tangent = stax.jvp(stax.lax.stop_gradient, (2.0,), (1.0,))[1]
    assert tangent == 0.0
    tree = stax.lax.stop_gradient({"a": snp.ones(2), "n": 3})
    assert set(tree) == {"a", "n"}
    mapped = stax.vmap(stax.grad(held))(snp.arange(3.0))
    np.testing.assert_array_equal(mapped, [0.0, 1.0, 2.0])


@pytest.mark.parametrize(
    "name", ["cumlogsumexp", "cummax", "cumprod", "logistic", "rsqrt", "erf", "cumsum"]
)
def test_gradients(name: str) -> None:
    weight = np.random.default_rng(0).normal(size=P.shape).astype(np.float32)

    def loss(library: Any) -> Any:
        return lambda x: (getattr(library.lax, name)(x) * weight).sum()

    ours = stax.grad(loss(stax))(snp.array(P))
    assert_like_jax(ours, jax.jit(jax.grad(loss(jax)))(jnp.array(P)), 1e-5)


def test_gather_and_scatter() -> None:
    numbers = stax.lax.GatherDimensionNumbers((1,), (0,), (0,))
    theirs = jax.lax.GatherDimensionNumbers((1,), (0,), (0,))
    rows = np.array([[1], [0], [1]])
    assert_like_jax(
        stax.lax.gather(F, rows, numbers, (1, 3)), jax.lax.gather(F, rows, theirs, (1, 3))
    )
    spread = stax.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    theirs = jax.lax.ScatterDimensionNumbers((1,), (0,), (0,))
    updates = np.ones((3, 3), np.float32)
    for name in ("scatter_add", "scatter_sub", "scatter_max"):
        ours = getattr(stax.lax, name)(F, rows, updates, spread)
        assert_like_jax(ours, getattr(jax.lax, name)(F, rows, updates, theirs))


@pytest.mark.parametrize("allowed", [False, True, (True, False)])
def test_negative_starts_count_from_the_end_where_allowed(allowed: Any) -> None:
    x, new = np.arange(12, dtype=np.float32).reshape(3, 4), np.full((2, 2), -1, np.float32)

    def slices(lib: Any) -> Any:
        def both(*starts: Any) -> Any:
            options = {"allow_negative_indices": allowed}
            part = lib.lax.dynamic_slice(x, starts, (2, 2), **options)
            return part, lib.lax.dynamic_update_slice(x, new, starts, **options)

        return lib.jit(both)(-2, -3)

    for ours, theirs in zip(slices(stax), slices(jax), strict=True):
        assert_like_jax(ours, theirs)


def test_known_negative_starts_are_refused_where_not_allowed() -> None:
    for lib in (stax.lax, jax.lax):
        with pytest.raises(ValueError, match="negative"):
            lib.dynamic_slice(np.ones(3), (-1,), (1,), allow_negative_indices=False)


def test_an_index_out_of_bounds() -> None:
    with pytest.raises(IndexError, match="index_in_dim: index 4 is out of bounds"):
        stax.lax.index_in_dim(np.ones((3, 4)), 4, axis=1)
