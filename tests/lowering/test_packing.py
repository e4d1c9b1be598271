"""Memory of values: those that are alive together do not meet, and results are left alone."""

from __future__ import annotations

import itertools

from hypothesis import given, settings, strategies as st

from stax.lowering.packing import MANY, Life, packed


def lives(steps: int, most: int) -> st.SearchStrategy[Life]:
    sizes = st.sampled_from((0, 1, 64, 100, 128, 1000, most))
    spans = st.tuples(st.integers(0, steps), st.integers(0, steps)).map(sorted)
    return st.builds(lambda span, nbytes: Life(*span, nbytes), spans, sizes)


def check_apart(given: list[Life], results: list[Life]) -> int:
    """Check where values are, and return the size of the arena."""
    spots, size = packed(given, results)
    for life, spot in zip(given, spots, strict=True):
        room = results[spot.result].nbytes if spot.result >= 0 else size
        assert 0 <= spot.offset <= spot.offset + life.nbytes <= room and spot.offset % 64 == 0
        assert spot.result < 0 or life.last < results[spot.result].first
    for (a, at), (b, bt) in itertools.combinations(zip(given, spots, strict=True), 2):
        if at.result == bt.result and a.first <= b.last and b.first <= a.last:
            ends_before = at.offset + a.nbytes <= bt.offset, bt.offset + b.nbytes <= at.offset
            assert any(ends_before)
    return size


@settings(max_examples=150)
@given(st.lists(lives(9, 5000), max_size=30), st.lists(lives(9, 3000), max_size=3))
def test_values_do_not_meet(given: list[Life], results: list[Life]) -> None:
    check_apart(given, results)


def test_very_many_values() -> None:
    """They come one after the other, each read by the next one."""
    size = check_apart([Life(i, i + 1, 100 + i % 7) for i in range(MANY + 50)], [])
    assert size == 256


def test_large_values_come_first() -> None:
    """In the order in which they are made, the first is too small for the third."""
    size = check_apart([Life(0, 1, 640), Life(1, 2, 640), Life(2, 3, 1280)], [Life(9, 9, 0)])
    assert size == 1920
    assert check_apart([Life(0, 1, 640), Life(1, 2, 640)], [Life(2, 2, 700)]) == 640
