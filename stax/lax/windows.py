"""Reductions over windows: pooling, by the sum, an extreme or a user's monoid.

Windows are taken axis by axis, the last one first, which keeps the order of the elements.  Along an
axis the window is combined from shifted slices, or, if it is long, from windows of one, two, four
elements and so on.  Where a maximum has ties the first element has the derivative, as in JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from stax import tree, types
from stax.errors import ArgumentError, ArgumentValueError
from stax.lax.monoid import Monoid, initial_values, is_neutral, monoid_of
from stax.numpy.arguments import arrays
from stax.operators import elementwise as ops, shape as moves
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import convert, select
from stax.trace import full, type_of
from stax.types import Dimension, accumulator

Arrays = list[Any]
Pads = list[tuple[int, int]]
# Windows up to this length are combined from a slice for each of their elements.
SHORT = 16


def reduce_window(
    operand: Any,
    init_value: Any,
    computation: Callable[..., Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: str | Sequence[tuple[int, int]] = "VALID",
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Any:
    """Return the elements in each window combined by `computation`, as `reduce` does.

    `operand` is an array or a pytree of them, `init_value` the same of scalars, with which they are
    padded: "VALID", "SAME", "SAME_LOWER", or (low, high) for each axis.  `base_dilation` spreads
    the elements, `window_dilation` those of a window; `window_strides` says how far windows are
    apart.
    """
    leaves, structure = tree.tree_flatten(operand)
    inits, other = tree.tree_flatten(init_value)
    if structure != other:
        raise ArgumentError(
            f"reduce_window: operands {structure} and initial values {other} differ in structure.",
            advice="Give an initial value for each operand.",
        )
    xs = arrays("reduce_window", *leaves)
    weak = all(type_of(x).weak for x in (*xs, *inits))
    starts = initial_values("reduce_window", xs, inits)
    monoid = monoid_of("reduce_window", computation, structure, [x.type for x in starts])
    ones = (1,) * xs[0].ndim
    plan = _Windows(
        xs[0].shape, window_dimensions, window_strides or ones, padding,
        base_dilation or ones, window_dilation or ones,
    )  # fmt: skip
    found = _op_windows(plan, monoid, xs[0], starts[0]) if monoid.name else None
    if found is None:
        return structure.unflatten(plan.reduce(monoid.join, xs, starts))
    return structure.unflatten([convert(found, found.dtype, weak)])


def _op_windows(plan: _Windows, monoid: Monoid, x: Any, start: Any) -> Any:
    """Reduce windows by an op: with its own neutral padding, and 16-bit sums in float32."""
    neutral = monoid.neutral(x.dtype)
    is_extreme = monoid.name in ("maximum", "minimum") and types.is_float(x.dtype)
    join = _choosing(monoid.name) if is_extreme else monoid.join
    wide = x.dtype if is_extreme else accumulator(x.dtype)
    fill = full((), neutral, wide)
    (total,) = plan.reduce(join, [convert(x, wide)], [fill])
    if not is_neutral(start, neutral):
        spread = broadcast_in_dim(convert(start, wide), total.shape, ())
        (total,) = join([spread], [total])
    return convert(total, x.dtype)


def _choosing(name: str) -> Callable[[Arrays, Arrays], Arrays]:
    """Return the larger (smaller) of two arrays, the first of equal ones; NaN wins."""
    holds = ops.ge if name == "maximum" else ops.le

    def join(left: Arrays, right: Arrays) -> Arrays:
        (x,), (y,) = left, right
        return [select(ops.or_(holds(x, y), ops.ne(x, x)), x, y)]

    return join


class _Windows:
    """Where windows are: for each axis their length, stride and dilation, and the padding."""

    def __init__(
        self,
        shape: Sequence[Dimension],
        sizes: Sequence[int],
        strides: Sequence[int],
        padding: str | Sequence[tuple[int, int]],
        base: Sequence[int],
        dilation: Sequence[int],
    ) -> None:
        given = (sizes, strides, base, dilation)
        if any(len(part) != len(shape) or any(n < 1 for n in part) for part in given):
            raise ArgumentValueError(
                f"reduce_window: windows {sizes}, strides {strides} and dilations {base}, "
                f"{dilation} do not fit an array of shape {tuple(shape)}.",
                advice="Give a positive number for each axis.",
            )
        self.sizes, self.strides = list(sizes), list(strides)
        self.base, self.dilation = list(base), list(dilation)
        self.spans = [_dilated(n, d) for n, d in zip(sizes, dilation, strict=True)]
        self.pads = padtype_to_pads(shape, self.spans, self.strides, padding)

    def reduce(
        self, join: Callable[[Arrays, Arrays], Arrays], xs: Arrays, starts: Arrays
    ) -> Arrays:
        """Return the windows combined by `join`, padded with `starts`."""
        config = [(low, high, d - 1) for (low, high), d in zip(self.pads, self.base, strict=True)]
        xs = [moves.pad(x, start, config) for x, start in zip(xs, starts, strict=True)]
        for axis in reversed(range(len(self.sizes))):
            count = stride_count(xs[0].shape[axis], self.spans[axis], self.strides[axis])
            if isinstance(count, int) and count <= 0:
                shape = [0 if a == axis else n for a, n in enumerate(xs[0].shape)]
                xs = [broadcast_in_dim(start, shape, ()) for start in starts]
            else:
                xs = self._along(join, xs, axis, count)
        return xs

    def _along(self, join: Any, xs: Arrays, axis: int, count: Any) -> Arrays:
        """Combine the windows of one axis, of which there are `count`."""
        size, stride, step = self.sizes[axis], self.strides[axis], self.dilation[axis]
        if size > SHORT:
            return [
                moves.slice_in_dim(x, 0, (count - 1) * stride + 1, stride, axis)
                for x in _doubled(join, xs, size, step, axis)
            ]
        total: Arrays = []
        for place in range(0, size * step, step):
            limit = place + (count - 1) * stride + 1
            part = [moves.slice_in_dim(x, place, limit, stride, axis) for x in xs]
            total = join(total, part) if total else part
        return total


def _doubled(join: Any, xs: Arrays, size: int, step: int, axis: int) -> Arrays:
    """Return the windows of `size` elements at every place, from windows of powers of two."""

    def joined(left: Arrays, right: Arrays, shift: int) -> Arrays:
        """Join what begins at each place with what begins `shift` elements further."""
        count = right[0].shape[axis] - shift * step
        ends = [moves.slice_in_dim(x, shift * step, None, 1, axis) for x in right]
        return join([moves.slice_in_dim(x, 0, count, 1, axis) for x in left], ends)

    total, done = xs, size % 2
    for bit in range(1, math.floor(math.log2(size)) + 1):
        xs = joined(xs, xs, 1 << (bit - 1))
        if size >> bit & 1:
            total, done = (joined(total, xs, done) if done else xs), done + (1 << bit)
    return total


def padtype_to_pads(
    in_shape: Sequence[Any],
    window_shape: Sequence[Any],
    window_strides: Sequence[int],
    padding: Any,
) -> Pads:
    """Return the padding (low, high) of each axis, given as that or by name.

    With "SAME" there are as many windows as axes have elements, by strides; "SAME_LOWER" puts more
    of the padding in front; "VALID" is none.  Raises ArgumentValueError for another name,
    and for strides below 1.
    """
    if not isinstance(padding, str):
        return [(int(low), int(high)) for low, high in padding]
    name = padding.upper()
    if name == "VALID":
        return [(0, 0)] * len(in_shape)
    if name not in ("SAME", "SAME_LOWER"):
        raise ArgumentValueError(
            f"windows: {padding!r} is not a padding.",
            advice="Use 'VALID', 'SAME', 'SAME_LOWER', or (low, high) for each axis.",
        )
    if any(stride < 1 for stride in window_strides):
        raise ArgumentValueError(
            f"windows: strides are at least 1, got {tuple(window_strides)}.",
            advice="A stride is by how many elements a window is moved.",
        )
    pads = []
    for n, span, stride in zip(in_shape, window_shape, window_strides, strict=True):
        missing = max(0, (-(-n // stride) - 1) * stride + span - n)
        less, more = missing // 2, missing - missing // 2
        pads.append((less, more) if name == "SAME" else (more, less))
    return pads


def _dilated(length: Any, dilation: int) -> Any:
    """Return the length of an axis whose elements are `dilation` apart."""
    return 0 if isinstance(length, int) and length == 0 else (length - 1) * dilation + 1


def stride_count(length: Any, span: int, stride: int) -> Any:
    """Return how many windows of `span` start `stride` apart within `length`."""
    if isinstance(length, int) and length < span:
        return 0
    return (length - span) // stride + 1


def reduce_window_shape_tuple(
    operand_shape: Sequence[Any],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> tuple[Any, ...]:
    """Return the shape of what `reduce_window` makes of an array of `operand_shape`."""
    ones = (1,) * len(window_dimensions)
    plan = _Windows(
        operand_shape, window_dimensions, window_strides, padding,
        base_dilation or ones, window_dilation or ones,
    )  # fmt: skip
    spread = [_dilated(n, d) for n, d in zip(operand_shape, plan.base, strict=True)]
    padded = [n + low + high for n, (low, high) in zip(spread, plan.pads, strict=True)]
    return tuple(map(stride_count, padded, plan.spans, plan.strides))
