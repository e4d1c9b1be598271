"""`python -m stax explain`: how Stax computes a function in a user's file."""

from __future__ import annotations

import argparse
import sys

from stax.compare.own import NoProgram, own_function
from stax.inspect import explain

DESCRIPTION = """\
Show how Stax computes a function of your own, path/to/file.py:function: the kernels and what is
fused in them, library calls, loops and how they run, calls back to Python, copies and memory, and
why each is as it is.  Nothing is compiled or computed.

The file may import jax or stax; both names then mean Stax.  Beside the function it has
example_args(), which returns a tuple of arguments.  The exit code is 2 if something is missing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.description = DESCRIPTION
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(run=run)
    add = parser.add_argument
    add("target", metavar="FILE:FUNCTION", help="the function")
    add("--grad", action="store_true", help="explain its gradient in its first argument")
    add("--memory-budget", type=int, metavar="BYTES", help="explain jit with that memory_budget")


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        function, arguments = own_function(options.target, options.grad)
    except NoProgram as problem:
        print(f"explain: {problem}", file=sys.stderr)
        return 2
    explain(function, memory_budget=options.memory_budget)(*arguments)
    return 0
