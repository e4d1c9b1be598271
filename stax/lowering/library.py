"""Steps of a program that call a library or a kernel written by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.errors import LoweringError
from stax.graph import Node
from stax.lowering.fuse import Fusion
from stax.lowering.own import GEMM_NAMES, gemm, stored_operands
from stax.operators.contract import DotGeneral

if TYPE_CHECKING:
    from stax.lowering.program import DriverWriter


@dataclass(frozen=True, eq=False)
class GemmStep:
    """A matrix product by BLAS."""

    node: Node

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*stored_operands(self.node), self.node)

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        a, b = (driver.pointer(x) for x in stored_operands(self.node))
        c = driver.pointer(self.node)
        descriptor = driver.table("i64", [str(n) for n in gemm(self.node)])
        function = driver.from_context(GEMM_NAMES[self.node.type.dtype])
        driver.do(f"call void {function}(ptr {a}, ptr {b}, ptr {c}, ptr {descriptor})")


LibraryStep = GemmStep


def library_step(fusion: Fusion, node: Node) -> LibraryStep:
    """Return the step that computes `node`; raises LoweringError where there is none."""
    if isinstance(node.op, DotGeneral):
        return GemmStep(node)
    raise LoweringError(
        f"{node.op.name} cannot be compiled for the CPU yet.",
        values=[(node.op.name, repr(node.type), node.source.shown() if node.source else "")],
    )
