"""`jax.lax`'s sorts, and selections of the largest elements."""

from __future__ import annotations

from typing import Any

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.numpy.arguments import array, arrays, static_int
from stax.operators import elementwise as ops, sort as sorts
from stax.operators.reshape import move_axis
from stax.trace import full
from stax.types import canonical_axis


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """Return arrays sorted along `dimension` by the first `num_keys` of them, NaN last."""
    if isinstance(operand, tuple | list):
        given = tuple(arrays("sort", *operand))
        return sorts.sort(given, dimension, num_keys, is_stable)
    return sorts.sort(array("sort", operand), dimension, num_keys, is_stable)


def sort_key_val(
    keys: Any, values: Any, dimension: int = -1, is_stable: bool = True
) -> tuple[Any, Any]:
    """Return `keys` sorted along `dimension`, and `values` in the same order."""
    result = sort((keys, values), dimension, is_stable, 1)
    return result[0], result[1]


def top_k(operand: Any, k: int, *, axis: int = -1) -> tuple[Any, Any]:
    """Return the `k` largest elements along `axis`, in falling order, and their places.

    Of equal elements the first comes first; NaN counts as largest.
    """
    x = array("top_k", operand)
    k = static_int("top_k", "k", k)
    where = canonical_axis(axis, x.ndim)
    if not 0 <= k <= x.shape[where]:
        raise ArgumentValueError(
            f"top_k: there are not {k} elements along axis {axis} of {x.type}.",
            advice="k is at most the length of the axis.",
        )
    if not k:
        shape = tuple(0 if a == where else n for a, n in enumerate(x.shape))
        return full(shape, 0, x.dtype), full(shape, 0, types.int32)
    found = sorts.top_k(move_axis(x, where, -1), k)
    values, places = (move_axis(y, -1, where) for y in found)
    return values, places


def approx_max_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """Return the `k` largest elements along an axis and their places, exactly.

    `recall_target` and `reduction_input_size_override` tell accelerators how far to approximate
    and change nothing here.
    """
    return _approximate("approx_max_k", operand, k, reduction_dimension, aggregate_to_topk)


def approx_min_k(
    operand: Any,
    k: int,
    reduction_dimension: int = -1,
    recall_target: float = 0.95,
    reduction_input_size_override: int = -1,
    aggregate_to_topk: bool = True,
) -> tuple[Any, Any]:
    """Return the `k` smallest elements along an axis and their places, exactly.

    The other arguments are those of `approx_max_k`.
    """
    x = array("approx_min_k", operand)
    less, places = _approximate(
        "approx_min_k", ops.neg(x), k, reduction_dimension, aggregate_to_topk
    )
    return ops.neg(less), places


def _approximate(
    name: str, operand: Any, k: int, axis: int, aggregate_to_topk: bool
) -> tuple[Any, Any]:
    x = array(name, operand)
    if not types.is_float(x.dtype):
        raise DTypeError(
            f"{name} takes arrays of floats, not {x.type}.", advice="Use top_k for integers."
        )
    if not aggregate_to_topk:  # then the partial results are all elements, in order
        k = x.shape[canonical_axis(axis, x.ndim)]
    return top_k(x, k, axis=axis)
