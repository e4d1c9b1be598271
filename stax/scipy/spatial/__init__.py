"""The part of `jax.scipy.spatial`: rotations."""

from __future__ import annotations

from stax.scipy.spatial import transform as transform

__all__ = ["transform"]
