"""Arguments that are given up: results are written over them where nobody else sees their memory.

Which results may be, the program says (`taken`).  Whether they are is found at each call: the array
must own its memory, and nothing but the array may refer to that, be it a NumPy array that was read
from it, another library, another argument, or a call in another thread.  Where something does, the
result gets memory of its own, and the program copies what it does not write.

An array that is written over is deleted before the program runs, which may end half way; all others
are deleted when it has ended, so they keep their values if it fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stax.array import Array, value_of
from stax.errors import ArgumentValueError
from stax.runtime import memory
from stax.runtime.compiler import CompiledProgram


def check_given_once(name: str, leaves: Sequence[Any], donated: Sequence[bool]) -> None:
    """Raise ArgumentValueError if a donated array is a leaf a second time.

    Of an array that was deleted before, DeletedArrayError says so.
    """
    if not any(donated):
        return
    given = {id(x) for x, gives in zip(leaves, donated, strict=True) if gives}
    seen = set[int]()
    for leaf in leaves:
        if id(leaf) in seen and type(leaf) is Array:
            value_of(leaf)
            raise ArgumentValueError(
                f"jit: an array that is donated to {name} is given twice.",
                values=[("donated", repr(leaf.type), "")],
                advice="Pass a copy, x.copy(), or do not donate it.",
            )
        if id(leaf) in given:
            seen.add(id(leaf))


def run_donating(
    program: CompiledProgram,
    leaves: Sequence[Any],
    values: list[np.ndarray],
    donated: Sequence[bool],
) -> list[Array]:
    """Run a program on `values`, of which the first are those of `leaves`; some are donated."""
    if not any(donated):
        return program.run(values)
    results = program.run(values, _written_over(program, leaves, values, donated))
    delete_donated(leaves, donated)
    return results


def delete_donated(leaves: Sequence[Any], donated: Sequence[bool]) -> None:
    """Delete the donated arrays among leaves, after their last use."""
    for leaf, gives in zip(leaves, donated, strict=False):
        if gives and type(leaf) is Array:
            leaf.delete()


def _written_over(
    program: CompiledProgram,
    leaves: Sequence[Any],
    values: list[np.ndarray],
    donated: Sequence[bool],
) -> list[np.ndarray | None]:
    """Return for each result the memory that it is written over, or None; its array is deleted."""
    given: list[np.ndarray | None] = [None] * len(program.graph.outputs)
    for k, i in program.taken:
        leaf = leaves[i]
        if donated[i] and type(leaf) is Array:
            # Nobody can read it from the array while the references are counted.
            leaf._value = None
            if memory.is_private(values, i):
                given[k] = values[i]
            else:
                leaf._value = values[i]
    return given if program.taken else []
