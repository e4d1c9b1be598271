"""The examples in docstrings, run: every module of the library that shows some."""

import doctest
import importlib
from pathlib import Path

import pytest

import stax

PACKAGE = Path(stax.__file__).parent
WITH_EXAMPLES = [path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text()]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("name", [module_name(path) for path in WITH_EXAMPLES])
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    known = {**vars(stax.numpy), **vars(module)}  # a module's own names, and those of users
    result = doctest.testmod(module, globs=known, optionflags=doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_there_are_examples() -> None:
    assert len(WITH_EXAMPLES) >= 5
