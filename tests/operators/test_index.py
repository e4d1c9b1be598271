"""Gather and scatter against JAX: dimension numbers, modes, derivatives, batching."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from jax import lax

import stax.interpreters.evaluate  # noqa: F401
from stax.api.derivatives import grad, jvp, vjp
from stax.api.mapping import vmap
from stax.array import asarray
from stax.errors import ArgumentValueError, DTypeError, MissingRule, ShapeError
from stax.operators import index as ops
from stax.operators.broadcast import reduce_sum
from stax.operators.index import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from tests.like_jax import assert_like_jax
from tests.operators.point_kernel import PointKernel, PointOperand

MODES = ["clip", "fill", "promise_in_bounds"]
KINDS = ["scatter", "scatter_add", "scatter_mul", "scatter_min", "scatter_max"]
THEIR_GATHER, THEIR_SCATTER = lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers


def floats(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return small integers as floats, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@st.composite
def problems(draw: Any) -> Any:
    """Draw an operand's shape, indices, window sizes and dimension numbers of a gather."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axes = draw(st.permutations(range(len(shape))))
    paired = tuple(sorted(axes[: draw(st.integers(0, min(1, len(shape) - 1)))]))
    rest = [a for a in axes if a not in paired]
    starts = tuple(rest[: draw(st.integers(1, len(rest)))])
    sizes = [1 if a in paired else draw(st.integers(1, n)) for a, n in enumerate(shape)]
    dropped = tuple(sorted(a for a in rest if sizes[a] == 1 and draw(st.booleans())))
    outer = draw(st.lists(st.integers(1, 3), max_size=2))
    outer = [*outer, *(shape[a] for a in paired)]
    inner = [a for a in range(len(shape)) if a not in dropped and a not in paired]
    ndim = len(outer) + len(inner)
    offsets = tuple(sorted(draw(st.permutations(range(ndim)))[: len(inner)]))
    indices = np.random.default_rng(draw(st.integers(0, 99))).integers(-1, 4, (*outer, len(starts)))
    numbers = (offsets, dropped, starts, paired, tuple(range(len(outer) - len(paired), len(outer))))
    return tuple(shape), indices.astype(np.int32), tuple(sizes), numbers


def inside(problem: Any) -> Any:
    """Return the problem with its windows moved inside."""
    shape, indices, sizes, numbers = problem
    room = np.array([shape[a] - sizes[a] for a in numbers[2]], np.int32)
    return shape, np.clip(indices, 0, room), sizes, numbers


@given(problems(), st.sampled_from(["clip", "fill"]))
@settings(max_examples=15)
def test_gather(problem: Any, mode: str) -> None:
    shape, indices, sizes, numbers = problem
    x = floats(shape)
    ours = ops.gather(x, indices, GatherDimensionNumbers(*numbers), sizes, mode=mode)
    theirs = lax.gather(x, indices, THEIR_GATHER(*numbers), sizes, mode=mode)
    assert_like_jax(ours, theirs)


@given(problems(), st.sampled_from(MODES))
@settings(max_examples=12)
def test_gather_lowers_to_its_values(problem: Any, mode: str) -> None:
    shape, indices, sizes, numbers = problem
    x = floats(shape)
    how = GatherScatterMode.from_any(mode)
    op = ops.Gather(GatherDimensionNumbers(*numbers), sizes, how, -1.0, False)
    value = op.evaluate(x, indices)
    types = [asarray(a).type for a in (x, indices)]
    operands = [PointOperand(t, a) for t, a in zip(types, (x, indices), strict=True)]
    for place in np.ndindex(*value.shape):
        assert op.lower(PointKernel(), place, *operands) == value[place]


@given(problems(), st.sampled_from(["clip", "fill"]), st.sampled_from(KINDS))
@settings(max_examples=12)
def test_scatter(problem: Any, mode: str, kind: str) -> None:
    shape, indices, sizes, numbers = problem
    x = floats(shape)
    windows = ops.gather(x, indices, GatherDimensionNumbers(*numbers), sizes, mode="clip")
    updates = floats(windows.shape, 1)
    ours = getattr(ops, kind)(x, indices, updates, ScatterDimensionNumbers(*numbers), mode=mode)
    theirs = getattr(lax, kind)(x, indices, updates, THEIR_SCATTER(*numbers), mode=mode)
    assert_like_jax(ours, theirs)


@given(problems(), st.sampled_from(["clip", "fill"]))
@settings(max_examples=12)
def test_gather_derivatives(problem: Any, mode: str) -> None:
    shape, indices, sizes, numbers = problem
    x = floats(shape)
    out, back = vjp(
        lambda x: ops.gather(x, indices, GatherDimensionNumbers(*numbers), sizes, mode=mode), x
    )
    ct = floats(out.shape, 2)

    def theirs(x: Any, ct: Any) -> Any:
        read = lambda x: lax.gather(x, indices, THEIR_GATHER(*numbers), sizes, mode=mode)  # noqa: E731
        return jax.vjp(read, x)[1](ct)

    assert_like_jax(tuple(back(ct)), jax.jit(theirs)(x, ct))


@given(problems(), st.sampled_from(["clip", "fill"]), st.sampled_from(KINDS))
@settings(max_examples=12)
def test_scatter_derivatives(problem: Any, mode: str, kind: str) -> None:
    # JAX's tangents of minima are NaN for windows that it moved inside.
    extremal = kind in ("scatter_min", "scatter_max")
    shape, indices, sizes, numbers = inside(problem) if extremal else problem
    unique = kind == "scatter_mul"
    if unique:
        if indices.size > indices.shape[-1]:
            indices = indices.reshape(-1, indices.shape[-1])[:1].reshape(
                *(1,) * (indices.ndim - 1), -1
            )
        if any(n > 1 for n in (shape[a] for a in numbers[3])):
            return
    x = floats(shape)
    windows = ops.gather(x, indices, GatherDimensionNumbers(*numbers), sizes, mode="clip")
    updates = floats(windows.shape, 1)

    def ours(x: Any, u: Any) -> Any:
        axes = ScatterDimensionNumbers(*numbers)
        return getattr(ops, kind)(x, indices, u, axes, mode=mode, unique_indices=unique)

    def theirs(x: Any, u: Any) -> Any:
        axes = THEIR_SCATTER(*numbers)
        return getattr(lax, kind)(x, indices, u, axes, mode=mode, unique_indices=unique)

    tangents, ct = (floats(shape, 3), floats(windows.shape, 4)), floats(shape, 2)

    def pushed_and_pulled(args: Any, tangents: Any, ct: Any) -> Any:
        return *jax.jvp(theirs, args, tangents), jax.vjp(theirs, *args)[1](ct)

    right = jax.jit(pushed_and_pulled)((x, updates), tangents, ct)
    value, tangent = jvp(ours, (x, updates), tangents)
    assert_like_jax(value, right[0])
    assert_like_jax(tangent, right[1], 1e-6)
    assert_like_jax(tuple(vjp(ours, x, updates)[1](ct)), right[2], 1e-6)


FLAGS = [f for f in itertools.product((0, None), repeat=3) if f != (None, None, None)]


@given(problems(), st.sampled_from(FLAGS), st.sampled_from(["clip", "fill"]))
@settings(max_examples=15)
def test_batches(problem: Any, flags: Any, mode: str) -> None:
    shape, indices, sizes, numbers = problem
    many = np.stack([indices, np.flip(indices)]) if flags[1] == 0 else indices
    x = floats(shape if flags[0] is None else (2, *shape))
    windows = ops.gather(
        floats(shape), indices, GatherDimensionNumbers(*numbers), sizes, mode="clip"
    )
    u = floats(windows.shape if flags[2] is None else (2, *windows.shape), 1)

    def ours(x: Any, i: Any, u: Any) -> Any:
        axes = ScatterDimensionNumbers(*numbers)
        new = ops.scatter_add(x, i, u, axes, mode=mode)
        return ops.gather(new, i, GatherDimensionNumbers(*numbers), sizes, mode=mode)

    def theirs(x: Any, i: Any, u: Any) -> Any:
        new = lax.scatter_add(x, i, u, THEIR_SCATTER(*numbers), mode=mode)
        return lax.gather(new, i, THEIR_GATHER(*numbers), sizes, mode=mode)

    assert_like_jax(vmap(ours, flags)(x, many, u), jax.jit(jax.vmap(theirs, flags))(x, many, u))


ROWS = GatherDimensionNumbers((1,), (0,), (0,))
TO_ROWS = ScatterDimensionNumbers((1,), (0,), (0,))


def test_the_last_of_equal_indices_is_set() -> None:
    x, i = floats((3, 2)), np.array([[1], [1], [0], [1]])
    u = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert ops.scatter(x, i, u, TO_ROWS).tolist() == [[4, 5], [6, 7], x[2].tolist()]
    slope = grad(lambda u: reduce_sum(ops.scatter(x, i, u, TO_ROWS)))(u)
    assert slope.tolist() == [[0, 0], [0, 0], [1, 1], [1, 1]]


def test_fill_values_are_those_of_jax() -> None:
    for dtype in ("float32", "int32", "uint8", "bool", "bfloat16"):
        x, i = np.zeros((2, 2), jnp.dtype(dtype)), np.array([[5]])
        ours = ops.gather(x, i, ROWS, (1, 2), mode="fill")
        theirs = lax.gather(
            jnp.asarray(x), jnp.asarray(i), THEIR_GATHER(*ROWS), (1, 2), mode="fill"
        )
        assert_like_jax(ours, theirs)
    assert ops.gather(x, i, ROWS, (1, 2), mode="fill", fill_value=7).tolist() == [[7, 7]]


def test_16_bits_add_up_in_32() -> None:
    x, i = np.zeros((1, 1), np.float16), np.zeros((4096, 1), np.int32)
    assert ops.scatter_add(x, i, np.ones((4096, 1), np.float16), TO_ROWS).tolist() == [[4096.0]]


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda x, i: ops.gather(x, i + 0.5, ROWS, (1, 2)), DTypeError, "must be integers"),
        (lambda x, i: ops.gather(x, i, ROWS, (4, 2)), ShapeError, "do not fit"),
        (lambda x, i: ops.gather(x, i, ROWS, (2, 2)), ShapeError, "must have length 1"),
        (lambda x, i: ops.gather(x, i[:, 0], ROWS, (1, 2)), ShapeError, "hold 1 components"),
        (lambda x, i: ops.gather(x, i, ROWS, (1, 2), mode="wrap"), ArgumentValueError, "'clip'"),
        (lambda x, i: ops.scatter(x, i, x[:2], TO_ROWS), ShapeError, "have"),
        (lambda x, i: ops.scatter(x, i, i, TO_ROWS), DTypeError, "does not accept"),
        (lambda x, i: grad(lambda u: reduce_sum(ops.scatter_mul(x, i, u, TO_ROWS)))(x[:1]),
         MissingRule, "unique_indices=True"),
    ],
)  # fmt: skip
def test_what_is_refused(use: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        use(floats((3, 2)), np.array([[1]]))
