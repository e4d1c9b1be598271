"""`checkpoint`: a call of which reverse mode keeps little and computes the rest again.

The forward part is the call, which also returns what the policy saves.  The linear part computes
everything else again from the arguments, behind a barrier, so that nothing merges the two; its
transpose, the backward part, not before its cotangents are there, so that what is computed again
does not lie in memory before.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stax.control.call import Call, call
from stax.control.held import given, repeated, sections, spread
from stax.graph import Graph, Node
from stax.interpreters.batch import batch
from stax.interpreters.interpret import inline
from stax.interpreters.jvp import inputs_with_tangents, pushforward
from stax.interpreters.masks import Masked
from stax.interpreters.remat import report_policy
from stax.op import Batch, Linear
from stax.operators.bits import late, optimization_barrier
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
        report_policy(f"{self.graph.name}, under checkpoint", self.graph, saved, linear)
        kept = [*primals, *values]
        op = Again(linear, len(kept)) if self.prevent_cse else Call(linear)
        dots = results(bind(op, *kept, *given(tangents)))
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
            graph = repeated(trace.finish(given(dots)))
        return graph, [t is not None for t in dots]

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        graph, batched = batch(self.graph, batch_, flags)
        op = Checkpoint(graph, self.policy, self.prevent_cse)
        return results(bind(op, *inputs)), batched


@dataclass(frozen=True, eq=False)
class Again(Call):
    """A call of the linear part of a checkpoint, whose first `known` operands are not linear."""

    known: int
    name: ClassVar[str] = "again"

    @functools.cached_property
    def applied(self) -> Graph:
        with Trace(self.graph.name, "checkpoint") as trace:
            args = [trace.input(x.type, x.label, source=x.source) for x in self.graph.inputs]
            known, tangents = sections(args, self.known)
            return trace.finish(inline(self.graph, [*map(optimization_barrier, known), *tangents]))

    def pull(
        self, cts: Sequence[Masked | None], care: Sequence[bool], *inputs: Any
    ) -> Sequence[Masked | None]:
        first = next(ct.value for ct in cts if ct is not None)
        operands = [x if isinstance(x, Linear) else late(x, first) for x in inputs]
        return super().pull(cts, care, *operands)

    def batch(self, batch_: Batch, flags: Sequence[bool], *inputs: Any) -> Any:
        graph, batched = batch(self.graph, batch_, flags)
        return results(bind(Again(graph, self.known), *inputs)), batched
