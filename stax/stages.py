"""The stages of a function on its way to the machine, for annotations, as in jax.stages.

jit(f)                            a Wrapped
jit(f).lower(*args)               a Lowered
jit(f).lower(*args).compile()     a Compiled
"""

from stax.api.compiled import JitFunction as Wrapped
from stax.api.stages import Compiled, Lowered

__all__ = ["Compiled", "Lowered", "Wrapped"]
