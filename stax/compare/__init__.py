"""Stax and JAX side by side: the same programs, the same bits, one process.

`python -m stax compare` is the way in.  `programs` holds what is run, `measure` how it is timed,
`stax_side` and `jax_side` how each library shows its work, `report` the table.  Only `jax_side`
imports JAX, and only `command` imports `jax_side`, once it has seen that JAX is there.
"""
