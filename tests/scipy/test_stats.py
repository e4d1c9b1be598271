"""stax.scipy.stats: types as in JAX, values and slopes as in SciPy in float64, and JAX's grid.

FAMILIES gives each family a strategy of standard points and one for each shape parameter; every
function that the family has is tested on them.  Slopes are compared with differences of SciPy's
float64 functions, which no formula of ours or JAX's has part in.
"""

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.scipy.stats as jss
import numpy as np
import pytest
import scipy.stats
from hypothesis import Phase, given, settings, strategies as st

import stax
import stax.numpy as snp
import stax.scipy.stats as sss
from tests.like_jax import assert_like_jax

Values = tuple[float, ...]
LINE: Values = (-30.0, -5.5, -1.0, -0.25, 0.0, 0.5, 2.0, 8.5, 40.0)
HALF: Values = (-1.0, 1e-3, 0.25, 1.0, 3.5, 12.0, 60.0)
UNIT: Values = (-0.5, 0.0625, 0.25, 0.5, 0.875, 1.5)
COUNTS: Values = (-1.0, 0.0, 1.0, 2.0, 5.0, 11.0)
SHAPE: Values = (0.5, 1.0, 2.5, 7.0)
CHANCE: Values = (0.05, 0.25, 0.5, 0.9)
TRIALS: Values = (5.0, 11.0, 40.0)
LOC: Values = (-2.0, 0.0, 1.5)
SCALE: Values = (0.25, 1.0, 3.0)
QUANTILES: Values = (-0.5, 0.0, 1e-3, 0.125, 0.5, 0.75, 0.984375, 1.0, 2.0)


class Family(NamedTuple):
    """Standard points, the values of each shape parameter, whether there are loc and scale."""

    points: Values
    shapes: tuple[Values, ...] = ()
    loc: bool = True
    scale: bool = True


FAMILIES = {
    "norm": Family(LINE),
    "uniform": Family(UNIT),
    "expon": Family(HALF),
    "laplace": Family(LINE),
    "logistic": Family(LINE),
    "cauchy": Family(LINE),
    "gumbel_l": Family(LINE[:-1]),
    "gumbel_r": Family(LINE[1:]),
    "pareto": Family((0.5, 1.25, 2.0, 40.0), (SHAPE,)),
    "gamma": Family(HALF, (SHAPE,)),
    "chi2": Family(HALF, (SHAPE,)),
    "beta": Family(UNIT, (SHAPE, SHAPE)),
    "t": Family(LINE, ((1.0, 2.5, 30.0, 1e5),)),
    "truncnorm": Family((-6.0, -1.0, 0.25, 1.0, 2.0, 6.0), ((-5.0, -1.5, 0.5), (0.75, 5.0))),
    "gennorm": Family((-4.0, -1.0, -0.25, 0.5, 2.0), (SHAPE,), loc=False, scale=False),
    "vonmises": Family((-3.0, -0.5, 0.25, 2.0), (SHAPE,), loc=False, scale=False),
    "wrapcauchy": Family((-1.0, 0.25, 2.0, 6.0, 7.0), (CHANCE,), loc=False, scale=False),
    "bernoulli": Family((-1.0, 0.0, 1.0, 2.0), (CHANCE,), scale=False),
    "binom": Family(COUNTS, (TRIALS, CHANCE), scale=False),
    "geom": Family(COUNTS, (CHANCE,), scale=False),
    "nbinom": Family(COUNTS, (TRIALS, CHANCE), scale=False),
    "poisson": Family((*COUNTS, 40.0), ((0.5, 3.0, 50.0),), scale=False),
    "betabinom": Family(COUNTS, (TRIALS, SHAPE, SHAPE), scale=False),
}
# What is drawn is small already, and shrinking it slow.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
QUANTILE = ("ppf", "isf")
APART = {"poisson.entropy"}  # functions of parameters alone, tested by themselves
CASES = [
    (family, name)
    for family in FAMILIES
    for name in getattr(sss, family).__all__
    if f"{family}.{name}" not in APART
]
# The point and one parameter; the others are scalars.
LAYOUTS = [((), ()), ((4,), (4,)), ((3, 1), (2,)), ((), (3,)), ((0,), ())]
DTYPES = ["float32", "float32", "float16", "bfloat16", "int32", "int8"]

# JAX's formula happens to make the result of numbers strong.
STRONG = {"uniform.cdf", *(f"truncnorm.{name}" for name in sss.truncnorm.__all__)}


def function_of(library: Any, family: str, name: str) -> Any:
    return getattr(getattr(library, family), name)


def arity(family: str, name: str) -> int:
    """How many arguments the function takes: bernoulli.cdf has no loc."""
    return len(inspect.signature(function_of(jss, family, name)).parameters)


def is_discrete(family: str) -> bool:
    return not FAMILIES[family].scale and FAMILIES[family].loc


@st.composite
def arguments(draw: Any, family: str, name: str, points: Any = None) -> list[np.ndarray]:
    """Draw the arguments of one function in float64."""
    spec = FAMILIES[family]
    shapes = [np.asarray(draw(st.sampled_from(s))) for s in spec.shapes]
    discrete = is_discrete(family)
    pools = [(-2.0, 0.0, 1.0) if discrete else LOC] * spec.loc + [SCALE] * spec.scale
    places = [np.asarray(draw(st.sampled_from(p))) for p in pools]
    layout = draw(st.sampled_from(LAYOUTS))
    pool = QUANTILES if name in QUANTILE else spec.points
    if discrete and name in QUANTILE:
        pool = pool[2:]  # at 0 SciPy names the value before the first
    pool = pool if points is None else points
    x = np.array(draw(st.lists(st.sampled_from(pool), min_size=12, max_size=12)))
    x = x[: int(np.prod(layout[0]))].reshape(layout[0])
    args = [x, *shapes, *places][: arity(family, name)]
    if len(args) > 1:  # one of the parameters is an array
        which = draw(st.integers(1, len(args) - 1))
        args[which] = np.broadcast_to(args[which], layout[1])
    if name not in QUANTILE and len(args) > 1 + len(spec.shapes):
        first = len(spec.shapes) + 1
        scale = args[first + 1] if spec.scale else 1.0
        args[0] = np.asarray(args[0] * scale + args[first])
    return args


def in_float32(args: list[np.ndarray]) -> list[np.ndarray]:
    return [a.astype(np.float32) for a in args]


def expected(family: str, name: str, args: list[np.ndarray]) -> np.ndarray:
    """SciPy's value of float32 arguments, computed in float64."""
    with np.errstate(all="ignore"):
        found = function_of(scipy.stats, family, name)(*(np.asarray(a, np.float64) for a in args))
    return np.asarray(found)


def check_values(ours: Any, right: np.ndarray, tolerance: float = 2e-5) -> None:
    wide = np.asarray(ours).astype(np.float64)
    np.testing.assert_allclose(wide, right, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize(("family", "name"), CASES)
def test_signature(family: str, name: str) -> None:
    ours = inspect.signature(function_of(sss, family, name)).parameters
    theirs = inspect.signature(function_of(jss, family, name)).parameters
    assert [(p.name, p.default) for p in ours.values()] == [
        (p.name, p.default) for p in theirs.values()
    ]


@pytest.mark.parametrize(("family", "name"), CASES)
@settings(max_examples=8, phases=PHASES)
@given(data=st.data())
def test_values(family: str, name: str, data: Any) -> None:
    args = in_float32(data.draw(arguments(family, name)))
    ours = function_of(sss, family, name)(*args)
    check_values(ours, expected(family, name, args))


@pytest.mark.parametrize(("family", "name"), CASES)
@settings(max_examples=5, phases=PHASES)
@given(data=st.data())
def test_types(family: str, name: str, data: Any) -> None:
    """dtype, shape and weak type are JAX's, whatever goes in."""
    args: list[Any] = list(data.draw(arguments(family, name)))
    for i, a in enumerate(args):
        dtype = data.draw(st.sampled_from(DTYPES))
        is_number = a.shape == () and data.draw(st.booleans())
        args[i] = a.item() if is_number else a.astype(jnp.dtype(dtype))
    ours = function_of(sss, family, name)(*args)
    try:
        theirs = jax.eval_shape(lambda: function_of(jss, family, name)(*args))
    except TypeError:  # JAX's ndtr knows float32 and float64 only
        return
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    # Of integer arrays with numbers, formulas of JAX that mean the same differ in the flag.
    if not any(isinstance(a, np.ndarray) and a.dtype.kind == "i" for a in args):
        assert ours.weak_type == theirs.weak_type or f"{family}.{name}" in STRONG


def smooth_points(family: str) -> Values:
    """Points away from kinks and the ends of the support."""
    return tuple(p for p in FAMILIES[family].points if p not in (0.0, 0.5, 1.0, 2.0) or p % 1)


def slope(family: str, name: str, args: list[np.ndarray], which: int) -> np.ndarray:
    """The derivative for one argument, of the sum over what it broadcasts to, by differences."""
    step = 1e-5
    wide = [a.astype(np.float64) for a in args]
    moved = [[a + side * step * (i == which) for i, a in enumerate(wide)] for side in (1, -1)]
    up, down = (expected(family, name, m) for m in moved)
    return np.asarray(up - down) / (2 * step)


@pytest.mark.parametrize(("family", "name"), CASES)
@settings(max_examples=6, phases=PHASES)
@given(data=st.data())
def test_slopes(family: str, name: str, data: Any) -> None:
    points = (0.125, 0.3, 0.75) if name in QUANTILE else smooth_points(family)
    args = in_float32(data.draw(arguments(family, name, points or None)))
    smooth = [*range(len(args))]
    if is_discrete(family):  # only in the shapes, and not in the number of trials
        smooth = [i + 1 for i, pool in enumerate(FAMILIES[family].shapes) if pool is not TRIALS]
    if family == "beta" and "pdf" not in name:  # nor has JAX a derivative by the shapes
        smooth = [0, *smooth[3:]]
    which = data.draw(st.sampled_from(smooth))
    shape = np.broadcast_shapes(*(a.shape for a in args))
    args = [np.broadcast_to(a, shape) for a in args]
    right = slope(family, name, args, which)

    def total(x: Any) -> Any:
        full = [*args[:which], x, *args[which + 1 :]]
        return function_of(sss, family, name)(*full).sum()

    ours = np.asarray(stax.grad(total)(snp.asarray(args[which])))
    known = np.isfinite(right) & (np.abs(right) < 1e3)
    assert not np.isnan(ours[known]).any()
    np.testing.assert_allclose(ours[known], right[known], rtol=2e-3, atol=2e-4)


GRID = np.array([-np.inf, -1e6, -40, -3, -1, 0, 0.25, 1, 2, 7, 40, 1e6, np.inf, np.nan], np.float32)


def grid_of(family: str, name: str) -> list[np.ndarray]:
    spec = FAMILIES[family]
    points = np.array([-1.0, 0.0, 0.1, 0.5, 1.0, 3.0, np.nan], np.float32)
    if name not in QUANTILE:
        points = np.round(GRID) if is_discrete(family) else GRID
    if family.startswith("gumbel"):  # beyond, both others give NaN or overflow; see test_tails
        points = points[np.abs(points) < 50]
    rest = (
        [s[1] for s in spec.shapes] + [0.5 if spec.scale else 1.0] * spec.loc + [2.0] * spec.scale
    )
    return [points, *(np.float32(v) for v in rest)][: arity(family, name)]


@pytest.mark.parametrize(("family", "name"), CASES)
def test_compiled_on_a_grid(family: str, name: str) -> None:
    """Compiled values are SciPy's or JAX's in the tails, at the ends, outside of the support."""
    args = grid_of(family, name)
    function = function_of(sss, family, name)
    ours = np.asarray(stax.jit(function)(*args))
    check_values(ours, np.asarray(function(*args)).astype(np.float64))
    same = np.isclose(ours, expected(family, name, args), rtol=2e-5, atol=2e-6, equal_nan=True)
    if not same.all():  # between counts, SciPy has no probability where JAX has one
        theirs = np.asarray(jax.jit(function_of(jss, family, name))(*args))
        same |= np.isclose(ours, theirs, rtol=2e-5, atol=2e-6, equal_nan=True)
    assert same.all(), (args[0], ours)


TAILS = [
    (sss.gumbel_l.logcdf, (-1e6,), -1e6),
    (sss.gumbel_r.logsf, (1e6,), -1e6),
    (sss.gumbel_l.pdf, (np.inf,), 0.0),
    (sss.gumbel_r.logpdf, (-np.inf,), -np.inf),
    (sss.cauchy.cdf, (-1e20,), 1e-20 / np.pi),
    (sss.cauchy.logpdf, (1e30,), -np.log(np.pi) - 60 * np.log(10)),
    (sss.cauchy.ppf, (0.0,), -np.inf),
    (sss.t.logpdf, (0.5, 1e7), -np.log(2 * np.pi) / 2 - 0.125),
    (sss.expon.logcdf, (1e-20,), -20 * np.log(10)),
    (sss.gennorm.cdf, (-9.0, 2.0), scipy.stats.gennorm.cdf(-9.0, 2.0)),
    (sss.truncnorm.logpdf, (0.5, -1e-4, 1e-4, 0.5), np.log(5e3)),
    (sss.betabinom.logpmf, (-1, 5, 2.0, 3.0, -2), scipy.stats.betabinom.logpmf(1, 5, 2, 3)),
]


@pytest.mark.parametrize(("function", "args", "right"), TAILS)
def test_tails(function: Any, args: Any, right: float) -> None:
    """Where JAX cancels, overflows or is wrong, these are the values."""
    ours = function(*(np.float32(a) for a in args))
    np.testing.assert_allclose(np.asarray(ours), right, rtol=3e-6)


def test_no_nan_from_what_is_outside_of_the_support() -> None:
    x = snp.array([-3.0, 0.0, 0.5, 1.0, 4.0])
    for function, args in [
        (sss.beta.logpdf, (2.0, 3.0)), (sss.gamma.logpdf, (2.5,)), (sss.pareto.logpdf, (2.0,)),
        (sss.expon.logcdf, ()), (sss.pareto.cdf, (2.0,)), (sss.laplace.cdf, ()),
        (sss.gamma.cdf, (2.5,)), (sss.beta.cdf, (2.0, 3.0)), (sss.poisson.cdf, (2.0,)),
    ]:  # fmt: skip
        slope = stax.grad(lambda v, f=function, a=args: f(v, *a).sum())(x)
        assert not np.isnan(np.asarray(slope)).any(), function
    assert not np.isnan(stax.grad(lambda v: sss.laplace.cdf(v))(300.0))


def test_entropy_of_poisson() -> None:
    mu = np.array([[0.0, 0.25, 3.0], [40.0, 99.0, 5000.0]], np.float32)
    right = scipy.stats.poisson.entropy(mu.astype(np.float64))
    check_values(sss.poisson.entropy(mu), right)
    assert sss.poisson.entropy(mu, np.zeros((2, 1, 1))).shape == (2, 2, 3)
    assert np.isnan(sss.poisson.entropy(-1.0))
    step = 1e-5
    ends = scipy.stats.poisson.entropy([3 + step, 3 - step])
    slope = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(stax.grad(sss.poisson.entropy)(3.0), slope, rtol=1e-4)


# JAX compiles one program faster than it runs op by op for the first time.
STATS = ((sss, lambda f: f), (jss, jax.jit))


@pytest.mark.parametrize("shape", [(3,), (2,), (3, 4), (2, 1, 5)])
def test_dirichlet(shape: tuple[int, ...]) -> None:
    alpha = np.array([0.5, 2.0, 3.0], np.float32)
    x = np.random.default_rng(0).dirichlet(alpha, shape[1:]).astype(np.float32)
    x = np.moveaxis(x, -1, 0)[: shape[0]]
    ours, theirs = (jitted(lib.dirichlet.logpdf)(x, alpha) for lib, jitted in STATS)
    assert_like_jax(ours, theirs, 1e-5)
    np.testing.assert_allclose(sss.dirichlet.pdf(x, alpha), np.exp(ours), rtol=1e-5)


def test_slopes_of_dirichlet() -> None:
    alpha = np.array([0.5, 2.0, 3.0], np.float32)
    x = np.random.default_rng(0).dirichlet(alpha, 4).astype(np.float32).T
    found = stax.grad(lambda a: sss.dirichlet.logpdf(x, a).sum())(snp.asarray(alpha))
    expected = jax.jit(jax.grad(lambda a: jss.dirichlet.logpdf(x, a).sum()))(alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_dirichlet_outside_and_refused() -> None:
    assert sss.dirichlet.logpdf(np.array([0.5, 0.75]), np.ones(2)) == -np.inf
    for alpha in (np.ones((2, 2)), np.ones(5)):
        with pytest.raises(ValueError, match="alpha"):
            sss.dirichlet.logpdf(np.array([0.5, 0.5]), alpha)


def test_multinomial() -> None:
    p = np.array([0.2, 0.3, 0.5], np.float32)
    for x in (np.array([1, 2, 3]), np.array([0, 6, 0]), np.array([1, 2, 4])):
        for name in ("logpmf", "pmf"):
            ours, theirs = (function_of(lib, "multinomial", name)(x, 6, p) for lib in (sss, jss))
            assert_like_jax(ours, theirs, 1e-5)
    rows = np.array([[1, 2, 3], [4, 1, 1], [1, 1, 1]])
    right = scipy.stats.multinomial.logpmf(rows, 6, p.astype(float) / p.astype(float).sum())
    check_values(sss.multinomial.logpmf(rows, 6, p), right)
    with pytest.raises(ValueError, match="integers"):
        sss.multinomial.logpmf(rows / 2, 6, p)


SAMPLES = [
    np.array([[2, 1, 2, 5], [5, 5, 2, 1], [1, 1, 1, 1]]),
    np.array([[0.5, np.nan, np.nan], [1.5, 1.5, np.nan]], np.float32),
    np.zeros((0, 3), np.float32),
    np.array([3, 1, 1, 2], np.int8),
    np.float32(4.0),
]


@pytest.mark.parametrize(("axis", "keepdims"), [(0, False), (-1, True), (None, False)])
@pytest.mark.parametrize("x", SAMPLES, ids=lambda x: str(x.shape))
def test_mode_and_sem(x: Any, axis: Any, keepdims: bool) -> None:
    ours, theirs = (lib.mode(x, axis=axis, keepdims=keepdims) for lib in (sss, jss))
    assert_like_jax(tuple(ours), tuple(theirs))
    if np.ndim(x) and x.size:
        for policy in ("propagate", "omit"):
            options = {"axis": axis, "keepdims": keepdims, "nan_policy": policy, "ddof": 0}
            assert_like_jax(sss.sem(x, **options), jss.sem(x, **options), 3e-6)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("x", SAMPLES, ids=lambda x: str(x.shape))
def test_rankdata(x: Any, axis: Any, method: str) -> None:
    if (np.ndim(x) == 0 and axis is not None) or not x.size:
        return
    ours = sss.rankdata(x, method, axis=axis)
    theirs = jax.eval_shape(lambda: jss.rankdata(x, method, axis=axis))
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    right = scipy.stats.rankdata(x, method, axis=axis)
    np.testing.assert_array_equal(np.asarray(ours).reshape(right.shape), right)


@pytest.mark.parametrize("method", ["average", "min", "max", "dense", "ordinal"])
def test_compiled_ranks(method: str) -> None:
    ranks = lambda v: sss.rankdata(v, method, axis=1)  # noqa: E731
    np.testing.assert_array_equal(stax.jit(ranks)(SAMPLES[0]), ranks(SAMPLES[0]))
    mode = lambda v: tuple(sss.mode(v, axis=1))  # noqa: E731
    for ours, eager in zip(stax.jit(mode)(SAMPLES[0]), mode(SAMPLES[0]), strict=True):
        np.testing.assert_array_equal(ours, eager)


def test_samples_refuse_what_they_cannot() -> None:
    for function in (sss.mode, sss.rankdata):
        with pytest.raises(NotImplementedError, match="omit"):
            function(SAMPLES[0], nan_policy="omit")
        with pytest.raises(ValueError, match="nan_policy"):
            function(SAMPLES[0], nan_policy="whatever")
    with pytest.raises(ValueError, match="method"):
        sss.rankdata(SAMPLES[0], "best")


def covariance(*batch: int) -> np.ndarray:
    roots = np.random.default_rng(1).normal(size=(*batch, 3, 3)).astype(np.float32)
    return roots @ np.swapaxes(roots, -1, -2) + np.eye(3, dtype=np.float32)


NORMALS = [
    (np.zeros(3), np.ones(3), covariance()),
    (np.ones((5, 3)), np.arange(3.0), covariance()),
    (np.ones((2, 1, 3)), np.ones((4, 3)), covariance(4)),
    (np.ones((5, 3)), np.arange(3.0), 2.5),
    (np.ones((2, 3)), 0.5, 2.5),
    (np.arange(3), 1, 2),
]


@pytest.mark.parametrize("args", NORMALS, ids=lambda a: str([np.shape(v) for v in a]))
def test_multivariate_normal(args: Any) -> None:
    args = tuple(a.astype(np.float32) if np.ndim(a) else a for a in args)
    ours, theirs = (jitted(lib.multivariate_normal.logpdf)(*args) for lib, jitted in STATS)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    check_values(ours, np.asarray(theirs, np.float64))
    np.testing.assert_allclose(sss.multivariate_normal.pdf(*args), np.exp(ours), rtol=1e-5)


def test_slopes_of_multivariate_normal() -> None:
    args = (np.ones((5, 3), np.float32), np.arange(3, dtype=np.float32), covariance())

    def slopes(lib: Any, stats: Any) -> Any:
        slope = lib.grad(lambda *a: stats.multivariate_normal.logpdf(*a).sum(), (0, 1, 2))
        return lib.jit(slope)(*args)

    for ours, theirs in zip(slopes(stax, sss), slopes(jax, jss), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="cov"):
        sss.multivariate_normal.logpdf(np.ones(3), np.ones(3), np.eye(2))
    with pytest.raises(NotImplementedError, match="allow_singular"):
        sss.multivariate_normal.logpdf(*args, allow_singular=True)


POINTS = np.random.default_rng(2).normal(size=(2, 9)).astype(np.float32)
KDES = [
    {},
    {"bw_method": "silverman", "weights": np.arange(1, 10)},
    {"bw_method": 0.5},
    {"bw_method": lambda kde: kde.neff / 20},
]


@pytest.mark.parametrize("options", KDES, ids=range(4))
@pytest.mark.parametrize("data", [POINTS, POINTS[0]], ids=["plane", "line"])
def test_gaussian_kde(data: np.ndarray, options: dict[str, Any]) -> None:
    """Types are JAX's, values SciPy's."""
    ours, right = sss.gaussian_kde(data, **options), scipy.stats.gaussian_kde(data, **options)
    theirs = jax.eval_shape(lambda: jax.tree.leaves(jss.gaussian_kde(data, **options)))
    found = stax.tree.leaves(ours)
    assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in theirs]
    for name in ("neff", "dataset", "weights", "covariance", "inv_cov"):
        check_values(getattr(ours, name), np.asarray(getattr(right, name), np.float64))
    assert (ours.d, ours.n) == (right.d, right.n)
    at = data[..., :4] + np.float32(0.1)
    for name in ("evaluate", "pdf", "logpdf", "__call__"):
        check_values(getattr(ours, name)(at), getattr(right, name)(at))
    mean, cov = np.zeros(ours.d, np.float32), np.eye(ours.d, dtype=np.float32)
    check_values(ours.integrate_gaussian(mean, cov), right.integrate_gaussian(mean, cov))
    parts = [lib.gaussian_kde(data[..., :5]) for lib in (sss, scipy.stats)]
    check_values(ours.integrate_kde(parts[0]), right.integrate_kde(parts[1]))
    if ours.d == 1:
        check_values(ours.integrate_box_1d(-1, 0.5), right.integrate_box_1d(-1, 0.5))
    compiled = stax.jit(lambda kde, x: kde.logpdf(x))(ours, at)
    np.testing.assert_allclose(compiled, ours.logpdf(at), rtol=1e-5)


def test_resampling() -> None:
    ours, theirs = (lib.gaussian_kde(POINTS) for lib in (sss, jss))
    found = ours.resample(stax.random.key(0), (3,))
    right = theirs.resample(jax.random.key(0), (3,))
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_kde_refuses() -> None:
    kde = sss.gaussian_kde(POINTS)
    for call, kind in [
        (lambda: sss.gaussian_kde(np.ones(1)), ValueError),
        (lambda: sss.gaussian_kde(POINTS, weights=np.ones(3)), ValueError),
        (lambda: sss.gaussian_kde(POINTS, "narrow"), ValueError),
        (lambda: sss.gaussian_kde(POINTS * 1j), NotImplementedError),
        (lambda: kde(np.ones((3, 4))), ValueError),
        (lambda: kde.integrate_box_1d(0, 1), ValueError),
        (lambda: kde.integrate_gaussian(np.ones(3), np.eye(3)), ValueError),
        (lambda: kde.integrate_kde(sss.gaussian_kde(POINTS[0])), ValueError),
        (lambda: kde.integrate_box(0, 1), NotImplementedError),
        (lambda: kde.set_bandwidth(), NotImplementedError),
    ]:
        with pytest.raises(kind):
            call()
