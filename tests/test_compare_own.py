"""`python -m stax compare file.py:function`, and the page that lists what is missing."""

import json
import re
from pathlib import Path

import jax
import pytest

from stax.__main__ import main
from stax.compare import coverage

MODEL = """
import jax
import jax.numpy as jnp
from jax.nn import relu

calls = 0

@jax.jit
def layer(x):
    return relu(x)

def loss(w, x):
    return jnp.mean(layer(x @ w["a"]) ** 2)

def broken(w, x):
    return jnp.no_such_function(x)

def example_args():
    key = jax.random.key(0)
    return {"a": jax.random.normal(key, (4, 3))}, jnp.ones((5, 4))
"""


def own(tmp_path: Path, text: str, *arguments: str) -> int:
    file = tmp_path / "model.py"
    file.write_text(text)
    target, *others = arguments
    return main(["compare", f"{file}:{target}", "--seconds", "0.01", *others])


@pytest.mark.parametrize("options", [(), ("--grad",)], ids=["value", "grad"])
def test_a_function_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    figures = tmp_path / "figures.json"
    assert own(tmp_path, MODEL, "loss", *options, "--json", str(figures)) == 0
    (row,) = json.loads(figures.read_text())["programs"]
    wanted = "gradient of loss in model.py" if options else "loss in model.py"
    assert (row["name"], row["title"], row["failure"]) == ("loss", wanted, None)
    assert "The program agrees." in capsys.readouterr().out


def test_a_file_for_stax_is_run_for_jax_too(tmp_path: Path) -> None:
    text = (
        "import stax.numpy as n\ndef f(x): return n.sin(x)\ndef example_args(): return n.ones(3)\n"
    )
    assert own(tmp_path, text, "f") == 0


def test_a_function_that_fails_is_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert own(tmp_path, MODEL, "broken") == 1
    assert "no_such_function" in capsys.readouterr().out


ONLY_F = "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (MODEL, "loose", "has no function 'loose'; it has relu, layer, loss, broken."),
        (ONLY_F, "f", "has no example arguments for f; write beside it\n    def example_args():"),
        (ONLY_F + "def example_args():\n    return 1 / 0\n", "f",
         "raises: ZeroDivisionError: division by zero (line 4: return 1 / 0)"),
        ("import jax\njax.nothing\n", "f", "raises when it is run for jax: AttributeError"),
        ("def f(:\n", "f", "SyntaxError: invalid syntax (line 1)"),
        (MODEL, "1f", "names no function; write path/to/file.py:function"),
    ],
    ids=["function", "arguments", "arguments raise", "file raises", "syntax", "name"],
)  # fmt: skip
def test_what_cannot_be_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, target: str, message: str
) -> None:
    assert own(tmp_path, text, target) == 2
    assert message in capsys.readouterr().err


def test_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "nowhere.py:f"]) == 2
    assert (
        capsys.readouterr().err == "compare: cannot read nowhere.py: No such file or directory.\n"
    )
    assert main(["compare", "--grad"]) == 2
    assert "--grad is for a FILE:FUNCTION" in capsys.readouterr().err


# --- what is missing ---


def test_the_page_of_what_is_missing_is_up_to_date() -> None:
    written = coverage.PAGE.read_text()
    (version,) = re.findall(r"^# What Stax lacks of JAX (\S+)$", written, re.MULTILINE)
    if version != jax.__version__:
        pytest.skip(f"the page is for JAX {version}")
    assert written == coverage.page(), "run python -m stax.compare.coverage"


def test_every_group_of_missing_names_is_in_use() -> None:
    written = coverage.PAGE.read_text()
    for why, names in coverage.REASONS:
        assert f"- {why}: `" in written, names
