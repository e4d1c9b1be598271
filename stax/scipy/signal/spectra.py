"""Spectra of signals by Fourier transforms of their segments, and signals made of such again.

Formulas: P. D. Welch, "The use of the fast Fourier transform for the estimation of power spectra",
1967; D. W. Griffin and J. S. Lim, "Signal estimation from modified short-time Fourier transform",
1984.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError
from stax.numpy.arguments import array, inexact, promoted
from stax.operators.elementwise import convert
from stax.scipy.signal.segments import Segmentation, segmentation
from stax.scipy.signal.trends import detrend as without_trend
from stax.types import canonical_axis

__all__ = ["csd", "istft", "stft", "welch"]

Trend = str | bool | Callable[[Any], Any]


def _signal(name: str, x: Any) -> Any:
    """Return a signal in a dtype that transforms take, not weak."""
    x = inexact(name, x)
    return convert(x, types.accumulator(x.dtype))


def _one_sided(name: str, wanted: bool, *signals: Any) -> bool:
    """Say whether only half of the spectrum is returned, which that of complex numbers forbids."""
    if wanted and any(types.is_complex(x.dtype) for x in signals):
        warnings.warn(f"{name}: complex signals have spectra of two sides.", stacklevel=3)
        return False
    return wanted


def _transformed(plan: Segmentation, x: Any, trend: Trend, axis: int, half: bool) -> Any:
    """Return the transform of each segment of the last axis of `x`, without its trend."""
    rows = plan.cut(x)
    if callable(trend):
        rows = snp.moveaxis(trend(snp.moveaxis(rows, -1, axis)), axis, -1)
    elif trend:
        rows = without_trend(rows, type=trend)  # type: ignore[arg-type]
    rows = plan.window * rows
    return (snp.fft.rfft if half else snp.fft.fft)(rows, plan.points)


def _frequencies(points: int, fs: Any, half: bool, dtype: Any) -> Any:
    return (snp.fft.rfftfreq if half else snp.fft.fftfreq)(points, 1 / fs, dtype=dtype)


def _to_axis(spectra: Any, axis: int) -> Any:
    """Return (..., segments, frequencies) with frequencies at `axis` and the segments last."""
    return snp.moveaxis(spectra, -1, axis - 1 if axis < 0 else axis)


# --- densities ---


def csd(
    x: Any,
    y: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Trend = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Any, Any]:
    """Return frequencies, and the cross spectral density of `x` and `y` by Welch's method.

    The products of the transforms of segments (of `nperseg` elements, `noverlap` of them shared
    with the next) are averaged, by their "mean" or "median".  `scaling` "density" makes the result
    one per frequency, "spectrum" does not.  Without `y` it is the density of `x`.  Leading axes are
    broadcast, and the shorter signal is filled up with zeros.  Raises ArgumentValueError for
    choices that there are not, and lengths that do not go together.
    """
    own = y is None
    x, y = (_signal("csd", v) for v in promoted("csd", (x, x if own else y)))
    x, y = (snp.moveaxis(v, axis, -1) for v in (x, y))
    length = max(x.shape[-1], y.shape[-1])
    plan = segmentation("csd", window, types.real_part(x.dtype), nperseg, noverlap, nfft, length)
    half = _one_sided("csd", return_onesided, x, y)
    spectra = [
        _transformed(plan, _filled(v, length), detrend, axis, half)
        for v in ((x,) if own else (x, y))
    ]
    density = snp.conj(spectra[0]) * spectra[-1] * _scale(scaling, plan, fs)
    if half:
        density = density * _sides(plan.points, density.dtype)
    density = _averaged(_to_axis(density, axis), average)
    return _frequencies(plan.points, fs, half, types.real_part(x.dtype)), density


def _filled(x: Any, length: int) -> Any:
    """Return `x` with zeros up to `length` in its last axis."""
    return snp.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, length - x.shape[-1])])


def _scale(scaling: str, plan: Segmentation, fs: Any) -> Any:
    """Return what products of transforms are multiplied with."""
    if scaling == "density":
        return 1 / (fs * snp.sum(plan.window**2))
    if scaling == "spectrum":
        return 1 / snp.sum(plan.window) ** 2
    raise ArgumentValueError(
        f"csd: there is no scaling {scaling!r}.", advice="Use 'density' or 'spectrum'."
    )


def _sides(points: int, dtype: Any) -> Any:
    """Return 2 for each frequency that stands for its negative too, 1 for the others."""
    counts = np.full(points // 2 + 1, 2)
    counts[0] = 1
    if points % 2 == 0:
        counts[-1] = 1
    return snp.asarray(counts, dtype)


def _averaged(density: Any, average: str) -> Any:
    """Return the average over the last axis."""
    if average == "mean":
        return snp.mean(density, -1)
    if average != "median":
        raise ArgumentValueError(
            f"csd: there is no average {average!r}.", advice="Use 'mean' or 'median'."
        )
    # The median of n values that are distributed as squares of normal ones, over their mean.
    even = 2 * np.arange(1, (density.shape[-1] - 1) // 2 + 1)
    bias = 1 + np.sum(1 / (even + 1) - 1 / even)
    if types.is_complex(density.dtype):
        middle = snp.median(density.real, -1) + 1j * snp.median(density.imag, -1)
    else:
        middle = snp.median(density, -1)
    return middle / bias


def welch(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Trend = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Any, Any]:
    """Return frequencies, and the power spectral density of `x` by Welch's method; see `csd`."""
    frequencies, density = csd(
        x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
        average,
    )  # fmt: skip
    return frequencies, density.real


# --- transforms in time ---

_EXTENSIONS = ("even", "odd", "constant", "zeros", None)


def stft(
    x: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: Trend = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Any, Any, Any]:
    """Return frequencies, times, and the Fourier transform of each segment of `x`.

    Frequencies take the place of `axis`, and times are the last axis.  At both ends the signal is
    extended by half of a segment: by "zeros", its end ("constant"), its mirror image ("even", or
    "odd" for one turned about the end), or not at all (None).  If `padded`, zeros fill up the last
    segment.  Raises ArgumentValueError for lengths that do not go together.
    """
    x = snp.moveaxis(_signal("stft", x), axis, -1)
    real = types.real_part(x.dtype)
    plan = segmentation("stft", window, real, nperseg, noverlap, nfft, x.shape[-1])
    half = _one_sided("stft", return_onesided, x)
    x = _extended(x, boundary, plan.length // 2)
    if padded:
        missing = -(x.shape[-1] - plan.length) % plan.step % plan.length
        x = _filled(x, x.shape[-1] + missing)
    spectra = _transformed(plan, x, detrend, axis, half) / snp.abs(snp.sum(plan.window))
    times = snp.arange(spectra.shape[-2], dtype=real) * plan.step
    if boundary is None:
        times = times + plan.length / 2
    frequencies = _frequencies(plan.points, fs, half, real)
    return frequencies, times / fs, _to_axis(spectra, axis)


def _extended(x: Any, boundary: str | None, count: int) -> Any:
    """Return `x` with `count` more elements at both ends of its last axis."""
    if boundary not in _EXTENSIONS:
        raise ArgumentValueError(
            f"stft: there is no boundary {boundary!r}.",
            advice=f"Use one of {', '.join(map(repr, _EXTENSIONS))}.",
        )
    if boundary is None or not count:
        return x
    around = [(0, 0)] * (x.ndim - 1) + [(count, count)]
    if boundary in ("zeros", "constant"):
        return snp.pad(x, around, "edge" if boundary == "constant" else "constant")
    if count >= x.shape[-1]:
        raise ArgumentValueError(
            f"stft: {x.shape[-1]} elements have no mirror image of {count}.",
            advice="Use shorter segments, or the boundary 'zeros'.",
        )
    return snp.pad(x, around, "reflect", reflect_type=boundary)


def istft(
    Zxx: Any,
    fs: Any = 1.0,
    window: Any = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Any, Any]:
    """Return times, and the signal whose `stft` is nearest to `Zxx`.

    Lengths are those that `stft` was given; by default they follow from the number of frequencies.
    With `boundary` the extension of both ends is cut off.  Elements that no window covers are 0.
    Raises ArgumentValueError for less than two axes, and lengths that do not go together.
    """
    spectra = array("istft", Zxx)
    if spectra.ndim < 2:
        raise ArgumentValueError(
            f"istft: {spectra.type} has not both frequencies and times.", advice="Pass two axes."
        )
    where = [canonical_axis(a, spectra.ndim) for a in (freq_axis, time_axis)]
    if where[0] == where[1]:
        raise ArgumentValueError(
            f"istft: freq_axis={freq_axis} and time_axis={time_axis} are one axis.",
            advice="Name the axis of frequencies and that of times.",
        )
    rows = snp.moveaxis(_signal("istft", spectra), where[::-1], (-2, -1))
    usual = 2 * (rows.shape[-1] - 1) if input_onesided else rows.shape[-1]
    if nfft is None:
        nfft = nperseg if input_onesided and nperseg == usual + 1 else usual
    size = usual if nperseg is None else nperseg
    if not isinstance(window, str | tuple | float):
        size = nperseg if nperseg is not None else snp.shape(window)[0]
    plan = segmentation("istft", window, types.real_part(rows.dtype), size, noverlap, nfft)
    x = (snp.fft.irfft if input_onesided else snp.fft.ifft)(rows, plan.points)
    x = plan.joined(x[..., : plan.length] * plan.window) * snp.sum(plan.window)
    norm = plan.joined(snp.broadcast_to(plan.window**2, (rows.shape[-2], plan.length)))
    if boundary and (edge := plan.length // 2):
        x, norm = x[..., edge:-edge], norm[..., edge:-edge]
    x = x / snp.where(norm > 1e-10, norm, 1)
    times = snp.arange(x.shape[-1], dtype=types.real_part(x.dtype)) / fs
    if x.ndim > 1 and where[1] != spectra.ndim - 1:
        time = where[1] - (where[0] < where[1])
        x = snp.moveaxis(x, -1, time)
    return times, x
