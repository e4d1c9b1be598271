"""Convolutions of arrays of any rank: direct ones, and products of Fourier transforms.

Modes say which part of all the shifts at which two arrays meet is returned: "full", all of it;
"same", its middle, as large as the first array; "valid", where one array covers the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.lax.convolution import conv_general_dilated
from stax.numpy.arguments import arrays, axes_list, inexact, promoted

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "fftconvolve"]

_MODES = ("full", "same", "valid")


def _operands(name: str, in1: Any, in2: Any, mode: str) -> list[Any]:
    """Return both arrays in one inexact dtype; raises where ranks or the mode do not fit."""
    if mode not in _MODES:
        raise ArgumentValueError(
            f"{name}: mode {mode!r} is unknown.",
            advice=f"Modes are {', '.join(map(repr, _MODES))}.",
        )
    found = arrays(name, in1, in2)
    if found[0].ndim != found[1].ndim:
        raise ArgumentValueError(
            f"{name}: {found[0].type} and {found[1].type} differ in the number of axes.",
            advice="Add axes of length 1 with expand_dims.",
        )
    if not found[0].size or not found[1].size:
        raise ArgumentValueError(
            f"{name}: {found[0].type} or {found[1].type} is empty.",
            advice="Arrays that are convolved have at least one element.",
        )
    return [inexact(name, x) for x in promoted(name, found)]


def _kept(name: str, first: Sequence[int], second: Sequence[int], mode: str) -> list[slice]:
    """Return the part of each axis of the full convolution that `mode` keeps."""
    whole = [m + n - 1 for m, n in zip(first, second, strict=True)]
    if mode == "full":
        return [slice(0, n) for n in whole]
    if mode == "same":
        starts = [(n - m) // 2 for n, m in zip(whole, first, strict=True)]
        return [slice(s, s + m) for s, m in zip(starts, first, strict=True)]
    pairs = list(zip(first, second, strict=True))
    if not (all(m >= n for m, n in pairs) or all(m <= n for m, n in pairs)):
        raise ArgumentValueError(
            f"{name}: in mode 'valid' neither of the shapes {tuple(first)} and {tuple(second)} "
            "covers the other.",
            advice="One array is at least as long as the other in every axis.",
        )
    return [slice(min(m, n) - 1, max(m, n)) for m, n in pairs]


def _direct(name: str, x: Any, y: Any, mode: str, precision: Any) -> Any:
    """Return the convolution as sums of products; the smaller array is the kernel."""
    if not x.ndim:
        return x * y
    kept = _kept(name, x.shape, y.shape, mode)
    if x.ndim == 1:
        whole = snp.convolve(x, y, "valid" if mode == "valid" else "full", precision=precision)
        return whole if mode == "valid" else whole[kept[0]]
    if math.prod(y.shape) > math.prod(x.shape):
        x, y = y, x
    # Element i of the full result needs the signal from i - (n - 1) to i.
    padding = [
        (n - 1 - part.start, part.stop - m)
        for part, m, n in zip(kept, x.shape, y.shape, strict=True)
    ]
    out = conv_general_dilated(
        x[None, None], snp.flip(y)[None, None], (1,) * x.ndim, padding, precision=precision
    )
    return out[0, 0]


def convolve(
    in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None
) -> Any:
    """Return the convolution of two arrays of the same rank.

    `method` "fft" multiplies Fourier transforms, see `fftconvolve`; "direct" and "auto" add
    products.  Integers are taken as float32.  Raises ArgumentValueError where ranks differ, an
    array is empty, or there is no such mode or method.
    """
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    if method not in ("auto", "direct"):
        raise ArgumentValueError(
            f"convolve: method {method!r} is unknown.",
            advice="Methods are 'auto', 'direct' and 'fft'.",
        )
    x, y = _operands("convolve", in1, in2, mode)
    return _direct("convolve", x, y, mode, precision)


def correlate(
    in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None
) -> Any:
    """Return the sums of products of `in1` with the conjugate of `in2` at each shift.

    Modes, methods and errors are those of `convolve`.
    """
    (in2,) = arrays("correlate", in2)
    return convolve(in1, snp.flip(snp.conj(in2)), mode, method, precision)


def _planes(name: str, in1: Any, in2: Any, boundary: str, fillvalue: Any) -> None:
    """Raise where the arguments are not planes surrounded by zeros."""
    if boundary != "fill" or fillvalue != 0:
        raise UnsupportedError(
            f"{name}: boundary={boundary!r} with fillvalue={fillvalue!r} is not supported.",
            advice="Extend the first array with pad, and take the mode 'valid'.",
        )
    if any(x.ndim != 2 for x in arrays(name, in1, in2)):
        raise ArgumentValueError(
            f"{name} takes arrays of two axes.", advice="Use scipy.signal.convolve or correlate."
        )


def convolve2d(
    in1: Any,
    in2: Any,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Any:
    """Return the convolution of two planes that are surrounded by zeros; see `convolve`."""
    _planes("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, precision=precision)


def correlate2d(
    in1: Any,
    in2: Any,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: float = 0,
    precision: Any = None,
) -> Any:
    """Return the correlation of two planes that are surrounded by zeros; see `correlate`.

    Where "same" leaves two elements to start from it is the later one, as in SciPy.  It is always
    `in2` that is conjugated, also where it is the larger in mode "valid".
    """
    _planes("correlate2d", in1, in2, boundary, fillvalue)
    if mode != "same":
        return correlate(in1, in2, mode, precision=precision)
    first, second = arrays("correlate2d", in1, in2)
    turned = convolve(snp.flip(first), snp.conj(second), mode, precision=precision)
    return snp.flip(turned)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Sequence[int] | None = None) -> Any:
    """Return the convolution over `axes` (or all) as the product of Fourier transforms.

    Lengths in other axes are the same in both arrays.  The result is never weak; errors are those
    of `convolve`.
    """
    x, y = _operands("fftconvolve", in1, in2, mode)
    where = axes_list(None if axes is None else tuple(axes), x.ndim)
    if any(x.shape[a] != y.shape[a] for a in range(x.ndim) if a not in where):
        raise ArgumentValueError(
            f"fftconvolve: {x.type} and {y.type} differ in axes other than {tuple(where)}.",
            advice="Repeat one of them, or convolve over these axes too.",
        )
    first, second = ([v.shape[a] for a in where] for v in (x, y))
    kept = _kept("fftconvolve", first, second, mode)
    if not where:
        return x * y
    there, back = snp.fft.rfftn, snp.fft.irfftn
    if types.is_complex(x.dtype):
        there, back = snp.fft.fftn, snp.fft.ifftn
    sizes = [m + n - 1 for m, n in zip(first, second, strict=True)]
    product = there(x, sizes, where) * there(y, sizes, where)
    parts = [slice(None)] * x.ndim
    for axis, part in zip(where, kept, strict=True):
        parts[axis] = part
    return back(product, sizes, where)[tuple(parts)].astype(x.dtype)
