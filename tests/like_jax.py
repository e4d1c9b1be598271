"""Comparison of a result with JAX's: values, dtype, shape and weak type."""

from typing import Any

import numpy as np

# Relative error that a different order of operations explains, by dtype.
TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-6, "complex64": 2e-6}


def assert_like_jax(ours: Any, theirs: Any, tolerance: float = 0.0) -> None:
    """Check that a result is what JAX gives; exactly, if no tolerance is named."""
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple) and len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            assert_like_jax(a, b, tolerance)
        return
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    # JAX returns zeros as NumPy arrays. A bool is never weak here: it is never converted.
    weak = getattr(theirs, "weak_type", False)
    assert ours.weak_type == weak or ours.dtype == bool
    left, right = np.asarray(ours), np.asarray(theirs)
    if left.dtype.kind not in "biu":
        wide = np.complex128 if left.dtype.kind == "c" else np.float64
        left, right = left.astype(wide), right.astype(wide)
    np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance)
