"""Every example runs as a script, is short, and shows what it says it shows."""

import contextlib
import functools
import io
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# A line that each example has to print, among others.
SHOWS = {
    "custom_op.py": "compiled, the same: True",
    "look_inside.py": "7. The result",
    "per_example_gradients.py": "the outlier is example 123, the one with the wrong label",
    "train_digits.py": "390 steps in",
}


@functools.cache
def run(name: str) -> str:
    """Return what an example prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return printed.getvalue()


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(SHOWS)


@pytest.mark.parametrize("name", SHOWS)
def test_example(name: str) -> None:
    assert SHOWS[name] in run(name)


@pytest.mark.parametrize("name", SHOWS)
def test_example_is_short_and_says_what_it_shows(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()
    assert len(lines) <= 80
    assert lines[0].startswith('"""')


def test_the_network_learns_to_read_digits() -> None:
    last = [line for line in run("train_digits.py").splitlines() if "held out" in line][-1]
    assert float(last.split("held out")[1].split("%")[0]) > 95


def test_every_stage_is_printed() -> None:
    printed = run("look_inside.py")
    for part in (
        "graph score(",
        "reduce_max",
        "in vector(256)",
        "@triton.jit",
        "define void",
        "bytes",
    ):
        assert part in printed
