"""Steps that call back to Python: ops that a library computes and no native code does.

The pickled op is a constant of the program (see runtime.host), named by its content.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from stax.errors import LoweringError
from stax.graph import Node

if TYPE_CHECKING:
    from stax.lowering.program import DriverWriter

PROTOCOL = 5  # of pickle; a fixed one, so that the code of a program does not change with Python


@dataclass(frozen=True, eq=False)
class HostStep:
    """Evaluate an op in Python: what it reads, and which of its results are wanted."""

    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*self.operands, *(node for _, node in self.results))

    @cached_property
    def data(self) -> bytes:
        """The op with its types, pickled."""
        operands = tuple((x.type.dtype, x.type.shape) for x in self.node.inputs)
        results = tuple((x.type.dtype, x.type.shape) for _, x in self.results)
        wanted = tuple(i for i, _ in self.results)
        return pickle.dumps((self.node.op, operands, results, wanted), PROTOCOL)

    @property
    def name(self) -> str:
        """The name of the constant that holds the op."""
        return f"host_{hashlib.sha256(self.data).hexdigest()[:16]}"

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        buffers = driver.table("ptr", [driver.pointer(x) for x in self.reads_and_writes])
        function = driver.from_context("host_call")
        given = f"ptr @{self.name}, i64 {len(self.data)}, ptr {buffers}"
        # A Python exception is pending: the program ends at once.
        status = driver.new(f"call i32 {function}({given})")
        failed = driver.new(f"icmp ne i32 {status}, 0")
        driver.branch(failed, f"ret i32 {status}")

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield the constant."""
        text = "".join(f"\\{byte:02X}" for byte in self.data)
        yield self.name, f'@{self.name} = internal constant [{len(self.data)} x i8] c"{text}"\n'


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
