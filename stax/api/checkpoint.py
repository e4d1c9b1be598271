"""checkpoint, also called remat: trading memory of reverse mode for computing again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from stax.api.tracing import (
    check_callable,
    flatten_arguments,
    positional_names,
    positions,
    trace_function,
    with_static,
)
from stax.control.checkpoint import Checkpoint
from stax.errors import ArgumentError
from stax.graph import Node
from stax.operators.contract import DotGeneral
from stax.operators.convolution import Convolution
from stax.operators.gradient import CheckpointName
from stax.trace import bind, results

Policy = Callable[..., bool]


def checkpoint(
    fun: Callable[..., Any],
    *,
    prevent_cse: bool = True,
    policy: Policy | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[..., Any]:
    """Return `fun`, of which reverse mode keeps the arguments and computes the rest again.

    `policy(op, *types, **parameters)` says of each value inside, given the op that made it, whether
    it is kept; see `checkpoint_policies`.  With `prevent_cse=False` a compiler may merge what is
    computed again with the first time, as in the body of a scan, where it cannot.
    """
    check_callable("checkpoint", fun)
    if not (policy is None or callable(policy)):
        raise ArgumentError(
            f"checkpoint: policy is a function, got {policy!r}.",
            advice="Pass one of stax.checkpoint_policies, dots_saveable say.",
        )
    saved = functools.partial(_saves, policy or nothing_saveable)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    known = positional_names(fun)
    static = {*positions(static_argnums), *(known.index(n) for n in names if n in known)}

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        fixed = {i % len(args): args[i] for i in static if -len(args) <= i < len(args)}
        named = {n: kwargs[n] for n in names if n in kwargs}
        others = [x for i, x in enumerate(args) if i not in fixed]
        rest = {n: x for n, x in kwargs.items() if n not in named}
        arguments = flatten_arguments("checkpoint", others, rest)
        traced = trace_function(with_static(fun, fixed, named), arguments, "checkpoint")
        op = Checkpoint(traced.graph, saved, prevent_cse)
        found = results(bind(op, *arguments.leaves, *traced.captures))
        return traced.out_tree.unflatten(found)

    return wrapped


def _saves(policy: Policy, node: Node) -> bool:
    return bool(policy(node.op, *(x.type for x in node.inputs), **node.op.parameters()))


# --- policies ---


def everything_saveable(*_: Any, **__: Any) -> bool:
    """Save every value, as without checkpoint."""
    return True


def nothing_saveable(*_: Any, **__: Any) -> bool:
    """Save the arguments only."""
    return False


def dots_saveable(op: Any, *_: Any, **__: Any) -> bool:
    """Save the results of matrix products and convolutions."""
    return isinstance(op, DotGeneral | Convolution)


def dots_with_no_batch_dims_saveable(op: Any, *_: Any, **__: Any) -> bool:
    """Save the results of matrix products without batch dimensions."""
    return isinstance(op, DotGeneral) and not op.batching[0]


def save_only_these_names(*names: str) -> Policy:
    """Return the policy that saves values named with `checkpoint_name`, of these names."""
    chosen = frozenset(names)

    def policy(op: Any, *_: Any, **__: Any) -> bool:
        return isinstance(op, CheckpointName) and op.label in chosen

    return policy


def save_any_names_but_these(*names: str) -> Policy:
    """Return the policy that saves named values, but not those of these names."""
    left_out = frozenset(names)

    def policy(op: Any, *_: Any, **__: Any) -> bool:
        return isinstance(op, CheckpointName) and op.label not in left_out

    return policy


def save_anything_except_these_names(*names: str) -> Policy:
    """Return the policy that saves every value but those of these names."""
    left_out = frozenset(names)

    def policy(op: Any, *_: Any, **__: Any) -> bool:
        return not (isinstance(op, CheckpointName) and op.label in left_out)

    return policy


def save_from_both_policies(first: Policy, second: Policy) -> Policy:
    """Return the policy that saves what either does."""

    def policy(op: Any, *types: Any, **parameters: Any) -> bool:
        return first(op, *types, **parameters) or second(op, *types, **parameters)

    return policy
