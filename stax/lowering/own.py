"""Ops that are kernels of their own: large matrix products, sorts, running sums, scatters.

They read and write whole buffers, so fusion stops at them.
"""

from __future__ import annotations

from stax.control import HoldsGraphs, Scan
from stax.graph import Constant, Node, Project
from stax.lowering.donated import Returned
from stax.lowering.gemm import no_gemm, product_of
from stax.lowering.lane_step import operands_in_memory
from stax.lowering.paired import is_library_op
from stax.operators.bits import Late
from stax.operators.contract import DotGeneral
from stax.operators.index import Scatter
from stax.operators.reduce import Cumulative
from stax.operators.shape import Iota
from stax.operators.sort import Sort, TopK
from stax.types import int32


def is_own_kernel(node: Node) -> bool:
    """Say whether `node` is computed by a kernel of its own."""
    if isinstance(node.op, DotGeneral):
        return not no_gemm(node)
    own = Sort | TopK | Cumulative | Scatter | Project | HoldsGraphs | Late | Returned
    return isinstance(node.op, own) or is_library_op(node.op)


def stored_operands(node: Node) -> list[Node]:
    """Return what must be in memory for a kernel of its own: its operands, or what they view."""
    if isinstance(node.op, Scatter):
        # One number is written, not copied; the others may be computed where they are read.
        return [] if isinstance(node.inputs[0].op, Constant) else [node.inputs[0]]
    if isinstance(node.op, Scan):
        return operands_in_memory(node)
    if isinstance(node.op, Sort):
        places = counted_places(node)
        return [x for i, x in enumerate(node.inputs) if i not in places]
    if not isinstance(node.op, DotGeneral):
        return list(node.inputs)
    product = product_of(node)
    return [product.first, product.second]


def counted_places(node: Node) -> tuple[int, ...]:
    """Return which operands of a sort are only places along its rows, which need no memory.

    The first, which is the key, is not counted among them.
    """
    op = node.op
    assert isinstance(op, Sort)
    if op.num_keys > 1 or node.inputs[0].type.dtype.itemsize > 4:
        return ()
    found = ((i, x) for i, x in enumerate(node.inputs) if i and isinstance(x.op, Iota))
    return tuple(i for i, x in found if x.op.axis == op.axis and x.type.dtype == int32)  # type: ignore[attr-defined]
