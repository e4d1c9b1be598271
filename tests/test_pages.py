"""The pages in docs/: examples give what the page says, files that are named are there."""

import doctest
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```pycon\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/]+(?:\.py|\.txt|/))`|\]\(([\w/.]+)\)")
PAGES = sorted(p.name for p in DOCS.glob("*.md") if p.name != "missing.md")
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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_readable(name: str) -> None:
    lines = (DOCS / name).read_text().splitlines()
    assert lines[0].startswith("# ")
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *(DOCS / n for n in PAGES)], ids=lambda p: p.name
)
def test_files_that_a_page_names_are_there(path: Path) -> None:
    for file, link in FILE.findall(path.read_text()):
        places = [path.parent / link] if link else [ROOT / file, ROOT / "stax" / file]
        assert any(place.exists() for place in places), file or link


def test_the_page_of_the_architecture_names_every_layer() -> None:
    text = (DOCS / "architecture.md").read_text()
    folders = [p.name for p in (ROOT / "stax").iterdir() if (p / "__init__.py").exists()]
    assert [name for name in folders if f"{name}/" not in text] == ["experimental"]


def test_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Its tour does, and the modules that its commands name are there."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec("".join(blocks), {"__name__": "tour"})
    assert "f32[3,2]" in capsys.readouterr().out
    for module in set(re.findall(r"-m ([a-z]+(?:\.[a-z]+)*)", text)) - {"slow"}:
        assert importlib.util.find_spec(module), module
