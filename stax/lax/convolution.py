"""Convolutions in every layout: names of axes, padding, and what is made of a convolution.

Axes are named as in "NHWC" and "HWIO": N examples, C channels, I and O the channels and filters of
a kernel, other letters spatial axes.  The op has one layout (`operators.convolution`); operands are
transposed to it, which costs nothing where the transpose is fused with what reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, Union

from stax.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from stax.extent import Dimension
from stax.lax.windows import padtype_to_pads, stride_count
from stax.numpy.arguments import arrays
from stax.operators.contract import dot_general
from stax.operators.convolution import convolution, spanned
from stax.operators.elementwise import convert
from stax.operators.reshape import move_axis, reshape, rev
from stax.operators.shape import concatenate, pad, slice_, transpose
from stax.trace import full, type_of
from stax.types import Shape, check_dtype

Padding = str | Sequence[tuple[Dimension, Dimension]]
Axes = tuple[int, ...]


class ConvDimensionNumbers(NamedTuple):
    """Where the axes of the operands and of the result are.

    `lhs_spec` and `out_spec` give the axes of examples, of channels, and the spatial ones;
    `rhs_spec` those of filters, of channels, and the spatial ones.
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


# Made with Union as in JAX: what `|` makes is an object of another class.
ConvGeneralDilatedDimensionNumbers: TypeAlias = Union[  # noqa: UP007
    tuple[str, str, str], ConvDimensionNumbers, None
]


def conv_dimension_numbers(
    lhs_shape: Sequence[Any], rhs_shape: Sequence[Any], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Return where the axes are, given None ("NCHW", "OIHW", "NCHW"), strings, or the result.

    Raises ArgumentError for anything else, and for names that do not go with the shapes.
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    rank = len(lhs_shape)
    if rank != len(rhs_shape):
        raise ArgumentError(
            f"convolution: operands of shapes {tuple(lhs_shape)} and {tuple(rhs_shape)} differ in "
            "the number of axes.",
            advice="Both have two axes more than there are spatial ones.",
        )
    if dimension_numbers is None:
        plain = tuple(range(rank))
        return ConvDimensionNumbers(plain, plain, plain)
    if not isinstance(dimension_numbers, tuple | list) or len(dimension_numbers) != 3:
        raise ArgumentError(
            f"convolution: dimension_numbers={dimension_numbers!r} are not three strings.",
            advice="Write for example ('NHWC', 'HWIO', 'NHWC').",
        )
    for names in dimension_numbers:
        if not isinstance(names, str) or len(names) != rank:
            raise ArgumentError(
                f"convolution: {names!r} does not name the {rank} axes of the operands, of shapes "
                f"{tuple(lhs_shape)} and {tuple(rhs_shape)}.",
                advice="Give one letter for each axis.",
            )
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


def conv_general_permutations(dimension_numbers: Sequence[str]) -> tuple[Axes, Axes, Axes]:
    """Return the axes named by three strings in the order of ConvDimensionNumbers.

    Spatial axes come in the order in which the kernel has them; raises ArgumentError for names
    that are missing, double, or not the same in all three.
    """
    ends = (("N", "C"), ("O", "I"), ("N", "C"))
    for names, (first, second) in zip(dimension_numbers, ends, strict=True):
        if len(set(names)) != len(names) or not {first, second} <= set(names):
            raise ArgumentError(
                f"convolution: {names!r} has to name {first} and {second}, and no axis twice.",
                advice="Write for example ('NHWC', 'HWIO', 'NHWC').",
            )
    spatial = [
        [c for c in names if c not in e] for names, e in zip(dimension_numbers, ends, strict=True)
    ]
    if any(set(letters) != set(spatial[1]) for letters in spatial):
        raise ArgumentError(
            f"convolution: {tuple(dimension_numbers)} name different spatial axes.",
            advice="The letters other than N, C, O and I are the same in all three.",
        )
    lhs, rhs, out = (
        tuple(names.index(c) for c in (*e, *spatial[1]))
        for names, e in zip(dimension_numbers, ends, strict=True)
    )
    return lhs, rhs, out


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Return the convolution of `lhs`, examples of channels, with the kernel `rhs`.

    As usual in networks the kernel is not turned round.  `padding` is "SAME", "VALID",
    "SAME_LOWER" or (low, high) for each spatial axis; dilations spread the elements of an operand.
    `dimension_numbers` names the axes, see `conv_dimension_numbers`.  With `feature_group_count`
    channels and filters fall into groups, with `batch_group_count` examples and filters.

    Raises ShapeError, DTypeError or ArgumentError where the operands do not go together.
    """
    lhs, rhs = arrays("conv_general_dilated", lhs, rhs)
    if type_of(lhs).dtype != type_of(rhs).dtype and preferred_element_type is None:
        raise DTypeError(
            f"convolution: operands must have one dtype, got {type_of(lhs)} and {type_of(rhs)}.",
            advice="Convert with astype, or name preferred_element_type.",
        )
    numbers = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    rank = len(numbers.lhs_spec) - 2
    strides, spread, apart = (
        tuple(map(int, sizes if sizes is not None else (1,) * rank))
        for sizes in (window_strides, lhs_dilation, rhs_dilation)
    )
    _check_lengths(rank, window_strides=strides, lhs_dilation=spread, rhs_dilation=apart)
    x = transpose(lhs, _last(numbers.lhs_spec, 0, 1))
    w = transpose(rhs, _last(numbers.rhs_spec, 1, 0, examples_first=False))
    sizes = type_of(w).shape[:-2]
    spans = [spanned(n, d) for n, d in zip(sizes, apart, strict=True)]
    if not isinstance(padding, str):
        _check_lengths(rank, padding=padding)
    elif any(n > 1 for n in spread):
        raise ArgumentValueError(
            f"convolution: padding={padding!r} of an operand that is spread by {spread} may mean "
            "several things.",
            advice="Give (low, high) for each spatial axis, or use conv_transpose.",
        )
    pads = padtype_to_pads(type_of(x).shape[1:-1], spans, strides, padding)
    groups = _groups(type_of(x).shape, type_of(w).shape, feature_group_count, batch_group_count)
    if batch_group_count > 1:
        x = _examples_as_channels(x, batch_group_count)
    dtype = None if preferred_element_type is None else check_dtype(preferred_element_type)
    if dtype is not None and dtype == type_of(x).dtype == type_of(w).dtype:
        dtype = None
    wish = None if precision is None else str(precision)
    out = convolution(x, w, strides, pads, spread, apart, groups, dtype, wish)
    order = _last(numbers.out_spec, 0, 1)
    return transpose(out, tuple(order.index(a) for a in range(rank + 2)))


def _last(spec: Sequence[int], first: int, last: int, examples_first: bool = True) -> Axes:
    """Return the axes of `spec` with the spatial ones before the last, and the first in front.

    Of a kernel the spatial ones come first.
    """
    ends, spatial = spec[:2], tuple(spec[2:])
    if examples_first:
        return (ends[first], *spatial, ends[last])
    return (*spatial, ends[first], ends[last])


def _check_lengths(rank: int, **given: Sequence[Any]) -> None:
    for name, values in given.items():
        if len(values) != rank:
            raise ArgumentError(
                f"convolution: {name}={tuple(values)} has {len(values)} entries, and there are "
                f"{rank} spatial axes.",
                advice="Give one for each spatial axis.",
            )


def _groups(x: Shape, w: Shape, by_feature: int, by_batch: int) -> int:
    """Return the number of groups of channels; raises where they do not divide what they group."""
    if by_feature < 1 or by_batch < 1 or (by_feature > 1 and by_batch > 1):
        raise ArgumentValueError(
            f"convolution: feature_group_count={by_feature}, batch_group_count={by_batch}.",
            advice="Both are positive, and one of them is 1.",
        )
    name, count, what = "feature_group_count", by_feature, x[-1]
    if by_batch > 1:
        name, count, what = "batch_group_count", by_batch, x[0]
    for n in (what, w[-1]):
        if isinstance(n, int) and n % count:
            raise ArgumentValueError(
                f"convolution: {name}={count} does not divide {n}, in operands of shapes {x} "
                f"and {w} (channels last).",
                advice="It divides the filters, and the channels or the examples.",
            )
    if x[-1] != w[-2] * by_feature:
        raise ShapeError(
            f"convolution: a kernel with {w[-2]} channels, {by_feature} groups, and operands with "
            f"{x[-1]} channels.",
            advice="The kernel has as many channels as a group of the operand.",
        )
    return max(by_feature, by_batch)


def _examples_as_channels(x: Any, groups: int) -> Any:
    """Return x[g * n, *s, c] as [n, *s, g * c]: groups of examples become groups of channels."""
    examples, *spatial, channels = type_of(x).shape
    parts = reshape(x, (groups, examples // groups, *spatial, channels))
    moved = move_axis(parts, 0, len(spatial) + 1)
    return reshape(moved, (examples // groups, *spatial, groups * channels))


def conv(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the convolution of "NCHW" with "OIHW"; see `conv_general_dilated`."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_with_general_padding(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the convolution of "NCHW" with "OIHW"; see `conv_general_dilated`."""
    return conv_general_dilated(
        lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


# The layouts of conv_transpose, by the number of axes.
_LAYOUTS = {
    2: ("NC", "IO", "NC"),
    3: ("NHC", "HIO", "NHC"),
    4: ("NHWC", "HWIO", "NHWC"),
    5: ("NHWDC", "HWDIO", "NHWDC"),
}


def conv_transpose(
    lhs: Any,
    rhs: Any,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Any:
    """Return what pulls a convolution with `strides` back: `lhs` is spread by them, then convolved.

    A `padding` that is named, or any with `use_consistent_padding`, is that of the convolution that
    is pulled back.  With `transpose_kernel` the kernel is that of the convolution too: it is turned
    round, and its channels and filters change places.  The default layout is "NHWC", "HWIO".
    """
    lhs, rhs = arrays("conv_transpose", lhs, rhs)
    if dimension_numbers is None and lhs.ndim not in _LAYOUTS:
        raise ArgumentValueError(
            f"conv_transpose: there is no default layout for {lhs.ndim} axes.",
            advice="Pass dimension_numbers.",
        )
    numbers = conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers or _LAYOUTS[lhs.ndim])
    rank = lhs.ndim - 2
    apart = tuple(rhs_dilation) if rhs_dilation is not None else (1,) * rank
    if use_consistent_padding or padding in ("SAME", "VALID"):
        spans = [spanned(rhs.shape[a], d) for a, d in zip(numbers.rhs_spec[2:], apart, strict=True)]
        wanted = [padding] * rank if isinstance(padding, str) else padding
        padding = [
            _transposed_padding(n, stride, p)
            for n, stride, p in zip(spans, strides, wanted, strict=True)
        ]
    if transpose_kernel:
        rhs = rev(rhs, tuple(numbers.rhs_spec[2:]))
        order = list(range(rhs.ndim))
        a, b = numbers.rhs_spec[:2]
        order[a], order[b] = b, a
        rhs = transpose(rhs, tuple(order))
    return conv_general_dilated(
        lhs, rhs, (1,) * rank, padding, strides, apart, numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def _transposed_padding(span: Any, stride: int, padding: Any) -> tuple[int, int]:
    """Return the padding with which a convolution with a window of `span` is pulled back."""
    if padding == "SAME":
        total = span + stride - 2
        before = span - 1 if stride > span - 1 else -(-total // 2)
        return before, total - before
    if padding == "VALID":
        return span - 1, stride - 1 + max(span - stride, 0)
    low, high = padding
    return span - 1 - low, span - 1 - high


def conv_general_dilated_patches(
    lhs: Any,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Any:
    """Return the windows of `lhs`: the channels of the result are the elements of a window.

    They are numbered by channel first, then by the place in the window, in the order in which
    `filter_shape` names the axes; nothing is computed, so infinities stay where they are.
    """
    (lhs,) = arrays("conv_general_dilated_patches", lhs)
    sizes = tuple(filter_shape)
    rank = len(sizes)
    numbers = conv_dimension_numbers(lhs.shape, (1, 1, *sizes), dimension_numbers)
    spread, apart = (
        tuple(d) if d is not None else (1,) * rank for d in (lhs_dilation, rhs_dilation)
    )
    x = transpose(lhs, _last(numbers.lhs_spec, 0, 1))
    spans = [(n - 1) * d + 1 for n, d in zip(sizes, apart, strict=True)]
    pads = padtype_to_pads(type_of(x).shape[1:-1], spans, window_strides, padding)
    frame = [(0, 0, 0), *((a, b, n - 1) for (a, b), n in zip(pads, spread, strict=True)), (0, 0, 0)]
    x = pad(x, full((), 0, x.dtype), frame)
    shape = type_of(x).shape
    counts = [
        stride_count(n, span, stride)
        for n, span, stride in zip(shape[1:-1], spans, window_strides, strict=True)
    ]
    parts = []
    for number in range(math.prod(sizes)):
        starts = [d * k for d, k in zip(apart, _place(number, sizes), strict=True)]
        limits = [
            a + (n - 1) * s + 1 if n else a
            for a, n, s in zip(starts, counts, window_strides, strict=True)
        ]
        part = slice_(x, (0, *starts, 0), (shape[0], *limits, shape[-1]), (1, *window_strides, 1))
        parts.append(reshape(part, (*type_of(part).shape, 1)))
    windows = concatenate(parts, rank + 2)
    windows = reshape(windows, (*type_of(windows).shape[:-2], shape[-1] * len(parts)))
    if preferred_element_type is not None:
        windows = convert(windows, check_dtype(preferred_element_type))
    order = _last(numbers.out_spec, 0, 1)
    return transpose(windows, tuple(order.index(a) for a in range(rank + 2)))


def _place(number: int, sizes: Sequence[int]) -> list[int]:
    """Return the place with a number, in row-major order."""
    place = []
    for n in reversed(sizes):
        number, at = divmod(number, n)
        place.append(at)
    return place[::-1]


def conv_general_dilated_local(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Padding,
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
) -> Any:
    """Return a convolution that has a kernel of its own at every place.

    `rhs` has the places of the result on its spatial axes, and the elements of a window, as
    `conv_general_dilated_patches` numbers them, as its channels.
    """
    lhs, rhs = arrays("conv_general_dilated_local", lhs, rhs)
    patches = conv_general_dilated_patches(
        lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers
    )
    numbers = conv_dimension_numbers(lhs.shape, (1, 1, *filter_shape), dimension_numbers)
    out, kernel = numbers.out_spec, numbers.rhs_spec
    pairs = sorted(zip(out[2:], kernel[2:], strict=True))
    contracted = ((out[1],), (kernel[1],))
    places = (tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
    product = dot_general(patches, rhs, (contracted, places), precision)
    # The places are in front, in the order of the result's axes, then examples and filters.
    order = [a for a, _ in pairs] + [out[0], out[1]]
    return transpose(product, tuple(order.index(a) for a in range(len(order))))


# --- shapes ---


def conv_shape_tuple(
    lhs_shape: Sequence[Any],
    rhs_shape: Sequence[Any],
    strides: Sequence[int],
    pads: Padding,
    batch_group_count: int = 1,
) -> tuple[Any, ...]:
    """Return the shape of a convolution of "NCHW" with "OIHW"."""
    pairs = padtype_to_pads(lhs_shape[2:], rhs_shape[2:], strides, pads)
    _check_lengths(len(lhs_shape) - 2, padding=pairs)
    counts = [
        stride_count(n + low + high, size, stride)
        for n, (low, high), size, stride in zip(
            lhs_shape[2:], pairs, rhs_shape[2:], strides, strict=True
        )
    ]
    return (lhs_shape[0] // batch_group_count, rhs_shape[0], *counts)


def conv_general_shape_tuple(
    lhs_shape: Sequence[Any],
    rhs_shape: Sequence[Any],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Any,
) -> tuple[Any, ...]:
    """Return the shape of a convolution in the layout of `dimension_numbers`."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    shape = conv_shape_tuple(
        [lhs_shape[a] for a in lhs], [rhs_shape[a] for a in rhs], window_strides, padding
    )
    return tuple(shape[out.index(a)] for a in range(len(out)))


def conv_transpose_shape_tuple(
    lhs_shape: Sequence[Any],
    rhs_shape: Sequence[Any],
    window_strides: Sequence[int],
    padding: Padding,
    dimension_numbers: Any,
) -> tuple[Any, ...]:
    """Return the shape of what pulls a convolution back, in the layout of `dimension_numbers`."""
    lhs, rhs, out = conv_general_permutations(dimension_numbers)
    sizes = [rhs_shape[a] for a in rhs[2:]]
    if isinstance(padding, str):
        padding = [
            _transposed_padding(n, s, padding) for n, s in zip(sizes, window_strides, strict=True)
        ]
    counts = [
        (lhs_shape[a] - 1) * stride - n + 2 + low + high
        for a, n, stride, (low, high) in zip(lhs[2:], sizes, window_strides, padding, strict=True)
    ]
    shape = (lhs_shape[lhs[0]], rhs_shape[rhs[0]], *counts)
    return tuple(shape[out.index(a)] for a in range(len(out)))
