"""All words of two and three of jit, grad, vmap and jvp, on ten functions, against JAX."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import pytest

import stax
from tests.nestings import BASES, assert_like, eager_jax, nest

LETTERS = ("jit", "grad", "vmap", "jvp")
FUNCTIONS = (
    "scalar", "product", "layer", "tree", "softmax", "pick", "closure", "masked", "gram", "update",
)  # fmt: skip
PAIRS = list(itertools.product(LETTERS, repeat=2))
TRIPLES = list(itertools.product(LETTERS, repeat=3))
# Each triple on one of the functions, all of them in turn; the slow test takes every function.
SOME = [(FUNCTIONS[i % len(FUNCTIONS)], word) for i, word in enumerate(TRIPLES)]


_expected: dict[Any, Any] = {}


def expected(base: str, word: tuple[str, ...]) -> Any:
    """Return JAX's result; words that differ in where jit stands share one."""
    plain = tuple(x for x in word if x != "jit")
    if (base, plain) not in _expected:
        program = jax.jit(nest(eager_jax, base, [(x, 0) for x in plain]))
        _expected[base, plain] = program(*BASES[base][1])
    return _expected[base, plain]


def check(base: str, word: tuple[str, ...]) -> None:
    program = nest(stax, base, [(x, 0) for x in word])
    assert_like(program(*BASES[base][1]), expected(base, word))


@pytest.mark.parametrize("base", FUNCTIONS)
def test_pairs(base: str) -> None:
    for word in PAIRS:
        check(base, word)


@pytest.mark.parametrize(
    ("base", "word"), SOME, ids=lambda x: x if isinstance(x, str) else "-".join(x)
)
def test_triples_in_turn(base: str, word: tuple[str, ...]) -> None:
    check(base, word)


@pytest.mark.slow
@pytest.mark.parametrize("base", FUNCTIONS)
def test_triples(base: str) -> None:
    for word in TRIPLES:
        check(base, word)
