"""Questions about dtypes against JAX's answers, for every pair of what names a dtype."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.config import config

pytestmark = pytest.mark.filterwarnings("ignore")  # JAX warns of 64-bit dtypes

NAMES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NAMES += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
KINDS = [np.floating, np.integer, np.inexact, np.number, np.generic, np.signedinteger]
KINDS += [np.complexfloating, np.unsignedinteger, np.bool_, np.float16, float, int, bool, complex]
LIMITS = ["eps", "epsneg", "max", "min", "tiny", "smallest_subnormal", "nmant", "nexp", "bits"]


def named(library: Any) -> list[Any]:
    """What names a dtype or has one, in a library's own terms."""
    found = [np.dtype(jnp.dtype(name)) for name in NAMES]
    found += [1, 1.5, True, 1j, int, float, bool, complex, "float32", np.float64, np.int64(3)]
    found += [library.float16, library.int8, library.asarray(1.5), library.ones(2, "int8")]
    return [*found, np.ones(2), np.arange(3), [1, 2]]


def answer(function: Any, *args: Any) -> Any:
    try:
        found = function(*args)
    except (TypeError, ValueError) as error:
        return TypeError if isinstance(error, TypeError) else ValueError
    return bool(found) if isinstance(found, bool | np.bool_) else str(found)


@pytest.mark.parametrize("name", ["result_type", "promote_types", "can_cast", "issubdtype"])
def test_pairs(name: str) -> None:
    ours, theirs = getattr(snp, name), getattr(jnp, name)
    for a, x in zip(named(snp), named(jnp), strict=True):
        for b, y in zip(named(snp), named(jnp), strict=True):
            assert answer(ours, a, b) == answer(theirs, x, y), (name, x, y)


def test_kinds() -> None:
    named_kinds = ["bool", "signed integer", "unsigned integer", "integral", "real floating"]
    named_kinds += ["complex floating", "numeric", "foo"]
    for name in NAMES:
        dtype = np.dtype(jnp.dtype(name))
        for kind in (*named_kinds, ("integral", "bool"), "int8", np.int32):
            assert answer(snp.isdtype, dtype, kind) == answer(jnp.isdtype, dtype, kind)
        for kind in KINDS:
            assert answer(snp.issubdtype, dtype, kind) == answer(jnp.issubdtype, dtype, kind)
            assert answer(snp.issubdtype, kind, dtype) == answer(jnp.issubdtype, kind, dtype)
        for rule in ("no", "equiv", "same_kind", "unsafe"):
            for other in (np.float16, np.int32, ml_dtypes.bfloat16):
                theirs = answer(jnp.can_cast, dtype, other, rule)
                assert answer(snp.can_cast, dtype, other, rule) == theirs


def test_limits() -> None:
    for name in ("float16", "bfloat16", "float32", "float64"):
        for limit in LIMITS:
            ours, theirs = (getattr(lib.finfo(name), limit) for lib in (snp, jnp))
            assert float(ours) == float(theirs)
    for x in (float, np.float32, snp.ones(2), "bfloat16"):
        y = jnp.ones(2) if x is not float and isinstance(x, stax.Array) else x
        assert snp.finfo(x).dtype == jnp.finfo(y).dtype
    for x in (int, 1, np.int8, "uint16", np.arange(3)):
        assert snp.iinfo(x).max == jnp.iinfo(x).max and snp.iinfo(x).min == jnp.iinfo(x).min


def test_result_types_of_64_bits() -> None:
    assert snp.result_type("float64", "int64") == np.float32
    with config.override(enable_x64=True):
        assert snp.result_type("float64", "int64") == np.float64
        wide = snp.ones(2)
    # An array that has 64 bits keeps them.
    assert snp.result_type(wide, np.float32) == np.float64
