"""The operator graph: inputs, nodes in program order, outputs.

A graph is built by a `Builder` and never changes.  The builder hash-conses: a node with the same
op and inputs is the same node, so common subexpressions do not need a pass; `finish` leaves out
what no output needs, so dead code does not either.  Nodes with an effect are neither merged nor
left out, and ordered ones are chained by `Node.after`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from stax.config import config
from stax.extent import Extent
from stax.op import ORDERED, Op
from stax.source import Source
from stax.types import ArrayType, Shape, TupleType, Type, storage


@dataclass(frozen=True, eq=False)
class Input(Op):
    """A parameter of the graph; inputs are never merged."""

    label: str
    name: ClassVar[str] = "input"
    interned: ClassVar[bool] = False

    def abstract_eval(self, *types: ArrayType) -> Type:
        raise NotImplementedError("the type of an input is given, not derived")


@dataclass(frozen=True, eq=False)
class Constant(Op):
    """An array filled with one number, held as raw bytes so that 0.0 is not -0.0."""

    data: bytes
    dtype: np.dtype
    shape: Shape
    weak: bool
    name: ClassVar[str] = "constant"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return ArrayType(self.dtype, self.shape, self.weak)

    @property
    def value(self) -> Any:
        """The number, as a NumPy scalar of its dtype."""
        return np.frombuffer(self.data, storage(self.dtype))[0]

    def evaluate(self, *arrays: Any) -> np.ndarray:
        return np.broadcast_to(self.value, self.shape)  # type: ignore[arg-type]

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.const(self.value, self.dtype)


class ByIdentity:
    """A value as a parameter of an op; equal to itself alone, whatever the value compares."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is ByIdentity and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return repr(self.value.type)


@dataclass(frozen=True, eq=False)
class ArrayConstant(Op):
    """An array that a graph holds, where there is no place for it among the inputs.

    Rules of the user's close over arrays, and are traced when a transform needs them, in the body
    of a loop say.  Lowering makes such arrays hidden arguments of the program.
    """

    of: ByIdentity
    name: ClassVar[str] = "array"
    read: ClassVar[Callable[[Any], np.ndarray]]  # set by `array`, a module above

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        found: ArrayType = self.of.value.type
        return found

    def evaluate(self, *arrays: Any) -> np.ndarray:
        return ArrayConstant.read(self.of.value)


@dataclass(frozen=True, eq=False)
class Length(Op):
    """The length of an axis as a weak integer; how a symbolic extent enters arithmetic."""

    extent: Extent
    dtype: np.dtype
    name: ClassVar[str] = "length"

    def abstract_eval(self, *types: ArrayType) -> ArrayType:
        return ArrayType(self.dtype, (), True)

    def lower(self, kernel: Any, index: Any, *operands: Any) -> Any:
        return kernel.convert(kernel.extent(self.extent), self.dtype)


@dataclass(frozen=True, eq=False)
class Project(Op):
    """Reads one result of a node that has several."""

    position: int
    name: ClassVar[str] = "project"

    def abstract_eval(self, *types: Any) -> ArrayType:
        items: tuple[ArrayType, ...] = types[0].items
        return items[self.position]

    def evaluate(self, *arrays: Any) -> Any:
        return arrays[0][self.position]


class Node:
    """One application of an op; compared by identity."""

    __slots__ = ("after", "inputs", "op", "scope", "source", "type")

    def __init__(
        self,
        op: Op,
        inputs: tuple[Node, ...],
        type_: Type,
        source: Source | None = None,
        scope: tuple[str, ...] = (),
        after: Node | None = None,
    ) -> None:
        self.op = op
        self.inputs = inputs
        self.type: Any = type_
        self.source = source
        self.scope = scope
        self.after = after

    __match_args__ = ("op", "inputs")

    @property
    def label(self) -> str:
        """The name of an input, of a parameter say; empty where there is none."""
        return self.op.label if isinstance(self.op, Input) else ""

    def __repr__(self) -> str:
        return f"<{self.op!r}: {self.type!r}>"


class Graph:
    """A finished, immutable program: `inputs`, `nodes` in program order, `outputs`.

    `str()` of a graph is its printed form; the printer, a module above, registers itself for it.
    """

    to_text: ClassVar[Callable[[Graph], str]]

    __slots__ = ("__dict__", "inputs", "name", "nodes", "outputs")

    def __init__(
        self,
        name: str,
        inputs: Sequence[Node],
        nodes: Sequence[Node],
        outputs: Sequence[Node],
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.nodes = tuple(nodes)
        self.outputs = tuple(outputs)

    def __str__(self) -> str:
        return Graph.to_text(self)

    __repr__ = __str__

    @functools.cached_property
    def effect(self) -> str | None:
        """The strongest effect of its nodes."""
        effects = {node.op.effect for node in self.nodes}
        return ORDERED if ORDERED in effects else next((e for e in effects if e), None)

    @functools.cached_property
    def opens(self) -> frozenset[str]:
        """The symbols of lengths that are known only when some node has run."""
        return frozenset(node.op.opens for node in self.nodes if node.op.opens)

    @functools.cached_property
    def open_inputs(self) -> bool:
        """Say whether an input has a symbolic length."""
        return any(isinstance(n, Extent) for t in self.input_types for n in t.shape)

    @functools.cached_property
    def structural_hash(self) -> int:
        """A hash of the structure alone: equal for graphs that print the same."""
        position = {node: i for i, node in enumerate(self.inputs)}
        parts: list[Any] = [tuple(node.type for node in self.inputs)]
        for node in self.nodes:
            parts.append((structure(node.op), *(position[x] for x in node.inputs)))
            position[node] = len(position)
        parts.append(tuple(position[x] for x in self.outputs))
        return hash(tuple(parts))

    def derived(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what a transform makes of the graph, made once for each key and configuration.

        Graphs that are held in graphs are transformed several times on the way to one result.
        """
        made = self.__dict__.setdefault("_derived", {})
        full = key, config.key()
        if full not in made:
            made[full] = make()
        return made[full]

    @property
    def input_types(self) -> tuple[ArrayType, ...]:
        return tuple(node.type for node in self.inputs)

    @property
    def output_types(self) -> tuple[ArrayType, ...]:
        return tuple(node.type for node in self.outputs)

    def uses(self) -> dict[Node, int]:
        """Return how often each node is read, outputs included."""
        counts: dict[Node, int] = dict.fromkeys((*self.inputs, *self.nodes), 0)
        for node in self.nodes:
            for x in node.inputs:
                counts[x] += 1
        for x in self.outputs:
            counts[x] += 1
        return counts


def held_graphs(op: Op) -> Iterator[Graph]:
    """Yield the graphs among the parameters of an op."""
    for value in op.parameters().values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Graph):
                yield item


class Builder:
    """Collects nodes, merging equal ones."""

    __slots__ = ("_interned", "nodes", "opens", "token")

    def __init__(self) -> None:
        self._interned: dict[Any, Node] = {}
        self.opens: set[str] = set()  # symbols of lengths that nodes find when they run
        self.nodes: list[Node] = []
        self.token: Node | None = None

    def find(self, op: Op, inputs: tuple[Node, ...]) -> Node | None:
        """Return the node that applies `op` to `inputs`, if there is one that may be shared."""
        return self._interned.get((op, inputs))

    def add(
        self,
        op: Op,
        inputs: tuple[Node, ...],
        type_: Type,
        source: Source | None,
        scope: tuple[str, ...],
    ) -> Node:
        """Append a node that `find` did not find."""
        node = Node(op, inputs, type_, source, scope)
        self.nodes.append(node)
        if op.opens:
            self.opens.add(op.opens)
        if op.effect is None:
            self._interned[(op, inputs)] = node
        elif op.effect == ORDERED:
            node.after, self.token = self.token, node
        return node

    def adopt(self, node: Node) -> Node:
        """Take over a node of another graph whose inputs are already here, or its equal."""
        found = self.find(node.op, node.inputs)
        if found is None:
            found = node
            self.nodes.append(node)
            if node.op.opens:
                self.opens.add(node.op.opens)
            if node.op.effect is None:
                self._interned[(node.op, node.inputs)] = node
            elif node.op.effect == ORDERED:
                return self._reordered(node)
        return found

    def _reordered(self, node: Node) -> Node:
        """Chain an ordered node; nodes are immutable, so one out of place is made again."""
        if node.after is not self.token:
            self.nodes.pop()
            return self.add(node.op, node.inputs, node.type, node.source, node.scope)
        self.token = node
        return node

    def finish(self, name: str, inputs: Sequence[Node], outputs: Sequence[Node]) -> Graph:
        """Return the graph of what `outputs` and effects need, in program order."""
        return Graph(name, inputs, live(self.nodes, outputs), outputs)


def structure(op: Op) -> Any:
    """Return what tells an op from others: itself, or its parameters if it is not interned."""
    if op.interned:
        return op
    values = list(op.parameters().values())
    if op.opens:  # the symbol of the length that it finds is another one each time
        values = [v for v in values if not isinstance(v, Extent)]
    return type(op), *map(_structure_of_parameter, values)


def _structure_of_parameter(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_structure_of_parameter, value))
    return value.structural_hash if isinstance(value, Graph) else value


def live(nodes: Iterable[Node], outputs: Iterable[Node]) -> list[Node]:
    """Return the nodes that outputs or effects need, in the given order."""
    ordered = list(nodes)
    needed = set(outputs)
    for node in reversed(ordered):
        if node in needed or node.op.effect is not None:
            needed.add(node)
            needed.update(node.inputs)
    return [node for node in ordered if node in needed]


def is_constant(node: Node, value: float | None = None) -> bool:
    """Say whether a node is a constant, and (if given) equal to `value`."""
    return isinstance(node.op, Constant) and (value is None or node.op.value == value)


def multiple(node: Node) -> bool:
    """Say whether a node has several results."""
    return isinstance(node.type, TupleType)
