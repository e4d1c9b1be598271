"""Which results a program writes past the caches, with non-temporal stores.

An ordinary store reads the line of the cache that it writes to, so a result costs its size twice.
That is wasted where all of a line is written at once and nothing reads it soon: a result of the
program that no step reads.  It has to be several times what a processor's own cache holds: whoever
takes a smaller one finds it there, and a program and its reader are slower together.  Where rows
end within a line, that line is written in two parts, so a result has to be larger still.  And where
arithmetic sets the pace there is nothing to gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stax.extent import Extent
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel
from stax.lowering.element import static_size

# Four times the second-level cache of a large processor; and where rows end within lines.
STREAMED_BYTES, RAGGED_BYTES = 8 << 20, 32 << 20
LINE = 64
# Operations and loads per element, from which on memory does not set the pace.
MUCH_WORK = 64


def streaming(
    built: BuiltKernel, root_of: Callable[[Node], Node], unread: set[Node]
) -> BuiltKernel:
    """Return a kernel that streams what it writes to large values, if they are `unread`."""
    kernel = built.kernel
    loads = {e.buffer.name for e in ir.walk(*kernel.body) if isinstance(e, ir.Load)}
    over = {name for pair in kernel.aliases for name in pair}
    streamed = [
        buffer.name
        for buffer, node in zip(kernel.params, built.values, strict=True)
        if buffer.name in kernel.outputs
        and buffer.name not in loads | over
        and root_of(node) in unread
        and _nbytes(root_of(node)) >= (RAGGED_BYTES if _is_ragged(buffer) else STREAMED_BYTES)
    ]
    if not streamed:
        return built
    return replace(built, kernel=replace(kernel, streamed=tuple(streamed)))


def _nbytes(node: Node) -> int:
    """Return the size of a value, 0 where it is not known."""
    shape = node.type.shape
    is_open = any(isinstance(n, Extent) for n in shape)
    return 0 if is_open else static_size(shape) * int(node.type.dtype.itemsize)


def _is_ragged(buffer: ir.Buffer) -> bool:
    """Say whether a kernel writes rows that end within a line of the cache."""
    if len(buffer.shape) < 2:
        return False
    *_, length = buffer.shape
    return not isinstance(length, int) or length * int(buffer.dtype.itemsize) % LINE != 0
