"""scipy.signal beside JAX's, and convolutions and spectra beside SciPy's in float64."""

import warnings
from collections.abc import Callable
from typing import Any

import jax.scipy.signal as jax_signal
import numpy as np
import pytest
import scipy.signal

import stax
import stax.numpy as snp
from stax.errors import ArgumentValueError, UnsupportedError
from stax.scipy import signal
from tests.beside_jax import Case, compare, draw, named

MODES = ("full", "same", "valid")
PLANE, SMALL, LINE, TAPS = draw(6, 5), draw(3, 2), draw(90), draw(4)


def in_each_mode(name: str, *more: Any) -> Callable[..., Any]:
    return lambda m, a, b: [getattr(m, name)(a, b, mode, *more) for mode in MODES]


def swapped_2d(m: Any, a: Any, b: Any) -> list[Any]:
    return [m.convolve2d(b, a), m.correlate2d(b, a, "same"), m.correlate2d(b, a, "full")]


def spectra(**options: Any) -> Callable[..., Any]:
    return lambda m, a, b: [
        m.csd(a, b, **options),
        m.welch(a, **options),
        m.stft(b, **{k: v for k, v in options.items() if k not in ("scaling", "average")}),
    ]


def extended(m: Any, a: Any) -> list[Any]:
    kinds = ("even", "odd", "constant", None)
    return [m.stft(a, nperseg=16, noverlap=4, boundary=kind)[1:] for kind in kinds]


def along_axes(m: Any, a: Any) -> list[Any]:
    return [
        m.stft(a, nperseg=4, axis=0),
        m.stft(a, nperseg=4, axis=-2, padded=False),
        m.csd(a, a + 1, nperseg=3, axis=0),
    ]


def trends(m: Any, a: Any) -> list[Any]:
    return [
        m.detrend(a), m.detrend(a, 0), m.detrend(a, type="constant"), m.detrend(a, bp=[2, 4]),
    ]  # fmt: skip


def inverse(m: Any, z: Any) -> list[Any]:
    return [
        m.istft(z), m.istft(z, boundary=False), m.istft(z, nperseg=16, noverlap=12, fs=2.0),
        m.istft(z.T, time_axis=0, freq_axis=1, window="hamming"),
    ]  # fmt: skip


TRANSFORM = scipy.signal.stft(LINE, nperseg=16)[2].astype("complex64")
BOTH_SIDES = scipy.signal.stft(LINE, nperseg=15, return_onesided=False)[2].astype("complex64")
BACKWARDS = LINE[::-1].copy()
HALVES = draw(9, dtype="float16"), draw(3, dtype="float16")
PADDED = {"nperseg": 15, "noverlap": 4, "nfft": 20, "fs": 3.0, "detrend": "linear"}
BOTH = {"nperseg": 15, "return_onesided": False, "scaling": "spectrum", "average": "median"}
KAISER = {"nperseg": 16, "window": ("kaiser", 4.0), "detrend": False}
COMPLEX = draw(6, 5, dtype="complex64"), draw(3, 2, dtype="complex64", seed=5)
CASES = {
    "convolve": Case(in_each_mode("convolve"), (PLANE, SMALL), slopes=True),
    "convolve-swapped": Case(in_each_mode("convolve"), (SMALL, PLANE)),
    "convolve-1d": Case(in_each_mode("convolve"), (TAPS, LINE)),
    "convolve-3d": Case(in_each_mode("convolve"), (draw(3, 4, 5), draw(2, 1, 2))),
    "convolve-int": Case(in_each_mode("convolve"), (draw(9, dtype="int32"), TAPS)),
    "convolve-half": Case(in_each_mode("convolve"), HALVES),
    "correlate": Case(in_each_mode("correlate"), (LINE, TAPS), slopes=True),
    "correlate-complex": Case(in_each_mode("correlate"), COMPLEX),
    "correlate2d": Case(in_each_mode("correlate2d"), COMPLEX),
    "swapped-2d": Case(swapped_2d, COMPLEX),
    "fftconvolve": Case(in_each_mode("fftconvolve"), (PLANE, SMALL), slopes=True, loose=4),
    "fftconvolve-complex": Case(in_each_mode("fftconvolve"), COMPLEX, loose=4),
    "fftconvolve-axes": Case(lambda m, a: m.fftconvolve(a, a, axes=[1]), (PLANE,), loose=4),
    "method-fft": Case(in_each_mode("correlate", "fft"), (TAPS, LINE), loose=4),
    "detrend": Case(trends, (PLANE,), slopes=True, loose=10),
    "detrend-complex": Case(trends, (COMPLEX[0],), loose=10),
    "spectra": Case(spectra(nperseg=16), (LINE, BACKWARDS), slopes=True, loose=10),
    "spectra-padded": Case(spectra(**PADDED), (LINE, BACKWARDS), loose=10),
    "spectra-both-sides": Case(spectra(**BOTH), (LINE, BACKWARDS), loose=10),
    "spectra-kaiser": Case(spectra(**KAISER), (LINE, LINE + 1), loose=10),
    "stft-extended": Case(extended, (LINE,), loose=10),
    "along-axes": Case(along_axes, (PLANE,), loose=10),
    "istft": Case(inverse, (TRANSFORM,), slopes=True, loose=10),
    "istft-both": Case(lambda m, z: m.istft(z, input_onesided=False), (BOTH_SIDES,), loose=10),
}


SLOW = "convolve-swapped spectra-kaiser spectra-padded method-fft detrend-complex istft-both"


@pytest.mark.parametrize("case", named(CASES, SLOW))
def test_like_jax(case: Case) -> None:
    compare(signal, jax_signal, case)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", [((7, 4), (2, 4)), ((2, 3, 2), (2, 3, 3)), ((9,), (40,))])
def test_convolutions_like_scipy(mode: str, shapes: Any) -> None:
    x, y = (draw(*shape, dtype="float64", seed=len(shape)) for shape in shapes)
    with stax.enable_x64(True):
        for name in ("convolve", "correlate", "fftconvolve"):
            found = getattr(signal, name)(x, y, mode)
            np.testing.assert_allclose(found, getattr(scipy.signal, name)(x, y, mode), atol=1e-12)


def test_a_signal_comes_back() -> None:
    chosen: Any = ({"nperseg": 16}, {"nperseg": 15, "noverlap": 11}, {"nperseg": 16, "nfft": 32})
    for options in chosen:
        there = signal.stft(LINE, **options)[2]
        if "nfft" in options:
            np.testing.assert_allclose(
                there, scipy.signal.stft(LINE, **options)[2], rtol=1e-4, atol=1e-6
            )
        back = signal.istft(there, **options)[1]
        np.testing.assert_allclose(back[:90], LINE, atol=1e-5)


def test_windows_given_as_arrays() -> None:
    window = np.hanning(12).astype("float32")
    found = stax.jit(lambda x, w: signal.welch(x, window=w)[1])(LINE, window)
    np.testing.assert_allclose(found, scipy.signal.welch(LINE, window=window)[1], rtol=1e-4)
    assert stax.grad(lambda w: signal.welch(LINE, window=w)[1].sum())(window).shape == (12,)


def test_trends_by_a_function() -> None:
    found = signal.csd(LINE, LINE + 1, nperseg=16, detrend=lambda rows: rows - 1)
    theirs = scipy.signal.csd(LINE, LINE + 1, nperseg=16, detrend=lambda rows: rows - 1)
    np.testing.assert_allclose(found[1], theirs[1], rtol=1e-4, atol=1e-5)


def test_mapped() -> None:
    found = stax.vmap(lambda row: signal.convolve(row, TAPS[:2]))(PLANE)
    theirs = [np.convolve(row, TAPS[:2]) for row in PLANE]
    np.testing.assert_allclose(found, np.asarray(theirs), rtol=1e-5, atol=1e-6)
    rows = snp.stack([LINE, LINE * 2])
    by_row = stax.vmap(lambda row: signal.stft(row, nperseg=16)[2])(rows)
    np.testing.assert_allclose(by_row, signal.stft(rows, nperseg=16)[2], atol=1e-6)


def test_what_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="nperseg=256 is more than the 90"):
        signal.welch(LINE)
    with pytest.warns(UserWarning, match="two sides"):
        signal.welch(LINE.astype("complex64"), nperseg=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        signal.welch(LINE, nperseg=8)


REFUSED = {
    "mode": lambda: signal.convolve(LINE, TAPS, "most"),
    "method": lambda: signal.convolve(LINE, TAPS, method="quick"),
    "ranks": lambda: signal.correlate(LINE, PLANE),
    "empty": lambda: signal.convolve(LINE[:0], TAPS),
    "valid": lambda: signal.convolve(draw(3, 5), draw(5, 3), "valid"),
    "axes": lambda: signal.fftconvolve(PLANE, SMALL, axes=[1]),
    "planes": lambda: signal.convolve2d(LINE, TAPS),
    "trend": lambda: signal.detrend(LINE, type="cubic"),
    "breakpoint": lambda: signal.detrend(LINE, bp=[91]),
    "overlap": lambda: signal.stft(LINE, nperseg=8, noverlap=8),
    "points": lambda: signal.stft(LINE, nperseg=8, nfft=7),
    "window": lambda: signal.csd(LINE, LINE, window=TAPS, nperseg=8),
    "boundary": lambda: signal.stft(LINE, nperseg=8, boundary="far"),
    "mirror": lambda: signal.stft(LINE[:3], window=TAPS[:3], nperseg=3, boundary="even", nfft=2),
    "scaling": lambda: signal.welch(LINE, nperseg=8, scaling="most"),
    "average": lambda: signal.welch(LINE, nperseg=8, average="mode"),
    "one-axis": lambda: signal.istft(TRANSFORM[0]),
    "same-axis": lambda: signal.istft(TRANSFORM, time_axis=0, freq_axis=0),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(ArgumentValueError):
        REFUSED[name]()


def test_not_supported() -> None:
    with pytest.raises(UnsupportedError, match="boundary='wrap'"):
        signal.correlate2d(PLANE, SMALL, boundary="wrap")
    with pytest.raises(UnsupportedError, match="overwrite_data"):
        signal.detrend(LINE, overwrite_data=True)  # type: ignore[arg-type]
