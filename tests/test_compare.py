"""The comparison with JAX: its programs, its figures, its messages, its table."""

import dataclasses
import importlib.util
import io
import json
import math
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console

import stax
from stax.__main__ import main
from stax.compare import command, digits, measure, report
from stax.compare.jax_side import JaxSide, count_equations, count_instructions
from stax.compare.programs import PROGRAMS, Program
from stax.compare.stax_side import StaxSide, count_nodes
from stax.config import config

QUICK = ["newton_step", "digits"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_program_gives_what_eager_gives(name: str) -> None:
    program = PROGRAMS[name]
    function, arguments = program.build(stax, small=True)
    eager, compiled = function(*arguments), stax.jit(function)(*arguments)
    assert measure.largest_error(eager, compiled) <= min(program.tolerance, 1e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_what_jax_gives(name: str) -> None:
    program = PROGRAMS[name]
    ours, theirs = (program.build(library, small=True) for library in (stax, jax))
    want = jax.jit(theirs[0])(*theirs[1])
    assert measure.largest_error(want, stax.jit(ours[0])(*ours[1])) <= program.tolerance


def test_list_is_long_enough_and_fits_the_table() -> None:
    assert len(PROGRAMS) >= 8
    for name, program in PROGRAMS.items():
        assert name == program.name
        assert len(program.title) <= 27, "the table would not fit 100 columns"


# The run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("compare") / "figures.json"
    assert main(["compare", "--only", *QUICK, "--seconds", "0.01", "--json", str(file)]) == 0
    return json.loads(file.read_text())


def test_json_holds_every_figure(run: dict[str, Any]) -> None:
    assert set(run) == {"environment", "seconds", "programs", "summary"}
    assert {"stax", "jax", "python", "processor", "cores"} <= set(run["environment"])
    assert [row["name"] for row in run["programs"]] == QUICK
    fields = {field.name for field in dataclasses.fields(measure.Figures)}
    for row in run["programs"]:
        assert set(row) == {field.name for field in dataclasses.fields(measure.Row)}
        assert row["failure"] is None
        assert 0 <= row["error"] <= PROGRAMS[row["name"]].tolerance
        assert row["speedup"]["low"] <= row["speedup"]["median"] <= row["speedup"]["high"]
        for side in (row["stax"], row["jax"]):
            assert set(side) == fields
            assert side["page_faults"] >= 0
            assert min(side[key] for key in fields - {"page_faults", "accuracy"}) > 0


def test_both_libraries_learn_to_read_digits(run: dict[str, Any]) -> None:
    newton, network = run["programs"]
    assert newton["stax"]["accuracy"] is newton["jax"]["accuracy"] is None
    assert network["stax"]["accuracy"] > 0.95
    assert network["jax"]["accuracy"] == pytest.approx(network["stax"]["accuracy"], abs=0.01)


def test_summary(run: dict[str, Any]) -> None:
    ratios = [row["speedup"]["median"] for row in run["programs"]]
    assert run["summary"]["programs"] == run["summary"]["same"] == 2
    assert run["summary"]["speedup"] == pytest.approx(math.sqrt(math.prod(ratios)))


def test_held_out_images_are_not_trained_on() -> None:
    train, test = digits.load()
    assert (len(train.labels), len(test.labels)) == (1347, 450)


# Messages and exit codes


def test_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--only", "digits", "nonsense"]) == 2
    message = capsys.readouterr().err
    assert message == f"compare: nonsense is no program; there are {', '.join(PROGRAMS)}.\n"


def test_without_jax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jax" else found(name)
    )
    assert main(["compare"]) == 2
    assert capsys.readouterr().err == (
        "compare: jax not found; the comparison needs an extra of Stax:\n"
        '    pip install "stax-compiler[compare]"\n'
        "or, in a clone of the repository,\n"
        "    pip install '.[compare]'\n"
    )


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "soon"])
def test_seconds_must_be_positive(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["compare", f"--seconds={seconds}"])
    assert stopped.value.code == 2
    assert f"seconds must be a positive number, not '{seconds}'" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_noticed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "figures.json"
    assert main(["compare", "--json", str(file)]) == 2
    assert capsys.readouterr().err == f"compare: cannot write {file}: No such file or directory\n"


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(PROGRAMS)


def broken(library: Any) -> Any:
    def function(x: Any) -> Any:
        if library is stax:
            raise ValueError("it broke\nfor this reason")
        return x

    return function, (np.ones(3, np.float32),)


def wrong(library: Any) -> Any:
    factor = 2.0 if library is stax else 3.0
    return (lambda x: x * factor), (np.ones(3, np.float32),)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (broken, "Stax: ValueError: it broke"),
        (wrong, "the results differ by 3.3e-01 of their scale, allowed are 1e-04"),
    ],
)
def test_a_failing_program_is_a_row_and_exit_code_1(
    make: Any, reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PROGRAMS, "bad", Program("bad", "a program that fails", make))
    assert main(["compare", "--only", "bad", "--seconds", "0.01"]) == 1
    printed = capsys.readouterr().out
    assert f"bad failed: {reason}" in printed
    assert "0 of 1 programs agree." in printed


# Errors of results


def test_largest_error_is_relative_to_the_scale_of_each_array() -> None:
    want = {"a": np.array([1.0, 4.0]), "b": [np.zeros(2)]}
    got = {"a": np.array([1.0, 4.4]), "b": [np.array([0.0, 0.01])]}
    assert measure.largest_error(want, want) == 0
    assert measure.largest_error(want, got) == pytest.approx(0.1)


def test_largest_error_of_what_is_not_finite() -> None:
    odd = np.array([np.nan, np.inf, 1.0])
    assert measure.largest_error(odd, odd) == 0
    assert measure.largest_error(odd, np.array([0.0, np.inf, 1.0])) == math.inf
    assert measure.largest_error(odd, np.array([np.nan, -np.inf, 1.0])) == math.inf


def test_results_of_different_types_do_not_agree() -> None:
    with pytest.raises(measure.ProgramFailed, match="the results have different types"):
        measure.largest_error(np.zeros(3, np.float32), np.zeros(3, np.float64))


# Counting


def test_equations_inside_a_call_are_counted_instead_of_the_call() -> None:
    def function(x: Any) -> Any:
        return jax.jit(lambda y: jnp.sin(y) * y)(x) + 1.0

    assert count_equations(jax.make_jaxpr(function)(1.0).jaxpr) == 3


def test_numbers_are_not_counted_as_nodes() -> None:
    graph = stax.make_graph(lambda x: stax.numpy.sin(x) * x + 1.0)(np.float32(1))
    assert count_nodes(graph) == 3


HLO = """\
HloModule jit_f, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  ROOT %s = f32[8]{0} sine(%p)
}

%region (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%task (q: f32[8]) -> f32[] {
  %q = f32[8]{0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[] reduce(%q, %zero), dimensions={0}, to_apply=%region
}

ENTRY %main (x: f32[8]) -> (f32[8], f32[]) {
  %x = f32[8]{0} parameter(0), metadata={op_name="x"}
  %f = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  %c = f32[] call(%f), to_apply=%task
  ROOT %t = (f32[8]{0}, f32[]) tuple(%f, %c)
}
"""


def test_what_runs_is_counted_in_the_text_of_a_module() -> None:
    assert count_instructions(HLO) == 2  # the fusion, and the reduction that the call runs


def test_work_of_both_sides() -> None:
    x = np.ones((8, 8), np.float32)
    for side in (StaxSide(), JaxSide()):
        work = side.work(lambda x: x * 2.0 + 1.0, (x,))
        assert (work.nodes, work.kernels, work.bytes_moved) == (2, 1, 2 * x.nbytes)


# The table


def example_row() -> measure.Row:
    mine = measure.Figures(12, 3, 12_000_000, 0.05, 2.5e-4, 0.0, 0.956)
    other = measure.Figures(1500, 12, 1_500, 12.0, 0.123, 4.0, 0.951)
    ratio = measure.Ratio(492.0, 9.5, 0.994)
    return measure.Row("a_name", "x" * 27, None, 0.0, mine, other, ratio, 240.0)


def shown(width: int) -> list[str]:
    console = Console(width=width, file=io.StringIO(), record=True)
    console.print(report.page([example_row()], command.describe(), width))
    return console.export_text().splitlines()


def test_table_at_100_columns() -> None:
    text = "\n".join(line.rstrip() for line in shown(100))
    assert "…" not in text
    for figure in (
        "Stax     12        3  12.0 MB  50.0 ms   250 µs",
        "1.50 kB   12.0 s   123 ms",
        "=",
    ):
        assert figure in text
    assert "95.6 % of the images held out are read right by Stax, 95.1 % by JAX." in text


def test_table_at_80_columns_leaves_columns_out() -> None:
    lines = shown(80)
    assert max(map(len, lines)) <= 80
    assert not any("moved" in line or "…" in line for line in lines)


def test_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--only", "newton_step", "--seconds", "0.01", "--markdown"]) == 0
    printed = capsys.readouterr().out
    heading, rule, row = [line for line in printed.splitlines() if line.startswith("|")]
    assert heading.count("|") == rule.count("|") == row.count("|")
    assert row.startswith("| logistic model, Newton step (`newton_step`) |")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2.0, "2.00 s"),
        (0.9999, "1.00 s"),
        (0.0123, "12.3 ms"),
        (4.5e-6, "4.50 µs"),
        (250.0, "250 s"),
        (9.997, "10.0 s"),
    ],
)
def test_seconds(value: float, text: str) -> None:
    assert report.seconds(value) == text


def test_the_environment_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAX_PLATFORMS", "cpu,mine")
    before, settings = dict(os.environ), dict(config._defaults)
    assert main(["compare", "--only", "newton_step", "--seconds", "0.01"]) == 0
    assert dict(os.environ) == before
    assert config._defaults == settings
