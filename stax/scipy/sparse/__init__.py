"""The part of `jax.scipy.sparse` that Stax has: iterative solvers."""

from __future__ import annotations

from stax.scipy.sparse import linalg as linalg

__all__ = ["linalg"]
