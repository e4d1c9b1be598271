"""Arguments of the facade's functions, checked and brought to one form.

An argument is an array, a NumPy array or a number; a list is refused, as in JAX, because it would
hide a conversion of every element.  The name of the function goes into the error.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from stax import types
from stax.errors import ArgumentError, ArgumentValueError, StaxError, UnsupportedError
from stax.operators.arithmetic import promote_operands
from stax.operators.elementwise import convert
from stax.trace import is_array
from stax.types import canonical_axis, check_dtype, inexact_dtype, is_index, promote

Axis = int | Sequence[int] | None


def array(name: str, x: Any) -> Any:
    """Return `x` as an array; raises ArgumentError for lists and what is no number."""
    if is_array(x):
        return x
    return promote_operands(name, x)[0]


def arrays(name: str, *args: Any) -> list[Any]:
    """Return each argument as an array, without promotion."""
    return [array(name, x) for x in args]


def inexact(name: str, x: Any) -> Any:
    """Return `x` as an array of a floating (or complex) type; integers become float32."""
    x = array(name, x)
    if types.is_inexact(x.dtype):
        return x
    return convert(x, inexact_dtype(x.dtype), x.weak_type)


def numeric(name: str, x: Any) -> Any:
    """Return `x` as an array of numbers; bool counts as int32."""
    x = array(name, x)
    return convert(x, types.int32) if types.is_bool(x.dtype) else x


def strong_operands(name: str, *args: Any) -> list[Any]:
    """Return the arguments in one floating type, which is not weak, and one shape."""
    return [convert(x, x.dtype) for x in inexact_operands(name, *args)]


def inexact_operands(name: str, *args: Any) -> list[Any]:
    """Return the arguments in one floating type and one shape."""
    return promote_operands(name, *args, to=inexact_dtype)


def sequence(name: str, given: Any) -> list[Any]:
    """Return a sequence of arrays (or an array, which is one of its rows) as a list of arrays."""
    if is_array(given):
        return list(given)
    if isinstance(given, np.ndarray):
        return arrays(name, *given)
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ArgumentError(
            f"{name} takes a sequence of arrays, not {type(given).__name__}.",
            advice="Put the arrays in a list or a tuple.",
        )
    return arrays(name, *given)


def promoted(name: str, given: Any, dtype: Any = None) -> list[Any]:
    """Return a sequence of arrays in one dtype, their shapes as they are."""
    found = sequence(name, given)
    if not found:
        raise ArgumentValueError(
            f"{name} needs at least one array.", advice="Pass a list that is not empty."
        )
    if dtype is not None:
        return [convert(x, check_dtype(dtype)) for x in found]
    common, weak = promote(*(x.type for x in found))
    return [convert(x, common, weak) for x in found]


def refuse_out(name: str, out: Any) -> None:
    """Raise for an `out` argument: arrays cannot be written to."""
    if out is not None:
        raise UnsupportedError(
            f"{name}: out= is not supported, because arrays are immutable.",
            advice="Use the result of the call.",
        )


def axes_list(axis: Axis, ndim: int) -> list[int]:
    """Return `axis` as a list of axes counted from the front, in the order given."""
    if axis is None:
        return list(range(ndim))
    given = [axis] if is_index(axis) else list(axis)  # type: ignore[arg-type]
    return [canonical_axis(a, ndim) for a in given]


def static_int(name: str, what: str, value: Any) -> int:
    """Return a static integer argument; raises ArgumentError for anything else."""
    try:
        return int(operator.index(value))
    except StaxError:  # a traced array says itself what it cannot be
        raise
    except TypeError:
        raise ArgumentError(
            f"{name}: {what} is an integer, not {type(value).__name__}.",
            advice="It is part of the program's shape, so it must be a Python integer.",
        ) from None
