"""Fourier transforms as passes over one axis each, with their tables as arrays of the graph.

A transform over several axes is one over each.  A pass whose length has small factors is a kernel
(`fourier_kernel`) that takes several rows at a time; a long one, or one of a single row, is two
passes of about the square root of the length with a multiplication between them (Bailey, "FFTs in
external or hierarchical memory", 1990), and one with a large prime factor a convolution by passes
of another length (Bluestein, 1970).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.array import array_from_numpy
from stax.control import Call, HoldsGraphs, with_graphs
from stax.graph import ArrayConstant, ByIdentity, Graph, Node, held_graphs
from stax.interpreters.interpret import interpret
from stax.op import Op
from stax.operators.broadcast import broadcast_in_dim
from stax.operators.elementwise import conj, convert, mul, real
from stax.operators.fft import Fft, FftType
from stax.operators.reshape import move_axis, rev
from stax.operators.shape import concatenate, pad, slice_in_dim
from stax.trace import Trace, bind, full, type_of
from stax.types import ArrayType, complex64, complex128, is_complex, real_part
from stax.verify import verified

# Radices whose butterflies are written out, and those whose are loops.
WRITTEN = (4, 2, 3, 5, 7, 11, 13)
RADICES = (*WRITTEN, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79)
# Rows that a kernel takes side by side; with fewer, a transform of length ALONE is cut in two.
ROWS = 8
ALONE = 64
# Bytes of a block of rows: twice this has to fit in the scratch memory of a kernel, and rows of
# complex numbers are cut in two where a block does not stay in the cache closest to the core.
LONGEST = 120 * 1024
LONG = 64 * 1024
_PI = np.longdouble("3.14159265358979323846264338327950288")


@dataclass(frozen=True, eq=False)
class FourierPass(Op):
    """The transform of a kind over one axis of length `length`.

    Operands are x, the roots of unity, and, if there are, factors of the results: one for each
    place along the axis and the next.  Where it is `turned`, the axis, which is the last, and the
    one before change places.  Where there are `parts`, the last axis of x and of the result is seen
    as two of these lengths.  With a `size`, the transform is a convolution of that length, and the
    factors are three rows: a chirp, the transform of another, and what results are multiplied with.
    """

    kind: int
    length: int
    axis: int
    turned: bool = False
    parts: tuple[int, int] | None = None
    size: int = 0
    name: ClassVar[str] = "fourier_pass"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        x = types[0]
        kind, shape = FftType(self.kind), list(x.shape)
        if self.parts:
            return ArrayType(x.dtype, x.shape)
        if kind in (FftType.RFFT, FftType.IRFFT):
            shape[self.axis] = self.length if kind is FftType.IRFFT else self.length // 2 + 1
        dtype = x.dtype
        if kind is FftType.IRFFT:
            dtype = real_part(dtype)
        elif kind is FftType.RFFT:
            dtype = _complex(dtype)
        if self.turned:
            shape[-2:] = shape[:-3:-1]
        return ArrayType(dtype, tuple(shape))

    def evaluate(self, *arrays: Any) -> Any:
        x, _, *turns = arrays
        shape = x.shape
        if self.parts:
            x = x.reshape((*shape[:-1], *self.parts))
        found = Fft(self.kind, (self.length,)).evaluate(np.moveaxis(x, self.axis, -1))
        found = np.moveaxis(found, -1, self.axis)
        for factors_ in () if self.size else turns:
            found = found * (factors_[..., 0] + 1j * factors_[..., 1])
        found = np.swapaxes(found, -1, -2) if self.turned else found
        return found.reshape(shape) if self.parts else found


def _complex(dtype: Any) -> Any:
    return complex64 if dtype.itemsize == 4 else complex128


def transforms_as_passes(graph: Graph) -> Graph:
    """Return `graph` with its Fourier transforms, also those of graphs it holds, as passes."""
    if not _has_transforms(graph):
        return graph
    return graph.derived("fourier", lambda: _rewritten(graph))


def _has_transforms(graph: Graph) -> bool:
    def look() -> bool:
        return any(
            isinstance(node.op, Fft) or any(map(_has_transforms, _applied(node.op)))
            for node in graph.nodes
        )

    found: bool = graph.derived("has transforms", look)
    return found


def _applied(op: Op) -> list[Graph]:
    """Return the graphs that lowering takes from an op."""
    if isinstance(op, HoldsGraphs) and op.applied is not None:
        return [op.applied]
    return list(held_graphs(op)) if op.holds_graph else []


def _rewritten(graph: Graph) -> Graph:
    def rule(node: Node, inputs: list[Any]) -> Any:
        op = node.op
        if isinstance(op, Fft):
            return _over_axes(op, inputs[0], node.type)
        if any(map(_has_transforms, _applied(op))):
            assert isinstance(op, HoldsGraphs)
            if op.applied is not None:
                op = Call(op.applied)
            op = with_graphs(op, transforms_as_passes)
        return bind(op, *inputs)

    with Trace(graph.name, "prepare") as trace:
        args = [trace.input(x.type, x.label) for x in graph.inputs]
        result = trace.finish(interpret(graph, args, rule))
    return verified(result, "fourier")


def _over_axes(op: Fft, x: Any, out: ArrayType) -> Any:
    """Return a transform as one over each axis; the halved axis is the last one."""
    kind, rank = FftType(op.kind), len(op.lengths)
    sizes = (*type_of(x).shape, *out.shape)
    if any(not isinstance(n, int) for n in sizes) or 0 in sizes:
        return bind(op, x)
    first = len(out.shape) - rank
    axes = [first + a for a in range(rank)]
    whole = FftType.IFFT if kind in (FftType.IFFT, FftType.IRFFT) else FftType.FFT
    if kind in (FftType.FFT, FftType.IFFT):
        x = convert(x, out.dtype)
    if kind is FftType.RFFT:
        x = _pass(kind, x, axes[-1], op.lengths[-1])
        axes.pop()
    last = [axes.pop()] if kind is FftType.IRFFT else []
    for axis in reversed(axes):
        x = _pass(whole, x, axis, op.lengths[axis - first])
    for axis in last:
        x = _pass(kind, x, axis, op.lengths[-1])
    return x


def _pass(kind: FftType, x: Any, axis: int, n: int) -> Any:
    """Return the transform over one axis."""
    shape = type_of(x).shape
    rows = math.prod(shape) // shape[axis]
    if n == 1:
        return _of_one(kind, x)
    is_smooth = factors(n) is not None
    is_half = kind in (FftType.RFFT, FftType.IRFFT)
    fits = _block_bytes(n, type_of(x).dtype) <= (LONGEST if is_half else LONG)
    if is_smooth and fits and (rows >= ROWS or n < ALONE or n in RADICES):
        table = _held(twiddles(n, kind in (FftType.IFFT, FftType.IRFFT), type_of(x).dtype))
        return bind(FourierPass(int(kind), n, axis), x, table)
    if kind is FftType.RFFT:
        whole = _pass(FftType.FFT, convert(x, _complex(type_of(x).dtype)), axis, n)
        return slice_in_dim(whole, 0, n // 2 + 1, axis=axis)
    if kind is FftType.IRFFT:
        return real(_pass(FftType.IFFT, _mirrored(x, axis, n), axis, n))
    if not is_smooth:
        return _by_convolution(kind, x, axis, n)
    first, second = _parts(n)
    if _block_bytes(second, type_of(x).dtype) > LONGEST:
        last = len(shape) - 1
        return move_axis(bind(Fft(int(kind), (n,)), move_axis(x, axis, last)), last, axis)
    return _in_two(kind, x, axis, first, second)


def _block_bytes(n: int, dtype: Any) -> int:
    return n * ROWS * 2 * int(real_part(dtype).itemsize if is_complex(dtype) else dtype.itemsize)


def _of_one(kind: FftType, x: Any) -> Any:
    if kind is FftType.RFFT:
        return convert(x, _complex(type_of(x).dtype))
    return real(x) if kind is FftType.IRFFT else x


def _mirrored(x: Any, axis: int, n: int) -> Any:
    """Return all of a transform of real numbers, given its first half."""
    half = n // 2 + 1
    ends = [slice_in_dim(x, 0, 1, axis=axis)]
    middle = slice_in_dim(x, 1, half - (n % 2 == 0), axis=axis)
    alone = [convert(real(ends[0]), type_of(x).dtype)]
    if n % 2 == 0:
        last = slice_in_dim(x, half - 1, half, axis=axis)
        alone.append(convert(real(last), type_of(x).dtype))
    return concatenate([alone[0], middle, *alone[1:], conj(rev(middle, (axis,)))], axis)


def _in_two(kind: FftType, x: Any, axis: int, first: int, second: int) -> Any:
    """Return a transform of length first * second by transforms of both lengths."""
    last = type_of(x).ndim - 1
    if axis != last:
        return move_axis(_in_two(kind, move_axis(x, axis, last), last, first, second), last, axis)
    is_inverse, dtype, parts = kind is FftType.IFFT, type_of(x).dtype, (first, second)
    columns = FourierPass(int(kind), first, last, parts=parts)
    turns = _held(_turns(first, second, is_inverse, dtype))
    x = bind(columns, x, _held(twiddles(first, is_inverse, dtype)), turns)
    rows = FourierPass(int(kind), second, last + 1, turned=True, parts=parts)
    return bind(rows, x, _held(twiddles(second, is_inverse, dtype)))


def _by_convolution(kind: FftType, x: Any, axis: int, n: int) -> Any:
    """Return a transform as a convolution with a chirp: jk = (j^2 + k^2 - (k - j)^2) / 2."""
    dtype, size, is_inverse = type_of(x).dtype, _smooth_from(2 * n - 1), kind is FftType.IFFT
    if _block_bytes(size, dtype) <= LONGEST:
        tables = twiddles(size, False, dtype), _chirp_rows(n, size, is_inverse, dtype)
        return bind(FourierPass(int(kind), n, axis, size=size), x, *map(_held, tables))
    chirp, spectrum = (_held(_array(t, dtype)) for t in _chirps(n, size, is_inverse, dtype))
    shape = type_of(x).shape

    def along(table: Any, length: int) -> Any:
        return broadcast_in_dim(table, (*shape[:axis], length, *shape[axis + 1 :]), (axis,))

    widths = [(0, size - n if a == axis else 0, 0) for a in range(len(shape))]
    x = pad(mul(x, along(chirp, n)), full((), 0, dtype), widths)
    x = mul(_pass(FftType.FFT, x, axis, size), along(spectrum, size))
    x = slice_in_dim(_pass(FftType.IFFT, x, axis, size), 0, n, axis=axis)
    x = mul(x, along(chirp, n))
    return mul(x, full(shape, 1 / n, dtype)) if kind is FftType.IFFT else x


# --- factors and tables ---


@functools.lru_cache(4096)
def _smooth_from(least: int) -> int:
    """Return the number from `least` on whose stages take the least time.

    That is what an element takes in a stage of 4, about the same in one of 2 or 3, more in others.
    """
    costs = {4: 1.0, 2: 0.8, 3: 1.0, 5: 1.4, 7: 2.0}
    tried = [
        threes * fives << shift
        for threes in (1, 3, 9, 27, 81)
        for fives in (1, 5, 7, 25, 35)
        if (shift := max(0, (-(-least // (threes * fives)) - 1).bit_length())) >= 2
    ]
    return min(
        tried or [1 << (least - 1).bit_length()],
        key=lambda n: n * sum(costs[r] for r in factors(n) or ()),
    )


@functools.lru_cache(4096)
def factors(n: int) -> tuple[int, ...] | None:
    """Return `n` as a product of `RADICES`, or None if a prime factor is larger."""
    found = []
    for radix in RADICES:
        while n % radix == 0:
            found.append(radix)
            n //= radix
    return tuple(found) if n == 1 else None


def _parts(n: int) -> tuple[int, int]:
    """Return two factors of `n` near its square root."""
    first = next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
    return first, n // first


def _held(table: Any) -> Any:
    return bind(ArrayConstant(ByIdentity(table)))


def _roots(n: int, is_inverse: bool, dtype: Any) -> np.ndarray:
    """Return exp(-2 pi i k / n), or its inverse, for all k below `n`, as exact as a table needs."""
    # The widest type that there is for a table of doubles: it has digits to spare.
    is_double = real_part(dtype).itemsize == 8 if is_complex(dtype) else dtype.itemsize == 8
    unit = 2 * _PI / n
    step = 1 << (n.bit_length() + 1) // 2

    def powers(numbers: np.ndarray) -> np.ndarray:
        angle = unit * numbers
        angle = angle if is_double else angle.astype(np.float64)
        return np.cos(angle) + 1j * (np.sin(angle) if is_inverse else -np.sin(angle))

    if n <= step:
        return powers(np.arange(n))
    coarse, fine = powers(np.arange(0, n, step)), powers(np.arange(step))
    return (coarse[:, None] * fine).ravel()[:n]


def _array(values: np.ndarray, dtype: Any) -> Any:
    values = np.ascontiguousarray(values, dtype)
    return array_from_numpy(values, ArrayType(np.dtype(dtype), values.shape))


@functools.lru_cache(64)
def twiddles(n: int, is_inverse: bool, dtype: Any) -> Any:
    """Return the roots of unity of order `n` as pairs of real and imaginary parts.

    Behind them are the scale of results and the sign of the imaginary part of the first, and for
    each radix whose butterflies are loops its roots of order jk (see `table_rows`).
    """
    last = np.array([1 / np.longdouble(n) + 1j if is_inverse else 1 - 1j])
    found = [_roots(n, is_inverse, dtype), last]
    for radix in _looped(n):
        results, pairs = _pairs_of(radix)
        numbers = np.arange(1, results + 1)[:, None] * np.arange(1, pairs + 1) % radix
        found.append(_roots(radix, is_inverse, dtype)[numbers].ravel())
    return _pairs(np.concatenate(found), dtype)


def _looped(n: int) -> list[int]:
    return sorted({radix for radix in factors(n) or () if radix not in WRITTEN})


def _pairs_of(radix: int) -> tuple[int, int]:
    """Return how many results, an even number, stand for all, and how many pairs go into each."""
    return (radix // 2 + 1) // 2 * 2, radix // 2


def table_rows(n: int, radix: int | None = None) -> int:
    """Return the number of rows of the table of `n`, or of those before that of a radix."""
    before = [math.prod(_pairs_of(r)) for r in _looped(n) if radix is None or r < radix]
    return n + 1 + sum(before)


def _pairs(values: np.ndarray, dtype: Any) -> Any:
    real_dtype = real_part(dtype) if is_complex(dtype) else dtype
    return _array(np.stack([values.real, values.imag], -1), real_dtype)


@functools.lru_cache(64)
def _turns(first: int, second: int, is_inverse: bool, dtype: Any) -> Any:
    """Return what the results of the first of two passes are multiplied with, as pairs."""
    numbers = np.arange(first)[:, None] * np.arange(second)[None]
    return _pairs(_roots(first * second, is_inverse, dtype)[numbers], dtype)


@functools.lru_cache(64)
def _chirps(n: int, size: int, is_inverse: bool, dtype: Any) -> tuple[Any, Any]:
    """Return the chirp exp(-i pi k^2 / n), and the transform of its inverse, wrapped around."""
    k = np.arange(n, dtype=np.int64)
    chirp = _roots(2 * n, is_inverse, dtype)[k * k % (2 * n)]
    wrapped = np.zeros(size, np.complex128)
    wrapped[:n] = np.conj(chirp)
    wrapped[size - n + 1 :] = np.conj(chirp[:0:-1])
    return chirp, np.fft.fft(wrapped)


@functools.lru_cache(64)
def _chirp_rows(n: int, size: int, is_inverse: bool, dtype: Any) -> Any:
    """Return what a pass by convolution multiplies with, as rows of pairs."""
    chirp, spectrum = _chirps(n, size, is_inverse, dtype)
    rows = np.zeros((3, size), np.complex128)
    rows[0, :n], rows[1] = chirp, spectrum
    rows[2, :n] = np.conj(chirp) / (size * (n if is_inverse else 1))
    return _pairs(rows, dtype)
