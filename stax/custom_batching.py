"""The names of `jax.custom_batching`: functions with rules of their own for vmap."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from stax import tree
from stax.api.custom_batching import custom_vmap
from stax.lax.control_flow import map as map_one_by_one

__all__ = ["custom_vmap", "sequential_vmap"]


def sequential_vmap(f: Callable[..., Any]) -> Any:
    """Return `f` with the rule that vmap applies it to one lane after the other, in a loop."""
    one = custom_vmap(f)

    @functools.wraps(f)
    def in_turn(axis_size: Any, in_batched: list[Any], *args: Any) -> Any:
        leaves, treedef = tree.tree_flatten(args)
        flags = tree.tree_leaves(in_batched)
        if not any(flags):
            out = f(*args)  # only tangents are mapped, and that in the ordinary way
            return out, tree.tree_map(lambda _: False, out)

        def of_lane(lane: list[Any]) -> Any:
            given = iter(lane)
            every = [next(given) if m else x for x, m in zip(leaves, flags, strict=True)]
            return one(*treedef.unflatten(every))

        mapped = [x for x, m in zip(leaves, flags, strict=True) if m]
        out = map_one_by_one(of_lane, mapped)
        return out, tree.tree_map(lambda _: True, out)

    one.def_vmap(in_turn)
    return one
