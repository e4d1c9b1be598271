"""checkify: the first error of a run as a value, against JAX, in loops and under transforms."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify as jax_checkify

import stax
import stax.numpy as snp
from stax import debug, errors, lax
from stax.experimental import checkify, io_callback

X = np.arange(4, dtype=np.float32)
I32 = np.int32
OURS = (stax, lax, snp, checkify)
THEIRS = (jax, jax.lax, jnp, jax_checkify)
Program = Callable[..., Any]  # of a library, its lax, its numpy, its checkify, and then arrays


def loop_with_checks(J: Any, L: Any, N: Any, C: Any, x: Any) -> Any:
    def step(c: Any, a: Any) -> Any:
        C.check(a < 1.5, "a is {a}, c {c}", a=a, c=c)
        return c + a, L.cond(a > 2, lambda: (C.check(c > 100, "inside"), a)[1], lambda: a * 2)

    return L.scan(step, x[1] * 0, x)


def while_with_checks(J: Any, L: Any, N: Any, C: Any, x: Any) -> Any:
    def goes_on(c: Any) -> Any:
        C.check(c[0] < 3.5, "condition of {}", c[0])
        return c[0] < 6

    def step(c: Any) -> Any:
        C.check(c[1] < 10, "body of {c}", c=c)
        return c[0] + 1, c[1] + 1

    return L.while_loop(goes_on, step, (x[1], 0))


PROGRAMS: dict[str, tuple[Program, str, tuple[Any, ...]]] = {
    "holds": (lambda J, L, N, C, x: (C.check(x[1] > 0, "no"), x * 2)[1], "user", (X,)),
    "does not hold": (
        lambda J, L, N, C, x: (C.check(N.all(x > 0), "x is {x}, {}", x[1], x=x), x * 2)[1],
        "user",
        (X,),
    ),
    "the first of two": (
        lambda J, L, N, C, x: (
            C.check(x[0] > 5, "first {}", x[0]), C.check(x[0] > 6, "second {y}", y={"y": x}), x
        )[2],
        "user",
        (X,),
    ),
    "debug_check": (lambda J, L, N, C, x: (C.debug_check(x[0] > 5, "d"), x)[1], "user", (X,)),
    "not looked for": (lambda J, L, N, C, x: (C.check(x[0] > 5, "d"), x)[1], "nan", (X,)),
    "a call": (
        lambda J, L, N, C, x: J.jit(lambda v: (C.check(v[0] > 5, "{v}", v=v), v)[1])(x),
        "user",
        (X,),
    ),
    "checkpoint": (
        lambda J, L, N, C, x: J.checkpoint(lambda v: (C.check(v[0] > 5, "{v}", v=v), v)[1])(x),
        "user",
        (X,),
    ),
    "scan": (loop_with_checks, "user", (X,)),
    "while": (while_with_checks, "user", (X,)),
    "a branch": (
        lambda J, L, N, C, x: L.switch(
            N.int32(x[2]),
            [
                lambda v: (C.check(v[0] > 1, "zero"), v)[1],
                lambda v: (C.check(v[0] > 1, "one {}", v), v)[1],
                lambda v: (C.check(v[0] > 1, "two {}", v[1]), v)[1],
            ],
            x,
        ),
        "user",
        (X,),
    ),
    "in a mapped function": (
        lambda J, L, N, C, x: J.vmap(lambda v: (C.check(v < 3, "v is {v}", v=v), v * 2)[1])(x),
        "user",
        (X,),
    ),
    "in a gradient": (
        lambda J, L, N, C, x: J.grad(
            lambda v: (C.check(v[0] > 5, "v is {v}", v=v), N.sum(N.sin(v)))[1]
        )(x),
        "user",
        (X,),
    ),
    "nan": (lambda J, L, N, C, x: N.sin(N.log(x - 2)) + 1, "nan", (X,)),
    "nan in a loop": (
        lambda J, L, N, C, x: L.fori_loop(0, 3, lambda i, c: N.sqrt(c - 1), x), "nan", (X,)
    ),
    "nan of a derivative": (
        lambda J, L, N, C, x: J.grad(lambda v: N.sum(N.sqrt(v) * 0))(x), "nan", (X,)
    ),
    "nan of a function with a rule": (
        lambda J, L, N, C, x: J.nn.relu(N.log(x - 2)), "nan", (X,)
    ),
    "nan of a product": (lambda J, L, N, C, x: x @ (x * np.inf), "nan", (X,)),
    "nan without checks": (lambda J, L, N, C, x: N.log(x - 2), "user", (X,)),
    "division": (lambda J, L, N, C, x: 1 / x, "div", (X,)),
    "division of integers": (
        lambda J, L, N, C, x: L.div(N.int32(x) * 0 + 5, N.int32(x)), "float", (X,)
    ),
    "index": (lambda J, L, N, C, x, i: x[i], "index", (X, I32(5))),
    "index from the end": (lambda J, L, N, C, x, i: x[i], "index", (X, I32(-4))),
    "index before the start": (lambda J, L, N, C, x, i: x[i], "index", (X, I32(-7))),
    "indices": (
        lambda J, L, N, C, x, i: x.reshape(2, 2)[i, i + 1], "index", (X, np.array([0, 1]))
    ),
    "indices in two axes": (
        lambda J, L, N, C, x, i: x.reshape(2, 2)[i, i * 7], "index", (X, np.array([0, 1, 5]))
    ),
    "dynamic_slice": (
        lambda J, L, N, C, x, i: L.dynamic_slice(x, (i,), (2,)), "index", (X, I32(3))
    ),
    "dynamic_update_slice": (
        lambda J, L, N, C, x, i: L.dynamic_update_slice(x, x[:2], (i,)), "index", (X, I32(-1))
    ),
    "set": (lambda J, L, N, C, x, i: N.asarray(x).at[i].set(1.0), "index", (X, I32(9))),
    "add": (lambda J, L, N, C, x, i: N.asarray(x).at[i].add(1.0), "index", (X, np.array([1, 9]))),
    "take": (lambda J, L, N, C, x, i: N.take(x, i), "index", (X, I32(4))),
    "everything": (
        lambda J, L, N, C, x, i: (C.check(i < 3, "i is {}", i), N.log(-x)[i])[1],
        "all",
        (X, I32(7)),
    ),
}  # fmt: skip
WRAPS: dict[str, Callable[[Any, Any], Any]] = {
    "eager": lambda J, f: f,
    "jit": lambda J, f: J.jit(f),
}


def run(library: Any, name: str, wrap: str) -> tuple[Any, Any]:
    """The first line of what went wrong, and the result."""
    program, kind, args = PROGRAMS[name]
    J, L, N, C = library
    categories = getattr(C, f"{kind}_checks")
    f = WRAPS[wrap](J, C.checkify(partial(program, J, L, N, C), errors=categories))
    error, result = f(*map(N.asarray, args))
    message = error.get()
    return message and message.splitlines()[0].strip(), result


@pytest.mark.parametrize("name", PROGRAMS)
def test_messages_and_results_are_those_of_jax(name: str) -> None:
    expected, theirs = run(THEIRS, name, "jit")
    for wrap in WRAPS:
        message, ours = run(OURS, name, wrap)
        assert message == expected
        for a, b in zip(stax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


def test_messages_tell_the_line() -> None:
    def f(x: Any) -> Any:
        checkify.check(x < 5, "x is {x}", x=x)
        return snp.log(x)  # of a negative number

    error, _ = stax.jit(checkify.checkify(f, checkify.all_checks))(-1.0)
    assert error.get().splitlines() == [
        "nan generated by primitive: log.",
        f"    log  return snp.log(x)  # of a negative number  test_checkify.py:"
        f"{f.__code__.co_firstlineno + 2}",
    ]
    error, _ = checkify.checkify(f)(snp.float32(7))
    assert 'checkify.check(x < 5, "x is {x}", x=x)  test_checkify.py:' in str(error)
    with pytest.raises(checkify.JaxRuntimeError, match=r"x is 7.0 \(`check` failed\)\n    check"):
        error.throw()
    with pytest.raises(ValueError):
        checkify.check_error(error)


def test_what_happens_first_is_told() -> None:
    # The check that comes first in the body fails in a later step.
    def step(c: Any, a: Any) -> Any:
        checkify.check(a < 3, "later {}", a)
        checkify.check(a < 1, "first {} {}", a, c)
        return c, None

    error, _ = checkify.checkify(lambda x: lax.scan(step, 0.0, x))(snp.asarray(X))
    assert error.get().startswith("first 1.0 0.0 (")


# --- errors are values ---


def checked(x: Any) -> Any:
    checkify.check(x < 2, "x is {x}", x=x)
    return x * x


def test_an_error_for_each_index() -> None:
    for f in (
        stax.vmap(checkify.checkify(checked)),
        stax.jit(stax.vmap(checkify.checkify(checked))),
    ):
        error, result = f(X)
        lines = [line for line in error.get().splitlines() if line.startswith("at")]
        assert lines == [f"at mapped index {i}: x is {i}.0 (`check` failed)" for i in (2, 3)]
        np.testing.assert_array_equal(result, X * X)
        with pytest.raises(ValueError, match="at mapped index 2"):
            error.throw()
    error, _ = stax.vmap(checkify.checkify(checked))(X[:2])
    assert error.get() is None and error.throw() is None


def test_derivatives_of_checked_functions() -> None:
    f = checkify.checkify(checked)
    gradient, error = stax.jit(stax.grad(lambda x: f(x)[::-1], has_aux=True))(3.0)
    assert gradient == 6
    assert error.get().startswith("x is 3.0")
    assert stax.jvp(lambda x: f(x)[1], (3.0,), (1.0,))[1] == 6


def test_errors_become_checks_again() -> None:
    def f(x: Any) -> Any:
        error, y = stax.jit(checkify.checkify(checked))(x)
        checkify.check_error(error)
        errors_, z = stax.vmap(checkify.checkify(checked))(snp.stack([x, x + 1]))
        checkify.check_error(errors_)
        return y + snp.sum(z)

    for wrap in (lambda g: g, stax.jit):
        with pytest.raises(checkify.JaxRuntimeError, match=r"x is 3\.0"):
            wrap(f)(snp.float32(3))
        with pytest.raises(checkify.JaxRuntimeError, match=r"x is 2\.0"):
            wrap(f)(snp.float32(1))
        assert wrap(f)(snp.float32(0)) == 1
        for x, message in ((3, "x is 3.0"), (1, "x is 2.0"), (0, "None")):
            error, _ = wrap(checkify.checkify(f))(snp.float32(x))
            assert str(error.get()).startswith(message)
        error, _ = wrap(checkify.checkify(f, checkify.nan_checks))(snp.float32(3))
        assert error.get() is None


def test_errors_are_trees() -> None:
    error, _ = checkify.checkify(checked)(snp.float32(3))
    leaves, treedef = stax.tree.flatten(error)
    assert treedef.unflatten(leaves).get() == error.get()
    same = stax.jit(lambda e: e)(error)
    assert same.get() == error.get()
    assert repr(checkify.init_error) == "Error(None)"
    inside: list[str] = []
    stax.jit(lambda x: (inside.append(repr(checkify.checkify(checked)(x)[0])), x)[1])(1.0)
    assert inside == ["Error(traced)"]


def test_known_values_stay_known() -> None:
    def f(n: int, x: Any) -> Any:
        if n > 2 and x > 0:  # a Python number, and an array whose value is known
            checkify.check(False, "reached")
        return x

    error, _ = checkify.checkify(f)(3, snp.float32(1))
    assert error.get().startswith("reached")


# --- without checkify ---


@pytest.mark.parametrize("wrap", [lambda f: f, stax.jit, stax.vmap], ids=["eager", "jit", "vmap"])
def test_a_check_raises_by_itself(wrap: Any) -> None:
    def f(x: Any) -> Any:
        step = lambda i, c: (checkify.check(c < 40, "c is {}", c), c * 2)[1]  # noqa: E731
        return lax.fori_loop(0, 4, step, x)

    x = X if wrap is stax.vmap else X[3]
    with pytest.raises(errors.CheckError, match=r"c is 48\.0 \(`check` failed\)"):
        wrap(lambda x: f(x * 2))(x)
    np.testing.assert_array_equal(wrap(f)(x), x * 16)


def test_debug_checks_do_nothing_by_themselves() -> None:
    stax.jit(lambda x: checkify.debug_check(x > 5, "no"))(1.0)
    checkify.debug_check(False, "no")


def test_effects_happen_once() -> None:
    log: list[float] = []

    @stax.custom_jvp
    def f(x: Any) -> Any:
        debug.callback(lambda v: log.append(float(v)), x)
        checkify.check(x > 5, "f of {}", x)
        return x

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))

    def g(x: Any) -> Any:
        cond = lambda c: (debug.callback(lambda v: log.append(-float(v)), c), c < 2)[1]  # noqa: E731
        y = lax.while_loop(cond, lambda c: (checkify.check(c < 1, "c"), c + 1)[1], f(x))
        return io_callback(lambda v: np.float32(len(log)), stax.ShapeDtypeStruct((), "f4"), y)

    for wrap in (lambda f: f, stax.jit):
        log.clear()
        error, count = wrap(checkify.checkify(g))(snp.float32(0))
        assert error.get().startswith("f of 0.0")
        assert log == [0.0, 0.0, -1.0, -2.0] and count == 4


# --- bad input ---


def test_conditions_are_scalar_bools() -> None:
    for wrong in (3, snp.asarray(X) < 1, np.float32(1), "x"):
        for C in (jax_checkify, checkify):
            given = np.asarray(wrong) if C is jax_checkify and not isinstance(wrong, str) else wrong
            with pytest.raises(TypeError, match="scalar"):
                C.check(given, "no")


def test_messages_are_formatted_with_arrays() -> None:
    for C in (jax_checkify, checkify):
        for wrong in (3, "text", 1.5):
            with pytest.raises(TypeError, match="arrays"):
                C.check(True, "{}", wrong)
            with pytest.raises(TypeError, match="arrays"):
                C.check(True, "{x}", x=[wrong])


def test_check_error_takes_errors() -> None:
    for C in (jax_checkify, checkify):
        with pytest.raises(TypeError, match="Error"):
            C.check_error("no")
    with pytest.raises(errors.ArgumentError, match="not callable"):
        checkify.checkify(3)
