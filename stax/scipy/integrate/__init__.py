"""The part of `jax.scipy.integrate`: the trapezoidal rule."""

from __future__ import annotations

from stax.numpy import trapezoid

__all__ = ["trapezoid"]
