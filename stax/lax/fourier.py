"""`jax.lax.fft`: the Fourier transform over the last axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stax.numpy.arguments import array
from stax.operators import fft as transforms
from stax.operators.fft import FftType as FftType


def fft(x: Any, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Any:
    """Return the transform of `x` over as many last axes as there are `fft_lengths`.

    FFT and IFFT take complex numbers, RFFT real ones, of which it gives the first half; IRFFT is
    its inverse and gives `fft_lengths` real numbers.  Raises ShapeError for other lengths.
    """
    return transforms.fft(array("fft", x), fft_type, fft_lengths)
