"""`jet` as users call it: against JAX, against nested jvp, inside other transforms, its errors."""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.jet import jet as jax_jet

import stax
import stax.numpy as snp
from stax import errors, lax, nn
from stax.experimental.jet import jet
from stax.extend import bind
from stax.operators.qr import QrFactors

Function = Callable[..., Any]
ORDER = 5
MODES = [pytest.param(lambda f: f, id="eager"), pytest.param(stax.jit, id="jit")]
both = pytest.mark.parametrize("mode", MODES)


def numbers(value: Any) -> list[np.ndarray]:
    """The arrays of a result of either library, in order."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(stax.tree.map(np.asarray, value))]


def close(found: Any, right: Any, tolerance: float = 1e-4) -> None:
    for a, b in zip(numbers(found), numbers(right), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, tolerance, tolerance * max(1, np.abs(b).max(initial=0)))


# Functions of the namespace of either library and of one array.
AS_IN_JAX: dict[str, Function] = {
    "add": lambda n, x: x + n.cos(x),
    "subtract": lambda n, x: 1 - x,
    "multiply": lambda n, x: x * n.exp(x),
    "divide": lambda n, x: n.exp(x) / (1 + x * x),
    "reciprocal": lambda n, x: 1 / x,
    "remainder": lambda n, x: x % 0.4,
    "power": lambda n, x: x**x,
    "integer power": lambda n, x: x**3,
    "negative power": lambda n, x: x**-2.5,
    "square root": lambda n, x: n.sqrt(x),
    "exp": lambda n, x: n.exp(x),
    "expm1": lambda n, x: n.expm1(x),
    "log": lambda n, x: n.log(x),
    "log1p": lambda n, x: n.log1p(x),
    "sin": lambda n, x: n.sin(x),
    "cos": lambda n, x: n.cos(x),
    "sinh": lambda n, x: n.sinh(x),
    "cosh": lambda n, x: n.cosh(x),
    "tanh": lambda n, x: n.tanh(x),
    "arctan2": lambda n, x: n.arctan2(x, 1 + x),
    "arcsinh": lambda n, x: n.arcsinh(x),
    "arccosh": lambda n, x: n.arccosh(1 + x),
    "arctanh": lambda n, x: n.arctanh(x / 2),
    "abs": lambda n, x: n.abs(x - 0.5),
    "maximum": lambda n, x: n.maximum(x, 0.5) * x,
    "floor": lambda n, x: n.floor(3 * x) * x,
    "where": lambda n, x: n.where(x > 0.5, n.sin(x), x * x),
    "max": lambda n, x: n.max(x * x),
    "sum": lambda n, x: n.sum(n.exp(x)),
    "product of matrices": lambda n, x: n.outer(x, x) @ n.sin(x),
    "softmax": lambda n, x: n.exp(x - n.max(x)) / n.sum(n.exp(x - n.max(x))),
    "shapes": lambda n, x: n.concatenate([x[::-1], n.stack([x, x]).T.reshape(-1)]) ** 2,
    "gather": lambda n, x: x[n.array([2, 0])] * x[1],
    "scatter": lambda n, x: x.at[n.array([1, 1])].add(x[:2] ** 2),
    "cumsum": lambda n, x: n.cumsum(n.sin(x)),
    "tree": lambda n, x: {"a": n.sin(x), "b": (x * x, n.sum(x))},
}  # fmt: skip
START = np.array([0.3, 0.75, 0.6], "float32")
SERIES = [0.5 * np.random.default_rng(k).standard_normal(3).astype("float32") for k in range(ORDER)]


@functools.cache
def of_jax(name: str) -> Any:
    f = AS_IN_JAX[name]
    return jax_jet(lambda x: f(jnp, x), (START,), (SERIES,))


@both
@pytest.mark.parametrize("name", AS_IN_JAX)
def test_as_in_jax(mode: Any, name: str) -> None:
    f = AS_IN_JAX[name]
    found = mode(lambda x, s: jet(lambda x: f(snp, x), (x,), (s,)))(START, SERIES)
    close(found, of_jax(name))


@pytest.mark.parametrize("name", ["power", "tree"])
def test_coefficients_without_factorials(name: str) -> None:
    f = AS_IN_JAX[name]
    found = jet(lambda x: f(snp, x), (START,), (SERIES,), factorial_scaled=False)
    right = jax_jet(lambda x: f(jnp, x), (START,), (SERIES,), factorial_scaled=False)
    close(found, right)


def test_several_arguments_and_one_that_stays() -> None:
    args = (2.0, START, np.arange(3, dtype="int32"))
    series = ([1.0, 0.5], [START, -START], [np.zeros(3, int)] * 2)

    def f(n: Any, a: Any, x: Any, i: Any) -> Any:
        return n.sin(a * x) * i

    found = jet(lambda *a: f(snp, *a), args, series)
    right = jax_jet(lambda *a: f(jnp, *a), args, [*series[:2], [np.zeros(3, "int32")] * 2])
    close(found, right)


def test_trees_of_arguments() -> None:
    point = {"a": snp.array(0.5), "b": (START,)}
    series = {"a": [1.0, 0.0], "b": ([START, 0 * START],)}

    def f(p: Any) -> Any:
        return snp.sin(p["a"]) * p["b"][0]

    _, (first, second) = jet(f, (point,), (series,))

    def along(s: Any) -> Any:
        return snp.sin(0.5 + s) * (START + s * START)

    close([first, second], [stax.jacfwd(along)(0.0), stax.jacfwd(stax.jacfwd(along))(0.0)])


# Functions of one vector that hold graphs, or for which JAX has no rule.


def looped(x: Any) -> Any:
    def step(carry: Any, a: Any) -> Any:
        n, c = carry
        return (n + 1, snp.sin(c) * a + n * x[0]), (c * a, n)

    (_, c), (ys, ns) = lax.scan(step, (0, x[1]), x * x, reverse=True)
    return c + ys * ns


def doubled_until_large(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0].sum() < 20, lambda c: (2 * c[0], snp.sin(c[1]) * x),
                          (stax.lax.stop_gradient(x), x))[1]  # fmt: skip


@stax.custom_jvp
def twice_by_rule(x: Any) -> Any:
    return 2 * x


twice_by_rule.defjvp(lambda xs, ts: (twice_by_rule(*xs), snp.exp(xs[0]) * ts[0]))


@stax.custom_vjp
def sine_by_rule(x: Any) -> Any:
    return snp.sin(x)


sine_by_rule.defvjp(lambda x: (snp.sin(x), x), lambda x, ct: (snp.cos(x) * ct,))

AS_NESTED: dict[str, Function] = {
    "scan": looped,
    "while": doubled_until_large,
    "while, an unmoved condition": lambda x: lax.fori_loop(0, snp.array(3), lambda i, c: c * x, x),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: snp.sin(c) * x + i, x),
    "cond": lambda x: lax.cond(x[0] > 0, lambda x: (snp.exp(x), 1.0), lambda x: (x, 2.0), x)[0],
    "switch": lambda x: lax.switch(1, [lambda x: x, lambda x: x**2, lambda x: 0 * x], x),
    "map": lambda x: lax.map(lambda x: snp.tanh(x) * x, x),
    "jit": lambda x: stax.jit(lambda x: snp.sin(x) * x)(x),
    "checkpoint": lambda x: stax.checkpoint(lambda x: snp.sin(snp.sin(x)))(x),
    "custom jvp": twice_by_rule,
    "custom vjp": sine_by_rule,
    "gradient": stax.grad(lambda x: snp.prod(snp.sin(x))),
    "gradient of scan": stax.grad(lambda x: looped(x).sum()),
    "gradient of while": stax.grad(lambda x: doubled_until_large(x).sum()),
    "hessian": stax.hessian(lambda x: snp.prod(snp.sin(x))),
    "vmap": stax.vmap(lambda x: lax.cond(x > 0.5, snp.sin, snp.cos, x)),
    "jvp": lambda x: stax.jvp(snp.sin, (x,), (x,))[1],
    "solve": lambda x: snp.linalg.solve(snp.eye(3) + snp.outer(x, x), x),
    "determinant": lambda x: snp.linalg.det(snp.eye(3) + snp.outer(x, x**2)),
    "cholesky": lambda x: snp.linalg.cholesky(snp.eye(3) + snp.outer(x, x)),
    "eigenvalues": lambda x: snp.linalg.eigvalsh(snp.diag(snp.arange(3.0)) + snp.outer(x, x)),
    "norm": lambda x: snp.linalg.norm(x),
    "sort": lambda x: snp.sort(x) ** 2,
    "product": snp.prod,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "logsumexp": nn.logsumexp,
    "log of gamma": stax.scipy.special.gammaln,
    "fourier": lambda x: snp.abs(snp.fft.fft(x)),
}


def nested(f: Function, order: int) -> list[np.ndarray]:
    """The derivatives of `f` along the curve of SERIES, by jvp of jvp."""

    def along(s: Any) -> Any:
        terms = [t.astype("float64") * s ** (k + 1) / math.factorial(k + 1) for k, t in
                 enumerate(SERIES)]  # fmt: skip
        return f(START.astype("float64") + sum(terms))

    found = []
    for _ in range(order):
        along = slope_of(along)
        found.append(np.asarray(along(snp.array(0.0, dtype="float64"))))
    return found


def slope_of(f: Function) -> Function:
    return lambda s: stax.jvp(f, (s,), (snp.ones_like(s),))[1]


@pytest.mark.parametrize("name", AS_NESTED)
def test_as_nested_jvp(name: str) -> None:
    f = AS_NESTED[name]
    with stax.enable_x64():
        wide = [t.astype("float64") for t in (START, *SERIES[:3])]

        def series(x: Any, *terms: Any) -> Any:
            return jet(f, (x,), (terms,))

        y, terms = series(*wide)
        close(y, np.asarray(f(wide[0])), 1e-12)
        close(terms, nested(f, 3), 1e-7)
        close(stax.jit(series)(*wide), (y, terms), 1e-9)


def test_a_rule_of_the_users_is_followed() -> None:
    _, (first, second) = jet(twice_by_rule, (0.5,), ((1.0, 0.0),))
    close([first, second], [np.float32(math.exp(0.5))] * 2)


def test_a_rule_may_close_over_an_array() -> None:
    factor = snp.array(3.0)

    @stax.custom_jvp
    def f(x: Any) -> Any:
        return x

    f.defjvp(lambda xs, ts: (f(*xs), factor * ts[0] * xs[0]))
    _, (first, second) = jet(f, (2.0,), ((1.0, 0.0),))
    assert (first, second) == (6, 3)


def test_a_rule_for_vmap_and_a_solver() -> None:
    mapped = stax.custom_batching.custom_vmap(snp.sin)
    mapped.def_vmap(lambda size, batched, x: (snp.sin(x), True))
    series = ((1.0, 0.5, 0.0),)
    close(jet(mapped, (0.5,), series)[1], jet(snp.sin, (0.5,), series)[1])

    def cube_root(a: Any) -> Any:
        def solve(f: Any, start: Any) -> Any:
            return lax.fori_loop(0, 30, lambda _, r: r - f(r) / (3 * r * r), start)

        return lax.custom_root(lambda r: r**3 - a, 2.0, solve, lambda g, y: y / g(1.0))

    close(jet(cube_root, (8.0,), series)[1], jet(snp.cbrt, (8.0,), series)[1])


def test_a_loop_runs_once(capfd: Any) -> None:
    def f(x: Any) -> Any:
        def step(c: Any, _: None) -> Any:
            stax.debug.print("step")
            return snp.sin(c), None

        return lax.scan(step, x, None, length=2)[0]

    jet(f, (0.7,), ((1.0, 0.5, 0.0),))
    assert capfd.readouterr().out.split() == ["step", "step"]


# --- inside other transforms ---


def third(x: Any) -> Any:
    """The third derivative of sin(x) x along a line."""
    return jet(lambda x: snp.sin(x) * x, (x,), ((1.0, 0.0, 0.0),))[1][2]


def third_by_hand(x: Any) -> Any:
    return -3 * snp.sin(x) - x * snp.cos(x)


@both
@pytest.mark.parametrize(
    "transform",
    [
        stax.grad,
        lambda f: stax.grad(stax.grad(f)),
        stax.jacfwd,
        lambda f: lambda x: stax.vmap(f)(snp.stack([x, 2 * x])),
        lambda f: lambda x: stax.vmap(stax.grad(f))(snp.stack([x, 2 * x])),
        lambda f: lambda x: lax.scan(lambda c, _: (f(c), c), x, None, length=3),
        lambda f: lambda x: jet(f, (x,), ((1.0, 0.5),)),
        stax.checkpoint,
    ],
    ids=["grad", "second", "jacfwd", "vmap", "vmap of grad", "scan", "jet", "checkpoint"],
)
def test_inside_transforms(mode: Any, transform: Any) -> None:
    x = snp.array(0.7)
    close(mode(transform(third))(x), transform(third_by_hand)(x), 1e-5)


def test_values_are_known_outside_of_jit() -> None:
    def f(x: Any) -> Any:
        return snp.sin(x) if x > 0 else x

    close(jet(f, (0.5,), ((1.0,),))[1][0], np.float32(math.cos(0.5)))


def test_a_masked_branch_stays_out() -> None:
    def f(x: Any) -> Any:
        return snp.where(x > 0, snp.sqrt(x), x * x)

    _, (first, second) = jet(f, (0.0,), ((1.0, 0.0),))
    assert (first, second) == (0, 2)


def test_narrow_types() -> None:
    for dtype in ("float16", "bfloat16"):
        x = snp.array(0.5, dtype)
        y, terms = jet(snp.sin, (x,), ((snp.ones_like(x), snp.zeros_like(x)),))
        assert {a.dtype for a in (y, *terms)} == {x.dtype}
    assert jet(snp.exp, (1j,), ((1.0,),))[1][0].dtype == np.complex64


# --- errors ---


def test_an_op_without_a_derivative() -> None:
    with pytest.raises(errors.MissingRule) as caught:
        jet(lambda x: bind(QrFactors(), x), (np.eye(3, dtype="float32"),), ((np.eye(3),),))
    assert "jet: geqrf has no series" in str(caught.value)
    assert "test_jet.py" in str(caught.value)


@pytest.mark.parametrize(
    ("series", "error", "says"),
    [
        (((1.0,), (1.0, 2.0)), errors.ArgumentValueError, "series of different lengths: 1, 2"),
        (((1.0,),), errors.ArgumentValueError, "2 primals and 1 series"),
        (((1.0,), (START,)), errors.ShapeError, r"derivative 1 of b has shape \(3,\), b \(\)"),
        (((1.0,), 1.0), errors.ArgumentValueError, "series of argument 1 is not"),
    ],
)
def test_series_that_do_not_fit(series: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        jet(lambda a, b: a * b, (1.0, 2.0), series)


def test_an_integer_does_not_move() -> None:
    with pytest.raises(errors.DTypeError, match=r"i is a .*does not move along a curve"):
        jet(lambda i: i * 2.0, (3,), ((1,),))
    assert jet(lambda i: i * 2.0, (3,), ((0,),)) == (6, [0])


def test_what_is_no_function() -> None:
    with pytest.raises(errors.ArgumentError, match=r"jet: 3\.0 is not callable"):
        jet(3.0, (1.0,), ((1.0,),))  # type: ignore[arg-type]
