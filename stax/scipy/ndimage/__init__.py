"""The part of `jax.scipy.ndimage`: images read between their elements."""

from __future__ import annotations

from stax.scipy.ndimage.coordinates import map_coordinates

__all__ = ["map_coordinates"]
