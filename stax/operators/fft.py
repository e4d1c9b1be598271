"""Discrete Fourier transforms: one op, over the last axes, of four kinds.

FFT and IFFT give complex numbers, of complex or real ones; RFFT gives the first half of the
transform of real numbers, whose other half is its mirror image, and IRFFT is its inverse.  The
inverse kinds divide by the number of elements.

All are linear.  The matrix of FFT is symmetric, so it is its own transpose, and IFFT likewise.
"""

from __future__ import annotations

import enum
import functools
import importlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax import types
from stax.errors import ArgumentValueError, DTypeError, ShapeError
from stax.extent import same_shape
from stax.op import Batch, Op
from stax.operators import elementwise as ops
from stax.operators.elementwise import convert, like, select
from stax.operators.shape import iota, pad
from stax.trace import Proxy, bind, full, type_of
from stax.types import ArrayType, complex64, complex128, float32, float64, real_part


class FftType(enum.IntEnum):
    """The kinds of transforms, with the numbers that XLA gives them."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


_COMPLEX: dict[Any, Any] = {
    float32: complex64, float64: complex128, complex64: complex64, complex128: complex128
}  # fmt: skip
_ACCEPTED = {
    FftType.FFT: tuple(_COMPLEX),
    FftType.IFFT: tuple(_COMPLEX),
    FftType.RFFT: (float32, float64),
    FftType.IRFFT: (complex64, complex128),
}
# Elements from which threads pay.
PARALLEL_FROM = 1 << 16


@functools.cache
def _library() -> Any:
    return importlib.import_module("scipy.fft")  # at the first transform: it takes a while


@dataclass(frozen=True, eq=False)
class Fft(Op):
    """The transform of a kind over as many last axes as there are `lengths`."""

    kind: int
    lengths: tuple[int, ...]
    name: ClassVar[str] = "fft"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (x,) = operands
        kind = FftType(self.kind)
        wanted = _ACCEPTED[kind]
        if x.dtype not in wanted:
            shown = " or ".join(types.SHORT_NAMES[d] for d in wanted)
            raise DTypeError(
                f"fft of kind {kind.name} takes {shown}, not {x}.", advice="Convert with astype."
            )
        halved = (*self.lengths[:-1], self.lengths[-1] // 2 + 1)
        taken = halved if kind is FftType.IRFFT else self.lengths
        given = halved if kind is FftType.RFFT else self.lengths
        start = x.ndim - len(taken)
        if start < 0 or not same_shape(x.shape[start:], taken):
            raise ShapeError(
                f"fft of kind {kind.name} with lengths {self.lengths} takes {taken} in the last "
                f"axes, not {x}.",
                advice="Pad or slice the operand to these lengths.",
            )
        dtype = real_part(x.dtype) if kind is FftType.IRFFT else _COMPLEX[x.dtype]
        return ArrayType(dtype, (*x.shape[:start], *given))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (x,) = arrays
        out = self.abstract_eval(ArrayType(x.dtype, x.shape))
        shape: Any = out.shape
        if 0 in x.shape or 0 in shape:
            return np.zeros(shape, out.dtype)
        axes = tuple(range(x.ndim - len(self.lengths), x.ndim))
        name = FftType(self.kind).name.lower() + "n"
        function = getattr(_library(), name)
        workers = (os.cpu_count() or 1) if x.size >= PARALLEL_FROM else 1
        sizes = self.lengths if "r" in name else None
        with np.errstate(all="ignore"):
            found = function(x, sizes, axes, workers=workers)
        return np.asarray(found, out.dtype)

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return bind(self, tangents[0])

    def transpose(self, ct: Proxy, *inputs: Any) -> Sequence[Any]:
        match FftType(self.kind):
            case FftType.RFFT:
                return (_pulled_through_rfft(ct, self.lengths),)
            case FftType.IRFFT:
                return (_pulled_through_irfft(ct, self.lengths),)
        pulled = bind(self, ct)
        return (pulled if types.is_complex(inputs[0].type.dtype) else ops.real(pulled),)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)


def _pulled_through_rfft(ct: Any, lengths: tuple[int, ...]) -> Any:
    """RFFT is FFT of numbers that happen to be real, of which the first half is kept."""
    missing = lengths[-1] - (lengths[-1] // 2 + 1)
    widths = [(0, missing if a == ct.type.ndim - 1 else 0, 0) for a in range(ct.type.ndim)]
    whole = pad(ct, full((), 0, ct.type.dtype), widths)
    return ops.real(bind(Fft(FftType.FFT, lengths), whole))


def _pulled_through_irfft(ct: Any, lengths: tuple[int, ...]) -> Any:
    """Each element stands for itself and for its mirror image, but for those that have none."""
    n = lengths[-1]
    found = bind(Fft(FftType.RFFT, lengths), ct)
    places = iota(types.int32, type_of(found).shape, -1)
    alone = ops.eq(places, like(places, 0))
    if n % 2 == 0:
        alone = ops.or_(alone, ops.eq(places, like(places, n // 2)))
    real = full(type_of(found).shape, 1 / math.prod(lengths), real_part(type_of(found).dtype))
    weights = select(alone, real, ops.add(real, real))
    return ops.conj(ops.mul(found, convert(weights, type_of(found).dtype)))


def fft(x: Any, kind: Any, lengths: Sequence[int]) -> Any:
    """Return the transform of `x` over its last axes, which have `lengths`.

    `kind` is an `FftType`, its name or its number.
    """
    try:
        found = FftType[kind.upper()] if isinstance(kind, str) else FftType(kind)
    except (KeyError, ValueError):
        raise ArgumentValueError(
            f"fft: {kind!r} is no kind of transform.", advice="Kinds are FFT, IFFT, RFFT and IRFFT."
        ) from None
    sizes = tuple(int(n) for n in lengths)
    return bind(Fft(int(found), sizes), x) if sizes else x
