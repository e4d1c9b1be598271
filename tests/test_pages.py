"""The pages in docs/: every example on them is run, and gives what the page says."""

import doctest
import re
from pathlib import Path

import numpy as np
import pytest

DOCS = Path(__file__).parent.parent / "docs"
BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WITH_EXAMPLES = sorted(p.name for p in DOCS.glob("*.md") if BLOCK.search(p.read_text()))


def examples(name: str) -> doctest.DocTest:
    """The examples of a page as one session; each keeps the line that it has there."""
    text = (DOCS / name).read_text()
    lines = [""] * len(text.splitlines())
    for block in BLOCK.finditer(text):
        first = text[: block.start(1)].count("\n")
        found = block.group(1).splitlines()
        lines[first : first + len(found)] = found
    return doctest.DocTestParser().get_doctest("\n".join(lines) + "\n", {}, name, name, 0)


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_on_a_page(name: str) -> None:
    test = examples(name)
    with np.printoptions(precision=5):
        result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert result.attempted > 5
    assert result.failed == 0


def test_there_are_pages() -> None:
    assert "masked_cotangents.md" in WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_a_page_is_readable(name: str) -> None:
    lines = (DOCS / name).read_text().splitlines()
    assert lines[0].startswith("# ")
    assert all(len(line) <= 100 for line in lines)
