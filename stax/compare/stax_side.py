"""How Stax shows its work: the nodes of the operator graph, kernels, bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import stax
from stax.compare.side import Work
from stax.graph import Constant, Graph


class StaxSide:
    """Stax, as one of the two sides."""

    name = "Stax"
    library = stax

    def work(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Work:
        """Trace and compile `function` for these arguments."""
        lowered = stax.jit(function).lower(*arguments)
        compiled = lowered.compile()
        cost, memory = compiled.cost_analysis(), compiled.memory_analysis()
        return Work(
            count_nodes(lowered.graph),
            int(cost["kernels"]),
            int(cost["bytes accessed"]),
            memory.temp_size_in_bytes + memory.output_size_in_bytes,
        )


def count_nodes(graph: Graph) -> int:
    """Count operations, also those of graphs that ops hold; constants are none."""
    pending, total = [graph], 0
    while pending:
        for node in pending.pop().nodes:
            held = [x for x in node.op.parameters().values() if isinstance(x, Graph)]
            pending += held
            total += not held and not isinstance(node.op, Constant)
    return total
