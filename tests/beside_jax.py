"""One function in both libraries: types, values, compiled values, slopes."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.facade.checking import Entry, check
from tests.facade.drawing import Call, made


class Case(NamedTuple):
    """A function of a library's module and of arrays, and how it is compared."""

    run: Callable[..., Any]
    arrays: tuple[np.ndarray, ...]
    slopes: bool = False
    loose: float = 1.0  # how much more than the dtype's error is allowed


def compare(ours: Any, theirs: Any, case: Case) -> None:
    """Check that a function of our module gives what that of JAX gives."""
    entry = Entry(made(lambda source: ()), loose=case.loose)
    check(
        lambda *arrays: case.run(ours, *arrays),
        lambda *arrays: case.run(theirs, *arrays),
        entry,
        Call(case.arrays, {}),
        case.slopes,
    )


def draw(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Return numbers from a standard normal distribution, times 10 for integers."""
    x = np.random.default_rng(seed).normal(size=shape)
    if "complex" in dtype:
        x = x + 1j * np.random.default_rng(seed + 1).normal(size=shape)
    return np.asarray(x * 10 if "int" in dtype else x).astype(dtype)


def named(cases: Mapping[str, Case], slow: str = "") -> list[Any]:
    """Return the cases as parameters of a test; those that `slow` names run when asked for."""
    late = slow.split()
    marks = {name: [pytest.mark.slow] if name in late else [] for name in cases}
    return [pytest.param(case, id=name, marks=marks[name]) for name, case in cases.items()]
