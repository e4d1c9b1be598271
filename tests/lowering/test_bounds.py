"""Bounds checks: what they find, that they change nothing else, and all example programs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import stax
import stax.numpy as snp
from stax.config import CHECKS, choice
from stax.errors import ArgumentValueError, InternalError
from stax.lowering import loop_ir as ir
from stax.lowering.bounds import Site, checked_kernel
from stax.lowering.loop_printer import execute
from stax.lowering.loop_verify import verify_kernel
from stax.lowering.pipeline import lower_graph
from stax.lowering.program import KernelStep, Program
from stax.runtime import compiler
from stax.runtime.engine import target
from tests.lowering import kernels
from tests.lowering.examples import EXAMPLES, graph_of
from tests.lowering.kernel_runs import check, compiled, guarded_copy, run
from tests.lowering.kernel_sizes import assert_sizes_agree
from tests.lowering.kernels import Case
from tests.programs import programs

BUILDERS = (
    *(kernels.chain, kernels.softmax, kernels.transposed, kernels.reversal, kernels.padded),
    *(kernels.gathered, kernels.in_place, kernels.symbolic, kernels.argmax_like),
)


@pytest.fixture
def checks() -> Any:
    with stax.config.override(check="bounds"):
        yield


def checked_case(case: Case) -> tuple[Case, list[Site]]:
    sites: list[Site] = []
    kernel = verify_kernel(checked_kernel(case.kernel, sites))
    record = [np.zeros(1, np.int64)] if kernel is not case.kernel else []
    return replace(case, kernel=kernel, arrays=[*case.arrays, *record]), sites


def shifted(kernel: ir.Kernel, kind: Any, step: int) -> ir.Kernel:
    """Move the first index of each load, or of each store, which is a mistake."""

    def move(node: Any) -> Any:
        new = ir.map_children(node, move)
        if isinstance(new, kind) and new.index:
            return replace(new, index=(ir.add(new.index[0], step), *new.index[1:]))
        return new

    return replace(kernel, body=tuple(move(stmt) for stmt in kernel.body))


def broken_by(monkeypatch: Any, change: Callable[[ir.Kernel], ir.Kernel]) -> None:
    """Let the compiler make a mistake in every kernel."""

    def changed(graph: Any, budget: Any = None, donated: Any = ()) -> Program:
        program = lower_graph(graph, budget, donated)
        program.steps = [
            replace(s, built=replace(s.built, kernel=change(s.built.kernel)))
            if isinstance(s, KernelStep)
            else s
            for s in program.steps
        ]
        return program

    monkeypatch.setattr(compiler, "lower_graph", changed)


@pytest.mark.parametrize("build", BUILDERS, ids=lambda b: b.__name__)
@pytest.mark.parametrize("size", [9, 32])
def test_a_right_kernel_computes_the_same(build: Any, size: int) -> None:
    case = build(size, np.dtype("float32"))
    checked, _ = checked_case(case)
    check(checked, target(), tolerance=1e-6)
    reference, found = [x.copy() for x in case.arrays], [x.copy() for x in checked.arrays]
    execute(case.kernel, reference, case.extents)
    execute(checked.kernel, found, case.extents)
    for a, b in zip(reference, found, strict=False):
        np.testing.assert_array_equal(a, b)
    assert checked.kernel is case.kernel or not found[-1].any()


def test_an_index_that_is_known_to_fit_needs_no_check() -> None:
    case = kernels.chain(32, np.dtype("float32"))
    assert checked_kernel(case.kernel, []) is case.kernel


@pytest.mark.parametrize("kind", [ir.Load, ir.Store])
@pytest.mark.parametrize("step", [-1, 1])
@pytest.mark.parametrize("length", [7, 3000])
def test_a_wrong_index_is_an_error_and_touches_nothing(
    kind: type, step: int, length: int, checks: Any, monkeypatch: Any
) -> None:
    broken_by(monkeypatch, lambda kernel: shifted(kernel, kind, step))
    f = stax.jit(lambda x: snp.sin(x) + 1)
    for _ in range(2):  # the second time by the native entry
        with pytest.raises(InternalError, match="is outside of") as caught:
            f(np.ones(length, np.float32))
    assert f"the {kind.__name__.lower()} " in caught.value.rule
    assert "kernel kernel0" in caught.value.rule
    assert f"f32[{length}]" in caught.value.rule


def test_a_wrong_index_of_scratch() -> None:
    case = kernels.softmax(9, np.dtype("float32"))
    scratch = {n.buffer.name for n in ir.walk(*case.kernel.body) if isinstance(n, ir.Alloc)}
    broken = replace(case, kernel=shifted(case.kernel, ir.Store, 1))
    checked, sites = checked_case(broken)
    found = [x.copy() for x in checked.arrays]
    execute(checked.kernel, found, case.extents)
    assert {site.buffer for site in sites} >= scratch
    assert scratch and found[-1][0]
    # What the shifted stores leave unwritten is any number: of the rest nothing else is compared.
    outer, native = guarded_copy(checked.arrays)
    run(compiled(checked, target()), checked, native)
    np.testing.assert_array_equal(native[-1], found[-1])
    assert all((x[:128] == 0xA5).all() and (x[-128:] == 0xA5).all() for x in outer)


def test_a_wrong_gather(checks: Any, monkeypatch: Any) -> None:
    broken_by(monkeypatch, lambda kernel: shifted(kernel, ir.Load, 1))
    indices = np.array([0, 3, 4])
    with pytest.raises(InternalError, match="is outside of"):
        stax.jit(lambda x, i: x[i])(np.ones(5, np.float32), indices)


def network(x: Any) -> Any:
    rows, weights = snp.stack([x[:32, :9]] * 5), x[:9, :9]
    cell = lambda h, r: (snp.tanh(h @ weights + r), h[:, 1:] * 2)  # noqa: E731
    return stax.lax.scan(cell, snp.zeros((32, 9)), rows)


LOOPS: dict[str, Callable[[Any], Any]] = {
    "steps": lambda x: stax.lax.fori_loop(0, 5, lambda i, c: snp.sin(c @ c), x),
    "blocks": network,
    "lanes": lambda x: stax.lax.scan(lambda c, r: (snp.sin(c) + r, c), x[0], x),
    "ended": lambda x: stax.lax.while_loop(lambda c: c.sum() > 1e-3, lambda c: c * 0.5, x[0]),
}


# The step that each of them becomes.
KINDS = dict(zip(LOOPS, ("ScanStep", "BlockStep", "LaneStep", "EndingStep"), strict=True))


@pytest.mark.parametrize("name", LOOPS)
def test_a_wrong_index_in_a_loop(name: str, checks: Any, monkeypatch: Any) -> None:
    if name == "blocks":
        monkeypatch.setattr("stax.lowering.blocks.MANY_OPERATIONS", 0)
        monkeypatch.setattr("stax.lowering.blocks.FEWEST_ROWS", 4)
        monkeypatch.setattr("stax.lowering.lanes.MOST_OPERATIONS", 0)
    kinds: list[str] = []

    def changed(graph: Any, budget: Any = None, donated: Any = ()) -> Program:
        program = lower_graph(graph, budget, donated)
        kinds.extend(type(step).__name__ for step in program.steps)
        for part in program.parts:
            part.steps = [_moved(s) for s in part.steps]
        return program

    monkeypatch.setattr(compiler, "lower_graph", changed)
    with pytest.raises(InternalError, match="is outside of"):
        stax.jit(LOOPS[name])(np.ones((40, 40), np.float32))
    assert KINDS[name] in kinds


def _moved(step: Any) -> Any:
    built = getattr(step, "built", None)
    if built is not None:
        kernel = shifted(built.kernel, ir.Load, 99)
        # A step is known by its identity.
        object.__setattr__(step, "built", replace(built, kernel=kernel))
    return step


def test_masks_decide_what_counts() -> None:
    """Load x[i - 1] where i > 0: right; without the mask it is not."""
    x, out = ir.Buffer("x", np.dtype("float32"), (4,)), ir.Buffer("y", np.dtype("float32"), (4,))
    p = ir.Var("p", ir.INDEX)
    for mask, found in ((ir.apply("gt", p, ir.index(0)), 0), (None, 1)):
        load = ir.Load(x, (ir.sub(p, 1),), mask)
        body = (ir.For(p, ir.index(4), "parallel", (ir.Store(out, (p,), load),)),)
        kernel = checked_kernel(ir.Kernel("k", (x, out), (), body, ("y",)), [])
        arrays: list[Any] = [np.ones(4, np.float32), np.zeros(4, np.float32), np.zeros(1, np.int64)]
        execute(verify_kernel(kernel), arrays)
        assert arrays[2][0] == found
        np.testing.assert_array_equal(arrays[1], [0, 1, 1, 1])


def test_the_environment_variable(monkeypatch: Any) -> None:
    for value, meant in (("bounds", "bounds"), ("", "none"), ("none", "none")):
        monkeypatch.setenv("STAX_CHECK", value)
        assert choice("STAX_CHECK", CHECKS) == meant
    monkeypatch.setenv("STAX_CHECK", "everything")
    with pytest.raises(ArgumentValueError, match="STAX_CHECK cannot be 'everything'"):
        choice("STAX_CHECK", CHECKS)


def test_the_setting() -> None:
    assert stax.config.check in ("none", "bounds")
    with pytest.raises(ArgumentValueError, match="check cannot be 'all'"):
        stax.config.update("check", "all")


def test_variants_with_and_without_checks_are_kept_apart() -> None:
    f = stax.jit(lambda x: x[::-1] + 1)
    x = np.ones(3, np.float32)
    f(x)
    with stax.config.override(check="bounds"):
        f(x)
    assert len(f.variants()) == 2


# The programs of the other tests


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str, checks: Any) -> None:
    function, arguments, _, _ = EXAMPLES[name]
    assert_sizes_agree(lower_graph(graph_of(name)))
    found = stax.jit(function)(*arguments)
    with stax.config.override(check="none"):
        expected = stax.jit(function)(*arguments)
    for a, b in zip(stax.tree.leaves(found), stax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


# What has kernels of its own, at sizes that no block divides.
OTHERS: dict[str, Callable[[Any], Any]] = {
    "transform": lambda x: snp.abs(snp.fft.fft(x)),
    "long_transform": lambda x: snp.fft.rfft(snp.tile(x, 31)).real,
    "transforms_of_columns": lambda x: snp.fft.ifft2(x).imag,
    "convolution": lambda x: stax.lax.conv_general_dilated(
        x[None, None], snp.ones((3, 1, 2, 3)), (2, 1), "SAME", rhs_dilation=(1, 2)
    ),
    "convolution_gradient": stax.grad(
        lambda x: snp.convolve(x.ravel(), snp.arange(5.0), "same").sum() ** 2
    ),
    "pooling": lambda x: stax.lax.reduce_window(
        x, -np.inf, stax.lax.max, (3, 2), (2, 2), ((1, 1), (0, 1))
    ),
    "sums": lambda x: (snp.cumsum(x, 0), snp.cumsum(x, 1), stax.lax.cummax(x, 1, reverse=True)),
    "order": lambda x: (snp.sort(x, 0), snp.argsort(x, 1), stax.lax.top_k(x, 3)[1]),
    "updates": lambda x: x.at[snp.array([0, 5, -1, 40])].add(1).at[2:9:3].set(x[:3]),
    "stencil": lambda x: stax.lax.fori_loop(
        0, 7, lambda i, c: c + 0.1 * (snp.roll(c, 1, 0) + snp.roll(c, -1, 1) - 2 * c), x
    ),
    "lanes": lambda x: stax.lax.scan(lambda c, r: (snp.sin(c) + r, c), x[0], x),
    "counted": lambda x: stax.lax.while_loop(
        lambda s: s[0] < 9, lambda s: (s[0] + 1, s[1] * 0.9), (0, x)
    ),
    "ended": lambda x: stax.lax.while_loop(lambda c: c.sum() > 1e-3, lambda c: c * 0.5, abs(x[0])),
    "reversed_while": stax.grad(
        lambda x: stax.lax.while_loop(
            lambda s: (s[0] < 40) & (s[1].sum() < 1e6), lambda s: (s[0] + 1, s[1] * 1.5), (0, x)
        )[1].sum(),
        allow_int=False,
    ),
    "products": lambda x: (x @ x.T, x.T @ x, snp.einsum("ij,kj->ijk", x, x)),
    "pieces": lambda x: snp.concatenate([x[1:], snp.pad(x, 1)[:3, 1:-1], x[::-1, ::-1]]),
    "solution": lambda x: snp.linalg.solve(x[:5, :5] + 9 * snp.eye(5), x[:5, 5]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_programs_with_kernels_of_their_own(name: str, checks: Any) -> None:
    x = np.random.default_rng(0).normal(size=(33, 17)).astype(np.float32)
    assert_sizes_agree(lower_graph(stax.make_graph(OTHERS[name])(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", stax.errors.FallbackWarning)
        found = stax.jit(OTHERS[name])(x)
    with stax.config.override(check="none"):
        expected = stax.jit(OTHERS[name])(x)
    for a, b in zip(stax.tree.leaves(found), stax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_random_programs(checks: Any) -> None:
    @settings(max_examples=400)
    @given(programs(steps=16))
    def run(made: Any) -> None:
        stax.jit(lambda *xs: made(stax, *xs))(*made.arguments())

    run()
