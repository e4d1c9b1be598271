"""Calls that the entry of a jitted function does not take as they are, run over their leaves.

The native entry wants leaves that kernels can read.  Calls with others (NumPy arrays of another
type or layout, NumPy's scalars, complex numbers) take this way, and so do all but flat ones where
the entry is in Python: the arguments are flattened, leaves become arrays for the length of the call
(`borrowed`), and the variant for their structure, types and static arguments is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from stax import tree
from stax.array import Array, array_from_numpy, copied
from stax.config import config
from stax.runtime.call_form import flat_form
from stax.runtime.compiler import CompiledProgram
from stax.runtime.entry import make_entry
from stax.trace import links
from stax.types import ArrayType, canonical_dtype, is_numeric, scalar_type

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
        self,
        key: Any,
        program: CompiledProgram,
        captures: Sequence[Any],
        out: tree.TreeDef,
        donated: tuple[bool, ...] = (),
    ) -> None:
        """Remember the program for `key`, the structure of its result, and which leaves it gets."""
        entry = make_entry(_missed, Array)
        form = replace(flat_form(len(key[1]), out.num_leaves), donated=donated)
        program.add_to(entry, captures, form)
        self._found[key] = entry.call, out

    def clear(self) -> None:
        """Forget all of them."""
        self._found.clear()

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], static: Any) -> Any:
        """Return the result for these arguments, or MISSED if there is no program for them."""
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


def borrowed(value: Any) -> Any:
    """Return an argument as an array for the length of a call.

    The memory of a NumPy array is used as it is, if kernels can read it; results never lie in it.
    Raises TypeError for what is no array or number.
    """
    kind = type(value)
    if kind is float or kind is int or kind is bool:
        scalar = scalar_type(value)
        return array_from_numpy(np.array(value, scalar.dtype), scalar)
    dtype = None
    if kind is np.ndarray or issubclass(kind, np.generic):
        dtype = _entering(value.dtype, config.enable_x64)
    if dtype is None:
        # It may be one that the object keeps, which is not to be deleted for being donated.
        return copied(links.as_array(value))
    native = np.array(value, dtype, copy=None)
    return array_from_numpy(native.view(), ArrayType(dtype, native.shape))


@functools.lru_cache(maxsize=256)
def _entering(dtype: np.dtype, enable_x64: bool) -> np.dtype | None:
    """Return the dtype that an argument of NumPy's has in a program; None if it is no number."""
    entering: np.dtype | None = canonical_dtype(dtype) if is_numeric(dtype) else None
    return entering
