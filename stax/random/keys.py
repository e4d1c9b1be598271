"""Random keys: made of seeds, split into new ones, and looked into.

A key is an array of a dtype of its own (`key`, `wrap_key_data`), or two uint32 words (`PRNGKey`);
every function takes both kinds and returns new keys of the kind that it was given.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stax import types
from stax.array import asarray
from stax.errors import ArgumentError, ArgumentValueError, DTypeError, NumberRangeError, ShapeError
from stax.operators import random as ops
from stax.operators.elementwise import convert, like, shift_right_logical
from stax.operators.shape import concatenate, reshape
from stax.trace import is_array
from stax.types import KeyType, canonical_shape, is_key, key_fry, uint32, uint64

GENERATOR = "threefry2x32"
_VMAP = "Use vmap for several."


def _dtype_of(spec: Any) -> KeyType:
    """Return the dtype of the keys of a generator, given by name or by that dtype."""
    if spec is None or spec == GENERATOR or spec is key_fry:
        return key_fry
    if isinstance(spec, str):
        raise ArgumentValueError(
            f"there is no generator {spec!r}.", advice=f"The one there is is {GENERATOR!r}."
        )
    raise ArgumentError(
        f"{type(spec).__name__} does not name a generator.",
        advice=f"Pass {GENERATOR!r}, or a dtype of keys.",
    )


def _chosen(name: str, impl: Any, dtype: Any) -> KeyType:
    if impl is not None and dtype is not None:
        raise ArgumentValueError(
            f"{name}: impl and dtype both name the generator.", advice="Give one of them."
        )
    return _dtype_of(impl if dtype is None else dtype)


def checked(name: str, key: Any, batched: bool = False) -> tuple[Any, bool]:
    """Return `key` as a typed key, and whether it was given as words.

    Raises ArgumentValueError for several keys unless `batched`, ArgumentError for what is no key.
    """
    is_raw = not (is_array(key) and is_key(key.dtype))
    typed = _wrapped(name, key) if is_raw else key
    if typed.ndim and not batched:
        raise ArgumentValueError(
            f"{name} takes one key, not keys of shape {typed.shape}.", advice=_VMAP
        )
    return typed, is_raw


def one_key(name: str, key: Any) -> Any:
    """Return `key` as one typed key; raises as `checked` does."""
    return checked(name, key)[0]


def _wrapped(name: str, data: Any) -> Any:
    if not is_array(data) and not isinstance(data, np.ndarray):
        raise ArgumentError(
            f"{name} takes a random key, not {type(data).__name__}.",
            advice="Make one: random.key(seed).",
        )
    words = asarray(data)
    if words.dtype != uint32:
        raise DTypeError(
            f"{name}: {words.type} is no random key; the words of keys are uint32.",
            advice="Make keys of seeds: random.key(seed).",
        )
    if not words.ndim or words.shape[-1] != 2:
        raise ShapeError(
            f"{name}: {words.type} is no random key; each has two words, along the last axis.",
            advice="Make keys of seeds: random.key(seed).",
        )
    return ops.random_wrap(words)


def _kind(key: Any, is_raw: bool) -> Any:
    """Return a typed key as the kind that was given."""
    return ops.random_unwrap(key) if is_raw else key


# --- making keys ---


def _of_seed(name: str, seed: Any) -> Any:
    """Return the key whose words are the high and the low half of an integer of 64 bits."""
    if isinstance(seed, int) and not isinstance(seed, np.generic):
        seed = np.int64(_in_range(name, int(seed)))
    seed = asarray(seed)
    if is_key(seed.dtype) or not types.is_integer(seed.dtype):
        raise DTypeError(f"{name}: a seed is an integer, not {seed.type}.")
    if seed.ndim:
        raise ArgumentError(f"{name} takes one seed, not {seed.type}.", advice=_VMAP)
    words = [convert(seed, uint32)]
    if seed.dtype.itemsize == 8:
        wide = convert(seed, uint64)
        words.insert(0, convert(shift_right_logical(wide, like(wide, 32)), uint32))
    else:
        words.insert(0, like(words[0], 0))
    return ops.random_wrap(concatenate([reshape(x, (1,)) for x in words]))


def _in_range(name: str, seed: int) -> int:
    if not -(1 << 63) <= seed < 1 << 63:
        raise NumberRangeError(f"{name}: the seed {seed} does not fit an integer of 64 bits.")
    return seed


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Return the key of an integer `seed`, as a scalar of a dtype of keys.

    `impl` or `dtype` name the generator, of which there is one, "threefry2x32".  Without enable_x64
    a seed counts modulo 2**32, as in JAX.
    """
    _chosen("key", impl, dtype)
    return _of_seed("key", seed)


def PRNGKey(seed: Any, *, impl: Any = None) -> Any:
    """Return the key of an integer `seed` as two uint32 words; `key` makes typed ones."""
    _dtype_of(impl)
    return ops.random_unwrap(_of_seed("PRNGKey", seed))


def split(key: Any, num: Any = 2) -> Any:
    """Return new keys made of one: `num` is how many, or their shape."""
    typed, is_raw = checked("split", key)
    return _kind(ops.random_split(typed, canonical_shape(num)), is_raw)


def fold_in(key: Any, data: Any) -> Any:
    """Return the new key that `key` and an integer make, of which 32 bits count."""
    typed, is_raw = checked("fold_in", key)
    number = asarray(data, uint32)
    if number.ndim:
        raise ArgumentError(f"fold_in takes one integer, not {number.type}.", advice=_VMAP)
    return _kind(ops.random_fold_in(typed, number), is_raw)


def clone(key: Any) -> Any:
    """Return `key`: nothing here checks that a key is used once, which is what JAX has it for."""
    checked("clone", key, batched=True)
    return asarray(key)


# --- looking into keys ---


def key_dtype(impl_spec: Any = None) -> Any:
    """Return the dtype of the keys of a generator."""
    return _dtype_of(impl_spec)


def key_impl(keys: Any) -> str:
    """Return the name of the generator of `keys`."""
    checked("key_impl", keys, batched=True)
    return GENERATOR


def key_data(keys: Any) -> Any:
    """Return the words of `keys`, those of each along a new last axis."""
    return ops.random_unwrap(checked("key_data", keys, batched=True)[0])


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Return the keys whose words, uint32, are along the last axis of an array."""
    _chosen("wrap_key_data", impl, dtype)
    return _wrapped("wrap_key_data", key_bits_array)
