"""Symbolic lengths of axes: polynomials of symbols, each of which is at least 2.

A shape holds extents: Python integers, or an `Extent` where a length is left open.  0 and 1 are
specialised, so every symbol is at least 2, which decides most comparisons; one that stays open
raises and names the symbols, because a guess would make a program wrong for some lengths.

    >>> n = symbol("n")
    >>> (n + 1) * 2
    2*n + 2
    >>> n + 1 > 2
    True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from stax.errors import ConcretizationTypeError, InconclusiveDimensionOperation

Monomial: TypeAlias = tuple[str, ...]  # sorted symbol names, with repetition; () is the constant
SMALLEST = 2


class links:
    """What this layer needs from above: Python's operators on arrays, by name, in which a length is
    a weak integer."""

    operators: Mapping[str, Callable[[Any, Any], Any]] = {}


class Extent:
    """A polynomial with integer coefficients that is not a constant (constants are ints).

    With whole numbers and other extents it is a length; with floats and arrays, or divided by `/`,
    it is a number of the program, as lengths are in JAX.
    """

    __slots__ = ("_hash", "terms")
    __array_ufunc__ = None  # NumPy leaves operators to this class

    terms: tuple[tuple[Monomial, int], ...]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = tuple(sorted(((m, c) for m, c in terms.items() if c), reverse=True))
        self._hash = hash(self.terms)

    def symbols(self) -> tuple[str, ...]:
        """Return the names of the symbols in it, sorted."""
        return tuple(sorted({name for monomial, _ in self.terms for name in monomial}))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """Return the length for given values of the symbols."""
        return sum(c * math.prod(values[name] for name in m) for m, c in self.terms)

    def replaced(self, values: Mapping[str, int | Extent]) -> int | Extent:
        """Return the length with some symbols replaced by lengths."""
        total: int | Extent = 0
        for monomial, coefficient in self.terms:
            term: int | Extent = coefficient
            for name in monomial:
                term = (values[name] if name in values else symbol(name)) * term
            total = term + total
        return total

    def __add__(self, other: Any) -> Any:
        if not _is_length(other):
            return _as_number("add", self, other)
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _extent(terms)

    def __mul__(self, other: Any) -> Any:
        if not _is_length(other):
            return _as_number("mul", self, other)
        terms: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in _terms(other):
                product = tuple(sorted(m + n))
                terms[product] = terms.get(product, 0) + c * d
        return _extent(terms)

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + other * -1 if _is_length(other) else _as_number("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self * -1 + other if _is_length(other) else _as_number("sub", other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return _as_number("truediv", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _as_number("truediv", other, self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, int | np.integer) and other >= 0:
            return math.prod([self] * int(other))
        return _as_number("pow", self, other)

    def __rpow__(self, other: Any) -> Any:
        return _as_number("pow", other, self)

    def __floordiv__(self, other: Any) -> Any:
        if not _is_length(other):
            return _as_number("floordiv", self, other)
        quotient = _divide(self, other)
        if quotient is None:
            _undecided(f"the exact quotient of {self} by {other}", self, other)
        return quotient

    def __rfloordiv__(self, other: Any) -> Any:
        if not _is_length(other):
            return _as_number("floordiv", other, self)
        if other:
            _undecided(f"the exact quotient of {other} by {self}", self)
        return 0

    def __mod__(self, other: Any) -> Any:
        if not _is_length(other):
            return _as_number("mod", self, other)
        if _divide(self, other) is None:
            _undecided(f"whether {other} divides {self}", self, other)
        return 0

    def __rmod__(self, other: Any) -> Any:
        if not _is_length(other):
            return _as_number("mod", other, self)
        if other:
            _undecided(f"whether {self} divides {other}", self)
        return 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | Extent):
            return NotImplemented
        if isinstance(other, Extent) and self.terms == other.terms:
            return True
        lowest, highest = _bounds(self - other)
        if lowest > 0 or highest < 0:
            return False
        _undecided(f"whether {self} equals {other}", self, other)

    def __ge__(self, other: Any) -> bool:
        if isinstance(other, float):
            return other != math.inf and (other == -math.inf or self >= math.ceil(other))
        if not _is_length(other):
            return NotImplemented
        lowest, highest = _bounds(self - other)
        if lowest >= 0:
            return True
        if highest < 0:
            return False
        _undecided(f"whether {self} is at least {other}", self, other)

    def __gt__(self, other: Any) -> bool:
        if isinstance(other, float):
            return (not math.isinf(other) and self >= math.floor(other) + 1) or other == -math.inf
        return self >= other + 1 if _is_length(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return not self > other if _is_number(other) else NotImplemented

    def __lt__(self, other: Any) -> bool:
        return not self >= other if _is_number(other) else NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __index__(self) -> NoReturn:
        raise ConcretizationTypeError(
            f"the length {self} of an axis is not known while tracing.",
            advice=(
                "Write the program without the number, or compile it for one length (without "
                "dynamic=)."
            ),
        )

    __int__ = __index__

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            factors = (
                list(monomial) if coefficient == 1 and monomial else [str(coefficient), *monomial]
            )
            parts.append("*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")


Dimension: TypeAlias = int | Extent


def symbol(name: str) -> Extent:
    """Return the extent that is the symbol `name`, at least 2."""
    return Extent({(name,): 1})


def symbols_in(extent: Dimension) -> tuple[str, ...]:
    """Return the names of the symbols in a length."""
    return extent.symbols() if isinstance(extent, Extent) else ()


def product(extents: tuple[Dimension, ...]) -> Dimension:
    """Return the number of elements of a shape."""
    result: Dimension = 1
    for extent in extents:
        result = extent * result
    return result


def same_shape(a: tuple[Dimension, ...], b: tuple[Dimension, ...]) -> bool:
    """Say whether two shapes are known to be equal, without asking what cannot be decided."""
    return a is b or (
        len(a) == len(b) and all(x is y or _identical(x, y) for x, y in zip(a, b, strict=True))
    )


def _identical(a: Dimension, b: Dimension) -> bool:
    if isinstance(a, Extent) or isinstance(b, Extent):
        return isinstance(a, Extent) and isinstance(b, Extent) and a.terms == b.terms
    return a == b


def _undecided(question: str, *extents: Dimension) -> NoReturn:
    symbols = {name for e in extents if isinstance(e, Extent) for name in e.symbols()}
    raise InconclusiveDimensionOperation(
        f"{question} depends on {', '.join(sorted(symbols))}, which can be any length "
        f"from {SMALLEST} up.",
        advice="Compile for fixed lengths, or write the program so that it does not ask.",
    )


def _is_length(value: Any) -> bool:
    """Say whether a number is whole, as lengths are."""
    return isinstance(value, int | Extent | np.integer)


def _is_number(value: Any) -> bool:
    return _is_length(value) or isinstance(value, float)


def _as_number(name: str, x: Any, y: Any) -> Any:
    """Return what an operator gives for two operands of which one is a length, as for arrays."""
    (other,) = [v for v in (x, y) if not isinstance(v, Extent)] or [x]
    known = isinstance(other, int | float | complex | Extent) or hasattr(other, "dtype")
    return links.operators[name](x, y) if known and links.operators else NotImplemented


def _terms(value: Dimension) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Extent) else (((), int(value)),)


def _extent(terms: Mapping[Monomial, int]) -> Dimension:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if set(kept) == {()}:
        return kept[()]
    return Extent(kept)


def _bounds(value: Dimension) -> tuple[float, float]:
    """Return bounds of a polynomial in symbols that are at least 2.

    The lower bound is exact for one sign of the non-constant coefficients; otherwise it is
    infinite, which leaves a comparison undecided.
    """
    if isinstance(value, int):
        return value, value
    signs = {c > 0 for m, c in value.terms if m}
    at_smallest = sum(c * SMALLEST ** len(m) for m, c in value.terms)
    if signs == {True}:
        return at_smallest, math.inf
    if signs == {False}:
        return -math.inf, at_smallest
    return -math.inf, math.inf


def _divide(value: Extent, by: Dimension) -> Dimension | None:
    """Return the exact quotient by an integer or a single term, or None."""
    divisor = _terms(by)
    if len(divisor) != 1:
        return 1 if isinstance(by, Extent) and by.terms == value.terms else None
    (names, factor), quotient = divisor[0], {}
    for monomial, coefficient in value.terms:
        rest = list(monomial)
        for name in names:
            if name not in rest:
                return None
            rest.remove(name)
        if factor == 0 or coefficient % factor:
            return None
        quotient[tuple(rest)] = coefficient // factor
    return _extent(quotient)
