"""What arithmetic and functions of complex numbers mean, in NumPy, where NumPy has it otherwise.

NumPy multiplies with fused multiply-adds on some machines, has no `exp2` and no logistic function,
and loses the digits of `log1p` near 0, and infinities of `expm1`.  Here products and quotients are
made of the plain real operations in a fixed order, which compiled code repeats, so both have the
same bits everywhere.  Division is Smith's (https://doi.org/10.1145/368637.368661), as in NumPy: no
intermediate result overflows where the quotient does not, but for denominators near the largest
number.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def join(real: np.ndarray, imag: np.ndarray) -> np.ndarray:
    """Return the complex numbers with these parts; unlike `real + 1j * imag`, whatever they are."""
    result = np.empty(np.shape(real), np.result_type(real, np.complex64))
    result.real, result.imag = real, imag
    return result


def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the product, by four real products of which none is fused with a sum."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    return join(a * c - b * d, a * d + b * c)


def divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the quotient by Smith's algorithm; over 0, each part over 0."""
    a, b, c, d = x.real, x.imag, y.real, y.imag
    across, along = np.abs(c), np.abs(d)
    first = across >= along
    ratio = np.where(first, d, c) / np.where(first, c, d)
    scale = 1 / (np.where(first, c, d) + np.where(first, d, c) * ratio)
    real = np.where(first, a + b * ratio, a * ratio + b) * scale
    imag = np.where(first, b - a * ratio, b * ratio - a) * scale
    at_zero = (across == 0) & (along == 0)
    return join(np.where(at_zero, a / across, real), np.where(at_zero, b / across, imag))


def sign(x: np.ndarray) -> np.ndarray:
    """Return the point of the unit circle in the direction of `x`, and 0 at 0."""
    length = np.abs(x)
    safe = np.where(length == 0, np.ones_like(length), length)
    return join(x.real / safe, x.imag / safe)


def exp2(x: np.ndarray) -> Any:
    """Return 2 to the power `x`."""
    scale = x.real.dtype.type(np.log(2))
    return np.exp(join(x.real * scale, x.imag * scale))


def expm1(x: np.ndarray) -> np.ndarray:
    """Return the exponential less 1, without losing the digits of a small `x`."""
    a, b, whole = x.real, x.imag, np.exp(x)
    near = np.expm1(a) * np.cos(b) - 2 * np.sin(b / 2) ** 2
    return join(np.where(a < 32, near, whole.real - 1), whole.imag)


def log1p(x: np.ndarray) -> np.ndarray:
    """Return the logarithm of 1 + `x`, without losing the digits of a small `x`."""
    wide: Any = np.longdouble if x.dtype == np.complex128 else np.float64
    a, b = x.real.astype(wide), x.imag.astype(wide)
    less = a * (2 + a) + b * b  # |1 + x|**2 - 1
    near = (less > -0.5) & (less < 3)
    real = np.where(near, np.log1p(less) / 2, np.log(np.hypot(1 + a, b)))
    imag = np.arctan2(x.imag, 1 + x.real)
    return join(real.astype(imag.dtype), imag)


def logistic(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), by the exponential that does not overflow."""
    positive = x.real >= 0
    e = np.exp(np.where(positive, -x, x))
    return divide(np.where(positive, np.ones_like(x), e), join(1 + e.real, e.imag))


def rsqrt(x: np.ndarray) -> np.ndarray:
    """Return 1 over the square root."""
    root = np.sqrt(x)
    return divide(np.ones_like(root), root)


def atan2(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return -i log((x + iy) / sqrt(x**2 + y**2)), which is the angle where both are real."""
    turned = x + multiply(np.full_like(y, 1j), y)
    length = np.sqrt(multiply(x, x) + multiply(y, y))
    logarithm = np.log(divide(turned, length))
    return join(logarithm.imag, -logarithm.real)
