"""Library calls on complex values: pairs of numbers in memory, as every library keeps them.

Elsewhere in a lowered graph a complex value is two planes (see `planes`).  Where a library takes
whole arrays the planes are laid out as pairs, in an axis of length 2 at the end, and the results
are taken apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.extent import same_shape
from stax.graph import Node
from stax.lowering.complex_math import Planes
from stax.lowering.fourier import FourierPass
from stax.op import Op
from stax.operators.callback import HostOp
from stax.operators.fft import Fft
from stax.operators.matrices import MatrixOp
from stax.operators.reshape import Reshape, reshape
from stax.operators.shape import Slice, slice_in_dim
from stax.trace import Proxy, bind, results, type_of
from stax.types import (
    ArrayType,
    Shape,
    TupleType,
    Type,
    complex64,
    complex128,
    float32,
    is_complex,
)

_PAIR: dict[Any, Any] = {complex64: np.dtype("float32"), complex128: np.dtype("float64")}


def library_op(op: Op) -> Op:
    """Return what a library is asked for: the op of pairs, or the op itself."""
    return op.op if isinstance(op, Paired) else op


@dataclass(frozen=True, eq=False)
class Paired(Op):
    """An op on complex values, some of whose operands (`flags`) and results are pairs."""

    op: Op
    flags: tuple[bool, ...]
    name: ClassVar[str] = "paired"

    @property
    def effect(self) -> str | None:  # type: ignore[override]
        return self.op.effect

    def complex_type(self, *operands: ArrayType) -> Type:
        """Return the type of the op itself."""
        return self.op.abstract_eval(
            *(_joined_type(t) if f else t for t, f in zip(operands, self.flags, strict=True))
        )

    def abstract_eval(self, *operands: ArrayType) -> Type:
        found = self.complex_type(*operands)
        if isinstance(found, TupleType):
            return TupleType(map(_pair_type, found.items))
        return _pair_type(found)

    def evaluate(self, *arrays: np.ndarray) -> Any:
        given = [_as_complex(x) if f else x for x, f in zip(arrays, self.flags, strict=True)]
        found = self.op.evaluate(*given)
        if isinstance(found, tuple):
            return tuple(map(_as_pairs, found))
        return _as_pairs(found)


def _joined_type(t: ArrayType) -> ArrayType:
    return ArrayType(complex64 if t.dtype == float32 else complex128, t.shape[:-1])


def _pair_type(t: ArrayType) -> ArrayType:
    return ArrayType(_PAIR[t.dtype], (*t.shape, 2)) if is_complex(t.dtype) else t


def _as_complex(x: np.ndarray) -> np.ndarray:
    wide: Any = complex64 if x.dtype == float32 else complex128
    found: np.ndarray = np.ascontiguousarray(x).view(wide).reshape(x.shape[:-1])
    return found


def _as_pairs(x: np.ndarray) -> np.ndarray:
    if not is_complex(x.dtype):
        return x
    return np.ascontiguousarray(x).view(_PAIR[x.dtype]).reshape(*x.shape, 2)


@dataclass(frozen=True, eq=False)
class Pairs(Op):
    """Two values side by side, in one more axis of length 2 at the end.

    A kernel computes both at one point of a nest that has the shape of the operands.
    """

    name: ClassVar[str] = "pairs"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        return operands[0].with_shape((*operands[0].shape, 2))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.stack(arrays, -1)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        *place, which = index
        first, second = (x(tuple(place)) for x in operands)
        return kernel.apply("select", kernel.less(which, 1), first, second)


def nest_shape(node: Node) -> Shape:
    """Return the shape of the nest that computes `node`: that of the value, but for pairs."""
    shape: Shape = node.type.shape
    return shape[:-1] if isinstance(node.op, Pairs) else shape


def joined(x: Planes) -> Any:
    """Return planes as pairs of numbers: those that they were taken from, if they were."""
    wholes = [_taken_from(plane, i) for i, plane in enumerate(x)]
    if wholes[0] is not None and wholes[0] is wholes[1]:
        return Proxy(wholes[0], x[0].owner)
    return bind(Pairs(), *x)


def _taken_from(plane: Any, which: int) -> Node | None:
    """Return the pairs of which a plane is the first or the second, or None."""
    match plane.node if isinstance(plane, Proxy) else None:
        case Node(Reshape(), (Node(Slice() as part, (whole,)) as taken,)):
            shape = (*taken.type.shape[:-1], 2)
            begins = part.starts == (*(0,) * (len(shape) - 1), which)
            is_whole = begins and same_shape(shape, whole.type.shape) and set(part.strides) == {1}
            return whole if is_whole and same_shape(plane.type.shape, shape[:-1]) else None
    return None


def taken_apart(x: Any) -> Planes:
    """Return pairs of numbers as planes."""
    shape = type_of(x).shape[:-1]
    return Planes(*(reshape(slice_in_dim(x, i, i + 1, axis=-1), shape) for i in (0, 1)))


def on_pairs(op: Op, inputs: Sequence[Any]) -> Any:
    """Apply `op` to planes, or to real values with complex results: planes, or a tuple of them."""
    given = [joined(x) if isinstance(x, Planes) else x for x in inputs]
    wrapped = Paired(op, tuple(isinstance(x, Planes) for x in inputs))
    type_ = wrapped.complex_type(*map(type_of, given))
    values = results(bind(wrapped, *given))
    if isinstance(type_, TupleType):
        return tuple(map(_in_planes, values, type_.items))
    return _in_planes(values[0], type_)


def _in_planes(x: Any, type_: ArrayType) -> Any:
    """Return what a library made of a value of `type_`: planes, if that is complex."""
    return taken_apart(x) if is_complex(type_.dtype) else x


def is_library_op(op: Op) -> bool:
    """Say whether a library computes `op`, natively or through Python."""
    return isinstance(op, Fft | FourierPass | MatrixOp | HostOp | Paired)
