"""`checkpoint`: a call of which reverse mode keeps little and computes the rest again.

The forward part is the call, which also returns what the policy saves.  The linear part computes
everything else again from the arguments, behind a barrier, so that nothing merges the two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.call import Call, call
from stax.control.held import given, sections, spread
from stax.graph import Graph, Node
from stax.interpreters.batch import batch
from stax.interpreters.jvp import inputs_with_tangents, pushforward
from stax.op import Batch
from stax.operators.bits import optimization_barrier
from stax.operators.gradient import CheckpointName
from stax.trace import Trace, bind, results
from stax.types import ArrayType

Policy = Callable[[Node], bool]


@dataclass(frozen=True, eq=False)
class Checkpoint(Call):
    """A call of a graph; `policy` says which of its values are kept for the backward pass."""

    policy: Policy
    prevent_cse: bool
    name: ClassVar[str] = "checkpoint"

    def linearize(self, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        saved = [n for n in self.graph.nodes if isinstance(n.type, ArrayType) and self.policy(n)]
        primal = Graph(
            self.graph.name,
            self.graph.inputs,
            self.graph.nodes,
            [*self.graph.outputs, *saved],
        )
        outs, values = sections(call(primal, *primals), len(self.graph.outputs))
        linear, has_tangent = self._linear(saved, [t is not None for t in tangents])
        kept = [*primals, *values]
        if self.prevent_cse:
            kept = list(map(optimization_barrier, kept))
        dots = call(linear, *kept, *given(tangents))
        return tuple(outs), spread(dots, has_tangent)

    def _linear(self, saved: Sequence[Node], flags: Sequence[bool]) -> tuple[Graph, list[bool]]:
        """Return the graph of the tangents: of the arguments, what was saved, and tangents."""
        with Trace(self.graph.name, "checkpoint") as trace:
            primals, tangents = inputs_with_tangents(trace, self.graph, flags)
            values = [trace.input(n.type, "saved") for n in saved]
            known = dict(zip(saved, values, strict=True))
            # A name is given to a value: whoever reads the value under no name reads the same.
            known |= {n.inputs[0]: x for n, x in known.items() if isinstance(n.op, CheckpointName)}
            _, dots = pushforward(self.graph, primals, tangents, linearizing=True, known=known)
            moved, kept = sections(trace.inputs[len(primals) :], len(given(tangents)))
            trace.inputs = [*trace.inputs[: len(primals)], *kept, *moved]
            graph = trace.finish(given(dots))
        return graph, [t is not None for t in dots]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        graph, batched = batch(self.graph, batch_, flags)
        op = Checkpoint(graph, self.policy, self.prevent_cse)
        return results(bind(op, *inputs)), batched
