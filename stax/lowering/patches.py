"""Convolutions as products of matrices of which one holds the windows, patch by patch.

`Patches` is index arithmetic: each element of a window is read where it lies, so a kernel that
pads, spreads and transposes writes the matrix in one go, and forward and weight gradient share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.lowering.element import static_size
from stax.lowering.split import Copy
from stax.op import Op
from stax.operators.broadcast import broadcast_in_dim, reduce_sum
from stax.operators.contract import dot_general
from stax.operators.convolution import Convolution
from stax.operators.elementwise import convert, mul
from stax.operators.reshape import reshape
from stax.operators.shape import pad, transpose
from stax.trace import bind, full
from stax.types import ArrayType, Shape


@dataclass(frozen=True, eq=False)
class Patches(Op):
    """Windows of x[n, *s, c] along the axes in the middle: out[n, *i, *j, c].

    `outer` windows lie `strides` apart, and the `inner` elements of one `dilation` apart.
    """

    outer: Shape
    inner: Shape
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    name: ClassVar[str] = "patches"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        (x,) = types
        return x.with_shape((x.shape[0], *self.outer, *self.inner, x.shape[-1]))

    def evaluate(self, *arrays: Any) -> Any:
        (x,) = arrays
        first, *middle, last = x.strides
        outer = (s * n for s, n in zip(middle, self.strides, strict=True))
        inner = (s * n for s, n in zip(middle, self.dilation, strict=True))
        shape = (x.shape[0], *self.outer, *self.inner, x.shape[-1])
        strides = (first, *outer, *inner, last)
        return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        first, *middle, last = index
        rank = len(self.strides)
        places = (
            kernel.plus(kernel.times(i, stride), kernel.times(j, apart))
            for i, j, stride, apart in zip(
                middle[:rank], middle[rank:], self.strides, self.dilation, strict=True
            )
        )
        return operands[0]((first, *places, last))


def as_product(op: Convolution, x: Any, w: Any, near: int | None = None) -> Any:
    """Return a convolution as a product; its kernels sum in the type in which it does.

    Along axis `near`, if that is known, `x` lies in memory element by element.  Patches read rows
    along their last axis, so they are read from a copy where that is another one.
    """
    out = op.abstract_eval(x.type, w.type)
    wide = op.accumulates(x.type.dtype, w.type.dtype)
    x, w = convert(x, wide), convert(w, wide)
    counts, sizes = out.shape[1:-1], w.type.shape[:-2]
    if any(isinstance(n, int) and not n for n in (*out.shape, *w.type.shape)):
        return full(out.shape, 0, out.dtype, out.weak)
    framed = pad(x, full((), 0, wide), op.frame)
    # As many windows as the shorter of the two has elements: a gradient in the kernel then reads
    # the patches of the forward convolution.
    turned = static_size(sizes) > static_size(counts)
    if op.groups == 1:
        is_far = near is not None and near != (0 if turned else x.type.ndim - 1)
        found = _plain(op, framed, w, counts, sizes, turned, is_far)
    elif w.type.shape[-2] == 1:
        found = _by_channel(op, framed, w, counts, sizes)
    else:
        found = _grouped(op, framed, w, counts, sizes, turned)
    return convert(reshape(found, out.shape), out.dtype, out.weak)


def form_of(op: Convolution, kernel: ArrayType) -> str:
    """Say how `as_product` writes a convolution."""
    if op.groups == 1:
        return "a product with patches"
    if kernel.shape[-2] == 1:
        return "patches times the filters of each channel, summed"
    return f"a product with patches for each of {op.groups} groups"


def _plain(
    op: Convolution, x: Any, w: Any, counts: Shape, sizes: Shape, turned: bool, is_far: bool
) -> Any:
    rank = len(sizes)
    at_kernel, at_result = tuple(range(rank)), tuple(range(1, rank + 1))
    if turned:
        x = transpose(x, (rank + 1, *at_result, 0))
    if is_far:
        x = bind(Copy(), x)
    if not turned:
        patches = bind(Patches(counts, sizes, op.strides, op.window_spread), x)
        axes = tuple(range(rank + 1, 2 * rank + 2))
        return dot_general(patches, w, ((axes, (*at_kernel, rank)), ((), ())))
    patches = bind(Patches(sizes, counts, op.window_spread, op.strides), x)
    # patches[c, *k, *t, n] and w[*k, c, o], the kernel with its channels in front
    w = transpose(w, (rank, *at_kernel, rank + 1))
    axes = tuple(range(rank + 1))
    product = dot_general(patches, w, ((axes, axes), ((), ())))
    return transpose(product, (rank, *range(rank), rank + 1))


def _by_channel(op: Convolution, x: Any, w: Any, counts: Shape, sizes: Shape) -> Any:
    """Multiply and add where every channel has filters of its own: there is no product in it."""
    rank, filters = len(sizes), w.type.shape[-1] // op.groups
    patches = bind(Patches(counts, sizes, op.strides, op.window_spread), x)
    shape = (*patches.type.shape, filters)
    kernel = reshape(w, (*sizes, op.groups, filters))
    places = tuple(range(rank + 1, 2 * rank + 3))
    products = mul(
        broadcast_in_dim(patches, shape, tuple(range(len(shape) - 1))),
        broadcast_in_dim(kernel, shape, places),
    )
    return reduce_sum(products, tuple(range(rank + 1, 2 * rank + 1)))


def _grouped(op: Convolution, x: Any, w: Any, counts: Shape, sizes: Shape, turned: bool) -> Any:
    rank, groups = len(sizes), op.groups
    channels, filters = w.type.shape[-2], w.type.shape[-1] // groups
    examples, *lengths, _ = x.type.shape
    kernel = reshape(w, (*sizes, channels, groups, filters))
    middle = tuple(range(1, rank + 1))
    if not turned:
        patches = bind(Patches(counts, sizes, op.strides, op.window_spread), x)
        patches = reshape(patches, (examples, *counts, *sizes, groups, channels))
        order = (2 * rank + 1, *range(2 * rank + 1), 2 * rank + 2)
        patches = transpose(patches, order)  # [g, n, *t, *k, c]
        kernel = transpose(kernel, (rank + 1, *range(rank + 1), rank + 2))  # [g, *k, c, o]
        axes = tuple(range(rank + 2, 2 * rank + 3))
        product = dot_general(patches, kernel, ((axes, (*middle, rank + 1)), ((0,), (0,))))
        return transpose(product, (*range(1, rank + 2), 0, rank + 2))
    parts = reshape(x, (examples, *lengths, groups, channels))
    swapped = transpose(parts, (rank + 2, *middle, rank + 1, 0))
    swapped = reshape(swapped, (channels, *lengths, groups * examples))
    patches = bind(Patches(sizes, counts, op.window_spread, op.strides), swapped)
    patches = reshape(patches, (channels, *sizes, *counts, groups, examples))
    order = (2 * rank + 1, *range(2 * rank + 1), 2 * rank + 2)
    patches = transpose(patches, order)  # [g, c, *k, *t, n]
    kernel = transpose(kernel, (rank + 1, rank, *range(rank), rank + 2))  # [g, c, *k, o]
    axes = tuple(range(1, rank + 2))
    product = dot_general(patches, kernel, ((axes, axes), ((0,), (0,))))  # [g, *t, n, o]
    return transpose(product, (rank + 1, *range(1, rank + 1), 0, rank + 2))
