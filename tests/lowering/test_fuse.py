"""Fusion: what shares a kernel, what is stored, and that regions can be run level by level."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import stax
import stax.numpy as snp
from stax.graph import Graph
from stax.lowering.fuse import OPEN_REGIONS, REGION_LIMIT, Fusion, fuse, price
from stax.lowering.prepare import prepare
from stax.operators.elementwise import Elementwise
from tests.lowering.examples import EXAMPLES, fusion_of, normal, program_of, softmax
from tests.random_graphs import graphs

M = normal(32, 48)
V = normal(48)


def regions(function: Any, *args: Any) -> int:
    return len(fusion_of(function, *args).regions)


@pytest.mark.parametrize("name", EXAMPLES)
def test_kernels_of_the_examples(name: str) -> None:
    _, _, kernels, calls = EXAMPLES[name]
    program = program_of(name)
    assert (len(program.kernels), len(program.steps) - len(program.kernels)) == (kernels, calls)


ONE: dict[str, Any] = {
    "chain": lambda x, v: snp.exp(-x) * v + 1,
    "several outputs": lambda x, v: (x + v, x * v, snp.sin(x)),
    "into a reduction": lambda x, v: snp.sum(snp.exp(x) * v, 1),
    "out of a reduction": lambda x, v: x - x.mean(1, keepdims=True) + v,
    "reductions of the same rows": lambda x, v: (x.sum(1), x.max(1), (x * v).sum(1)),
    "reductions of the same columns": lambda x, v: (x.sum(0) + v, (x * x).sum(0)),
    "softmax": lambda x, v: softmax(x * v),
    "variance": lambda x, v: x.var(1),
    "moved elements": lambda x, v: snp.concatenate([x[:, ::2], x[:, 1::2]], 1)[::-1] * v,
    "transposed": lambda x, v: x.T * 2,
    "padded": lambda x, v: snp.pad(x, 1) + 1,
    "select and compare": lambda x, v: snp.where(x > v, x, -v),
    "argmax": lambda x, v: snp.argmax(x, 1) + snp.argmin(x, 1),
    "a small product": lambda x, v: x[:, :4] @ v[:4] + 1,
    "gather": lambda x, v: x[snp.array([1, 0, 1])] * v,
}


@pytest.mark.parametrize("name", ONE)
def test_one_kernel(name: str) -> None:
    assert regions(ONE[name], M, V) == 1


MORE: dict[str, tuple[Any, int]] = {
    "rows and columns": (lambda x, v: (x.sum(0), x.sum(1)), 2),
    "a reduction of a reduction": (lambda x, v: snp.exp(x.sum(1)).sum(), 2),
    "softmax of the transpose": (lambda x, v: softmax(softmax(x).T), 2),
}


@pytest.mark.parametrize("name", MORE)
def test_more_kernels(name: str) -> None:
    function, count = MORE[name]
    assert regions(function, M, V) == count


def test_inputs_of_library_calls_are_stored() -> None:
    fusion = fusion_of(lambda x: snp.tanh(x) @ snp.tanh(x).T, normal(64, 64))
    assert [n.op.name for n in fusion.stored] == ["tanh", "dot_general"]


def test_transposes_into_library_calls_are_not_stored() -> None:
    fusion = fusion_of(lambda x: x.T @ x, normal(64, 64))
    assert [n.op.name for n in fusion.stored] == ["dot_general"]


def test_what_is_dear_is_stored_and_what_is_cheap_is_computed_again() -> None:
    dear = fusion_of(lambda x: snp.tanh(snp.exp(x))[::-1] + snp.tanh(snp.exp(x)), V)
    cheap = fusion_of(lambda x: (x + 1)[::-1] + (x + 1), V)
    assert [n.op.name for n in dear.stored] == ["tanh", "add"]
    assert [n.op.name for n in cheap.stored] == ["add"]


def test_elements_that_are_spread_out_are_put_down_once() -> None:
    def function(spread: int) -> Any:
        def run(x: Any, y: Any) -> Any:
            z = y + stax.lax.pad(x, 0.0, ((0, 0, 0), (0, 0, spread)))
            return z[:, 1:] * z[:, :-1]

        return run

    # Where they go is a division of indices for each of the elements that are read twice.
    assert regions(function(0), normal(32, 40), normal(32, 40)) == 1
    assert regions(function(3), normal(32, 40), normal(32, 157)) == 2


def test_reshapes_are_views() -> None:
    fusion = fusion_of(lambda x: (snp.exp(x).reshape(-1), snp.exp(x).sum()), M)
    assert "reshape" not in [n.op.name for n in fusion.stored]


def test_prices() -> None:
    assert price(Elementwise("add")) < price(Elementwise("div")) < price(Elementwise("exp"))


def test_long_chains_are_cut() -> None:
    def f(x: Any) -> Any:
        for _ in range(200):
            x = snp.sin(x) + x
        return x

    fusion = fusion_of(f, V)
    assert len(fusion.regions) > 1
    assert all(r.weight <= REGION_LIMIT + 6 for r in fusion.regions)


# --- properties of every fusion ---


def check(fusion: Fusion) -> None:
    """Each region reads only what is at a lower level, and each stored value has one home."""
    for region in fusion.regions:
        assert region.targets
        for source in region.reads:
            if source in fusion.stored and fusion.home.get(source) is not region:
                assert fusion.level[source] < region.level
        for node in region.targets:
            assert fusion.home[node] is region
    homes = [n for r in fusion.regions for n in r.targets]
    assert len(set(homes)) == len(homes)
    stored = set(homes) | set(fusion.own)
    assert {n for n in fusion.stored if n.op.name != "project"} <= stored


@settings(max_examples=120)
@given(graphs(exact=False, most=25))
def test_levels_are_acyclic(graph: Graph) -> None:
    check(fuse(prepare(graph)))


@pytest.mark.parametrize("name", EXAMPLES)
def test_levels_of_the_examples(name: str) -> None:
    function, args, _, _ = EXAMPLES[name]
    check(fusion_of(function, *args))


def test_work_grows_linearly() -> None:
    """Twice the program looks at twice as many candidates, whatever the number of open regions."""
    counts = []
    for length in (200, 400):
        seen = []

        class Counting(Fusion):
            def _obstacle(self, *args: Any) -> str:
                seen.append(1)  # noqa: B023
                return super()._obstacle(*args)

        graph = prepare(stax.make_graph(lambda x: sum(snp.sin(x * i) for i in range(length)))(V))  # noqa: B023
        fusion = Counting(graph)
        for node in graph.nodes:
            fusion.place(node)
        counts.append(len(seen) / len(graph.nodes))
    assert 0 < max(counts) <= OPEN_REGIONS + 3
    assert counts[1] <= 1.2 * counts[0]


def test_empty_and_scalar_programs() -> None:
    assert regions(lambda x: x + 1, np.float32(1)) == 1
    assert regions(lambda: ()) == 0
    assert regions(lambda x: x * 2, normal(0, 3)) == 1


def test_a_large_value_is_computed_again_where_that_reads_one_array() -> None:
    """A store and a load of what no cache holds cost more than some operations."""

    def sums(x: Any, y: Any) -> Any:
        z = snp.tanh(x) * y
        return z.sum(0), z.sum(1)

    small, large = normal(64, 64), normal(1024, 1100)
    assert len(fusion_of(lambda x: sums(x, 2), small).stored) == 3
    assert len(fusion_of(lambda x: sums(x, 2), large).stored) == 2
    assert len(fusion_of(sums, large, normal(1024, 1100, seed=1)).stored) == 3
    # A result is in memory, and what is read at other places would be computed many times.
    assert len(fusion_of(lambda x: ((z := snp.tanh(x)), z.sum(0), z.sum(1)), large).stored) == 3
    assert len(fusion_of(lambda x: (z := snp.tanh(x))[1:] + z[:-1] * x[1:], large).stored) == 2
    for found, want in zip(stax.jit(sums)(large, 2), sums(large, 2), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-3)
