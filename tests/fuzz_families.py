"""The steps of random programs: each family makes a value of others, by chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import stax
import stax.numpy as snp
from stax import lax
from stax.config import config
from tests.fuzz_values import PRECISION, Family, Made, Maker, Value, rounded

LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 65, 100, 129)

# Families: each returns a value made of others, or None where none fits.


def unary(m: Maker) -> Made:
    v = m.value(lambda v: v.dtype not in ("bool", "uint8"))
    if v is None:
        return None
    kind = m.whole(0, 5)
    if kind == 0:
        return Value(-v.array, v.size, v.error)
    if m.has_kinks(v):
        return None
    if kind == 1:
        return Value(abs(v.array), v.size, v.error)
    if kind == 2:
        return Value(stax.nn.relu(v.array), v.size, v.error)
    if kind == 3:
        return Value(snp.clip(v.array, -3, 3), min(v.size, 3), v.error)
    if kind == 4 and v.is_exact:
        return Value(snp.sign(v.array), 1)
    return Value(v.array * 2 + 1, 2 * v.size + 1, 2 * v.error) if v.is_exact else None


SMOOTH: tuple[Callable[[Any], Any], ...] = (
    *(snp.tanh, snp.sin, snp.cos, stax.nn.sigmoid, lambda x: snp.exp(-abs(x)), snp.arctan),
    *(lambda x: 1 / (x * x + 1), lambda x: snp.sqrt(x * x + 1) - abs(x), lax.erf),
)


def smooth(m: Maker) -> Made:
    v = m.value(lambda v: v.floats)
    return v and rounded(v, m.pick(SMOOTH)(v.array), 2.0, 2 * v.error)


def binary(m: Maker) -> Made:
    v = m.value(lambda v: v.dtype != "bool")
    w = None if v is None else m.partner(v)
    if v is None or w is None:
        return None
    error = v.error + w.error
    kind = m.whole(0, 4)
    if kind < 2 and m.has_kinks(v, w):
        return None
    if kind < 2:
        f = (snp.maximum, snp.minimum)[kind]
        return Value(f(v.array, w.array), max(v.size, w.size), max(v.error, w.error))
    if kind == 2:
        x, size = v.array * w.array, v.size * w.size
        error = v.size * w.error + w.size * v.error
    else:
        if v.dtype == "uint8":
            return None
        x = v.array + w.array if kind == 3 else v.array - w.array
        size = v.size + w.size
    return Value(x, size) if v.is_exact and w.is_exact else rounded(v, x, size, error)


def chosen(m: Maker) -> Made:
    v = m.exact()
    w = None if v is None else m.partner(v, exact=True)
    if v is None or w is None:
        return None
    test = m.pick((snp.less, snp.greater_equal, snp.equal))(v.array, w.array)
    if m.flag(0.3):
        return Value(test, 1)
    size = max(v.size, w.size)
    return Value(snp.where(test, v.array, w.array if m.flag() else 0), size)


def converted(m: Maker) -> Made:
    v = m.value(lambda v: v.is_exact)
    dtype = m.pick(("float32", "float32", "int32", "bool", "float16", "bfloat16", "float64"))
    if dtype == "float64" and not config.enable_x64:
        dtype = "float32"
    if v is None or (dtype != "bool" and v.size > PRECISION[dtype][1]):
        return None
    return Value(v.array.astype(dtype), v.size if dtype != "bool" else 1)


def reduced(m: Maker) -> Made:
    v = m.value(lambda v: len(v.shape) > 0 and v.dtype not in ("bool", "uint8", "int8"))
    if v is None:
        return None
    axes = tuple(a for a in range(len(v.shape)) if m.flag()) or (m.axis(v),)
    count, keep = math.prod(v.shape[a] for a in axes), m.flag()
    kind = m.whole(0, 4)
    given: Any = {"axis": axes, "keepdims": keep}
    if kind < 2 and m.has_kinks(v):
        return None
    if kind < 2:
        return Value((snp.max, snp.min)[kind](v.array, **given), v.size, v.error)
    if kind == 2 and v.is_exact:
        return Value(snp.any(v.array > 0, **given), 1)
    if kind == 3 and v.floats:
        return rounded(v, snp.mean(v.array, **given), v.size, v.error)
    x = snp.sum(v.array, **given)
    if v.is_exact and v.size * count <= PRECISION[v.dtype][1]:
        return Value(x, v.size * count)
    return rounded(v, x, v.size * count, v.error * count) if v.floats else None


def normalized(m: Maker) -> Made:
    v = m.value(lambda v: v.floats and len(v.shape) > 0 and v.size < 200)
    if v is None or m.has_kinks(v):
        return None
    axis = m.axis(v)
    if m.flag():
        x = stax.nn.softmax(v.array, axis)
        return rounded(v, x, 1.0, 4 * v.error)
    x = v.array - v.array.max(axis, keepdims=True)
    return Value(x, 2 * v.size, 2 * v.error) if v.is_exact else rounded(v, x, 2 * v.size, v.error)


def along(m: Maker) -> Made:
    v = m.value(lambda v: len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    if v is None:
        return None
    axis, kind = m.axis(v), m.whole(0, 4)
    if kind < 2 and m.has_kinks(v):
        return None
    if kind == 0:
        return Value(lax.cummax(v.array, axis, m.flag()), v.size, v.error)
    if kind == 1:
        return Value(snp.sort(v.array, axis), v.size, v.error)
    if kind == 2 and v.is_exact:
        return Value(snp.argsort(v.array, axis), v.shape[axis])
    if kind == 3 and v.is_exact:
        best, where = lax.top_k(snp.moveaxis(v.array, axis, -1), m.whole(1, v.shape[axis]))
        return Value(best, v.size) if m.flag() else Value(where, v.shape[axis])
    size = v.size * v.shape[axis]
    x = snp.cumsum(v.array, axis)
    if v.is_exact and size <= PRECISION[v.dtype][1]:
        return Value(x, size)
    return rounded(v, x, size, v.error * v.shape[axis]) if v.floats else None


def extreme(m: Maker) -> Made:
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype != "bool")
    if v is None:
        return None
    axis = m.axis(v)
    return Value(m.pick((snp.argmax, snp.argmin))(v.array, axis), v.shape[axis])


def moved(m: Maker) -> Made:
    """Only the place of elements changes."""
    v = m.ranked()
    if v is None:
        return None
    x, axis, ndim = v.array, m.axis(v), len(v.shape)
    length = v.shape[axis]
    start = m.whole(0, length - 1)
    choices: list[Callable[[], Any]] = [
        lambda: snp.transpose(x, [int(a) for a in m.rng.permutation(ndim)]),
        lambda: snp.flip(x, axis), lambda: snp.roll(x, m.whole(-3, 3), axis),
        lambda: snp.ravel(x), lambda: snp.expand_dims(x, axis),
        lambda: lax.slice_in_dim(x, start, m.whole(start + 1, length), m.whole(1, 3), axis),
        lambda: snp.pad(x, [(m.whole(0, 2), m.whole(0, 3)) for _ in v.shape]),
        lambda: snp.concatenate([x, snp.flip(x, axis), x][: m.whole(2, 3)], axis),
        lambda: snp.broadcast_to(x, (m.whole(1, 3), *v.shape)),
        lambda: snp.stack([x, x[::-1]], m.whole(0, ndim)),
        lambda: snp.repeat(x, m.whole(1, 3), axis), lambda: snp.tile(x, m.whole(1, 3)),
        lambda: snp.reshape(x, (-1, v.shape[-1])), lambda: snp.reshape(x, (v.shape[0], -1)),
        lambda: snp.squeeze(x), lambda: snp.diff(x[..., ::-1], axis=axis)[..., :0],
    ]  # fmt: skip
    return Value(m.pick(choices)(), v.size, v.error)


def padded(m: Maker) -> Made:
    """Pad by negative amounts and between elements too."""
    v = m.ranked()
    if v is None or v.dtype == "bool":
        return None
    config = [(m.whole(-1, 3), m.whole(-1, 3), m.whole(0, 2)) for _ in v.shape]
    pairs = zip(v.shape, config, strict=True)
    if any(lo + hi + n + (n - 1) * between < 1 for n, (lo, hi, between) in pairs):
        return None
    fill = m.whole(0, 2)
    x = lax.pad(v.array, snp.asarray(fill, v.dtype), config)
    return Value(x, max(v.size, fill), v.error)


def joined(m: Maker) -> Made:
    v = m.ranked()
    w = v and m.value(lambda w: w.shape[1:] == v.shape[1:] and w.dtype == v.dtype and w.shape != ())
    if v is None or w is None:
        return None
    parts = [v.array, w.array]
    if m.flag(0.3):
        parts.append(v.array[: m.whole(1, v.shape[0])])
    return Value(snp.concatenate(parts, 0), max(v.size, w.size), max(v.error, w.error))


def gathered(m: Maker) -> Made:
    v = m.ranked()
    if v is None:
        return None
    axis = m.axis(v)
    length = v.shape[axis]
    indices = m.value(lambda w: w.dtype == "int32" and w.is_exact and len(w.shape) <= 2)
    where: Any = m.numbers([m.whole(1, 9) for _ in range(m.whole(0, 2))], -2 - length, length + 2)
    if indices is not None and m.flag():
        where = indices.array
    kind = m.whole(0, 4)
    if kind == 0:
        x = snp.take(v.array, where, axis, mode="clip")
    elif kind == 1:
        x = snp.take(v.array, where % length, axis)
    elif kind == 2:
        fill = 0 if v.dtype != "bool" else False
        x = snp.take(v.array, where, axis, mode="fill", fill_value=fill)
    elif kind == 3:
        size = m.whole(1, length)
        start = snp.ravel(where)[0] if np.size(where) else 0
        x = lax.dynamic_slice_in_dim(v.array, start, size, axis)
    else:
        order = snp.argsort(snp.asarray(m.numbers(v.shape, 0, 50)), axis)
        x = snp.take_along_axis(v.array, order, axis)
    return Value(x, v.size, v.error)


def scattered(m: Maker) -> Made:
    v = m.value(lambda v: len(v.shape) > 0 and v.dtype not in ("bool", "uint8", "int8"))
    if v is None or m.has_kinks(v):
        return None
    length = v.shape[0]
    count = m.whole(1, length)
    unique = m.rng.permutation(length)[:count].astype(np.int32)
    several = m.numbers([m.whole(1, 20)], -length, length - 1)
    outside = m.numbers([m.whole(1, 20)], 0, length + 2)
    kind = m.whole(0, 5)
    if kind == 0:
        return Value(v.array.at[unique].set(1), max(v.size, 1), v.error)
    if kind == 1:
        x = v.array.at[several].add(1)
        size = v.size + len(several)
        return Value(x, size) if v.is_exact else rounded(v, x, size, v.error)
    if kind == 2:
        return Value(v.array.at[outside].max(2, mode="drop"), max(v.size, 2), v.error)
    if kind == 3:
        part = v.array[: m.whole(1, length)]
        start = m.whole(-2, length)
        x = lax.dynamic_update_slice_in_dim(v.array, part, start, 0)
        return Value(x, v.size, v.error)
    if kind == 4:
        x = v.array.at[several].add(v.array[several])
        size = v.size * (len(several) + 1)
        error = v.error * (len(several) + 1)
        return Value(x, size) if v.is_exact else rounded(v, x, size, error)
    ids = m.numbers([length], 0, 6)
    if not v.is_exact:
        return None
    return Value(stax.ops.segment_sum(v.array, ids, num_segments=7), v.size * length)


def product(m: Maker) -> Made:
    v = m.value(lambda v: 1 <= len(v.shape) <= 3 and v.floats)
    if v is None:
        return None
    inner = v.shape[-1]
    fit = m.value(lambda w: len(w.shape) == 2 and w.shape[0] == inner and w.dtype == v.dtype)
    turned = m.value(lambda w: len(w.shape) == 2 and w.shape[1] == inner and w.dtype == v.dtype)
    if fit is not None and m.flag():
        w, x = fit, v.array @ fit.array
    elif turned is not None and m.flag(0.7):
        w, x = turned, snp.einsum("...i,ji->...j", v.array, turned.array)
    elif len(v.shape) == 2 and m.flag():
        w, x = v, v.array.T @ v.array
        inner = v.shape[0]
    else:
        matrix = m.numbers((inner, m.pick(LENGTHS[:13])), -1, 1)
        w = Value(snp.asarray(matrix).astype(v.dtype), 1.0)
        x = v.array @ w.array
    size, error = inner * v.size * w.size, inner * (v.size * w.error + w.size * v.error)
    is_exact = v.is_exact and w.is_exact and size <= PRECISION[v.dtype][1]
    return Value(x, size) if is_exact else rounded(v, x, size, error)


def window(m: Maker) -> Made:
    """Windows along rows, or a small convolution."""
    v = m.value(lambda v: len(v.shape) == 2 and v.dtype == "float32")
    if v is None or m.has_kinks(v):
        return None
    height, width = (min(n, m.whole(1, 3)) for n in v.shape)
    steps, pads = (m.whole(1, 2), m.whole(1, 2)), m.pick(("SAME", "VALID"))
    if m.flag():
        x = lax.reduce_window(v.array, -np.inf, lax.max, (height, width), steps, pads)
        return Value(snp.maximum(x, -v.size), v.size, v.error)
    kernel = m.numbers((2, 1, height, width), -1, 1).astype(np.float32)
    x = lax.conv_general_dilated(v.array[None, None], kernel, steps, pads)
    size, error = v.size * height * width, v.error * height * width
    return Value(x, size) if v.is_exact else rounded(v, x, size, error)


def transformed(m: Maker) -> Made:
    v = m.value(lambda v: v.dtype == "float32" and 0 < len(v.shape) <= 2 and v.size < 1000)
    if v is None:
        return None
    n = v.shape[-1]
    x = snp.fft.fft(v.array) if m.flag() else snp.fft.rfft(v.array)
    part = m.pick((lambda z: z.real, lambda z: z.imag))(x)
    return rounded(v, part, n * v.size, 4 * n * v.error)


BODIES: tuple[Callable[[Any, Any], Any], ...] = (
    lambda i, c: c[::-1] + 1,
    lambda i, c: snp.roll(c, 1, 0) - c,
    lambda i, c: c.at[i % c.shape[0]].add(2),
    lambda i, c: snp.where(c > i, c - 1, c + 2),
    lambda i, c: c + lax.dynamic_index_in_dim(c, i % c.shape[0], 0, keepdims=True),
    lambda i, c: snp.sort(c, 0) - i,
    lambda i, c: c + c.sum(0, keepdims=True),
    lambda i, c: snp.concatenate([c[1:], c[:1]]) * 2,
)


def looped(m: Maker) -> Made:
    """A loop over a carried array of small whole numbers: counted, scanned, or with a test."""
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    if v is None:
        return None
    first, second = m.pick(BODIES), m.pick(BODIES)
    start = snp.clip(v.array, -8, 8)

    def body(i: Any, c: Any) -> Any:
        c = snp.clip(first(i, c), -8, 8).astype(start.dtype)
        return snp.clip(second(i, c), -8, 8).astype(start.dtype)

    steps, kind = m.whole(0, 9), m.whole(0, 4)
    if kind == 0:
        return Value(lax.fori_loop(0, steps, body, start), 8)
    if kind == 1:
        limit = snp.minimum(abs(start.ravel()[0]).astype("int32"), 6)
        return Value(lax.fori_loop(0, limit, body, start), 8)
    if kind == 2:
        state = lax.while_loop(
            lambda s: (s[0] < steps) & (s[1].sum() < 100),
            lambda s: (s[0] + 1, body(s[0], s[1])),
            (0, start),
        )
        return Value(state[1], 8)
    if kind == 3:
        test = start.ravel()[0] > 0
        return Value(lax.cond(test, lambda c: body(1, c), lambda c: body(2, c) * 1, start), 8)
    rows, total = start, start[0] * 0

    def step(c: Any, row: Any) -> Any:
        c = snp.clip(c + row, -8, 8)
        return c, c * 2

    last, every = lax.scan(step, total, rows, reverse=m.flag())
    return Value(every, 16) if m.flag(0.7) else Value(last, 8)


def nested(m: Maker) -> Made:
    """A random program as the body of a loop or a map, which reads values from around it."""
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    if v is None:
        return None
    seed, around = m.whole(0, 2**31), [m.pick(m.values) for _ in range(2)]
    start, kind = snp.clip(v.array, -8, 8), m.whole(0, 4)

    def run(*arrays: Any) -> tuple[Value, Value]:
        """Return an exact value like the first array, and any other."""
        values = [*(Value(x, 8) for x in arrays), *around]
        inner = Maker(seed, values, m.families, m.most // 8, m.differentiated)
        any_ = inner.run(4)[0]
        (first, *_), after = arrays, inner.values[::-1]
        fitting = [w for w in after if (w.shape, w.dtype) == (first.shape, str(first.dtype))]
        exact = next((w for w in fitting if w.is_exact), Value(first, 8))
        return Value(snp.clip(exact.array, -8, 8), 8), any_

    if kind < 2:
        last = lax.fori_loop(0, m.whole(0, 5), lambda i, c: run(c)[0].array, start)
        return Value(last, 8)
    results: list[Value] = []

    def step(c: Any, row: Any) -> Any:
        after, other = run(c, row)
        results[:] = [other]
        return after.array, other.array

    if kind == 2 and v.shape[0] <= 40:
        every = lax.scan(step, start[0], start, reverse=m.flag())[1]
        return Value(every, results[0].size, results[0].error)
    if kind == 3:
        every = stax.vmap(lambda row: step(row, row)[1])(start)
        return Value(every, results[0].size, results[0].error)
    again = stax.checkpoint(lambda x: step(x, x)[1])(start)
    return Value(again, results[0].size, results[0].error)


def bits(m: Maker) -> Made:
    v = m.value(lambda v: v.dtype == "int32" and v.is_exact and v.size < 2**20)
    w = v and m.partner(v, exact=True)
    if v is None or w is None:
        return None
    x, y = v.array, w.array
    kind = m.whole(0, 4)
    if kind == 0:
        return Value(x // m.pick((-3, 2, 7)), v.size + 1)
    if kind == 1:
        return Value(x % m.pick((3, 5, 8)), 8)
    if kind == 2:
        return Value(x << (y & 3), 8 * v.size)
    if kind == 3:
        return Value((x ^ y) | (x & 5), 2 * max(v.size, w.size) + 8)
    key = stax.random.key(m.whole(0, 99))
    return Value(stax.random.randint(key, v.shape, -9, 9) + x, v.size + 9)


def statistics(m: Maker) -> Made:
    """Several reductions of one value, and what is made of them."""
    v = m.value(lambda v: v.floats and len(v.shape) > 0 and v.size < 100)
    if v is None or m.has_kinks(v):
        return None
    x, axis, size = v.array, m.axis(v), max(v.size, 1)
    mean = x.mean(axis, keepdims=True)
    kind = m.whole(0, 2)
    if kind == 0:
        return rounded(v, ((x - mean) ** 2).mean(axis), 4 * size**2, 8 * size * v.error)
    scale = 1 / snp.sqrt(((x - mean) ** 2).mean(axis, keepdims=True) + 1)
    y = (x - mean) * scale
    if kind == 1:
        return rounded(v, y, 2 * size, 16 * size**2 * v.error)
    count = v.shape[axis]
    return rounded(v, y.sum(axis) + x.max(axis), 4 * size * count, 32 * size**2 * count * v.error)


def attended(m: Maker) -> Made:
    v = m.value(lambda v: v.dtype == "float32" and len(v.shape) in (2, 3) and v.size < 10)
    if v is None or v.shape[-2] > 200:
        return None
    x = v.array
    weights = stax.nn.softmax(snp.einsum("...ik,...jk->...ij", x, x * 0.1), -1)
    error = v.error * (1 + 2 * v.size * v.shape[-1])
    return rounded(v, weights @ x, v.size * v.shape[-1], error * v.size)


def ordered(m: Maker) -> Made:
    """Sort by one value and move another along; or count and look up."""
    v = m.value(lambda v: v.is_exact and len(v.shape) > 0 and v.dtype in ("float32", "int32"))
    w = v and m.value(lambda w: w.shape == v.shape and w.dtype != "bool")
    if v is None or w is None:
        return None
    axis, kind = m.axis(v), m.whole(0, 2)
    if kind == 0:
        return Value(lax.sort((v.array, w.array), dimension=axis)[1], w.size, w.error)
    if kind == 1:
        classes = m.whole(1, 12)
        return Value(stax.nn.one_hot(v.array.astype("int32"), classes, dtype="float32"), 1)
    grid = snp.arange(-4, 5).astype(v.dtype)
    return Value(snp.searchsorted(grid, v.array), 10)


FAMILIES: tuple[Family, ...] = (
    *(unary, unary, smooth, smooth, binary, binary, binary, binary, chosen, chosen, converted),
    *(reduced, reduced, reduced, normalized, along, along, extreme, moved, moved, moved, padded),
    *(joined, gathered, gathered, scattered, scattered, product, product, window, transformed),
    *(looped, nested, nested, bits, bits, statistics, attended, ordered),
)
