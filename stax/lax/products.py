"""Products of groups of rows, and the names by which programs ask for a way of computing products.

A ragged product is an ordinary one whose rows are repeated for each group and masked, so it costs
as many products as there are groups.  Algorithms and accuracies are accepted where JAX has them and
change nothing: products on the CPU have the full precision of their type.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, Union

from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.lax.structure import Precision, dot_general
from stax.numpy.arguments import arrays
from stax.operators import elementwise as ops
from stax.operators.elementwise import convert, like, select
from stax.operators.reduce import cumsum
from stax.operators.reshape import move_axis
from stax.operators.shape import broadcast_in_dim, iota
from stax.trace import type_of

DotDimensionNumbers: TypeAlias = tuple[
    tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]
]


class DotAlgorithm(NamedTuple):
    """The types that operands of a product are rounded to and that sums are taken in."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


class DotAlgorithmPreset(enum.Enum):
    """Algorithms for products by name: types of the operands and of sums, and passes."""

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()


# Made with Union as in JAX: what `|` makes is an object of another class.
PrecisionLike: TypeAlias = Union[  # noqa: UP007
    Precision,
    str,
    tuple[Precision | str, Precision | str],
    DotAlgorithm,
    DotAlgorithmPreset,
    None,
]


class AccuracyMode(enum.Enum):
    """How exact functions must be where a backend has fast inexact ones."""

    HIGHEST = 1
    DEFAULT = 2


class Tolerance:
    """An error that functions may have: absolute, relative, or in units of the last place."""

    def __init__(self, atol: float = 0.0, rtol: float = 0.0, ulps: int = 0) -> None:
        if min(atol, rtol, ulps) < 0 or not any((atol, rtol, ulps)):
            raise ArgumentValueError(
                f"Tolerance: {atol=}, {rtol=}, {ulps=} is no tolerance.",
                advice="Give numbers that are not negative, at least one of them not 0.",
            )
        self.atol, self.rtol, self.ulps = atol, rtol, ulps


@dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """Which axes a ragged product sums over and pairs, which is cut into groups, and which of `rhs`
    counts the groups."""

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Any
    rhs_group_dimensions: Any

    def __post_init__(self) -> None:
        numbers = tuple(tuple(map(tuple, pair)) for pair in self.dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", tuple(self.lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", tuple(self.rhs_group_dimensions))


_ROWS = RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Return rows of `lhs` (m, k) times the matrix of their group in `rhs` (g, k, n).

    The first `group_sizes[0]` rows are of group 0, and so on; rows beyond the last group give 0.
    """
    return ragged_dot_general(
        lhs, rhs, group_sizes, _ROWS, precision, preferred_element_type, group_offset, out_sharding
    )


def ragged_dot_general(
    lhs: Any,
    rhs: Any,
    group_sizes: Any,
    ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Return a product in which an axis of `lhs` is cut into groups of `group_sizes`.

    A free axis: each group meets its part of `rhs`, which has an axis of groups.  A contracted
    axis: each group is summed by itself, and the result has an axis of groups in front.  A batch
    axis: as without groups.  Raises UnsupportedError for `group_offset` and several ragged axes.
    """
    lhs, rhs, sizes = arrays("ragged_dot_general", lhs, rhs, group_sizes)
    numbers = ragged_dot_dimension_numbers
    ragged, grouped = numbers.lhs_ragged_dimensions, numbers.rhs_group_dimensions
    if group_offset is not None or len(ragged) != 1 or len(grouped) > 1 or sizes.ndim != 1:
        raise UnsupportedError(
            "ragged_dot_general: group_offset, several ragged axes and sizes by batch are not "
            "supported.",
            advice="Give one ragged axis and a vector of group sizes.",
        )
    (axis,) = ragged
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    if axis in lhs_batch:
        return dot_general(
            lhs, rhs, numbers.dot_dimension_numbers, precision, preferred_element_type
        )
    parts = _grouped(lhs, axis, sizes)
    shifted, batch = [a + 1 for a in lhs_sum], [a + 1 for a in lhs_batch]
    if axis in lhs_sum:
        pairs = ((shifted, rhs_sum), (batch, rhs_batch))
        found = dot_general(parts, rhs, pairs, precision, preferred_element_type)
        return move_axis(found, len(batch), 0)
    pairs = (([0, *shifted], [*grouped, *rhs_sum]), (batch, rhs_batch))
    return dot_general(parts, rhs, pairs, precision, preferred_element_type)


def _grouped(x: Any, axis: int, sizes: Any) -> Any:
    """Return `x` once for each group along a new leading axis, zero outside of the group."""
    groups, shape = sizes.shape[0], (sizes.shape[0], *x.shape)
    ends = cumsum(convert(sizes, types.int_dtype()))
    place = iota(ends.dtype, shape, axis + 1)

    def spread(v: Any) -> Any:
        return broadcast_in_dim(v, shape, (0,))

    starts = ops.sub(ends, convert(sizes, ends.dtype))
    inside = ops.and_(ops.le(spread(starts), place), ops.lt(place, spread(ends)))
    wide = broadcast_in_dim(x, (groups, *x.shape), range(1, x.ndim + 1))
    return select(inside, wide, like(wide, 0)) if type_of(wide).shape == shape else wide
