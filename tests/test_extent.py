"""Symbolic lengths: their algebra is that of the integers they stand for, or raises."""

import operator
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from stax.errors import ConcretizationTypeError, InconclusiveDimensionOperation
from stax.extent import Dimension, Extent, product, same_shape, symbol

n, m = symbol("n"), symbol("m")

SMALL = st.integers(-4, 4)
LENGTHS = st.fixed_dictionaries({"n": st.integers(2, 9), "m": st.integers(2, 9)})


def polynomial(values: list[tuple[int, int, int]]) -> Dimension:
    """The sum of c * n**i * m**j for (c, i, j)."""
    total: Dimension = 0
    for c, i, j in values:
        term: Dimension = c
        for factor in [n] * i + [m] * j:
            term = factor * term
        total = total + term
    return total


EXTENTS = st.lists(
    st.tuples(SMALL, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3
).map(polynomial)


def value(extent: Dimension, lengths: dict[str, int]) -> int:
    return extent.evaluate(lengths) if isinstance(extent, Extent) else extent


@pytest.mark.parametrize("op", [operator.add, operator.sub, operator.mul])
@given(EXTENTS, EXTENTS, LENGTHS)
def test_arithmetic(op: Callable[..., Any], a: Dimension, b: Dimension, lengths: Any) -> None:
    assert value(op(a, b), lengths) == op(value(a, lengths), value(b, lengths))


@pytest.mark.parametrize(
    "op", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
)
@given(EXTENTS, EXTENTS, LENGTHS)
def test_comparisons_that_are_decided(
    op: Callable[..., Any], a: Dimension, b: Dimension, lengths: Any
) -> None:
    try:
        decided = op(a, b)
    except InconclusiveDimensionOperation:
        return
    assert decided == op(value(a, lengths), value(b, lengths))


@given(EXTENTS, st.integers(1, 4), LENGTHS)
def test_quotients_are_exact(a: Dimension, by: int, lengths: Any) -> None:
    for divisor in (by, n * by):
        whole = a * divisor
        assert value(whole // divisor, lengths) == value(a, lengths)
        assert whole % divisor == 0


@given(EXTENTS)
def test_equal_polynomials_are_equal(a: Dimension) -> None:
    again = a + n - n
    assert again == a
    assert hash(again) == hash(a)
    assert type(a - a) is int


def test_what_constants_decide() -> None:
    assert n > 1
    assert n >= 2
    assert n + 1 > 2
    assert n != 0
    assert n != 1
    assert n * m >= 4
    assert not n < 2
    assert n >= 2
    assert bool(n)
    assert n != "n"


@pytest.mark.parametrize(
    ("ask", "symbols"),
    [
        (lambda: n == 2, "n"),
        (lambda: n > 2, "n"),
        (lambda: n == m, "m, n"),
        (lambda: n < m, "m, n"),
        (lambda: n // 2, "n"),
        (lambda: n % 3, "n"),
        (lambda: n // m, "m, n"),
        (lambda: 6 // n, "n"),
        (lambda: 6 % n, "n"),
    ],
    ids=[
        "eq",
        "gt",
        "eq-two",
        "lt-two",
        "floordiv",
        "mod",
        "floordiv-two",
        "int-floordiv",
        "int-mod",
    ],
)
def test_undecidable_questions_raise(ask: Callable[[], Any], symbols: str) -> None:
    with pytest.raises(InconclusiveDimensionOperation, match=rf"depends on {symbols}, which"):
        ask()


@pytest.mark.parametrize("convert", [int, operator.index, range, [1, 2].__getitem__])
def test_no_extent_is_a_number(convert: Callable[[Any], Any]) -> None:
    with pytest.raises(ConcretizationTypeError, match="the length n of an axis is not known"):
        convert(n)


def test_printed_form() -> None:
    assert str(n * 2 + 1) == "2*n + 1"
    assert str(n * m - 3) == "m*n - 3"
    assert str(-n) == "-1*n"
    assert (n * m + 2).symbols() == ("m", "n")  # type: ignore[union-attr]


def test_shapes() -> None:
    assert product((n, 3, 2)) == n * 6
    assert product(()) == 1
    assert same_shape((n, 2), (symbol("n"), 2))
    assert not same_shape((n,), (m,))  # does not ask what cannot be decided
    assert not same_shape((n,), (2,))
    assert not same_shape((n,), (n, 1))
