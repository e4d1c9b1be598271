"""vmap against JAX: axes in and out as pytrees, sizes, keywords, nesting."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
from stax.errors import ArgumentError, ArgumentValueError, ShapeError
from stax.trace import bind
from tests.api.test_derivatives import both, same
from tests.effects import Unordered

M = np.arange(12, dtype=np.float32).reshape(3, 4)
CUBE = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("in_axes", [0, 1, 2, -1, -3, (1,), [2]])
@pytest.mark.parametrize("out_axes", [0, 1, -1, -2])
def test_axes(in_axes: Any, out_axes: Any) -> None:
    both(lambda m, n: m.vmap(lambda x: n.sin(x) * 2, in_axes, out_axes)(CUBE))


def test_axes_as_pytrees() -> None:
    args = ({"a": M, "b": (M.T, M)}, M.T)
    in_axes = ({"a": 0, "b": (1, None)}, 1)
    f = lambda p, x: {"y": p["a"] * x + p["b"][0], "z": [p["b"][1].sum(), x]}  # noqa: E731
    for out_axes in (0, {"y": 1, "z": [0, -1]}, {"y": 0, "z": 0}):
        same(stax.vmap(f, in_axes, out_axes)(*args), jax.vmap(f, in_axes, out_axes)(*args))


def test_a_prefix_stands_for_a_subtree() -> None:
    f = lambda p, x: p["a"] * x + p["b"]  # noqa: E731
    args = ({"a": M, "b": M}, M[0])
    for in_axes in ((0, None), ({"a": 0, "b": 0}, None)):
        same(stax.vmap(f, in_axes)(*args), jax.vmap(f, in_axes)(*args))
    same(stax.vmap(f, (None, 0))(*args), jax.vmap(f, (None, 0))(*args))


def test_none_leaves_an_argument_alone() -> None:
    both(lambda m, n: m.vmap(lambda x, y: x @ y, (0, None))(M, M.T))
    both(lambda m, n: m.vmap(lambda x, y: x * y, (0, None), (0))(M[:, 0], 3.0))


def test_keywords_are_mapped_over_axis_0() -> None:
    both(lambda m, n: m.vmap(lambda x, *, y: x + y["k"], in_axes=1)(M.T, y={"k": M}))


def test_results_that_are_not_mapped() -> None:
    both(lambda m, n: m.vmap(lambda x: (x, 3.0, n.arange(2)), out_axes=(0, 0, 1))(M))
    both(lambda m, n: m.vmap(lambda x, y: (x, y), (0, None), (0, None))(M, M))
    with pytest.raises(ArgumentValueError, match="out_axes=None for a result of function"):
        stax.vmap(lambda x: x, out_axes=None)(M)


def test_axis_size() -> None:
    both(lambda m, n: m.vmap(lambda: n.arange(2.0), axis_size=3)())
    both(lambda m, n: m.vmap(lambda x: x * 2, in_axes=None, axis_size=3)(M))
    both(lambda m, n: m.vmap(lambda x: x * 2, axis_size=3)(M))
    with pytest.raises(ShapeError, match="differ from axis_size=4"):
        stax.vmap(lambda x: x, axis_size=4)(M)
    with pytest.raises(ArgumentValueError, match="no argument is mapped"):
        stax.vmap(lambda x: x, in_axes=None)(M)


def test_an_axis_of_length_0_or_1() -> None:
    both(lambda m, n: m.vmap(lambda x: n.sin(x).sum())(M[:0]))
    both(lambda m, n: m.vmap(lambda x: n.sin(x).sum())(M[:1]))


def test_sizes_must_agree() -> None:
    with pytest.raises(ShapeError) as caught:
        stax.vmap(lambda x, y: x)(M, M.T)
    assert "sizes of mapped axes differ" in caught.value.rule
    assert [row[0] for row in caught.value.values] == ["x", "y"]


@pytest.mark.parametrize(
    ("in_axes", "error"),
    [
        ((0, 0), ArgumentValueError),
        ("0", ArgumentError),
        ({"x": 0}, ArgumentError),
        (2, ShapeError),
        (-3, ShapeError),
        (({"a": 0},), (TypeError, ValueError)),
    ],
)
def test_wrong_in_axes(in_axes: Any, error: Any) -> None:
    with pytest.raises(error):
        stax.vmap(lambda x: x, in_axes)(M)


def test_wrong_out_axes() -> None:
    with pytest.raises(ShapeError):
        stax.vmap(lambda x: x, out_axes=2)(M)
    with pytest.raises((TypeError, ValueError)):
        stax.vmap(lambda x: x, out_axes=(0, 0))(M)


def test_nesting() -> None:
    both(lambda m, n: m.vmap(m.vmap(lambda x, y: x * y, (0, None)), (None, 0))(M[0], M[:, 0]))
    both(lambda m, n: m.vmap(m.vmap(lambda x: x.sum(), 1), 2, 1)(CUBE))
    both(lambda m, n: m.vmap(m.jit(m.vmap(m.grad(lambda x: n.sin(x) * x))))(M))
    both(lambda m, n: m.jit(m.vmap(m.jit(lambda x: x @ x)))(M))
    both(lambda m, n: m.grad(lambda x: m.vmap(lambda r: n.tanh(r).sum())(x).sum())(M))


def test_the_name_of_the_axis_reaches_the_rules() -> None:
    seen = []

    class Size(Unordered):
        def names_axis(self, axis_name: Any) -> bool:
            return axis_name == "i"

        def batch(self, batch: Any, flags: Any, *inputs: Any) -> Any:
            seen.append(tuple(batch))
            return inputs[0]  # without an op that the outer vmap would see

    named = lambda x: bind(Size("size"), x)  # noqa: E731
    stax.vmap(named, axis_name="i")(M)
    stax.vmap(stax.vmap(named), axis_name="i", axis_size=3)(CUBE.swapaxes(0, 1))
    assert seen == [(3, "i"), (2, None)]


def test_closures_are_not_mapped() -> None:
    both(lambda m, n: m.vmap(lambda x: m.vmap(lambda y: x * y)(M[0]))(M[:, 0]))
    both(lambda m, n: m.jit(lambda w: m.vmap(lambda x: x @ w)(M))(M.T))


def test_name_is_kept() -> None:
    def f(x: Any) -> Any:
        """Documented."""
        return x

    assert stax.vmap(f).__name__ == "f"
    assert stax.vmap(f).__doc__ == "Documented."
    assert stax.vmap(f).__wrapped__ is f


def test_weak_types() -> None:
    for m in (stax, jax):
        assert m.vmap(lambda x: 2.0, axis_size=2, in_axes=None)(1.0).weak_type


def test_structured_results_and_no_results() -> None:
    both(lambda m, n: m.vmap(lambda x: None)(M))
    both(lambda m, n: m.vmap(lambda x: ({"a": x}, [x, None]))(M))


def test_out_axes_that_do_not_fit_the_result() -> None:
    with pytest.raises(ValueError, match=r"vmap: out_axes, \(0, 1\), does not go with"):
        stax.vmap(lambda x: x, out_axes=(0, 1))(np.ones(3))
