"""checkpoint: values like those without it, and what is kept and computed again."""

from collections.abc import Callable
from typing import Any

import jax
import jax.ad_checkpoint
import jax.numpy as jnp
import numpy as np
import pytest

import stax
import stax.numpy as snp
from stax import checkpoint_policies as policies, errors
from stax.ad_checkpoint import checkpoint_name
from stax.interpreters.linearize import linearize

X = np.linspace(0.1, 1, 5, dtype=np.float32)
NAMES = ("everything_saveable", "nothing_saveable", "dots_saveable")


def layers(J: Any, N: Any, policy: Any, name: Any) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        def layer(c: Any) -> Any:
            inner = name(N.exp(N.sin(c) * x), "inner")
            return N.tanh(inner * c)

        once = J.checkpoint(layer, policy=policy)
        return once(once(x))

    return f


def run(kind: str, J: Any, N: Any, f: Callable[[Any], Any]) -> Any:
    total = lambda x: N.sum(f(x) * x)  # noqa: E731
    match kind:
        case "grad":
            return J.grad(total)(X)
        case "jit of grad":
            return J.jit(J.grad(total))(X)
        case "vmap of grad":
            return J.vmap(J.grad(total))(np.stack([X, X * 2]))
        case "of a loop":
            loop = J.checkpoint(lambda x: J.lax.fori_loop(0, 3, lambda i, c: N.sin(c) * x, x))
            return J.grad(lambda x: N.sum(loop(x) * f(x)))(X)
        case "in a scan":
            step = lambda c, a: (f(c * a), None)  # noqa: E731
            return J.grad(lambda x: N.sum(J.lax.scan(step, x, X)[0]))(X)
    return J.hessian(total)(X)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "kind", ["grad", "jit of grad", "vmap of grad", "in a scan", "of a loop", "hessian"]
)
@pytest.mark.parametrize("name", NAMES)
def test_like_jax(name: str, kind: str) -> None:
    ours = layers(stax, snp, getattr(policies, name), checkpoint_name)
    theirs = layers(
        jax, jnp, getattr(jax.checkpoint_policies, name), jax.ad_checkpoint.checkpoint_name
    )
    np.testing.assert_allclose(
        run(kind, stax, snp, ours), run(kind, jax, jnp, theirs), rtol=3e-5, atol=2e-6
    )


def exps(policy: Any) -> tuple[int, int]:
    """Return how many results there are to keep, and how often exp is computed again."""
    graph = stax.make_graph(layers(stax, snp, policy, checkpoint_name))(X)
    primal, linear, _ = linearize(graph, [True])
    inner = [n.op.graph.nodes for n in linear.nodes if hasattr(n.op, "graph")]
    again = sum(n.op.name == "exp" for nodes in inner for n in nodes)
    return len(primal.outputs), again


def test_what_is_kept() -> None:
    assert exps(policies.nothing_saveable)[1] == 2
    assert exps(policies.everything_saveable)[1] == 0
    assert exps(policies.save_only_these_names("inner"))[1] == 0
    assert exps(policies.save_only_these_names("other"))[1] == 2
    assert exps(policies.save_any_names_but_these("inner"))[1] == 2
    kept, again = exps(policies.save_anything_except_these_names("inner"))
    assert again == 0
    assert kept > exps(policies.nothing_saveable)[0]
    both = policies.save_from_both_policies(
        policies.dots_saveable, policies.save_only_these_names("inner")
    )
    assert exps(both)[1] == 0


def test_products_are_kept_by_their_policies() -> None:
    w = np.eye(5, dtype=np.float32)
    f = lambda policy: stax.checkpoint(lambda x: snp.tanh(snp.sin(x) @ w), policy=policy)  # noqa: E731

    def products(policy: Any) -> int:
        graph = stax.make_graph(f(policy))(X)
        _, linear, _ = linearize(graph, [True, False])
        inner = [n.op.graph.nodes for n in linear.nodes if hasattr(n.op, "graph")]
        return sum(n.op.name == "dot_general" for nodes in inner for n in nodes)

    assert products(policies.nothing_saveable) == 2
    assert products(policies.dots_saveable) == 1
    assert products(policies.dots_with_no_batch_dims_saveable) == 1


def test_static_arguments_and_keywords() -> None:
    def f(n: int, x: Any, *, scale: Any) -> Any:
        return x**n * scale

    g = stax.checkpoint(f, static_argnums=0)
    assert float(stax.grad(lambda x: g(3, x, scale=2.0))(2.0)) == 24
    g = stax.checkpoint(f, static_argnames="n")
    assert float(stax.grad(lambda x: g(n=3, x=x, scale=2.0))(2.0)) == 24


def test_what_is_computed_again_does_not_lie_in_memory_before() -> None:
    def block(x: Any, ws: Any) -> Any:
        for w in ws:
            x = snp.tanh(x @ w)
        return x

    def temporary(apply: Any) -> int:
        def loss(ws: Any, x: Any) -> Any:
            for i in range(0, len(ws), 3):
                x = apply(x, ws[i : i + 3])
            return (x**2).sum()

        weights = [stax.ShapeDtypeStruct((48, 48), "float32")] * 12
        x = stax.ShapeDtypeStruct((128, 48), "float32")
        program = stax.jit(stax.grad(loss)).lower(weights, x).compile()
        return int(program.memory_analysis().temp_size_in_bytes)

    assert temporary(stax.checkpoint(block)) < 0.5 * temporary(block)


def test_a_policy_is_a_function() -> None:
    with pytest.raises(errors.ArgumentError, match="policy is a function, got 'dots'"):
        stax.checkpoint(snp.sin, policy="dots")  # type: ignore[arg-type]
