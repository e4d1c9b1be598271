"""dot_product_attention, against JAX: values and gradients, with every option."""

from typing import Any

import jax
import numpy as np
import pytest

import stax
from stax import errors
from tests.like_jax import TOLERANCES, assert_like_jax

rng = np.random.default_rng(1)
BIAS = rng.normal(size=(2, 4, 5, 6)).astype(np.float32)
MASK = rng.random((2, 4, 5, 6)) < 0.5
LENGTHS, SOURCES = np.int32([3, 5]), np.int32([6, 2])
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bias": {"bias": BIAS},
    "bias of one head": {"bias": BIAS[:, :1, :1]},
    "bias without batch": {"bias": BIAS[0]},
    "mask": {"mask": MASK},
    "mask of one head": {"mask": MASK[:1, :1]},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "query lengths": {"query_seq_lengths": LENGTHS},
    "source lengths": {"key_value_seq_lengths": SOURCES},
    "window": {"local_window_size": 1},
    "window before": {"local_window_size": (2, 0)},
    "implementation": {"implementation": "xla"},
    "all": {
        "bias": BIAS, "mask": MASK, "is_causal": True, "scale": 0.2, "local_window_size": (3, 3),
        "query_seq_lengths": LENGTHS, "key_value_seq_lengths": SOURCES,
    },
}  # fmt: skip


def operands(groups: int = 2, dtype: str = "float32") -> list[np.ndarray]:
    """A batch of 2, 5 targets, 6 sources, 4 heads of size 4."""
    shapes, rng = [(2, 5, 4, 4), (2, 6, groups, 4), (2, 6, groups, 4)], np.random.default_rng(0)
    return [rng.normal(size=s).astype(jax.numpy.dtype(dtype)) for s in shapes]


@pytest.mark.parametrize("name", OPTIONS)
def test_values_and_gradients(from_jax: Any, name: str) -> None:
    def attention(nn: Any) -> Any:
        return lambda q, k, v: nn.dot_product_attention(q, k, v, **OPTIONS[name])

    def loss(nn: Any) -> Any:
        return lambda q, k, v: (attention(nn)(q, k, v) ** 2).sum()

    given = operands()
    expected = from_jax(lambda: attention(jax.nn)(*given))
    for ours in (attention(stax.nn), stax.jit(attention(stax.nn))):
        assert_like_jax(ours(*given), expected, 3e-6)
    expected = from_jax(lambda: jax.grad(loss(jax.nn), (0, 1, 2))(*given))
    assert_like_jax(stax.jit(stax.grad(loss(stax.nn), (0, 1, 2)))(*given), expected, 3e-5)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_groups_and_dtypes(from_jax: Any, groups: int, dtype: str) -> None:
    given = operands(groups, dtype)
    expected = from_jax(lambda: jax.nn.dot_product_attention(*given))
    assert_like_jax(stax.nn.dot_product_attention(*given), expected, TOLERANCES[dtype])
    ours = stax.jit(stax.nn.dot_product_attention)(*given)
    assert_like_jax(ours, expected, TOLERANCES[dtype])


@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_residual(from_jax: Any, options: Any) -> None:
    given = operands()
    ours = stax.nn.dot_product_attention(*given, return_residual=True, **options)
    options = {"return_residual": True, **options}
    theirs = from_jax(lambda: jax.nn.dot_product_attention(*given, **options))
    assert_like_jax(ours, theirs, 3e-6)


def test_without_batch(from_jax: Any) -> None:
    given = [x[0] for x in operands()]
    ours = stax.nn.dot_product_attention(*given, is_causal=True)
    theirs = from_jax(lambda: jax.nn.dot_product_attention(*given, is_causal=True))
    assert_like_jax(ours, theirs, 3e-6)


@pytest.mark.parametrize(
    "options, kind, rule",
    [
        ({"implementation": "cudnn"}, errors.UnsupportedError, "no implementation 'cudnn'"),
        ({"implementation": "flash"}, ValueError, "no implementation 'flash'"),
        ({"mask": BIAS}, ValueError, "the mask is bool"),
        ({"bias": BIAS[:, :3]}, ValueError, "does not broadcast to heads"),
        ({"query_seq_lengths": np.int32([1])}, ValueError, r"lengths are int32\[2\]"),
    ],
)
def test_mistakes(options: Any, kind: Any, rule: str) -> None:
    with pytest.raises(kind, match=rule):
        stax.nn.dot_product_attention(*operands(), **options)


def test_operands_go_together() -> None:
    query, key, value = operands(3)
    with pytest.raises(ValueError, match="do not go together"):
        stax.nn.dot_product_attention(query, key, value)
