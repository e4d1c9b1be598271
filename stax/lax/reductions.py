"""`jax.lax`'s reductions: sums and their kin, with a user's monoid, and running ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stax import tree, types
from stax.errors import ArgumentError, ShapeError
from stax.extent import product, same_shape
from stax.lax.monoid import Monoid, initial_values, is_neutral, monoid_of
from stax.numpy.arguments import array, arrays
from stax.numpy.elementwise import logaddexp
from stax.operators import reduce as reductions, reshape as shapes, shape as moves
from stax.operators.broadcast import broadcast_in_dim, reduce_with
from stax.operators.elementwise import convert
from stax.trace import type_of
from stax.types import canonical_axes, canonical_axis

Function = Callable[..., Any]


def _reduction(name: str, op: Function, meaning: str) -> Function:
    def function(operand: Any, axes: Sequence[int]) -> Any:
        return op(array(name, operand), axes)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {meaning} over `axes`, which the result does not have."
    return function


reduce_sum = _reduction("reduce_sum", reductions.reduce_sum, "the sum")
reduce_prod = _reduction("reduce_prod", reductions.reduce_prod, "the product")
reduce_max = _reduction("reduce_max", reductions.reduce_max, "the largest element")
reduce_min = _reduction("reduce_min", reductions.reduce_min, "the smallest element")
reduce_and = _reduction("reduce_and", reductions.reduce_and, "whether all hold")
reduce_or = _reduction("reduce_or", reductions.reduce_or, "whether any holds")
reduce_xor = _reduction("reduce_xor", reductions.reduce_xor, "whether an odd number holds")


def reduce(
    operands: Any, init_values: Any, computation: Function, dimensions: Sequence[int]
) -> Any:
    """Return the elements combined by `computation` over `dimensions`, starting at `init_values`.

    `operands` is an array or a pytree of arrays of one shape, `init_values` the same of scalars,
    and `computation` takes two such pytrees of scalars and returns one; it must be associative,
    and the initial values neutral.  Raises ArgumentError or DTypeError where these do not fit.
    """
    leaves, structure = tree.tree_flatten(operands)
    inits, other = tree.tree_flatten(init_values)
    if structure != other:
        raise ArgumentError(
            f"reduce: operands {structure} and initial values {other} differ in structure.",
            advice="Give an initial value for each operand.",
        )
    xs = arrays("reduce", *leaves)
    weak = all(type_of(x).weak for x in (*xs, *inits))
    starts = initial_values("reduce", xs, inits)
    axes = canonical_axes(tuple(dimensions), xs[0].ndim)
    monoid = monoid_of("reduce", computation, structure, [x.type for x in starts])
    found = _builtin(monoid, xs[0], starts[0], axes) if monoid.reduction else None
    if found is not None:
        return structure.unflatten([convert(found, found.dtype, weak)])
    return structure.unflatten(_folded(monoid, [_merged(x, axes) for x in xs], starts))


def _builtin(monoid: Monoid, x: Any, start: Any, axes: tuple[int, ...]) -> Any:
    """Return a reduction by an op of its own, or None where an extreme has no elements."""
    assert monoid.reduction is not None
    is_extreme = issubclass(monoid.reduction, reductions.Extreme)
    if is_extreme and any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes):
        return None
    total = reduce_with(monoid.reduction, x, axes)
    if is_neutral(start, monoid.neutral(x.dtype)):
        return total
    return monoid.join([broadcast_in_dim(start, total.shape, ())], [total])[0]


def _merged(x: Any, axes: tuple[int, ...]) -> Any:
    """Return `x` with `axes` merged into one last axis."""
    kept = [a for a in range(x.ndim) if a not in axes]
    moved = shapes.transpose(x, (*kept, *axes))
    merged = product(tuple(x.shape[a] for a in axes))
    return shapes.reshape(moved, (*(x.shape[a] for a in kept), merged))


def _folded(monoid: Monoid, xs: list[Any], starts: list[Any]) -> list[Any]:
    """Combine neighbours along the last axis until there is one element, then the initial one."""
    *kept, n = xs[0].shape
    first = [broadcast_in_dim(s, kept, ()) for s in starts]
    if n == 0:
        return first
    while n > 1:
        left = [moves.slice_in_dim(x, 0, n - n % 2, 2, -1) for x in xs]
        right = [moves.slice_in_dim(x, 1, n, 2, -1) for x in xs]
        joined = monoid.join(left, right)
        if n % 2:
            ends = [moves.slice_in_dim(x, n - 1, n, 1, -1) for x in xs]
            joined = [moves.concatenate(pair, -1) for pair in zip(joined, ends, strict=True)]
        xs, n = joined, (n + 1) // 2
    return monoid.join(first, [shapes.reshape(x, kept) for x in xs])


def associative_scan(fn: Function, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """Return the running results of an associative function along `axis`, or from its end.

    `elems` is an array or a pytree of arrays of one length; `fn` takes two such pytrees of slices
    and returns one, all pairs at once.  Raises ShapeError if the lengths differ.
    """
    leaves, structure = tree.tree_flatten(elems)
    xs = arrays("associative_scan", *leaves)
    where = canonical_axis(axis, xs[0].ndim)
    if any(not same_shape(x.shape[where : where + 1], xs[0].shape[where : where + 1]) for x in xs):
        raise ShapeError(
            f"associative_scan: arrays {[x.type for x in xs]} differ in length along axis {axis}.",
            advice="The arrays of a pytree are scanned together.",
        )

    def join(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
        out = fn(structure.unflatten(a), structure.unflatten(b))
        return tuple(arrays("associative_scan", *tree.tree_leaves(out)))

    turned = [shapes.rev(x, where) for x in xs] if reverse else xs
    found = reductions.running(join, tuple(turned), where)
    return structure.unflatten([shapes.rev(x, where) for x in found] if reverse else found)


def argmax(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Return the first place of the largest element along `axis`, as `index_dtype`."""
    return reductions.argmax(array("argmax", operand), axis, types.check_dtype(index_dtype))


def argmin(operand: Any, axis: int, index_dtype: Any) -> Any:
    """Return the first place of the smallest element along `axis`, as `index_dtype`."""
    return reductions.argmin(array("argmin", operand), axis, types.check_dtype(index_dtype))


def _running(name: str, op: Function, meaning: str) -> Function:
    def function(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        return op(array(name, operand), axis, reverse)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return the running {meaning} along `axis`, from its end if `reverse`."
    return function


cumsum = _running("cumsum", reductions.cumsum, "sums")
cumprod = _running("cumprod", reductions.cumprod, "products")
cummax = _running("cummax", reductions.cummax, "maxima")
cummin = _running("cummin", reductions.cummin, "minima")


def cumlogsumexp(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Return the logarithms of the running sums of exponentials along `axis`."""
    x = array("cumlogsumexp", operand)
    where = canonical_axis(axis, x.ndim)
    x = shapes.rev(x, where) if reverse else x
    (x,) = reductions.running(lambda a, b: (logaddexp(a[0], b[0]),), (x,), where)
    return shapes.rev(x, where) if reverse else x
