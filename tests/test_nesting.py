"""Random nestings of transforms give JAX's values, dtypes, shapes and tree structures."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from hypothesis import given, settings, strategies as st

import stax
from tests.nestings import BASES, LARGE, TRANSFORMS, eager_jax, is_float, nest

Word = list[tuple[str, int]]


@st.composite
def nestings(draw: Any, depth: int = 3) -> tuple[str, Word]:
    """Draw a base function and the transforms around it, few of which enlarge it."""
    word: Word = []
    for _ in range(draw(st.integers(1, depth))):
        large = sum(name in LARGE for name, _ in word)
        names = [n for n in TRANSFORMS if large < 1 or n not in LARGE]
        word.append((draw(st.sampled_from(names)), draw(st.integers(0, 11))))
    return draw(st.sampled_from(sorted(BASES))), word


def assert_like(ours: Any, theirs: Any) -> None:
    """Compare two results, each a pytree of arrays."""
    left, structure = stax.tree.flatten(ours)
    right, expected = jax.tree.flatten(theirs)
    assert str(structure) == str(expected)
    for x, y in zip(left, right, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if is_float(y):
            a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
            scale = max(1.0, np.abs(b).max(initial=0.0))
            epsilon = 2e-2 if y.dtype == np.float16 else 2e-4
            np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=epsilon)
        elif y.dtype != jax.dtypes.float0:
            np.testing.assert_array_equal(x, y)


def check(base: str, word: Word) -> None:
    """Compare a nesting with JAX's, eager and jitted."""
    args = BASES[base][1]
    theirs = nest(eager_jax, base, word)(*args)
    program = nest(stax, base, word)
    assert_like(program(*args), theirs)
    assert_like(stax.jit(program)(*args), theirs)


@settings(max_examples=40)
@given(nestings())
def test_nestings_are_those_of_jax(nesting: tuple[str, Word]) -> None:
    check(*nesting)
