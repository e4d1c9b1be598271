"""Inputs that the caller gives up, and results that may take their memory.

A result takes the memory of an input of its own type, dtype and shape, which nothing reads once the
result is written.  Either an op writes it over the input (`program`), or the input was read for the
last time before (`matched`), or it is the result itself (`Returned`).  The caller says at each call
whether both have one address: a program runs right either way.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from stax.graph import Node
from stax.lowering.element import static_size
from stax.op import Op
from stax.types import ArrayType, storage

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter


@dataclass(frozen=True, eq=False)
class Returned(Op):
    """A donated input as a result."""

    name: ClassVar[str] = "returned"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]

    def evaluate(self, *arrays: Any) -> Any:
        return arrays[0]


@dataclass(frozen=True, eq=False)
class ReturnStep:
    """Copy an input to a result, unless they are the same memory."""

    node: Node

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (self.node.inputs[0], self.node)

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        source, target = map(driver.pointer, self.reads_and_writes)
        size = static_size(self.node.type.shape) * int(self.node.type.dtype.itemsize)
        is_there = driver.new(f"icmp eq ptr {source}, {target}")
        count = driver.new(f"select i1 {is_there}, i64 0, i64 {size}")
        given = f"ptr {target}, ptr {source}, i64 {count}, i1 false"
        driver.do(f"call void @llvm.memmove.p0.p0.i64({given})")


@dataclass(frozen=True)
class Donated:
    """The numbers of inputs that are given up, with the types of all inputs and results.

    Those are types of the user's: a program may lay out complex numbers and keys otherwise.
    """

    inputs: frozenset[int] = frozenset()
    input_types: tuple[ArrayType, ...] = ()
    output_types: tuple[ArrayType, ...] = ()

    @classmethod
    def of(cls, inputs: Collection[int], graph: Any) -> Donated:
        """Return what is donated to the program of a graph."""
        return cls(frozenset(inputs), graph.input_types, graph.output_types)

    @property
    def usable(self) -> list[int]:
        """The inputs of the type of some result."""
        kinds = set(map(_kind, self.output_types)) - {None}
        return [i for i in sorted(self.inputs) if _kind(self.input_types[i]) in kinds]

    def fits(self, given: int, number: int) -> bool:
        """Say whether an input is given up and has the type of a result."""
        if given not in self.inputs:
            return False
        kind = _kind(self.input_types[given])
        return kind is not None and kind == _kind(self.output_types[number])

    def matched(self, free: Mapping[int, int], written: Mapping[int, int]) -> dict[int, int]:
        """Return results, and inputs of their types whose memory they may take.

        `free` says of inputs in which step they are read for the last time, `written` of results
        in which they are written first.
        """
        waiting: dict[Any, list[int]] = {}
        for i in sorted(free, key=free.__getitem__, reverse=True):
            waiting.setdefault(_kind(self.input_types[i]), []).append(i)
        waiting.pop(None, None)
        dead: dict[Any, list[int]] = {kind: [] for kind in waiting}
        found = {}
        for k in sorted(written, key=written.__getitem__):
            kind = _kind(self.output_types[k])
            if kind in waiting:
                while waiting[kind] and free[waiting[kind][-1]] < written[k]:
                    heapq.heappush(dead[kind], waiting[kind].pop())
                if dead[kind]:
                    found[k] = heapq.heappop(dead[kind])
        return found


def _kind(type_: ArrayType) -> Any:
    """Return what two types have in common whose arrays may be one memory; None where it is open"""
    is_known = all(isinstance(n, int) for n in type_.shape)
    return (storage(type_.dtype), type_.shape) if is_known else None
