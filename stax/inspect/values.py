"""The values of a program as `explain` speaks of them: names, sizes, lines, and why they exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stax.api.residuals import shown_size
from stax.extent import Extent
from stax.graph import Constant, Graph, Input, Node, Project
from stax.interpreters.remat import TYPICAL, nbytes
from stax.lowering.fuse import Region, computes, is_free
from stax.lowering.labels import Labels
from stax.lowering.paired import library_op
from stax.lowering.program import KernelStep, Program
from stax.lowering.split import Copy
from stax.operators.broadcast import Broadcast
from stax.operators.reshape import Reshape

# Lists of ops that are longer do not push the lines beside the others to the right.
WIDE = 40
# An operand that is so many times smaller than another does not make more than a copy of that.
SMALL = 4


class Values:
    """The values of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.fusion = program, program.fusion
        self.names = Labels(program.graph, program.fusion).names
        self.order = {node: i for i, node in enumerate(program.graph.nodes)}
        self.results = {self.fusion.root_of(x): i for i, x in enumerate(program.graph.outputs)}
        self.kernels = {
            step.region: step.built.kernel.name
            for step in program.steps
            if isinstance(step, KernelStep) and step.region is not None
        }

    def name(self, node: Node) -> str:
        """Return the name of a value in memory, as kernels have it; results say that they are."""
        root = self.fusion.root_of(node)
        name = self.names.get(root, root.op.name)
        return f"{name} (result {self.results[root]})" if root in self.results else name

    def traffic(self, read: Iterable[Node], written: Iterable[Node]) -> str:
        """Say which values a step reads and writes, and how many bytes they are."""
        parts = []
        for verb, nodes in (("reads", read), ("writes", written)):
            roots = list(dict.fromkeys(map(self.fusion.root_of, nodes)))
            if roots:
                shown = ", ".join(f"{self.name(x)} {x.type!r}" for x in roots)
                parts.append(f"{verb} {shown}: {_size(roots)}")
        return "; ".join(parts)

    def computed(self, region: Region, targets: Sequence[Node]) -> list[Node]:
        """Return what the kernel of a region computes, moves included, in the program's order."""
        found, pending = set(targets), list(targets)
        while pending:
            for x in pending.pop().inputs:
                is_there = isinstance(x.op, Input) or self.fusion.in_memory(x, region)
                if x not in found and not is_there and not is_free(x):
                    found.add(x)
                    pending.append(x)
        return sorted(found, key=lambda node: self.order.get(node, -1))

    def lines(self, region: Region, nodes: Sequence[Node]) -> list[str]:
        """Return what is computed for each line of the user's, a text for each line."""
        named = []
        for node in nodes:
            if isinstance(node.op, Broadcast | Reshape) and node not in self.fusion.stored:
                continue
            home = self.fusion.home.get(node)
            again = " again" if home not in (None, region) and computes(node.op) else ""
            named.append((library_op(node.op).name + again, where(node)))
        return by_line(named)

    def copies(self) -> list[str]:
        """Return what the program copies without computing anything, and why."""
        found = [self._updated(node, why) for node, why in self.program.copied.items()]
        for step in self.program.steps:
            region = step.region if isinstance(step, KernelStep) else None
            for node in region.targets if region is not None else ():
                source = self._moved(node, region) if region is not None else None
                if source is not None:
                    found.append(self._copy(node, source))
        return [text for text in found if text]

    def _updated(self, node: Node, why: str) -> str:
        """Describe what is copied so that `node` can be updated in place; numbers do not count."""
        maker = node.inputs[0] if isinstance(node.op, Project) else node
        what = f"{maker.op.name} updates a copy, {node.type!r} {_size([node])}: {why}"
        return f"{what}  {where(maker)}".rstrip() if node.type.shape else ""

    def _moved(self, node: Node, region: Region) -> Node | None:
        """Return the value of which a stored one only has elements, in other places, if it does."""
        if self._is_returned(node):
            return self.fusion.view_of(node.inputs[0])
        pending, source = [node.inputs[0] if isinstance(node.op, Copy) else node], None
        while pending:
            x = pending.pop()
            if isinstance(x.op, Input) or self.fusion.in_memory(x, region):
                source = source or x
            elif not (computes(x.op) or is_free(x)):
                largest = max((nbytes(y.type) for y in x.inputs), default=0)
                pending += [y for y in x.inputs if nbytes(y.type) * SMALL >= largest]
            else:
                return None
        return source

    def _is_returned(self, node: Node) -> bool:
        """Say whether a value is a copy since it is returned, not one that is read faster."""
        return isinstance(node.op, Copy) and node in self.fusion.graph.outputs

    def _copy(self, node: Node, source: Node) -> str:
        why = self.fusion.stored[node]
        if self._is_returned(node):
            is_number = isinstance(source.op, Constant)
            what = "an input" if isinstance(self.fusion.root_of(source).op, Input) else ""
            why = f"{'a constant' if is_number else what or 'a value'} is returned"
            why += "" if is_number or what else " twice"
        of = f" of {self.name(source)}" if self.fusion.root_of(source) in self.names else ""
        return f"{node.op.name}{of}, {node.type!r} {_size([node])}: {why}  {where(node)}".rstrip()


def by_line(named: Iterable[tuple[str, str]]) -> list[str]:
    """Return a text for each line of the user's: the ops that come from it, and the line."""
    found: dict[str, list[str]] = {}
    for name, line in named:
        found.setdefault(line, []).append(name)
    texts = [(_counted(ops), line) for line, ops in found.items()]
    width = max((len(ops) for ops, _ in texts if len(ops) <= WIDE), default=0)
    return [f"{ops.ljust(width)}  {line}".rstrip() for ops, line in texts]


def lines_of(graph: Graph) -> list[str]:
    """Return what a graph computes for each line of the user's."""
    shown = [n for n in graph.nodes if not is_free(n) and not isinstance(n.op, Broadcast | Reshape)]
    return by_line((node.op.name, where(node)) for node in shown)


def where(node: Node) -> str:
    """Return the user's line that a node comes from, with its place."""
    if isinstance(node.op, Copy):  # made where no line of the user's is
        return where(node.inputs[0])
    return node.source.shown() if node.source else ""


def _counted(names: Sequence[str]) -> str:
    """Return names in order, with how often where it is more than once."""
    return ", ".join(
        name if names.count(name) == 1 else f"{names.count(name)} x {name}"
        for name in dict.fromkeys(names)
    )


def _size(nodes: Sequence[Node]) -> str:
    types = [node.type for node in nodes]
    total = shown_size(sum(map(nbytes, types)))
    is_open = any(isinstance(n, Extent) for t in types for n in t.shape)
    return f"{total} if {TYPICAL} long" if is_open else total
