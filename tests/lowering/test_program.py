"""Programs: the order of steps, where values live, and the driver."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.graph import Graph, Input, Node
from stax.interpreters.evaluate import evaluate
from stax.lowering.element import ALIGNMENT, static_size
from stax.lowering.pipeline import lower_graph
from stax.lowering.program import KernelStep, Place, Program
from stax.runtime.compiler import compile_graph, module_text
from tests.lowering.examples import EXAMPLES, graph_of, normal, reads, writes
from tests.random_graphs import DTYPES, arguments, assert_same_bits, graphs

Golden = Callable[[str, Any], None]


def mixed(x: Any, y: Any) -> Any:
    """Kernels, products, a sort and a scatter, with values that live for different times."""
    a = snp.tanh(x @ y)
    b = snp.sort(a, 0) @ x
    c = (a - b.mean(0)) @ snp.exp(-x)
    return c.at[snp.array([0, 1])].add(b[:2]), snp.cumsum(c * b, 1), a.sum()


MIXED = (mixed, (normal(64, 64), normal(64, 64, seed=1)))


def root(program: Program, node: Node) -> Node:
    return program.fusion.root_of(node)


def check_order(program: Program) -> None:
    """Every step reads only what was given or written before it, and nothing is written twice."""
    known = {root(program, n) for n in program.graph.inputs}
    for step in program.steps:
        for node in reads(step):
            assert root(program, node) in known, f"{node!r} is read before it is written"
        known |= {root(program, n) for n in writes(step)}
    for node in program.graph.outputs:
        assert root(program, node) in known


def lifetimes(program: Program) -> dict[Node, tuple[int, int]]:
    """Return in which steps each value in the arena is first and last touched."""
    found: dict[Node, tuple[int, int]] = {}
    for i, step in enumerate(program.steps):
        for node in (root(program, n) for n in step.reads_and_writes):
            first, _ = found.get(node, (i, i))
            found[node] = (first, i)
    return {n: t for n, t in found.items() if program.places[n].kind == "arena"}


class Stretch(NamedTuple):
    """Memory in the arena: first and last step, begin and end, and the value, if it is for one."""

    first: int
    last: int
    begin: int
    end: int
    node: Node | None


def stretches(program: Program) -> Iterator[Stretch]:
    """Yield everything in the arena."""
    for node, (first, last) in lifetimes(program).items():
        begin = program.places[node].number
        size = static_size(node.type.shape) * node.type.dtype.itemsize
        yield Stretch(first, last, begin, begin + size, node)
    for i, step in enumerate(program.steps):
        if step in program.scratch:
            begin = program.scratch[step].number
            yield Stretch(i, i, begin, begin + step.scratch_bytes, None)  # type: ignore[union-attr]


def is_overwritten(program: Program, old: Stretch, new: Stretch) -> bool:
    """Say whether one step reads the one value for the last time and writes the other over it."""
    step = program.steps[old.last]
    if old.last != new.first or not isinstance(step, KernelStep):
        return False
    kernel = step.built.kernel
    values = {
        buffer.name: root(program, node)
        for buffer, node in zip(kernel.params, step.built.values, strict=True)
    }
    pairs = [(values[a], values[b]) for a, b in kernel.aliases]
    return (old.node, new.node) in pairs


def check_arena(program: Program) -> None:
    """Values that live at the same time never share memory, and all lie within the arena."""
    found = list(stretches(program))
    for i, one in enumerate(found):
        assert one.begin % ALIGNMENT == 0
        assert 0 <= one.begin <= one.end <= program.arena_bytes
        for other in found[i + 1 :]:
            if one.first <= other.last and other.first <= one.last:
                apart = one.end <= other.begin or other.end <= one.begin
                taken = is_overwritten(program, one, other) or is_overwritten(program, other, one)
                assert apart or taken


def check_outputs(program: Program) -> None:
    places = [program.places[root(program, n)] for n in program.graph.outputs]
    assert places == [Place("output", i) for i in range(len(places))]
    for i, node in enumerate(program.graph.inputs):
        assert program.places[node] == Place("input", i)
    assert not any(isinstance(n.op, Input) for s in program.steps for n in writes(s))


def check(graph: Graph) -> Program:
    program = lower_graph(graph)
    check_order(program)
    check_arena(program)
    check_outputs(program)
    return program


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples(name: str) -> None:
    check(graph_of(name))


def test_a_mixed_program() -> None:
    function, args = MIXED
    program = check(stax.make_graph(function)(*args))
    kinds = {type(s).__name__ for s in program.steps}
    assert kinds == {"KernelStep", "GemmStep", "SortStep"}
    check(stax.make_graph(stax.grad(lambda x, y: sum(v.sum() for v in mixed(x, y))))(*args))


@settings(max_examples=150)
@given(graphs(exact=False, most=25))
def test_random_programs(graph: Graph) -> None:
    check(graph)


def test_memory_is_used_again() -> None:
    def f(x: Any) -> Any:
        for _ in range(20):
            x = snp.tanh(x @ x)
        return x

    program = check(stax.make_graph(f)(normal(64, 64)))
    assert program.arena_bytes <= 3 * 64 * 64 * 4


def test_bytes_moved() -> None:
    program = check(stax.make_graph(lambda x: snp.exp(x) + 1)(normal(100, 10)))
    assert program.bytes_moved == 2 * 4000
    assert program.arena_bytes == 0


def test_small_arenas_are_on_the_stack() -> None:
    small = check(stax.make_graph(lambda x: snp.exp(x).sum(0) - snp.exp(x).sum(1))(normal(8, 8)))
    assert small.call_arena_bytes == 0
    large = check(stax.make_graph(lambda x: snp.sort(snp.exp(x), 0)[::-1] @ x)(normal(100, 100)))
    assert large.call_arena_bytes == large.arena_bytes > 0


def test_golden_driver(golden: Golden) -> None:
    text = module_text(graph_of("matmul"))
    driver = text[text.index("define i32 @program") :]
    golden("driver_matmul", driver[: driver.index("\n}") + 2].replace(_attributes(driver), "#0"))


def _attributes(driver: str) -> str:
    head = driver.split("\n")[0]
    return head[head.index(")") + 2 : head.rindex(" {")]


# --- what programs compute ---


def test_a_constant_condition_of_64_bit_integers() -> None:
    x = np.arange(15, dtype=np.int64).reshape(3, 5)
    with stax.enable_x64():
        out = stax.jit(lambda x: snp.where(True, x, -x))(x)
    assert_same_bits([out], [x])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_sign_of_zero(dtype: str) -> None:
    x = snp.asarray([-0.0, 0.0], dtype)
    assert_same_bits([stax.jit(snp.sign)(x)], [np.asarray(snp.sign(x))])


@settings(max_examples=100)
@given(graphs(most=10, dtypes=DTYPES), st.integers(0, 9))
def test_exact_programs_equal_evaluate(graph: Graph, seed: int) -> None:
    args = arguments(graph, seed)
    with np.errstate(all="ignore"):
        assert_same_bits(compile_graph(graph).run(args), evaluate(graph, args))


@settings(max_examples=40)
@given(graphs(exact=False, most=12), st.integers(0, 9))
def test_other_programs_are_close(graph: Graph, seed: int) -> None:
    args = arguments(graph, seed, special=False)
    with np.errstate(all="ignore"):
        expected = evaluate(graph, args)
    for a, b in zip(compile_graph(graph).run(args), expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_a_mixed_program_computes() -> None:
    function, args = MIXED
    for a, b in zip(stax.jit(function)(*args), function(*map(snp.asarray, args)), strict=True):
        scale = float(np.abs(np.asarray(b)).max())
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * scale)


def test_results_repeat_bit_for_bit() -> None:
    jitted = stax.jit(lambda x: (x.sum(), (x @ x.T).sum(1), snp.exp(x).mean(0)))
    x = normal(300, 301)
    first = jitted(x)
    for _ in range(3):
        assert_same_bits(jitted(x), list(map(np.asarray, first)))
