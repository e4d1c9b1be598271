"""Long sums that are as accurate as pairwise ones.

The terms of a long sum are added in chunks, and the chunks to a total, where what the rounding of
each addition loses is kept apart and added at the end (D. E. Knuth's two-sum).  The error then
grows with the length of a chunk, not of the whole sum.  Chunks are cut by length alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from stax.extent import Dimension
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.decisions import decided
from stax.types import accumulator, is_float

if TYPE_CHECKING:
    from stax.lowering.build import KernelBuilder

# Terms of a chunk along a row, many of which are added side by side, and steps down a column.
ROW_CHUNK, COLUMN_CHUNK = 4096, 16
# Simple operations of a loop body, of which there may be a second copy for what chunks leave over.
COPIED = 64


class Cut(NamedTuple):
    """Which of nested loops is cut, and after how many steps."""

    loop: int
    steps: int


def is_sum(node: Node) -> bool:
    """Say whether a reduction adds floating numbers."""
    combine = node.op.combine  # type: ignore[attr-defined]
    return combine == "add" and is_float(accumulator(node.type.dtype))


def cut(lengths: Sequence[Dimension], terms: int, may_leave: bool = True) -> Cut | None:
    """Return how nested loops of known lengths are cut into chunks of about `terms` terms.

    None if they are short.  A number of steps that divides the length of its loop is taken if there
    is one; else something is left over, if it may be.
    """
    inner = 1
    for axis in range(len(lengths) - 1, -1, -1):
        length = lengths[axis]
        if not isinstance(length, int):
            return None
        if length * inner > 2 * terms:
            steps = _steps(length, max(1, terms // inner), may_leave)
            return Cut(axis, steps) if steps else None
        inner *= length
    return None


def _steps(length: int, wanted: int, may_leave: bool) -> int | None:
    near = [n for n in range(2 * wanted, wanted // 2, -1) if length % n == 0]
    if near:
        return min(near, key=lambda n: (n % 64 > 0, abs(n - wanted)))
    return wanted if may_leave else None


def tell(node: Node) -> None:
    """Say that a sum is cut, to whoever collects decisions."""
    what = "in chunks, and apart what each addition of a chunk loses: rounding grows no further"
    decided(f"{node.op.name} of {node.inputs[0].type!r} {what}", node.source)


def add_losing(total: ir.Expr, lost: ir.Expr, part: ir.Expr, let: Any) -> tuple[ir.Expr, ir.Expr]:
    """Return total + part and `lost` with what that addition loses."""
    after = let(ir.apply("add", total, part))
    taken = let(ir.apply("sub", after, total))
    of_total = ir.apply("sub", total, ir.apply("sub", after, taken))
    of_part = ir.apply("sub", part, taken)
    return after, let(ir.apply("add", lost, ir.apply("add", of_total, of_part)))


def settled(total: ir.Expr, lost: ir.Expr) -> ir.Expr:
    """Return a finished sum; of infinities, nothing is lost that is a number."""
    is_known = ir.apply("eq", lost, lost, dtype=ir.BOOL)
    return ir.apply("select", is_known, ir.apply("add", total, lost), total)


class Total:
    """The running values of one reduction: all of it, or those of a chunk and of what is lost."""

    def __init__(self, builder: KernelBuilder, node: Node, is_cut: bool) -> None:
        self.builder, self.node = builder, node
        self.total = self.running = builder.begin(node)
        self.lost = builder.begin(node) if is_cut and is_sum(node) else None
        if self.lost is not None:
            tell(node)

    def take(self, term: ir.Expr) -> None:
        """Take a term in."""
        self.builder.emit(ir.Update(self.node.op.combine, self.running, term))  # type: ignore[attr-defined]

    def begin_chunk(self) -> None:
        if self.lost is not None:
            self.running = self.builder.begin(self.node)

    def end_chunk(self) -> None:
        """Add the chunk to the total."""
        if self.lost is None:
            return
        builder = self.builder
        after, lost = add_losing(self.total, self.lost, self.running, builder.let)
        builder.emit(ir.Set(self.lost, lost))
        builder.emit(ir.Set(self.total, after))
        self.running = self.total

    def result(self) -> ir.Expr:
        return self.total if self.lost is None else settled(self.total, self.lost)


@contextmanager
def chunk(totals: Sequence[Total]) -> Iterator[None]:
    """Take the terms of a `with` block as a chunk of each total."""
    for total in totals:
        total.begin_chunk()
    yield
    for total in totals:
        total.end_chunk()
