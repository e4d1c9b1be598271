"""cond, switch, while_loop, fori_loop, scan and map: every transform of them, against JAX."""

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors, lax
from stax.control import Scan, While
from stax.interpreters.linearize import linearize
from stax.lowering.pipeline import lower_graph

X = np.linspace(0.1, 1, 5, dtype=np.float32)
W = np.array([[0.3, 0.2], [0.1, 0.5]], np.float32)
Program = Callable[..., Any]  # of the library, its lax, its numpy, and then arrays

PROGRAMS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "scan": (lambda J, L, N, x: L.scan(lambda c, a: (c * N.sin(a) + a, c * a), 1.0, x)[1], (X,)),
    "scan of products": (
        lambda J, L, N, x, w: L.scan(
            lambda c, a: (N.tanh(c @ w + a), N.sum(c)), N.ones(2), x
        )[1],
        (X, W),
    ),
    "scan backwards, with a counter": (
        lambda J, L, N, x, w: L.scan(
            lambda c, a: ((N.tanh(c[0] @ w + a), c[1] + 1), N.sum(c[0]) * c[1]),
            (N.ones(2), 0),
            x,
            reverse=True,
        )[1],
        (X, W),
    ),
    "scan over a dictionary": (
        lambda J, L, N, x: L.scan(
            lambda c, d: (c + d["a"] * d["b"], None), 0.0, {"a": x, "b": N.cos(x)}
        )[0],
        (X,),
    ),
    "scan of one step": (
        lambda J, L, N, x: L.scan(lambda c, _: (N.sin(c) * x, c), x, None, length=1)[1],
        (X,),
    ),
    "scan of no step": (
        lambda J, L, N, x: L.scan(lambda c, a: (c * a, c), N.sin(x[0]), x[:0])[0] * x,
        (X,),
    ),
    "carry handed through": (
        lambda J, L, N, x: L.scan(lambda c, a: ((c[1], c[0]), c[0] * a), (x, x * 2), x)[0][1],
        (X,),
    ),
    "map": (lambda J, L, N, x: L.map(lambda a: N.sin(a) * x, x), (X,)),
    "map in batches": (lambda J, L, N, x: L.map(lambda a: N.sin(a) * x, x, batch_size=2), (X,)),
    "fori_loop": (
        lambda J, L, N, x: L.fori_loop(0, 5, lambda i, c: N.sin(c) + N.asarray(x)[i] * i, x),
        (X,),
    ),
    "cond": (
        lambda J, L, N, x: L.cond(
            N.sum(x) > 2.0, lambda v: N.sin(v) * x[0], lambda v: N.square(v), N.asarray(x)
        ),
        (X,),
    ),
    "switch": (
        lambda J, L, N, x: L.switch(
            N.int32(x[4] * 2),
            [lambda v: N.sin(v) * x[0], lambda v: v * v + N.sum(x), lambda v: N.sqrt(v)],
            N.asarray(x),
        ),
        (X,),
    ),
    "nested": (
        lambda J, L, N, x: L.scan(
            lambda c, a: (
                L.fori_loop(0, 3, lambda i, q: q * N.cos(a) * 0.3 + c * 0.3, c),
                L.cond(a > 0.5, lambda: c * a, lambda: N.sin(c)),
            ),
            N.sin(x),
            x,
        )[1],
        (X,),
    ),
    "grad inside": (
        lambda J, L, N, x: L.scan(
            lambda c, a: (c + J.grad(lambda z: N.sin(z * a) * c)(c), a * c), 1.0, x
        )[1],
        (X,),
    ),
}  # fmt: skip
LOOPS: dict[str, tuple[Program, tuple[Any, ...]]] = {
    "while": (
        lambda J, L, N, x: L.while_loop(lambda c: N.sum(c) < 20, lambda c: c * 1.5 + 0.1, x),
        (X,),
    ),
    "while with captures": (
        lambda J, L, N, x: L.while_loop(
            lambda c: c[0] < 20 + x[1], lambda c: (c[0] * 1.5 + x[0], c[1] + c[0]), (x[1], x)
        )[1],
        (X,),
    ),
    "while not at all": (
        lambda J, L, N, x: L.while_loop(lambda c: N.sum(c) < 0, lambda c: c * 1.5, x),
        (X,),
    ),
    "fori_loop of an array's length": (
        lambda J, L, N, x: L.fori_loop(N.int32(x[0]), N.int32(x[4] * 4), lambda i, c: c * x + i, x),
        (X,),
    ),
}
FORWARD = ("eager", "jit", "vmap", "jvp", "jit of vmap")
REVERSE = ("grad", "jit of grad", "vmap of grad", "hessian", "jit of hessian")


def run(kind: str, J: Any, L: Any, N: Any, program: Program, args: tuple[Any, ...]) -> Any:
    """Apply one nesting of transforms."""
    f = lambda *a: program(J, L, N, *a)  # noqa: E731
    total = lambda *a: N.sum(N.sin(f(*a)))  # noqa: E731
    many = tuple(N.stack([a, a * np.float32(0.5), a * np.float32(1.5)]) for a in args)
    every = tuple(range(len(args)))
    match kind:
        case "eager":
            return f(*map(N.asarray, args))
        case "jit":
            return J.jit(f)(*args)
        case "vmap":
            return J.vmap(f)(*many)
        case "jit of vmap":
            return J.jit(J.vmap(f))(*many)
        case "jvp":
            return J.jvp(f, args, args)
        case "grad":
            return J.grad(total, argnums=every)(*args)
        case "jit of grad":
            return J.jit(J.grad(total, argnums=every))(*args)
        case "vmap of grad":
            return J.vmap(J.grad(total))(*many)
        case "hessian":
            return J.hessian(total)(*args)
    return J.jit(J.hessian(total))(*args)


@functools.cache
def of_jax(name: str) -> dict[str, Any]:
    """Return what JAX makes of a program by every nesting, from one compilation."""
    program, args = (PROGRAMS | LOOPS)[name]
    kinds = {plain(kind) for kind in (FORWARD if name in LOOPS else FORWARD + REVERSE)}

    def every(*args: Any) -> dict[str, Any]:
        return {kind: run(kind, jax, jax.lax, jnp, program, args) for kind in kinds}

    return jax.jit(every)(*args)


def plain(kind: str) -> str:
    """Return the nesting without its jit, which changes no value of JAX's."""
    return "eager" if kind == "jit" else kind.removeprefix("jit of ")


def check(kind: str, name: str) -> None:
    theirs = jax.tree.leaves(of_jax(name)[plain(kind)])
    program, args = (PROGRAMS | LOOPS)[name]
    ours = stax.tree_util.tree_leaves(run(kind, stax, lax, snp, program, args))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", FORWARD + REVERSE)
@pytest.mark.parametrize("name", PROGRAMS)
def test_like_jax(name: str, kind: str) -> None:
    check(kind, name)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", FORWARD)
@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_unknown_length(name: str, kind: str) -> None:
    check(kind, name)


def test_masked_branches_have_no_nan() -> None:
    f = lambda x: lax.cond(x > 0, lambda v: v**2, lambda v: v**3, x)  # noqa: E731
    points = snp.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    np.testing.assert_allclose(stax.vmap(stax.grad(f))(points), [3, 0.75, 0, 1, 2])
    root = lambda x: lax.cond(x > 0, snp.sqrt, lambda v: v, x)  # noqa: E731
    for wrap in (lambda g: g, stax.jit):
        found = wrap(stax.vmap(stax.grad(root)))(snp.array([0.0, 4.0]))
        np.testing.assert_allclose(found, [1, 0.25])


def test_what_is_kept_for_the_backward_loop() -> None:
    """Values that do not change, and elements of inputs, are not stacked."""

    def f(c: Any, xs: Any, w: Any) -> Any:
        return lax.scan(lambda c, a: (snp.sin(c) * a * snp.exp(w), None), c, xs)[0]

    graph = stax.make_graph(f)(1.0, X, 2.0)
    primal, linear, _ = linearize(graph, [True, True, True])
    (loop,) = [n for n in primal.nodes if isinstance(n.op, Scan)]
    stacked = [t for t in loop.type.items if t.shape == (5,)]
    assert len(stacked) <= 3
    (back,) = [n for n in linear.nodes if isinstance(n.op, Scan)]
    names = {n.op.name for n in back.op.body.nodes}
    assert not names & {"sin", "cos", "exp"}


def test_a_long_loop_compiles_as_fast_as_a_short_one() -> None:
    def f(n: int) -> Any:
        return stax.jit(lambda c: lax.scan(lambda c, _: (c * 0.5 + 1, c), c, None, length=n))

    short, long = (stax.make_graph(f(n))(1.0) for n in (3, 100_000))
    assert len(short.nodes) == len(long.nodes)
    last, all_ = f(100_000)(1.0)
    assert float(last) == 2.0
    assert all_.shape == (100_000,)


def test_the_carry_of_a_weak_number_takes_the_type_of_a_step() -> None:
    carry, _ = lax.scan(lambda c, a: (c + a, None), 0.0, np.ones(3, np.float16))
    assert carry.dtype == np.float16
    assert float(lax.fori_loop(0, 4, lambda i, c: c + i, 0.5)) == 6.5


@pytest.mark.usefixtures("interrupts")
def test_interrupts_reach_a_native_loop() -> None:
    forever = stax.jit(
        lambda x: lax.while_loop(lambda c: c[0] > -1.0, lambda c: (c[0] * 1.0, c[1] + 1), (x, 0))
    )
    import _thread

    assert forever(-2.0)[1] == 0  # compiled before
    timer = threading.Timer(0.5, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        forever(1.0)
    timer.join()


def test_graphs_in_ops_are_printed_and_compared() -> None:
    f = lambda x: lax.switch(1, [snp.sin, snp.cos], x)  # noqa: E731
    one, other = stax.make_graph(f)(1.0), stax.make_graph(f)(1.0)
    assert "switch" in str(one)
    assert "cos" in str(one)
    assert one.structural_hash == other.structural_hash
    g = lambda x: lax.switch(1, [snp.cos, snp.sin], x)  # noqa: E731
    assert stax.make_graph(g)(1.0).structural_hash != one.structural_hash


def test_parameters_of_a_while_loop() -> None:
    graph = stax.make_graph(lambda x, y: lax.while_loop(lambda c: c < y, lambda c: c + x, 0.0))(
        1.0, 5.0
    )
    (loop,) = [n for n in graph.nodes if isinstance(n.op, While)]
    assert (loop.op.cond_consts, loop.op.body_consts) == (1, 1)


def same(c: Any, a: Any) -> Any:
    return c, a


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "vector predicate": (
        lambda: lax.cond(X > 0, snp.sin, snp.cos, 1.0), errors.ShapeError, "has to be a scalar",
    ),
    "other trees": (
        lambda: lax.cond(True, lambda x: (x,), lambda x: [x], 1.0),
        errors.ArgumentError, "branches return different trees",
    ),
    "other types": (
        lambda: lax.cond(True, lambda x: x, lambda x: snp.stack([x, x]), 1.0),
        errors.ArgumentError, "branches return different types",
    ),
    "no branch": (lambda: lax.switch(0, [], 1.0), errors.ArgumentValueError, "no branch"),
    "float index": (
        lambda: lax.switch(0.5, [snp.sin, snp.cos], 1.0), errors.DTypeError, "to be an integer",
    ),
    "carry of another type": (
        lambda: lax.scan(lambda c, a: (snp.stack([c, c]), a), 0.0, X),
        errors.ArgumentError, "changes the type of carry 0",
    ),
    "carry of another tree": (
        lambda: lax.scan(lambda c, a: ((c, c), a), 0.0, X),
        errors.ArgumentError, "carries another tree",
    ),
    "no pair": (lambda: lax.scan(lambda c, a: c, 0.0, X), errors.ArgumentError, "return a pair"),
    "lengths": (
        lambda: lax.scan(same, 0.0, (X, X[:2])), errors.ShapeError, "leading axes differ",
    ),
    "no length": (lambda: lax.scan(same, 0.0), errors.ArgumentValueError, "no length"),
    "scalar xs": (lambda: lax.scan(same, 0.0, 1.0), errors.ShapeError, "no axis to go along"),
    "condition": (
        lambda: lax.while_loop(lambda c: c, lambda c: c, 1.0),
        errors.DTypeError, "has to be a bool",
    ),
    "bounds": (
        lambda: lax.fori_loop(0.0, 3, lambda i, c: c, 1.0),
        errors.DTypeError, "bounds are scalar integers",
    ),
    "no function": (lambda: lax.scan(1.0, 0.0, X), errors.ArgumentError, "not callable"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_bad_input(name: str) -> None:
    f, kind, text = WRONG[name]
    with pytest.raises(kind, match=text):
        f()


@pytest.mark.parametrize("seed", range(8))
def test_random_branches_under_vmap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = rng.integers(-1, 4, 7).astype(np.int32)
    values = rng.normal(size=(7, 3)).astype(np.float32)

    def f(J: Any, L: Any, N: Any, i: Any, v: Any) -> Any:
        return L.switch(i, [N.sin, lambda v: v * v.sum(), lambda v: N.exp(v) - v], v)

    theirs = jax.vmap(lambda i, v: f(jax, jax.lax, jnp, i, v))(index, values)
    for wrap in (lambda g: g, stax.jit):
        ours = wrap(stax.vmap(lambda i, v: f(stax, lax, snp, i, v)))(index, values)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def body_of(f: Callable[..., Any], *args: Any) -> Any:
    """Return the program of the body of the first loop of a function."""
    return lower_graph(stax.make_graph(f)(*args)).parts[-1]


UPDATES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "set": lambda L, N, x: L.fori_loop(0, 9, lambda i, a: a.at[i].set(i * 0.5), x),
    "add of another": lambda L, N, x: L.fori_loop(
        1, 9, lambda i, a: a.at[i].add(a[i - 1] * 0.5), x
    ),
    "slices": lambda L, N, x: L.fori_loop(
        0, 9, lambda i, a: L.dynamic_update_slice(a, a[2:4] + 1, (i * 3,)), x
    ),
    "while": lambda L, N, x: L.while_loop(
        lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1].at[c[0]].set(c[0] * 0.5)), (0, x)
    )[1],
}


@pytest.mark.parametrize("name", UPDATES)
def test_updates_of_what_is_carried_are_done_in_place(name: str) -> None:
    f, x = UPDATES[name], np.linspace(0, 1, 40, dtype=np.float32)
    ours = stax.jit(lambda x: f(lax, snp, x))
    np.testing.assert_array_equal(ours(x), f(lax, snp, snp.asarray(x)))
    np.testing.assert_allclose(ours(x), jax.jit(lambda x: f(jax.lax, jnp, x))(x), rtol=1e-6)
    np.testing.assert_array_equal(x, np.linspace(0, 1, 40, dtype=np.float32))
    assert body_of(lambda x: f(lax, snp, x), x).in_place


def test_a_value_that_is_still_read_is_not_overwritten() -> None:
    def f(L: Any, x: Any) -> Any:
        return L.fori_loop(0, 9, lambda i, c: (c[0].at[i].set(c[1][i]), c[0] * 2), (x, x + 1))

    x = np.linspace(0, 1, 40, dtype=np.float32)
    theirs = jax.jit(lambda x: f(jax.lax, x))(x)
    for a, b in zip(stax.jit(lambda x: f(lax, x))(x), theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_cotangents_of_a_table_are_summed_in_place() -> None:
    def f(L: Any, N: Any, table: Any) -> Any:
        return L.scan(lambda c, i: (N.sin(c + table[i]), None), 0.0, N.arange(40) % 7)[0]

    table = np.linspace(0, 1, 40, dtype=np.float32)
    gradient = stax.grad(lambda t: f(lax, snp, t))
    theirs = jax.grad(lambda t: f(jax.lax, jnp, t))(table)
    np.testing.assert_allclose(stax.jit(gradient)(table), theirs, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(gradient(table), theirs, rtol=1e-5, atol=1e-7)
    assert body_of(gradient, table).in_place


def test_nested_branches_are_transformed_once() -> None:
    """The number of transforms would double with each level."""

    def f(x: Any, depth: int) -> Any:
        if depth == 0:
            return x
        return lax.cond(x > depth, snp.sin, lambda x: f(snp.cos(x) * 2, depth - 1), x)

    found = stax.grad(lambda x: f(x, 40))(0.3)
    assert np.isfinite(float(found))


def test_types_of_counters_and_carries() -> None:
    assert lax.fori_loop(0, 5, lambda i, c: c * i, snp.int8(1)).dtype == np.int8
    assert (
        float(stax.grad(lambda x: lax.fori_loop(0, snp.array(3), lambda i, c: c * x, 1.0))(2.0))
        == 12
    )

    def results(L: Any, N: Any) -> list[Any]:
        return [
            L.fori_loop(0, 3, lambda i, c: c + 1.5, 0),
            L.while_loop(lambda c: c < 3, lambda c: c + 1.0, 0),
            L.scan(lambda c, x: (c * 1.5, None), 1, N.arange(3))[0],
            *L.scan(lambda c, x: (c + x, c), 0, N.arange(4)),
            *L.scan(lambda c, x: (c + x, c), 0, N.arange(0)),  # no step, and its types all the same
            *L.scan(lambda c, x: (c * 2.0, c), 1.0, None, length=0),
            L.fori_loop(0, N.int32(3), lambda i, c: c + i, 0),
            L.fori_loop(np.int8(0), np.int8(3), lambda i, c: c + i, 0),
        ]

    types = [
        [(x.dtype, x.weak_type) for x in results(*libs)] for libs in ((lax, snp), (jax.lax, jnp))
    ]
    assert types[0] == types[1]


def test_graphs_without_results() -> None:
    x = snp.arange(3.0)
    for wrap in (stax.vmap, lambda f: stax.jit(stax.vmap(f))):
        assert wrap(lambda v: lax.cond(v > 1, lambda v: (), lambda v: (), v))(x) == ()
        assert wrap(lambda v: lax.scan(lambda c, a: ((), None), (), x * v))(x) == ((), None)


def _loop(**options: Any) -> Any:
    return lax.while_loop(lambda k: k < 3, lambda k: k + 1, 0, **options)


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "scan: length": lambda n: lax.scan(lambda c, x: (c, x), 1.0, None, length=n),
    "scan: checkpoint_every": lambda n: lax.scan(
        lambda c, x: (c, x), 1.0, None, length=2, checkpoint_every=n
    ),
    "scan: unroll": lambda n: lax.scan(lambda c, x: (c, x), 1.0, None, length=2, unroll=n),
    "fori_loop: unroll": lambda n: lax.fori_loop(0, 2, lambda i, c: c, 1.0, unroll=n),
    "map: batch_size": lambda n: lax.map(lambda x: x, X, batch_size=n),
    "while_loop: max_steps": lambda n: _loop(max_steps=n),
    "while_loop: checkpoint_every": lambda n: _loop(checkpoint_every=n),
    "vmap: chunk": lambda n: stax.vmap(snp.sin, chunk=n)(X),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_of_steps_are_checked(what: str) -> None:
    with pytest.raises(errors.ArgumentValueError, match=f"{what} is at least ., got -1"):
        NUMBERS[what](-1)
    for wrong in (1.5, "2"):
        with pytest.raises(errors.ArgumentError, match=f"{what} is an integer, got"):
            NUMBERS[what](wrong)


def test_branches_that_do_not_take_the_operands_are_named() -> None:
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: lax.cond(True, lambda a, b: a, lambda a: a, 1.0), "cond: branch true_fun"),
        (lambda: lax.cond(True, lambda a: a, lambda: 1.0, 1.0), "cond: branch false_fun"),
        (lambda: lax.switch(0, [lambda a: a, lambda a, b: a], 1.0), "switch: branch 1"),
        (lambda: lax.switch(0, [lambda: 1.0], 1.0), "switch: branch 0"),
    ]
    for call, text in calls:
        with pytest.raises(errors.ArgumentError, match=f"{text}, .* is given 1 operand: "):
            call()
    with pytest.raises(TypeError, match="unsupported operand"):
        lax.cond(True, lambda a: a, lambda a: a + object(), 1.0)


@pytest.mark.parametrize("returned", [lambda b: (b,), lambda b: {"more": b}])
def test_a_condition_is_no_container(returned: Callable[[Any], Any]) -> None:
    with pytest.raises(errors.DTypeError, match="the condition has to be a bool"):
        lax.while_loop(lambda k: returned(k < 3), lambda k: k + 1, 0)
