"""The part of `jax.scipy` that Stax has."""

from __future__ import annotations

from stax.scipy import linalg as linalg, special as special, stats as stats

__all__ = ["linalg", "special", "stats"]
