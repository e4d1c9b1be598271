"""`jax.lax`'s functions across the lanes of a named axis, which `vmap(..., axis_name=)` maps.

Operands are pytrees of arrays; a function is applied to each leaf.  An axis name is what vmap was
given, or, in all but the permutations, a tuple of names, which stand for one axis with the first
name outermost.  A name that no enclosing vmap has raises UnboundAxisNameError.

`axis_index_groups` are lists of lane numbers, of one length, that hold each lane once: each is an
axis of its own.  JAX has them only on several devices; here they work under vmap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stax import named_axes, tree
from stax.errors import ArgumentValueError, ShapeError, UnsupportedError
from stax.extent import Dimension, product, same_shape
from stax.numpy.arguments import array
from stax.operators import collective
from stax.operators.collective import Groups
from stax.operators.elementwise import convert, like, mul
from stax.operators.reduce import reduce_max, reduce_min
from stax.operators.reshape import move_axis, reshape
from stax.operators.shape import reduce_sum
from stax.trace import Proxy, bind, full, type_of
from stax.types import canonical_axis, int32, is_bool, is_python_number

GroupsLike = Sequence[Sequence[int]] | None
Named = tuple[Any, Dimension]  # an axis name, and the size of the axis


# --- names and groups ---


def _names(function: str, axis_name: Any) -> tuple[list[Named], list[int]]:
    """Return the named axes and the positional ones; raises ArgumentValueError for a repetition."""
    given = list(axis_name) if isinstance(axis_name, tuple | list) else [axis_name]
    positional = [a for a in given if isinstance(a, int) and not isinstance(a, bool)]
    named = [(a, named_axes.size_of(function, a)) for a in given if a not in positional]
    if len(set(given)) != len(given):
        raise ArgumentValueError(
            f"{function}: an axis is named twice in {axis_name!r}.", advice="Name each axis once."
        )
    return named, positional


def _named(function: str, axis_name: Any) -> list[Named]:
    """Return the named axes; raises UnsupportedError for positional ones."""
    named, positional = _names(function, axis_name)
    if positional:
        raise UnsupportedError(
            f"{function}: {positional} are positions of axes, not names.",
            advice="Name axes that vmap maps.",
        )
    return named


def _one(function: str, axis_name: Any) -> Named:
    """Return the one axis of that name; raises UnsupportedError for several."""
    named = _named(function, axis_name)
    if len(named) != 1:
        raise UnsupportedError(
            f"{function}: lanes of several axes, {axis_name!r}, are not permuted together.",
            advice="Name one axis.",
        )
    return named[0]


def _groups(function: str, named: Sequence[Named], groups: GroupsLike, positional: bool) -> Groups:
    """Return groups in canonical form; raises ArgumentValueError unless they part the axis."""
    if groups is None:
        return None
    if positional or len(named) != 1:
        raise ArgumentValueError(
            f"{function}: axis_index_groups go with one named axis.", advice="Name one axis."
        )
    found = tuple(tuple(map(int, group)) for group in groups)
    lanes = sorted(lane for group in found for lane in group)
    if lanes != list(range(len(lanes))) or same_shape((len(lanes),), (named[0][1],)) is False:
        raise ArgumentValueError(
            f"{function}: axis_index_groups must cover all indices exactly once: axis "
            f"{named[0][0]!r} has {named[0][1]} lanes, got {groups!r}.",
            advice="Give each lane to one group.",
        )
    if len({len(group) for group in found}) != 1:
        raise ArgumentValueError(
            f"{function}: axis_index_groups differ in length: {groups!r}.",
            advice="All groups have one length.",
        )
    return found


def _count(named: Sequence[Named], groups: Groups) -> Dimension:
    """Return how many lanes go together."""
    return product(tuple(n for _, n in named)) if groups is None else len(groups[0])


# --- reductions ---


def psum(x: Any, axis_name: Any, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return the sum over the lanes, the same in each; bool counts as int32.

    Positions among the names are axes of `x` itself.  The sum of a number is that number times the
    number of lanes, so `psum(1, "i")` is the size of the axis, an int.

    Raises UnboundAxisNameError, and ArgumentValueError for groups that do not part the axis.
    """
    named, positional = _names("psum", axis_name)
    groups = _groups("psum", named, axis_index_groups, bool(positional))
    return tree.tree_map(lambda leaf: _sum(leaf, named, positional, groups), x)


def _sum(x: Any, named: Sequence[Named], positional: Sequence[int], groups: Groups) -> Any:
    count = _count(named, groups)
    if is_python_number(x) and not isinstance(x, bool) and not positional:
        return x * count
    if isinstance(x, np.ndarray | np.generic) and x.dtype != bool and not positional:
        return x * np.asarray(count).astype(x.dtype)
    x = array("psum", x)
    x = convert(x, int32) if is_bool(x.dtype) else x
    x = reduce_sum(x, positional) if positional else x
    if not isinstance(x, Proxy) and isinstance(count, int):
        return mul(x, like(x, count))
    for name, size in reversed(named):
        x = bind(collective.PSum(name, size, groups), x)
    return x


def pmean(x: Any, axis_name: Any, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return the mean over the lanes, of a floating type; see `psum`."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    count = psum(1, axis_name, axis_index_groups=axis_index_groups)
    return tree.tree_map(lambda leaf: leaf / count, total)


def _extreme(
    function: str, op: Any, reduced: Callable[..., Any], x: Any, axis_name: Any, groups: GroupsLike
) -> Any:
    named, positional = _names(function, axis_name)
    parted = _groups(function, named, groups, bool(positional))

    def of_leaf(leaf: Any) -> Any:
        leaf = array(function, leaf)
        leaf = reduced(leaf, positional) if positional else leaf
        for name, size in reversed(named):
            leaf = bind(op(name, size, parted), leaf)
        return leaf

    return tree.tree_map(of_leaf, x)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return the largest over the lanes, the same in each; see `psum`.

    It has a derivative, which JAX's has not: lanes that tie share it evenly.
    """
    return _extreme("pmax", collective.PMax, reduce_max, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return the smallest over the lanes, the same in each; see `pmax`."""
    return _extreme("pmin", collective.PMin, reduce_min, x, axis_name, axis_index_groups)


# --- gathers and exchanges ---


def all_gather(
    x: Any,
    axis_name: Any,
    *,
    axis_index_groups: GroupsLike = None,
    axis: int = 0,
    tiled: bool = False,
    to: str = "varying",
) -> Any:
    """Return what all lanes hold, stacked along a new axis, or with `tiled` joined along an old.

    Raises ShapeError if `axis` is out of range, UnsupportedError for a `to` other than "varying".
    """
    if to != "varying":
        raise UnsupportedError(
            f"all_gather: to={to!r} is for several devices.", advice='Leave it at "varying".'
        )
    named = _named("all_gather", axis_name)
    groups = _groups("all_gather", named, axis_index_groups, False)

    def of_leaf(leaf: Any) -> Any:
        leaf = array("all_gather", leaf)
        where = canonical_axis(axis, leaf.ndim + (not tiled), "all_gather: axis")
        for name, size in reversed(named):
            leaf = bind(collective.AllGather(name, size, groups, where), leaf)
        return _folded(leaf, where, len(named) + tiled) if named else leaf

    return tree.tree_map(of_leaf, x)


def _folded(x: Any, axis: int, count: int) -> Any:
    """Return `x` with `count` axes from `axis` on as one."""
    shape = type_of(x).shape
    return reshape(x, (*shape[:axis], product(shape[axis : axis + count]), *shape[axis + count :]))


def psum_scatter(
    x: Any,
    axis_name: Any,
    *,
    scatter_dimension: int = 0,
    axis_index_groups: GroupsLike = None,
    tiled: bool = False,
) -> Any:
    """Return the part of the sum over the lanes that is the lane's own, along `scatter_dimension`.

    That axis has an element for each lane and is gone from the result, or with `tiled` is divided
    among the lanes.

    Raises ShapeError if it cannot be divided so.
    """
    named = _named("psum_scatter", axis_name)
    groups = _groups("psum_scatter", named, axis_index_groups, False)

    def of_leaf(leaf: Any) -> Any:
        leaf = array("psum_scatter", leaf)
        where = canonical_axis(scatter_dimension, leaf.ndim, "psum_scatter: scatter_dimension")
        leaf = _parted("psum_scatter", leaf, where, named, groups, tiled)
        for name, size in named:
            leaf = bind(collective.PSumScatter(name, size, groups, where), leaf)
        return leaf

    return tree.tree_map(of_leaf, x)


def _parted(
    function: str, x: Any, axis: int, named: Sequence[Named], groups: Groups, tiled: bool
) -> Any:
    """Return `x` with an axis for each name in place of `axis`, and with `tiled` what is left."""
    count, shape = _count(named, groups), type_of(x).shape
    length = shape[axis]
    rest = length if not tiled else length // count if count else 0
    if not same_shape((length,), (count * rest if tiled else count,)):
        names = ", ".join(repr(name) for name, _ in named)
        raise ShapeError(
            f"{function}: axis {axis} of {type_of(x)} has length {length}, and axis {names} has "
            f"{count} lanes.",
            advice=(
                "With tiled, the length is a multiple of the number of lanes."
                if tiled
                else "The two are equal, or use tiled=True."
            ),
        )
    sizes = (count,) if groups is not None else tuple(size for _, size in named)
    return reshape(x, (*shape[:axis], *sizes, *((rest,) if tiled else ()), *shape[axis + 1 :]))


def all_to_all(
    x: Any,
    axis_name: Any,
    split_axis: int,
    concat_axis: int,
    *,
    axis_index_groups: GroupsLike = None,
    tiled: bool = False,
) -> Any:
    """Return what each lane holds for this one: `split_axis` is mapped, the named axis is not.

    Lane i receives element i along `split_axis` of every lane, along a new axis at `concat_axis` of
    the result.  With `tiled`, elements are blocks, and are joined along the old `concat_axis`.

    Raises ShapeError unless `split_axis` has an element, or blocks of one size, for each lane.
    """
    named = _named("all_to_all", axis_name)
    groups = _groups("all_to_all", named, axis_index_groups, False)

    def of_leaf(leaf: Any) -> Any:
        leaf = array("all_to_all", leaf)
        split = canonical_axis(split_axis, leaf.ndim, "all_to_all: split_axis")
        concat = canonical_axis(concat_axis, leaf.ndim, "all_to_all: concat_axis")
        leaf = _parted("all_to_all", leaf, split, named, groups, tiled)
        for i, (name, size) in enumerate(named):
            leaf = bind(collective.AllToAll(name, size, groups, split + i), leaf)
        leaf = move_axis(_folded(leaf, split, len(named)), split, concat)
        return _folded(leaf, concat, 2) if tiled else leaf

    return tree.tree_map(of_leaf, x)


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: GroupsLike = None) -> Any:
    """Return `x` with the named axis and `axis`, which are of one size, in each other's place."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


# --- permutations ---


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Return what another lane holds, for pairs (source, destination) in `perm`.

    A lane that is no destination has zeros.

    Raises ArgumentValueError for a lane that does not exist, or sends or receives twice.
    """
    name, size = _one("ppermute", axis_name)
    pairs = tuple((int(source), int(target)) for source, target in perm)
    for lanes in zip(*pairs, strict=True):
        _check_lanes("ppermute", lanes, name, size)
    op = collective.PPermute(name, size, None, pairs)
    return tree.tree_map(lambda leaf: bind(op, array("ppermute", leaf)), x)


def _check_lanes(function: str, lanes: Sequence[int], name: Any, size: Dimension) -> None:
    """Raise ArgumentValueError unless `lanes` are different lanes of an axis."""
    top = size if isinstance(size, int) else math.inf
    if len(set(lanes)) != len(lanes) or not all(0 <= lane < top for lane in lanes):
        raise ArgumentValueError(
            f"{function}: {list(lanes)} are not different lanes of axis {name!r}, which has "
            f"{size}.",
            advice="Each lane sends at most once and receives at most once.",
        )


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Return what lane `perm[i]` holds, in lane i; see `ppermute`.

    Raises ArgumentValueError if `perm` is not a permutation of the lanes.
    """
    if sorted(perm) != list(range(len(perm))):
        raise ArgumentValueError(
            f"pshuffle: {list(perm)!r} is no permutation.", advice="Name each lane once."
        )
    return ppermute(x, axis_name, list(zip(perm, range(len(perm)), strict=True)))


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """Return what lane `source` holds, the same in each lane.

    Raises ArgumentValueError if there is no such lane.
    """
    name, size = _one("pbroadcast", axis_name)
    _check_lanes("pbroadcast", [int(source)], name, size)
    op = collective.PBroadcast(name, size, None, int(source))
    return tree.tree_map(lambda leaf: bind(op, array("pbroadcast", leaf)), x)


# --- what lane this is ---


def axis_index(axis_name: Any) -> Any:
    """Return the number of the lane, an int32; of several axes, counted along the last first."""
    index: Any = None
    for name, size in _named("axis_index", axis_name):
        lane = bind(collective.AxisIndex(name, size))
        index = lane if index is None else index * size + lane
    return full((), 0, int32) if index is None else index


def axis_size(axis_name: Any) -> Any:
    """Return the number of lanes, an int; of several axes, the product."""
    return _count(_named("axis_size", axis_name), None)
