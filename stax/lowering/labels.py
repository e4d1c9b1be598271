"""Names of stored values in kernels: the user's for inputs, letters for the rest."""

from __future__ import annotations

import re

from stax.graph import Graph, Node
from stax.lowering.fuse import Fusion
from stax.printer import letters

_RESERVED = frozenset(
    (
        "context",
        "inputs",
        "outputs",
        "extents",
        "buffers",
        "begin",
        "end",
        "entry",
        "in",
        "is",
        "if",
        "or",
        "and",
        "not",
        "for",
        "def",
        "lambda",
        "as",
        "del",
    )
)


class Labels:
    """A name for every value in memory, unique in the program."""

    def __init__(self, graph: Graph, fusion: Fusion) -> None:
        self.names: dict[Node, str] = {}
        taken: set[str] = set(_RESERVED)
        for i, node in enumerate(graph.inputs):
            label = re.sub(r"\W+", "_", node.op.label).strip("_")  # type: ignore[attr-defined]
            if (
                not label
                or label[0].isdigit()
                or label in taken
                or re.fullmatch(r"[a-z]+\d+", label)
            ):
                label = f"in_{i}"
            self.names[node] = label
            taken.add(label)
        number = 0
        for node in fusion.stored:
            while (name := f"t_{letters(number)}") in taken:
                number += 1
            taken.add(name)
            self.names[node] = name
