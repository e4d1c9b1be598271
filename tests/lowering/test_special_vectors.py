"""Special functions as vector code: float32 against SciPy in float64, float64 against mpmath.

Errors are counted in ulp of the exact result; next to a zero of lgamma and digamma, where a double
has no more digits, the error is absolute.
"""

from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special

from stax.lowering.vector_math import ARITY, FUNCTIONS
from stax.lowering.vector_math.external import EXTERNAL
from stax.operators.special_complex import ROWS
from tests.lowering.test_vector_math import (
    BITS,
    FLOAT32,
    FLOAT64,
    compiled,
    edges,
    errors_in_ulp,
    patterns,
)

# C functions take part in the others.
CALLING_OUT = {"expi", "polygamma", "igamma_grad_a"}
OWN = [name for name in ARITY if name not in {*FUNCTIONS, *EXTERNAL, *CALLING_OUT}]
UNARY = [name for name in OWN if ARITY[name] == 1]
# Where float64 is tried: what is left out is an error, or beyond the greatest number.
DOMAINS = {
    "erf_inv": (-1.0, 1.0), "ndtri": (1e-300, 1.0), "erfcx": (-26.0, 1e5), "dawsn": (-1e3, 1e3),
    "lgamma": (1e-10, 1e5), "digamma": (1e-10, 1e5), "bessel_i0e": (-1e3, 1e3),
    "bessel_i1e": (-1e3, 1e3),
}  # fmt: skip
EXACT: dict[str, Callable[..., Any]] = {
    "erf_inv": mpmath.erfinv,
    "ndtri": lambda p: mpmath.sqrt(2) * mpmath.erfinv(2 * p - 1),
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "dawsn": lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x),
    "lgamma": mpmath.loggamma,
    "bessel_i0e": lambda x: mpmath.besseli(0, x) * mpmath.exp(-abs(x)),
    "bessel_i1e": lambda x: mpmath.besseli(1, x) * mpmath.exp(-abs(x)),
}


@pytest.fixture(autouse=True)
def _quiet_and_precise() -> Iterator[None]:
    with np.errstate(all="ignore"), mpmath.workprec(200):
        yield


def narrow_reference(name: str, x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    if name == "erfcx":  # SciPy's loses digits far below 0
        below = 2 * np.exp(np.float64(wide) ** 2) - scipy.special.erfcx(-wide)
        return np.where(wide < 0, below, scipy.special.erfcx(wide))
    return ROWS[name].evaluate(wide)


@pytest.mark.parametrize("name", UNARY)
def test_float32_is_accurate_on_a_sample_of_all_bit_patterns(name: str) -> None:
    x = np.concatenate([edges(FLOAT32), patterns(0, 2**32, 8209)])
    x = np.concatenate([x, np.linspace(-12, 12, 4801, dtype=np.float32)])
    got, want = compiled(name, FLOAT32, 16)(x), narrow_reference(name, x)
    error = np.where(np.abs(got - want) < 1e-14, 0.0, errors_in_ulp(got, want))
    limit = 2.5 if name == "erf_inv" else 0.51
    assert error.max() <= limit, (x[error.argmax()], got[error.argmax()], want[error.argmax()])


@pytest.mark.parametrize("name", UNARY)
def test_float64_is_accurate(name: str) -> None:
    low, high = DOMAINS[name]
    rng = np.random.default_rng(1)
    spread = np.exp(rng.uniform(-20, np.log(high), 60)) * (
        rng.choice([-1, 1], 60) if low < 0 else 1
    )
    x = np.concatenate(
        [rng.uniform(max(low, -15), min(high, 15), 120), spread, [0.5, 1.5, 7.9, 8.1]]
    )
    x = x[(x > low) & (x < high)]
    exact = EXACT.get(name) or getattr(mpmath, name)
    for argument, got in zip(x, compiled(name, FLOAT64, 8)(x), strict=True):
        want = exact(mpmath.mpf(float(argument)))
        spacing = max(np.spacing(abs(float(want))), 2.5e-16 if name == "digamma" else 0.0)
        assert abs(mpmath.mpf(float(got)) - want) <= 4 * spacing, (argument, got, want)


@pytest.mark.parametrize("name", UNARY)
def test_float64_special_values(name: str) -> None:
    """NaN, infinities and signed zeros as the evaluator has them; the rest nearly so."""
    x = edges(FLOAT64)
    got, want = compiled(name, FLOAT64, 8)(x), ROWS[name].evaluate(x)
    if name == "erfcx":
        want = narrow_reference(name, x)
    # Next to the zeros of lgamma, SciPy's digits are absolute.
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=4e-16 if name == "lgamma" else 1e-300)
    zero = want == 0
    assert (np.signbit(got) == np.signbit(want))[zero].all()


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_negative_arguments(name: str) -> None:
    rng = np.random.default_rng(2)
    x = np.concatenate([rng.uniform(-30, 0, 300), -np.exp(rng.uniform(-80, 0, 50))])
    x = np.concatenate(
        [x, np.nextafter(-np.arange(1.0, 9), 0), np.nextafter(-np.arange(1.0, 9), -9)]
    )
    exact = mpmath.digamma if name == "digamma" else lambda v: mpmath.log(abs(mpmath.gamma(v)))
    for argument, got in zip(x, compiled(name, FLOAT64, 8)(x), strict=True):
        want = float(exact(mpmath.mpf(float(argument))))
        assert abs(got - want) <= 4e-16 * (20 + abs(want)), (argument, got, want)
    poles = -np.arange(0.0, 5.0)
    assert (np.isnan if name == "digamma" else np.isposinf)(compiled(name, FLOAT64, 8)(poles)).all()


def arguments_of(name: str, dtype: Any, size: int) -> list[np.ndarray]:
    """Mostly sensible arguments, some of any kind."""
    rng = np.random.default_rng(3)
    found = []
    for number in range(ARITY[name]):
        raw = rng.integers(0, np.iinfo(BITS[dtype]).max, size // 4, dtype=BITS[dtype]).view(dtype)
        scale = 0.5 if name.startswith("hyp2f1") and number == 3 else 1.0
        sensible = (np.abs(rng.normal(size=size)) * scale + 0.01).astype(dtype)
        found.append(rng.permutation(np.concatenate([edges(dtype), raw, sensible])))
    return found


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", OWN)
def test_every_width_gives_the_same_bits(name: str, dtype: Any) -> None:
    """A lane's result depends on nothing but its arguments: loops that others keep going too."""
    if name in ("zeta_positive", "gamma_slope") and dtype == FLOAT32:
        pytest.skip("it is called in double only")
    arguments = arguments_of(name, dtype, 400)
    scalar = compiled(name, dtype, 1)(*arguments)
    for lanes, inline in ((4, True), (16, False)):
        vector = compiled(name, dtype, lanes, inline)(*arguments)
        same = vector.view(BITS[dtype]) == scalar.view(BITS[dtype])
        same |= np.isnan(vector) & np.isnan(scalar)
        assert same.all(), [float(a[~same][0]) for a in arguments]


@pytest.mark.parametrize("name", [n for n in OWN if ARITY[n] > 1 and n in ROWS])
def test_functions_of_several_arguments_agree_with_the_evaluator(name: str) -> None:
    rng = np.random.default_rng(4)
    arguments = [rng.uniform(0.1, 6.0, 500) for _ in range(ARITY[name])]
    if name == "zeta":
        arguments[0] += 1.0
        arguments[1][::2] *= -3.0
        arguments[0][::2] = np.floor(arguments[0][::2]) + 1.0
    if name.startswith("hyp2f1"):
        arguments[3] = rng.uniform(-0.2, 0.8, 500)
    got, want = compiled(name, FLOAT64, 8)(*arguments), ROWS[name].evaluate(*arguments)
    np.testing.assert_allclose(got, want, rtol=2e-12, atol=1e-14)
    narrow = [a.astype(np.float32) for a in arguments]
    got = compiled(name, FLOAT32, 16)(*narrow)
    np.testing.assert_allclose(got, ROWS[name].evaluate(*narrow), rtol=2.5e-7, atol=1e-12)


def test_hurwitz_zeta_in_float64() -> None:
    rng = np.random.default_rng(5)
    s = np.concatenate([rng.uniform(1.1, 12.0, 60), 1 + np.exp(rng.uniform(-15, 0, 20))])
    q = np.exp(rng.uniform(-5, 5, 80))
    for a, b, got in zip(s, q, compiled("zeta", FLOAT64, 8)(s, q), strict=True):
        want = mpmath.zeta(mpmath.mpf(float(a)), mpmath.mpf(float(b)))
        assert abs(mpmath.mpf(float(got)) / want - 1) < 1.5e-15, (a, b, got)
