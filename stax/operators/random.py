"""Random bits and random keys: the Threefry-2x32 block cipher on counters, as JAX uses it.

A key enciphers blocks of two 32-bit words.  The bits at place `i` of an array are made of the
cipher of the block `(i >> 32, i & 0xFFFFFFFF)` alone (the form that JAX calls partitionable), so
every element is a function of the key and of its place: draws are computed inside of whatever reads
them, in any order, and a batch of keys is one more leading axis.

A key is held as one uint64, its first word in the low half (`types.KeyType`).  Lowering carries
keys as such numbers, which these ops take as well.

The cipher: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as easy as
1, 2, 3", SC 2011; 20 rounds, a word of the key schedule after every fourth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import ml_dtypes
import numpy as np

from stax import types
from stax.errors import DTypeError, ShapeError
from stax.extent import same_shape
from stax.op import Batch, Op
from stax.operators.broadcast import broadcast_in_dim, lead_all
from stax.operators.elementwise import (
    check_same,
    div,
    elementwise,
    exp,
    like,
    maximum,
    mul,
)
from stax.operators.special import random_gamma_grad
from stax.trace import Proxy, bind, type_of
from stax.types import ArrayType, Shape, canonical_shape, uint32, uint64

WIDTHS = {8: types.uint8, 16: types.uint16, 32: types.uint32, 64: types.uint64}

Pair = tuple[Any, Any]  # two 32-bit words: a key or a block

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
# Blocks that NumPy enciphers at a time: few enough to stay in a cache near the processor.
_AT_ONCE = 1 << 15
# From this many elements on, places take more than one word.
_ONE_WORD = 1 << 32


class _Words(NamedTuple):
    """Arithmetic of 32-bit words, which wraps: of NumPy arrays, or of elements in a kernel."""

    const: Callable[[int], Any]
    add: Callable[[Any, Any], Any]
    xor: Callable[[Any, Any], Any]
    rotate: Callable[[Any, int], Any]


def _encipher(words: _Words, key: Pair, block: Pair) -> Pair:
    """Return the cipher of a block; one text for evaluation and lowering, so their bits agree."""
    const, add, xor, rotate = words
    schedule = (*key, xor(xor(*key), const(_PARITY)))
    x, y = add(block[0], key[0]), add(block[1], key[1])
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = add(x, y)
            y = xor(rotate(y, distance), x)
        x = add(x, schedule[(group + 1) % 3])
        y = add(y, add(schedule[(group + 2) % 3], const(group + 1)))
    return x, y


# --- in NumPy ---


def _rotated(x: Any, distance: int) -> Any:
    return x << np.uint32(distance) | x >> np.uint32(32 - distance)


_NUMPY = _Words(np.uint32, np.add, np.bitwise_xor, _rotated)


def _halves(x: np.ndarray) -> Pair:
    """Return the low and the high words of 64-bit numbers."""
    return x.astype(uint32), (x >> np.uint64(32)).astype(uint32)


def _joined(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return 64-bit numbers of their words."""
    return low.astype(uint64) | high.astype(uint64) << np.uint64(32)


def _enciphered(keys: np.ndarray, shape: Shape) -> Pair:
    """Return the words of the ciphers of the places in `shape`, for each of `keys`."""
    counts: int = math.prod(shape)  # type: ignore[arg-type]
    flat = keys.reshape(-1, 1)
    found = [np.empty((len(flat), counts), uint32) for _ in range(2)]
    with np.errstate(over="ignore"):
        for rows, columns in _tiles(len(flat), counts):
            count = np.arange(columns.start, columns.stop, dtype=uint64)
            key, (low, high) = _halves(flat[rows]), _halves(count)
            for whole, part in zip(found, _encipher(_NUMPY, key, (high, low)), strict=True):
                whole[rows, columns] = part
    first, second = (whole.reshape((*keys.shape, *shape)) for whole in found)
    return first, second


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Cut a matrix into parts that NumPy works on at a time."""
    height = max(1, _AT_ONCE // max(1, columns))
    for top in range(0, rows, height):
        for left in range(0, columns, _AT_ONCE):
            yield slice(top, top + height), slice(left, min(columns, left + _AT_ONCE))


# --- in a kernel ---


def _kernel_words(kernel: Any) -> _Words:
    """Return the arithmetic that builds expressions; each step is named, for two others read it."""

    def apply(name: str) -> Callable[[Any, Any], Any]:
        return lambda x, y: kernel.named(kernel.apply(name, x, y))

    def rotate(x: Any, distance: int) -> Any:
        left = kernel.apply("shift_left", x, kernel.const(distance, uint32))
        right = kernel.apply("shift_right_logical", x, kernel.const(32 - distance, uint32))
        return kernel.apply("or", left, right)

    return _Words(lambda x: kernel.const(x, uint32), apply("add"), apply("xor"), rotate)


def _lowered_halves(kernel: Any, x: Any) -> Pair:
    """Return the low and the high word of a 64-bit number."""
    high = kernel.apply("shift_right_logical", x, kernel.const(32, uint64))
    return kernel.convert(x, uint32), kernel.convert(high, uint32)


def _lowered_join(kernel: Any, low: Any, high: Any) -> Any:
    """Return a 64-bit number of its words."""
    moved = kernel.apply("shift_left", kernel.convert(high, uint64), kernel.const(32, uint64))
    return kernel.apply("or", kernel.convert(low, uint64), moved)


def _lowered_cipher(kernel: Any, key: Any, block: Pair) -> Pair:
    halves = _lowered_halves(kernel, key)
    words = (kernel.named(halves[0]), kernel.named(halves[1]))
    return _encipher(_kernel_words(kernel), words, block)


def _lowered_place(kernel: Any, index: Sequence[Any], shape: Shape) -> Pair:
    """Return the block of a place, given by its index, or by one number that counts all places."""
    place: Any = index[0] if index else 0
    if len(index) == len(shape):
        for i, extent in zip(index[1:], shape[1:], strict=True):
            place = kernel.plus(kernel.times(place, kernel.extent(extent)), i)
    place = kernel.plus(place, kernel.extent(0))
    if all(isinstance(n, int) for n in shape) and math.prod(shape) <= _ONE_WORD:
        return kernel.const(0, uint32), kernel.convert(place, uint32)
    low, high = _lowered_halves(kernel, kernel.convert(place, uint64))
    return high, low


# --- the ops ---


class KeyOp(Op):
    """Base of ops on random keys: there is nothing to differentiate."""

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        return None


def _check_keys(name: str, keys: ArrayType) -> None:
    if not types.is_key(keys.dtype) and keys.dtype != uint64:
        raise DTypeError(
            f"{name} takes random keys, not {keys}.",
            advice="Make one: random.key(seed), or random.wrap_key_data(words).",
        )


class Draw(KeyOp):
    """Base of ops that make an array of `shape` of each key: its axes follow those of the keys."""

    loops: ClassVar[bool] = True
    shape: Shape

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def _cipher(self, kernel: Any, index: Sequence[Any], keys: Any) -> Pair:
        ndim = keys.type.ndim
        block = _lowered_place(kernel, index[ndim:], self.shape)
        return _lowered_cipher(kernel, keys(index[:ndim]), block)


@dataclass(frozen=True, eq=False)
class RandomBits(Draw):
    """Unsigned integers of `width` random bits."""

    width: int
    shape: Shape
    name: ClassVar[str] = "random_bits"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (keys,) = operands
        _check_keys(self.name, keys)
        return ArrayType(WIDTHS[self.width], (*keys.shape, *self.shape))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        first, second = _enciphered(arrays[0], self.shape)
        if self.width == 64:
            return _joined(second, first)
        return (first ^ second).astype(WIDTHS[self.width], copy=False)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        first, second = self._cipher(kernel, index, operands[0])
        if self.width == 64:
            return _lowered_join(kernel, second, first)
        return kernel.convert(kernel.apply("xor", first, second), WIDTHS[self.width])


@dataclass(frozen=True, eq=False)
class RandomSplit(Draw):
    """New keys."""

    shape: Shape
    name: ClassVar[str] = "random_split"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (keys,) = operands
        _check_keys(self.name, keys)
        return keys.with_shape((*keys.shape, *self.shape))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return _joined(*_enciphered(arrays[0], self.shape))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return _lowered_join(kernel, *self._cipher(kernel, index, operands[0]))


@dataclass(frozen=True, eq=False)
class RandomFoldIn(KeyOp):
    """New keys, one for each key and the uint32 that goes with it."""

    name: ClassVar[str] = "random_fold_in"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        keys, data = operands
        _check_keys(self.name, keys)
        if data.dtype != uint32 or not same_shape(data.shape, keys.shape):
            raise DTypeError(
                f"random_fold_in: {keys} needs uint32 data of its shape, not {data}.",
                advice="Convert the data with astype.",
            )
        return keys

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        keys, data = arrays
        with np.errstate(over="ignore"):
            return _joined(*_encipher(_NUMPY, _halves(keys), (np.uint32(0), data)))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        keys, data = operands
        block = kernel.const(0, uint32), data(index)
        return _lowered_join(kernel, *_lowered_cipher(kernel, keys(index), block))


@dataclass(frozen=True, eq=False)
class RandomWrap(KeyOp):
    """Keys of their words, which are along the last axis; `dtype` is that of keys."""

    dtype: Any
    name: ClassVar[str] = "random_wrap"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (data,) = operands
        if data.dtype != uint32 or not data.ndim or not same_shape(data.shape[-1:], (2,)):
            raise ShapeError(
                f"random_wrap: the words of keys are uint32[..., 2], not {data}.",
                advice="A key has two words, along the last axis.",
            )
        return ArrayType(self.dtype, data.shape[:-1])

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        (data,) = arrays
        return _joined(data[..., 0], data[..., 1])

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        low, high = (operands[0]((*index, kernel.extent(word))) for word in range(2))
        return _lowered_join(kernel, low, high)


@dataclass(frozen=True, eq=False)
class RandomUnwrap(KeyOp):
    """The words of keys, along a new last axis."""

    name: ClassVar[str] = "random_unwrap"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        (keys,) = operands
        _check_keys(self.name, keys)
        return ArrayType(uint32, (*keys.shape, 2))

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return np.stack(_halves(arrays[0]), axis=-1)

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *inputs)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        *place, word = index
        low, high = _lowered_halves(kernel, operands[0](tuple(place)))
        return kernel.apply("select", kernel.less(word, 1), low, high)


# --- one rounding ---


def _two_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the sum of two numbers and what its rounding left out (D. E. Knuth)."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _two_product(x: Any, y: Any) -> tuple[Any, Any]:
    """Return the product of float64 numbers and what its rounding left out (T. J. Dekker)."""

    def halves(a: Any) -> tuple[Any, Any]:
        scaled = a * 134217729.0
        high = scaled - (scaled - a)
        return high, a - high

    product, (a, b), (c, d) = x * y, halves(x), halves(y)
    return product, ((a * c - product) + a * d + b * c) + b * d


def _odd_sum(x: Any, y: Any) -> Any:
    """Return the sum of float64 numbers; where it is not exact, the neighbour whose last bit is 1.

    Rounded again, to fewer bits, it gives what the exact sum would.
    """
    total, rest = _two_sum(x, y)
    pattern = total.view(np.int64)
    is_moved = (rest != 0) & (pattern & 1 == 0) & np.isfinite(total)
    away = np.where((rest > 0) == (total > 0), 1, -1)
    return np.where(is_moved, pattern + away, pattern).view(np.float64)


def _fused(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> Any:
    """Return x * y + z, rounded once (S. Boldo, G. Melquiond, "Emulation of FMA", 2008)."""
    if x.dtype == types.float32:
        x, y, z = (a.astype(np.float64) for a in (x, y, z))
        return _odd_sum(x * y, z).astype(np.float32)
    product, low = _two_product(x, y)
    middle, lowest = _two_sum(z, low)
    total, rest = _two_sum(product, middle)
    return np.where(np.isfinite(total + low), total + _odd_sum(lowest, rest), x * y + z)


# Scales and shifts uniform numbers as JAX's compiled programs do; nothing else contracts.
fma = elementwise(
    "fma",
    _fused,
    lambda t, out, x, y, z: mul(t, y),
    lambda t, out, x, y, z: mul(x, t),
    lambda t, out, x, y, z: t,
    accepts=lambda dtype: dtype in (types.float32, types.float64),
)


# --- what was drawn ---


@dataclass(frozen=True, eq=False)
class GammaSample(Op):
    """A number drawn from the gamma distribution, or its logarithm, and the shape parameter.

    The value is the first operand.  Its derivative by the second is that at which the distribution
    function stays what it is (implicit reparameterization; M. Figurnov and others, 2018).
    """

    log_space: bool
    name: ClassVar[str] = "gamma_sample"

    def abstract_eval(self, *operands: ArrayType) -> ArrayType:
        sample, alpha = operands
        check_same(self.name, (sample, alpha))
        return sample

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]

    def jvp(self, out: Proxy, primals: Sequence[Proxy], tangents: Sequence[Proxy | None]) -> Any:
        (_, alpha), (_, t) = primals, tangents
        if t is None:
            return None
        if not self.log_space:
            return mul(t, random_gamma_grad(alpha, out))
        # Of the logarithm of a number that is too small for the dtype, the smallest counts.
        sample = maximum(exp(out), like(out, float(ml_dtypes.finfo(out.dtype).tiny)))
        return mul(t, div(random_gamma_grad(alpha, sample), sample))

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Proxy) -> Any:
        return bind(self, *lead_all(batch, flags, inputs))

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return operands[0](index)


# --- functions ---


def gamma_sample(sample: Any, alpha: Any, log_space: bool) -> Any:
    """Return `sample`, drawn with the shape parameter `alpha`, with its derivative by that."""
    return bind(GammaSample(log_space), sample, alpha)


def random_bits(keys: Any, width: int, shape: Any) -> Any:
    """Return unsigned integers of `width` (8, 16, 32, 64) random bits, of `shape` for each key."""
    return bind(RandomBits(width, canonical_shape(shape)), keys)


def random_split(keys: Any, shape: Any) -> Any:
    """Return new keys, of `shape` for each key."""
    return bind(RandomSplit(canonical_shape(shape)), keys)


def random_fold_in(keys: Any, data: Any) -> Any:
    """Return a new key for each key and number of `data`, which is uint32."""
    shape = type_of(keys).shape
    return bind(RandomFoldIn(), keys, broadcast_in_dim(data, shape, range(type_of(data).ndim)))


def random_wrap(data: Any, dtype: Any = types.key_fry) -> Any:
    """Return the keys whose words are along the last axis of `data`, which is uint32."""
    return bind(RandomWrap(dtype), data)


def random_unwrap(keys: Any) -> Any:
    """Return the words of keys along a new last axis."""
    return bind(RandomUnwrap(), keys)
