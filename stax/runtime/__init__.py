"""The native run time: what surrounds a compiled program when it is loaded and called.

Read in this order: `engine` (LLVM text to addresses), `threads` (the pool), `products` (matrix
products over BLAS), `memory` (recycled blocks), `polling` (Ctrl-C), `libraries` (the context table
that hands all of these to generated code), `dispatcher` (the native call), `executable` (programs
over NumPy arrays), `entry` (the entry of a jitted function), `compiler` (from a graph to all that).
"""
