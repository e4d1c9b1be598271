"""The native run time: what surrounds a compiled program when it is loaded and called.

Read in this order: `engine` (LLVM text to addresses), `object_cache` (code on disk), `threads` (the
pool), `products` (matrix products over BLAS), `memory` (recycled blocks), `polling` (Ctrl-C),
`libraries` (the context table that hands all of these to generated code), `call_form` (how
arguments come apart), `dispatcher` (the native call), `executable` (programs over NumPy arrays),
`entry` (the entry of a jitted function), `program_cache` (which code is that of a graph),
`compiler` (from a graph to all that).
"""
