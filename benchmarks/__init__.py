"""A wide list of programs, timed beside JAX and NumPy: `python -m benchmarks --help`.

`programs` holds them by kind, each with a round and an odd set of sizes.  How one is run, timed in
turns and compared is that of `stax.compare`; `numpy_side` adds NumPy as a third, `fresh` measures
first calls in processes of their own, `tables` prints, `readme` writes the tables of README.md.
No test asserts a speed.
"""
