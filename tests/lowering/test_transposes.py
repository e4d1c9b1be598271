"""Transposes around a computation: they are gone where another one undoes them."""

from typing import Any

import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax.lowering.prepare import prepare
from tests.lowering.examples import normal

UNDONE: dict[str, Any] = {
    "stencil": lambda x, v: (x.T[:-2] + 2 * x.T[1:-1] + x.T[2:]).T,
    "bias": lambda x, v: (x.T * 2 + v[:, None]).T,
    "constant": lambda x, v: snp.maximum(x.T, 0.0).T,
    "permutation and back": lambda x, v: (x[None].transpose(2, 0, 1) + 1).transpose(1, 2, 0),
    "sum of rows": lambda x, v: x.T.sum(0),
    "sum of columns": lambda x, v: x.T.max(1),
}
KEPT: dict[str, Any] = {
    "one transpose": lambda x, v: x.T + 1,
    "used elsewhere": lambda x, v: snp.tanh(x.T).T + snp.tanh(x.T).sum(),
}


def compiled(f: Any, *args: np.ndarray) -> np.ndarray:
    return np.asarray(stax.jit(f)(*args))


@pytest.mark.parametrize("name", UNDONE)
def test_undone(name: str) -> None:
    x, v = normal(40, 30), normal(30, seed=1)
    graph = prepare(stax.make_graph(UNDONE[name])(x, v))
    assert not any(n.op.name == "transpose" for n in graph.nodes)
    want = np.asarray(UNDONE[name](snp.array(x), snp.array(v)))
    np.testing.assert_allclose(compiled(UNDONE[name], x, v), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_kept(name: str) -> None:
    x, v = normal(40, 30), normal(30, seed=1)
    want = np.asarray(KEPT[name](snp.array(x), snp.array(v)))
    np.testing.assert_allclose(compiled(KEPT[name], x, v), want, rtol=1e-5, atol=1e-4)


PRODUCTS: dict[str, Any] = {
    "matrices": lambda x, v: (x.T @ x).T,
    "gradient in weights": lambda x, v: stax.grad(lambda w: (snp.tanh(x @ w) ** 2).sum())(x.T),
    "batched": lambda x, v: (x.reshape(4, 10, 30) @ x.reshape(4, 30, 10)).swapaxes(1, 2),
    "several axes": lambda x, v: snp.einsum("abc,dc->dab", x.reshape(4, 10, 30), x),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_transposes_of_products(name: str) -> None:
    x, v = normal(40, 30), normal(30, seed=1)
    graph = prepare(stax.make_graph(PRODUCTS[name])(x, v))
    outputs = [x.inputs[0] if x.op.name == "copy" else x for x in graph.outputs]
    assert [x.op.name for x in outputs] == ["dot_general"]
    want = np.asarray(PRODUCTS[name](snp.array(x), snp.array(v)))
    np.testing.assert_allclose(compiled(PRODUCTS[name], x, v), want, rtol=1e-4, atol=1e-4)
