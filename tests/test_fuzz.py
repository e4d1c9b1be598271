"""The fuzz itself: some programs of it, and that it notices what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import stax
from stax.lowering import loop_ir as ir
from stax.lowering.pipeline import lower_graph
from stax.lowering.program import KernelStep
from stax.runtime import compiler
from tests import fuzz
from tests.fuzz_programs import program


@pytest.fixture
def checks() -> Iterator[None]:
    with stax.config.override(check="bounds"):
        yield


def test_some_programs(checks: None) -> None:
    done, wrong = fuzz.fuzz(0, 21, 600, None)
    assert (sum(done.values()), wrong) == (21, 0)


@pytest.mark.slow
def test_many_programs(checks: None) -> None:
    done, wrong = fuzz.fuzz(1000, 2000, 3600, None)
    assert (sum(done.values()), wrong) == (2000, 0)


def test_a_program_is_the_same_each_time() -> None:
    first, second = (fuzz.describe(13, mode) for mode in ("values", "values"))
    assert first == second
    assert fuzz.describe(13, "gradients") != first


@pytest.mark.parametrize("seed", range(5))
def test_bounds_of_values_hold(seed: int) -> None:
    made = program(seed)
    for y, bound in zip(made(*made.arguments), made.bounds, strict=True):
        assert np.abs(np.asarray(y, np.float64)).max(initial=0) <= bound.size + bound.error


def test_a_wrong_kernel_is_noticed(monkeypatch: Any, capsys: Any) -> None:
    def changed(graph: Any, *options: Any) -> Any:
        lowered = lower_graph(graph, *options)
        lowered.steps = [_subtracting(s) for s in lowered.steps]
        return lowered

    monkeypatch.setattr(compiler, "lower_graph", changed)
    _, wrong = fuzz.fuzz(0, 12, 600, "values")
    assert wrong > 3
    assert "differ, first at" in capsys.readouterr().out


def _subtracting(step: Any) -> Any:
    """Turn the sums of a kernel into differences."""

    def change(node: Any) -> Any:
        new = ir.map_children(node, change)
        is_sum = isinstance(new, ir.Apply) and new.name == "add" and new.dtype != ir.INDEX
        return ir.Apply("sub", new.args, new.dtype) if is_sum else new

    if not isinstance(step, KernelStep):
        return step
    kernel = step.built.kernel
    kernel = replace(kernel, body=tuple(map(change, kernel.body)))
    return replace(step, built=replace(step.built, kernel=kernel))
