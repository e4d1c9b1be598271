"""The part of `jax.scipy.cluster`: codes of observations."""

from __future__ import annotations

from stax.scipy.cluster import vq as vq

__all__ = ["vq"]
