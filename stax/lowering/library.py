"""Steps of a program that call a library or a kernel written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from stax.errors import LoweringError
from stax.graph import Node, Project, multiple
from stax.lowering.build import BuiltKernel
from stax.lowering.donated import Returned, ReturnStep
from stax.lowering.fourier import FourierPass
from stax.lowering.fourier_kernel import fourier_kernel
from stax.lowering.fuse import Fusion
from stax.lowering.gemm import GEMM_NAMES, Product, product_of
from stax.lowering.host import HostStep, host_step
from stax.lowering.lapack import LapackStep, has_native
from stax.lowering.own import stored_operands
from stax.lowering.paired import is_library_op, library_op
from stax.lowering.running import running_kernel
from stax.lowering.scatter import scatter_kernels
from stax.lowering.selecting import SelectStep
from stax.lowering.small_matrices import in_lanes, lane_matrices
from stax.lowering.sorting import SortStep, sort_step
from stax.operators.bits import Late
from stax.operators.contract import DotGeneral
from stax.operators.index import Scatter
from stax.operators.reduce import Cumulative
from stax.operators.sort import Sort, TopK

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter


@dataclass(frozen=True, eq=False)
class GemmStep:
    """A matrix product by BLAS."""

    node: Node

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (self.product.first, self.product.second, self.node)

    @cached_property
    def product(self) -> Product:
        """What BLAS computes."""
        return product_of(self.node)

    def call(self, driver: DriverWriter) -> None:
        """Write the call."""
        a, b, c = map(driver.pointer, self.reads_and_writes)
        descriptor = driver.table("i64", [str(n) for n in self.product.gemm])
        function = driver.from_context(GEMM_NAMES[self.node.type.dtype])
        driver.do(f"call void {function}(ptr {a}, ptr {b}, ptr {c}, ptr {descriptor})")


LibraryStep = GemmStep | SortStep | LapackStep | HostStep | ReturnStep


def library_steps(
    fusion: Fusion, node: Node, name: str, labels: Mapping[Node, str]
) -> Sequence[BuiltKernel | LibraryStep]:
    """Return what computes `node`, in order; raises LoweringError where nothing does."""
    try:
        return _steps(fusion, node, name, labels)
    except LoweringError as error:
        where = node.source.shown() if node.source else ""
        raise error.located([(node.op.name, repr(node.type), where)], []) from None


def _steps(
    fusion: Fusion, node: Node, name: str, labels: Mapping[Node, str]
) -> Sequence[BuiltKernel | LibraryStep]:
    sources = [fusion.root_of(x) for x in node.inputs]
    match node.op:
        case Late():
            return ()  # another name of what lies in memory
        case Returned():
            return (ReturnStep(node),)
        case DotGeneral():
            return (GemmStep(node),)
        case Cumulative():
            return (running_kernel(node, sources[0], name, labels),)
        case Scatter():
            return scatter_kernels(fusion, node, name, labels)
        case Sort():
            operands = [fusion.root_of(x) for x in stored_operands(node)]
            return (sort_step(SortStep, node, operands, results_read(fusion, node)),)
        case TopK():
            return (sort_step(SelectStep, node, sources, results_read(fusion, node)),)
        case op if isinstance(library_op(op), FourierPass):
            return (fourier_kernel(node, sources, name, labels),)
        case op if is_library_op(op):
            found = results_read(fusion, node)
            if in_lanes(node):
                return (lane_matrices(node, sources, found, name, labels),)
            if has_native(node):
                return (LapackStep(node, tuple(sources), tuple(found)),)
            return (host_step(node, sources, found),)
    raise LoweringError(f"{node.op.name} cannot be compiled for the CPU yet.")


def results_read(fusion: Fusion, node: Node) -> list[tuple[int, Node]]:
    """Return the results of a node that are read, with their positions."""
    if not multiple(node):
        return [(0, node)]
    reading = [x for x in fusion.stored if isinstance(x.op, Project) and x.inputs[0] is node]
    return sorted(((x.op.position, x) for x in reading), key=lambda pair: pair[0])  # type: ignore[attr-defined]
