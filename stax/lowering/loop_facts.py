"""What a code generator wants to know about a loop before it writes it, from one walk of its body.

The facts are about effects (which buffers and locals change), reductions (which locals are
updated, by what operation, and whether their value is looked at meanwhile), and cost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stax.lowering.loop_ir import (
    BOOL,
    INDEX,
    MATH,
    Apply,
    For,
    Init,
    Load,
    Node,
    Set,
    Store,
    Update,
    Var,
    walk,
)
from stax.types import bfloat16, float16

_MATH = frozenset(MATH)
# A function of the math library is some twenty instructions.
_MATH_COST = 20


@dataclass(slots=True)
class LoopFacts:
    """`updates` maps locals to the operations of their Updates; `begun` are the body's own."""

    loads: set[str] = field(default_factory=set)
    stores: set[str] = field(default_factory=set)
    sets: dict[str, None] = field(default_factory=dict)
    updates: dict[str, set[str]] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    loops: list[For] = field(default_factory=list)
    operations: int = 0
    sizes: Counter[int] = field(default_factory=Counter)

    def changed(self) -> list[str]:
        """Name the locals of outer scopes that the body changes, in order of appearance."""
        return [name for name in {**self.sets, **self.updates} if name not in self.begun]

    def lanes(self, vector_bytes: int) -> int:
        """Choose a number of lanes: as many as fill a register of what is mostly computed."""
        if not self.sizes:
            return vector_bytes
        size = max(self.sizes, key=lambda s: (self.sizes[s], s))
        return vector_bytes // size


def loop_facts(loop: For, facts_of: Callable[[For], LoopFacts]) -> LoopFacts:
    """Look at the body of `loop`; `facts_of` gives the facts of the loops in it."""
    facts = LoopFacts()
    for is_loop, statements in itertools.groupby(loop.body, lambda stmt: type(stmt) is For):
        if is_loop:
            for stmt in statements:
                _add_loop(facts, stmt, facts_of(stmt))  # type: ignore[arg-type]
        else:
            _add(facts, *statements)
    if loop.going is not None:
        _add(facts, loop.going)
    return facts


def _add_loop(facts: LoopFacts, loop: For, inner: LoopFacts) -> None:
    _add(facts, loop.extent)
    facts.loads |= inner.loads
    facts.stores |= inner.stores
    facts.sets |= inner.sets
    for name, ops in inner.updates.items():
        facts.updates.setdefault(name, set()).update(ops)
    facts.begun |= inner.begun
    facts.reads |= inner.reads
    facts.loops += [loop, *inner.loops]
    facts.operations += inner.operations
    facts.sizes.update(inner.sizes)


def _add(facts: LoopFacts, *nodes: Node) -> None:
    """Add what is in statements that are no loops, and in expressions."""
    node: Any
    for node in walk(*nodes):
        kind = type(node)
        if kind is Var:
            facts.reads.add(node.name)
        elif kind is Apply:
            if node.dtype != INDEX:
                facts.operations += _MATH_COST if node.name in _MATH else 1
                _count(facts, node.dtype)
        elif kind is Load:
            facts.loads.add(node.buffer.name)
            _count(facts, node.buffer.dtype)
        elif kind is Store:
            facts.stores.add(node.buffer.name)
            _count(facts, node.buffer.dtype)
        elif kind is Set:
            facts.sets[node.var.name] = None
        elif kind is Update:
            facts.updates.setdefault(node.var.name, set()).add(node.op)
        elif kind is Init:
            facts.begun.add(node.var.name)


def _count(facts: LoopFacts, dtype: np.dtype[Any]) -> None:
    # Registers hold 16-bit floats as float32, and a bool is a bit of a mask.
    if dtype != BOOL:
        facts.sizes[4 if dtype in (float16, bfloat16) else dtype.itemsize] += 1
