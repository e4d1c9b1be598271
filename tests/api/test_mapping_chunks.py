"""vmap(chunk=): the results of vmap, from a loop that takes some elements at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import lax
from stax.errors import ArgumentValueError
from tests.api.test_derivatives import same

M = np.linspace(-1, 1, 35, dtype=np.float32).reshape(7, 5)
W = np.linspace(0.1, 0.5, 5, dtype=np.float32)
CHUNKS = [1, 2, 3, 7, 10]
CASES: dict[str, tuple[Any, dict[str, Any], tuple[Any, ...]]] = {
    "one argument": (lambda x: snp.sin(x) * 2, {}, (M,)),
    "axes": (lambda x, w: {"y": x * w, "s": x.sum()}, {"in_axes": (1, None)}, (M.T, W)),
    "prefix": (
        lambda p, w: (p["a"] * w[0], p["b"][0]),
        {"in_axes": ({"a": 0, "b": (0, None)}, None), "out_axes": (-1, 0)},
        ({"a": M, "b": (M[:, 0], M)}, W),
    ),
    "results not mapped": (
        lambda x, w: (x, w, 3.0, snp.arange(2)),
        {"in_axes": (0, None), "out_axes": (0, None, 0, 1)},
        (M, W),
    ),
    "integers": (lambda x: (x > 0, snp.argsort(x)), {}, (M,)),
    "axis_size": (lambda x: x * 2, {"in_axes": None, "axis_size": 7}, (M,)),
    "captures": (lambda x: x @ W + M[0], {}, (M,)),
    "a number": (lambda x, s: x * s, {"in_axes": (0, None)}, (M, 2.0)),
    "loop inside": (
        lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 1.5 + 1, x),
        {},
        (M,),
    ),
    "keys": (
        lambda k: stax.random.split(k, 2),
        {},
        (stax.random.split(stax.random.key(0), 7),),
    ),
}


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_vmap(case: str, chunk: int) -> None:
    f, axes, args = CASES[case]
    wanted = stax.vmap(f, **axes)(*args)
    ours = stax.vmap(f, **axes, chunk=chunk)
    if case == "keys":
        wanted, found = map(stax.random.key_data, (wanted, ours(*args)))
        np.testing.assert_array_equal(found, wanted)
        return
    same(ours(*args), wanted)
    same(stax.jit(ours)(*args), wanted)


@pytest.mark.parametrize("chunk", [2, 7])
def test_keywords_and_nesting(chunk: int) -> None:
    def f(x: Any, *, y: Any) -> Any:
        return snp.tanh(x) * y["k"] + W

    wanted = stax.vmap(f)(M, y={"k": M})
    same(stax.vmap(f, chunk=chunk)(M, y={"k": M}), wanted)
    both = stax.vmap(stax.vmap(lambda x: x * 2, chunk=2), chunk=chunk)
    same(both(M), M * 2)


DERIVATIVES: dict[str, tuple[Any, Any]] = {
    "grad": (lambda f: stax.grad(f, (0, 1)), W),
    "jvp": (lambda f: lambda x, w: stax.jvp(f, (x, w), (x, w)), W),
    "hessian": (lambda f: stax.hessian(f, 1), W),
    "vmap of grad": (lambda f: stax.vmap(stax.grad(f, 1), (None, 0)), np.stack([W, 2 * W])),
}


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("kind", DERIVATIVES)
def test_derivatives(kind: str, chunk: int) -> None:
    def loss(x: Any, w: Any, chunk: int | None) -> Any:
        f = lambda row: snp.tanh(row @ w) * row[0]  # noqa: E731
        return stax.vmap(f, chunk=chunk)(x).sum()

    transform, weights = DERIVATIVES[kind]
    wanted = stax.tree.leaves(transform(lambda x, w: loss(x, w, None))(M, weights))
    ours = transform(lambda x, w: loss(x, w, chunk))
    for found in (ours(M, weights), stax.jit(ours)(M, weights)):
        for a, b in zip(stax.tree.leaves(found), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_memory_is_bounded() -> None:
    def row(x: Any) -> Any:
        return snp.linalg.norm(snp.cumsum(x[:, None] * x[None, :], 0) @ x)

    def temporary(chunk: int | None) -> int:
        compiled = stax.jit(stax.vmap(stax.grad(row), chunk=chunk)).lower(many).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    many = snp.ones((256, 64))
    assert temporary(8) < temporary(None) / 10


def test_one_trace_serves_all_chunks() -> None:
    traced = []
    stax.vmap(lambda x: traced.append(x), chunk=2)(M)
    assert len(traced) == 1


def test_a_collective_needs_the_whole_axis() -> None:
    with pytest.raises(ArgumentValueError, match="chunk=2 cannot be given with axis_name='i'"):
        stax.vmap(lambda x: x, axis_name="i", chunk=2)


@pytest.mark.parametrize("chunk", [0, -3])
def test_a_chunk_has_elements(chunk: int) -> None:
    with pytest.raises(ArgumentValueError, match="chunk is at least 1"):
        stax.vmap(lambda x: x, chunk=chunk)
    with pytest.raises(TypeError):
        stax.vmap(lambda x: x, chunk=2.0)  # type: ignore[arg-type]
