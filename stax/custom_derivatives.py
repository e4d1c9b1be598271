"""Derivative rules of one's own: the names of `jax.custom_derivatives`.

A rule may close over anything, values that surrounding transforms trace too:

    @stax.custom_jvp                       a rule for tangents, which reverse mode transposes
    @stax.custom_vjp                       a rule for cotangents
    @stax.custom_gradient                  the same, from one function that returns both parts
    closure_convert(fun, *example_args)    what a function closes over, as arguments
    linear_call(fun, transpose, r, x)      a linear function with a transpose of its own
"""

from stax.api.closures import closure_convert, custom_gradient, linear_call
from stax.api.custom import custom_jvp, custom_vjp
from stax.api.custom_rules import (
    CustomVJPPrimal,
    SymbolicZero,
    custom_vjp_primal_tree_values,
    zero_from_primal,
)

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_vjp",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "zero_from_primal",
]
