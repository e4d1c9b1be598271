"""The part of `jax.scipy.optimize`: minimisation of a function of several variables."""

from __future__ import annotations

from stax.scipy.optimize.minimization import OptimizeResults, minimize

__all__ = ["OptimizeResults", "minimize"]
