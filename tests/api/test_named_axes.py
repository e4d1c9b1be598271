"""Named axes: what is bound where, and collectives inside every other transform, against JAX."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.errors import ArgumentError, ArgumentValueError, UnboundAxisNameError
from tests.like_jax import assert_like_jax

M = np.cos(np.arange(12, dtype=np.float32) * 1.3).reshape(3, 4)
CUBE = np.cos(np.arange(24, dtype=np.float32) * 0.7).reshape(2, 3, 4)


def both(run: Callable[[Any, Any, Any], Any], tolerance: float = 1e-5) -> None:
    """Compare what `run` does with a library, its lax and its numpy."""
    ours, theirs = run(stax, stax.lax, snp), run(jax, jax.lax, jax.numpy)
    ours, theirs = (tuple(J.tree_util.tree_leaves(x)) for J, x in ((stax, ours), (jax, theirs)))
    assert_like_jax(ours, theirs, tolerance)


# --- names ---


def test_several_names_at_once() -> None:
    def f(L: Any, x: Any, y: Any) -> Any:
        place = L.axis_index(("i", "j")) * 10 + L.axis_index("j")
        return L.psum(x * y, ("i", "j")), L.pmean(x, ("j", "i")), place, L.axis_size(("i", "j")) * x

    both(
        lambda J, L, N: J.vmap(
            J.vmap(lambda x, y: f(L, x, y), in_axes=(0, None), axis_name="j"), axis_name="i"
        )(CUBE, CUBE[:, 0])
    )
    both(lambda J, L, N: J.vmap(J.vmap(lambda x: L.psum(x, ()), 0, 0, "j"), 0, 0, "i")(CUBE))


def test_an_inner_axis_hides_an_outer_one_of_the_same_name() -> None:
    def program(J: Any, L: Any, N: Any) -> Any:
        def inner(x: Any) -> Any:
            return x / L.psum(x, "i"), L.axis_index("i"), L.axis_size("i") + x

        def outer(x: Any) -> Any:
            return L.psum(x, "i"), J.vmap(inner, axis_name="i")(x), L.psum(x.sum(), "i")

        return J.vmap(outer, axis_name="i")(CUBE)

    both(program)


def test_an_outer_axis_is_seen_through_others() -> None:
    def program(J: Any, L: Any, N: Any) -> Any:
        f = lambda x: x * L.axis_index("i") + L.psum(x, "i")  # noqa: E731
        return J.vmap(lambda x: J.vmap(J.vmap(f), axis_name="j")(x), axis_name="i")(CUBE)

    both(program)


def test_numbers_are_constants() -> None:
    def f(x: Any) -> Any:
        size = stax.lax.psum(1, "i")
        assert type(size) is int and size == 3 == stax.lax.axis_size("i")
        assert stax.lax.psum(0.5, "i") == 1.5 and stax.lax.pmean(2, "i") == 2.0
        assert stax.lax.psum(1, "i", axis_index_groups=[[0, 1, 2]]) == 3
        summed = stax.lax.psum({"a": 2, "b": [np.int8([1, 2])]}, "i")
        assert summed["a"] == 6 and summed["b"][0].tolist() == [3, 6]
        assert summed["b"][0].dtype == np.int8
        return snp.zeros(size) + stax.lax.psum(snp.arange(3), "i") + x

    assert stax.vmap(f, axis_name="i")(snp.arange(3)).tolist() == [
        [i, 3 + i, 6 + i] for i in range(3)
    ]


def test_trees() -> None:
    tree = {"a": M, "b": (M[:, 0], None, [M > 0])}
    for function in ("psum", "pmean", "pmax", "all_gather"):
        both(
            lambda J, L, N, f=function: J.vmap(lambda t: getattr(L, f)(t, "i"), axis_name="i")(tree)
        )


def test_any_hashable_value_is_a_name() -> None:
    for name in (("a", 1), frozenset("x"), 1.5, object()):
        names = [name] if isinstance(name, tuple) else name
        assert stax.vmap(lambda x, n=names: stax.lax.psum(x, n), axis_name=name)(
            snp.arange(3)
        ).tolist() == [3, 3, 3]
    with pytest.raises(ArgumentError, match="the axis_name"):
        stax.vmap(lambda x: x, axis_name=["i"])


def test_axes_in_and_out() -> None:
    both(lambda J, L, N: J.vmap(lambda x: L.psum(x, "i"), out_axes=None, axis_name="i")(M))
    both(lambda J, L, N: J.vmap(lambda x: L.all_gather(x, "i"), 1, None, axis_name="i")(M))
    both(lambda J, L, N: J.vmap(lambda x: (x, L.pmax(x, "i")), 1, (1, None), "i")(M))
    both(lambda J, L, N: J.vmap(lambda: L.axis_index("i"), axis_name="i", axis_size=4)())
    both(lambda J, L, N: J.vmap(lambda x: L.psum(x, "i"), None, 0, "i", axis_size=4)(M))
    both(lambda J, L, N: J.vmap(lambda x: L.psum(x, "i"), axis_name="i", spmd_axis_name="m")(M))
    with pytest.raises(ArgumentValueError, match="out_axes=None"):
        stax.vmap(lambda x: stax.lax.axis_index("i") * x, out_axes=None, axis_name="i")(M)


# --- other transforms ---


def programs(J: Any, L: Any, N: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions of a row of M, lanes of the axis "i"."""

    @J.custom_jvp
    def tangent_rule(x: Any) -> Any:
        return L.psum(N.sin(x), "i")

    @tangent_rule.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return tangent_rule(x), L.psum(2 * N.cos(x) * t * L.axis_index("i"), "i")

    @J.custom_vjp
    def cotangent_rule(x: Any) -> Any:
        return N.sin(x)

    cotangent_rule.defvjp(
        lambda x: (N.sin(x), L.pmean(x, "i")),
        lambda kept, ct: (L.psum(ct * kept, "i") + L.axis_index("i"),),
    )

    def step(c: Any, x: Any) -> Any:
        c = c + L.pmean(c * x, "i") + 0.1 * L.axis_index("i")
        return c, (L.psum(c, "i"), L.ppermute(c, "i", [(0, 1), (1, 2), (2, 0)]))

    def until(x: Any) -> Any:
        # The condition is the same in all lanes, so that no lane ends before the others.
        going = lambda x: L.psum((x * x).sum(), "i") > 0.5  # noqa: E731
        return L.while_loop(going, lambda x: x * 0.7 + 0.01 * L.pmean(x, "i"), x)

    def until_each(x: Any) -> Any:
        body = lambda x: x * 0.5 + 0.01 * L.pmean(x, "i")  # noqa: E731
        return L.while_loop(lambda x: (x * x).sum() > 0.5, body, x)

    def branches(x: Any) -> Any:
        arms = (lambda x: L.psum(x, "i"), lambda x: x * L.axis_index("i"))
        return L.cond(L.psum(x.sum(), "i") > 0.5, *arms, x)

    def branches_by_lane(x: Any) -> Any:
        arms = (lambda x: L.psum(x, "i"), lambda x: x * L.axis_index("i"), lambda x: x - 1)
        return L.switch(L.axis_index("i"), arms, x)

    inner = J.jit(lambda x: L.all_gather(x, "i")[L.axis_index("i") - 1] * x)
    return {
        "jit": lambda x: inner(x) + inner(2 * x),
        "scan": lambda x: L.scan(step, x, N.arange(3.0)),
        "scan_of_lanes": lambda x: L.scan(step, x[0], x),
        "fori": lambda x: L.fori_loop(0, 3, lambda k, c: c * L.axis_index("i") + k, x),
        "while": until,
        "while_by_lane": until_each,
        "branches": branches,
        "branches_by_lane": branches_by_lane,
        "checkpoint": lambda x: J.checkpoint(lambda x: N.sin(L.psum(N.sin(x), "i")))(x),
        "custom_jvp": tangent_rule,
        "custom_vjp": lambda x: cotangent_rule(x) * x,
        "map": lambda x: L.map(lambda y: L.psum(y, "i") * y, x),
        "index": lambda x: x[L.axis_index("i")] * L.psum(x, "i")[L.axis_index("i")],
        "gather": lambda x: L.all_to_all(L.all_gather(x, "i") * x, "i", 0, 0),
    }


NAMES = list(programs(jax, jax.lax, jax.numpy))
LOOPS = ("while", "while_by_lane")


@pytest.mark.parametrize("name", NAMES)
def test_values(name: str) -> None:
    both(lambda J, L, N: J.vmap(programs(J, L, N)[name], axis_name="i")(M))
    both(lambda J, L, N: J.vmap(J.vmap(programs(J, L, N)[name]), 1, 0, axis_name="i")(CUBE))


@pytest.mark.parametrize("name", ["jit", "scan", "while_by_lane", "branches_by_lane"])
def test_compiled(name: str) -> None:
    both(lambda J, L, N: J.jit(J.vmap(programs(J, L, N)[name], 1, 0, axis_name="i"))(M.T))
    both(lambda J, L, N: J.jit(J.vmap(J.vmap(programs(J, L, N)[name], axis_name="i")))(CUBE))


@pytest.mark.parametrize("name", NAMES)
def test_forward_mode(name: str) -> None:
    def inside(J: Any, L: Any, N: Any) -> Any:
        f = programs(J, L, N)[name]
        return J.vmap(lambda x, t: J.jvp(f, (x,), (t,)), axis_name="i")(M, N.sin(M))

    def outside(J: Any, L: Any, N: Any) -> Any:
        return J.jvp(J.vmap(programs(J, L, N)[name], axis_name="i"), (M,), (N.sin(M),))

    if name != "custom_vjp":
        both(inside)
    if name not in ("custom_vjp", "branches_by_lane"):  # see the test below
        both(outside)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LOOPS])
def test_reverse_mode(name: str) -> None:
    def loss(J: Any, L: Any, N: Any) -> Any:
        f = programs(J, L, N)[name]
        return lambda x: sum((y**2).sum() for y in J.tree_util.tree_leaves(f(x)))

    both(lambda J, L, N: J.vmap(J.grad(loss(J, L, N)), axis_name="i")(M), 1e-4)
    if name == "branches_by_lane":
        return  # see the test below
    mapped = lambda J, L, N: lambda x: J.vmap(loss(J, L, N), axis_name="i")(x).sum()  # noqa: E731
    both(lambda J, L, N: J.grad(mapped(J, L, N))(M), 1e-4)


def test_a_lane_that_takes_another_branch_has_its_part_in_a_sum() -> None:
    # JAX loses the derivatives in what the lanes hold that do not take the branch of the sum.
    f = stax.vmap(programs(stax, stax.lax, snp)["branches_by_lane"], axis_name="i")
    (tangent,) = stax.jvp(f, (M,), (M * M,))[1:]
    np.testing.assert_allclose(tangent, [(M * M).sum(0), (M * M)[1], (M * M)[2]], rtol=1e-5)
    gradient = stax.grad(lambda x: (M * f(x)).sum())(M)
    np.testing.assert_allclose(gradient, [M[0], M[0] + M[1], M[0] + M[2]], rtol=1e-5)


def test_gradients_of_what_is_not_mapped() -> None:
    # Cotangents of a psum are summed once more, as if each lane had a sum of its own.
    def program(J: Any, L: Any, N: Any) -> Any:
        inner = lambda w, x: (L.psum(w * x, "i") ** 2).sum()  # noqa: E731
        per_lane = J.vmap(J.grad(inner), in_axes=(None, 0), axis_name="i")(M[0], M)
        whole = J.grad(lambda w: J.vmap(inner, (None, 0), axis_name="i")(w, M).sum())(M[0])
        return per_lane, whole

    both(program)


def test_a_rule_that_names_the_axis_of_a_function_that_does_not() -> None:
    def program(J: Any, L: Any, N: Any) -> Any:
        in_step = J.custom_vjp(lambda w: w * 1.0)
        in_step.defvjp(lambda w: (w * 1.0, None), lambda _, ct: (L.psum(ct, "i"),))
        other = J.custom_jvp(lambda w: w * 1.0)
        other.defjvp(lambda primals, tangents: (primals[0] * 1.0, L.psum(tangents[0], "i")))
        loss = lambda w, x: (in_step(w) * x).sum()  # noqa: E731
        mapped = lambda w: J.vmap(lambda x: loss(w, x), axis_name="i")(M).sum()  # noqa: E731
        pushed = lambda w: J.vmap(lambda x: other(w) * x, axis_name="i")(M)  # noqa: E731
        return (
            J.vmap(J.grad(loss), (None, 0), axis_name="i")(2.0, M),
            J.jit(J.grad(mapped))(2.0),
            J.jit(lambda w: J.jvp(pushed, (w,), (w,)))(2.0),
        )

    both(program)


def test_data_parallel_training_step() -> None:
    def program(J: Any, L: Any, N: Any) -> Any:
        loss = lambda w, x: ((x @ w - 1) ** 2).mean()  # noqa: E731

        def step(w: Any, x: Any) -> Any:
            value, gradient = J.value_and_grad(loss)(w, x)
            return w - 0.1 * L.pmean(gradient, "batch"), L.pmean(value, "batch")

        mapped = J.vmap(step, in_axes=(None, 0), out_axes=None, axis_name="batch")
        return J.jit(mapped)(N.ones(4), CUBE)

    both(program)


# --- what is cached ---


def test_a_jitted_function_is_traced_for_each_axis() -> None:
    size = stax.jit(lambda x: x * stax.lax.psum(1, "i") + stax.lax.axis_index("i"))
    for _ in range(2):
        for count in (3, 2, 3):
            found = stax.vmap(size, axis_name="i")(snp.ones(count, "int32"))
            assert found.tolist() == [count + i for i in range(count)]
        with pytest.raises(UnboundAxisNameError):
            size(1)
    other = stax.vmap(stax.vmap(size, axis_name="j"), axis_name="i")
    assert other(snp.ones((2, 3), "int32")).tolist() == [[2, 2, 2], [3, 3, 3]]


def test_a_jitted_function_that_names_no_axis_is_native_in_and_outside() -> None:
    double = stax.jit(lambda x: x * 2)
    for _ in range(2):
        assert double(snp.arange(3)).tolist() == [0, 2, 4]
        assert stax.vmap(double, axis_name="i")(snp.arange(3)).tolist() == [0, 2, 4]


def test_a_symbolic_size() -> None:
    f = stax.jit(
        stax.vmap(lambda x: x * stax.lax.axis_size("i") - stax.lax.psum(x, "i"), axis_name="i"),
        dynamic={"x": {0: "n"}},
    )
    for n in (3, 5):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_allclose(f(x), x * n - x.sum())
    assert len(f.variants()) == 1


def test_compile_time_values_keep_the_names() -> None:
    def f(x: Any) -> Any:
        with stax.ensure_compile_time_eval():
            count = int(stax.lax.psum(1, "i") + stax.lax.psum(snp.arange(2), "i")[1])
        return x + count

    assert stax.vmap(f, axis_name="i")(snp.zeros(3)).tolist() == [6, 6, 6]


# --- graphs, and functions with axis names ---


def test_make_graph_with_axes() -> None:
    f = lambda x: stax.lax.psum(x, ("i", "j")) * stax.lax.axis_size("j")  # noqa: E731
    graph = stax.make_graph(f, axis_env=[("i", 2), ("j", 5)])(1.0)
    assert [n.op.name for n in graph.nodes][:2] == ["psum", "psum"]
    graph = stax.make_graph(stax.vmap(f, axis_name="j"), axis_env=[("i", 2)])(snp.ones(3))
    assert [n.op.name for n in graph.nodes][:2] == ["reduce_sum", "psum"]
    with pytest.raises(UnboundAxisNameError):
        stax.make_graph(f, axis_env=[("i", 2)])(1.0)


def test_one_hot_of_a_lane() -> None:
    classes = np.int32([2, 0, 1, 5])
    one_hot = lambda J, name: J.nn.one_hot(classes, 3, axis=name)  # noqa: E731
    both(lambda J, L, N: J.vmap(lambda: one_hot(J, "i"), axis_name="i", axis_size=3, out_axes=1)())
    with pytest.raises(ArgumentValueError, match="axis 'i' has 2 lanes for num_classes=3"):
        stax.vmap(lambda: one_hot(stax, "i"), axis_name="i", axis_size=2)()


# --- bad input ---


@pytest.mark.parametrize(
    "function",
    [
        lambda x: stax.lax.psum(1, "k"),
        lambda x: stax.lax.pmax(x, ("i", "k")),
        lambda x: stax.lax.all_gather(x, "k"),
        lambda x: stax.lax.axis_index("k"),
        lambda x: stax.lax.ppermute(x, "k", [(0, 0)]),
        lambda x: stax.jit(lambda x: stax.lax.axis_size(("k",)))(x),
        lambda x: stax.lax.scan(lambda c, x: (stax.lax.pmean(c, "k"), x), x, None, 2),
    ],
)
def test_an_unbound_name_is_an_error_that_lists_the_bound_ones(function: Any) -> None:
    inner = stax.vmap(function, axis_name="j")
    with pytest.raises(NameError, match="unbound axis name: 'k'") as caught:
        stax.vmap(inner, axis_name="i")(snp.ones((2, 3)))
    error = caught.value
    assert isinstance(error, UnboundAxisNameError)
    assert [row[0] for row in error.values] == ["'i'", "'j'"]
    assert "of size 2" in str(error) and "of size 3" in str(error)
    assert "axis_name='k'" in error.advice and any("for vmap" in line for line in error.doing)


def test_no_name_is_bound_outside() -> None:
    with pytest.raises(UnboundAxisNameError, match="No axis has a name here"):
        stax.lax.psum(1, "i")
    stax.vmap(lambda x: x, axis_name="i")(snp.ones(2))
    with pytest.raises(UnboundAxisNameError):
        stax.vmap(lambda x: stax.lax.psum(x, "i"))(snp.ones(2))
