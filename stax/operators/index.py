"""Indexing with arrays: `gather` reads windows of an array, `scatter` writes them.

Both are XLA's general forms, with `jax.lax`'s dimension numbers.  The last axis of the indices
holds the place of a window in the operand; the other axes count windows.  The idea shared by all
rules is the *window*: its place in the operand, one start for each axis, and its size.  An index is
out of bounds if any part of its window is; then `clip` moves the window inside, and `fill` reads a
fill value and writes nothing.  A promise that all are inside is not trusted: reading clips, writing
drops.

    gather(x, i, GatherDimensionNumbers((1,), (0,), (0,)), (1, n))      rows of x: x[i[:, 0]]
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError, MissingRule, ShapeError
from stax.extent import Dimension, product, same_shape
from stax.op import Batch, Linear, Op
from stax.operators.broadcast import broadcast_in_dim, lead_all
from stax.operators.elementwise import add, div, eq, like, mul, select
from stax.operators.shape import iota, reshape
from stax.trace import Proxy, as_array, bind, full, zeros, zeros_like
from stax.types import ArrayType, Shape, accumulator, int32

Axes = tuple[int, ...]


class GatherScatterMode(enum.Enum):
    """What happens to windows that are not inside the operand."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(value: Any) -> GatherScatterMode:
        """Return the mode for one of JAX's names of it; None is that of scatters, `fill`."""
        if isinstance(value, GatherScatterMode):
            return value
        found = _MODES.get(value)
        if found is None:
            raise ArgumentValueError(
                f"{value!r} is not a mode for out-of-bounds indices.",
                advice="Modes are 'clip', 'fill' (or 'drop') and 'promise_in_bounds'.",
            )
        return found


_MODES = {
    None: GatherScatterMode.FILL_OR_DROP,
    "fill": GatherScatterMode.FILL_OR_DROP,
    "drop": GatherScatterMode.FILL_OR_DROP,
    "clip": GatherScatterMode.CLIP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
}


class GatherDimensionNumbers(NamedTuple):
    """How axes of operand, indices and result of a gather belong together, as in `jax.lax`.

    `offset_dims` are the axes of the result that run within a window, in the order of the operand's
    axes that are in neither `collapsed_slice_dims` nor `operand_batching_dims`; component `k` of an
    index is the start along operand axis `start_index_map[k]`; axes in `operand_batching_dims` are
    paired with those in `start_indices_batching_dims`.
    """

    offset_dims: Axes
    collapsed_slice_dims: Axes
    start_index_map: Axes
    operand_batching_dims: Axes = ()
    start_indices_batching_dims: Axes = ()


class ScatterDimensionNumbers(NamedTuple):
    """How axes of operand, indices and updates of a scatter belong together, as in `jax.lax`."""

    update_window_dims: Axes
    inserted_window_dims: Axes
    scatter_dims_to_operand_dims: Axes
    operand_batching_dims: Axes = ()
    scatter_indices_batching_dims: Axes = ()


class Window(NamedTuple):
    """The part of the dimension numbers that both ops share, read one way for both.

    `inner` are the axes of the windows (the result of a gather, the updates of a scatter) that run
    within a window, `dropped` the operand's axes that windows do not have.
    """

    inner: Axes
    dropped: Axes
    starts: Axes
    paired: Axes
    paired_indices: Axes

    def kept(self, ndim: int) -> Axes:
        """Return the axes of an operand with `ndim` axes that run within a window."""
        return tuple(a for a in range(ndim) if a not in self.dropped and a not in self.paired)

    def outer(self, ndim: int) -> Axes:
        """Return the axes of windows with `ndim` axes that count windows."""
        return tuple(a for a in range(ndim) if a not in self.inner)

    def check(self, name: str, operand: ArrayType, indices: ArrayType, ndim: int) -> None:
        """Raise unless the numbers fit an operand, indices and windows with `ndim` axes."""
        if not types.is_integer(indices.dtype):
            raise DTypeError(
                f"{name}: indices must be integers, got {indices}.",
                advice="Convert them with astype(int).",
            )
        if not indices.ndim or not same_shape(indices.shape[-1:], (len(self.starts),)):
            raise ShapeError(
                f"{name}: the last axis of the indices {indices} must hold "
                f"{len(self.starts)} components, one for each of the axes {self.starts}."
            )
        axes = (*self.dropped, *self.paired, *self.starts)
        alone = (*self.dropped, *self.paired)
        if not all(0 <= a < operand.ndim for a in axes) or len(set(alone)) != len(alone):
            raise ShapeError(
                f"{name}: axes {self[1:4]} are out of range or named twice in {operand}."
            )
        if set(self.starts) & set(self.paired) or len(set(self.starts)) != len(self.starts):
            raise ShapeError(f"{name}: axes {self.starts} are indexed twice in {operand}.")
        if len(self.inner) != len(self.kept(operand.ndim)):
            raise ShapeError(
                f"{name}: {len(self.inner)} window axes {self.inner} are named for the "
                f"{len(self.kept(operand.ndim))} axes of {operand} that windows have."
            )
        if any(a >= b for a, b in itertools.pairwise((-1, *self.inner, ndim))):
            raise ShapeError(f"{name}: window axes {self.inner} must rise and be less than {ndim}.")
        for a, b in zip(self.paired, self.paired_indices, strict=True):
            if not same_shape((operand.shape[a],), (indices.shape[b],)):
                raise ShapeError(
                    f"{name}: batch axes differ in size, axis {a} of {operand} and axis {b} "
                    f"of the indices {indices}."
                )

    def batched(self, operand: bool, indices: bool) -> Window:
        """Return the numbers when operand or indices (or both) have one more axis in front.

        The windows have one more axis in front too: within a window if only the operand has it.
        """
        inner, dropped, starts, paired, paired_indices = (
            tuple(a + shift for a in axes)
            for axes, shift in zip(self, (1, operand, operand, operand, indices), strict=True)
        )
        if operand and indices:
            return Window(inner, dropped, starts, (0, *paired), (0, *paired_indices))
        if operand:
            return Window((0, *inner), dropped, starts, paired, paired_indices)
        return Window(inner, dropped, starts, paired, paired_indices)


class _Selection(NamedTuple):
    """Windows of a NumPy array: `view[key]` has the windows' elements.

    `view` orders the axes of the array as `order` says, with an axis of length 1 in front; the
    result has one axis that counts windows, then the axes in `order`.
    """

    order: Axes
    key: tuple[np.ndarray, ...]
    inside: np.ndarray


def _selection(
    shape: Sequence[int], sizes: Sequence[int], window: Window, indices: np.ndarray
) -> _Selection:
    """Return how to index an array of `shape` for the windows that `indices` name, moved inside."""
    outer = indices.shape[:-1]
    starts = np.zeros((len(shape), *outer), np.int64)
    for component, a in enumerate(window.starts):
        starts[a] = indices[..., component]
    for a, b in zip(window.paired, window.paired_indices, strict=True):
        starts[a] = np.arange(outer[b]).reshape(-1, *(1,) * (len(outer) - b - 1))
    starts = starts.reshape(len(shape), math.prod(outer))
    room = np.array([n - size for n, size in zip(shape, sizes, strict=True)], np.int64).reshape(
        -1, 1
    )
    inside = np.all((starts >= 0) & (starts <= room), axis=0)
    starts = np.clip(starts, 0, room)
    # An axis that windows span needs no index; a slice of it moves as one block.
    indexed = [a for a, (n, size) in enumerate(zip(shape, sizes, strict=True)) if n != size]
    rest = [a for a in range(len(shape)) if a not in indexed]
    key = [np.zeros((starts.shape[1], *(1,) * len(indexed)), np.int64)]
    for position, a in enumerate(indexed):
        steps = [1] * len(indexed)
        steps[position] = sizes[a]
        within = np.arange(sizes[a]).reshape(steps)
        key.append(starts[a].reshape(-1, *(1,) * len(indexed)) + within)
    return _Selection((*indexed, *rest), tuple(key), inside)


def _view(array: np.ndarray, selection: _Selection) -> np.ndarray:
    return array.transpose(selection.order)[np.newaxis]


@dataclass(frozen=True, eq=False)
class Gather(Op):
    """Read windows of `sizes` at the places that the indices name."""

    numbers: GatherDimensionNumbers
    sizes: Shape
    mode: GatherScatterMode
    fill_value: Any
    unique: bool
    name: ClassVar[str] = "gather"

    @property
    def window(self) -> Window:
        return Window(*self.numbers)

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        operand, indices = operands
        window, ndim = self.window, len(self.numbers.offset_dims) + indices.ndim - 1
        window.check(self.name, operand, indices, ndim)
        if len(self.sizes) != operand.ndim or any(
            isinstance(size, int) and isinstance(n, int) and not 0 <= size <= n
            for size, n in zip(self.sizes, operand.shape, strict=False)
        ):
            raise ShapeError(f"gather: windows of {self.sizes} do not fit in {operand}.")
        for a in (*window.dropped, *window.paired):
            if not isinstance(self.sizes[a], int) or self.sizes[a] != 1:
                raise ShapeError(f"gather: axis {a} of windows {self.sizes} must have length 1.")
        shape: list[Dimension] = [0] * ndim
        for a, n in zip(window.outer(ndim), indices.shape, strict=False):
            shape[a] = n
        for a, b in zip(window.inner, window.kept(operand.ndim), strict=True):
            shape[a] = self.sizes[b]
        return operand.with_shape(tuple(shape))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        operand, indices = arrays
        window, sizes = self.window, [int(size) for size in self.sizes]
        selection = _selection(operand.shape, sizes, window, indices)
        out = _view(operand, selection)[selection.key]
        if self.mode is GatherScatterMode.FILL_OR_DROP and not selection.inside.all():
            out[~selection.inside] = np.asarray(self.fill_value).astype(operand.dtype)
        out = out.transpose(0, *(selection.order.index(a) + 1 for a in range(operand.ndim)))
        kept, outer = window.kept(operand.ndim), indices.shape[:-1]
        out = out.reshape((*outer, *(sizes[a] for a in kept)))
        places = (*window.outer(out.ndim), *window.inner)
        return out.transpose(tuple(places.index(a) for a in range(out.ndim)))

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        t = tangents[0]
        return None if t is None else bind(self._filling(0), t, primals[1])

    def _filling(self, value: Any) -> Gather:
        return Gather(self.numbers, self.sizes, self.mode, value, self.unique)

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        operand: Linear = inputs[0]
        numbers = ScatterDimensionNumbers(*self.numbers)
        plus = Scatter("add", numbers, self.mode, self.unique)
        return bind(plus, zeros(operand.type), inputs[1], ct), None

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        operand, indices = flags
        numbers = GatherDimensionNumbers(*self.window.batched(operand, indices))
        sizes = self.sizes
        if operand:
            sizes = (1 if indices else batch.size, *sizes)
        return bind(Gather(numbers, sizes, self.mode, self.fill_value, self.unique), *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        operand, indices = operands
        window, ndim = self.window, operand.type.ndim
        outer = [index[a] for a in window.outer(len(index))]
        place: list[Any] = [kernel.extent(0)] * ndim
        inside = None
        for component, a in enumerate(window.starts):
            start = kernel.as_index(indices((*outer, kernel.extent(component))))
            room = kernel.extent(operand.type.shape[a] - self.sizes[a])
            if self.mode is GatherScatterMode.FILL_OR_DROP:
                within = kernel.both(
                    kernel.less(-1, start), kernel.less(start, kernel.plus(room, 1))
                )
                inside = within if inside is None else kernel.both(inside, within)
            else:
                start = kernel.clamp(start, 0, room)
            place[a] = start
        for a, b in zip(window.paired, window.paired_indices, strict=True):
            place[a] = outer[b]
        for a, b in zip(window.kept(ndim), window.inner, strict=True):
            place[a] = kernel.plus(place[a], index[b])
        if inside is None:
            return operand(tuple(place))
        fill = kernel.const(
            np.asarray(self.fill_value).astype(operand.type.dtype)[()], operand.type.dtype
        )
        return kernel.apply("select", inside, operand(tuple(place), mask=inside), fill)


class _Kind(NamedTuple):
    """How a scatter combines an update with what is there."""

    ufunc: np.ufunc | None
    accepts: Callable[[Any], bool]


KINDS = {
    "set": _Kind(None, lambda dtype: True),
    "add": _Kind(np.add, types.is_numeric),
    "mul": _Kind(np.multiply, types.is_numeric),
    "min": _Kind(np.minimum, types.is_ordered),
    "max": _Kind(np.maximum, types.is_ordered),
}


@dataclass(frozen=True, eq=False)
class Scatter(Op):
    """Combine windows of the updates into the operand, in order: with `set`, the last one wins."""

    kind: str
    numbers: ScatterDimensionNumbers
    mode: GatherScatterMode
    unique: bool
    name: ClassVar[str] = "scatter"

    @property
    def window(self) -> Window:
        return Window(*self.numbers)

    def sizes(self, operand: ArrayType, updates: ArrayType) -> Shape:
        """Return the size of a window along every axis of the operand."""
        sizes: list[Dimension] = [1] * operand.ndim
        for a, b in zip(self.window.kept(operand.ndim), self.window.inner, strict=True):
            sizes[a] = updates.shape[b]
        return tuple(sizes)

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        operand, indices, updates = operands
        window, name = self.window, f"scatter_{self.kind}"
        window.check(name, operand, indices, updates.ndim)
        if updates.dtype != operand.dtype or not KINDS[self.kind].accepts(operand.dtype):
            raise DTypeError(
                f"{name} does not accept updates {updates} for {operand}.",
                advice="Updates have the operand's dtype; convert with astype.",
            )
        outer = tuple(updates.shape[a] for a in window.outer(updates.ndim))
        if not same_shape(outer, indices.shape[:-1]):
            raise ShapeError(
                f"{name}: updates {updates} have {outer} windows, "
                f"the indices {indices} name {indices.shape[:-1]}."
            )
        for size, n in zip(self.sizes(operand, updates), operand.shape, strict=True):
            if isinstance(size, int) and isinstance(n, int) and size > n:
                raise ShapeError(f"{name}: windows of {updates} do not fit in {operand}.")
        return operand

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        operand, indices, updates = arrays
        window, wide = self.window, accumulator(operand.dtype)
        kept, paired = window.kept(operand.ndim), (*window.outer(updates.ndim), *window.inner)
        sizes = [1] * operand.ndim
        for a, b in zip(kept, window.inner, strict=True):
            sizes[a] = updates.shape[b]
        selection = _selection(operand.shape, sizes, window, indices)
        windows = updates.transpose(paired).reshape((len(selection.inside), *sizes))
        windows = windows.transpose(0, *(a + 1 for a in selection.order))
        key = selection.key
        if self.mode is not GatherScatterMode.CLIP and not selection.inside.all():
            windows = windows[selection.inside]
            key = tuple(k[selection.inside] for k in key)
        ufunc = KINDS[self.kind].ufunc
        out = np.array(operand, operand.dtype if ufunc is None else wide, order="C")
        if ufunc is None:
            _view(out, selection)[key] = windows
            return out
        with np.errstate(all="ignore"):
            ufunc.at(_view(out, selection), key, windows.astype(wide, copy=False))
            return out.astype(operand.dtype, copy=False)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        operand, indices, updates = primals
        t, _, tu = tangents
        if self.kind in ("set", "add"):
            t = zeros_like(operand) if t is None else t
            return bind(self, t, indices, zeros_like(updates) if tu is None else tu)
        if self.kind in ("min", "max"):
            return self._extremal_jvp(out, primals, t, tu)
        left = None if t is None else bind(self, t, indices, updates)
        if tu is None:
            return left
        self._check_unique()
        right = mul(operand, bind(self._as("add"), zeros_like(operand), indices, tu))
        return right if left is None else add(left, right)

    def _extremal_jvp(self, out: Any, primals: Sequence[Proxy], t: Any, tu: Any) -> Any:
        """Share the tangent evenly among all that attain the result, as `maximum` does at a tie."""
        operand, indices, updates = primals
        one, zero = like(operand, 1), zeros_like(operand)
        mine = select(eq(out, operand), one, zero)
        reached = self._read(out, operand, indices, updates)
        theirs = select(eq(reached, updates), like(updates, 1), zeros_like(updates))
        plus = self._as("add")
        total = bind(
            plus,
            zero if t is None else mul(t, mine),
            indices,
            zeros_like(updates) if tu is None else mul(tu, theirs),
        )
        return div(total, bind(plus, mine, indices, theirs))

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        operand, indices, updates = inputs
        linear = isinstance(operand, Linear), isinstance(updates, Linear)
        if self.kind in ("min", "max") or (self.kind == "mul" and all(linear)):
            raise self._missing("transpose")
        back = pulled = None
        if linear[0]:
            back = ct if self.kind == "add" else bind(self, ct, indices, self._kept(updates))
        if linear[1]:
            self._check_unique()
            source = mul(ct, operand) if self.kind == "mul" else ct
            pulled = self._read(source, operand, indices, updates)
            if self.kind == "set" and not self.unique:
                pulled = self._only_last(pulled, operand, indices, updates)
        return back, None, pulled

    def _kept(self, updates: Any) -> Any:
        """What the cotangent becomes where updates are set (zero), or is multiplied by."""
        return zeros(updates.type) if self.kind == "set" else updates

    def _check_unique(self) -> None:
        if self.kind == "mul" and not self.unique:
            raise MissingRule(
                "scatter_mul has derivatives in the updates only for indices that are unique.",
                advice="Pass unique_indices=True if no two indices are equal.",
            )

    def _as(self, kind: str) -> Scatter:
        return Scatter(kind, self.numbers, self.mode, self.unique)

    def _read(self, source: Any, operand: Any, indices: Any, updates: Any) -> Any:
        """Return the windows of `source` where updates go; 0 for updates that are dropped."""
        sizes = self.sizes(operand.type, updates.type)
        # A promise is not trusted: what a scatter drops must not be read from elsewhere.
        clip = self.mode is GatherScatterMode.CLIP
        mode = self.mode if clip else GatherScatterMode.FILL_OR_DROP
        op = Gather(GatherDimensionNumbers(*self.numbers), sizes, mode, 0, self.unique)
        return bind(op, source, indices)

    def _only_last(self, pulled: Any, operand: Any, indices: Any, updates: Any) -> Any:
        """Keep the cotangent of the updates that were not overwritten by later ones.

        Windows are numbered from 1 and their numbers are set in place of the updates; an update is
        still there where its number is.
        """
        kind = updates.type
        outer = self.window.outer(kind.ndim)
        counts = tuple(kind.shape[a] for a in outer)
        number = add(iota(int32, (product(counts),), 0), full((product(counts),), 1, int32))
        numbers = broadcast_in_dim(reshape(number, counts), kind.shape, outer)
        blank = full(operand.type.shape, 0, int32)
        there = self._read(bind(self, blank, indices, numbers), operand, indices, updates)
        return select(eq(there, numbers), pulled, zeros_like(pulled))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        indices = flags[1]
        numbers = ScatterDimensionNumbers(*self.window.batched(True, indices))
        every = lead_all(batch, (flags[0], True, flags[2]), inputs)
        return bind(Scatter(self.kind, numbers, self.mode, self.unique), *every)


# --- the functions of jax.lax ---


def _canonical(numbers: Any) -> tuple[Axes, ...]:
    """Return the dimension numbers as tuples of Python integers."""
    return tuple(tuple(int(a) for a in axes) for axes in numbers)


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[Dimension],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Any:
    """Return windows of `operand` of `slice_sizes` at the places `start_indices`."""
    operand, fill = as_array(operand), None
    how = GatherScatterMode.from_any("promise_in_bounds" if mode is None else mode)
    if how is GatherScatterMode.FILL_OR_DROP:
        fill = default_fill(operand.dtype) if fill_value is None else np.asarray(fill_value).item()
    numbers = GatherDimensionNumbers(*_canonical(dimension_numbers))
    op = Gather(numbers, types.canonical_shape(slice_sizes), how, fill, bool(unique_indices))
    return bind(op, operand, as_array(start_indices))


def default_fill(dtype: Any) -> Any:
    """Return what is read out of bounds: NaN, the lowest signed, the highest unsigned, True."""
    if types.is_inexact(dtype):
        return math.nan
    if types.is_bool(dtype):
        return True
    stored = types.storage(dtype)
    limits = np.iinfo(stored)
    return int(limits.max if stored.kind == "u" else limits.min)


def _scatter(kind: str) -> Callable[..., Any]:
    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Any:
        operand, updates = as_array(operand), as_array(updates)
        numbers = ScatterDimensionNumbers(*_canonical(dimension_numbers))
        op = Scatter(kind, numbers, GatherScatterMode.from_any(mode), bool(unique_indices))
        return bind(op, operand, as_array(scatter_indices), updates)

    function.__name__ = function.__qualname__ = "scatter" if kind == "set" else f"scatter_{kind}"
    function.__doc__ = f"Return `operand` with windows of `updates` combined into it by `{kind}`."
    return function


scatter = _scatter("set")
scatter_add = _scatter("add")
scatter_mul = _scatter("mul")
scatter_min = _scatter("min")
scatter_max = _scatter("max")
