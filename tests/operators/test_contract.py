"""Products against JAX: general dimension numbers, NumPy's spellings, derivatives, batching."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax

import stax.interpreters.evaluate
import stax.numpy.indexing  # noqa: F401
from stax.api.derivatives import grad, vjp
from stax.api.mapping import vmap
from stax.array import asarray
from stax.errors import ArgumentValueError, DTypeError, ShapeError
from stax.extent import symbol
from stax.operators.contract import DotGeneral, dot, dot_general, matmul, tensordot
from stax.trace import Trace
from stax.types import ArrayType, float32
from tests.like_jax import TOLERANCES, assert_like_jax

DTYPES = ["float32", "float16", "bfloat16", "int8", "int32", "uint8", "bool", "complex64"]


def numbers(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return small integers, whose sums of products are exact in every dtype."""
    drawn = np.random.default_rng(seed).integers(-3, 4, shape)
    return np.asarray(drawn).astype(jnp.dtype(dtype))


@st.composite
def problems(draw: Any) -> Any:
    """Draw two shapes and the dimension numbers of a product of them."""
    batch, contracted, left, right = (
        draw(st.lists(st.integers(1, 3), max_size=2)) for _ in range(4)
    )
    sides = []
    for free in (left, right):
        sizes = [*batch, *contracted, *free]
        order = draw(st.permutations(range(len(sizes))))
        place = {axis: i for i, axis in enumerate(order)}
        named = [place[i] for i in range(len(batch) + len(contracted))]
        sides.append((tuple(sizes[a] for a in order), named[: len(batch)], named[len(batch) :]))
    (x, xb, xc), (y, yb, yc) = sides
    return x, y, ((tuple(xc), tuple(yc)), (tuple(xb), tuple(yb)))


@given(problems(), st.sampled_from(DTYPES))
@settings(max_examples=12)
def test_dot_general(problem: Any, dtype: str) -> None:
    x_shape, y_shape, axes = problem
    x, y = numbers(x_shape, dtype), numbers(y_shape, dtype, 1)
    theirs = lax.dot_general(jnp.asarray(x), jnp.asarray(y), axes)
    assert_like_jax(dot_general(x, y, axes), theirs)


@given(problems())
@settings(max_examples=12)
def test_cotangents(problem: Any) -> None:
    x_shape, y_shape, axes = problem
    x, y = numbers(x_shape), numbers(y_shape, seed=1)
    out, back = vjp(lambda x, y: dot_general(x, y, axes), x, y)
    ct = numbers(out.shape, seed=2)
    _, theirs = jax.vjp(lambda x, y: lax.dot_general(x, y, axes), x, y)
    assert_like_jax(tuple(back(ct)), theirs(ct))


@given(problems(), st.sampled_from([(0, 0), (0, None), (None, 0)]))
@settings(max_examples=12)
def test_batches(problem: Any, in_axes: Any) -> None:
    x_shape, y_shape, axes = problem
    x, y = (
        numbers(shape if axis is None else (2, *shape), seed=seed)
        for seed, (shape, axis) in enumerate(zip((x_shape, y_shape), in_axes, strict=True))
    )
    ours = vmap(lambda x, y: dot_general(x, y, axes), in_axes)(x, y)
    theirs = jax.vmap(lambda x, y: lax.dot_general(x, y, axes), in_axes)(x, y)
    assert_like_jax(ours, theirs)


def test_an_operand_without_the_batch_axis_is_not_repeated() -> None:
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (8, 3, 4)), "x")
        w = trace.input(ArrayType(float32, (4, 5)), "w")
        graph = trace.finish([vmap(matmul, (0, None))(x, w)])
    assert "broadcast" not in {node.op.name for node in graph.nodes}


SHAPES = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((5, 2, 3), (1, 3, 4)),
    ((6, 1, 2, 3), (5, 3, 4)),
    ((6, 5, 2, 3), (1, 3, 4)),
    ((3,), (5, 3, 4)),
    ((5, 2, 3), (3,)),
    ((1, 5, 2, 3), (6, 1, 3, 4)),
    ((0, 3), (3, 2)),
    ((2, 0), (0, 3)),
    ((1, 2, 3), (1, 3, 4)),
]


@pytest.mark.parametrize(("x_shape", "y_shape"), SHAPES)
def test_matmul_broadcasts_like_numpy(x_shape: Any, y_shape: Any) -> None:
    x, y = numbers(x_shape), numbers(y_shape, seed=1)
    np.testing.assert_array_equal(np.asarray(matmul(x, y)), x @ y)
    np.testing.assert_array_equal(np.asarray(asarray(x) @ y), x @ y)


@pytest.mark.parametrize(("x", "y"), [*itertools.product(DTYPES, repeat=2)])
def test_matmul_promotes_like_jax(x: str, y: str) -> None:
    left, right = numbers((2, 3), x), numbers((3, 2), y, 1)
    ours, theirs = matmul(left, right), jnp.matmul(jnp.asarray(left), jnp.asarray(right))
    assert_like_jax(ours, theirs)


@pytest.mark.parametrize("shapes", [((), ()), ((), (2, 3)), ((2, 3), (3,)), ((2, 3), (4, 3, 5))])
def test_dot(shapes: Any) -> None:
    x, y = (numbers(s, seed=i) for i, s in enumerate(shapes))
    assert_like_jax(dot(x, y), jnp.dot(x, y))


@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 1), (1, 0)), ([2], [0]), (2, 0)])
def test_tensordot(axes: Any) -> None:
    x, y = numbers((3, 4, 3)), numbers((4, 3, 3) if axes == 2 else (3, 3, 2), seed=1)
    if axes == ((0, 1), (1, 0)):
        y = numbers((4, 3, 2), seed=1)
    assert_like_jax(tensordot(x, y, axes), jnp.tensordot(x, y, axes))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bits_accumulate_in_32(dtype: str) -> None:
    x = np.full((1, 4096), 1.0, jnp.dtype(dtype))
    assert float(matmul(x, x.T)[0, 0]) == 4096.0
    y = np.random.default_rng(0).normal(size=(8, 64)).astype(jnp.dtype(dtype))
    assert_like_jax(matmul(y, y.T), jnp.matmul(y, y.T), TOLERANCES[dtype])


INTEGERS = tuple(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))


@pytest.mark.parametrize("dtype", (*INTEGERS, "bool"))
@pytest.mark.parametrize("largest", [9, None])
def test_large_products_of_integers_are_exact(dtype: str, largest: int | None) -> None:
    """They wrap, as those of NumPy do."""
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    low, high = (low, high) if largest is None else (max(low, -largest), min(high, largest))
    rng = np.random.default_rng(0)
    shapes = ((3, 40, 33), (3, 33, 50))
    x, y = (rng.integers(low, high, s, np.dtype(dtype), endpoint=True) for s in shapes)
    x[0], y[0] = low, low
    got = DotGeneral(((2,), (1,)), ((0,), (0,))).evaluate(x, y)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.matmul(x, y))


def test_preferred_element_type() -> None:
    x, y = numbers((2, 200), "int8") * 40, numbers((200, 2), "int8", 1) * 40
    axes = (((1,), (0,)), ((), ()))
    ours = dot_general(x, y, axes, preferred_element_type=np.int32)
    theirs = lax.dot_general(x, y, axes, preferred_element_type=np.int32)
    assert_like_jax(ours, theirs)
    half = numbers((2, 2), "bfloat16")
    assert matmul(half, half, preferred_element_type=float32).dtype == float32
    slope = grad(lambda w: matmul(w, w, preferred_element_type=float32)[0, 0])(half)
    assert slope.dtype == half.dtype


def test_weak_types() -> None:
    x = asarray(2.0)
    assert dot(x, x).weak_type and not dot(x, numbers((2,))).weak_type


def test_symbolic_lengths() -> None:
    n, m = symbol("n"), symbol("m")
    with Trace("f", "test") as trace:
        x = trace.input(ArrayType(float32, (n, 4, m)), "x")
        w = trace.input(ArrayType(float32, (m, 5)), "w")
        assert matmul(x, w).shape == (n, 4, 5)
        assert vmap(matmul)(x, x.owner.input(ArrayType(float32, (n, m, 7)), "y")).shape == (n, 4, 7)


def test_errors_name_the_axes() -> None:
    with Trace("loss", "grad") as trace:
        h = trace.input(ArrayType(float32, (32, 128)), "h")
        w = trace.input(ArrayType(float32, (64, 10)), "w")
        with pytest.raises(ShapeError) as caught:
            matmul(h, w)
    rule, lhs, rhs, *doing, advice = str(caught.value).splitlines()
    assert rule == "dot_general: contracted axes differ in size, 128 and 64."
    assert lhs.split()[:4] == ["lhs", "f32[32,128]", "parameter", "h"]
    assert rhs.split()[:4] == ["rhs", "f32[64,10]", "parameter", "w"]
    assert any("tracing loss for grad" in line for line in doing)
    assert advice == "  axis 1 of lhs f32[32,128] is contracted with axis 0 of rhs f32[64,10]."


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x: matmul(x, 2.0), ArgumentValueError, "operand 1 needs at least one axis"),
        (lambda x: matmul(numbers((2, 3, 3)), numbers((4, 3, 3))), ShapeError, "do not broadcast"),
        (lambda x: dot_general(x, x, (((0, 0), (0, 1)), ((), ()))), ShapeError, "named twice"),
        (lambda x: dot_general(x, x, (((0,), ()), ((), ()))), ShapeError, "in pairs"),
        (lambda x: dot_general(x, x, (((5,), (0,)), ((), ()))), ShapeError, "out of range"),
        (
            lambda x: dot_general(x, x.astype(int), (((0,), (0,)), ((), ()))),
            DTypeError,
            "one dtype",
        ),
        (lambda x: tensordot(x, x, 3), ArgumentValueError, "sum over 3 axes"),
        (lambda x: tensordot(x, x, ((0, 1), (0,))), ArgumentValueError, "pairs"),
    ],
)
def test_what_is_refused(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use(numbers((3, 3)))
