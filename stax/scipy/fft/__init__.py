"""`jax.scipy.fft`: discrete cosine transforms of the second type, and their inverses.

Formulas: J. Makhoul, "A fast cosine transform in one and two dimensions", 1980.  The elements at
even places, followed by those at odd ones backwards, have a Fourier transform of the same length
from which the cosine transform is read off.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stax.numpy as snp
from stax import types
from stax.errors import ArgumentValueError, UnsupportedError
from stax.lax import complex
from stax.numpy.arguments import array, axes_list, inexact, static_int
from stax.operators.elementwise import convert
from stax.types import canonical_axis

__all__ = ["dct", "dctn", "idct", "idctn"]

Lengths = Sequence[int] | None


def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """Return the cosine transform of `x` along `axis`, cut or filled up with zeros to `n`.

    With `norm` "ortho" the transform preserves lengths.  Of complex numbers both parts are
    transformed; the result is never weak, and float32 for narrower numbers.  Raises
    UnsupportedError for types other than 2, ArgumentValueError for other norms.
    """
    return _along("dct", _forward, x, type, n, axis, norm)


def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None
) -> Any:
    """Return what `dct` makes `x` of; arguments and errors are the same."""
    return _along("idct", _inverse, x, type, n, axis, norm)


def dctn(
    x: Any,
    type: int = 2,
    s: Lengths = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """Return the cosine transform over several axes; see `dct`.

    They are `axes`, or the last ones, as many as there are lengths `s`, or all of them.
    """
    return _over("dctn", _forward, x, type, s, axes, norm)


def idctn(
    x: Any,
    type: int = 2,
    s: Lengths = None,
    axes: Sequence[int] | None = None,
    norm: str | None = None,
) -> Any:
    """Return what `dctn` makes `x` of; arguments and errors are the same."""
    return _over("idctn", _inverse, x, type, s, axes, norm)


Transform = Callable[[Any, bool], Any]


def _over(
    name: str,
    transform: Transform,
    x: Any,
    kind: int,
    s: Lengths,
    axes: Sequence[int] | None,
    norm: str | None,
) -> Any:
    """Apply a transform of the last axis to several axes, one after the other."""
    x = array(name, x)
    if axes is None and s is not None:
        axes = range(x.ndim - len(s), x.ndim)
    where = axes_list(None if axes is None else tuple(axes), x.ndim)
    lengths = [None] * len(where) if s is None else list(s)
    if len(lengths) != len(where) or len(set(where)) != len(where):
        raise ArgumentValueError(
            f"{name}: lengths {s} for axes {tuple(where)}.",
            advice="Name each axis once, and give one length for each.",
        )
    for axis, n in zip(where, lengths, strict=True):
        x = _along(name, transform, x, kind, n, axis, norm)
    return x


def _along(
    name: str, transform: Transform, x: Any, kind: int, n: int | None, axis: int, norm: str | None
) -> Any:
    """Apply a transform of the last axis to `axis`, of `n` elements, to both parts of `x`."""
    if kind != 2:
        raise UnsupportedError(
            f"{name}: type={kind} is not supported.", advice="Transforms are of type 2."
        )
    if norm not in (None, "backward", "ortho"):
        raise ArgumentValueError(
            f"{name}: norm={norm!r} is no way of scaling.", advice="It is 'backward' or 'ortho'."
        )
    x = inexact(name, x)
    x = convert(x, types.accumulator(x.dtype))
    where = canonical_axis(axis, x.ndim)
    rows = snp.moveaxis(x, where, -1)
    if n is not None:
        n = static_int(name, "a length", n)
        rows = rows[..., :n]
        rows = snp.pad(rows, [(0, 0)] * (x.ndim - 1) + [(0, n - rows.shape[-1])])
    if not rows.shape[-1]:
        raise ArgumentValueError(
            f"{name}: there is no transform of no elements.", advice="Pass at least one."
        )
    if types.is_complex(rows.dtype):
        out = complex(*(transform(v, norm == "ortho") for v in (rows.real, rows.imag)))
    else:
        out = transform(rows, norm == "ortho")
    return snp.moveaxis(out, -1, where)


def _forward(rows: Any, is_orthogonal: bool) -> Any:
    n = rows.shape[-1]
    mixed = snp.concatenate([rows[..., ::2], snp.flip(rows[..., 1::2], -1)], -1)
    turned = snp.fft.fft(mixed) * _turns(n, -1, rows.dtype)
    return (turned.real * _scale(n, is_orthogonal, rows.dtype)).astype(rows.dtype)


def _inverse(rows: Any, is_orthogonal: bool) -> Any:
    n = rows.shape[-1]
    rows = rows / _scale(n, is_orthogonal, rows.dtype)
    mirrored = snp.concatenate([snp.zeros_like(rows[..., :1]), snp.flip(rows[..., 1:], -1)], -1)
    mixed = snp.fft.ifft(complex(rows, -mirrored) * _turns(n, 1, rows.dtype)).real
    even, odd = mixed[..., : (n + 1) // 2], snp.flip(mixed[..., (n + 1) // 2 :], -1)
    odd = snp.pad(odd, [(0, 0)] * (rows.ndim - 1) + [(0, n % 2)])
    return snp.stack([even, odd], -1).reshape((*rows.shape[:-1], -1))[..., :n]


def _turns(n: int, sign: int, dtype: Any) -> Any:
    """Return the roots of unity that turn the Fourier transform into the cosine transform."""
    return snp.asarray(np.exp(sign * 0.5j * np.pi * np.arange(n) / n), types.complex_of(dtype))


def _scale(n: int, is_orthogonal: bool, dtype: Any) -> Any:
    """Return what the real parts are multiplied with to give the transform."""
    scale = np.full(n, 2.0)
    if is_orthogonal:
        scale[:] = math.sqrt(2 / n)
        scale[0] = math.sqrt(1 / n)
    return snp.asarray(scale, dtype)
