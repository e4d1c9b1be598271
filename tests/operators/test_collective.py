"""Collectives under vmap against JAX: every op, axis, nesting, derivative; groups and many names.

JAX has collectives of groups, and of several names, on several devices only; they are compared
with the same collective over one axis.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError, DTypeError, ShapeError, UnsupportedError
from stax.operators.collective import take_lanes
from tests.like_jax import assert_like_jax

Program = Callable[[Any, Any, Any], Any]  # of `lax`, an array and the axis name


LANES, LENGTHS, TWO = st.integers(1, 4), st.integers(1, 3), st.just(2)


class Case(NamedTuple):
    """A collective of `lanes` lanes, each of which holds an array of `shape`."""

    name: str
    lanes: int
    shape: tuple[int, ...]
    program: Program

    def __repr__(self) -> str:
        return f"{self.name} of {self.lanes} x {self.shape}"

    def values(self, *sizes: int) -> np.ndarray:
        shape = (*sizes, self.lanes, *self.shape)
        return np.cos(np.arange(np.prod(shape)) * 1.7).astype("float32").reshape(shape)


@st.composite
def reductions(draw: Any, lanes: Any = LANES, lengths: Any = LENGTHS) -> Case:
    name = draw(st.sampled_from(["psum", "pmean", "pmax", "pmin"]))
    shape = draw(st.lists(lengths, max_size=3))
    return Case(name, draw(lanes), tuple(shape), lambda L, x, i: getattr(L, name)(x, i))


@st.composite
def permutations(draw: Any, lanes: Any = LANES, lengths: Any = LENGTHS) -> Case:
    count, shape = draw(lanes), tuple(draw(st.lists(lengths, max_size=2)))
    order = draw(st.permutations(range(count)))
    if draw(st.booleans()):
        return Case("pshuffle", count, shape, lambda L, x, i: L.pshuffle(x, i, order))
    pairs = list(zip(order, range(count), strict=True))
    return Case("ppermute", count, shape, lambda L, x, i: L.ppermute(x, i, pairs))


@st.composite
def exchanges(draw: Any, of: Any = LANES, lengths: Any = LENGTHS) -> Case:
    lanes, tiled = draw(of), draw(st.booleans())
    shape = draw(st.lists(lengths, min_size=1, max_size=3))
    name = draw(st.sampled_from(["all_gather", "psum_scatter", "all_to_all", "pswapaxes"]))
    if name == "all_gather":
        axis = draw(st.integers(-len(shape), len(shape) - tiled))
        gather = lambda L, x, i: L.all_gather(x, i, axis=axis, tiled=tiled)  # noqa: E731
        return Case(f"all_gather {axis} {tiled}", lanes, tuple(shape), gather)
    split, concat = draw(st.tuples(*[st.integers(0, len(shape) - 1)] * 2))
    tiled = tiled and name != "pswapaxes"
    shape[split] = lanes * shape[split] if tiled else lanes

    def program(L: Any, x: Any, i: Any) -> Any:
        if name == "pswapaxes":
            return L.pswapaxes(x, i, split)
        if name == "all_to_all":
            return L.all_to_all(x, i, split, concat, tiled=tiled)
        return L.psum_scatter(x, i, scatter_dimension=split, tiled=tiled)

    moved = name == "all_to_all" and not tiled and split != concat
    label = "all_to_all and moved" if moved else f"{name} {split} {concat} {tiled}"
    return Case(label, lanes, tuple(shape), program)


KINDS = (reductions, permutations, exchanges)
CASES = st.one_of(*(kind() for kind in KINDS))
# JAX has no derivatives of extremes, and inside of vmap none of an exchange that moves an axis.
# All lengths are the same, as each new one takes time in JAX.
SMOOTH = st.one_of(*(kind(TWO, TWO) for kind in KINDS)).filter(
    lambda case: case.name not in ("pmax", "pmin")
)
SMOOTH_INSIDE = SMOOTH.filter(lambda case: case.name != "all_to_all and moved")


def both(run: Callable[[Any], Any], tolerance: float = 1e-6) -> None:
    assert_like_jax(run(stax), jax.jit(lambda: run(jax))(), tolerance)


# --- values ---


@settings(max_examples=20)
@given(CASES, st.data())
def test_values(case: Case, data: Any) -> None:
    x = case.values()
    at = data.draw(st.integers(0, x.ndim - 1))
    x = np.moveaxis(x, 0, at)

    def run(J: Any, inside: Any = lambda f: f) -> Any:
        f = inside(lambda row: case.program(J.lax, row, "i"))
        return J.vmap(f, in_axes=at, axis_name="i")(x)

    both(run)
    assert_like_jax(run(stax, inside=stax.jit), run(stax), 1e-6)


@settings(max_examples=8)
@given(CASES)
def test_an_operand_that_is_not_mapped_is_so_in_each_lane(case: Case) -> None:
    row = case.values()[0]
    rows = np.broadcast_to(row, (case.lanes, *row.shape))
    ours = stax.vmap(
        lambda: case.program(stax.lax, row, "i"), axis_name="i", axis_size=case.lanes
    )()
    # JAX gives some of these another shape.
    theirs = jax.vmap(lambda x: case.program(jax.lax, x, "i"), axis_name="i")(rows)
    assert_like_jax(ours, theirs, 1e-6)


@settings(max_examples=8)
@given(CASES, st.booleans(), st.booleans())
def test_beside_another_axis(case: Case, inside: bool, named: bool) -> None:
    x = case.values(2)

    def run(J: Any) -> Any:
        f = lambda row: case.program(J.lax, row, "i")  # noqa: E731
        other = {"axis_name": "j"} if named else {}
        if inside:
            return J.vmap(J.vmap(f, **other), in_axes=1, axis_name="i")(x)
        return J.vmap(J.vmap(f, axis_name="i"), **other)(x)

    both(run)


@settings(max_examples=5)
@given(CASES)
def test_compiled(case: Case) -> None:
    both(
        lambda J: J.jit(J.vmap(lambda x: case.program(J.lax, J.numpy.sin(x), "i"), axis_name="i"))(
            case.values()
        )
    )


@pytest.mark.parametrize("dtype", ["int8", "uint16", "bool", "float16", "bfloat16", "complex64"])
def test_dtypes(dtype: str) -> None:
    x = snp.asarray(np.arange(12).reshape(3, 4) % 5).astype(dtype)

    def run(J: Any, function: str, x: Any) -> Any:
        return J.vmap(lambda row: getattr(J.lax, function)(row, "i"), axis_name="i")(x)

    names = "psum", "pmean", "pmax", "pmin", "all_gather"
    theirs = jax.jit(lambda x: tuple(run(jax, name, x) for name in names))(np.asarray(x))
    assert_like_jax(tuple(run(stax, name, x) for name in names), theirs, 1e-2)


def test_keys_are_gathered_and_moved() -> None:
    def run(J: Any) -> Any:
        def f(key: Any) -> Any:
            rows = J.lax.all_gather(key, "i"), J.lax.ppermute(key, "i", [(0, 1), (1, 2), (2, 0)])
            return J.random.key_data(rows[0]), J.random.key_data(rows[1])

        return J.vmap(f, axis_name="i")(J.random.split(J.random.key(0), 3))

    both(run)
    with pytest.raises(DTypeError, match="psum does not accept"):
        stax.vmap(lambda k: stax.lax.psum(k, "i"), axis_name="i")(
            stax.random.split(stax.random.key(0), 3)
        )


def test_a_lane_that_receives_nothing_has_zeros() -> None:
    send = lambda x: stax.lax.ppermute(x, "i", [(0, 2), (3, 1)])  # noqa: E731
    x = snp.arange(1, 5)
    assert stax.vmap(send, axis_name="i")(x).tolist() == [0, 4, 1, 0]
    assert stax.vmap(lambda: send(7), axis_name="i", axis_size=4)().tolist() == [0, 7, 7, 0]
    back = stax.vmap(stax.grad(lambda x: 3 * send(x)), axis_name="i")(x.astype(float))
    assert back.tolist() == [3, 0, 0, 3]


def test_pbroadcast() -> None:
    # As JAX defines it; under vmap its own raises.
    def defined(x: Any) -> Any:
        here = jax.lax.axis_index("i") == 2
        return jax.lax.psum(jax.numpy.where(here, x, 0), "i")

    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    ours = stax.vmap(lambda x: stax.lax.pbroadcast(x, "i", 2), axis_name="i")
    assert_like_jax(ours(x), jax.vmap(defined, axis_name="i")(x))
    squares = lambda x: (stax.lax.pbroadcast(x, "i", 2) ** 2).sum()  # noqa: E731
    gradient = stax.vmap(stax.grad(squares), axis_name="i")
    theirs = jax.vmap(jax.grad(lambda x: (defined(x) ** 2).sum()), axis_name="i")(x)
    assert_like_jax(gradient(x), theirs)


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=9))
def test_take_lanes(lanes: Sequence[int | None]) -> None:
    x = np.arange(1, 13).reshape(6, 2)
    wanted = [np.zeros(2, int) if lane is None else x[lane] for lane in lanes]
    np.testing.assert_array_equal(take_lanes(snp.asarray(x), lanes), wanted)


# --- derivatives ---


def loss(J: Any, case: Case, x: Any) -> Any:
    y = case.program(J.lax, J.numpy.sin(x), "i")
    return (J.numpy.cos(J.numpy.arange(y.size)).reshape(y.shape) * y**2).sum()


@settings(max_examples=5)
@given(SMOOTH_INSIDE)
def test_derivatives_inside(case: Case) -> None:
    x = case.values()

    def pulled_and_pushed(J: Any) -> Any:
        f = lambda x: loss(J, case, x)  # noqa: E731
        lane = lambda x: (J.grad(f)(x), *J.jvp(f, (x,), (x * x,)))  # noqa: E731
        return J.vmap(lane, axis_name="i")(x)

    both(pulled_and_pushed, 1e-5)


@settings(max_examples=5)
@given(SMOOTH)
def test_derivatives_outside(case: Case) -> None:
    x = case.values()
    mapped = lambda J: lambda x: J.vmap(lambda r: loss(J, case, r), axis_name="i")(x)  # noqa: E731
    both(lambda J: J.grad(lambda x: mapped(J)(x).sum())(x), 1e-5)


@settings(max_examples=6)
@given(SMOOTH_INSIDE)
def test_second_derivatives(case: Case) -> None:
    x = case.values()
    inner = lambda J: J.grad(lambda x: loss(J, case, x))  # noqa: E731
    both(lambda J: J.vmap(J.grad(lambda x: inner(J)(x).sum()), axis_name="i")(x), 1e-4)


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extremes_have_derivatives(name: str) -> None:
    # Forward mode knows no convention: inside and outside of vmap agree.
    x = np.float32([[1, 5, 2], [4, 5, 0], [4, 1, 1]])
    t = np.float32([[1, 2, 3], [4, 6, 8], [2, 2, 2]])
    f = lambda x: getattr(stax.lax, name)(x * x, "i")  # noqa: E731
    inside = stax.vmap(lambda x, t: stax.jvp(f, (x,), (t,)), axis_name="i")(x, t)
    reduced = getattr(jax.numpy, name[1:])
    for ours, row in zip(inside, jax.jvp(lambda x: reduced(x * x, 0), (x,), (t,)), strict=True):
        np.testing.assert_allclose(ours, np.broadcast_to(row, x.shape))


# --- groups, and several names ---


@settings(max_examples=6)
@given(st.one_of(reductions(), exchanges()), st.integers(1, 3), st.randoms())
def test_each_group_is_an_axis(case: Case, count: int, random: Any) -> None:
    lanes = list(range(case.lanes * count))
    random.shuffle(lanes)
    groups = [lanes[g::count] for g in range(count)]
    x = np.concatenate([case.values() + g for g in range(count)])

    class Grouped:
        def __getattr__(self, name: str) -> Any:
            function = getattr(stax.lax, name)
            return lambda *args, **kwargs: function(*args, **kwargs, axis_index_groups=groups)

    ours = stax.vmap(lambda row: case.program(Grouped(), row, "i"), axis_name="i")(x)
    for group in groups:
        alone = jax.vmap(lambda row: case.program(jax.lax, row, "i"), axis_name="i")(x[group])
        np.testing.assert_allclose(np.asarray(ours)[group], alone, rtol=1e-6, atol=1e-6)


@settings(max_examples=8)
@given(st.one_of(reductions(), exchanges()))
def test_several_names_are_one_axis(case: Case) -> None:
    # Two rows of lanes; the case is remade for the sum of them by its own lanes being even.
    if case.lanes % 2:
        return
    x = case.values()
    rows = x.reshape(2, case.lanes // 2, *case.shape)
    program = lambda row: case.program(stax.lax, row, ("i", "j"))  # noqa: E731
    nested = stax.vmap(stax.vmap(program, axis_name="j"), axis_name="i")(rows)
    alone = jax.vmap(lambda row: case.program(jax.lax, row, "k"), axis_name="k")(x)
    np.testing.assert_allclose(np.asarray(nested).reshape(alone.shape), alone, rtol=1e-6, atol=1e-6)


def test_reductions_over_named_and_positional_axes() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def run(J: Any, function: str, axes: tuple[Any, ...]) -> Any:
        f = lambda x: getattr(J.lax, function)(x, axes)  # noqa: E731
        f = J.vmap(f, axis_name="j") if "j" in axes else f
        return J.vmap(f, in_axes=len(axes) - 1, axis_name="i")(x)

    for function in ("psum", "pmean", "pmax", "pmin"):
        both(lambda J, f=function: run(J, f, ("i", "j")))
        if function != "pmean":
            both(lambda J, f=function: run(J, f, ("i", 1)))


# --- values that are known ---


def test_what_is_not_mapped_has_a_value() -> None:
    def f(x: Any, n: Any) -> Any:
        assert int(stax.lax.psum(n, "i")) == 12 and int(stax.lax.pmax(n, "i")) == 4
        assert stax.lax.all_gather(n, "i").tolist() == [4, 4, 4]
        assert stax.lax.pshuffle(n, "i", [2, 0, 1]) == 4
        return -x if stax.lax.pbroadcast(n, "i", 0) > 3 else x

    assert stax.vmap(f, in_axes=(0, None), axis_name="i")(snp.arange(3), 4).tolist() == [0, -1, -2]


@pytest.mark.parametrize(
    "lane",
    [
        lambda n: stax.lax.axis_index("i"),
        lambda n: stax.lax.axis_index("i") * 0 + n,
        lambda n: stax.lax.all_to_all(snp.arange(3), "i", 0, 0).sum(),
        lambda n: stax.lax.psum_scatter(snp.arange(3), "i"),
        lambda n: stax.lax.ppermute(n, "i", [(0, 1)]),
        lambda n: stax.lax.scan(lambda c, _: (c + stax.lax.axis_index("i"), None), n, None, 2)[0],
        lambda n: stax.jit(lambda: stax.lax.axis_index("i"))(),
    ],
)
def test_what_differs_between_lanes_has_none(lane: Callable[[Any], Any]) -> None:
    with pytest.raises(stax.errors.TracerBoolConversionError, match="of a mapped array"):
        stax.vmap(lambda x, n: x if lane(n) else -x, (0, None), axis_name="i")(snp.arange(3), 4)


# --- bad input ---


def grouped(axis_name: Any, groups: Any) -> Callable[..., Any]:
    return lambda L, x: L.psum(x, axis_name, axis_index_groups=groups)


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda L, x: L.psum(x, ("i", "i")), ArgumentValueError, "named twice"),
        (lambda L, x: L.psum_scatter(x, "i"), ShapeError, "length 2, and axis 'i' has 3 lanes"),
        (lambda L, x: L.psum_scatter(x, "i", tiled=True), ShapeError, "has length 2"),
        (lambda L, x: L.all_to_all(x, "i", 0, 0), ShapeError, "axis 0 of f32.2. has length 2"),
        (lambda L, x: L.all_to_all(x, "i", 1, 0), ShapeError, "split_axis 1 is out of range"),
        (lambda L, x: L.all_gather(x, "i", axis=2), ShapeError, "axis 2 is out of range"),
        (lambda L, x: L.all_gather(x, "i", to="reduced"), UnsupportedError, "several devices"),
        (lambda L, x: L.all_gather(x, ("i", 0)), UnsupportedError, "positions of axes"),
        (lambda L, x: L.ppermute(x, "i", [(0, 1), (1, 1)]), ArgumentValueError, "different lanes"),
        (lambda L, x: L.ppermute(x, "i", [(0, 3)]), ArgumentValueError, "different lanes"),
        (lambda L, x: L.pshuffle(x, "i", [0, 0, 1]), ArgumentValueError, "no permutation"),
        (lambda L, x: L.pbroadcast(x, "i", 3), ArgumentValueError, "different lanes"),
        (lambda L, x: L.ppermute(x, ("i", "j"), [(0, 0)]), UnsupportedError, "several axes"),
        (grouped("i", [[0, 1], [1, 2]]), ArgumentValueError, "once"),
        (grouped("i", [[0, 1]]), ArgumentValueError, "3 lanes"),
        (grouped("i", [[0], [1, 2]]), ArgumentValueError, "length"),
        (grouped(("i", 0), [[0, 1, 2]]), ArgumentValueError, "one"),
    ],
)
def test_bad_input(function: Callable[..., Any], error: type[Exception], message: str) -> None:
    mapped = stax.vmap(lambda x: function(stax.lax, x), axis_name="i")
    with pytest.raises(error, match=message):
        stax.vmap(mapped, axis_name="j")(snp.ones((1, 3, 2)))
