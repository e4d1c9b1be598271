"""Every example runs as a script, is short, and shows what it says it shows."""

import contextlib
import functools
import io
import itertools
import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# A line that each example has to print, among others.
SHOWS = {
    "bilevel_hyperparameters.py": "the two hypergradients differ by",
    "custom_op.py": "compiled, the same: True",
    "look_inside.py": "7. The result",
    "neural_ode.py": "the continuous adjoint differs by",
    "newton_solver.py": "the implicit derivatives differ by",
    "per_example_gradients.py": "the outlier is example 123, the one with the wrong label",
    "spiking_network.py": "exact: slope -6.69361, by finite differences -6.69361",
    "train_digits.py": "390 steps in",
}

# Examples that show more than one thing may be longer.
LONGEST = {"bilevel_hyperparameters.py": 90, "neural_ode.py": 125, "spiking_network.py": 170}
NUMBER = r"(-?\d[\d.e+-]*\d|\d)"


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
    assert len(lines) <= LONGEST.get(name, 80)
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


def figures(name: str, pattern: str) -> list[float]:
    """The numbers that an example prints where `pattern` has a #, in order."""
    expression = re.escape(pattern).replace(r"\#", NUMBER)
    found = re.findall(expression, run(name))
    return [float(x) for match in found for x in ([match] if isinstance(match, str) else match)]


def test_hypergradients_agree_and_find_the_noise() -> None:
    name = "bilevel_hyperparameters.py"
    assert figures(name, "differ by # of") < [1e-3]
    before, after = figures(name, "validation loss: # before, # after")
    assert after < 0.8 * before
    useful, noise = figures(name, "that matter: #, of noise: #")
    assert noise > 10 * useful


def test_the_adjoint_of_an_ode_differs_by_the_error_of_the_integration() -> None:
    name = "neural_ode.py"
    errors = figures(name, "adjoint differs by #")
    assert all(10 < a / b < 22 for a, b in itertools.pairwise(errors))  # about 2 ** 4
    before, after = figures(name, "loss: # before, # after")
    assert after < 1e-3 * before


def test_reverse_mode_through_a_newton_solver() -> None:
    name = "newton_solver.py"
    assert figures(name, "derivatives differ by #") < [1e-5]
    assert len(set(figures(name, ": # steps"))) > 1
    (found,) = figures(name, "through noise: #")
    assert abs(found - 0.6) < 0.01


def test_spikes_have_exact_and_surrogate_gradients() -> None:
    name = "spiking_network.py"
    exact, exact_difference, surrogate, difference = figures(
        name, "slope #, by finite differences #"
    )
    assert abs(exact / exact_difference - 1) < 1e-5
    assert (exact < 0) == (surrogate < 0) and difference == 0
    (start,) = figures(name, "loss at the start: #")
    assert all(end < 0.1 * start for end in figures(name, "the exact loss is #"))


def test_plastic_synapses_find_what_comes_first() -> None:
    name = "spiking_network.py"
    before, after = figures(name, "answers after # steps, then #;")
    assert after < before - 2
    early, late = figures(name, "grow from 0.5 to #, of late ones fall to #")
    assert early > 0.9 and late < 0.1
