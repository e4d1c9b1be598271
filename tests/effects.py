"""Test-only ops with effects: what no pass may merge, drop, repeat or reorder."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.graph import Graph
from stax.op import ORDERED, UNORDERED, Batch, Op
from stax.trace import bind
from stax.types import ArrayType

LOG: list[str] = []


class _Effect(Op):
    """Returns its operand and, when it is evaluated, adds its label to LOG."""

    label: str

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return types[0]

    def evaluate(self, *arrays: Any) -> Any:
        LOG.append(self.label)
        return arrays[0]

    def jvp(self, out: Any, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
        return tangents[0]

    def batch(self, batch: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        return bind(self, *inputs)


@dataclass(frozen=True, eq=False)
class Ordered(_Effect):
    label: str
    name: ClassVar[str] = "ordered"
    effect: ClassVar[str | None] = ORDERED


@dataclass(frozen=True, eq=False)
class Unordered(_Effect):
    label: str
    name: ClassVar[str] = "unordered"
    effect: ClassVar[str | None] = UNORDERED


def labels(graph: Graph) -> list[str]:
    """Return the labels of the nodes with effects, in order."""
    return [n.op.label for n in graph.nodes if isinstance(n.op, _Effect)]


def chain(graph: Graph) -> list[str]:
    """Return the labels of the ordered nodes as `after` chains them, first to last."""
    ordered = [n for n in graph.nodes if n.op.effect == ORDERED]
    found, node = [], ordered[-1] if ordered else None
    while node is not None:
        found.append(getattr(node.op, "label", node.op.name))
        node = node.after
    return found[::-1]
