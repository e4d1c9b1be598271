"""`call`, the op that holds a graph: every rule, and every nesting of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.control import Call, call
from stax.errors import ShapeError
from stax.graph import Graph
from stax.interpreters.jvp import jvp
from stax.interpreters.linearize import linearize
from stax.types import ArrayType, TupleType

Function = Callable[..., Any]
X = np.linspace(-1, 1, 4, dtype=np.float32)
Y = np.linspace(2, 3, 4, dtype=np.float32)


def body(x: Any, y: Any) -> tuple[Any, Any]:
    return snp.sin(x) * y + x**2, x * y


def graph_of(f: Function, *args: Any) -> Graph:
    return stax.make_graph(f)(*args)


def plain(x: Any, y: Any) -> Any:
    a, b = body(x, y)
    return a * b + y


def called(x: Any, y: Any) -> Any:
    a, b = call(graph_of(body, X, Y), x, y)
    return a * b + y


def nested(x: Any, y: Any) -> Any:
    """A call of a graph that calls."""
    return call(graph_of(called, X, Y), x, y)[0]


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "evaluate": lambda f: f,
    "jit": stax.jit,
    "grad": lambda f: stax.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1)),
    "jit-grad": lambda f: stax.jit(stax.grad(lambda x, y: f(x, y).sum(), argnums=(0, 1))),
    "grad-of-one": lambda f: stax.grad(lambda x, y: f(x, y).sum(), argnums=1),
    "jvp": lambda f: lambda x, y: stax.jvp(f, (x, y), (y, x)),
    "jvp-of-one": lambda f: lambda x, y: stax.jvp(lambda v: f(v, y), (x,), (y,)),
    "linearize": lambda f: lambda x, y: stax.linearize(f, x, y)[1](y, x),
    "vjp": lambda f: lambda x, y: stax.vjp(f, x, y)[1](x),
    "hessian": lambda f: stax.hessian(lambda x, y: f(x, y).sum()),
    "jacfwd-jacfwd": lambda f: stax.jacfwd(stax.jacfwd(f)),
    "jacrev-jacrev": lambda f: stax.jacrev(stax.jacrev(f)),
    "jacrev-jacfwd": lambda f: stax.jacrev(stax.jacfwd(f, argnums=1)),
    "jit-hessian": lambda f: stax.jit(stax.hessian(lambda x, y: f(x, y).sum())),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("function", [called, nested])
def test_a_call_is_what_it_holds(function: Function, transform: str) -> None:
    ours = stax.tree.leaves(TRANSFORMS[transform](function)(X, Y))
    theirs = stax.tree.leaves(TRANSFORMS[transform](plain)(X, Y))
    for a, b in zip(ours, theirs, strict=True):
        assert (a.dtype, a.shape, a.weak_type) == (b.dtype, b.shape, b.weak_type)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("in_axes", [(0, 0), (0, None), (None, 1)])
@pytest.mark.parametrize("function", [called, nested])
def test_vmap_of_a_call(function: Function, in_axes: Any) -> None:
    batch = np.stack([X, 2 * X, 3 * X])
    args = [X if a is None else np.moveaxis(batch, 0, a) for a in in_axes]
    for wrap in (lambda f: f, lambda f: stax.grad(lambda x, y: f(x, y).sum()), stax.jit):
        ours = stax.vmap(wrap(function), in_axes)(*args)
        np.testing.assert_allclose(ours, stax.vmap(wrap(plain), in_axes)(*args), rtol=1e-5)


def test_the_call_stays_a_node() -> None:
    graph = graph_of(called, X, Y)
    (node,) = [n for n in graph.nodes if isinstance(n.op, Call)]
    assert isinstance(node.type, TupleType)
    assert [n.op.position for n in graph.nodes if n.op.name == "project"] == [0, 1]


def test_forward_mode_keeps_one_joint_call() -> None:
    graph, _ = jvp(graph_of(called, X, Y), [True, True])
    (node,) = [n for n in graph.nodes if isinstance(n.op, Call)]
    assert len(node.op.graph.outputs) == 4


def test_reverse_mode_splits_the_call() -> None:
    """The primal call returns residuals; the linear call reads them and computes no primal."""
    primal, linear, _ = linearize(graph_of(called, X, Y), [True, True])
    (known,) = [n.op for n in primal.nodes if isinstance(n.op, Call)]
    (unknown,) = [n.op for n in linear.nodes if isinstance(n.op, Call)]
    assert len(known.graph.outputs) > 2
    names = {n.op.name for n in unknown.graph.nodes}
    assert "sin" not in names
    assert "cos" not in names


def test_unused_tangents_are_not_computed() -> None:
    def f(x: Any) -> Any:
        return call(graph_of(lambda x: (snp.sin(x), snp.floor(x)), X), x)

    graph, has_tangent = jvp(graph_of(f, X), [True])
    (node,) = [n for n in graph.nodes if isinstance(n.op, Call)]
    assert len(node.op.graph.outputs) == 2 + sum(has_tangent)


def test_integer_results_of_a_call() -> None:
    def f(x: Any) -> Any:
        y, i = call(graph_of(lambda x: (x * 2, snp.argmax(x)), X), x)
        return y[i] * 3

    np.testing.assert_array_equal(stax.grad(f)(X), [0, 0, 0, 6])
    np.testing.assert_array_equal(stax.jit(stax.grad(f))(X), [0, 0, 0, 6])


def test_a_call_without_results_or_arguments() -> None:
    assert call(graph_of(lambda: ())) == ()
    (two,) = call(graph_of(lambda: 2.0))
    assert float(two) == 2
    assert float(stax.jit(lambda: call(graph_of(lambda: 2.0))[0])()) == 2


def test_outputs_that_are_inputs() -> None:
    swap = graph_of(lambda x, y: (y, x, x), X, Y)
    f = lambda x, y: call(swap, x, y)  # noqa: E731
    for run in (f, stax.jit(f)):
        for a, b in zip(run(X, Y), (Y, X, X), strict=True):
            np.testing.assert_array_equal(a, b)
    cts = stax.vjp(f, X, Y)[1]((X, Y, Y))
    np.testing.assert_array_equal(cts[0], 2 * Y)
    np.testing.assert_array_equal(cts[1], X)


def test_weak_arguments_are_accepted() -> None:
    graph = graph_of(lambda x: x * 2, np.float32(1))
    assert call(graph, 3.0)[0].dtype == np.float32


def test_wrong_arguments() -> None:
    graph = graph_of(body, X, Y)
    with pytest.raises(ShapeError, match="body takes 2 arguments, got 1"):
        call(graph, X)
    with pytest.raises(ShapeError, match=r"body takes f32\[4\], got f32\[3\]"):
        call(graph, X, Y[:3])
    with pytest.raises(ShapeError, match=r"body takes f32\[4\], got i32\[4\]"):
        call(graph, X, np.arange(4))


def test_type_of_a_call() -> None:
    graph = graph_of(body, X, Y)
    type_ = ArrayType(np.dtype("float32"), (4,))
    assert Call(graph).abstract_eval(type_, type_) == TupleType([type_, type_])
