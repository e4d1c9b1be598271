"""lax.reduce and the running reductions against JAX: monoids of one and several arrays."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
from stax import lax, numpy as snp
from stax.errors import ArgumentError, DTypeError, ShapeError
from tests.like_jax import assert_like_jax


def values(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return small integers in a dtype, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(jnp.dtype(dtype))


# Functions of two scalars, written for a library; their neutral value; the dtypes they take.
FLOATS, INTS = ("float32", "bfloat16"), ("int32", "uint8")
MONOIDS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "add": (lambda lax, np: lax.add, 0, (*FLOATS, *INTS)),
    "plus": (lambda lax, np: lambda a, b: a + b, 0, (*FLOATS, *INTS)),
    "mul": (lambda lax, np: lax.mul, 1, (*FLOATS, *INTS)),
    "max": (lambda lax, np: lax.max, "low", (*FLOATS, *INTS)),
    "minimum": (lambda lax, np: np.minimum, "high", (*FLOATS, *INTS)),
    "and": (lambda lax, np: lax.bitwise_and, -1, ("int32", "bool")),
    "or": (lambda lax, np: lambda a, b: b | a, 0, ("int32", "bool")),
    "xor": (lambda lax, np: lax.bitwise_xor, 0, ("int32", "uint8", "bool")),
    "first": (lambda lax, np: lambda a, b: np.where(a == 0, b, a), 0, ("int32", "float32")),
    "quadrature": (lambda lax, np: lambda a, b: np.sqrt(a * a + b * b), 0, ("float32",)),
}


def neutral(value: Any, dtype: str) -> np.ndarray:
    kind = jnp.dtype(dtype)
    if isinstance(value, int):
        return np.asarray(value).astype(kind)
    is_float = jnp.issubdtype(kind, jnp.floating)
    low, high = (-np.inf, np.inf) if is_float else (np.iinfo(kind).min, np.iinfo(kind).max)
    return np.asarray(low if value == "low" else high, kind)


CASES = [(name, dtype) for name, (_, _, dtypes) in MONOIDS.items() for dtype in dtypes]


@pytest.mark.parametrize(("name", "dtype"), CASES)
@pytest.mark.parametrize("axes", [(1,), (0, 2)])
def test_reduce(name: str, dtype: str, axes: tuple[int, ...]) -> None:
    make, value, _ = MONOIDS[name]
    x, init = values((3, 5, 2), dtype), neutral(value, dtype)
    theirs = jax.lax.reduce(jnp.asarray(x), jnp.asarray(init), make(jax.lax, jnp), axes)
    tolerance = 1e-2 if dtype == "bfloat16" else 1e-6

    def ours(x: Any) -> Any:
        return lax.reduce(x, init, make(lax, snp), axes)

    assert_like_jax(ours(x), theirs, tolerance)
    if axes == (1,):
        assert_like_jax(stax.jit(ours)(x), theirs, tolerance)


def test_a_known_function_is_the_op_of_its_name() -> None:
    for computation in (lax.add, lambda a, b: b + a, snp.add):
        graph = stax.make_graph(lambda x, c=computation: lax.reduce(x, 0.0, c, (0,)))(values((9,)))
        assert [node.op.name for node in graph.nodes] == ["reduce_sum"]
    graph = stax.make_graph(lambda x: lax.reduce(x, 2.0, lax.add, (0,)))(values((9,)))
    assert "reduce_sum" in [node.op.name for node in graph.nodes]
    assert lax.reduce(values((9,)), 2.0, lax.add, (0,)) == values((9,)).sum() + 2


def arg_max(left: Any, right: Any) -> Any:
    """The larger of two values with its place, for either library."""
    np_ = jnp if isinstance(left[0], jax.Array) else snp
    wins = left[0] >= right[0]
    return np_.where(wins, left[0], right[0]), np_.where(wins, left[1], right[1])


@pytest.mark.parametrize("n", [0, 1, 7])
def test_reduce_of_several_arrays(n: int) -> None:
    x, places = values((3, n)), np.broadcast_to(np.arange(n, dtype=np.int32), (3, n))
    inits = (np.float32(-9), np.int32(-1))

    def ours(x: Any, i: Any) -> Any:
        return lax.reduce((x, i), inits, arg_max, (1,))

    theirs = jax.lax.reduce((jnp.asarray(x), jnp.asarray(places)), inits, arg_max, (1,))
    assert_like_jax(ours(x, places), theirs)
    assert_like_jax(stax.jit(ours)(x, places), theirs)
    assert_like_jax(stax.vmap(ours)(x[:, None], places[:, None])[0][:, 0], theirs[0])


def test_order_is_kept() -> None:
    """Products of matrices do not commute: an associative function sees its arguments in order."""
    pieces = [values((2, 6), seed=s) for s in range(4)]
    inits = tuple(map(np.float32, (1, 0, 0, 1)))

    def product(left: Any, right: Any) -> Any:
        (a, b, c, d), (e, f, g, h) = left, right
        return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h

    ours = lax.reduce(tuple(pieces), inits, product, (1,))
    stacked = np.stack(pieces, -1).reshape(2, 6, 2, 2)
    expected = [np.linalg.multi_dot(list(m)) for m in stacked]
    np.testing.assert_array_equal(np.stack(ours, -1).reshape(2, 2, 2), expected)


def test_reduce_has_derivatives() -> None:
    x = values((3, 7)) + 2.5

    def norm(x: Any) -> Any:
        return lax.reduce(x, 0.0, lambda a, b: snp.sqrt(a * a + b * b + 1.0), (1,)).sum()

    step, way = 1e-3, values((3, 7), seed=1)
    slope = (norm(x + step * way) - norm(x - step * way)) / (2 * step)
    np.testing.assert_allclose((stax.grad(norm)(x) * way).sum(), slope, rtol=5e-2)
    ours = stax.grad(lambda x: lax.reduce(x, -np.inf, lax.max, (0, 1)))(x)
    theirs = jax.grad(lambda x: jax.lax.reduce(x, -np.inf, jax.lax.max, (0, 1)))
    assert_like_jax(ours, jax.jit(theirs)(x))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x: lax.reduce(x, (0.0,), lax.add, (0,)), ArgumentError, "differ in structure"),
        (lambda x: lax.reduce(x, np.int32(0), lax.add, (0,)), DTypeError, "initial value"),
        (lambda x: lax.reduce(x, x, lax.add, (0,)), DTypeError, "not a scalar"),
        (lambda x: lax.reduce(x, 0.0, lambda a, b: a > b, (0,)), DTypeError, "returns bool"),
        (lambda x: lax.reduce(x, 0.0, lambda a, b: (a, b), (0,)), ArgumentError, "returns"),
    ],
)
def test_what_is_no_monoid(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use(values((3,)))


RUNNING = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]


@given(
    st.sampled_from(RUNNING),
    st.sampled_from([(1,), (5,), (4, 3), (3, 0), (2, 7, 3)]),
    st.integers(-1, 0),
    st.booleans(),
    st.integers(0, 99),
)
@settings(max_examples=15)
def test_running(name: str, shape: tuple[int, ...], axis: int, reverse: bool, seed: int) -> None:
    x, axis = values(shape, seed=seed), axis % len(shape)
    theirs = getattr(jax.lax, name)(x, axis, reverse)
    assert_like_jax(getattr(lax, name)(x, axis, reverse), theirs, 2e-6)
    ours = stax.jit(lambda x: getattr(lax, name)(x, axis, reverse))(x)
    assert_like_jax(ours, theirs, 2e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", RUNNING)
def test_derivatives_of_running(name: str, reverse: bool) -> None:
    # Products have zeros among their factors. JAX's derivative of an extreme with ties depends on
    # how its scan is cut, so there are none.
    x, w = values((2, 7), seed=3), values((2, 7), seed=4)
    if name in ("cummax", "cummin"):
        x = np.random.default_rng(0).permutation(14).reshape(2, 7).astype(np.float32)

    def ours(x: Any) -> Any:
        return getattr(lax, name)(x, 1, reverse)

    def theirs(x: Any) -> Any:
        return getattr(jax.lax, name)(x, 1, reverse)

    slope = stax.jit(stax.grad(lambda x: (w * ours(x)).sum()))(x)
    both = jax.jit(
        lambda x, w: (jax.grad(lambda x: (w * theirs(x)).sum())(x), *jax.jvp(theirs, (x,), (w,)))
    )
    wanted, _, pushed = both(x, w)
    assert_like_jax(slope, wanted, 1e-5)
    assert_like_jax(stax.jvp(ours, (x,), (w,))[1], pushed, 1e-5)


@pytest.mark.parametrize("dtype", ["int8", "bfloat16"])
@pytest.mark.parametrize("name", RUNNING[:4])
def test_running_in_other_dtypes(name: str, dtype: str) -> None:
    x = values((4, 5), dtype, 3)
    theirs = getattr(jax.lax, name)(jnp.asarray(x), 1)
    assert_like_jax(stax.jit(lambda x: getattr(lax, name)(x, 1))(x), theirs, 1e-2)


def test_places_of_extremes_in_any_integer_type() -> None:
    x = values((4, 5), seed=2)
    for dtype in ("int8", "uint8", "int32"):
        for name in ("argmax", "argmin"):
            ours = stax.jit(lambda x, n=name, d=dtype: getattr(lax, n)(x, 1, d))(x)
            assert_like_jax(ours, getattr(jax.lax, name)(x, 1, jnp.dtype(dtype)))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 7])
def test_associative_scan(length: int, reverse: bool) -> None:
    a, b = values((2, length), seed=5), values((2, length, 3), seed=6)

    def compose(left: Any, right: Any) -> Any:
        """Join affine maps, which do not commute."""
        return right[0] * left[0], right[0][..., None] * left[1] + right[1]

    def scan(library: Any, a: Any, b: Any) -> Any:
        return library.lax.associative_scan(compose, (a, b), reverse=reverse, axis=1)

    theirs = scan(jax, a, b)
    assert_like_jax(scan(stax, a, b), theirs)
    assert_like_jax(stax.jit(lambda a, b: scan(stax, a, b))(a, b), theirs)
    held = values((5,), "bool")
    ours = lax.associative_scan(lax.bitwise_xor, held, reverse=reverse)
    assert_like_jax(ours, jax.lax.associative_scan(jax.lax.bitwise_xor, held, reverse=reverse))
    with pytest.raises(ShapeError, match="differ in length"):
        lax.associative_scan(compose, (a, b[:, :0]), axis=1)
