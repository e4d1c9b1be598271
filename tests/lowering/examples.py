"""The functions whose kernels are kept as golden texts, and what the steps of a program do."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import stax
import stax.numpy as snp
from stax.graph import Graph, Node
from stax.lowering.fuse import Fusion, fuse
from stax.lowering.host import HostStep
from stax.lowering.lapack import LapackStep
from stax.lowering.pipeline import lower_graph
from stax.lowering.prepare import prepare
from stax.lowering.program import KernelStep, Program, Step
from stax.lowering.sorting import SortStep


def softmax(x: Any) -> Any:
    e = snp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x: Any, scale: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / snp.sqrt(variance + 1e-5) * scale + bias


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + snp.tanh(0.7978846 * (x + 0.044715 * x**3)))


def statistics(x: Any) -> Any:
    return x.mean(0), x.var(0), x.max(0)


def loss(w: Any, x: Any, y: Any) -> Any:
    return ((snp.tanh(x @ w) - y) ** 2).sum()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# The function, its arguments, and how many kernels and library calls it becomes.
EXAMPLES: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...], int, int]] = {
    "chain": (lambda x, y: snp.sin(x) * y + snp.exp(-x) / 2, (normal(8, 100), normal(100)), 1, 0),
    "softmax": (softmax, (normal(16, 300),), 1, 0),
    "layer_norm": (layer_norm, (normal(16, 300), normal(300), normal(300)), 1, 0),
    "layer_norm_gradient": (
        stax.grad(lambda *args: (layer_norm(*args) ** 2).sum(), argnums=(0, 1, 2)),
        (normal(64, 128), normal(128), normal(128)), 2, 0,
    ),
    "column_statistics": (statistics, (normal(200, 96),), 1, 0),
    "gelu_gradient": (stax.grad(lambda x: gelu(x).sum()), (normal(4096),), 1, 0),
    "per_example_gradients": (
        stax.vmap(stax.grad(loss), (None, 0, 0)), (normal(16, 4), normal(32, 16), normal(32, 4)),
        2, 0,
    ),
    "matmul": (
        lambda x, w, b: snp.maximum(x @ w + b, 0), (normal(64, 64), normal(64, 64), normal(64)),
        1, 1,
    ),
}  # fmt: skip


def graph_of(name: str, arguments: Sequence[np.ndarray] = ()) -> Graph:
    """Return the graph of an example, for its own arguments or for others."""
    function, args, _, _ = EXAMPLES[name]
    return stax.make_graph(function)(*(arguments or args))


def program_of(name: str) -> Program:
    return lower_graph(graph_of(name))


def fusion_of(function: Callable[..., Any], *args: Any) -> Fusion:
    return fuse(prepare(stax.make_graph(function)(*args)))


def writes(step: Step) -> list[Node]:
    """Return the values that a step puts into memory."""
    if isinstance(step, KernelStep):
        kernel = step.built.kernel
        pairs = zip(kernel.params, step.built.values, strict=True)
        return [node for buffer, node in pairs if buffer.name in kernel.outputs]
    several = isinstance(step, SortStep | LapackStep | HostStep)
    return [n for _, n in step.results] if several else [step.node]


def reads(step: Step) -> list[Node]:
    """Return the values that a step takes from memory, some of which it may write as well."""
    written = set(writes(step))
    return [n for n in step.reads_and_writes if n not in written]
