"""Images in other sizes: each axis is multiplied with a matrix of weights.

Elements are squares of side 1, so that the middle of the first one is at 0.5.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError
from stax.image.kernels import KEYS, STEEP, lanczos, triangle
from stax.numpy.arguments import array, axes_list, inexact, static_int
from stax.operators.elementwise import convert

__all__ = ["ResizeMethod", "resize", "scale_and_translate"]


class ResizeMethod(enum.Enum):
    """Ways of resampling; each also goes by names, such as "bilinear"."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """Return the method of a name; raises ArgumentValueError if there is none."""
        for method, names in _NAMES.items():
            if s in names.split():
                return method
        raise ArgumentValueError(
            f"resize: there is no method {s!r}.",
            advice=f"Names are {', '.join(' '.join(_NAMES.values()).split())}.",
        )


_NAMES = {
    ResizeMethod.NEAREST: "nearest",
    ResizeMethod.LINEAR: "linear bilinear trilinear triangle",
    ResizeMethod.LANCZOS3: "lanczos3",
    ResizeMethod.LANCZOS5: "lanczos5",
    ResizeMethod.CUBIC: "cubic bicubic tricubic",
    ResizeMethod.CUBIC_PYTORCH: "cubic-pytorch bicubic-pytorch",
    ResizeMethod.AREA: "area",
}
_KERNELS: dict[ResizeMethod, Callable[[Any], Any]] = {
    ResizeMethod.LINEAR: triangle,
    ResizeMethod.LANCZOS3: functools.partial(lanczos, 3),
    ResizeMethod.LANCZOS5: functools.partial(lanczos, 5),
    ResizeMethod.CUBIC: KEYS,
    ResizeMethod.CUBIC_PYTORCH: KEYS,
}
# Below this the weights of an element outside of the image add up to nothing.
_LEAST = 1000 * float(np.finfo(np.float32).eps)


def resize(
    image: Any, shape: Sequence[int], method: Any, antialias: bool = True, precision: Any = None
) -> Any:
    """Return `image` resampled to `shape`, by a ResizeMethod or its name.

    With `antialias` the kernel is as wide as an element of the result where that is larger.  The
    type is that of the image for NEAREST, and otherwise a floating one that is not weak.
    `precision` is accepted and changes nothing.  Raises ArgumentValueError for other methods and
    for shapes of another rank.
    """
    image = array("resize", image)
    method = _method(method)
    sizes = _sizes("resize", image, shape)
    if method is ResizeMethod.NEAREST:
        return _nearest(image, sizes)
    axes = [a for a, (m, n) in enumerate(zip(image.shape, sizes, strict=True)) if m != n]
    scales = [sizes[a] / image.shape[a] if image.shape[a] else 1.0 for a in axes]
    return _resampled("resize", image, sizes, axes, scales, [0.0] * len(axes), method, antialias)


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: Any,
    antialias: bool = True,
    precision: Any = None,
) -> Any:
    """Return an image of `shape` in which what is at x is found at x * scale + translation.

    `scale` and `translation` have an entry for each of `spatial_dims`, and derivatives.  What lies
    outside of `image` is 0.  Raises ArgumentValueError as `resize` does, for NEAREST, and where
    lengths differ or axes that are not named change their size.
    """
    image = array("scale_and_translate", image)
    method = _method(method)
    if method is ResizeMethod.NEAREST:
        raise ArgumentValueError(
            "scale_and_translate: the method NEAREST is not supported.",
            advice="Use resize, or another method.",
        )
    sizes = _sizes("scale_and_translate", image, shape)
    axes = axes_list(tuple(spatial_dims), image.ndim)
    scale, translation = (snp.asarray(v) for v in (scale, translation))
    if scale.shape != (len(axes),) or translation.shape != (len(axes),):
        raise ArgumentValueError(
            f"scale_and_translate: scale {scale.type} and translation {translation.type} for the "
            f"axes {tuple(axes)}.",
            advice="Both are vectors with one entry for each axis.",
        )
    kept = [a for a in range(image.ndim) if a not in axes]
    if any(image.shape[a] != sizes[a] for a in kept):
        raise ArgumentValueError(
            f"scale_and_translate: shape {tuple(sizes)} of {image.type} changes other axes than "
            f"{tuple(axes)}.",
            advice="Name every axis whose size changes in spatial_dims.",
        )
    return _resampled(
        "scale_and_translate", image, sizes, axes, scale, translation, method, antialias
    )


def _method(given: Any) -> ResizeMethod:
    if isinstance(given, str):
        return ResizeMethod.from_string(given)
    if not isinstance(given, ResizeMethod):
        raise ArgumentValueError(
            f"resize: {given!r} is no method.", advice="Pass a ResizeMethod or its name."
        )
    return given


def _sizes(name: str, image: Any, shape: Sequence[int]) -> list[int]:
    sizes = [static_int(name, "a size", n) for n in shape]
    if len(sizes) != image.ndim:
        raise ArgumentValueError(
            f"{name}: shape {tuple(sizes)} for {image.type}.",
            advice="Give the size of every axis, those of examples and channels too.",
        )
    return sizes


def _nearest(image: Any, sizes: Sequence[int]) -> Any:
    """Return the element in which the middle of each element of the result lies."""
    for axis, (m, n) in enumerate(zip(image.shape, sizes, strict=True)):
        if m != n:
            # Half of n divides (2 i + 1) m exactly where the middle lies on an edge.
            places = (2 * np.arange(n) + 1) * m // (2 * n)
            image = snp.take(image, places.astype(np.int32), axis, mode="clip")
    return image


def _resampled(
    name: str,
    image: Any,
    sizes: Sequence[int],
    axes: Sequence[int],
    scales: Any,
    shifts: Any,
    method: ResizeMethod,
    antialias: bool,
) -> Any:
    """Return the product of the image with a matrix of weights for each of `axes`."""
    image = inexact(name, image)
    image = convert(image, image.dtype)
    kind = types.accumulator(types.real_part(image.dtype))
    for i, axis in enumerate(axes):
        scale, shift = (snp.asarray(v[i], kind) for v in (scales, shifts))
        matrix = _weights(image.shape[axis], sizes[axis], scale, shift, method, antialias)
        rows = snp.matmul(snp.moveaxis(image, axis, -1), matrix.astype(image.dtype))
        image = snp.moveaxis(rows, -1, axis)
    return image


def _weights(m: int, n: int, scale: Any, shift: Any, method: ResizeMethod, antialias: bool) -> Any:
    """Return the weight of each of `m` elements in each of `n` elements of the result."""
    edges = (snp.arange(n, dtype=scale.dtype) - shift) / scale
    middles = edges + 0.5 / scale
    if method is ResizeMethod.AREA:
        return _inside(_normalized(_overlaps(m, edges, edges + 1 / scale)), m, middles)
    is_clamped = method is ResizeMethod.CUBIC_PYTORCH and not antialias
    if is_clamped:  # the first and the last element go on outside, as far as the kernel reaches
        around = np.arange(-2, m + 2)
        distances = snp.abs(middles - (around[:, None] + 0.5).astype(scale.dtype))
        weights = STEEP(distances)
        first, last = (snp.sum(v, 0, keepdims=True) for v in (weights[:3], weights[-3:]))
        if m == 1:
            return _normalized(snp.sum(weights, 0, keepdims=True))
        return _normalized(snp.concatenate([first, weights[3:-3], last]))
    places = snp.arange(m, dtype=scale.dtype)[:, None] + 0.5
    width = snp.maximum(1 / scale, 1) if antialias else 1
    weights = _KERNELS[method](snp.abs(middles - places) / width)
    return _inside(_normalized(weights), m, middles)


def _overlaps(m: int, starts: Any, ends: Any) -> Any:
    """Return how much of each of `m` elements lies between `starts` and `ends`."""
    left = snp.arange(m, dtype=starts.dtype)[:, None]
    return snp.maximum(snp.minimum(ends, left + 1) - snp.maximum(starts, left), 0)


def _normalized(weights: Any) -> Any:
    """Return weights that add up to 1 for each element of the result, or are all 0."""
    total = snp.sum(weights, 0, keepdims=True)
    counts = snp.abs(total) > _LEAST
    return snp.where(counts, weights / snp.where(counts, total, 1), 0)


def _inside(weights: Any, m: int, middles: Any) -> Any:
    """Return the weights of elements whose middles lie in the image, 0 for the others."""
    return snp.where((middles >= 0) & (middles <= m), weights, 0)
