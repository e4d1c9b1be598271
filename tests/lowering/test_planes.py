"""Complex programs as real ones: what the rewriting leaves, and what the compiled programs give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.array import asarray
from stax.config import config
from stax.errors import LoweringError
from stax.graph import Graph
from stax.interpreters.evaluate import evaluate
from stax.lowering.planes import split_complex
from stax.lowering.prepare import prepare
from stax.op import Op
from stax.trace import bind
from stax.types import ArrayType, is_complex
from tests.operators.calculus import traced

Function = Callable[..., Any]
RNG = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with config.override(enable_x64=True):
        yield


def numbers(*shape: int, dtype: str = "complex128") -> np.ndarray:
    """Normal complex values."""
    return (RNG.normal(size=shape) + 1j * RNG.normal(size=shape)).astype(dtype)


def pairs(x: np.ndarray) -> np.ndarray:
    """The memory of complex values as real ones."""
    return np.stack([x.real, x.imag], -1)


def dtypes(graph: Graph) -> set[Any]:
    nodes = (*graph.inputs, *graph.nodes)
    return {t.dtype for n in nodes for t in getattr(n.type, "items", (n.type,))}


def split(function: Function, *xs: np.ndarray) -> Graph:
    """Return the real graph of a function, checked against the complex one."""
    graph = traced(function, xs)
    found = split_complex(graph)
    assert not any(map(is_complex, dtypes(found)))
    given = [pairs(x) if x.dtype.kind == "c" else x for x in xs]
    wanted = [pairs(y) if y.dtype.kind == "c" else y for y in evaluate(graph, xs)]
    for got, want in zip(evaluate(found, given), wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)
    return found


def agree(function: Function, *xs: np.ndarray, tolerance: float = 1e-13) -> None:
    """Check the compiled function against the eager one."""
    arrays = [asarray(x) for x in xs]
    results = [f(*arrays) for f in (function, stax.jit(function))]
    eager, compiled = (stax.tree.leaves(r) for r in results)
    for got, want in zip(compiled, eager, strict=True):
        assert got.type is want.type
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


# --- the rewriting ---


def test_a_real_graph_stays_the_same() -> None:
    graph = traced(lambda x: snp.sin(x) + 1, [np.ones(3)])
    assert split_complex(graph) is graph


def test_inputs_and_outputs_are_pairs_of_numbers() -> None:
    graph = split(lambda x, y: (x * y, x.real, x), numbers(2, 3), numbers(2, 3))
    assert graph.input_types == (ArrayType(np.dtype("f8"), (2, 3, 2)),) * 2
    assert [t.shape for t in graph.output_types] == [(2, 3, 2), (2, 3), (2, 3, 2)]
    assert split(lambda x: x * 1j, numbers()).output_types[0].shape == (2,)


def test_calls_are_looked_into() -> None:
    inner = stax.jit(lambda x: stax.jit(snp.exp)(x * 1j))
    assert "call" not in {n.op.name for n in split(lambda x: inner(x).real, np.ones(3)).nodes}


def test_prepared_graphs_hold_no_complex_values() -> None:
    graph = traced(lambda x: snp.linalg.norm(snp.sort(x @ x) ** 2), [numbers(4, 4)])
    assert not any(map(is_complex, dtypes(prepare(graph))))


def test_nodes_keep_their_lines() -> None:
    graph = split(lambda x: snp.tanh(x), numbers(3))
    assert all(n.source is not None for n in graph.nodes)


@dataclass(frozen=True, eq=False)
class _Strange(Op):
    """An op that says nothing about planes."""

    name: ClassVar[str] = "strange"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]

    def evaluate(self, *arrays: np.ndarray) -> np.ndarray:
        return arrays[0]


def test_an_op_without_a_form_is_named_with_its_line() -> None:
    with pytest.raises(LoweringError, match=r"strange: values of type c128[^$]*test_planes\.py"):
        stax.jit(lambda x: bind(_Strange(), x))(asarray(numbers(3)))


# --- every kind of op ---

I = np.array([1, 1, 0, 7, -1], np.int32)  # noqa: E741
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))

STRUCTURE: dict[str, Function] = {
    "reshape": lambda x: x.reshape(3, 8).T[::-1, ::2],
    "pad": lambda x: snp.pad(x, 1, constant_values=2 + 1j),
    "negative pad": lambda x: lax.pad(x, 1j, ((-1, 2, 1), (0, -1, 0))),
    "concatenate": lambda x: snp.concatenate([x, x * 2], 1),
    "broadcast": lambda x: x[:, None] + snp.ones((3, 1), x.dtype),
    "where": lambda x: snp.where(x.real > 0, x, 1j),
    "dynamic slice": lambda x: lax.dynamic_slice(x, (snp.array(1), snp.array(2)), (2, 3)),
    "dynamic update": lambda x: lax.dynamic_update_slice(x, x[:2] * 2, (snp.array(1), 0)),
    "take": lambda x: x[asarray(I)],
    "fill": lambda x: x.at[asarray(I)].get(mode="fill"),
    "fill value": lambda x: lax.gather(
        x, asarray(I[:, None]), ROWS, (1, 6), mode="fill", fill_value=2 - 1j
    ),
    "set": lambda x: x.at[asarray(I)].set(1j),
    "add": lambda x: x.at[asarray(I)].add(x[asarray(I)]),
    "multiply rows": lambda x: x.at[asarray(I)].multiply(x[asarray(I)]),
    "multiply elements": lambda x: x.at[asarray(I), asarray(I[::-1])].multiply(2j, mode="clip"),
    "sum": lambda x: (x.sum(), x.sum(0), x.mean(1), x[:0].sum(0)),
    "prod": lambda x: (x.prod(), x.prod(0), x[:, :5].prod(1), x[:0].prod(0)),
    "extremes": lambda x: (x.max(), snp.round(x).max(0), snp.round(x).min(1)),
    "running": lambda x: (x.cumsum(1), x.cumprod(0), snp.cumprod(x[:, ::-1], 1)),
    "running extremes": lambda x: (lax.cummax(snp.round(x), 0), lax.cummin(x, 1, reverse=True)),
    "statistics": lambda x: (x.var(0), x.std(), x.mean(where=x.real > 0)),
    "sort": lambda x: (snp.sort(snp.round(x)), snp.argsort(snp.round(x), 0)),
    "sort along": lambda x: lax.sort((x.real.round(), x), num_keys=1),
    "sort by two": lambda x: lax.sort((snp.round(x), x, x.imag), num_keys=2),
    "iota": lambda x: x + lax.iota(x.dtype, 6),
    "convert": lambda x: (
        x.astype("complex64"),
        x.astype("float32"),
        x.astype(int),
        x.astype(bool),
    ),
    "widen": lambda x: (x.real.astype(complex), snp.sign(x.real).astype(int).astype(complex)),
    "powers": lambda x: (x**3, x**-2, x**0, x**0.5, x**x),
    "questions": lambda x: (snp.isnan(x), snp.isfinite(x), x == x, x != x.T.reshape(4, 6), x.any()),
    "products": lambda x: (x @ x.T.conj(), x @ x.T.real, x.real @ x.T, snp.vdot(x, x), x @ x[0]),
    "wide product": lambda x: lax.dot_general(
        x.real, x.real, (((1,), (1,)), ((), ())), preferred_element_type=np.complex128
    ),
    "outer": lambda x: snp.einsum("ij,kl->ikjl", x, x),
    "constants": lambda x: (snp.full((2,), 1j), x * (2 - 1j), x),
    "twice": lambda x: (x * 2, x * 2, x, x, x.real),
    "held": lambda x: lax.stop_gradient(x) * x,
    "mapped": lambda x: stax.vmap(lambda r: snp.exp(r) @ x.T)(x),
    "gradient": lambda x: stax.grad(lambda v: snp.abs(snp.sin(v).prod(0)).sum())(x),
    "empty": lambda x: (x[:0] * 2, x[:, :0].prod(1)),
}


CONTROL: dict[str, Function] = {
    "scan": lambda x: lax.scan(lambda c, a: (c * a, c + 1j), x[0], x),
    "scan over numbers": lambda x: lax.scan(lambda c, a: (c + snp.abs(a * 1j), c), 0.0, x[0].real),
    "while": lambda x: lax.while_loop(lambda c: snp.abs(c) < 9, lambda c: c * (1 + 2j), x[0, 0]),
    "fori": lambda x: lax.fori_loop(0, 3, lambda i, c: c * x + i, x),
    "cond": lambda x: lax.cond(x[0, 0].real > 0, lambda v: v * 2, lambda v: v * 1j, x),
    "switch": lambda x: lax.switch(
        x.real[0, 0].astype(int), [lambda v: (v, v.real), lambda v: (v * 1j, v.imag)], x
    ),
    "nested": lambda x: lax.scan(
        lambda c, a: (lax.fori_loop(0, 2, lambda i, b: b * a, c), c), 1j, x[0]
    ),
    "gradient": lambda x: stax.grad(
        lambda v: snp.abs(lax.scan(lambda c, a: (c * a, c), v[0], v)[0]).sum()
    )(x),
}


@pytest.mark.parametrize("name", CONTROL)
def test_loops_and_choices(name: str) -> None:
    agree(CONTROL[name], numbers(4, 6))


@pytest.mark.parametrize("name", STRUCTURE)
def test_compiled_is_eager(name: str) -> None:
    agree(STRUCTURE[name], numbers(4, 6))


@pytest.mark.parametrize("name", ["prod", "sort", "products", "running", "extremes"])
def test_the_real_graph_is_the_complex_one(name: str) -> None:
    results = STRUCTURE[name]

    def function(x: Any) -> Any:
        out = results(x)
        return tuple(stax.tree.leaves(out))

    split(function, numbers(4, 6))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_large_arrays(dtype: str) -> None:
    tolerance = 1e-5 if dtype == "complex64" else 1e-13
    x, y = numbers(130, 257, dtype=dtype), numbers(257, 140, dtype=dtype)
    agree(lambda x, y: (x @ y, (x * x).sum(), x.T + 1j), x, y, tolerance=100 * tolerance)
    agree(lambda x: (snp.abs(x).sum(0), (x - x.mean(1, keepdims=True))), x, tolerance=tolerance)


def test_a_scattered_product_leaves_the_rest_alone() -> None:
    x = np.array([complex(np.inf, 0), complex(-0.0, -1), 2, 3])
    found = stax.jit(lambda x: x.at[asarray([2, 2, 9])].multiply(2j))(asarray(x))
    np.testing.assert_array_equal(found, [x[0], x[1], -8, 3])
    assert np.signbit(np.asarray(found)[1].real)


def test_nan_spreads_in_reductions() -> None:
    x = np.array([[1, complex(0, np.nan)], [complex(np.nan, 1), 2j], [3, 4]])
    found = stax.jit(lambda x: (x.max(1), x.min(0), x.prod(1), x.sum(1)))(asarray(x))
    for got, want in zip(found, (x.max(1), x.min(0), x.prod(1), x.sum(1)), strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


# --- programs ---


def test_open_lengths() -> None:
    f = stax.jit(lambda x: (x * x + snp.exp(x)).sum() + x, dynamic={"x": {0: "n"}})
    for n in (3, 5, 8, 1, 0):
        x = numbers(n)
        np.testing.assert_allclose(f(asarray(x)), (x * x + np.exp(x)).sum() + x, rtol=1e-13)
    assert len(f.variants()) == 3


def test_products_along_open_lengths_are_refused() -> None:
    for function in (snp.prod, snp.cumprod):
        jitted = stax.jit(lambda x, f=function: f(x), dynamic={"x": {0: "n"}})
        with pytest.raises(LoweringError, match="symbolic"):
            jitted(asarray(numbers(4)))


def test_donated_and_captured_arrays() -> None:
    held = asarray(numbers(4))
    f = stax.jit(lambda x: x * held, donate_argnums=0)
    x = numbers(4)
    given = asarray(x)
    np.testing.assert_allclose(f(given), x * np.asarray(held), rtol=1e-15)
    assert given.is_deleted()
    np.testing.assert_array_equal(stax.jit(lambda: held)(), held)


def test_stages_show_the_program_of_the_user() -> None:
    lowered = stax.jit(lambda x: snp.exp(x) * (1 + 2j)).lower(asarray(numbers(4)))
    assert "mul a, b" in lowered.as_text()
    compiled = lowered.compile()
    x = numbers(4)
    np.testing.assert_allclose(compiled(asarray(x)), np.exp(x) * (1 + 2j), rtol=1e-14)
    assert "complex" not in compiled.as_text()


def test_results_are_complex_arrays_of_the_users_types() -> None:
    f = stax.jit(lambda d: {"sum": d["a"] + d["b"], "weak": d["b"] * 2})
    for _ in range(2):  # through Python, then through the native entry
        out = f({"a": asarray(numbers(3, dtype="complex64")), "b": 2j})
        assert (out["sum"].dtype, out["sum"].weak_type) == (np.complex64, False)
        assert (out["weak"].dtype, out["weak"].weak_type) == (np.complex128, True)
    assert complex(out["weak"]) == 4j


def test_complex_numbers_only_inside_of_a_loop() -> None:
    """Also where they are the same in every step, and so are computed before it."""

    def turned(x: Any, angles: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            z = lax.complex(row, carry) * snp.exp(lax.complex(angles * 0, angles))
            return carry + z.real, z.imag

        return lax.scan(step, x[0], x)

    x = np.random.default_rng(0).normal(size=(5, 9)).astype(np.float32)
    graph = stax.make_graph(turned)(x, x[1])
    for got, want in zip(stax.jit(turned)(x, x[1]), evaluate(graph, [x, x[1]]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
