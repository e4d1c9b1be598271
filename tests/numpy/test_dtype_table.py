"""Every dtype through every function of elements and every reduction: type of the result, as in
JAX, or an error of the same kind.  Nothing is computed; values are compared elsewhere."""

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.config import config

NARROW = ["bool", "int8", "int16", "int32", "uint8", "uint16", "uint32"]
NARROW += ["float16", "bfloat16", "float32", "complex64"]
WIDE = ["int64", "uint64", "float64", "complex128"]
PARTNERS = ["bool", "int8", "uint32", "int64", "bfloat16", "float32", "complex64"]
NUMBERS: list[Any] = [True, 1, 1.5, 1j]
UNARY = [
    "abs", "acos", "acosh", "all", "any", "angle", "arcsin", "argsort", "around", "asinh", "atan",
    "atanh", "average", "bitwise_count", "bitwise_not", "cbrt", "ceil", "conj", "copy", "cos",
    "cosh", "count_nonzero", "cumprod", "cumsum", "cumulative_sum", "deg2rad", "diff", "exp",
    "exp2", "expm1", "fabs", "flip", "floor", "frexp", "imag", "isfinite", "isinf", "isnan",
    "isneginf", "isposinf", "isreal", "iscomplex", "log", "log10", "log1p", "log2", "logical_not",
    "max", "mean", "median", "min", "modf", "nan_to_num", "nancumsum", "nanmax", "nanmean",
    "nanmedian", "nanprod", "nanstd", "nansum", "nanvar", "negative", "ones_like", "positive",
    "prod", "ptp", "rad2deg", "real", "reciprocal", "rint", "round", "sign", "signbit", "sin",
    "sinc", "sinh", "sort", "spacing", "sqrt", "square", "std", "sum", "tan", "tanh", "trapezoid",
    "trunc", "var", "zeros_like", "corrcoef", "cov", "gradient", "poly",
]  # fmt: skip
BINARY = [
    "add", "arctan2", "bitwise_and", "bitwise_xor", "copysign", "divide", "divmod", "equal",
    "float_power", "floor_divide", "fmax", "fmin", "fmod", "greater", "heaviside", "isclose",
    "ldexp", "left_shift", "less_equal", "logaddexp", "logical_and", "logical_xor", "maximum",
    "minimum", "mod", "multiply", "nextafter", "not_equal", "power", "remainder", "right_shift",
    "subtract", "inner", "outer", "matmul", "convolve", "correlate", "append", "allclose",
    "array_equal", "hypot", "gcd", "lcm",
]  # fmt: skip
# Weak types that JAX's are not consistent in: of a product of both kinds of 64-bit integers, of a
# Python number and bool, and of logaddexp of complex numbers.
# Weak or not from one version of JAX to the next, or by the order of the operands.
VARIES = {"convolve", "correlate", "gcd", "hypot", "lcm", "log2", "logaddexp"}


@pytest.fixture(params=[pytest.param(False, marks=pytest.mark.slow), True], ids=["x32", "x64"])
def dtypes(request: Any) -> Iterator[list[str]]:
    """The dtypes there are, with 64-bit ones where they are enabled."""
    with config.override(enable_x64=request.param), jax.enable_x64(request.param):
        yield NARROW + WIDE if request.param else NARROW


def values(dtype: str) -> np.ndarray:
    return np.array([1, 0, 2]).astype(jnp.dtype(dtype))


def described(library: Any, function: Callable[..., Any], args: Any, weak: bool) -> Any:
    """The types of the results, or the kind of the error."""
    try:
        found = library.eval_shape(function, *args)
    except TypeError:
        return TypeError
    except NotImplementedError:
        return NotImplementedError
    except ValueError:
        return ValueError
    return [
        (str(x.dtype), tuple(x.shape), weak and bool(x.weak_type))
        for x in (found if isinstance(found, tuple | list) else [found])
    ]


def assert_types(name: str, *args: Any) -> None:
    """Compare a function of arrays and Python numbers, which stay what they are."""
    arrays = [x for x in args if isinstance(x, np.ndarray)]

    def function(library: Any) -> Any:
        def applied(*given: Any) -> Any:
            left = iter(given)
            return getattr(library.numpy, name)(
                *(next(left) if isinstance(x, np.ndarray) else x for x in args)
            )

        return applied

    weak = name not in VARIES
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = described(jax, function(jax), arrays, weak)
        ours = described(stax, function(stax), arrays, weak)
    assert ours == theirs, (name, args)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(name: str, dtypes: list[str]) -> None:
    for dtype in dtypes:
        assert_types(name, values(dtype))
    if name not in ("sort", "argsort"):  # of a number: another kind of error
        for number in NUMBERS:
            assert_types(name, number)


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_arrays(name: str, dtypes: list[str]) -> None:
    for dtype in dtypes:
        for other in dict.fromkeys((dtype, "uint32" if dtype < "f" else "bfloat16")):
            assert_types(name, values(dtype), values(other))
    assert_types(name, values("int8"), 1.5)
    assert_types(name, values("bool"), True)


@pytest.mark.slow
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_every_two_dtypes(name: str, dtypes: list[str]) -> None:
    for dtype in dtypes:
        for other in PARTNERS:
            if other in dtypes:
                assert_types(name, values(dtype), values(other))
        for number in NUMBERS:
            assert_types(name, values(dtype), number)


def test_a_64_bit_array_stays_one_without_x64() -> None:
    with config.override(enable_x64=True):
        x = snp.ones(3)
    assert x.dtype == np.float64
    assert (x + 1).dtype == np.float64 and snp.sin(x).dtype == np.float64
