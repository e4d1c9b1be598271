"""More steps of random programs: convolutions, transforms, scatters, orders, small matrices, loops
with several carried values, and derivatives inside of programs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import stax
import stax.numpy as snp
from stax import lax
from tests.fuzz_values import PRECISION, Family, Made, Maker, Value, rounded

# Families: each returns a value made of others, or None where none fits.


def convolved(m: Maker) -> Made:
    """Convolutions of one to three dimensions: groups, dilations, any padding and layout."""
    v = m.value(lambda v: 1 <= len(v.shape) <= 3 and v.dtype in ("float32", "float16"))
    if v is None or math.prod(v.shape) > 4000:
        return None
    n, groups, per_group, out = len(v.shape), m.whole(1, 2), m.whole(1, 2), m.whole(1, 3)
    kernel = [min(length, m.whole(1, 3)) for length in v.shape]
    weights = m.numbers((out * groups, per_group, *kernel), -1, 1)
    x = snp.stack([v.array * (k + 1) for k in range(groups * per_group)])[None]
    size = v.size * groups * per_group
    dims = None
    if n == 2 and m.flag():  # channels last
        x, weights = snp.moveaxis(x, 1, -1), np.transpose(weights, (2, 3, 1, 0))
        dims = ("NHWC", "HWIO", "NHWC")
    pads = m.pick(("SAME", "VALID", [(m.whole(0, 2), m.whole(-1, 2)) for _ in range(n)]))
    found = lax.conv_general_dilated(
        x, snp.asarray(weights).astype(v.dtype), [m.whole(1, 2) for _ in range(n)], pads,
        lhs_dilation=[m.whole(1, 2) for _ in range(n)] if isinstance(pads, list) else None,
        rhs_dilation=[m.whole(1, 2) for _ in range(n)],
        dimension_numbers=dims, feature_group_count=groups,
    )  # fmt: skip
    count = per_group * math.prod(kernel)
    return _sum(v, found[0], size * count, groups * per_group * count * v.error)


def _sum(v: Value, x: Any, size: float, error: float) -> Value:
    """Return a sum of products, which is exact if its terms are and it is small."""
    is_exact = v.is_exact and size <= PRECISION[v.dtype][1]
    return Value(x, size) if is_exact else rounded(v, x, size, error)


def pooled(m: Maker) -> Made:
    v = m.value(lambda v: 1 <= len(v.shape) <= 3 and v.dtype in ("float32", "int32"))
    if v is None or m.has_kinks(v):
        return None
    shape = [min(length, m.whole(1, 4)) for length in v.shape]
    steps = [m.whole(1, 3) for _ in shape]
    pads = m.pick(("SAME", "VALID", [(m.whole(0, 1), m.whole(0, 1)) for _ in shape]))
    zero = snp.zeros((), v.dtype)
    if m.flag():
        x = lax.reduce_window(v.array, zero, lax.add, shape, steps, pads)
        count = math.prod(shape)
        return _sum(v, x, v.size * count, v.error * count) if v.floats or v.is_exact else None
    low = snp.asarray(-(2**20), v.dtype)
    dilation = [m.whole(1, 2) for _ in shape]
    x = lax.reduce_window(v.array, low, lax.max, shape, steps, pads, window_dilation=dilation)
    return Value(snp.maximum(x, snp.asarray(-v.size, v.dtype)), v.size, v.error)


def spectral(m: Maker) -> Made:
    """Transforms there and back, along any axes."""
    v = m.value(lambda v: v.dtype == "float32" and 0 < len(v.shape) <= 3 and v.size < 100)
    if v is None:
        return None
    axis = m.axis(v)
    n = v.shape[axis]
    kind = m.whole(0, 4)
    if kind == 0:
        back = snp.fft.irfft(snp.fft.rfft(v.array, axis=axis), n, axis=axis)
        return rounded(v, back, 4 * v.size, 4 * v.error)
    if kind == 1:
        back = snp.fft.ifft(snp.fft.fft(v.array, axis=axis), axis=axis).real
        return rounded(v, back, 4 * v.size, 4 * v.error)
    if kind == 2 and len(v.shape) > 1:
        x, count = snp.fft.fft2(v.array), v.shape[-1] * v.shape[-2]
        return rounded(v, x.imag + x.real, 2 * count * v.size, 8 * count * v.error)
    length = m.whole(1, 2 * n)
    x = snp.fft.fft(v.array, length, axis=axis)
    return rounded(v, (x * snp.conj(x)).real, (n * v.size) ** 2, 8 * n * n * v.size * v.error)


def complex_(m: Maker) -> Made:
    """Arithmetic of complex numbers made of two real ones."""
    v = m.value(lambda v: v.dtype == "float32" and v.size < 30)
    w = v and m.partner(v)
    if v is None or w is None or w.size > 30:
        return None
    x, y = snp.broadcast_arrays(v.array, w.array)
    z = lax.complex(x, y)
    size, error = v.size + w.size + 1, v.error + w.error
    kind = m.whole(0, 5)
    part = m.pick((snp.real, snp.imag))
    if kind == 0:
        return rounded(v, part(z * z[..., ::-1] if z.ndim else z * z), size**2, 4 * size * error)
    if kind == 1:
        return rounded(v, part(snp.exp(z * 0.05)), 5.0, error)
    if kind == 2:
        return rounded(v, part(z / (z * snp.conj(z) + 1)), 1.0, 4 * error)
    if kind == 3 and z.ndim:
        axis = m.whole(0, z.ndim - 1)
        count = z.shape[axis]
        return rounded(v, part(z.sum(axis)), size * count, error * count)
    if kind == 4 and z.ndim == 2:
        count = z.shape[0]
        return rounded(v, part(z.conj().T @ z), 2 * count * size**2, 8 * count * size * error)
    return rounded(v, part(snp.where(x > 100, snp.conj(z), z * 1j)), size, error)


def placed(m: Maker) -> Made:
    """Updates at indices of several axes, in windows, by masks and by slices."""
    v = m.value(lambda v: len(v.shape) >= 2 and v.dtype in ("float32", "int32") and v.is_exact)
    if v is None:
        return None
    x, (rows, columns) = v.array, v.shape[:2]
    i, j = m.numbers([9], -rows, rows - 1), m.numbers([9], -columns, columns - 1)
    kind = m.whole(0, 6)
    if kind == 0:
        return Value(x.at[i, j].add(2), v.size + 18)
    if kind == 1:
        return Value(x.at[:, j].max(1), max(v.size, 1))
    if kind == 2:
        return Value(x.at[i[0], m.whole(0, columns - 1) :: m.whole(1, 3)].set(3), max(v.size, 3))
    if kind == 3:
        return Value(snp.where(x > 0, x, x[:1]).at[::2].multiply(2), 2 * v.size)
    if kind == 4:
        return Value(x.at[i[:, None], j[None, :3]].min(0), v.size)
    if kind == 5:
        return Value(x[i[:, None], j[None, :4]], v.size)
    top = min(rows, 3), min(columns, 2)
    patch = x[: top[0], : top[1]]
    start = (m.whole(-1, rows), snp.asarray(j)[0], *(0 for _ in v.shape[2:]))
    return Value(lax.dynamic_update_slice(x, patch + 1, start), v.size + 1)


def segments(m: Maker) -> Made:
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    if v is None:
        return None
    n, count = v.shape[0], m.whole(1, 9)
    ids, kind = snp.asarray(m.numbers([n], -1, count)), m.whole(0, 4)
    if kind == 0:
        return Value(stax.ops.segment_sum(v.array, ids, count), v.size * n)
    if kind == 1:
        found = stax.ops.segment_max(v.array, snp.sort(ids), count, indices_are_sorted=True)
        return Value(snp.clip(found, -v.size, v.size).astype(v.dtype), v.size)
    if kind == 2:
        return Value(snp.bincount(ids, length=count).astype("int32"), n)
    if kind == 3:
        edges = snp.arange(-3, 4).astype("float32")
        return Value(
            snp.histogram(v.array.astype("float32"), edges)[0].astype("int32"), v.array.size
        )
    return Value(snp.nonzero(v.array.ravel(), size=min(n, 20), fill_value=0)[0], v.array.size)


def arranged(m: Maker) -> Made:
    """Orders by several keys, ranks, medians, and running products and extremes."""
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    if v is None:
        return None
    x, axis, kind = v.array, m.axis(v), m.whole(0, 7)
    place = lax.broadcasted_iota("int32", v.shape, axis)
    if kind == 0:
        return Value(lax.sort((x, -place), dimension=axis, num_keys=2)[1], v.shape[axis])
    if kind == 1:
        return Value(snp.argsort(x, axis, descending=True), v.shape[axis])
    if kind == 2:
        return Value(lax.cummin(x, axis, reverse=m.flag()), v.size)
    if kind == 3:
        return Value(snp.cumprod(snp.sign(x), axis), 1)
    if kind == 4:
        found = lax.associative_scan(snp.add, x, reverse=m.flag(), axis=axis)
        size = v.size * v.shape[axis]
        return Value(found, size) if size <= PRECISION[v.dtype][1] else None
    if kind == 5 and v.floats:
        return Value(snp.median(x * 2, axis), 2 * v.size)
    if kind == 6:
        return Value(snp.partition(x, m.whole(0, v.shape[axis] - 1), axis).sort(axis), v.size)
    ranks = snp.argsort(snp.argsort(x, axis), axis)
    return Value(snp.take_along_axis(x, ranks, axis), v.size)


def multiplied(m: Maker) -> Made:
    """Products of any dtype: batched, of integers, with a wider result, contracted twice."""
    v = m.value(lambda v: 2 <= len(v.shape) <= 4 and v.dtype != "bool")
    if v is None or (not v.floats and not v.is_exact):
        return None
    x, kind = v.array, m.whole(0, 4)
    rows, inner = v.shape[-2:]
    wider = {"int8": "int32", "uint8": "int32", "float16": "float32", "bfloat16": "float32"}
    dtype = wider.get(v.dtype, v.dtype)
    if kind < 2:
        found, count = snp.einsum("...ij,...kj->...ik", x, x, preferred_element_type=dtype), inner
    elif kind == 2:
        axes = tuple(range(len(v.shape) - 2))
        batch = (axes, axes)
        one = len(axes)
        found = lax.dot_general(x, x, (((one,), (one,)), batch), preferred_element_type=dtype)
        count = rows
    elif kind == 3:
        found, count = (
            snp.einsum("...ij,...ij->...", x, x, preferred_element_type=dtype),
            rows * inner,
        )
    else:
        weights = snp.asarray(m.numbers((m.whole(1, 5), inner), -1, 1)).astype(v.dtype)
        found, count = (
            lax.dot_general(
                weights, x, (((1,), (len(v.shape) - 1,)), ((), ())), preferred_element_type=dtype
            ),
            inner,
        )
    if v.dtype == "uint8":
        return None
    size = count * v.size * max(v.size, 1)
    if v.is_exact and size <= PRECISION[dtype][1]:
        return Value(found, size)
    return rounded(v, found, size, 2 * count * v.size * v.error) if v.floats else None


def matrices(m: Maker) -> Made:
    """Factors and solutions of small positive definite matrices."""
    v = m.value(lambda v: len(v.shape) >= 2 and v.dtype == "float32" and v.size < 8)
    if v is None or max(v.shape[-2:]) > 12:
        return None
    x, n, size = v.array, v.shape[-2], max(v.size, 1)
    inner = v.shape[-1]
    matrix = x @ snp.swapaxes(x, -1, -2) / (inner * size**2) + snp.eye(n, dtype=v.dtype)
    error, kind = 16 * n * n * v.error, m.whole(0, 4)
    if kind == 0:
        return rounded(v, snp.linalg.cholesky(matrix), 4.0 * n, error)
    if kind == 1:
        return rounded(v, snp.linalg.solve(matrix, x), 4 * n * size, error * size)
    if kind == 2:
        return rounded(v, snp.linalg.slogdet(matrix)[1], 4.0 * n * n, error)
    if kind == 3:
        return rounded(v, snp.linalg.inv(matrix), 4.0 * n, error)
    lower = snp.tril(matrix)
    found = lax.linalg.triangular_solve(lower, x, left_side=True, lower=True)
    return rounded(v, found, 2.0**n * size, error * 2.0**n * size)


def structured(m: Maker) -> Made:
    """Triangles, diagonals, Kronecker products, meshes and blocks."""
    v = m.value(lambda v: len(v.shape) == 2 and v.dtype != "bool")
    if v is None:
        return None
    x, kind = v.array, m.whole(0, 6)
    choices: list[Callable[[], Any]] = [
        lambda: snp.tril(x, m.whole(-1, 2)), lambda: snp.triu(x, m.whole(-2, 1)),
        lambda: snp.diagonal(x, m.whole(0, 1)) if min(v.shape) > 1 else x,
        lambda: snp.kron(snp.eye(2, dtype=x.dtype), x[:5, :5]), lambda: snp.rot90(x, m.whole(0, 3)),
        lambda: snp.block([[x, x[:, :1]], [x[:1], x[:1, :1]]]),
        lambda: snp.swapaxes(snp.split(x, 2, 0)[1] if v.shape[0] % 2 == 0 else x, 0, 1),
    ]  # fmt: skip
    return Value(choices[kind](), v.size, v.error)


def stepped(m: Maker) -> Made:
    """Loops that carry several values, choices among branches, and maps of loops."""
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    if v is None:
        return None
    x, kind = snp.clip(v.array, -8, 8), m.whole(0, 5)
    steps, times = m.whole(1, 6), m.whole(0, 2)
    if kind == 0:
        carry, every = lax.scan(
            lambda c, row: ((c[1], snp.clip(c[0] + row, -8, 8), c[2] + 1), (c[0] * 2, row > c[1])),
            (x[0] * 0, x[0], 0), x, reverse=m.flag(), unroll=m.pick((1, 2)),
        )  # fmt: skip
        return Value(m.pick((carry[0], carry[1], every[0], every[1])), 16)
    if kind == 1:
        which = snp.clip(x.ravel()[0].astype("int32"), 0, 2)
        branches = (lambda y: y + 1, lambda y: y[::-1], lambda y: snp.cumsum(y, 0) * 0 - 2)
        return Value(lax.switch(which, branches, x), 9)
    if kind == 2:  # each lane ends by itself

        def lane(row: Any) -> Any:
            return lax.while_loop(
                lambda s: (s[0] < 6) & (abs(s[1]).sum() < 20),
                lambda s: (s[0] + 1, s[1] * 2),
                (0, row),
            )[1]

        return Value(stax.vmap(lane)(x), 8 * 64)
    if kind == 3:
        return Value(lax.map(lambda row: row[::-1] - 1 if row.ndim else row * 2, x), 16)
    if kind == 4:

        def outer(i: Any, c: Any) -> Any:
            inner = lax.fori_loop(0, times, lambda j, d: snp.clip(d + j - c.min(), -8, 8), c)
            return snp.roll(inner, i, 0).astype(c.dtype)

        return Value(lax.fori_loop(0, steps, outer, x), 8)
    return Value(stax.vmap(lambda row: lax.cond(row.sum() > 0, lambda: row, lambda: -row))(x), 8)


def derived(m: Maker) -> Made:
    """Derivatives inside of a program, mapped and nested."""
    v = m.value(lambda v: v.dtype == "float32" and len(v.shape) > 0 and v.size < 20)
    if v is None:
        return None
    x, kind, size = v.array, m.whole(0, 5), max(v.size, 1)
    smooth = m.pick((snp.tanh, snp.sin, lambda y: y / (1 + y * y), lambda y: snp.exp(-y * y)))
    weights = snp.arange(v.shape[-1]) * 0.25 / v.shape[-1] + 0.5

    def loss(y: Any) -> Any:
        return (smooth(y) * weights).sum() + (y[..., ::-1] * y).sum() * 0.5

    def again(y: Any) -> Any:
        return lax.scan(lambda c, row: (c + smooth(row).sum(), None), 0.0, y)[0]

    if kind == 0:
        return rounded(v, stax.grad(loss)(x), 2 * size + 2, 8 * v.error)
    if kind == 1:
        return rounded(
            v, stax.jvp(loss, (x,), (snp.ones_like(x),))[1] / v.array.size, 4 * size, 8 * v.error
        )
    if kind == 2:
        return rounded(v, stax.vmap(stax.grad(lambda y: smooth(y).sum()))(x), 2.0, 8 * v.error)
    if kind == 3:
        hvp = stax.jvp(stax.grad(loss), (x,), (snp.ones_like(x),))[1]
        return rounded(v, hvp, 4.0 + size, 16 * v.error)
    if kind == 4:
        return rounded(v, stax.grad(again)(x), 2.0, 8 * v.error)
    return rounded(v, stax.vjp(stax.checkpoint(smooth), x)[1](x)[0], 2 * size, 8 * size * v.error)


def drawn(m: Maker) -> Made:
    """Random numbers, whose bits are the same everywhere."""
    shape = m.pick(m.values).shape[:3]
    key, kind = stax.random.fold_in(stax.random.key(m.whole(0, 9)), m.whole(0, 3)), m.whole(0, 4)
    v = Value(snp.zeros((), "float32"), 1)
    if kind == 0:
        return Value(stax.random.bernoulli(key, 0.3, shape), 1)
    if kind == 1:
        return Value(snp.floor(stax.random.uniform(key, shape) * 8), 8)
    if kind == 2 and shape:
        return Value(stax.random.permutation(key, shape[0]), shape[0])
    if kind == 3:
        return rounded(v, stax.random.normal(key, shape), 6.0, 1e-5)
    return Value(stax.random.randint(key, shape, -4, 9, "int8" if m.flag() else "int32"), 9)


WIDE: tuple[Family, ...] = (
    *(convolved, convolved, pooled, spectral, complex_, complex_, placed, placed, segments),
    *(segments, arranged, arranged, multiplied, multiplied, matrices, structured, structured),
    *(stepped, stepped, derived, derived, drawn),
)
