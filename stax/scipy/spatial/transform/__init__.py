"""`jax.scipy.spatial.transform`: rotations in space, and what lies between two of them."""

from __future__ import annotations

from stax.scipy.spatial.transform.rotation import Rotation
from stax.scipy.spatial.transform.slerp import Slerp

__all__ = ["Rotation", "Slerp"]
