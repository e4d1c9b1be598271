"""Comparison of a function with two others: JAX for the type of its result, NumPy for the values.

The type is all that is asked of JAX, which then compiles nothing; many cases stay cheap.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stax.numpy as snp

TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 4e-6}


# Versions of JAX differ in the weak flag of these results.
WEAK_VARIES = ("log2",)


def compared(
    name: str, *args: Any, values: Callable[..., Any] | None = None, **options: Any
) -> None:
    """Check `snp.name(*args, **options)`; `values` computes what is right, if not NumPy's."""
    try:
        kind = jax.eval_shape(lambda: getattr(jnp, name)(*args, **options))
    except (TypeError, ValueError):
        with pytest.raises((TypeError, ValueError)):
            getattr(snp, name)(*args, **options)
        return
    ours = getattr(snp, name)(*args, **options)
    first = kind[0] if isinstance(kind, tuple | list) else kind
    inexact = jnp.issubdtype(first.dtype, jnp.inexact)
    wide = [widened(x, options.get("dtype"), inexact) for x in args]
    given = {k: v for k, v in options.items() if k not in ("dtype", "promote_integers")}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        theirs = (values or getattr(np, name))(*wide, **given)
    if not isinstance(kind, tuple | list):
        kind, ours, theirs = [kind], [ours], [theirs]
    for a, b, c in zip(ours, kind, theirs, strict=True):
        check(a, b, c, weak=name not in WEAK_VARIES)


def widened(x: Any, dtype: Any, inexact: bool) -> Any:
    """Return an argument in NumPy's widest type of its kind; float for a floating result."""
    if isinstance(x, list | tuple) and any(isinstance(v, np.ndarray) for v in x):
        return [widened(v, dtype, inexact) for v in x]
    if not isinstance(x, np.ndarray | np.generic | bool):
        return x
    x = np.asarray(x)
    if dtype is not None and np.dtype(dtype).kind in "iu":
        x = x.astype(dtype)
    if x.dtype == bool and not inexact:
        return x
    return x.astype(np.int64 if x.dtype.kind in "iu" and not inexact else np.float64)


def check(ours: Any, kind: Any, theirs: Any, weak: bool = True) -> None:
    """Check one result against its type in JAX and its value in NumPy."""
    assert (ours.dtype, ours.shape) == (kind.dtype, kind.shape)
    assert not weak or ours.weak_type == kind.weak_type or ours.dtype == bool
    loose = TOLERANCES.get(str(kind.dtype), 0)
    with np.errstate(all="ignore"):
        right = np.asarray(theirs).astype(kind.dtype).astype(np.float64)
    left = np.asarray(ours).astype(np.float64)
    np.testing.assert_allclose(left, right, rtol=loose, atol=loose)
