"""The transforms as users call them: jit, grad, vmap and their kin."""

from stax.api.abstract import ShapeDtypeStruct
from stax.api.compiled import JitFunction, jit
from stax.api.derivatives import (
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jvp,
    linearize,
    value_and_grad,
    vjp,
)
from stax.api.inspection import eval_shape, make_graph
from stax.api.mapping import vmap

__all__ = [
    "JitFunction", "ShapeDtypeStruct", "eval_shape", "grad", "hessian", "jacfwd", "jacobian",
    "jacrev", "jit", "jvp", "linearize", "make_graph", "value_and_grad", "vjp", "vmap",
]  # fmt: skip
