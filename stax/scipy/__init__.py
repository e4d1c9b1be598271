"""The part of `jax.scipy` that Stax has."""

from __future__ import annotations

from stax.scipy import special as special

__all__ = ["special"]
