"""Explaining a function: what the library does with it, and why."""

from stax.inspect.explain import explain
from stax.inspect.residuals import saved_residuals

__all__ = ["explain", "saved_residuals"]
