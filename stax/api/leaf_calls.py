"""Calls that the native entry of a jitted function does not know, run natively over their leaves.

The entry takes flat positional arrays.  Pytrees, keywords, numbers, NumPy arrays and static
arguments take this way: the arguments are flattened, leaves become arrays for the length of the
call (`borrowed`), and the variant for their structure, types and static arguments is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax import tree
from stax.array import Array, array_from_numpy
from stax.runtime.compiler import CompiledProgram
from stax.runtime.entry import make_entry
from stax.trace import links
from stax.types import ArrayType, scalar_type

MISSED: Any = object()


def _missed(*args: Any) -> Any:
    """The slow callable of a call over leaves: says that it did not run."""
    return MISSED


class LeafCalls:
    """The native calls of a jitted function, by structure, types and static arguments."""

    def __init__(self) -> None:
        self._found: dict[Any, tuple[Callable[..., Any], tree.TreeDef]] = {}

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(
        self, key: Any, program: CompiledProgram, captures: Sequence[Any], out: tree.TreeDef
    ) -> None:
        """Remember the program for `key`, and the structure of its result."""
        entry = make_entry(_missed, Array)
        program.add_to(entry, captures, True)
        self._found[key] = entry.call, out

    def clear(self) -> None:
        """Forget all of them."""
        self._found.clear()

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], static: Any) -> Any:
        """Return the result for these arguments, or MISSED if there is no program for them."""
        if not kwargs and _LEAF_CLASSES.issuperset(map(type, args)):
            leaves, treedef = list(args), _flat_structure(len(args))
        else:
            leaves, treedef = tree.tree_flatten((args, kwargs))
        try:
            leaves = [x if type(x) is Array else borrowed(x) for x in leaves]
            found = self._found.get((treedef, tuple([x.type for x in leaves]), static))
        except (TypeError, ValueError, OverflowError):
            return MISSED  # the way of a first call says what is wrong
        if found is None:
            return MISSED
        outs = found[0](*leaves)
        return MISSED if outs is MISSED else found[1].unflatten(outs)


_LEAF_CLASSES = frozenset({Array, np.ndarray, bool, int, float, np.float32, np.int32})


@functools.cache
def _flat_structure(count: int) -> tree.TreeDef:
    """Return the structure of the arguments of a call with `count` leaves by position."""
    return tree.tree_structure(((0,) * count, {}))


# Dtypes of NumPy arrays that enter a program as they are, whether or not enable_x64 is set.
_NARROW = frozenset(
    np.dtype(name)
    for name in ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float16",
                 "float32", "complex64")
)  # fmt: skip


def borrowed(value: Any) -> Any:
    """Return an argument as an array for the length of a call.

    The memory of a NumPy array is used as it is, if kernels can read it; results never lie in it.
    Raises TypeError for what is no array or number.
    """
    kind = type(value)
    if kind is np.ndarray and value.dtype in _NARROW:
        return array_from_numpy(value.view(), ArrayType(value.dtype, value.shape))
    if kind is float or kind is int or kind is bool:
        scalar = scalar_type(value)
        return array_from_numpy(np.array(value, scalar.dtype), scalar)
    return links.as_array(value)
