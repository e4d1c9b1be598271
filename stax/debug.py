"""Looking into functions while they run, compiled or not; the names are those of jax.debug.

    >>> from stax import debug, jit
    >>> jit(lambda x: debug.print("x is {x}", x=x))(1.5)
    x is 1.5

`breakpoint` stops there and reads commands on the variables around.  `inspect_array_sharding` and
`visualize_array_sharding` say where arrays are; there is one device.
"""

from stax.api.breakpoints import breakpoint
from stax.api.callbacks import debug_callback as callback, debug_log as log, debug_print as print
from stax.api.placing import (
    inspect_array_sharding,
    visualize_array_sharding,
    visualize_sharding,
)

__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "print",
    "visualize_array_sharding",
    "visualize_sharding",
]
