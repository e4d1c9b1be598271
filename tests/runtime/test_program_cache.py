"""Programs on disk: found without lowering, by everything that they depend on, or not kept."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.config import config
from stax.op import Op
from stax.runtime import compiler, program_cache
from stax.trace import bind

X = np.linspace(0.1, 2.0, 12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(autouse=True)
def _as_users_run(tmp_path: Path) -> Iterator[None]:
    """Verified programs are not kept, and tests verify them."""
    with config.override(verify=False, compilation_cache_dir=str(tmp_path)):
        yield


def name_of(f: Callable[..., Any], *args: Any, budget: int | None = None) -> str | None:
    return program_cache.name_of(stax.make_graph(f)(*args), budget)


def looped(x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        c = lax.cond(c.sum() > 2.0, lambda y: y * 0.5, lambda y: y + 0.25, c + row)
        return c, c.sum()

    return lax.scan(step, x[0], x)


PROGRAMS = {
    "kernel": lambda x: snp.tanh(x) * 2.0 + 1.0,
    "loop": looped,
    "gradient": stax.grad(lambda x: (snp.sin(x @ x.T) ** 2).sum()),
    "sort": lambda x: (snp.sort(x, axis=0), snp.argmax(x)),
    "LAPACK": lambda x: snp.linalg.inv(x @ x.T + snp.eye(3)),
    "Fourier": lambda x: snp.fft.fft(x).imag,
    "random": lambda x: x + stax.random.uniform(stax.random.key(3), x.shape),
    "held array": lambda x: x + np.arange(12.0, dtype=np.float32).reshape(3, 4),
    "relu": stax.grad(lambda x: stax.nn.relu(x - 1.0).sum()),
}


def results_of(f: Callable[..., Any]) -> list[bytes]:
    stax.clear_caches()
    return [np.asarray(y).tobytes() for y in stax.tree.leaves(stax.jit(lambda x: f(x))(X))]


@pytest.mark.parametrize("name", PROGRAMS)
def test_kept_programs_compute_the_same(name: str, monkeypatch: Any) -> None:
    first = results_of(PROGRAMS[name])
    monkeypatch.setattr(compiler, "lowered", None)
    assert results_of(PROGRAMS[name]) == first


def test_how_a_kept_program_computes_is_found_out_when_asked() -> None:
    made = [compiler.compile_graph(stax.make_graph(looped)(X)) for _ in range(2)]
    assert made[0].lowered.text == made[1].lowered.text


def one_step_apart() -> Iterator[tuple[Callable[..., Any], Any]]:
    """Functions and arguments of which no two are one program."""
    for number in (0.0, -0.0, float("nan"), 1.0, 2.0):
        yield lambda x, n=number: snp.tanh(x) + n, X
    for dtype in ("float64", "float16", "int32", "bool"):
        yield lambda x, d=dtype: x.astype(d), X
    for axis in (0, 1, None):
        yield lambda x, a=axis: snp.sum(x, axis=a), X
    yield lambda x: x.sum(1, keepdims=True), X
    for f in (snp.max, snp.min, snp.prod, snp.sin, snp.cos, lax.cumsum, lax.cummax):
        yield f, X
    yield lambda x: lax.cumsum(x, reverse=True), X
    for shape in ((12,), (4, 3), (1, 12)):
        yield snp.sin, X.reshape(shape)
    yield lambda x: x[0] - x[1], X
    yield lambda x: x[1] - x[0], X
    for mode in ("clip", "fill"):
        yield lambda x, m=mode: snp.take(x, snp.array([5, 1]), axis=0, mode=m), X
    for length in (3, 4):
        yield lambda x, n=length: lax.fori_loop(0, n, lambda _, c: snp.sin(c), x), X
    for inner in (snp.sin, snp.cos):
        yield lambda x, g=inner: lax.scan(lambda c, y: (g(c + y), None), x[0], x)[0], X
    yield lambda x: (x, x.T), X
    yield lambda x: (x.T, x), X


def test_programs_that_differ_have_different_names() -> None:
    names = [name_of(f, x) for f, x in one_step_apart()]
    assert None not in names
    again = [name_of(f, x) for f, x in one_step_apart()]
    assert again == names
    alike = [(i, j) for (i, a), (j, b) in itertools.combinations(enumerate(names), 2) if a == b]
    assert not alike


def test_names_hold_what_else_a_program_depends_on(monkeypatch: Any) -> None:
    graph = stax.make_graph(snp.sin)(X)
    names = {program_cache.name_of(graph, None), program_cache.name_of(graph, 1000)}
    names.add(program_cache.name_of(graph, None, [0]))
    with stax.default_matmul_precision("highest"):
        names.add(program_cache.name_of(graph, None))
    monkeypatch.setattr(program_cache, "_files", lambda: "others")
    names.add(program_cache.name_of(graph, None))
    monkeypatch.setattr(program_cache, "dependences", lambda: "another machine")
    names.add(program_cache.name_of(graph, None))
    assert len(names) == 6


def test_what_results_are_written_over_is_kept() -> None:
    graph = stax.make_graph(lambda x, y: (y * 2.0, x - 1.0))(X, X)
    made = [compiler.compile_graph(graph, None, [0, 1]) for _ in range(2)]
    assert made[0].taken == made[1].taken and dict(made[0].taken) == {0: 1, 1: 0}
    assert made[1]._code is None


@dataclass(frozen=True, eq=False)
class Doubled(Op):
    """An op from outside of the package, whose files do not say what it does."""

    name: ClassVar[str] = "doubled"

    def abstract_eval(self, *types: Any) -> Any:
        return types[0]

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.apply("add", operands[0](index), operands[0](index))


def called_back(x: Any) -> Any:
    return stax.pure_callback(np.sin, stax.ShapeDtypeStruct(x.shape, x.dtype), x)


def printed(x: Any) -> Any:
    stax.debug.print("{}", x.sum())
    return x


@pytest.mark.parametrize("f", [called_back, printed, lambda x: bind(Doubled(), x)])
def test_what_runs_code_of_the_user_is_not_kept(f: Any) -> None:
    assert name_of(f, X) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"verify": True},
        {"check": "bounds"},
        {"debug_nans": True},
        {"enable_compilation_cache": False},
    ],
)
def test_what_is_looked_at_while_it_is_made_or_runs_is_not_kept(settings: Any) -> None:
    graph = stax.make_graph(snp.sin)(X)
    with config.override(**settings):
        assert program_cache.name_of(graph, None) is None


def test_a_change_of_the_package_is_noticed() -> None:
    assert str(Path(program_cache.__file__)) in program_cache._files()


def test_a_package_without_files_keeps_nothing(monkeypatch: Any, tmp_path: Path) -> None:
    program_cache._files.cache_clear()  # type: ignore[attr-defined]
    monkeypatch.setattr(program_cache, "__file__", str(tmp_path / "archive" / "a" / "b.py"))
    assert name_of(snp.sin, X) is None
