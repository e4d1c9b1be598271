"""Stax: composable transformations of NumPy programs, with a compiler of its own.

    >>> import stax, stax.numpy as snp
    >>> loss = lambda w, x: snp.tanh(x @ w).sum()
    >>> step = stax.jit(stax.grad(loss))

Functions are traced to an operator graph; `grad`, `jvp`, `vmap` and `jit` rewrite it; it is fused
into loop kernels and compiled to native code.  `stax.make_graph(f)(*args)` prints the graph,
`stax.jit(f).lower(*args).as_text("kernels")` the kernels.  Names and signatures are JAX's.
"""

from stax import dtypes, errors, lax, nn, numpy, scipy, tree, tree_util
from stax.api import (
    JitFunction,
    ShapeDtypeStruct,
    eval_shape,
    grad,
    hessian,
    jacfwd,
    jacobian,
    jacrev,
    jit,
    jvp,
    linearize,
    make_graph,
    value_and_grad,
    vjp,
    vmap,
)
from stax.array import Array
from stax.config import (
    config,
    default_matmul_precision,
    disable_jit,
    enable_x64,
    numpy_dtype_promotion,
)
from stax.source import named_scope

__version__ = "0.1.0"

make_jaxpr = make_graph

__all__ = [
    "Array", "JitFunction", "ShapeDtypeStruct", "config", "default_matmul_precision",
    "disable_jit", "dtypes", "enable_x64", "errors", "eval_shape", "grad", "hessian", "jacfwd",
    "jacobian", "jacrev", "jit", "jvp", "lax", "linearize", "make_graph", "make_jaxpr",
    "named_scope", "nn", "numpy", "numpy_dtype_promotion", "scipy", "tree", "tree_util",
    "value_and_grad", "vjp", "vmap",
]  # fmt: skip
