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
from collections.abc import Mapping
from typing import NoReturn, TypeAlias

from stax.errors import ConcretizationTypeError, InconclusiveDimensionOperation

Monomial: TypeAlias = tuple[str, ...]  # sorted symbol names, with repetition; () is the constant
SMALLEST = 2


class Extent:
    """A polynomial with integer coefficients that is not a constant (constants are ints)."""

    __slots__ = ("_hash", "terms")

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

    def __add__(self, other: int | Extent) -> int | Extent:
        terms = dict(self.terms)
        for monomial, coefficient in _terms(other):
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _extent(terms)

    def __mul__(self, other: int | Extent) -> int | Extent:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms:
            for n, d in _terms(other):
                product = tuple(sorted(m + n))
                terms[product] = terms.get(product, 0) + c * d
        return _extent(terms)

    def __neg__(self) -> int | Extent:
        return self * -1

    def __sub__(self, other: int | Extent) -> int | Extent:
        return self + other * -1

    def __rsub__(self, other: int) -> int | Extent:
        return self * -1 + other

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: int | Extent) -> int | Extent:
        quotient = _divide(self, other)
        if quotient is None:
            _undecided(f"the exact quotient of {self} by {other}", self, other)
        return quotient

    def __rfloordiv__(self, other: int) -> int:
        if other:
            _undecided(f"the exact quotient of {other} by {self}", self)
        return 0

    def __mod__(self, other: int | Extent) -> int:
        if _divide(self, other) is None:
            _undecided(f"whether {other} divides {self}", self, other)
        return 0

    def __rmod__(self, other: int) -> int:
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

    def __ge__(self, other: int | Extent) -> bool:
        lowest, highest = _bounds(self - other)
        if lowest >= 0:
            return True
        if highest < 0:
            return False
        _undecided(f"whether {self} is at least {other}", self, other)

    def __gt__(self, other: int | Extent) -> bool:
        return self >= other + 1

    def __le__(self, other: int | Extent) -> bool:
        return not self > other

    def __lt__(self, other: int | Extent) -> bool:
        return not self >= other

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


def _terms(value: Dimension) -> tuple[tuple[Monomial, int], ...]:
    return value.terms if isinstance(value, Extent) else (((), value),)


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
