"""Graphs as text that a person can read.

One node a line in program order: name, type, op, operands, parameters.  Scalar constants stand
inline; inputs keep the names of the user's parameters; graphs held by ops are printed after the
outer one and referred to by name.  Names are made anew at each printing, so the text does not
depend on history.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from stax.graph import Constant, Graph, Node, held_graphs
from stax.types import SHORT_NAMES, TupleType

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def letters(number: int) -> str:
    """Return a, b, ..., z, ba, bb, ... for 0, 1, ..."""
    text = _LETTERS[number % 26]
    while number >= 26:
        number = number // 26
        text = _LETTERS[number % 26] + text
    return text


def format_value(value: Any, titles: Mapping[Graph, str]) -> str:
    """Return a parameter of an op as printed, graphs by their titles."""
    if isinstance(value, np.dtype) and value in SHORT_NAMES:
        return SHORT_NAMES[value]
    if isinstance(value, Graph):
        return titles[value]
    if isinstance(value, tuple):
        inner = ", ".join(format_value(v, titles) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return getattr(value, "__name__", None) or str(value)


def format_number(op: Constant) -> str:
    """Return a constant as it stands inline: the shortest number that its dtype rounds to it."""
    return str(op.value)


class _Names:
    """Names of the nodes of one graph; a broken graph can be printed too, with gaps."""

    def __init__(self, graph: Graph) -> None:
        self.names: dict[Node, str] = {}
        taken: set[str] = set()
        for i, node in enumerate(graph.inputs):
            self.names[node] = unique(node.label or f"in{i}", taken)
        number = 0
        for node in graph.nodes:
            if is_inline(node):
                self.names[node] = format_number(node.op)  # type: ignore[arg-type]
                continue
            while letters(number) in taken:
                number += 1
            self.names[node] = letters(number)
            number += 1

    def __call__(self, node: Node) -> str:
        return self.names.get(node, "?")


def unique(name: str, taken: set[str]) -> str:
    """Return `name`, numbered if it is taken, and take it."""
    found, number = name, 0
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found)
    return found


def is_inline(node: Node) -> bool:
    """Say whether a node is printed as a number where it is read."""
    return isinstance(node.op, Constant) and node.op.shape == ()


def to_text(graph: Graph, show_source: bool = False) -> str:
    """Return the text of `graph` and of the graphs its ops hold, each once."""
    titles = _titles(graph)
    return "\n\n".join(_one(g, titles, show_source) for g in titles)


def _titles(graph: Graph) -> dict[Graph, str]:
    """Return `graph` and all graphs held in it, in the order in which they are referred to."""
    taken: set[str] = set()
    titles, pending = {graph: unique(graph.name, taken)}, deque([graph])
    while pending:
        for node in pending.popleft().nodes:
            for held in held_graphs(node.op):
                if held not in titles:
                    titles[held] = unique(held.name, taken)
                    pending.append(held)
    return titles


def _one(graph: Graph, titles: Mapping[Graph, str], show_source: bool) -> str:
    name = _Names(graph)
    parameters = ", ".join(f"{name(x)}: {x.type!r}" for x in graph.inputs)
    lines = [f"graph {titles[graph]}({parameters})"]
    shown = [node for node in graph.nodes if not is_inline(node)]
    width = max((len(f"{name(n)}: {n.type!r}") for n in shown), default=0)
    for node in shown:
        left = f"{name(node)}: {node.type!r}"
        right = " ".join([_head(node), ", ".join(map(name, node.inputs))]).rstrip()
        line = f"  {left:<{width}} = {right}{_braces(node, titles)}"
        if show_source and node.source:
            line += f"  # {'/'.join((*node.scope, str(node.source)))}"
        lines.append(line)
    lines.append(f"  return {', '.join(map(name, graph.outputs))}".rstrip())
    return "\n".join(lines)


def _head(node: Node) -> str:
    return f"full {format_number(node.op)}" if isinstance(node.op, Constant) else node.op.name


def _braces(node: Node, titles: Mapping[Graph, str]) -> str:
    if isinstance(node.op, Constant) or (
        isinstance(node.type, TupleType) and not node.op.parameters()
    ):
        return ""
    inner = ", ".join(f"{k}={format_value(v, titles)}" for k, v in node.op.parameters().items())
    return f"  {{{inner}}}" if inner else ""


Graph.to_text = staticmethod(to_text)
