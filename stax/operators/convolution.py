"""Convolution: one op, channels last.

    x[n, *s, c], w[*k, c, o] -> out[n, *t, o]
    out[n, t, o] = sum over k and c of x[n, t * stride + k, c] * w[k, c, o]

over as many spatial axes as there are, x padded and spread, w spread.  With `groups`, the channels
and the filters fall into that many parts, and part i of the filters sees part i of the channels.
Other layouts are transposes of this one, and a batch axis becomes part of the examples, of the
filters or of the groups, so that the op needs no parameters for them.

The derivatives are convolutions: in x, of the cotangent with the kernel turned round; in w, of x
with the cotangent as the kernel, examples and channels having changed places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import DTypeError, ShapeError
from stax.extent import Dimension
from stax.op import Batch
from stax.operators.contract import BilinearOp
from stax.operators.reshape import reshape, rev
from stax.operators.shape import Pad, transpose
from stax.trace import Proxy, bind, type_of
from stax.types import ArrayType, Shape, accumulator, promote

Pairs = tuple[tuple[Dimension, Dimension], ...]
Sizes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Convolution(BilinearOp):
    """Sum products of windows of the first operand with the second; see the module.

    `padding` is (low, high) for each spatial axis, negative where it cuts away; `spread` and
    `window_spread` are how far apart the elements of the operands are placed.  `dtype` is that of
    the result, or None for that of the operands; `precision` as in DotGeneral.
    """

    strides: Sizes
    padding: Pairs
    spread: Sizes
    window_spread: Sizes
    groups: int
    dtype: Any = None
    precision: Any = None
    name: ClassVar[str] = "convolution"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        x, w = operands
        self._check(x, w)
        if self.dtype is None and x.dtype != w.dtype:
            raise DTypeError(
                f"convolution: operands must have one dtype, got {x} and {w}.",
                advice="Convert with astype, or name preferred_element_type.",
            )
        shape = (x.shape[0], *self.counts(x.shape, w.shape), w.shape[-1])
        return ArrayType(self.dtype or x.dtype, shape, x.weak and w.weak and not self.dtype)

    def _check(self, x: ArrayType, w: ArrayType) -> None:
        rank = len(self.strides)
        if any(t.dtype not in types.NUMERIC for t in (x, w)):
            raise DTypeError(f"convolution does not accept {x} and {w}.")
        lengths = {rank, len(self.padding), len(self.spread), len(self.window_spread)}
        if len(lengths) > 1 or x.ndim != rank + 2 or w.ndim != rank + 2:
            raise ShapeError(
                f"convolution: strides {self.strides}, padding {self.padding} and dilations "
                f"{self.spread}, {self.window_spread} do not fit {x} and {w}.",
                advice="Give one for each axis between examples and channels.",
            )
        if min((*self.strides, *self.spread, *self.window_spread, 1)) < 1 or self.groups < 1:
            raise ShapeError("convolution: strides, dilations and groups are at least 1.")
        channels, filters = w.shape[-2:]
        if x.shape[-1] != channels * self.groups or filters % self.groups:
            raise ShapeError(
                f"convolution: {w} does not take the channels of {x} in {self.groups} groups.",
                advice="The kernel has the channels of a group, and filters for each group.",
            )

    def counts(self, x: Shape, w: Shape) -> tuple[Dimension, ...]:
        """Return how many windows there are along each spatial axis."""
        found: list[Dimension] = []
        for n, size, stride, (low, high), spread, apart in zip(
            x[1:-1], w[:-2], self.strides, self.padding, self.spread, self.window_spread,
            strict=True,
        ):  # fmt: skip
            room = spanned(n, spread) + low + high - spanned(size, apart)
            count = room if stride == 1 else room // stride
            found.append(max(0, count + 1) if isinstance(count, int) else count + 1)
        return tuple(found)

    @property
    def frame(self) -> tuple[tuple[Dimension, Dimension, int], ...]:
        """How the first operand is padded, in the terms of `Pad`."""
        pairs = zip(self.padding, self.spread, strict=True)
        return ((0, 0, 0), *((low, high, n - 1) for (low, high), n in pairs), (0, 0, 0))

    def accumulates(self, x: Any, w: Any) -> np.dtype:
        """Return the type in which products of the dtypes `x` and `w` are summed."""
        return accumulator(promote(*(ArrayType(d, ()) for d in (x, w, self.dtype or x)))[0])

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        x, w = arrays
        wide, rank = self.accumulates(x.dtype, w.dtype), len(self.strides)
        counts = self.counts(x.shape, w.shape)
        shape = (x.shape[0], *map(int, counts), w.shape[-1])
        if 0 in shape or 0 in w.shape:
            return np.zeros(shape, self.dtype or x.dtype)
        framed = Pad(self.frame).evaluate(x.astype(wide), np.zeros((), wide))
        spans = tuple(
            int(spanned(n, d)) for n, d in zip(w.shape[:-2], self.window_spread, strict=True)
        )
        windows = np.lib.stride_tricks.sliding_window_view(
            framed, spans, axis=tuple(range(1, rank + 1))
        )
        every = slice(None)
        apart = (slice(None, None, n) for n in self.window_spread)
        windows = windows[(every, *(slice(None, None, n) for n in self.strides), every, *apart)]
        # windows[n, *t, c, *k]: the channels come last, and by groups in front
        columns = np.moveaxis(windows, rank + 1, -1)
        rows = math.prod(shape[:-1])
        channels = w.shape[-2]
        columns = columns.reshape(rows, math.prod(w.shape[:-2]), self.groups, channels)
        columns = columns.transpose(2, 0, 1, 3).reshape(self.groups, rows, -1)
        kernel = w.astype(wide).reshape(math.prod(w.shape[:-1]), self.groups, -1)
        with np.errstate(all="ignore"):
            out = np.matmul(columns, kernel.transpose(1, 0, 2))
            return out.transpose(1, 0, 2).reshape(shape).astype(self.dtype or x.dtype, copy=False)

    def pull_lhs(self, ct: Any, x: ArrayType, w: Any) -> Any:
        """Return the cotangent of `x`: that of the result, spread by the strides, convolved with
        the kernel turned round, channels and filters having changed places."""
        spatial = tuple(range(len(self.strides)))
        *sizes, channels, filters = type_of(w).shape
        turned = _grouped_swap(rev(w, spatial), self.groups, channels, filters)
        padding = []
        for n, size, count, stride, (low, _), spread, apart in zip(
            x.shape[1:-1], sizes, type_of(ct).shape[1:-1], self.strides, self.padding, self.spread,
            self.window_spread, strict=True,
        ):  # fmt: skip
            before = spanned(size, apart) - 1 - low
            whole = spanned(n, spread) + spanned(size, apart) - 1
            padding.append((before, whole - spanned(count, stride) - before))
        op = Convolution(
            self.spread, tuple(padding), self.strides, self.window_spread, self.groups,
            self._back(x), self.precision,
        )  # fmt: skip
        return bind(op, ct, turned)

    def pull_rhs(self, ct: Any, x: Any, w: ArrayType) -> Any:
        """Return the cotangent of the kernel: windows of `x` as far apart as its elements are,
        each multiplied with the whole cotangent and summed over examples."""
        rank = len(self.strides)
        examples, *lengths, _ = type_of(x).shape
        *sizes, channels, _ = w.shape
        counts = type_of(ct).shape[1:-1]
        if self.groups == 1:
            swapped = transpose(x, (rank + 1, *range(1, rank + 1), 0))
        else:
            parts = reshape(x, (examples, *lengths, self.groups, channels))
            order = (rank + 2, *range(1, rank + 1), rank + 1, 0)
            swapped = reshape(transpose(parts, order), (channels, *lengths, self.groups * examples))
        padding = []
        for n, size, count, stride, (low, _), spread, apart in zip(
            lengths, sizes, counts, self.strides, self.padding, self.spread, self.window_spread,
            strict=True,
        ):  # fmt: skip
            room = spanned(count, stride) + spanned(size, apart) - 1
            padding.append((low, room - spanned(n, spread) - low))
        op = Convolution(
            self.window_spread, tuple(padding), self.spread, self.strides, self.groups,
            self._back(w), self.precision,
        )  # fmt: skip
        kernel = transpose(ct, (*range(1, rank + 1), 0, rank + 1))
        return transpose(bind(op, swapped, kernel), (*range(1, rank + 1), 0, rank + 1))

    def _back(self, t: ArrayType) -> Any:
        return t.dtype if self.dtype is not None else None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        x, w = inputs
        if not flags[1]:
            return self._batch_examples(batch.size, x, w)
        rank, groups = len(self.strides), self.groups
        *_, channels, filters = type_of(w).shape
        by_group = reshape(w, (*type_of(w).shape[:-1], groups, filters // groups))
        # by_group[b, *k, c, g, o]
        if flags[0]:
            x = transpose(x, (1, *range(2, rank + 2), 0, rank + 2))
            x = reshape(x, (*type_of(x).shape[:-2], batch.size * groups * channels))
            front = (*range(1, rank + 2), 0, rank + 2, rank + 3)
            outer: Shape = (batch.size, groups)
        else:
            front = (*range(1, rank + 2), rank + 2, 0, rank + 3)
            outer = (groups, batch.size)
        kernel = transpose(by_group, front)
        kernel = reshape(kernel, (*type_of(kernel).shape[:-3], batch.size * filters))
        op = self if not flags[0] else self._in_groups(batch.size * groups)
        out = bind(op, x, kernel)
        out = reshape(out, (*type_of(out).shape[:-1], *outer, filters // groups))
        at = rank + 1 + (not flags[0])
        out = transpose(out, (at, *(a for a in range(rank + 4) if a != at)))
        return reshape(out, (*type_of(out).shape[:-2], filters))

    def _batch_examples(self, size: Dimension, x: Any, w: Any) -> Any:
        _, examples, *rest = type_of(x).shape
        out = bind(self, reshape(x, (size * examples, *rest)), w)
        return reshape(out, (size, examples, *type_of(out).shape[1:]))

    def _in_groups(self, groups: Any) -> Convolution:
        return Convolution(
            self.strides, self.padding, self.spread, self.window_spread, groups, self.dtype,
            self.precision,
        )  # fmt: skip


def spanned(length: Dimension, spread: int) -> Dimension:
    """Return the length of `length` elements that lie `spread` apart."""
    if isinstance(length, int) and not length:
        return 0
    return (length - 1) * spread + 1 if spread > 1 else length


def _grouped_swap(w: Any, groups: int, channels: Dimension, filters: Dimension) -> Any:
    """Return a kernel whose channels and filters have changed places, in each group."""
    sizes = type_of(w).shape[:-2]
    rank = len(sizes)
    parts = reshape(w, (*sizes, channels, groups, filters // groups))
    turned = transpose(parts, (*range(rank), rank + 2, rank + 1, rank))
    return reshape(turned, (*sizes, filters // groups, groups * channels))


def convolution(
    x: Any,
    w: Any,
    strides: Sequence[int],
    padding: Sequence[tuple[Dimension, Dimension]],
    spread: Sequence[int],
    window_spread: Sequence[int],
    groups: int = 1,
    dtype: Any = None,
    precision: Any = None,
) -> Any:
    """Return the convolution of x[n, *s, c] with w[*k, c, o]; see `Convolution`."""
    op = Convolution(
        tuple(strides), tuple((low, high) for low, high in padding), tuple(spread),
        tuple(window_spread), groups, dtype, precision,
    )  # fmt: skip
    return bind(op, x, w)
