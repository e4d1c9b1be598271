"""The text of every error that bad input gives, in tests/golden/errors.txt.

A message names the broken rule and the op, the values with the user's line for each, what was being
done, and what to do.  Lines of a case in tests/error_cases.py are printed as `+n`, counted from its
`def`, so the texts change only when a message does.
"""

import inspect
import os
import pickle
import re
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import jax.errors
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import errors
from stax.api import compiled
from stax.array import asarray
from tests.error_cases import CASES, V3, V4, add


def shown(name: str) -> str:
    """Return the text of the error of a case, with its lines counted from its `def`."""
    function = CASES[name]
    with pytest.raises(Exception) as caught, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        function()
    source, first = inspect.getsourcelines(function)
    first += next(i for i, line in enumerate(source) if line.startswith("def "))
    here = os.path.basename(function.__code__.co_filename)

    def relative(match: re.Match[str]) -> str:
        line = int(match[1])
        return f"+{line - first}" if first <= line < first + len(source) else "helper"

    text = re.sub(rf"{re.escape(here)}:(\d+)", relative, str(caught.value))
    return f"{type(caught.value).__name__}: {re.sub(r'0x[0-9a-f]+', '0x...', text)}"


def test_the_texts(golden: Callable[[str, Any], None]) -> None:
    golden("errors", "\n\n".join(f"[{name}]\n{shown(name)}" for name in CASES))


# Errors that Python or NumPy define, and that have no values or advice of their own.
PLAIN = {"hash_of_traced"}


@pytest.mark.parametrize("name", [n for n in CASES if n not in PLAIN])
def test_the_four_parts(name: str) -> None:
    rule, *rest = shown(name).splitlines()
    assert rule.endswith(".")
    kinds = [
        "value" if x[:4] == "    " else "doing" if x[:8] == "  while " else "advice" for x in rest
    ]
    assert kinds == sorted(kinds, key=["value", "doing", "advice"].index)
    assert {"doing", "advice"} <= set(kinds), "each error says what was being done, and what to do"


def test_relations_are_those_of_jax() -> None:
    names = [n for n, c in vars(jax.errors).items() if isinstance(c, type) and hasattr(errors, n)]
    assert len(names) >= 6
    for a in names:
        theirs_all = [*(getattr(jax.errors, b) for b in names), TypeError, IndexError]
        ours = [*(getattr(errors, b) for b in names), TypeError, IndexError]
        for theirs, own in zip(theirs_all, ours, strict=True):
            if issubclass(getattr(jax.errors, a), theirs):
                assert issubclass(getattr(errors, a), own)


def test_frames_of_the_library_are_hidden() -> None:
    def frames() -> int:
        with pytest.raises(errors.ShapeError) as caught:
            stax.grad(lambda x: stax.jit(lambda x: (x + V4).sum())(x))(V3)
        return len(traceback.extract_tb(caught.value.__traceback__))

    hidden = frames()
    with stax.config.override(full_traceback=True):
        assert hidden < frames()


def test_an_error_can_be_pickled() -> None:
    with pytest.raises(errors.ShapeError) as caught:
        V3 + V4
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_falling_back_is_never_silent(monkeypatch: Any) -> None:
    def refuse(graph: Any, *options: Any) -> Any:
        raise errors.LoweringError("sort: not compiled.", advice="Wait.")

    monkeypatch.setattr(compiled, "compile_graph", refuse)
    with pytest.raises(errors.LoweringError, match="sort: not compiled"):
        stax.jit(lambda x: x + 1)(V3)
    monkeypatch.setattr(compiled, "config", _Lenient(compiled.config))
    with pytest.warns(errors.FallbackWarning) as caught:
        assert (stax.jit(add)(V3, V3) == 2).all()
    assert os.path.basename(caught[0].filename) == os.path.basename(__file__)
    assert str(caught[0].message).startswith(
        "add runs on the reference evaluator: sort: not compiled."
    )


class _Lenient:
    """The configuration, but for `strict`."""

    strict = False

    def __init__(self, config: Any) -> None:
        self._config = config

    def __getattr__(self, name: str) -> Any:
        return getattr(self._config, name)


# --- what is no error: arrays and NumPy side by side ---


class Wrapped:
    """An object that knows how to become an array."""

    def __jax_array__(self) -> Any:
        return V3


def test_objects_that_become_arrays() -> None:
    assert (snp.asarray(Wrapped()) == 1).all()
    assert (V3 + Wrapped() == 2).all() and (Wrapped() + V3 == 2).all()
    assert (stax.jit(lambda x: snp.sin(x))(Wrapped()) == snp.sin(V3)).all()
    assert (stax.jit(lambda x: x * Wrapped())(V3) == 1).all()


def test_numpy_arrays_leave_operators_to_ours() -> None:
    matrix = np.ones((2, 3), np.float32)
    assert isinstance(matrix @ V3, stax.Array)
    assert (stax.jit(lambda x: matrix @ x)(V3) == 3).all()
    assert stax.grad(lambda x: (matrix @ x).sum())(V3).tolist() == [2, 2, 2]
    assert (stax.jit(lambda x: np.float32(2) * x)(V3) == 2).all()


def test_a_source_may_change_later() -> None:
    source = np.zeros(3, np.float32)
    arrays = [
        asarray(source),
        snp.array(source),
        asarray([source])[0],
        stax.jit(lambda: asarray(source))(),
    ]
    source[:] = 7
    assert all((a == 0).all() for a in arrays)
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(arrays[0])[0] = 1
