"""The part of `jax.scipy.interpolate`: interpolation on a grid."""

from __future__ import annotations

from stax.scipy.interpolate.grid import RegularGridInterpolator

__all__ = ["RegularGridInterpolator"]
