"""Measure how far compiled functions are from the exact result, in units in the last place (ulp).

    python -m tests.accuracy                          # every float32 there is; sampled float64
    python -m tests.accuracy sin tan --dtype float64  # two functions

float64 is compared with mpmath at many points; float32 with the same function in float64 for every
bit pattern, and with NumPy and SciPy for every 1009th.  A wrong sign of zero, a missed NaN or a
missed infinity counts as infinitely many ulp.  Every function runs as a program, by whole vectors
and by what is left over at the end of an array, which must give the same bits.  The exit code is 1
if a function is more than 4 ulp away anywhere.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import scipy.special

import stax
import stax.numpy as snp
from stax import lax
from stax.operators import special
from stax.operators.elementwise import ROWS

LIMIT = 4.0
CHUNK = 2**22  # elements of one call
STEP = 1009  # a prime: every so many float32 are compared with other libraries
EVERY = 1  # of so many chunks of bit patterns, one is visited
DTYPES = ("float32", "float64")
PART = 2**17  # elements that are compared at a time: they stay in the cache


@dataclass(frozen=True)
class Function:
    """A function of one number or of two, and what it is compared with.

    `low` and `high` bound where float64 is sampled most, `near` are zeros and other places to look
    around.
    """

    name: str
    ours: Callable[..., Any]
    wide: Callable[..., np.ndarray]
    exact: Callable[..., Any]
    low: float
    high: float
    near: tuple[float, ...] = ()
    arity: int = 1
    absolute: float = 0.0  # an error that counts as none, next to zeros


def evaluated(name: str) -> Callable[..., np.ndarray]:
    """Return the reference of a special function."""
    return ROWS[name].evaluate


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(x, 0.0)) / (1.0 + np.exp(-np.abs(x)))


def _erfcx(x: np.ndarray) -> np.ndarray:
    """SciPy's loses digits far below 0."""
    below = 2 * np.exp(np.longdouble(x) ** 2) - scipy.special.erfcx(-x)
    return np.where(x < 0, below.astype(np.float64), scipy.special.erfcx(x))


def _dawson(x: Any) -> Any:
    """Return Dawson's integral, by its asymptotic series far away (DLMF 7.12)."""
    if abs(x) < 1e4:
        return mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)
    t = 1 / (2 * x * x)
    return (1 + t * (1 + 3 * t * (1 + 5 * t * (1 + 7 * t * (1 + 9 * t))))) / (2 * x)


def _erfcx_exactly(x: Any) -> Any:
    """Return exp(x^2) erfc(x), by its asymptotic series far away (DLMF 7.12.1)."""
    if x < 1e4:
        return mpmath.exp(x * x) * mpmath.erfc(x)
    t = 1 / (2 * x * x)
    return (1 - t * (1 - 3 * t * (1 - 5 * t * (1 - 7 * t)))) / (x * mpmath.sqrt(mpmath.pi))


def _bessel(order: int) -> Callable[[Any], Any]:
    """Return exp(-|x|) I(x), by its asymptotic series far away (DLMF 10.40.1)."""

    def exactly(x: Any) -> Any:
        if abs(x) < 1e4:
            return mpmath.besseli(order, x) * mpmath.exp(-abs(x))
        total = term = mpmath.mpf(1)
        for k in range(1, 12):
            term = term * ((2 * k - 1) ** 2 - 4 * order**2) / (k * 8 * abs(x))
            total += term
        return (mpmath.sign(x) if order else 1) * total / mpmath.sqrt(2 * mpmath.pi * abs(x))

    return exactly


def _inverse_error(x: Any) -> Any:
    """Return a double that is nearly the inverse error function, and a step of Newton's."""
    y = mpmath.mpf(float(scipy.special.erfinv(float(x))))
    return y - (mpmath.erf(y) - x) * mpmath.exp(y * y) * mpmath.sqrt(mpmath.pi) / 2


def _inverse_normal(p: Any) -> Any:
    y = mpmath.mpf(float(scipy.special.ndtri(float(p))))
    return y - (mpmath.ncdf(y) - p) / mpmath.npdf(y)


def _half_pi() -> tuple[float, ...]:
    """Multiples of pi / 2, and huge angles.

    Huge angles are left to the C library, whose cos, if it is that of GNU, is 8 ulp off at the
    double that is nearest to a multiple of all, 6381956970095103 * 2^797.
    """
    small = [k * math.pi / 2 for k in range(1, 2000, 7)]
    return (*small, 1e22, 1e300, 2.0**1023, 4194304.5)


# fmt: off
FUNCTIONS = {f.name: f for f in (
    Function("exp", lax.exp, np.exp, mpmath.exp, -745.2, 709.8, (-708.4, 709.782712893384, -745.13)),
    Function("exp2", lax.exp2, np.exp2, lambda x: mpmath.mpf(2) ** x, -1075.0, 1024.0, (-1022.0, 1024.0, -1074.0)),
    Function("expm1", lax.expm1, np.expm1, mpmath.expm1, -50.0, 709.8, (-37.43, 0.35, -0.35)),
    Function("log", lax.log, np.log, mpmath.log, 0.0, 50.0, (1.0, math.sqrt(0.5), math.sqrt(2))),
    Function("log1p", lax.log1p, np.log1p, mpmath.log1p, -1.0, 50.0, (-1.0, 1.0)),
    Function("sin", lax.sin, np.sin, mpmath.sin, -1e3, 1e3, _half_pi()),
    Function("cos", lax.cos, np.cos, mpmath.cos, -1e3, 1e3, _half_pi()),
    Function("tan", lax.tan, np.tan, mpmath.tan, -1e3, 1e3, _half_pi()),
    Function("tanh", lax.tanh, np.tanh, mpmath.tanh, -22.0, 22.0, (0.35, 0.625, 19.06)),
    Function("logistic", lax.logistic, _logistic, lambda x: 1 / (1 + mpmath.exp(-x)), -745.2, 40.0, (-708.4, -37.0, 37.0)),
    Function("erf", lax.erf, scipy.special.erf, mpmath.erf, -6.0, 6.0, (1.0, 5.92)),
    Function("erfc", lax.erfc, scipy.special.erfc, mpmath.erfc, -6.0, 27.3, (0.5, 1.0, 26.5, 27.2)),
    Function("sqrt", lax.sqrt, np.sqrt, mpmath.sqrt, 0.0, 1e3),
    Function("rsqrt", lax.rsqrt, lambda x: 1 / np.sqrt(x), lambda x: 1 / mpmath.sqrt(x), 0.0, 1e3),
    Function("pow", lax.pow, np.power, lambda x, y: x**y, 0.0, 1e3, arity=2),
    Function("cbrt", lax.cbrt, np.cbrt, lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), -1e3, 1e3),
    Function("sinh", lax.sinh, np.sinh, mpmath.sinh, -710.5, 710.5, (710.47,)),
    Function("cosh", lax.cosh, np.cosh, mpmath.cosh, -710.5, 710.5, (710.47,)),
    Function("asinh", lax.asinh, np.arcsinh, mpmath.asinh, -50.0, 50.0),
    Function("acosh", lax.acosh, np.arccosh, mpmath.acosh, 1.0, 50.0, (1.0,)),
    Function("atanh", lax.atanh, np.arctanh, mpmath.atanh, -1.0, 1.0, (1.0, 0.5)),
    Function("asin", lax.asin, np.arcsin, mpmath.asin, -1.0, 1.0, (0.5, 1.0)),
    Function("acos", lax.acos, np.arccos, mpmath.acos, -1.0, 1.0, (0.5, 1.0, -1.0)),
    Function("atan", lax.atan, np.arctan, mpmath.atan, -50.0, 50.0, (0.4142, 1.0, 2.4142)),
    Function("atan2", lax.atan2, np.arctan2, mpmath.atan2, -50.0, 50.0, arity=2),
    Function("log2", snp.log2, np.log2, lambda x: mpmath.log(x) / mpmath.log(2), 0.0, 50.0, (1.0,)),
    Function("log10", snp.log10, np.log10, mpmath.log10, 0.0, 50.0, (1.0,)),
    Function("erf_inv", lax.erf_inv, evaluated("erf_inv"), _inverse_error, -1.0, 1.0, (1.0, 0.5)),
    Function("ndtri", special.ndtri, evaluated("ndtri"), _inverse_normal, 1e-300, 1.0, (0.5, 1.0, 0.135)),
    Function("erfcx", special.erfcx, _erfcx, _erfcx_exactly, -26.7, 100.0, (-26.6,)),
    Function("dawsn", special.dawsn, evaluated("dawsn"), _dawson, -50.0, 50.0),
    Function("bessel_i0e", lax.bessel_i0e, evaluated("bessel_i0e"), _bessel(0), -50.0, 50.0, (8.0,)),
    Function("bessel_i1e", lax.bessel_i1e, evaluated("bessel_i1e"), _bessel(1), -50.0, 50.0, (8.0,)),
    Function("lgamma", lax.lgamma, evaluated("lgamma"), lambda x: mpmath.log(abs(mpmath.gamma(x))), 0.0, 50.0, (1.0, 2.0, 8.0)),
    Function("digamma", lax.digamma, evaluated("digamma"), mpmath.digamma, 0.0, 50.0, (1.4616321449683623, 1.0, 2.0)),
)}
# fmt: on
# Where the sweep of float32 ends: below, zeros of these lie between the numbers.
POSITIVE = ("lgamma", "digamma", "log", "log2", "log10")


# Errors


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Return the errors of float32 results, of which `want` are the float64 values."""
    rounded = want.astype(got.dtype)
    same = (got == rounded) & (np.signbit(got) == np.signbit(rounded)) | (
        np.isnan(got) & np.isnan(rounded)
    )
    finite = np.isfinite(got) & np.isfinite(rounded)
    error = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(rounded)).astype(np.float64)
    wrong_zero = (want == 0) & (got == 0) & ~same
    # Next to the greatest finite number, infinity is one rounding away.
    top = np.finfo(got.dtype).max
    near = (np.abs(got) == top) & np.isinf(rounded) | np.isinf(got) & (np.abs(rounded) == top)
    error = np.where(finite & ~wrong_zero, error, np.where(near, 1.0, np.inf))
    return np.where(same & ~finite, 0.0, error)


def exact_ulp(got: float, want: Any) -> float:
    """Return the error of a float64 result, of which `want` is the exact value."""
    if isinstance(want, mpmath.mpc) or mpmath.isnan(want):
        return 0.0 if math.isnan(got) else math.inf
    if abs(want) >= mpmath.mpf(2) ** 1024 - mpmath.mpf(2) ** 970:
        return 0.0 if got == math.copysign(math.inf, want) else math.inf
    if not math.isfinite(got):
        return math.inf
    return float(abs(mpmath.mpf(got) - want) / mpmath.mpf(float(np.spacing(abs(float(want))))))


@dataclass
class Worst:
    """The largest error so far, and where it is."""

    error: float = 0.0
    where: tuple[float, ...] = ()

    def meet(self, error: float, where: Sequence[Any]) -> None:
        if error > self.error:
            self.error, self.where = error, tuple(map(float, where))


# float32


def compare_part(worst: Worst, got: np.ndarray, want: np.ndarray, *x: np.ndarray) -> None:
    """Note the largest error of float32 results."""
    errors = ulps(got, want)
    at = int(errors.argmax())
    worst.meet(float(errors[at]), [a[at] for a in x])


def errors_from(f: Function, length: int) -> Callable[[Any], Any]:
    """Return a program of the errors at so many bit patterns, from one on, against float64."""

    def errors(start: Any) -> Any:
        x = lax.bitcast_convert_type(snp.arange(length, dtype="uint32") + start, "float32")
        got, want = f.ours(x), f.ours(x.astype("float64"))
        rounded = want.astype("float32")
        exponent = lax.bitcast_convert_type(want, "uint64") & np.uint64(0x7FF0 << 48)
        unit = lax.bitcast_convert_type(exponent - np.uint64(23 << 52), "float64")
        unit = snp.where(abs(want) < 2.0**-126, 2.0**-149, unit)
        error = abs(got.astype("float64") - want) / unit
        one_off = abs(bits(got) - bits(rounded)) == 1  # also beside infinity
        error = snp.where(snp.isfinite(want) & snp.isfinite(got), error, snp.inf)
        error = snp.where(one_off & ~(snp.isfinite(rounded) & snp.isfinite(got)), 1.0, error)
        wrong_zero = (got == 0) & (want == 0) & (bits(got) != bits(rounded))
        error = snp.where(wrong_zero, snp.inf, error)
        same = (bits(got) == bits(rounded)) & ~snp.isfinite(rounded)
        return snp.where(same | (snp.isnan(got) & snp.isnan(want)), 0.0, error)

    return errors


def bits(x: Any) -> Any:
    return lax.bitcast_convert_type(x, "int32").astype("int64")


def sweep32(f: Function) -> Worst:
    """Compare every float32 with the same function in float64."""
    worst, length = Worst(), CHUNK
    end = 0x7F800000 if f.name in POSITIVE else 2**32
    with stax.enable_x64(True):
        largest = stax.jit(lambda start: errors_from(f, CHUNK)(start).max())
        each = stax.jit(errors_from(f, CHUNK))
        for start in range(0, end, length * EVERY):
            if float(largest(np.uint32(start))) > worst.error:
                errors = np.asarray(each(np.uint32(start)))
                at = int(errors.argmax())
                where = np.array(start + at, np.uint32).view(np.float32)
                worst.meet(float(errors[at]), [where])
    return worst


def patterns(start: int, stop: int, step: int) -> np.ndarray:
    return np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


def arguments32(f: Function) -> Iterator[tuple[np.ndarray, ...]]:
    """Give arguments, in chunks of an odd length: the last elements are no whole vector."""
    length = CHUNK - 1
    if f.arity == 1:
        yield (patterns(0, 0x7F800001 if f.name in POSITIVE else 2**32, STEP),)
        return
    random = np.random.default_rng(11)
    for _ in range(4):
        x, y = (random.integers(0, 2**32, length, np.uint64).astype(np.uint32) for _ in range(2))
        yield x.view(np.float32), y.view(np.float32)
        base = np.exp(10.0 * random.normal(size=length)).astype(np.float32)
        yield base, (10.0 * random.normal(size=length)).astype(np.float32)
        near = (1.0 + 0.01 * random.normal(size=length)).astype(np.float32)
        yield near, (3e3 * random.normal(size=length)).astype(np.float32)


def spot32(f: Function) -> Worst:
    """Compare many float32 with a float64 function of another library."""
    worst, compiled = Worst(), stax.jit(f.ours)
    for arguments in arguments32(f):
        got = np.asarray(compiled(*arguments))
        for start in range(0, got.size, PART):
            part = [a[start : start + PART] for a in arguments]
            want = f.wide(*(a.astype(np.float64) for a in part))
            compare_part(worst, got[start : start + PART], want, *part)
    return worst


# float64


def edges() -> np.ndarray:
    """Return powers of two, large and small numbers."""
    info = np.finfo(np.float64)
    few = [0.0, info.smallest_subnormal, info.tiny, info.max, np.inf, np.nan, 1.0, 0.5, 2.0, 3.0]
    x = np.concatenate([few, 2.0 ** np.arange(-1074, 1024, 13), 10.0 ** np.arange(-30, 31)])
    return np.concatenate([x, np.nextafter(x, 0), np.nextafter(x, np.inf)])


def points(f: Function, count: int) -> np.ndarray:
    """Return arguments of all sizes, most of them where a result is neither 0 nor infinite."""
    random = np.random.default_rng(7)
    low, high = f.low, f.high
    size = np.exp(random.uniform(-21.0, math.log(max(-low, high)), count // 4))
    bits = random.integers(0, 0x7FF0 << 48, count // 8, dtype=np.int64).view(np.float64)
    near = np.repeat(np.array([0.0, *f.near]), max(count // 8 // (len(f.near) + 1), 3))
    near = near + random.choice([-1.0, 1.0], near.size) * np.exp(random.uniform(-40, -1, near.size))
    x = np.concatenate([size, bits, edges(), random.uniform(0.0, 2.0, count // 8)])
    x = np.concatenate([x, -x] if low < 0 or f.arity == 2 else [x])
    around = [np.nextafter(v, side) for v in f.near for side in (-np.inf, np.inf)]
    inside = np.random.default_rng(8).uniform(low, high, count // 4)
    return np.concatenate([x, near, f.near, around, inside])


def arguments64(f: Function, count: int) -> tuple[np.ndarray, ...]:
    if f.arity == 1:
        return (points(f, count),)
    random = np.random.default_rng(9)
    x = points(f, count)
    base = np.exp(3.0 * random.normal(size=count))
    exponent = random.uniform(-745.0, 710.0, count) / np.log(base)
    near = 1.0 + np.exp(random.uniform(-30, -3, count)) * random.choice([-1.0, 1.0], count)
    large = random.uniform(-745.0, 710.0, count) / np.log(near)
    return (
        np.concatenate([x, base, near]),
        np.concatenate([random.permutation(x), exponent, large]),
    )


def exactly(f: Function, values: Sequence[float], wide: float) -> Any:
    """Return the value by mpmath, or None where NumPy has to say: at special values and at 0."""
    if not math.isfinite(wide) or not all(math.isfinite(v) and v for v in values):
        return None
    try:
        return f.exact(*map(mpmath.mpf, values)) or None
    except (ArithmeticError, ValueError, mpmath.libmp.NoConvergence):
        return None


def sample64(f: Function, count: int) -> Worst:
    """Compare samples with mpmath, and where a result is a special value, with NumPy."""
    worst, arguments = Worst(), arguments64(f, count)
    with stax.enable_x64(True):
        got = np.asarray(stax.jit(f.ours)(*arguments))
        check_tails(f, arguments, got)
    wide = f.wide(*arguments)
    special = ulps(got, wide)
    for k, (result, *values) in enumerate(zip(got, *arguments, strict=True)):
        values = list(map(float, values))
        want = exactly(f, values, float(wide[k]))
        error = float(special[k]) if want is None else exact_ulp(float(result), want)
        worst.meet(error, values)
    return worst


def check_tails(f: Function, arguments: Sequence[np.ndarray], whole: np.ndarray) -> None:
    """Raise unless few elements, which are no whole vector, give the bits that many give."""
    for size in (1, 3, 7, 13):
        compiled = stax.jit(f.ours)
        for start in range(0, 40 * size, size):
            few = np.asarray(compiled(*(a[start : start + size] for a in arguments)))
            np.testing.assert_array_equal(few, whole[start : start + size], f.name)


# The command


def rows(f: Function, dtypes: Sequence[str], count: int) -> Iterator[tuple[str, Worst]]:
    """Give the largest error of a function for each dtype."""
    with np.errstate(all="ignore"):
        if "float32" in dtypes:
            worst = spot32(f)
            if f.arity == 1:
                every = sweep32(f)
                worst.meet(every.error, every.where)
            yield "float32", worst
        if "float64" in dtypes:
            with mpmath.workprec(250):
                yield "float64", sample64(f, count)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="functions; all of them without a name")
    parser.add_argument("--points", type=int, default=20_000, help="samples of float64 (20000)")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="only this (both)")
    given = parser.parse_args()
    given.dtype = given.dtype or DTYPES
    wrong = 0
    print(f"{'function':12} {'dtype':8} {'ulp':>7}  argument")
    for f in FUNCTIONS.values() if not given.names else map(FUNCTIONS.__getitem__, given.names):
        start = time.monotonic()
        for dtype, worst in rows(f, given.dtype, given.points):
            wrong += worst.error > LIMIT
            where = ", ".join(map(repr, worst.where))
            mark = "  <-- " if worst.error > LIMIT else ""
            taken = f"({time.monotonic() - start:.0f} s)"
            print(f"{f.name:12} {dtype:8} {worst.error:7.3f}  {where} {taken}{mark}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
