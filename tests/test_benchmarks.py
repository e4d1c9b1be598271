"""The benchmarks: every program gives what JAX gives, and the command does what it says.

No speed is asserted: times depend on the machine and on what else it does.
"""

import dataclasses
import inspect
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import stax
from benchmarks import __main__ as command, fresh, readme, result, tables
from benchmarks.benchmark import BENCHMARKS, Benchmark, benchmark
from benchmarks.numpy_side import LIBRARY
from benchmarks.programs import KINDS
from stax.compare import measure

PLAIN = [name for name, program in BENCHMARKS.items() if program.plain]
QUICK = ["few_numbers", "small_gradient"]


# The programs


@pytest.mark.parametrize("name", BENCHMARKS)
def test_program_gives_what_jax_gives(name: str) -> None:
    program = BENCHMARKS[name]
    ours, theirs = (program.build(library, small=True) for library in (stax, jax))
    want = jax.jit(theirs[0])(*theirs[1])
    assert measure.largest_error(want, stax.jit(ours[0])(*ours[1])) <= program.tolerance
    if program.plain:
        function, arguments = program.build(LIBRARY, small=True)
        assert measure.error_of_values(want, function(*arguments)) <= program.tolerance


@pytest.mark.parametrize("name", BENCHMARKS)
def test_sizes_of_a_program(name: str) -> None:
    program = BENCHMARKS[name]
    parameters = list(inspect.signature(program.make).parameters.values())[1:]
    at_round = {parameter.name: parameter.default for parameter in parameters}
    assert set(program.small) == set(program.odd) == set(at_round) != set()
    assert all(program.small[size] < at_round[size] for size in at_round)
    assert all(program.odd[size] != at_round[size] for size in at_round)
    assert any(value % 2 for value in program.odd.values()), "odd sizes are no powers of two"


def test_a_program_at_odd_sizes_is_the_same_program() -> None:
    program = BENCHMARKS["game_of_life"]
    odd = program.sized(True)
    assert program.sized(False) is program
    assert (odd.name, odd.small, odd.kind) == (program.name, program.small, "loops")
    assert [p.build(stax)[1][0].shape for p in (program, odd)] == [(256, 256), (255, 255)]
    assert odd.build(stax, small=True)[1][0].shape == (9, 9)


def test_the_list_is_wide() -> None:
    assert len(BENCHMARKS) >= 60 and len(PLAIN) >= 30
    assert {program.kind for program in BENCHMARKS.values()} == set(KINDS)


def test_a_name_is_given_once() -> None:
    def waves(lib: Any, count: int = 1) -> Any:
        raise AssertionError

    with pytest.raises(ValueError, match="two benchmarks of the name waves"):
        benchmark("again", small={}, odd={})(waves)


# NumPy's side


def test_loops_of_numpy() -> None:
    lax = LIBRARY.lax
    assert lax.fori_loop(2, 5, lambda index, total: total + index, 0) == 9
    assert lax.while_loop(lambda x: x < 10, lambda x: 2 * x, 1) == 16


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("rows", [np.arange(4.0), (np.arange(4.0), np.arange(8.0).reshape(4, 2))])
def test_scan_of_numpy(rows: Any, reverse: bool) -> None:
    def body(lib: Any) -> Any:
        def step(total: Any, row: Any) -> Any:
            x = row[0] + row[1].sum() if isinstance(row, tuple) else row
            return total + x, (total, 2 * x)

        return lib.lax.scan(step, np.float32(0), rows, reverse=reverse)

    assert measure.error_of_values(body(jax), body(LIBRARY)) < 1e-6


def test_scan_of_numpy_without_rows() -> None:
    end, nothing = LIBRARY.lax.scan(lambda x, row: (2 * x, row), 1, None, length=3)
    assert (end, nothing) == (8, None)


# The run


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("benchmarks") / "figures.json"
    assert command.main([*QUICK, "--odd", "--seconds", "0.01", "--json", str(file)]) == 0
    return json.loads(file.read_text())


def test_json_holds_every_figure(figures: dict[str, Any]) -> None:
    assert set(figures) == {"environment", "seconds", "sizes", "programs", "kinds", "summary"}
    assert (figures["sizes"], figures["seconds"]) == ("odd", 0.01)
    fields = {field.name for field in dataclasses.fields(measure.Row)}
    assert [row["name"] for row in figures["programs"]] == QUICK
    for row in figures["programs"]:
        assert set(row) == fields | {"kind", "fresh"}
        assert row["failure"] is row["fresh"] is None
        for side in (row["stax"], row["jax"]):
            assert side["planned_bytes"] > 0 and side["page_faults"] >= 0


def test_numpy_takes_part_where_it_can(figures: dict[str, Any]) -> None:
    plain, derived = (row["third"] for row in figures["programs"])
    assert derived is None
    assert plain["error"] < 1e-6 and plain["call_seconds"] > 0
    assert plain["speedup"]["low"] <= plain["speedup"]["median"] <= plain["speedup"]["high"]


def test_summary_and_kinds(figures: dict[str, Any]) -> None:
    ratios = [row["speedup"]["median"] for row in figures["programs"]]
    summary = figures["summary"]
    assert set(summary) == {field.name for field in dataclasses.fields(result.Summary)}
    assert summary["programs"] == summary["same"] == 2
    assert summary["speedup"] == pytest.approx(math.prod(ratios) ** 0.5)
    assert summary["slowest"] == QUICK[ratios.index(min(ratios))]
    assert summary["cold"] is summary["warm"] is None
    assert figures["kinds"] == {"overhead": summary}


def check_first_call(call: fresh.FirstCall) -> None:
    assert call.first_seconds > 0 and call.import_seconds > 0
    assert call.added_bytes >= 0 and call.page_faults > 0


def test_first_calls_in_fresh_processes() -> None:
    measured = fresh.fresh("few_numbers", "stax", odd=True)
    check_first_call(measured.cold)
    check_first_call(measured.warm)


def test_first_call_in_this_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert fresh.main(["few_numbers", "jax", "--odd"]) == 0
    check_first_call(fresh.FirstCall(**json.loads(capsys.readouterr().out)))


def test_both_libraries_keep_their_code_in_the_given_folder() -> None:
    set_ = fresh.cached_in("folder")
    assert set_["STAX_CACHE_DIR"] == set_["JAX_COMPILATION_CACHE_DIR"] == "folder"


def test_first_calls_and_memory_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(name: str, library: str, odd: bool) -> fresh.Fresh:
        factor = 2.0 if library == "jax" else 1.0
        cold, warm = (fresh.FirstCall(1.0, factor * seconds, 9, 4_000) for seconds in (0.5, 0.1))
        return fresh.Fresh(cold, warm)

    monkeypatch.setattr(command, "fresh", taken)
    file = tmp_path / "figures.json"
    options = ["--seconds=0.01", "--first", "--memory", "--markdown", "--json", str(file)]
    assert command.main(["few_numbers", *options]) == 0
    printed = capsys.readouterr().out
    for title in ("Later calls", "Planned memory", "First calls in fresh processes", "By kind"):
        assert f"### {title}" in printed
    assert "In a fresh process 2.00× cold, 2.00× warm." in printed
    assert "| few_numbers | 500 ms | 1.00 s | 2.00× | 100 ms | 200 ms | 2.00× |" in printed
    (row,) = json.loads(file.read_text())["programs"]
    assert row["fresh"]["jax"]["warm"]["first_seconds"] == 0.2


def test_a_fresh_process_that_fails_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.CompletedProcess([], 1, "", "Traceback\nMemoryError: too large\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: ended)
    row, pair = command.first(measure.Row("waves", "a title"), odd=False)
    assert (row.failure, pair) == ("stax in a fresh process: MemoryError: too large", None)
    assert command.first(row, odd=False) == (row, None)


def wrong(library: Any) -> Any:
    factor = 2.0 if library is stax else 3.0
    return (lambda x: x * factor), (np.ones(3, np.float32),)


def test_a_failing_program_is_a_row_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(BENCHMARKS, "bad", Benchmark("bad", "wrong", wrong, kind="loops"))
    assert command.main(["bad", "--seconds", "0.01"]) == 1
    printed = capsys.readouterr().out
    assert "bad failed: the results differ by 3.3e-01" in printed
    assert "0 of 1 programs agree." in printed


# The command line


def test_names_are_of_programs_or_of_kinds() -> None:
    assert len(command.chosen([])) == len(BENCHMARKS)
    names = [program.name for program in command.chosen(["waves", "overhead", "waves"])]
    assert names[0] == "waves" and set(QUICK) < set(names)
    assert len(names) == len(set(names))


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["waves", "nonsense"]) == 2
    wanted = "benchmarks: nonsense is no program and no kind; --list shows all.\n"
    assert capsys.readouterr().err == wanted
    assert "a, b are no programs" in command.unknown_names(["a", "b"])


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_seconds_must_be_positive(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        command.main([f"--seconds={seconds}"])
    assert stopped.value.code == 2
    assert f"seconds must be a positive number, not '{seconds}'" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_noticed_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "figures.json"
    assert command.main(["--json", str(file)]) == 2
    assert f"cannot write {file}" in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(BENCHMARKS)


# Tables


def example(name: str, kind: str, speed: float, faults: float = 0.0) -> result.Result:
    mine = measure.Figures(12, 3, 12_000, 0.05, 2.5e-4, faults, None, 3000)
    other = measure.Figures(15, 12, 1_500, 0.1, 2.5e-4 * speed, 0.0, None, 4000)
    ratio = measure.Ratio(speed, 0.9 * speed, 1.1 * speed)
    third = measure.Third(0.0, 1e-3, measure.Ratio(4.0, 3.0, 5.0)) if kind == "loops" else None
    row = measure.Row(name, "a title", None, 0.0, mine, other, ratio, 2.0, third)
    return result.Result(kind, row)


MEASURED = [example("one", "loops", 2.0), example("two", "overhead", 8.0, faults=500.0)]


def test_summary_of_programs_with_and_without_page_faults() -> None:
    summary = result.summarise(MEASURED)
    assert summary.speedup == pytest.approx(4.0)
    assert summary.without_faults == pytest.approx(2.0)
    assert summary.numpy_speedup == pytest.approx(4.0)
    assert summary.memory == pytest.approx(0.75)
    assert summary.slowest == "one"


def test_table_by_kind() -> None:
    lines = tables.kinds(MEASURED).as_markdown().splitlines()
    assert lines[2] == "| loops | 1 | 1 | 2.00× | 4.00× | 2.00× | 0.75 | one |"
    assert lines[4] == "| all | 2 | 2 | 4.00× | 4.00× | 2.00× | 0.75 | one |"


def test_table_of_times() -> None:
    table = tables.times_of_calls(MEASURED)
    assert {len(line) for line in table.lines} == {len(table.headings)}
    assert table.lines[1][-1] == "500 / 0"
    failed = result.Result("loops", measure.Row("three", "a title", "it broke"))
    assert tables.times_of_calls([failed]).lines[0][:2] == ("three", "failed")


def test_the_page_of_the_readme_is_put_between_its_marks() -> None:
    page = readme.page(MEASURED, MEASURED)
    text = readme.replaced("a\n<!-- x -->\nold\n<!-- /x -->\nb\n", "x", page)
    assert text.startswith("a\n<!-- x -->\nStax ") and text.endswith("\n<!-- /x -->\nb\n")
    assert "| loops | 1 | 2.00× | 2.00× | 2.00× | 0.75 | 4.00× |" in text
    assert "least ahead is one" in text and "old" not in text
    with pytest.raises(ValueError, match="no text between the marks y"):
        readme.replaced(text, "y", page)


def test_the_readme_is_written_only_if_all_programs_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "README.md"
    file.write_text("<!-- benchmarks -->\n<!-- /benchmarks -->\n")
    monkeypatch.setattr(readme, "README", file)
    arguments = ["--only", "benchmarks", "--seconds", "0.01"]
    monkeypatch.setattr(readme, "BENCHMARKS", {"bad": Benchmark("bad", "no", wrong, kind="loops")})
    assert readme.main(arguments) == 1
    assert "bad failed: the results differ" in capsys.readouterr().err
    assert len(file.read_text().splitlines()) == 2
    monkeypatch.setattr(readme, "BENCHMARKS", {"few_numbers": BENCHMARKS["few_numbers"]})
    assert readme.main(arguments) == 0
    assert "| small calls and long programs | 1 |" in file.read_text()


@pytest.mark.parametrize("name", ["figures", "benchmarks"])
def test_the_readme_has_the_marks(name: str) -> None:
    text = readme.README.read_text()
    assert readme.replaced(text, name, "new").count(f"<!-- {name} -->\nnew\n") == 1
