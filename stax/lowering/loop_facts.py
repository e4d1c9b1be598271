"""What a code generator wants to know about a loop before it writes it, from one walk of its body.

The facts are about effects (which buffers and locals change), reductions (which locals are
updated, by what operation, and whether their value is looked at meanwhile), and cost.
"""

from __future__ import annotations

from collections import Counter
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


def loop_facts(loop: For) -> LoopFacts:
    """Walk the body of `loop`."""
    facts = LoopFacts()
    for node in walk(*loop.body, *(() if loop.going is None else (loop.going,))):
        match node:
            case Apply(name, _, dtype):
                if dtype != INDEX:
                    facts.operations += _MATH_COST if name in _MATH else 1
                    _count(facts, dtype)
            case Load(buffer):
                facts.loads.add(buffer.name)
                _count(facts, buffer.dtype)
            case Store(buffer):
                facts.stores.add(buffer.name)
                _count(facts, buffer.dtype)
            case Var(name):
                facts.reads.add(name)
            case Set(var):
                facts.sets[var.name] = None
            case Update(op, var):
                facts.updates.setdefault(var.name, set()).add(op)
            case Init(var):
                facts.begun.add(var.name)
            case For():
                facts.loops.append(node)
    return facts


def _count(facts: LoopFacts, dtype: np.dtype[Any]) -> None:
    # Registers hold 16-bit floats as float32, and a bool is a bit of a mask.
    if dtype != BOOL:
        facts.sizes[4 if dtype in (float16, bfloat16) else dtype.itemsize] += 1
