"""Graphs as text that a person can read.

One node a line in program order: name, type, op, operands, parameters.  Scalar constants stand
inline; inputs keep the names of the user's parameters; graphs held by ops are printed after the
outer one and referred to by name.  Names are made anew at each printing, so the text does not
depend on history.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stax.graph import Constant, Graph, Node
from stax.types import SHORT_NAMES, TupleType

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters(number: int) -> str:
    """Return a, b, ..., z, ba, bb, ... for 0, 1, ..."""
    text = _LETTERS[number % 26]
    while number >= 26:
        number = number // 26
        text = _LETTERS[number % 26] + text
    return text


def format_value(value: Any) -> str:
    """Return a parameter of an op as printed."""
    if isinstance(value, np.dtype) and value in SHORT_NAMES:
        return SHORT_NAMES[value]
    if isinstance(value, Graph):
        return value.name
    if isinstance(value, tuple):
        inner = ", ".join(map(format_value, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return getattr(value, "__name__", None) or str(value)


def format_number(op: Constant) -> str:
    """Return a constant as it stands inline."""
    value = op.value
    return str(value.item() if op.dtype.kind in "biufc" else float(value))


class _Names:
    """Names of the nodes of one graph."""

    def __init__(self, graph: Graph) -> None:
        self.names: dict[Node, str] = {}
        taken: set[str] = set()
        for i, node in enumerate(graph.inputs):
            label = node.op.label or f"in{i}"  # type: ignore[attr-defined]
            self.names[node] = label if label not in taken else f"{label}_{i}"
            taken.add(self.names[node])
        number = 0
        for node in graph.nodes:
            if is_inline(node):
                self.names[node] = format_number(node.op)
                continue
            while letters(number) in taken:
                number += 1
            self.names[node] = letters(number)
            number += 1

    def __call__(self, node: Node) -> str:
        return self.names[node]


def is_inline(node: Node) -> bool:
    """Say whether a node is printed as a number where it is read."""
    return isinstance(node.op, Constant) and node.op.shape == ()


def to_text(graph: Graph, show_source: bool = False) -> str:
    """Return the text of `graph` and of the graphs its ops hold, each once."""
    pending, seen, texts = [graph], {graph.name: graph}, []
    while pending:
        current = pending.pop(0)
        texts.append(_one(current, show_source))
        for node in current.nodes:
            for held in node.op.parameters().values():
                if isinstance(held, Graph) and held.name not in seen:
                    seen[held.name] = held
                    pending.append(held)
    return "\n\n".join(texts)


def _one(graph: Graph, show_source: bool) -> str:
    name = _Names(graph)
    parameters = ", ".join(f"{name(x)}: {x.type!r}" for x in graph.inputs)
    lines = [f"graph {graph.name}({parameters})"]
    shown = [node for node in graph.nodes if not is_inline(node)]
    width = max((len(f"{name(n)}: {n.type!r}") for n in shown), default=0)
    for node in shown:
        left = f"{name(node)}: {node.type!r}"
        right = " ".join([_head(node), ", ".join(map(name, node.inputs))]).rstrip()
        line = f"  {left:<{width}} = {right}{_braces(node)}"
        if show_source and node.source:
            line += f"  # {'/'.join((*node.scope, str(node.source)))}"
        lines.append(line)
    lines.append(f"  return {', '.join(map(name, graph.outputs))}".rstrip())
    return "\n".join(lines)


def _head(node: Node) -> str:
    return f"full {format_number(node.op)}" if isinstance(node.op, Constant) else node.op.name


def _braces(node: Node) -> str:
    if isinstance(node.op, Constant) or (
        isinstance(node.type, TupleType) and not node.op.parameters()
    ):
        return ""
    inner = ", ".join(f"{k}={format_value(v)}" for k, v in node.op.parameters().items())
    return f"  {{{inner}}}" if inner else ""


def _graph_str(graph: Graph) -> str:
    return to_text(graph)


Graph.__str__ = _graph_str  # type: ignore[method-assign]
Graph.__repr__ = _graph_str  # type: ignore[method-assign]
