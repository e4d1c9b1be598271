"""Kernels: golden texts, and what they compute when they are run as Python."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import stax
import stax.numpy as snp
from stax.graph import Graph, Node
from stax.interpreters.evaluate import evaluate
from stax.lowering import loop_ir as ir
from stax.lowering.build import identity_of
from stax.lowering.loop_printer import execute, print_kernel
from stax.lowering.loop_verify import verify_kernel
from stax.lowering.pipeline import lower_graph
from stax.lowering.program import KernelStep, Program
from tests.lowering.examples import EXAMPLES, graph_of, normal, program_of
from tests.random_graphs import arguments, assert_same_bits, graphs

Golden = Callable[[str, Any], None]


@pytest.mark.parametrize("name", EXAMPLES)
def test_golden_kernels(name: str, golden: Golden) -> None:
    golden(f"kernels/{name}", "\n".join(map(print_kernel, program_of(name).kernels)))


def run_in_python(program: Program, args: list[np.ndarray]) -> list[np.ndarray] | None:
    """Run the kernels of a program as Python; None if it has library calls."""
    memory: dict[Node, np.ndarray] = {}
    for node, value in zip(program.graph.inputs, args, strict=True):
        memory[node] = np.ascontiguousarray(value)
    for step in program.steps:
        if not isinstance(step, KernelStep):
            return None
        views = []
        for buffer, node in zip(step.built.kernel.params, step.built.values, strict=True):
            if node not in memory:
                memory[node] = np.zeros(node.type.shape, node.type.dtype)
            views.append(memory[node].reshape([int(n) for n in buffer.shape]))
        execute(step.built.kernel, views)
    found = [memory[program.fusion.root_of(n)] for n in program.graph.outputs]
    return [a.reshape(n.type.shape) for a, n in zip(found, program.graph.outputs, strict=True)]


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n != "matmul"])
def test_kernels_run_in_python(name: str) -> None:
    small = {
        "softmax": (normal(2, 9),),
        "layer_norm": (normal(2, 9), normal(9), normal(9)),
        "layer_norm_gradient": (normal(3, 9), normal(9), normal(9)),
        "column_statistics": (normal(9, 5),),
        "gelu_gradient": (normal(9),),
        "chain": (normal(3, 5), normal(5)),
        "per_example_gradients": (normal(3, 2), normal(4, 3), normal(4, 2)),
    }[name]
    graph = graph_of(name, small)
    found = run_in_python(lower_graph(graph), list(small))
    assert found is not None
    for a, b in zip(found, evaluate(graph, small), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@settings(max_examples=60)
@given(graphs(most=8), st.integers(0, 9))
def test_exact_kernels_in_python(graph: Graph, seed: int) -> None:
    program = lower_graph(graph)
    for kernel in program.kernels:
        verify_kernel(kernel)
    args = arguments(graph, seed)
    found = run_in_python(program, args)
    with np.errstate(all="ignore"):
        if found is not None:
            assert_same_bits(found, evaluate(graph, args))


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("add", "float32", 0), ("mul", "int8", 1), ("maximum", "float32", -np.inf),
        ("minimum", "float16", np.inf), ("maximum", "int8", -128), ("minimum", "uint8", 255),
        ("maximum", "bool", False), ("minimum", "bool", True), ("and", "bool", True),
        ("or", "bool", False), ("and", "int32", -1), ("or", "uint8", 0), ("mul", "bool", True),
    ],
)  # fmt: skip
def test_identities(kind: str, dtype: str, expected: Any) -> None:
    assert identity_of(kind, np.dtype(dtype)) == expected


def loops(function: Any, *args: Any) -> list[str]:
    """The kinds of the loops of the one kernel, outermost first."""
    (kernel,) = lower_graph(stax.make_graph(function)(*args)).kernels
    return [s.kind for s in ir.walk(*kernel.body) if isinstance(s, ir.For)]


def test_loops_of_the_layouts() -> None:
    assert loops(lambda x: x + 1, normal(4, 8)) == ["parallel", "vector"]
    assert loops(lambda x: x.sum(1), normal(4, 8)) == ["parallel", "vector"]
    assert sorted(loops(lambda x: x.sum(0), normal(4, 8))) == [
        "parallel", "serial", "unroll", "vector", "vector", "vector",
    ]  # fmt: skip


def test_what_does_not_depend_on_a_loop_stands_outside_of_it() -> None:
    graph = stax.make_graph(lambda x, v: x * (-v)[:, None])(normal(4, 8), normal(4))
    (kernel,) = lower_graph(graph).kernels
    (parallel,) = [s for s in kernel.body if isinstance(s, ir.For)]
    outside = [s.value for s in parallel.body if isinstance(s, ir.Let)]
    assert any(isinstance(e, ir.Apply) and e.name == "neg" for e in outside)


def test_values_are_named_once() -> None:
    graph = stax.make_graph(lambda x: snp.exp(x) * snp.exp(x) + snp.exp(x))(normal(64))
    (text,) = map(print_kernel, lower_graph(graph).kernels)
    assert text.count("exp(") == 1
