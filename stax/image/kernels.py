"""How much an element of an image counts at a distance: the kernels of resampling.

Formulas: R. G. Keys, "Cubic convolution interpolation for digital image processing", 1981;
C. E. Duchon, "Lanczos filtering in one and two dimensions", 1979.
"""

from __future__ import annotations

import functools
from typing import Any

import stax.numpy as snp


def triangle(distance: Any) -> Any:
    """Return the weights of linear interpolation."""
    return snp.maximum(1 - distance, 0)


def cubic(slope: float, distance: Any) -> Any:
    """Return the weights of cubic interpolation whose slope at the distance 1 is `slope`."""
    near = 1 + distance**2 * ((slope + 2) * distance - (slope + 3))
    far = slope * (((distance - 5) * distance + 8) * distance - 4)
    return snp.where(distance < 1, near, snp.where(distance < 2, far, 0))


def lanczos(radius: int, distance: Any) -> Any:
    """Return the weights of a sinc that another one, of `radius`, cuts off."""
    inside = snp.sinc(distance) * snp.sinc(distance / radius)
    return snp.where(distance <= radius, inside, 0)


KEYS = functools.partial(cubic, -0.5)
STEEP = functools.partial(cubic, -0.75)
