"""Looking into functions while they run, compiled or not; the names are those of jax.debug.

    >>> from stax import debug, jit
    >>> jit(lambda x: debug.print("x is {x}", x=x))(1.5)
    x is 1.5

What concerns the placement of arrays on several devices is not here.
"""

from stax.api.callbacks import debug_callback as callback, debug_log as log, debug_print as print

__all__ = ["callback", "log", "print"]
