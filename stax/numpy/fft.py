"""Discrete Fourier transforms, as in numpy.fft.

Lengths `n` or `s` cut the operand or fill it up with zeros before it is transformed.  `norm` says
where the division by the number of elements happens: "backward" in the inverse (the default),
"forward" in the other direction, "ortho" half in each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from stax import types
from stax.errors import ArgumentValueError, DTypeError
from stax.numpy.arguments import Axis, array, axes_list, static_int
from stax.numpy.elementwise import where
from stax.numpy.manipulation import moveaxis, roll
from stax.operators import fft as transforms
from stax.operators.arithmetic import divide, greater, multiply, subtract
from stax.operators.elementwise import convert
from stax.operators.fft import FftType
from stax.operators.matrices import conj
from stax.operators.shape import iota, pad
from stax.trace import full
from stax.types import inexact_dtype

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip

Lengths = Sequence[int] | None


def _operand(name: str, a: Any, kind: FftType) -> Any:
    """Return the operand in a dtype that the transform takes."""
    x = array(name, a)
    dtype = inexact_dtype(x.dtype)
    if types.accumulator(dtype) != dtype:
        dtype = types.float32
    if kind is FftType.RFFT:
        if types.is_complex(dtype):
            raise DTypeError(
                f"{name} takes real numbers, not {x.type}.", advice="Use fft, or the real part."
            )
        return convert(x, dtype)
    wide = {types.float32: types.complex64, types.float64: types.complex128}
    return convert(x, wide.get(dtype, dtype) if kind is FftType.IRFFT else dtype)


def _transform(
    name: str, kind: FftType, a: Any, s: Lengths, axes: Sequence[int] | None, norm: str | None
) -> Any:
    """Return the transform over `axes`, the last one being that which is halved in real kinds."""
    x = _operand(name, a, kind)
    chosen = _axes(name, x, s, axes)
    if not chosen:
        return x if kind is FftType.RFFT else _operand(name, x, FftType.IRFFT)
    ends = list(range(x.ndim - len(chosen), x.ndim))
    x = moveaxis(x, chosen, ends)
    lengths = _lengths(name, x.shape[ends[0] :], kind, s)
    if 0 in lengths:
        dtype = _operand(name, x, FftType.IRFFT).dtype
        dtype = types.real_part(dtype) if kind is FftType.IRFFT else dtype
        return moveaxis(full((*x.shape[: ends[0]], *lengths), 0, dtype), ends, chosen)
    taken = [*lengths[:-1], lengths[-1] // 2 + 1] if kind is FftType.IRFFT else lengths
    x = transforms.fft(_resized(x, taken), kind, lengths)
    factor = _factor(name, math.prod(lengths), kind, norm)
    if factor != 1:
        x = multiply(x, factor)
    return moveaxis(x, ends, chosen)


def _axes(name: str, x: Any, s: Lengths, axes: Sequence[int] | None) -> list[int]:
    """Return the axes that are transformed: without `axes` the last ones, as many as in `s`."""
    if axes is None:
        count = x.ndim if s is None else len(s)
        where = list(range(x.ndim - count, x.ndim))
    else:
        where = axes_list(tuple(axes), x.ndim)
    if s is not None and len(s) != len(where):
        raise ArgumentValueError(
            f"{name}: lengths {tuple(s)} and axes {tuple(where)} differ in number.",
            advice="Give one length for each axis.",
        )
    if len(set(where)) != len(where):
        raise ArgumentValueError(f"{name}: axes {tuple(where)} repeat.", advice="Name each once.")
    return where


def _lengths(name: str, shape: Sequence[Any], kind: FftType, s: Lengths) -> list[int]:
    """Return the lengths of the transform; the last one of IRFFT is that of the result.

    Axes that are empty stay so, as in JAX, but not where half of one is taken: that is one element.
    """
    found = [static_int(name, "a length", n) for n in (shape if s is None else s)]
    if s is None and kind is FftType.IRFFT:
        found[-1] = max(0, 2 * (found[-1] - 1))
    if any(n < 1 for n in found) and (s is not None or kind is FftType.RFFT):
        raise ArgumentValueError(
            f"{name}: lengths {tuple(found)} are not all at least 1.",
            advice="There is no transform of no points.",
        )
    return found


def _resized(x: Any, lengths: Sequence[int]) -> Any:
    """Return `x` with its last axes cut, or filled up with zeros, to `lengths`."""
    start = x.ndim - len(lengths)
    missing = [n - m for n, m in zip(lengths, x.shape[start:], strict=True)]
    if not any(missing):
        return x
    return pad(x, full((), 0, x.dtype), [(0, 0, 0)] * start + [(0, m, 0) for m in missing])


def _factor(name: str, count: int, kind: FftType, norm: str | None) -> float:
    """Return what a transform that is scaled the default way is multiplied by."""
    inverse = kind in (FftType.IFFT, FftType.IRFFT)
    match norm:
        case None | "backward":
            return 1
        case "ortho":
            return math.sqrt(count) if inverse else 1 / math.sqrt(count)
        case "forward":
            return count if inverse else 1 / count
    raise ArgumentValueError(
        f"{name}: norm={norm!r} is no way of scaling.",
        advice="It is 'backward', 'ortho' or 'forward'.",
    )


# --- one axis ---


def _one(name: str, kind: FftType, text: str) -> Callable[..., Any]:
    def function(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
        return _transform(name, kind, a, None if n is None else (n,), (axis,), norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


fft = _one("fft", FftType.FFT, "Return the transform along `axis`.")
ifft = _one("ifft", FftType.IFFT, "Return the inverse transform along `axis`.")
rfft = _one(
    "rfft", FftType.RFFT, "Return the first n // 2 + 1 elements of the transform of real numbers."
)
irfft = _one(
    "irfft",
    FftType.IRFFT,
    "Return the `n` real numbers that `rfft` makes `a` of; `n` is even unless given.",
)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the real transform of numbers whose other half is their mirror image."""
    x = array("hfft", a)
    count = 2 * (x.shape[axis] - 1) if n is None else n
    return multiply(irfft(conj(x), n, axis, norm), _mirrored(count, norm))


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Any:
    """Return the numbers that `hfft` makes `a` of: the first half of the inverse transform."""
    x = array("ihfft", a)
    count = x.shape[axis] if n is None else n
    return divide(conj(rfft(x, n, axis, norm)), _mirrored(count, norm))


def _mirrored(count: int, norm: str | None) -> float:
    """Return by what a transform in the other direction, scaled by `norm`, differs."""
    return {None: count, "backward": count, "ortho": 1, "forward": 1 / count}.get(norm, 1)


# --- several axes ---


def _several(name: str, kind: FftType, text: str, default: tuple[int, ...] | None) -> Any:
    def function(
        a: Any,
        s: Lengths = None,
        axes: Sequence[int] | None = default,
        norm: str | None = None,
    ) -> Any:
        return _transform(name, kind, a, s, axes, norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


_KINDS = (
    ("fft", FftType.FFT, "Return the transform over {}."),
    ("ifft", FftType.IFFT, "Return the inverse transform over {}."),
    ("rfft", FftType.RFFT, "Return the transform of real numbers over {}, halved in the last."),
    ("irfft", FftType.IRFFT, "Return the real numbers of which rfft over {} makes `a`."),
)
fftn, ifftn, rfftn, irfftn = (
    _several(name + "n", kind, text.format("`axes`, all of them unless named"), None)
    for name, kind, text in _KINDS
)
fft2, ifft2, rfft2, irfft2 = (
    _several(name + "2", kind, text.format("two axes"), (-2, -1)) for name, kind, text in _KINDS
)


# --- frequencies ---


def fftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of the elements of a transform of `n` points `d` apart."""
    count = static_int("fftfreq", "n", n)
    places = iota(types.int32, (count,))
    behind = greater(places, (count - 1) // 2)
    return _frequencies("fftfreq", where(behind, subtract(places, count), places), count, d, dtype)


def rfftfreq(n: int, d: Any = 1.0, *, dtype: Any = None, device: Any = None) -> Any:
    """Return the frequencies of the elements of a real transform of `n` points `d` apart."""
    count = static_int("rfftfreq", "n", n)
    places = iota(types.int32, (count // 2 + 1,))
    return _frequencies("rfftfreq", places, count, d, dtype)


def _frequencies(name: str, places: Any, n: int, d: Any, dtype: Any) -> Any:
    """Return places as frequencies; `device` of the callers changes nothing on one device."""
    kind = types.float_dtype() if dtype is None else types.check_dtype(dtype)
    wide = inexact_dtype(kind)
    length = convert(array(name, multiply(d, n)), wide)
    return convert(divide(convert(places, wide), length), kind)


def fftshift(x: Any, axes: Axis = None) -> Any:
    """Return `x` rolled so that the element of frequency 0 is in the middle of `axes`, or all."""
    x = array("fftshift", x)
    rolled = axes_list(axes, x.ndim)
    return roll(x, [x.shape[a] // 2 for a in rolled], rolled) if rolled else x


def ifftshift(x: Any, axes: Axis = None) -> Any:
    """Return `x` rolled so that the middle of `axes` (or all) comes first: `fftshift` undone."""
    x = array("ifftshift", x)
    rolled = axes_list(axes, x.ndim)
    return roll(x, [-(x.shape[a] // 2) for a in rolled], rolled) if rolled else x
