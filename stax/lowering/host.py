"""Steps that call back to Python: ops that a library computes and no native code does.

The op stays in Python, in a table of the program that the call gives a number of; the code names
nothing of this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.errors import LoweringError
from stax.graph import Node
from stax.lowering.paired import library_op
from stax.operators.callback import HostOp

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter


@dataclass(frozen=True, eq=False)
class HostStep:
    """Evaluate an op in Python: what it reads, and which of its results are wanted."""

    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*self.operands, *(node for _, node in self.results))

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        buffers = driver.table("ptr", [driver.pointer(x) for x in self.reads_and_writes])
        function, ops = driver.from_context("host_call"), driver.from_context("host_ops")
        call = f"call i32 {function}(ptr {ops}, i64 {driver.host_numbers[self]}, ptr {buffers})"
        op = library_op(self.node.op)
        # If the call fails, a Python exception is pending, and the program ends at once.
        if isinstance(op, HostOp) and op.guarded:
            driver.check_where(driver.pointer(self.operands[0]), call)
        else:
            driver.check(call)


def host_step(
    node: Node, operands: Sequence[Node], results: Sequence[tuple[int, Node]]
) -> HostStep:
    """Return the step that evaluates `node`; raises LoweringError for symbolic lengths."""
    for x in (*node.inputs, *(x for _, x in results)):
        if not all(isinstance(n, int) for n in x.type.shape):
            raise LoweringError(
                f"{node.op.name} of {x.type!r}: symbolic lengths are not compiled.",
                advice="Compile it for each length: leave out dynamic=.",
            )
    return HostStep(node, tuple(operands), tuple(results))
