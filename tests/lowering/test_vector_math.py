"""Vector math against references of higher precision, for every kind of argument.

float32 is compared with NumPy's and SciPy's float64 (every bit pattern in the slow test), float64
with mpmath.  Errors are counted in ulp of the exact result; a wrong sign of zero, a missed NaN or a
missed infinity counts as infinitely many.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
from collections.abc import Callable, Iterator

import llvmlite.binding as llvm
import mpmath
import numpy as np
import pytest
import scipy.special

from stax.lowering.vector_math import ARITY, FUNCTIONS, INLINE_LIMIT, MathLibrary
from stax.lowering.vector_math.emit import vector_type

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
UNARY = [name for name, arity in FUNCTIONS.items() if arity == 1]
BITS = {FLOAT32: np.uint32, FLOAT64: np.uint64}

REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "pow": np.power,
    # SciPy's expit has no subnormal results.
    "logistic": lambda x: np.exp(np.minimum(x, 0.0)) / (1.0 + np.exp(-np.abs(x))),
    "erf": scipy.special.erf,
    # SciPy's is 200 ulp off where erfc nears the subnormal numbers.
    "erfc": np.vectorize(math.erfc, otypes=[float]),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
}
EXACT: dict[str, Callable[..., mpmath.mpf]] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "pow": lambda x, y: x**y,
}
# Greatest error in ulp, by function; 2 where nothing else is said.
LIMITS32 = {
    "exp": 1.0,
    "exp2": 1.0,
    "log": 1.15,
    "pow": 0.6,
    "cbrt": 0.6,
    "sqrt": 0.5,
    "tanh": 2.6,
    "sinh": 2.6,
    "cosh": 2.8,
    "logistic": 2.5,
}
LIMITS64 = {
    "exp": 1.0,
    "exp2": 1.0,
    "log": 1.0,
    "pow": 1.1,
    "cbrt": 0.8,
    "sqrt": 0.5,
    "tanh": 2.6,
    "sinh": 2.6,
    "cosh": 2.6,
    "tan": 2.5,
    "asin": 2.5,
    "erfc": 4.0,
}
# Where a float64 result is neither an error nor at its limit.
DOMAINS: dict[str, tuple[float, float]] = {
    "exp": (-745.5, 709.7),
    "exp2": (-1075.0, 1023.9),
    "expm1": (-50.0, 709.7),
    "tanh": (-22.0, 22.0),
    "logistic": (-745.0, 40.0),
    "sinh": (-710.4, 710.4),
    "cosh": (-710.4, 710.4),
    "log": (0.0, 50.0),
    "log1p": (-1.0, 50.0),
    "acosh": (1.0, 50.0),
    "atanh": (-1.0, 1.0),
    "asin": (-1.0, 1.0),
    "acos": (-1.0, 1.0),
    "erf": (-6.0, 6.0),
    "erfc": (-6.0, 27.2),
    "sqrt": (0.0, 1e3),
    "rsqrt": (0.0, 1e3),
    "sin": (-1e7, 1e7),
    "cos": (-1e7, 1e7),
    "tan": (-1e7, 1e7),
}

KERNEL = """
define void @kernel({pointers}, ptr %out, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{loads}
  %result = call {vector} {symbol}({arguments})
  %target = getelementptr {scalar}, ptr %out, i64 %i
  store {vector} %result, ptr %target, align {alignment}
  %next = add i64 %i, {lanes}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
LOAD = """
  %source{i} = getelementptr {scalar}, ptr %in{i}, i64 %i
  %v{i} = load {vector}, ptr %source{i}, align {alignment}"""


@pytest.fixture(autouse=True)
def _quiet_and_precise() -> Iterator[None]:
    with np.errstate(all="ignore"), mpmath.workprec(200):
        yield


def module_text(name: str, dtype: np.dtype, lanes: int, avx512: bool = False) -> str:
    """Return a module whose kernel applies one function along arrays."""
    library = MathLibrary(avx512)
    scalar = {4: "float", 8: "double"}[dtype.itemsize]
    vector = vector_type(scalar, lanes)
    symbol = library.call(name, dtype, lanes)
    numbers = range(ARITY[name])
    common = {"vector": vector, "scalar": scalar, "alignment": dtype.itemsize}
    kernel = KERNEL.format(
        pointers=", ".join(f"ptr %in{i}" for i in numbers),
        loads="".join(LOAD.format(i=i, **common) for i in numbers),
        arguments=", ".join(f"{vector} %v{i}" for i in numbers),
        symbol=symbol,
        lanes=lanes,
        **common,
    )
    return library.text() + kernel


@functools.cache
def compiled(
    name: str, dtype: np.dtype, lanes: int, inline: bool = True, avx512: bool = False
) -> Callable:
    """Compile one function for this processor, as a function of NumPy arrays."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(module_text(name, dtype, lanes, avx512))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=2,
        jit=True,
    )
    if inline:
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        options = llvm.create_pipeline_tuning_options(0)
        passes.run(module, llvm.create_pass_builder(machine, options))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    signature = [ctypes.c_void_p] * (ARITY[name] + 1) + [ctypes.c_int64]
    kernel = ctypes.CFUNCTYPE(None, *signature)(engine.get_function_address("kernel"))

    def run(*arguments: np.ndarray) -> np.ndarray:
        assert engine is not None  # The machine code lives as long as the engine.
        size = arguments[0].size
        padded = [np.concatenate([x, np.ones(-size % lanes, dtype)]) for x in arguments]
        out = np.empty_like(padded[0])
        kernel(*(x.ctypes.data for x in padded), out.ctypes.data, out.size)
        return out[:size]

    return run


def reference(name: str, *arguments: np.ndarray) -> np.ndarray:
    function = REFERENCES.get(name) or getattr(np, name)
    return function(*(x.astype(np.float64) for x in arguments))


def errors_in_ulp(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Compare with a float64 result; every special value must be exact."""
    rounded = want.astype(got.dtype)
    error = np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(rounded)).astype(np.float64)
    same = (got == rounded) & (np.signbit(got) == np.signbit(rounded))
    same |= np.isnan(got) & np.isnan(rounded)
    both_finite = np.isfinite(got) & np.isfinite(rounded)
    wrong_zero = (want == 0) & (got == 0) & ~same
    error = np.where(both_finite & ~wrong_zero, error, np.inf)
    # Next to the greatest finite number, infinity is one rounding away.
    top = np.finfo(got.dtype).max
    near_overflow = (np.abs(got) == top) & np.isinf(rounded) | np.isinf(got) & (
        np.abs(rounded) == top
    )
    error = np.where(near_overflow & (np.sign(got) == np.sign(rounded)), 1.0, error)
    return np.where(same, np.where(both_finite, error, 0.0), error)


def worst(arguments: tuple[np.ndarray, ...], got: np.ndarray, want: np.ndarray) -> tuple:
    error = errors_in_ulp(got, want)
    at = int(np.argmax(error))
    return float(error[at]), [float(x[at]) for x in arguments], float(got[at]), float(want[at])


def edges(dtype: np.dtype) -> np.ndarray:
    """Return special values, thresholds of the functions, and the neighbours of all of them."""
    info = np.finfo(dtype)
    values = [0, info.smallest_subnormal, info.tiny, info.max, np.inf, 0.5, 1, 2, 3, 10]
    values += [0.25, 1 / 3, 2 / 3, 0.75, np.sqrt(0.5), np.sqrt(2), np.pi, np.pi / 2, np.pi / 4]
    values += [1e-20, 1e-9, 1e-4, 0.1, 1e5, 1e10, 1e30, 2.0**22, 2.0**23, 2.0**24, 2.0**40]
    values += [2.0**52, 2.0**53, 2.0**60, 2.0**-24, 2.0**-26, 2.0**-55, 9.01, 9.125, 17.4, 20, 27.3]
    values += [87.33, 88.72, 89.4, 103.97, 104, 126, 127, 128, 149, 150, 708.4, 709.78, 710.47]
    values += [745.13, 746, 1022, 1023, 1024, 1074, 1075, 3.95, 5.95, 10.05, 26.5]
    x = np.array(values).astype(dtype)
    x = np.concatenate([x, np.nextafter(x, dtype.type(0)), np.nextafter(x, dtype.type(np.inf))])
    return np.concatenate([x, -x, np.array([np.nan, -np.nan], dtype)])


def patterns(start: int, stop: int, step: int) -> np.ndarray:
    return np.arange(start, stop, step, dtype=np.uint64).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", UNARY)
def test_float32_is_accurate_on_a_sample_of_all_bit_patterns(name: str) -> None:
    x = np.concatenate([edges(FLOAT32), patterns(0, 2**32, 4099)])
    error, *where = worst((x,), compiled(name, FLOAT32, 16)(x), reference(name, x))
    assert error <= LIMITS32.get(name, 2.0), where


@pytest.mark.slow
@pytest.mark.parametrize("name", UNARY)
def test_float32_is_accurate_on_all_bit_patterns(name: str) -> None:
    # All of them take some minutes a function; by default every 61st, which is prime.
    step = 1 if os.environ.get("STAX_ALL_BITS") == "1" else 61
    function = compiled(name, FLOAT32, 16)
    chunk = 2**18 * step  # Small enough to stay in the second-level cache.
    for start in range(0, 2**32, chunk):
        x = patterns(start, min(start + chunk, 2**32), step)
        error, *where = worst((x,), function(x), reference(name, x))
        assert error <= LIMITS32.get(name, 2.0), where


@pytest.mark.parametrize("name", UNARY)
def test_float64_special_values(name: str) -> None:
    x = edges(FLOAT64)
    error, *where = worst((x,), compiled(name, FLOAT64, 8)(x), reference(name, x))
    # The reference is itself a float64 function, with an ulp or two of its own.
    assert error <= 4.0, where


def samples64(name: str, count: int) -> np.ndarray:
    """Return uniform, logarithmically uniform and moderate arguments inside the domain."""
    low, high = DOMAINS.get(name, (-1e3, 1e3))
    random = np.random.default_rng(7)
    logarithmic = np.exp(random.uniform(-21.0, np.log(max(-low, high)), count))
    logarithmic *= random.choice([-1.0, 1.0], count)
    spread = random.integers(0, 0x7FF0 << 48, count // 4, dtype=np.int64).view(np.float64)
    moderate = random.uniform(-2.0, 2.0, count)
    x = np.concatenate([random.uniform(low, high, count), logarithmic, moderate, spread, -spread])
    return x[(x > low) & (x < high)]


def exact_errors(name: str, got: np.ndarray, *arguments: np.ndarray) -> np.ndarray:
    """Count the errors of float64 results against mpmath, in ulp."""
    function = EXACT.get(name) or getattr(mpmath, name)
    errors = []
    for result, *values in zip(got, *arguments, strict=True):
        want = function(*(mpmath.mpf(float(value)) for value in values))
        errors.append(float(abs(mpmath.mpf(float(result)) - want) / np.spacing(abs(float(want)))))
    return np.array(errors)


@pytest.mark.parametrize("name", UNARY)
def test_float64_is_accurate_on_samples(name: str) -> None:
    x = samples64(name, 500)
    errors = exact_errors(name, compiled(name, FLOAT64, 8)(x), x)
    assert errors.max() <= LIMITS64.get(name, 2.0), x[errors.argmax()]


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_every_width_gives_the_same_bits(name: str, dtype: np.dtype) -> None:
    random = np.random.default_rng(3)
    raw = random.integers(0, np.iinfo(BITS[dtype]).max, 4000, dtype=BITS[dtype]).view(dtype)
    near = random.normal(size=4000).astype(dtype)
    x = random.permutation(np.concatenate([edges(dtype), raw, near]))
    arguments = (x, random.permutation(x))[: FUNCTIONS[name]]
    scalar = compiled(name, dtype, 1)(*arguments)
    for lanes in (4, 16):
        for inline in (True, False):
            vector = compiled(name, dtype, lanes, inline)(*arguments)
            same = (vector.view(BITS[dtype]) == scalar.view(BITS[dtype])) | (
                np.isnan(vector) & np.isnan(scalar)
            )
            assert same.all(), [float(a[~same][0]) for a in arguments]


@pytest.mark.parametrize("lanes", [2, 8, 32])
def test_other_widths_compile(lanes: int) -> None:
    x = np.linspace(-3.0, 3.0, 64, dtype=np.float32)
    for name in ("exp", "sin"):
        assert (compiled(name, FLOAT32, lanes)(x) == compiled(name, FLOAT32, 16)(x)).all()
        wide, narrow = x.astype(FLOAT64), compiled(name, FLOAT64, 4)
        assert (compiled(name, FLOAT64, lanes)(wide) == narrow(wide)).all()


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize(
    ("name", "x", "want"),
    [
        ("exp", 0.0, 1.0),
        ("exp", -np.inf, 0.0),
        ("exp2", 10.0, 1024.0),
        ("expm1", -0.0, -0.0),
        ("expm1", -np.inf, -1.0),
        ("log", 1.0, 0.0),
        ("log", -0.0, -np.inf),
        ("log", -1.0, np.nan),
        ("log1p", -0.0, -0.0),
        ("log1p", -1.0, -np.inf),
        ("tanh", np.inf, 1.0),
        ("tanh", -np.inf, -1.0),
        ("tanh", -0.0, -0.0),
        ("logistic", 0.0, 0.5),
        ("logistic", -np.inf, 0.0),
        ("sin", -0.0, -0.0),
        ("sin", np.inf, np.nan),
        ("cos", 0.0, 1.0),
        ("tan", -0.0, -0.0),
        ("erf", -0.0, -0.0),
        ("erf", -np.inf, -1.0),
        ("erfc", 0.0, 1.0),
        ("erfc", -np.inf, 2.0),
        ("sqrt", -0.0, -0.0),
        ("rsqrt", -0.0, -np.inf),
        ("cbrt", -27.0, -3.0),
        ("acosh", 1.0, 0.0),
        ("acosh", -3.0, np.nan),
        ("atanh", 1.0, np.inf),
        ("asin", 1.5, np.nan),
        ("acos", 1.0, 0.0),
    ],
)
def test_exact_values(name: str, x: float, want: float, dtype: np.dtype) -> None:
    got = compiled(name, dtype, 4)(np.full(4, x, dtype))
    assert np.array_equal(got, np.full(4, want, dtype), equal_nan=True)
    assert np.isnan(want) or (np.signbit(got) == np.signbit(want)).all()


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", ["pow", "atan2"])
def test_all_pairs_of_special_values(name: str, dtype: np.dtype) -> None:
    """The tables of C99 annex F, which NumPy follows; among them odd, even and no integers."""
    odd = 2.0 ** np.finfo(dtype).nmant + 1.0
    few = np.array([1.5, 2.5, 7.0, 151.0, odd, odd - 1.0, -1.5, -2.5, -7.0, -odd, 1e-3], dtype)
    x, y = (
        np.ascontiguousarray(v.ravel()) for v in np.meshgrid(*[np.append(edges(dtype), few)] * 2)
    )
    got = compiled(name, dtype, 8)(x, y)
    error, *where = worst((x, y), got, reference(name, x, y))
    assert error <= (0.6 if dtype == FLOAT32 else 2.0), where


def test_pow_and_atan2_on_random_pairs() -> None:
    random = np.random.default_rng(11)
    size = 200_000
    x = np.exp(10.0 * random.normal(size=size)).astype(FLOAT32)
    y = (10.0 * random.normal(size=size)).astype(FLOAT32)
    for name in ("pow", "atan2"):
        error, *where = worst((x, y), compiled(name, FLOAT32, 16)(x, y), reference(name, x, y))
        assert error <= 0.6, (name, where)
    wide = np.exp(3.0 * random.normal(size=1000))
    for name, other in (
        ("pow", random.uniform(-740.0, 709.0, 1000) / np.log(wide)),
        ("pow", random.normal(size=1000)),
        ("atan2", random.normal(size=1000)),
    ):
        errors = exact_errors(name, compiled(name, FLOAT64, 8)(wide, other), wide, other)
        assert errors.max() <= LIMITS64.get(name, 2.0), (name, errors.max())


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_angles_and_multiples_of_half_pi(name: str, dtype: np.dtype) -> None:
    random = np.random.default_rng(5)
    top = np.log(np.finfo(dtype).max)
    huge = np.exp(random.uniform(10.0, top, 400)).astype(dtype)
    multiples = (np.arange(1, 2000, 7) * (np.pi / 2)).astype(dtype)
    hard = np.array([1e30, 1e22, 6381956970095103.0 * 2.0**10, 2.0**22, 4194304.5], dtype)
    x = np.concatenate([huge, multiples, hard, -huge])
    with mpmath.workprec(1300):
        want = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
    got = compiled(name, dtype, 8)(x)
    for argument, result, exact in zip(x, got, want, strict=True):
        spacing = np.spacing(dtype.type(abs(float(exact))))
        error = abs(mpmath.mpf(float(result)) - exact) / mpmath.mpf(float(spacing))
        assert error <= 2.5, (float(argument), float(result))


@pytest.mark.skipif(
    not llvm.get_host_cpu_features().get("avx512f"), reason="the processor has no AVX-512"
)
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
@pytest.mark.parametrize("name", ["exp", "exp2", "logistic", "log", "tanh", "erf", "expm1"])
def test_instructions_on_exponents_give_the_same_bits(name: str, dtype: np.dtype) -> None:
    kind = f"uint{8 * dtype.itemsize}"
    draw = np.random.default_rng(0)
    patterns = draw.integers(0, np.iinfo(kind).max, 1 << 16, dtype=kind, endpoint=True)
    edges = np.array([0.0, np.inf, np.nan, np.finfo(dtype).tiny / 8, 87.4, 104.5, 745.2], dtype)
    usual = draw.uniform(-120, 120, 1 << 16).astype(dtype)
    x = np.concatenate([patterns.view(dtype), usual, edges, -edges, 1e4 * edges, -1e4 * edges])
    lanes = 64 // dtype.itemsize
    found, want = (compiled(name, dtype, lanes, avx512=flag)(x) for flag in (True, False))
    same = (found.view(kind) == want.view(kind)) | (np.isnan(found) & np.isnan(want))
    assert same.all(), (x[~same][:3], found[~same][:3], want[~same][:3])


def test_a_definition_appears_once_and_is_inlined_only_when_rare() -> None:
    library = MathLibrary()
    for _ in range(INLINE_LIMIT):
        assert library.call("exp", FLOAT32, 8) == "@stax.exp.f32x8"
    for _ in range(INLINE_LIMIT + 1):
        library.call("sin", FLOAT64, 4)
    fma = library.intrinsic("fma", FLOAT32, 8, 3)
    text = library.text()
    assert text == library.text()
    lines = text.splitlines()
    assert (
        "define internal <8 x float> @stax.exp.f32x8(<8 x float> %x) alwaysinline nounwind {"
        in lines
    )
    assert "define internal <4 x double> @stax.sin.f64x4(<4 x double> %x) nounwind {" in lines
    assert "declare double @sin(double)" in lines
    declarations = [line for line in lines if line.startswith("declare")]
    assert len(declarations) == len(set(declarations))
    assert sum(fma in line for line in declarations) == 1
    llvm.parse_assembly(text).verify()


def test_requests_that_cannot_be_met() -> None:
    library = MathLibrary()
    with pytest.raises(TypeError, match="float16"):
        library.call("exp", np.dtype(np.float16), 8)
    with pytest.raises(KeyError, match="bessel_k"):
        library.call("bessel_k", FLOAT32, 8)
    assert library.text() == ""
