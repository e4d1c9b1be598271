"""NumPy indexing: `x[index]`, and `x.at[index].set(y)` for what NumPy writes `x[index] = y`.

Ranges and known integers of an index become slices; single integers that are traced a dynamic
slice; arrays of integers a gather or a scatter.  An update without arrays reads a window, combines
it and puts it back, so nothing but arrays needs a scatter.

Indices out of bounds are clipped when reading and dropped when writing; `mode` says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from stax import types
from stax.array import Array, asarray, leading_length
from stax.errors import IndexingError, ShapeError
from stax.extent import Dimension, same_shape
from stax.numpy.applying import apply_counted
from stax.numpy.masked import check_mask, masked_axis, masked_item, spread_values
from stax.numpy.subscripts import NEW, PICKED, Parsed, Pick, Range, parse
from stax.numpy.windows import read_windows
from stax.operators import arithmetic
from stax.operators.broadcast import broadcast_in_dim, broadcast_to
from stax.operators.dynamic import (
    dynamic_slice,
    dynamic_update_slice,
    from_start,
    length_like,
)
from stax.operators.elementwise import convert, select
from stax.operators.index import (
    Gather,
    GatherDimensionNumbers,
    GatherScatterMode,
    Scatter,
    ScatterDimensionNumbers,
    default_fill,
)
from stax.operators.shape import concatenate, expand_dims, pad, reshape, rev, slice_, squeeze
from stax.trace import Proxy, bind, full, is_array
from stax.types import Shape, promote

Function = Callable[..., Any]
_CLIP, _FILL = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP
_PROMISE = GatherScatterMode.PROMISE_IN_BOUNDS


# --- ranges and single integers ---


def _as_ranges(parsed: Parsed, shape: Shape, clamp: bool) -> list[Range] | None:
    """Return a range for each axis: known integers as ranges of one, other picks as all.

    Returns None if a known integer is out of bounds and may not be clamped.
    """
    ranges: list[Range] = []
    for entry, n in zip(parsed.axes, shape, strict=True):
        if isinstance(entry, Range):
            ranges.append(entry)
        elif not entry.known:
            ranges.append(Range(0, n, 1))
        else:
            place = entry.place + n if entry.place < 0 and parsed.wraps else entry.place
            inside = place >= 0 and place < n
            if not inside and not clamp:
                return None
            place = place if inside else (0 if place < 0 else n - 1)
            ranges.append(Range(place, place + 1, 1))
    return ranges


def _is_whole(part: Range, n: Dimension) -> bool:
    return part.stride == 1 and not part.backwards and same_shape((part.start, part.limit), (0, n))


def _read(x: Any, ranges: Sequence[Range]) -> Any:
    """Return the part of `x` within the ranges."""
    if not all(_is_whole(r, n) for r, n in zip(ranges, x.shape, strict=True)):
        steps = [r.stride for r in ranges]
        x = slice_(x, [r.start for r in ranges], [r.limit for r in ranges], steps)
    back = tuple(a for a, r in enumerate(ranges) if r.backwards)
    return rev(x, back) if back else x


def _write(x: Any, ranges: Sequence[Range], window: Any) -> Any:
    """Return `x` with the part within the ranges replaced by `window`."""
    back = tuple(a for a, r in enumerate(ranges) if r.backwards)
    window = rev(window, back) if back else window
    if any(isinstance(n, int) and n == 0 for n in window.shape):
        return x
    if same_shape(window.shape, x.shape):
        return window
    if all(r.stride == 1 for r in ranges):
        return dynamic_update_slice(x, window, [r.start for r in ranges])
    frame = []
    for r, n, count in zip(ranges, x.shape, window.shape, strict=True):
        last = r.start + (count - 1) * r.stride
        frame.append((r.start, n - last - 1, r.stride - 1))
    there = pad(full(window.shape, True, types.bool_), full((), False, types.bool_), frame)
    return select(there, pad(window, full((), 0, x.dtype), frame), x)


def _check_not_empty(parsed: Parsed, shape: Shape) -> None:
    for a, (entry, n) in enumerate(zip(parsed.axes, shape, strict=True)):
        if isinstance(entry, Pick) and isinstance(n, int) and n == 0 and _count(entry):
            raise IndexingError(
                f"index is out of bounds: axis {a} of {shape} has length 0.",
                advice="Test the length first; an empty axis has no element to read.",
            )


def _count(entry: Pick) -> int:
    return 1 if entry.known else int(np.prod(entry.place.shape))


def _starts(parsed: Parsed) -> list[Any]:
    """Return where a dynamic slice starts: at the picks that are traced, else at 0."""
    return [
        entry.place if isinstance(entry, Pick) and not entry.known else 0 for entry in parsed.axes
    ]


def _sizes(parsed: Parsed, shape: Shape) -> list[Dimension]:
    return [1 if isinstance(e, Pick) else n for e, n in zip(parsed.axes, shape, strict=True)]


# --- arrays of integers ---


class _Plan(NamedTuple):
    """A gather that reads, or a scatter that writes, what the picks of an index name."""

    indices: Any
    numbers: GatherDimensionNumbers
    sizes: Shape
    shape: Shape  # of what is read, without new axes


def _plan(parsed: Parsed, shape: Shape) -> _Plan:
    """Return how to read the picks from an array of `shape`, to which ranges were applied."""
    picked = tuple(a for a, entry in enumerate(parsed.axes) if isinstance(entry, Pick))
    places = [_wrapped(parsed.axes[a].place, shape[a], parsed.wraps) for a in picked]  # type: ignore[union-attr]
    try:
        outer = types.broadcast_shapes(*(np.shape(p) for p in places))
    except ShapeError:
        shown = " and ".join(str(np.shape(p)) for p in places)
        raise IndexingError(
            f"arrays of indices do not broadcast: shapes {shown}.",
            advice="Use ix_ to index with the grid of several vectors.",
        ) from None
    kept = [entry for entry in parsed.order if entry is not NEW]
    at = kept.index(PICKED)
    inner = [i if i < at else i + len(outer) - 1 for i in range(len(kept)) if i != at]
    result: list[Dimension] = [shape[e] for e in kept if e is not PICKED]
    result[at:at] = outer
    sizes = tuple(_sizes(parsed, shape))
    numbers = GatherDimensionNumbers(tuple(inner), picked, picked)
    return _Plan(_stacked(places, outer), numbers, sizes, tuple(result))


def _wrapped(place: Any, n: Dimension, wraps: bool) -> Any:
    """Return positions, negative ones counted from the end if so; in NumPy if they are known."""
    if isinstance(place, int | np.ndarray) and isinstance(n, int):
        known = np.asarray(place, np.int64)
        return np.where((known < 0) & wraps, known + n, known)
    return from_start(asarray(place), n) if wraps else asarray(place)


def _stacked(places: Sequence[Any], outer: Shape) -> Any:
    """Return the positions along each axis as the components of one array of indices."""
    if all(isinstance(p, np.ndarray) for p in places):
        known = np.stack(np.broadcast_arrays(*places), axis=-1)
        return asarray(_saturated(known))
    # A large uint32 stays out of bounds; it must not become a negative int32.
    wide = any(is_array(p) and (p.dtype.itemsize == 8 or p.dtype == types.uint32) for p in places)
    dtype = types.int64 if wide else types.int32
    arrays = [asarray(_saturated(p)) if isinstance(p, np.ndarray) else p for p in places]
    columns = [expand_dims(broadcast_to(convert(p, dtype), outer), len(outer)) for p in arrays]
    return columns[0] if len(columns) == 1 else concatenate(columns, len(outer))


def _saturated(places: np.ndarray) -> np.ndarray:
    """Return positions as int32; what does not fit is out of bounds either way."""
    limits = np.iinfo(np.int32)
    return np.clip(places, limits.min, limits.max).astype(np.int32)


# --- reading ---


def _with_new_axes(x: Any, parsed: Parsed, picked: int) -> Any:
    """Return what was read with the new axes of the index; `picked` axes are those of arrays."""
    places, axis = [], 0
    for entry in parsed.order:
        if entry is NEW:
            places.append(axis)
        axis += picked if entry is PICKED else 1
    return expand_dims(x, tuple(places)) if places else x


def getitem(
    x: Any,
    index: Any,
    mode: Any = None,
    fill_value: Any = None,
    unique_indices: bool = False,
    wraps: bool = True,
) -> Any:
    """Return `x[index]`; negative positions count from the end where it `wraps`."""
    x, parsed = parse(*read_windows(x, index), wraps)
    how = _PROMISE if mode is None else GatherScatterMode.from_any(mode)
    picks = [entry for entry in parsed.axes if isinstance(entry, Pick)]
    if any(entry.ndim for entry in picks) or (picks and how is _FILL):
        return _read_picks(x, parsed, how, fill_value, unique_indices)
    _check_not_empty(parsed, x.shape)
    ranges = _as_ranges(parsed, x.shape, clamp=True)
    assert ranges is not None
    x = _read(x, ranges)
    if not all(entry.known for entry in picks):
        x = dynamic_slice(x, _starts(parsed), _sizes(parsed, x.shape), wraps)
    gone = tuple(a for a, entry in enumerate(parsed.axes) if isinstance(entry, Pick))
    return _with_new_axes(squeeze(x, gone) if gone else x, parsed, 0)


def _only_ranges(parsed: Parsed, shape: Shape) -> list[Range]:
    return [
        e if isinstance(e, Range) else Range(0, n, 1)
        for e, n in zip(parsed.axes, shape, strict=True)
    ]


def _read_picks(
    x: Any, parsed: Parsed, how: GatherScatterMode, fill_value: Any, unique: bool
) -> Any:
    _check_not_empty(parsed, x.shape)
    x = _read(x, _only_ranges(parsed, x.shape))
    plan = _plan(parsed, x.shape)
    picked = plan.indices.ndim - 1
    if any(isinstance(n, int) and n == 0 for n in plan.shape):
        return _with_new_axes(full(plan.shape, 0, x.dtype, x.weak_type), parsed, picked)
    fill = None
    if how is _FILL:
        fill = default_fill(x.dtype) if fill_value is None else np.asarray(fill_value).item()
    out = bind(Gather(plan.numbers, plan.sizes, how, fill, unique), x, plan.indices)
    return _with_new_axes(out, parsed, picked)


# --- writing ---

_COMBINE: dict[str, Function] = {
    "set": lambda old, new: new,
    "add": arithmetic.add,
    "mul": arithmetic.multiply,
    "min": arithmetic.minimum,
    "max": arithmetic.maximum,
}


class Update(NamedTuple):
    """How values are put into an array: `kind` is set, add, mul, min or max."""

    kind: str
    mode: Any = None
    unique: bool = False
    wraps: bool = True


def update(x: Any, index: Any, values: Any, how: Update) -> Any:
    """Return `x` with `values` combined into `x[index]`."""
    kept = x.type
    value = asarray(values)
    dtype = x.dtype if how.kind == "set" else promote(x.type, value.type)[0]
    wide, value = convert(x, dtype, x.weak_type and dtype == x.dtype), convert(value, dtype)
    masked = _write_masked(wide, index, value, how)
    if masked is not None:
        return convert(masked, kept.dtype, kept.weak)
    mode = _FILL if how.mode is None else GatherScatterMode.from_any(how.mode)
    wide, parsed = parse(wide, index, how.wraps)
    picks = [entry for entry in parsed.axes if isinstance(entry, Pick)]
    write = _write_picks if any(entry.ndim for entry in picks) else _write_window
    out = write(wide, parsed, convert(value, dtype, wide.weak_type), how._replace(mode=mode))
    return convert(reshape(out, kept.shape), kept.dtype, kept.weak)


def _fitted(value: Any, parsed: Parsed, shape: Shape) -> Any:
    """Return an update in `shape`, that of what is read without its new axes."""
    picked = len(shape) - sum(entry not in (NEW, PICKED) for entry in parsed.order)
    rest, new = list(shape), []
    result: list[Dimension] = []
    for entry in parsed.order:
        if entry is NEW:
            new.append(len(result))
            result.append(1)
            continue
        for _ in range(picked if entry is PICKED else 1):
            result.append(rest.pop(0))
    value = broadcast_to(value, tuple(result))
    return squeeze(value, tuple(new)) if new else value


def _write_window(x: Any, parsed: Parsed, value: Any, how: Update) -> Any:
    """Update a window that slices and single integers name."""
    ranges = _as_ranges(parsed, x.shape, clamp=how.mode is _CLIP)
    if ranges is None or any(isinstance(n, int) and n == 0 for n in x.shape):
        return x
    part = _read(x, ranges)
    starts, sizes = _starts(parsed), _sizes(parsed, part.shape)
    static = all(isinstance(s, int) for s in starts)
    window = part if static else dynamic_slice(part, starts, sizes, parsed.wraps)
    gone = tuple(a for a, entry in enumerate(parsed.axes) if isinstance(entry, Pick))
    rest = tuple(n for a, n in enumerate(window.shape) if a not in gone)
    value = _fitted(value, parsed, rest)
    new = _COMBINE[how.kind](window, expand_dims(value, gone) if gone else value)
    if static:
        return _write(x, ranges, new)
    if how.mode is not _CLIP:
        inside = _all_inside(starts, part.shape, parsed.wraps)
        new = select(broadcast_to(inside, new.shape), new, window)
    return _write(x, ranges, dynamic_update_slice(part, new, starts, parsed.wraps))


def _all_inside(starts: Sequence[Any], shape: Shape, wraps: bool) -> Any:
    """Return whether every traced start is a position of its axis."""
    inside = None
    for start, n in zip(starts, shape, strict=True):
        if isinstance(start, int):
            continue
        place = asarray(_wrapped(start, n, wraps))
        above = arithmetic.greater_equal(place, 0)
        within = arithmetic.bitwise_and(above, arithmetic.less(place, length_like(place, n)))
        inside = within if inside is None else arithmetic.bitwise_and(inside, within)
    return inside


def _write_picks(x: Any, parsed: Parsed, value: Any, how: Update) -> Any:
    """Update what arrays of integers name, within the ranges of the other axes."""
    ranges = _only_ranges(parsed, x.shape)
    part = _read(x, ranges)
    plan = _plan(parsed, part.shape)
    value = _fitted(value, parsed, plan.shape)
    empty = (*plan.shape, *part.shape)
    if any(isinstance(n, int) and n == 0 for n in empty):
        return x
    unique = how.unique or parsed.distinct
    op = Scatter(how.kind, ScatterDimensionNumbers(*plan.numbers), how.mode, unique)
    return _write(x, ranges, bind(op, part, plan.indices, value))


def _write_masked(x: Any, index: Any, values: Any, how: Update) -> Any:
    """Update where the traced mask in an index holds, in what the rest of the index names.

    Returns None if there is no such mask, or the values differ from place to place.
    """
    items = _items(index)
    at = masked_item(items)
    if at is None:
        return None
    mask, whole = items[at], (slice(None),) * items[at].ndim
    rest = (*items[:at], *whole, *items[at + 1 :])
    part = getitem(x, rest, "clip", wraps=how.wraps)
    axis = masked_axis(items, at, x.ndim)
    check_mask(mask, part.shape[axis : axis + mask.ndim])
    value = spread_values(values, items, at, axis, part.ndim)
    if value is None:
        return None
    there = broadcast_in_dim(mask, part.shape, range(axis, axis + mask.ndim))
    new = _COMBINE[how.kind](part, broadcast_to(value, part.shape))
    return update(x, rest, select(there, new, part), how._replace(kind="set"))


# --- applying a function ---


def applied(x: Any, index: Any, func: Function, how: Update) -> Any:
    """Return `x` with `func` applied to each element of `x[index]`, as often as it is named."""
    is_masked = masked_item(_items(index)) is not None
    times = 1 if how.unique or is_masked else _times(x, index, how)
    if times == 1 and not is_masked:
        return update(x, index, func(getitem(x, index, "clip", wraps=how.wraps)), how)
    counts = update(full(x.shape, 0, types.int32), index, 1, how._replace(kind="add"))
    return apply_counted(x, counts, func, times)


def _times(x: Any, index: Any, how: Update) -> int:
    """Return how often an index names one element, at most."""
    x, parsed = parse(x, index, how.wraps)
    picks = [(e.place, n) for e, n in zip(parsed.axes, x.shape, strict=True) if isinstance(e, Pick)]
    if not any(np.ndim(place) for place, _ in picks):
        return 1
    places = [_wrapped(place, n, how.wraps) for place, n in picks]
    if not all(isinstance(p, np.ndarray) for p in places):
        return math.prod(types.broadcast_shapes(*(np.shape(p) for p in places)))  # type: ignore[arg-type]
    if GatherScatterMode.from_any(how.mode) is _CLIP:
        places = [np.clip(p, 0, n - 1) for p, (_, n) in zip(places, picks, strict=True)]
    rows = np.stack([p.ravel() for p in np.broadcast_arrays(*places)], -1)
    return int(np.unique(rows, axis=0, return_counts=True)[1].max(initial=1))


def _items(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _combined(kind: str) -> Function:
    """Return the update that combines the values with what is there, as `update` does."""
    return lambda x, index, values, *options: update(x, index, values, Update(kind, *options))


def _subtracted(x: Any, index: Any, values: Any, *options: Any) -> Any:
    return update(x, index, arithmetic.negative(asarray(values)), Update("add", *options))


def _with_ones(function: Function) -> Function:
    """Return the update by a `function` of the whole array and an array of ones and the values."""

    def updated(x: Any, index: Any, values: Any, *options: Any) -> Any:
        ones = full(x.shape, 1, x.dtype, x.weak_type)
        return function(x, update(ones, index, values, Update("mul", *options)))

    return updated


def _updater(updated: Function, what: str) -> Function:
    """Return a method of `x.at[index]` with JAX's arguments."""

    def method(
        self: Any,
        values: Any,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        options = mode, unique_indices, wrap_negative_indices
        return updated(self.array, self.index, values, *options)

    method.__doc__ = f"Return `x` with `x[index]` {what}."
    return method


class IndexUpdateHelper:
    """What `x.at` is: `x.at[index]` names a part of `x` that methods update, giving a new array."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array = array

    def __getitem__(self, index: Any) -> IndexUpdateRef:
        return IndexUpdateRef(self.array, index)

    def __repr__(self) -> str:
        return f"IndexUpdateHelper({self.array!r})"


class IndexUpdateRef:
    """A part of an array, named by an index; every method returns a new array.

    `mode` says what happens to indices out of bounds; `unique_indices` promises that no two are
    equal, which some derivatives need; `indices_are_sorted` is accepted and makes no difference.
    """

    __slots__ = ("array", "index")

    def __init__(self, array: Any, index: Any) -> None:
        self.array = array
        self.index = index

    def __repr__(self) -> str:
        return f"IndexUpdateRef({self.array!r}, {self.index!r})"

    set = _updater(_combined("set"), "set to `values`; of several for one place, the last counts")
    add = _updater(_combined("add"), "increased by `values`; several for one place add up")
    subtract = _updater(_subtracted, "less `values`")
    multiply = mul = _updater(_combined("mul"), "multiplied by `values`")
    divide = _updater(_with_ones(arithmetic.divide), "divided by `values`")
    power = _updater(_with_ones(arithmetic.power), "raised to `values`")
    min = _updater(_combined("min"), "no higher than `values`")
    max = _updater(_combined("max"), "no lower than `values`")

    def get(
        self,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        fill_value: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """Return `x[index]`; with `mode="fill"`, `fill_value` where that is out of bounds."""
        wraps = wrap_negative_indices
        return getitem(self.array, self.index, mode, fill_value, unique_indices, wraps)

    def apply(
        self,
        func: Function,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
        wrap_negative_indices: bool = True,
    ) -> Any:
        """Return `x` with `func` applied to each of the elements, for every time it is named.

        It has a reverse derivative unless there are many traced indices, any of which may be equal;
        `unique_indices` says that none are.
        """
        how = Update("set", mode, unique_indices, wrap_negative_indices)
        return applied(self.array, self.index, func, how)


# --- installing ---


def _at(self: Any) -> IndexUpdateHelper:
    """Name a part of the array to update: `x.at[index].set(values)` returns a new array."""
    return IndexUpdateHelper(self)


def _getitem(self: Any, index: Any) -> Any:
    return getitem(self, index)


def _iter(self: Any) -> Any:
    return (getitem(self, i) for i in range(leading_length(self)))


def install_indexing(cls: Any) -> None:
    """Give `cls` (`Proxy` or `Array`) `x[index]` and `x.at`."""
    cls.__getitem__ = _getitem
    cls.at = property(_at)


def install_iteration(cls: Any) -> None:
    """Give `cls` (`Proxy`; `Array` has its own) its length and iteration over the first axis."""
    cls.__len__ = leading_length
    cls.__iter__ = _iter


install_indexing(Array)
install_indexing(Proxy)
install_iteration(Proxy)
