"""stax.scipy.special: values against SciPy, everything else against jax.scipy.special.

A table has for each function the arguments that it is tried with, SciPy's function, and which
arguments have a derivative.  Arguments keep away from poles and from where JAX loses its digits;
those places have tests of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special as sp

import stax
import stax.numpy as snp
from stax.config import config
from stax.errors import ArgumentError, ArgumentValueError, MissingRule, StaxError
from stax.scipy import special
from tests.like_jax import assert_like_jax


@dataclass(frozen=True)
class Case:
    """How a function is tried: ranges of its arguments, SciPy's function of float64 arrays, the
    arguments with derivatives, and how far JAX's float32 values may be off."""

    ranges: tuple[tuple[float, float], ...]
    exact: Callable[..., Any]
    smooth: tuple[int, ...] = (0,)
    jax_tolerance: float = 2e-5
    options: tuple[tuple[str, Any], ...] = ()

    def arguments(self, size: int = 40) -> list[np.ndarray]:
        rng = np.random.default_rng(0)
        return [rng.uniform(low, high, size).astype(np.float32) for low, high in self.ranges]


def orders(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the first argument an integer."""
    return lambda n, *rest: function(np.floor(n), *rest)


POSITIVE = (0.3, 9.0)
CASES = {
    "bernoulli": Case((), lambda: sp.bernoulli(20), (), options=(("n", 20),)),
    "bessel_jn": Case(((6.0, 12.0),), lambda z: sp.jv(np.c_[:4], z), (0,), 1e-3, (("v", 3),)),
    "beta": Case((POSITIVE, POSITIVE), sp.beta, (0, 1)),
    "betainc": Case((POSITIVE, POSITIVE, (0.05, 0.95)), sp.betainc, (2,), 2e-4),
    "betaln": Case((POSITIVE, (0.3, 20.0)), sp.betaln, (0, 1), 1e-4),
    "boxcox": Case((POSITIVE, (-2.0, 2.0)), sp.boxcox, (0, 1)),
    "boxcox1p": Case((POSITIVE, (-2.0, 2.0)), sp.boxcox1p, (0, 1)),
    "comb": Case(((6.0, 20.0), (0.5, 5.0)), sp.binom, (0, 1), 1e-3),
    "dawsn": Case(((-9.0, 9.0),), sp.dawsn),
    "digamma": Case(((-4.0, 9.0),), sp.psi, jax_tolerance=3e-4),
    "entr": Case((POSITIVE,), sp.entr),
    "erf": Case(((-3.0, 3.0),), sp.erf),
    "erfc": Case(((-3.0, 3.0),), sp.erfc),
    "erfcx": Case(((-3.0, 6.0),), sp.erfcx, jax_tolerance=3e-4),
    "erfinv": Case(((-1.0, 1.0),), sp.erfinv),
    "exp1": Case((POSITIVE,), sp.exp1),
    "expi": Case(((-9.0, 9.0),), sp.expi, jax_tolerance=2e-4),
    "expit": Case(((-9.0, 9.0),), sp.expit),
    "factorial": Case(((0.0, 9.0),), lambda n: sp.gamma(n + 1), jax_tolerance=1e-3),
    "fresnel": Case(((-3.0, 3.0),), sp.fresnel),
    "gamma": Case(((-3.9, 9.0),), sp.gamma, jax_tolerance=2e-3),
    "gammainc": Case((POSITIVE, POSITIVE), sp.gammainc, (0, 1), 1e-4),
    "gammaincc": Case((POSITIVE, POSITIVE), sp.gammaincc, (0, 1), 1e-4),
    "gammaln": Case(((-3.9, 9.0),), sp.gammaln, jax_tolerance=2e-4),
    "gammasgn": Case(((-3.9, 9.0),), sp.gammasgn),
    "hyp1f1": Case(((0.3, 3.0), (0.5, 3.0), (-2.0, 3.0)), sp.hyp1f1, (0, 1, 2), 1e-4),
    "hyp2f1": Case(((1, 3), (0.5, 3.0), (0.6, 3.0), (-0.7, 0.7)), sp.hyp2f1, tuple(range(4)), 5e-4),
    "i0": Case(((-9.0, 9.0),), sp.i0),
    "i0e": Case(((-9.0, 9.0),), sp.i0e),
    "i1": Case(((-9.0, 9.0),), sp.i1),
    "i1e": Case(((-9.0, 9.0),), sp.i1e, jax_tolerance=1e-4),
    "kl_div": Case((POSITIVE, POSITIVE), sp.kl_div, (0, 1)),
    "log_ndtr": Case(((-9.0, 4.0),), sp.log_ndtr, jax_tolerance=1e-4),
    "loggamma": Case((POSITIVE,), sp.gammaln),
    "logit": Case(((0.05, 0.95),), sp.logit),
    "multigammaln": Case(((1.5, 9.0),), lambda a: sp.multigammaln(a, 3), options=(("d", 3),)),
    "ndtr": Case(((-4.0, 4.0),), sp.ndtr),
    "ndtri": Case(((0.01, 0.99),), sp.ndtri),
    "owens_t": Case(((-3.0, 3.0), (-3.0, 3.0)), sp.owens_t, (0, 1)),
    "poch": Case((POSITIVE, (0.2, 4.0)), sp.poch, (0, 1), 1e-4),
    "rel_entr": Case((POSITIVE, POSITIVE), sp.rel_entr, (0, 1)),
    "sici": Case((POSITIVE,), sp.sici),
    "spence": Case(((0.1, 9.0),), sp.spence, jax_tolerance=1e-4),
    "xlog1py": Case((POSITIVE, POSITIVE), sp.xlog1py, (0, 1)),
    "xlogy": Case((POSITIVE, POSITIVE), sp.xlogy, (0, 1)),
    "zeta": Case(((1.5, 9.0), POSITIVE), sp.zeta, (0, 1), 1e-4),
}  # fmt: skip
# Functions whose arguments need more than a range, tested one by one below.
OTHERS = {"expn", "polygamma", "logsumexp", "softmax", "log_softmax", "wofz", "sph_harm_y"}
SMOOTH = [name for name, case in CASES.items() if case.smooth and name != "gammasgn"]
# What JAX takes only as float32 and float64, or answers in float32.
NARROW_REFUSED = {"ndtr", "ndtri", "log_ndtr", "spence", "owens_t"}
# What takes JAX seconds to compile.
HEAVY = {
    "beta",
    "betainc",
    "betaln",
    "exp1",
    "expi",
    "gammainc",
    "gammaincc",
    "hyp1f1",
    "hyp2f1",
    "sici",
    "spence",
    "zeta",
    "bessel_jn",
    "poch",
    "fresnel",
    "digamma",
    "polygamma",
    "expn",
}


# Where the gradient is compared with JAX's each time, besides with difference quotients.
LIGHT = {"gammaln", "erfinv", "i0e", "i1e", "log_ndtr", "xlogy", "entr", "logit", "ndtr", "kl_div"}


def marked(names: Any, heavy: set[str] = HEAVY) -> list[Any]:
    """Names as parameters of a comparison with JAX, the heavy ones as slow ones."""
    return [pytest.param(n, marks=pytest.mark.slow) if n in heavy else n for n in names]


def ours(name: str) -> Callable[..., Any]:
    case = CASES[name]
    return lambda *args: getattr(special, name)(*args, **dict(case.options))


def theirs(name: str) -> Callable[..., Any]:
    case = CASES[name]
    return jax.jit(lambda *args: getattr(jax.scipy.special, name)(*args, **dict(case.options)))


def parts(result: Any) -> list[np.ndarray]:
    """The results of a function as float64 arrays."""
    found = result if isinstance(result, tuple) else (result,)
    return [np.asarray(x).astype(np.float64) for x in found]


def assert_within_ulps(got: Any, exact: Any, ulps: float = 4.0, near_zero: float = 1e-6) -> None:
    """Check float32 results against float64 ones: 4 ulp, or an absolute error next to zeros."""
    for a, b in zip(parts(got), parts(exact), strict=True):
        spacing = np.spacing(np.abs(b).astype(np.float32)).astype(np.float64)
        assert (np.abs(a - b) <= np.maximum(ulps * spacing, near_zero)).all()


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of all results, for gradients."""

    def summed(*args: Any) -> Any:
        found = function(*args)
        return sum(x.sum() for x in found) if isinstance(found, tuple) else found.sum()

    return summed


# Names that JAX has from a version on that is newer than the one this follows.
NEWER = {"erfcinv"}


def test_the_table_is_complete() -> None:
    public = {name for name in dir(jax.scipy.special) if not name.startswith("_")}
    assert set(CASES) | OTHERS == public - NEWER
    assert set(special.__all__) >= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    arguments = case.arguments()
    exact = case.exact(*(x.astype(np.float64) for x in arguments))
    eager, compiled = ours(name)(*arguments), stax.jit(ours(name))(*arguments)
    assert_within_ulps(eager, exact)
    assert_within_ulps(compiled, exact)


@pytest.mark.parametrize("name", marked(CASES))
def test_values_of_jax(name: str) -> None:
    case = CASES[name]
    arguments = case.arguments()
    assert_like_jax(ours(name)(*arguments), theirs(name)(*arguments), case.jax_tolerance)


@pytest.mark.parametrize("name", CASES)
def test_float64(name: str) -> None:
    case = CASES[name]
    with config.override(enable_x64=True):
        arguments = [x.astype(np.float64) for x in case.arguments(20)]
        exact = parts(case.exact(*arguments))
        for found in (ours(name)(*arguments), stax.jit(ours(name))(*arguments)):
            for a, b in zip(parts(found), exact, strict=True):
                np.testing.assert_allclose(a, b, rtol=4e-13, atol=1e-14)


def numbers(case: Case) -> list[Any]:
    """One number for each argument, an integer where the range has one."""
    found = []
    for low, high in case.ranges:
        middle = round((low + high) / 2)
        found.append(middle if low < middle < high else (low + high) / 2)
    return found


def described(result: Any) -> list[tuple[Any, Any, bool]]:
    found = result if isinstance(result, tuple) else (result,)
    return [(x.dtype, x.shape, x.weak_type) for x in found]


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].ranges])
def test_types(name: str) -> None:
    """Dtype, shape and weak type of numbers, integers, and narrow floating types."""
    arguments = numbers(CASES[name])
    kinds = [np.dtype(np.float32)]
    if name not in NARROW_REFUSED:
        kinds += [np.dtype(np.int32), np.dtype(np.float16), np.dtype(jnp.bfloat16)]
        expected = jax.eval_shape(theirs(name), *arguments)
        assert described(ours(name)(*arguments)) == described(expected)
    for kind in kinds:
        given = [np.asarray(x).astype(kind) for x in arguments]
        assert described(ours(name)(*given)) == described(jax.eval_shape(theirs(name), *given))


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].ranges])
@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
def test_narrow_types(name: str, dtype: Any) -> None:
    arguments = [x.astype(dtype) for x in CASES[name].arguments(20)]
    wide = parts(ours(name)(*(x.astype(np.float32) for x in arguments)))
    epsilon = float(jnp.finfo(dtype).eps)
    for function in (ours(name), stax.jit(ours(name))):
        found = function(*arguments)
        first = found[0] if isinstance(found, tuple) else found
        assert first.dtype == dtype
        for a, b in zip(parts(found), wide, strict=True):
            kept = np.isfinite(b.astype(dtype).astype(np.float64)) & (np.abs(b) > 1e-3)
            scale = 40 * epsilon * np.maximum(np.abs(b), 1.0)
            assert (np.abs(a - b)[kept] <= scale[kept]).all()


# JAX differentiates the steps of a recurrence for bessel_jn, which does not converge to anything.
@pytest.mark.parametrize(
    "name", marked([n for n in SMOOTH if n != "bessel_jn"], HEAVY | {*SMOOTH} - LIGHT)
)
def test_gradients(name: str) -> None:
    case = CASES[name]
    arguments = case.arguments(12)
    gradient = stax.grad(total(ours(name)), argnums=case.smooth)
    expected = jax.jit(jax.grad(total(theirs(name)), argnums=case.smooth))(*arguments)
    tolerance = max(case.jax_tolerance, 1e-4)
    found = gradient(*map(snp.array, arguments))
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_difference_quotients(name: str) -> None:
    case, step = CASES[name], 1e-5
    with config.override(enable_x64=True):
        arguments = [x.astype(np.float64) for x in case.arguments(12)]
        function = total(ours(name))
        gradient, given = stax.grad(function, argnums=case.smooth), list(map(snp.array, arguments))
        found = gradient(*given)
        for a, b in zip(found, stax.jit(gradient)(*given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
        for number, slope in zip(case.smooth, found, strict=True):
            ends = []
            for sign in (1, -1):
                moved = list(arguments)
                moved[number] = moved[number] + sign * step
                ends.append(parts(ours(name)(*moved)))
            quotients = [(high - low) / (2 * step) for high, low in zip(*ends, strict=True)]
            expected = sum(q.reshape(-1, q.shape[-1]).sum(0) for q in quotients)
            np.testing.assert_allclose(np.asarray(slope), expected, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].ranges])
def test_mapped(name: str) -> None:
    arguments = CASES[name].arguments(6)
    mapped = stax.vmap(ours(name))(*arguments)
    for function in (mapped, stax.jit(stax.vmap(ours(name)))(*arguments)):
        for a, b in zip(parts(function), parts(ours(name)(*arguments)), strict=True):
            # Of functions with several orders, the orders come first, and under vmap last.
            b = np.moveaxis(b, -1, 0) if a.shape != b.shape else b
            np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in CASES if CASES[n].ranges])
def test_nan_in_nan_out(name: str) -> None:
    arguments = CASES[name].arguments(9)
    for number, argument in enumerate(arguments):
        argument[2 * number + 1] = np.nan
    expected = np.isnan(sum(arguments))
    if name == "comb":  # as in JAX, NaN is no number of things: 0
        expected = np.zeros_like(expected)
    for function in (ours(name), stax.jit(ours(name))):
        for x in parts(function(*arguments)):
            np.testing.assert_array_equal(np.isnan(x), np.broadcast_to(expected, x.shape))


def test_arguments_without_derivatives() -> None:
    x = snp.float32(0.5)
    with pytest.raises(MissingRule, match="betainc has no derivative by a"):
        stax.grad(special.betainc)(x, x, x)
    with pytest.raises(MissingRule, match="expn has no derivative by its order"):
        stax.grad(special.expn)(x, x)
    with pytest.raises(MissingRule, match="igamma_grad_a has no derivative by a"):
        stax.grad(stax.grad(special.gammainc))(x, x)


@pytest.mark.parametrize("name", ["polygamma", "expn"])
def test_orders(name: str) -> None:
    n, x = np.arange(6), np.linspace(0.5, 9.0, 6, dtype=np.float32)
    function = getattr(special, name)
    exact = getattr(sp, name)(n, x.astype(np.float64))
    for found in (function(n, x), stax.jit(function)(n, x)):
        assert_within_ulps(found, exact)
    with pytest.raises(ArgumentValueError, match="an integer, not float32"):
        special.polygamma(1.0, x)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["polygamma", "expn"])
def test_orders_of_jax(name: str) -> None:
    n, x = np.arange(6), np.linspace(0.5, 9.0, 6, dtype=np.float32)
    function, expected = getattr(special, name), getattr(jax.scipy.special, name)
    assert_like_jax(function(n, x), expected(n, x), 1e-4)
    slope = stax.grad(lambda x: function(n, x).sum())(snp.array(x))
    theirs = jax.grad(lambda x: expected(n, x).sum())(x)
    kept = np.isfinite(theirs)  # JAX lacks the exponential integral of order -1
    np.testing.assert_allclose(np.asarray(slope)[kept], theirs[kept], rtol=2e-4)


def test_options() -> None:
    assert_like_jax(
        special.comb(4.0, 2.0, repetition=True),
        jax.scipy.special.comb(4.0, 2.0, repetition=True),
        1e-6,
    )
    assert_like_jax(
        special.comb(0.0, 0.0, repetition=True),
        jax.scipy.special.comb(0.0, 0.0, repetition=True),
        0,
    )
    np.testing.assert_array_equal(special.log_ndtr(-3.0, 9), special.log_ndtr(-3.0))
    for wrong in (-1, 31):
        with pytest.raises(ArgumentValueError, match="from 0 to 30"):
            special.log_ndtr(1.0, series_order=wrong)
    with pytest.raises(ArgumentError, match="series_order is an integer"):
        special.log_ndtr(1.0, 2.5)
    for call in (
        lambda: special.factorial(3.0, exact=True), lambda: special.zeta(2.0),
        lambda: special.bernoulli(-1), lambda: special.bessel_jn(1.0, v=-1),
        lambda: special.multigammaln(1.0, snp.float32(2.0)), lambda: special.gamma([1.0, 2.0]),
        lambda: special.betainc(1j, 1.0, 1.0), lambda: special.dawsn(1j),
    ):  # fmt: skip
        with pytest.raises(StaxError):
            call()


def test_bernoulli_numbers() -> None:
    for n in (0, 1, 2, 3, 10, 61):
        found = special.bernoulli(n)
        assert found.shape == (n + 1,) and found.dtype == np.float32
        np.testing.assert_allclose(found, sp.bernoulli(n)[: n + 1].astype(np.float32), rtol=1e-6)
