"""`jax.scipy.signal`: convolutions, spectra, and signals without their trends."""

from __future__ import annotations

from stax.scipy.signal.convolutions import (
    convolve,
    convolve2d,
    correlate,
    correlate2d,
    fftconvolve,
)
from stax.scipy.signal.spectra import csd, istft, stft, welch
from stax.scipy.signal.trends import detrend

__all__ = [
    "convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve",
    "istft", "stft", "welch",
]  # fmt: skip
