"""Random nestings of control flow, custom rules and transforms give JAX's values and types."""

from __future__ import annotations

from typing import Any

import jax
import pytest
from hypothesis import given, settings, strategies as st

import stax
from tests.control_nestings import CONTROL, EVERY, STARTS, bounded_jax
from tests.nestings import LARGE, TRANSFORMS, assert_like, nest

Word = list[tuple[str, int]]


@st.composite
def nestings(draw: Any, depth: int) -> tuple[str, Word]:
    """Draw a base function and what is around it, mostly control flow; few enlarge it."""
    word: Word = []
    for _ in range(draw(st.integers(1, depth))):
        large = sum(name in LARGE for name, _ in word)
        names = [*CONTROL] * 2 + [n for n in TRANSFORMS if large < 1 or n not in LARGE]
        word.append((draw(st.sampled_from(names)), draw(st.integers(0, 11))))
    return draw(st.sampled_from(sorted(STARTS))), word


def check(base: str, word: Word) -> None:
    """Compare a nesting with JAX's: eager, jitted, and with loops that Python runs."""
    start, args = STARTS[base]
    theirs = jax.jit(nest(bounded_jax, start, word, EVERY))(*args)
    program = nest(stax, start, word, EVERY)
    assert_like(program(*args), theirs)
    assert_like(stax.jit(program)(*args), theirs)
    with stax.disable_jit():
        assert_like(program(*args), theirs)


@settings(max_examples=15)
@given(nestings(depth=3))
def test_nestings_are_those_of_jax(nesting: tuple[str, Word]) -> None:
    check(*nesting)


@pytest.mark.slow
@settings(max_examples=400)
@given(nestings(depth=4))
def test_deep_nestings_are_those_of_jax(nesting: tuple[str, Word]) -> None:
    check(*nesting)


# What was wrong once.
FOUND = [
    ("update", [("while_loop", 11), ("custom_vjp", 7), ("jacfwd", 9)]),  # a value waits for a ct
    # The rule computes results and tangents in one loop.
    ("update", [("chunked", 6), ("custom_jvp", 6), ("linearize", 9)]),
    ("gram", [("fori_loop", 2), ("custom_jvp", 11), ("jacrev", 7)]),
    ("product", [("fori_loop", 1), ("value_and_grad", 8), ("custom_jvp", 2), ("grad", 8)]),
]


@pytest.mark.parametrize(("base", "word"), FOUND)
def test_what_was_found(base: str, word: Word) -> None:
    check(base, word)


@pytest.mark.parametrize("name", CONTROL)
@pytest.mark.parametrize("variant", range(2))
def test_each_alone(name: str, variant: int) -> None:
    check("product", [(name, variant)])
