"""Tracing: captures, values on demand, what ends with a trace, threads."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import types
from stax.api.tracing import flatten_arguments, trace_function
from stax.errors import (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)
from stax.extent import symbol
from stax.graph import Constant, Length
from stax.operators.elementwise import sin
from stax.trace import Proxy, Trace, bind, current_trace, type_of
from stax.types import ArrayType
from tests.effects import LOG, Unordered

VECTOR = ArrayType(types.float32, (3,))


def new_trace() -> Trace:
    return Trace("f", "test")


# --- captures ---


def test_arrays_become_trailing_inputs_once() -> None:
    w = snp.arange(3.0)
    with new_trace() as trace:
        x = trace.input(VECTOR, "x")
        graph = trace.finish([x * w + w])
    assert len(graph.inputs) == 2
    assert trace.captures == [w]


def test_equal_arrays_are_separate_captures() -> None:
    v, w = snp.arange(3.0), snp.arange(3.0)
    with new_trace() as trace:
        trace.finish([trace.input(VECTOR) * v + w])
    assert len(trace.captures) == 2


def test_numpy_arrays_are_captured() -> None:
    with new_trace() as trace:
        y = trace.input(VECTOR) + np.ones(3)
        trace.finish([y])
    assert y.dtype == np.float32
    assert len(trace.captures) == 1


def test_numbers_are_constants() -> None:
    with new_trace() as trace:
        graph = trace.finish([trace.input(VECTOR) + 2.5, trace.node(np.float64(3)) and 1.0])
    assert trace.captures == []
    assert all(isinstance(n.op, Constant) for n in graph.nodes if not n.inputs)


def test_extents_are_weak_integers() -> None:
    with new_trace() as trace:
        node = trace.node(symbol("n"))
    assert isinstance(node.op, Length)
    assert node.type is ArrayType(types.int32, (), True)


def test_a_proxy_of_an_enclosing_trace_is_captured() -> None:
    with new_trace() as outer:
        y = sin(outer.input(VECTOR))
        with new_trace() as inner:
            graph = inner.finish([inner.input(VECTOR) * y])
        assert inner.captures == [y]
        assert len(graph.inputs) == 2
        assert outer.captures == []


def test_captures_through_several_traces() -> None:
    """What only the innermost trace uses arrives there when graphs are inlined, trace by trace."""
    w = snp.full(3, 2.0)

    def f(x: Any) -> Any:
        return stax.grad(lambda y: stax.grad(lambda z: snp.sum(w * x * y * z**3))(y).sum())(x)

    x = snp.asarray([1.0, 2.0, 3.0])
    # The innermost gradient is 6 x y^3, that of its sum in y 18 x y^2, taken at y = x.
    np.testing.assert_allclose(stax.jit(f)(x), f(x))
    np.testing.assert_allclose(f(x), [18 * v**3 for v in (1.0, 2.0, 3.0)])


def test_perturbations_are_not_confused() -> None:
    """The classic: d/dx [x * d/dy (x + y)] is 1, not 2."""
    f = lambda x: x * stax.grad(lambda y: x + y)(1.0)  # noqa: E731
    assert float(stax.grad(f)(1.0)) == 1
    assert float(stax.jit(stax.grad(f))(1.0)) == 1
    assert float(stax.jvp(f, (1.0,), (1.0,))[1]) == 1


def test_captures_are_hidden_arguments_of_transforms() -> None:
    w = snp.asarray([1.0, 2.0, 3.0])
    assert stax.grad(lambda x: snp.dot(x, w))(w).tolist() == [1, 2, 3]
    assert stax.vmap(lambda x: x * w)(snp.ones((2, 3))).tolist() == [[1, 2, 3]] * 2


# --- values on demand ---


def branches(x: Any) -> Any:
    return x * 2 if x > 0 else x * 3


def test_eager_grad_knows_values() -> None:
    assert float(stax.grad(branches)(1.0)) == 2
    assert float(stax.grad(branches)(-1.0)) == 3
    assert float(stax.value_and_grad(branches)(-1.0)[0]) == -3


@pytest.mark.parametrize(
    "convert",
    [float, int, bool, complex, np.asarray, lambda x: x.item(), lambda x: x.tolist()],
    ids=["float", "int", "bool", "complex", "numpy", "item", "tolist"],
)
def test_values_of_intermediate_results(convert: Callable[[Any], Any]) -> None:
    seen = []

    def f(x: Any) -> Any:
        y = x * 2 + 1
        seen.append(convert(stax.lax.stop_gradient(y)))
        return y

    for transform in (stax.grad(f), lambda x: stax.jvp(f, (x,), (x,)), lambda x: stax.vjp(f, x)):
        transform(3.0)
    assert seen == [convert(np.float32(7))] * 3


@pytest.mark.parametrize(
    "leave",
    [
        float,
        complex,
        np.asarray,
        np.sin,
        lambda x: x.item(),
        lambda x: x.tolist(),
        lambda x: snp.asarray(np.asarray(x * 2)),
        lambda x: stax.grad(lambda y: y * float(x))(1.0),
        lambda x: stax.vmap(lambda y: y * float(x))(snp.ones(2)).sum(),
    ],
)
@pytest.mark.parametrize(
    "transform",
    [
        stax.grad,
        lambda f: lambda x: stax.jvp(f, (x,), (x,)),
        lambda f: lambda x: stax.vjp(f, x),
        lambda f: lambda x: stax.linearize(f, x),
        stax.jacrev,
        stax.hessian,
    ],
)
def test_a_derivative_is_never_lost(leave: Any, transform: Any) -> None:
    """A number that leaves the trace would count as a constant, and the gradient be wrong."""
    with pytest.raises((ConcretizationTypeError, TracerArrayConversionError), match="derivative"):
        transform(lambda x: x * leave(x))(2.0)


def test_what_has_no_derivative_may_leave() -> None:
    assert float(stax.grad(lambda x, y: x * float(y))(2.0, 3.0)) == 3
    assert float(stax.grad(lambda x: x * int(x))(3.0)) == 3
    assert float(stax.grad(lambda x: x * float(x > 1))(3.0)) == 1
    assert float(stax.grad(lambda x: x * float(stax.lax.stop_gradient(x)))(3.0)) == 3


def test_index_by_a_known_value() -> None:
    def f(x: Any, i: Any) -> Any:
        return x * [1.0, 2.0, 3.0][i] + sum(1 for _ in range(i + 1))

    assert float(stax.grad(f)(1.0, 2)) == 3


def test_nested_eager_grad_knows_values() -> None:
    def f(x: Any) -> Any:
        return stax.grad(lambda y: y**2 if x > y - 1 else y**3)(x)

    assert float(stax.grad(f)(2.0)) == 2


def test_unmapped_values_under_eager_vmap() -> None:
    def f(x: Any, scale: Any) -> Any:
        return x * 2 if scale > 1 else x

    mapped = stax.vmap(f, in_axes=(0, None))
    assert mapped(snp.ones(2), 3.0).tolist() == [2, 2]
    assert mapped(snp.ones(2), 0.0).tolist() == [1, 1]
    with pytest.raises(TracerBoolConversionError, match="a mapped array"):
        stax.vmap(branches)(snp.ones(2))


def test_values_under_grad_of_vmap_and_vmap_of_grad() -> None:
    x = snp.ones(2)
    f = lambda x, s: stax.vmap(lambda y: y * x.sum() if s > 0 else y)(x).sum()  # noqa: E731
    assert stax.grad(f)(x, 1.0).tolist() == [4, 4]
    with pytest.raises(TracerBoolConversionError):
        stax.vmap(stax.grad(branches))(x)


def test_values_are_computed_once() -> None:
    LOG.clear()

    def f(x: Any) -> Any:
        y = bind(Unordered("u"), x * 2)
        assert int(y) == int(y)
        assert int(y + 1) == int(y) + 1
        assert LOG == ["u"]
        return y

    stax.vjp(f, 1.0)


def test_array_values_are_those_of_numpy() -> None:
    def f(x: Any) -> Any:
        assert np.asarray(stax.lax.stop_gradient(x * 2)).tolist() == [2, 4]
        assert isinstance(x, stax.Array)
        return x.sum()

    stax.grad(f)(snp.asarray([1.0, 2.0]))


def test_a_concretised_trace_is_not_cached() -> None:
    """A jitted function that is traced inside an eager grad asks for no values; its own may."""

    def traced(f: Any) -> Any:
        return trace_function(
            f, flatten_arguments("t", (1.0,), {}), "grad", values=[snp.float32(1)]
        )

    assert traced(lambda x: x * 2).cacheable
    assert not traced(branches).cacheable
    assert not traced(lambda x: x * float(x)).cacheable


def test_jit_has_no_values() -> None:
    for f, error in (
        (branches, TracerBoolConversionError),
        (float, ConcretizationTypeError),
        (int, ConcretizationTypeError),
        (lambda x: range(x), TracerIntegerConversionError),
        (np.asarray, TracerArrayConversionError),
        (lambda x: x.item(), ConcretizationTypeError),
    ):
        argument = 1 if error is TracerIntegerConversionError else 1.0
        with pytest.raises(error):
            stax.jit(f)(argument)
        with pytest.raises(error):
            stax.jit(lambda x: stax.grad(lambda y: f(x) or y)(1.0))(argument)  # noqa: B023
    with pytest.raises(TracerBoolConversionError):
        stax.grad(stax.jit(branches))(1.0)


def test_jit_of_grad_leaves_no_values_behind() -> None:
    f = stax.jit(lambda x: x * 2)
    assert float(stax.grad(f)(1.0)) == 2
    assert len(f.variants()) == 1
    assert float(f(3.0)) == 6
    assert len(f.variants()) == 1


# --- the end of a trace ---


def leaked(transform: Callable[..., Any]) -> Any:
    kept = []
    transform(lambda x: kept.append(x) or x * 1.0)(1.0)
    return kept[0]


@pytest.mark.parametrize("transform", [stax.jit, stax.grad, stax.make_graph])
@pytest.mark.parametrize(
    "use",
    [lambda x: x + 1, float, bool, np.asarray, lambda x: stax.jit(lambda y: x * y)(1.0)],
    ids=["op", "float", "bool", "numpy", "capture"],
)
def test_escaped_proxies(transform: Any, use: Any) -> None:
    with pytest.raises(UnexpectedTracerError, match="after the trace"):
        use(leaked(transform))


def test_a_proxy_of_an_inner_trace_is_refused_outside_of_it() -> None:
    def f(x: Any) -> Any:
        kept = []
        stax.grad(lambda y: kept.append(y) or y * x)(x)
        return kept[0] * 2

    with pytest.raises(UnexpectedTracerError):
        stax.jit(f)(1.0)


def test_a_sibling_trace_is_refused() -> None:
    with new_trace() as first:
        x = first.input(VECTOR)
    with new_trace() as second, pytest.raises(UnexpectedTracerError):
        second.finish([x])


@pytest.mark.parametrize(
    "transform", [stax.jit, stax.grad, stax.vmap, stax.make_graph, stax.jacfwd]
)
def test_an_exception_restores_the_current_trace(transform: Any) -> None:
    def f(x: Any) -> Any:
        assert current_trace() is not None
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        transform(f)(snp.ones(2))
    assert current_trace() is None
    assert float(snp.float32(1) + 1) == 2


# --- threads ---


def test_threads_trace_at_once() -> None:
    """Both are inside their trace when either goes on, and neither sees the other's."""
    meet, graphs = threading.Barrier(2), dict[str, Any]()

    def work(name: str) -> None:
        def f(x: Any) -> Any:
            y = x * 2
            meet.wait(timeout=20)
            y = y + 1
            meet.wait(timeout=20)
            return snp.sin(y) if name == "a" else y

        graphs[name] = stax.make_graph(f)(1.0)

    threads = [threading.Thread(target=work, args=(n,)) for n in "ab"]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    ops = {name: [n.op.name for n in g.nodes if n.inputs] for name, g in graphs.items()}
    assert ops == {"a": ["mul", "add", "sin"], "b": ["mul", "add"]}


def test_a_new_thread_is_outside_of_any_trace() -> None:
    seen = []

    def f(x: Any) -> Any:
        thread = threading.Thread(target=lambda: seen.append((current_trace(), snp.ones(2) + 1)))
        thread.start()
        thread.join()
        return x

    stax.make_graph(f)(1.0)
    assert seen[0][0] is None
    assert type(seen[0][1]) is not Proxy


# --- proxies ---


def test_what_a_proxy_says_of_itself() -> None:
    with new_trace() as trace:
        x = trace.input(ArrayType(types.float32, (2, 3), True), "x")
        assert (x.shape, x.ndim, x.size, x.dtype) == ((2, 3), 2, 6, np.float32)
        assert x.weak_type
        assert x.aval is x.type
        assert type_of(x) is x.type
        assert repr(x) == "<traced f32[2,3]~ in test>"
        assert isinstance(x, stax.Array)
        with pytest.raises(TypeError, match="not hashable"):
            hash(x)
