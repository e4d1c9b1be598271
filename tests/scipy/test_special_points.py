"""Special functions at special points: poles, zeros, infinities, and where JAX loses its digits."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.special as sp

import stax
from stax.config import config
from stax.scipy import special
from tests.scipy.test_special import CASES, ours

NAN, INF = np.nan, np.inf
POINTS: list[tuple[str, Sequence[float], Any]] = [
    ("gammaln", (0.0,), INF), ("gammaln", (-3.0,), INF), ("gammaln", (-INF,), INF),
    ("gammaln", (1.0,), 0.0), ("gammaln", (2.0,), 0.0), ("gammaln", (INF,), INF),
    ("loggamma", (-0.5,), NAN), ("loggamma", (0.0,), NAN), ("loggamma", (1.0,), 0.0),
    ("gamma", (0.0,), INF), ("gamma", (-0.0,), -INF), ("gamma", (-2.0,), NAN),
    ("gamma", (INF,), INF),
    ("gammasgn", (0.0,), 1.0), ("gammasgn", (-0.0,), -1.0), ("gammasgn", (-1.0,), NAN),
    ("gammasgn", (-INF,), NAN), ("gammasgn", (-2.5,), -1.0), ("gammasgn", (-1.5,), 1.0),
    ("digamma", (0.0,), NAN), ("digamma", (-2.0,), NAN), ("digamma", (INF,), INF),
    ("digamma", (-INF,), NAN), ("polygamma", (1, 0.0), INF), ("polygamma", (2, -1.0), NAN),
    ("polygamma", (0, 1.0), -0.5772156649), ("polygamma", (1, 1.0), np.pi**2 / 6),
    ("polygamma", (-1, 1.0), NAN), ("polygamma", (1, -0.5), 8.9348022005),
    ("polygamma", (2, -7.25), 124.00852604), ("zeta", (1.0, 2.0), INF), ("zeta", (0.5, 2.0), NAN),
    ("zeta", (2.0, 0.0), INF), ("zeta", (3.0, -1.0), NAN), ("zeta", (2.0, -1.0), INF),
    ("zeta", (2.5, -0.5), NAN), ("zeta", (2.0, -1e6 - 0.5), np.pi**2),
    ("gammainc", (0.0, 1.0), 1.0), ("gammainc", (2.0, 0.0), 0.0), ("gammainc", (2.0, INF), 1.0),
    ("gammainc", (-1.0, 1.0), NAN), ("gammainc", (1.0, -1.0), NAN), ("gammaincc", (0.0, 1.0), 0.0),
    ("gammaincc", (2.0, INF), 0.0), ("betainc", (1.0, 1.0, 0.0), 0.0),
    ("betainc", (2.0, 3.0, 1.0), 1.0),
    ("betainc", (1.0, 1.0, 1.5), NAN), ("betainc", (-1.0, 1.0, 0.5), NAN), ("erfinv", (1.0,), INF),
    ("erfinv", (-1.0,), -INF), ("erfinv", (1.5,), NAN), ("erfinv", (-0.0,), -0.0),
    ("ndtri", (0.0,), -INF), ("ndtri", (1.0,), INF), ("ndtri", (-0.1,), NAN),
    ("ndtri", (0.5,), 0.0),
    ("ndtri", (1e-40,), -13.310921), ("erfcx", (INF,), 0.0), ("erfcx", (-INF,), INF),
    ("erfcx", (1e20,), 5.6418958e-21), ("dawsn", (INF,), 0.0), ("dawsn", (-0.0,), -0.0),
    ("expi", (0.0,), -INF), ("expi", (INF,), INF), ("expi", (-INF,), -0.0), ("exp1", (0.0,), INF),
    ("exp1", (-1.0,), NAN), ("exp1", (INF,), 0.0), ("expn", (0, 2.0), 0.067667642),
    ("expn", (2, 0.0), 1.0), ("expn", (1, 0.0), INF), ("expn", (-1, 1.0), NAN),
    ("expn", (7000, 1.0), 5.25542048e-05), ("spence", (0.0,), np.pi**2 / 6),
    ("spence", (1.0,), 0.0),
    ("spence", (-1.0,), NAN), ("i0", (-INF,), INF), ("i0e", (INF,), 0.0), ("i1e", (-0.0,), -0.0),
    ("i1", (0.0,), 0.0), ("comb", (3.0, 5.0), 0.0), ("comb", (-1.0, 0.0), 0.0),
    ("comb", (5.0, 5.0), 1.0), ("comb", (30.0, 15.0), 155117520.0), ("factorial", (-1.0,), 0.0),
    ("factorial", (10.0,), 3628800.0), ("poch", (3.0, 0.0), 1.0), ("boxcox", (2.0, 0.0), np.log(2)),
    ("boxcox1p", (1.0, 0.0), np.log(2)), ("log_ndtr", (-INF,), -INF), ("log_ndtr", (-1e4,), -5e7),
    ("log_ndtr", (INF,), -0.0), ("owens_t", (0.0, 1.0), 0.125), ("owens_t", (INF, 1.0), 0.0),
    ("hyp1f1", (0.0, 2.0, 3.0), 1.0), ("hyp2f1", (1.0, 2.0, 3.0, 0.0), 1.0),
    ("logit", (0.0,), -INF), ("logit", (1.0,), INF), ("logit", (-0.1,), NAN),
    ("gammasgn", (NAN,), NAN), ("betaln", (NAN, 1.0), NAN), ("bessel_jn", (0.0,), [1.0, 0, 0, 0]),
]  # fmt: skip


@pytest.mark.parametrize("name", dict.fromkeys(name for name, _, _ in POINTS))
def test_points(name: str) -> None:
    """All points of a function at once; they must not disturb each other either."""
    points = [(arguments, expected) for other, arguments, expected in POINTS if other == name]
    columns = list(zip(*(arguments for arguments, _ in points), strict=True))
    given = [np.array(column, np.float32) for column in columns]
    if name == "polygamma":
        given[0] = given[0].astype(np.int32)
    expected = np.array([value for _, value in points], np.float32).T
    function = ours(name) if name in CASES else getattr(special, name)
    for found in (function(*given), stax.jit(function)(*given)):
        value = np.asarray(found).reshape(expected.shape)
        np.testing.assert_allclose(value, expected, rtol=2e-6, atol=0)
        zero = expected == 0
        assert (np.signbit(value) == np.signbit(expected))[zero].all()


SLOPES: list[tuple[str, Sequence[float], int, float]] = [
    ("gammainc", (1.0, 0.0), 1, 1.0), ("gammaincc", (1.0, 0.0), 1, -1.0),
    ("betainc", (1.0, 1.0, 0.0), 2, 1.0), ("betainc", (1.0, 2.0, 0.0), 2, 2.0),
    ("betainc", (2.0, 1.0, 1.0), 2, 2.0), ("i0", (0.0,), 0, 0.0), ("i1", (0.0,), 0, 0.5),
    ("i1e", (0.0,), 0, 0.5), ("sinint", (0.0,), 0, 1.0), ("spence", (1.0,), 0, -1.0),
    ("boxcox", (2.0, 0.0), 1, np.log(2.0) ** 2 / 2), ("erfinv", (0.0,), 0, np.sqrt(np.pi) / 2),
    ("ndtri", (0.5,), 0, np.sqrt(2 * np.pi)), ("log_ndtr", (-1e3,), 0, 1000.001),
    ("expn", (0, 2.0), 1, -0.10150146), ("hyp1f1", (0.0, 2.0, 0.5), 0, 0.272708879),
    ("zeta", (2.0, 1.0), 1, -2.404114), ("zeta", (2.0, 1.0), 0, -0.9375483),
]  # fmt: skip


@pytest.mark.parametrize(("name", "arguments", "by", "expected"), SLOPES)
def test_slopes_at_awkward_points(
    name: str, arguments: Sequence[float], by: int, expected: float
) -> None:
    """Where JAX's formulas give NaN, the limit."""

    def function(*args: Any) -> Any:
        return special.sici(*args)[0] if name == "sinint" else getattr(special, name)(*args)

    given = list(map(np.float32, arguments))
    for gradient in (stax.grad(function, argnums=by), stax.jit(stax.grad(function, argnums=by))):
        np.testing.assert_allclose(gradient(*given), expected, rtol=2e-5)


@pytest.mark.parametrize("x", [0.5, 1.0, 3.0])
def test_mixed_second_derivatives(x: float) -> None:
    """Of x^(a-1) at a = 1, where the factor a - 1 of the logarithm is 0 and its slope is not."""
    density = stax.grad(special.gammainc, argnums=1)
    mixed = stax.grad(density, argnums=0)
    expected = np.exp(-x) * (np.log(x) + np.euler_gamma)
    for function in (mixed, stax.jit(mixed)):
        np.testing.assert_allclose(function(np.float32(1.0), np.float32(x)), expected, rtol=1e-5)
    by_a = stax.grad(lambda a: stax.grad(special.betainc, argnums=2)(a, 1.0, x / 4))(1.0)
    np.testing.assert_allclose(by_a, np.log(x / 4) + 1, rtol=1e-5)
    assert mixed(np.float32(1.0), np.float32(0.0)) == -np.inf


def nested(function: Any, order: int) -> Any:
    return function if order == 0 else stax.grad(nested(function, order - 1))


HIGHER = [
    ("boxcox", lambda x: special.boxcox(2.0, x), 0.0, 2, np.log(2.0) ** 3 / 3),
    ("spence", special.spence, 1.0, 2, 0.5),
    ("spence", special.spence, 1.0, 3, -2 / 3),
    ("sinint", lambda x: special.sici(x)[0], 0.0, 3, -1 / 3),
    ("i0", special.i0, 0.0, 2, 0.5),
    ("erfinv", special.erfinv, 0.0, 3, np.pi**1.5 / 4),
    ("xlogy", lambda x: special.xlogy(x, 3.0), 0.0, 1, np.log(3.0)),
]


@pytest.mark.parametrize(("name", "function", "x", "order", "expected"), HIGHER)
def test_higher_derivatives_at_awkward_points(
    name: str, function: Any, x: float, order: int, expected: float
) -> None:
    derivative = nested(function, order)
    np.testing.assert_allclose(derivative(np.float32(x)), expected, rtol=2e-5)
    np.testing.assert_allclose(stax.jit(derivative)(np.float32(x)), expected, rtol=2e-5)


def test_right_where_jax_loses_its_digits() -> None:
    """Large arguments in float32, where JAX takes exp of a difference of large logarithms."""
    n, k = np.float32(60.0), np.float32(30.0)
    np.testing.assert_allclose(special.comb(n, k), sp.comb(60, 30), rtol=2e-7)
    np.testing.assert_allclose(special.gamma(np.float32(34.0)), sp.gamma(34.0), rtol=2e-7)
    np.testing.assert_allclose(special.poch(np.float32(30.0), k / 3), sp.poch(30.0, 10), rtol=2e-7)
    with config.override(enable_x64=True):
        for function in (special.log_ndtr, stax.jit(special.log_ndtr)):
            np.testing.assert_allclose(function(np.float64(-20.0)), -203.91715537109726, rtol=1e-15)
        z = np.float64(40.0)
        np.testing.assert_allclose(special.bessel_jn(z, v=2)[2], sp.jv(2, z), rtol=1e-13)


# By mpmath in 60 digits: a, x, the derivative of P(a, x) by a, and it over minus the density.
GAMMA_SLOPES = [
    (0.0625, 0.0078125, -3.341149250824971, 0.55155185705315815),
    (0.0625, 3.0, -0.01629367779292638, 14.190922940905601),
    (0.5, 0.5, -0.64720035237775388, 1.3373525943353347),
    (1.0, 1.0, -0.4317297106348987, 1.1735630272247269),
    (1.5, 1.0078125, -0.37479550683304019, 0.9064353906711015),
    (1.5, 8.0, -0.0024501540325621527, 2.2884909019605693),
    (4.0, 0.25, -0.00038712938872130634, 0.19088024627133927),
    (12.0, 11.5, -0.1171913492953059, 0.99257097343005591),
    (12.0, 30.0, -6.4286434880019149e-5, 1.5480169620697056),
    (100.0, 97.0, -0.038719191347740998, 0.9864906774750127),
    (100.0, 110.0, -0.023808656854890386, 1.0501606212457175),
    (4096.0, 4096.0, -0.0062335999539293569, 1.0000406910974388),
    (4096.0, 4000.0, -0.002011530367731019, 0.98822881876822893),
]


@pytest.mark.parametrize("wide", [True, False])
def test_slopes_of_the_incomplete_gamma_function(wide: bool) -> None:
    dtype, tolerance = (np.float64, 4e-15) if wide else (np.float32, 1e-7)
    a, x, slope, variate = np.array(GAMMA_SLOPES).T
    with config.override(enable_x64=wide):
        given = a.astype(dtype), x.astype(dtype)
        for wrap in (lambda f: f, stax.jit):
            found = wrap(stax.lax.random_gamma_grad)(*given)
            np.testing.assert_allclose(found, variate, rtol=tolerance)
            found = wrap(stax.lax.igamma_grad_a)(*given)
            # The density itself loses digits where it is small.
            np.testing.assert_allclose(found, slope, rtol=10 * tolerance)


def test_slopes_of_logit_at_its_ends() -> None:
    """As in JAX, whose rule is 1 / (x * (1 - x)), outside of the interval too."""
    slopes = stax.vmap(stax.grad(special.logit))(np.float32([0, 1, 0.5, 2]))
    np.testing.assert_array_equal(slopes, np.float32([INF, INF, 4, -0.5]))


SLOPES: list[tuple[str, Sequence[float], Sequence[float]]] = [
    ("entr", (INF,), (-INF,)), ("entr", (0.0,), (INF,)), ("entr", (-0.0,), (INF,)),
    ("entr", (1.0,), (-1.0,)), ("rel_entr", (1.0, INF), (-INF, -0.0)),
    ("rel_entr", (INF, 1.0), (INF, -INF)), ("rel_entr", (2.0, 1e-45), (104.97209, -INF)),
    ("rel_entr", (1e20, 1e-30), (116.12925, -INF)), ("kl_div", (1.0, INF), (-INF, 1.0)),
    ("xlogy", (-0.0, 0.0), (-INF, 0.0)), ("i0", (INF,), (INF,)), ("i0", (-1e8,), (-INF,)),
    ("i0", (100.0,), (INF,)), ("i1", (-INF,), (INF,)), ("i1", (1e8,), (INF,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "at", "slopes"), SLOPES)
def test_slopes(name: str, at: Sequence[float], slopes: Sequence[float]) -> None:
    f = stax.grad(getattr(special, name), argnums=tuple(range(len(at))))
    for function in (f, stax.jit(f)):
        np.testing.assert_allclose(function(*at), slopes, rtol=1e-5)
