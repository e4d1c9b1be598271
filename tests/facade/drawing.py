"""Strategies of arguments, by kind of function, for the tables of tests/facade.

A kind is a function of a `Source` (which draws) that returns a `Call`.  What is drawn first, and
so in every short run, is the typical case: float32, two axes.  Arrays are filled from a drawn seed,
off the kinks: no element is a multiple of 1/16, so that none is 0, 1 or half of an integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

FLOATS = ("float32", "float16", "bfloat16")
INTS = ("int32", "int8", "uint8", "uint32", "int16", "uint16")
SIGNED = ("int32", "int8", "int16")
COMPLEX = ("complex64",)
REAL = (*FLOATS, "int32", "uint8", "int8", "uint32")
NUMBERS = (*REAL, *COMPLEX)
ALL = (*NUMBERS, "bool")
BITS = (*INTS, "bool")
WIDE = {"float32": "float64", "int32": "int64", "uint32": "uint64", "complex64": "complex128"}

SHAPES: tuple[tuple[int, ...], ...] = (
    (2, 3), (), (4,), (3, 1), (2, 3, 2), (2, 0), (1,), (0,),
)  # fmt: skip
PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (3,)), ((), (4,)), ((0, 3), (3,)), ((), ()),
    ((2, 3), (2,)),
)  # fmt: skip


class Call(NamedTuple):
    """The arguments of one call; arrays are NumPy's and are traced, the rest is static."""

    args: tuple[Any, ...]
    options: dict[str, Any]
    smooth: bool = True  # whether the point is off the kinks, so that slopes can be compared


class From(NamedTuple):
    """An argument that each library makes for itself, as a dtype or an enumeration."""

    make: Callable[[Any], Any]


class Source:
    """Draws arguments; with `x64` the 32-bit types become those of 64 bits."""

    def __init__(self, draw: Any, x64: bool = False) -> None:
        self.draw, self.x64 = draw, x64

    def pick(self, items: Sequence[Any]) -> Any:
        return items[0] if len(items) == 1 else self.draw(st.sampled_from(list(items)))

    def flag(self) -> bool:
        return bool(self.draw(st.booleans()))

    def integer(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.integer(0, 2**16))

    def dtype(self, dtypes: Sequence[str] = REAL) -> str:
        found = self.pick(dtypes)
        return WIDE.get(found, found) if self.x64 else found

    def shape(self, least: int = 0, most: int = 3, empty: bool = True) -> tuple[int, ...]:
        fits = [s for s in SHAPES if least <= len(s) <= most and (empty or 0 not in s)]
        return self.pick(fits)

    def array(
        self, shape: Sequence[int], dtype: str = "float32", low: float = -3, high: float = 3
    ) -> np.ndarray:
        """Return an array of numbers between `low` and `high`, off the multiples of 1/16."""
        kind, rng, shape = jnp.dtype(dtype), self.rng(), tuple(shape)
        if dtype == "bool":
            return np.asarray(rng.integers(0, 2, shape) > 0)
        if "int" in dtype:
            least = max(math.ceil(low), 0 if dtype[0] == "u" else -100)
            return np.asarray(rng.integers(least, max(math.floor(high), least) + 1, shape), kind)
        first, last = math.floor(low * 16), max(math.ceil(high * 16), math.floor(low * 16) + 1)
        real = (rng.integers(first, last, shape) + 0.5) / 16
        if "complex" in dtype:
            real = real + 1j * (rng.integers(first, last, shape) + 0.5) / 16
        return np.asarray(real).astype(kind)

    def some(self, dtypes: Sequence[str] = REAL, least: int = 0, **limits: float) -> np.ndarray:
        """Return an array of some shape and dtype."""
        return self.array(self.shape(least), self.dtype(dtypes), **limits)

    def mask(self, shape: Sequence[int]) -> np.ndarray:
        return self.array(shape, "bool")

    def axis(self, ndim: int) -> int:
        return 0 if ndim == 0 else self.integer(-ndim, ndim - 1)

    def axes(self, ndim: int) -> Any:
        """Return None, an axis, or a tuple of axes; of either sign."""
        options: list[Any] = [None] if ndim == 0 else [-1, None, 0]
        return self.pick([*options, *([(0, -1), (1,), ()] if ndim > 1 else [()])])

    def number(self, like: str) -> Any:
        """Return a Python number of the kind of a dtype."""
        choices = {"f": (1.5, -0.25), "c": (1.5 - 0.5j,), "b": (True,), "u": (2, 3), "i": (2, -3)}
        return self.pick(choices["f" if like == "bfloat16" else like[0]])


Kind = Callable[[Source], Call]
SPECIAL = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e-30)


def made(arguments: Callable[[Source], Any], smooth: bool = True) -> Kind:
    """Return the kind of function whose arguments are a tuple, or one with options at its end."""

    def draw(source: Source) -> Call:
        found = arguments(source)
        found = found if isinstance(found, tuple) else (found,)
        if isinstance(found[-1] if found else None, dict):
            return Call(found[:-1], found[-1], smooth)
        return Call(found, {}, smooth)

    return draw


def unary(
    dtypes: Sequence[str] = ALL, low: float = -3, high: float = 3, special: bool = True, **more: Any
) -> Kind:
    """Functions of each element, of arrays and Python numbers; `more` are options to choose."""

    def draw(source: Source) -> Call:
        options = {name: source.pick(values) for name, values in more.items()}
        dtype = source.dtype(dtypes)
        shape = source.shape()
        if shape == () and source.flag():
            return Call((float(low + high) / 2 + 0.3,), options)
        x = source.array(shape, dtype, low, high)
        if special and "float" in dtype and x.size and source.pick((False, False, True)):
            values = [v for v in SPECIAL if np.isnan(v) or low <= v <= high or high == 3]
            with np.errstate(over="ignore"):
                return Call((np.resize(np.array(values, x.dtype), shape),), options, False)
        return Call((x,), options)

    return draw


def binary(
    dtypes: Sequence[str] = REAL,
    low: float = -3,
    high: float = 3,
    second: Any = None,
    mixed: bool = True,
) -> Kind:
    """Functions of two operands that broadcast and promote; `second` limits the second one."""

    def draw(source: Source) -> Call:
        first = source.dtype(dtypes)
        other = source.dtype(dtypes) if mixed and source.flag() else first
        shapes = source.pick(PAIRS)
        lows = (low, low if second is None else second[0])
        highs = (high, high if second is None else second[1])
        args: list[Any] = [
            source.array(s, d, a, b)
            for s, d, a, b in zip(shapes, (first, other), lows, highs, strict=True)
        ]
        if source.flag() and source.flag():
            args[1] = abs(source.number(other)) if second else source.number(other)
        if source.flag():
            args = [np.moveaxis(a, 0, -1) if np.ndim(a) and a.shape == (2, 3) else a for a in args]
            if np.ndim(args[0]) and np.ndim(args[1]) and args[0].shape == (3, 2):
                args[1] = np.asarray(args[1])[..., :1] if args[1].shape[-1] else args[1]
        return Call(tuple(args), {})

    return draw


def ternary(dtypes: Sequence[str] = FLOATS, *limits: tuple[float, float]) -> Kind:
    """Functions of several operands in one shape, each within its limits."""

    def draw(source: Source) -> Call:
        dtype = source.dtype(dtypes)
        shapes = [source.pick(((3,), (), (2, 3))) for _ in limits]
        pairs = zip(shapes, limits, strict=True)
        return Call(tuple(source.array(s, dtype, *b) for s, b in pairs), {})

    return draw


def same(dtypes: Sequence[str] = REAL, count: int = 2, low: float = -3, high: float = 3) -> Kind:
    """Functions of operands of one dtype and one shape; sometimes one is a number, or differs."""

    def draw(source: Source) -> Call:
        dtype, shape = source.dtype(dtypes), source.shape()
        args: list[Any] = [source.array(shape, dtype, low, high) for _ in range(count)]
        other = source.pick(("none", "none", "none", "number", "dtype", "shape"))
        if other == "number" and count > 1 and dtype in ("float32", "int32"):
            args[-1] = abs(source.number(dtype))
        elif other == "dtype":
            args[-1] = source.array(shape, source.dtype(dtypes), low, high)
        elif other == "shape":
            args[-1] = source.array(source.shape(), dtype, low, high)
        return Call(tuple(args), {})

    return draw


def reduction(
    dtypes: Sequence[str] = ALL,
    where: bool = True,
    initial: Any = None,
    dtype: Sequence[Any] = (),
    least: int = 0,
    single: bool = False,
    keepdims: bool = True,
    empty: bool = True,
    high: float = 3,
    **more: Any,
) -> Kind:
    """Reductions over axes, with the options that the function has.

    `initial` is given wherever elements may be missing; `single` means one axis or None.
    """

    def draw(source: Source) -> Call:
        shape = source.shape(least, empty=empty)
        x = source.array(shape, source.dtype(dtypes), -3, high)
        axis = source.axes(len(shape))
        if single and isinstance(axis, tuple):
            axis = None
        options: dict[str, Any] = {"axis": axis}
        if keepdims and source.flag():
            options["keepdims"] = True
        if where and source.flag():
            options["where"] = source.mask(source.pick((shape, shape[-1:])))
            if initial is not None:
                options["initial"] = initial
        elif initial is not None and source.flag():
            options["initial"] = initial
        if dtype and source.flag():
            options["dtype"] = source.pick(dtype)
        options |= {name: source.pick(values) for name, values in more.items()}
        return Call((x,), {k: v for k, v in options.items() if v is not None or k == "axis"})

    return draw


def along(
    dtypes: Sequence[str] = REAL,
    least: int = 1,
    none: bool = False,
    empty: bool = True,
    **more: Any,
) -> Kind:
    """Functions along one axis; `none` means that axis=None flattens."""

    def draw(source: Source) -> Call:
        shape = source.shape(least, empty=empty)
        axis = source.axis(len(shape))
        if none and source.pick((False, False, True)):
            axis = None
        options = {"axis": axis} | {name: source.pick(values) for name, values in more.items()}
        return Call((source.array(shape, source.dtype(dtypes)),), options)

    return draw


def reshaping(least: int = 0, dtypes: Sequence[str] = ALL, **more: Any) -> Kind:
    """Functions of one array that move its elements; `more` are options to choose."""

    def draw(source: Source) -> Call:
        options = {name: source.pick(values) for name, values in more.items()}
        return Call((source.some(dtypes, least),), options)

    return draw


def matrices(
    *shapes: tuple[int, ...], dtypes: Sequence[str] = ("float32", "complex64"), **more: Any
) -> Kind:
    """Functions of square matrices that are far from singular."""

    def draw(source: Source) -> Call:
        shape = source.pick(shapes or ((3, 3), (2, 2, 2), (1, 1)))
        x = source.array(shape, source.dtype(dtypes))
        x = x + 5 * np.eye(shape[-2], shape[-1], dtype=x.dtype)
        return Call((x,), {name: source.pick(values) for name, values in more.items()})

    return draw
