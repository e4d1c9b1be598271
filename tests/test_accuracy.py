"""The commands that measure accuracy and steadiness: they run, and they notice what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from tests import accuracy, steady


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sweep visit few numbers."""
    monkeypatch.setattr(accuracy, "STEP", 1_000_003)
    monkeypatch.setattr(accuracy, "CHUNK", 2**12)
    monkeypatch.setattr(accuracy, "EVERY", 2**28)


def errors(function: accuracy.Function) -> dict[str, float]:
    return {name: worst.error for name, worst in accuracy.rows(function, accuracy.DTYPES, 200)}


def test_functions_are_measured(short: None) -> None:
    for name in ("exp", "atan2"):
        found = errors(accuracy.FUNCTIONS[name])
        assert set(found) == {"float32", "float64"}
        assert all(0.1 < error < 2.0 for error in found.values())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: snp.sin(x) * (1 + 1e-6),
        lambda x: snp.where(x == 0, 0.0, snp.sin(x)),
        lambda x: snp.where(snp.isnan(x), 1.0, snp.sin(x)),
    ],
    ids=["digits", "sign of zero", "nan"],
)
def test_what_is_wrong_is_noticed(short: None, wrong: Any) -> None:
    found = errors(replace(accuracy.FUNCTIONS["sin"], ours=wrong))
    assert max(found.values()) > accuracy.LIMIT


def test_programs_are_run_again() -> None:
    builds = steady.programs([])
    assert len(builds) > 80
    assert steady.check(builds["few_numbers"], 3) == ""


def test_a_program_that_changes_is_noticed() -> None:
    calls = iter(range(100))

    def build() -> tuple[Any, tuple[Any, ...]]:
        def function(x: Any) -> Any:
            kind = stax.ShapeDtypeStruct((), np.float32)
            return x + stax.pure_callback(lambda: np.float32(next(calls)), kind)

        return function, (np.ones(3, np.float32),)

    assert steady.check(build, 2) == "run 0 of 1 threads differs"
