"""Control flow run by Python under `disable_jit`: functions see the values of every step.

As in JAX, a choice or a loop whose course tracing does not know, because the predicate is mapped
say, is staged out all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stax import tree
from stax.errors import ConcretizationTypeError
from stax.numpy import joining
from stax.operators.reshape import squeeze
from stax.operators.shape import slice_in_dim
from stax.trace import as_array

UNKNOWN = object()


def known_integer(x: Any) -> int | None:
    """Return the value of a scalar, or None where tracing does not know it."""
    try:
        return int(x)
    except ConcretizationTypeError:
        return None


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init: Any) -> Any:
    """Return the last carry, or UNKNOWN if tracing does not know whether a step follows."""
    carry = _arrays(init)
    try:
        while cond_fun(carry):
            carry = _arrays(body_fun(carry))
    except ConcretizationTypeError:
        return UNKNOWN
    return carry


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int,
    reverse: bool,
) -> tuple[Any, Any]:
    """Apply `f` to each of `length` elements, at least one; returns the carry and the results."""
    carry, ys = init, []
    for i in reversed(range(length)) if reverse else range(length):
        carry, y = f(carry, tree.tree_map(lambda x, i=i: _element(x, i), xs))
        ys.append(y)
    return _arrays(carry), tree.tree_map(_stacked, *(ys[::-1] if reverse else ys))


def _arrays(carry: Any) -> Any:
    return tree.tree_map(as_array, carry)


def _element(x: Any, i: int) -> Any:
    return squeeze(slice_in_dim(as_array(x), i, i + 1), (0,))


def _stacked(*parts: Sequence[Any]) -> Any:
    return joining.stack(parts)
