"""The program of a jitted function: kernels and library calls in order, and where each value lives.

A value lies in an input, in an output or in the arena, scratch memory of one call.  Values in the
arena share memory when one is dead before the other is born.  The driver is one small LLVM
function, `program(context, inputs, outputs, extents)`, that fills in buffer pointers and calls the
kernels, the thread pool and BLAS through the context table; it never goes back to Python.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stax.control import HoldsGraphs, Scan
from stax.errors import InternalError
from stax.extent import Extent
from stax.graph import Graph, Input, Node, held_graphs
from stax.lowering import loop_ir as ir
from stax.lowering.block_step import BlockStep
from stax.lowering.blocks import Blocks, blocks_of
from stax.lowering.build import BuiltKernel, KernelBuilder
from stax.lowering.element import ALIGNMENT, aligned, static_size
from stax.lowering.fuse import Fusion, Region, fuse
from stax.lowering.host import HostStep
from stax.lowering.labels import Labels
from stax.lowering.lane_step import LaneStep, lane_step
from stax.lowering.lapack import LapackStep
from stax.lowering.library import LibraryStep, library_steps, results_read
from stax.lowering.loops import ControlStep, carried_inputs, control_step
from stax.lowering.overwriting import Accesses
from stax.lowering.prepare import prepare
from stax.lowering.schedule import Schedule, schedule
from stax.lowering.sorting import SortStep
from stax.lowering.while_step import EndingStep, ending_step
from stax.operators.index import Scatter
from stax.types import ArrayType, uint8

STACK_ARENA = 4096
MANY_STEPS = 8


@dataclass(frozen=True, eq=False)
class KernelStep:
    """Run a kernel over its parallel loop; it computes what `plan` is for, or `node` by itself.

    `is_copy` says that it only copies the first of its values to the second, so that it need not
    run where both have the same memory.  `once` builds it to compute each element once.
    """

    built: BuiltKernel
    plan: Schedule | None = None
    node: Node | None = None
    is_copy: bool = False
    once: Callable[[], BuiltKernel] | None = None

    @property
    def region(self) -> Region | None:
        """What is computed in one nest of loops."""
        return None if self.plan is None else self.plan.region

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return self.built.values


Step = KernelStep | LibraryStep | ControlStep | LaneStep | EndingStep


@dataclass(frozen=True)
class Place:
    """Where a value lives: in `inputs[number]`, in `outputs[number]`, or in the arena."""

    kind: str
    number: int


@dataclass(eq=False)
class Program:
    """A lowered graph."""

    graph: Graph
    fusion: Fusion
    steps: list[Step]
    places: dict[Node, Place] = field(default_factory=dict)
    scratch: dict[Step, Place] = field(default_factory=dict)
    arena_bytes: int = 0
    # The lengths in the table of extents: those that it is given, and those that its loops find.
    symbols: tuple[str, ...] = ()
    opens: tuple[str, ...] = ()
    # Values of a size that is known only while the program runs, which makes their memory.
    growing: list[ArrayType] = field(default_factory=list)
    # Results among them, by number: the caller finds their addresses where other results go.
    handed_over: dict[int, int] = field(default_factory=dict)
    # Of the body of a loop: inputs, and the outputs that take their place in the next step.
    carried: Mapping[int, int] = field(default_factory=dict)
    # Outputs that are written where the input lies that they take the place of.
    in_place: set[int] = field(default_factory=set)
    # Values whose memory others take, and who does.
    overwritten: dict[Node, Node] = field(default_factory=dict)
    # Results that begin as a copy of a value that might have been updated in place, and why.
    copied: dict[Node, str] = field(default_factory=dict)
    # Temporaries of symbolic size, which the caller makes for each call: places behind the outputs.
    open_temporaries: list[ArrayType] = field(default_factory=list)

    @property
    def parts(self) -> list[Program]:
        """This program and those that its steps run."""
        inner = [b.parts for s in self.steps if isinstance(s, ControlStep) for b in s.bodies]
        return [self, *itertools.chain.from_iterable(inner)]

    @property
    def kernels(self) -> list[ir.Kernel]:
        """The kernels in the order in which they run, those of loops after the others."""
        steps = itertools.chain.from_iterable(part.steps for part in self.parts)
        return [s.built.kernel for s in steps if isinstance(s, KernelStep | LaneStep | EndingStep)]

    @property
    def host_steps(self) -> list[HostStep]:
        """The steps, those of loops included, that call back to Python."""
        steps = itertools.chain.from_iterable(part.steps for part in self.parts)
        return [s for s in steps if isinstance(s, HostStep)]

    @property
    def is_long(self) -> bool:
        """Say whether a call may take long however little it reads: many steps, or a loop."""
        loops = (isinstance(s, ControlStep | LaneStep | EndingStep) for s in self.steps)
        return len(self.steps) > MANY_STEPS or any(loops)

    @property
    def call_arena_bytes(self) -> int:
        """The arena that the caller has to provide; a small one is on the driver's stack."""
        return self.arena_bytes if self.arena_bytes > STACK_ARENA else 0

    @property
    def bytes_moved(self) -> int:
        """Bytes that kernels and library calls read and write, each buffer once per step."""
        return sum(_nbytes(n.type) for s in self.steps for n in s.reads_and_writes)


def _nbytes(type_: ArrayType) -> int:
    return static_size(type_.shape) * int(type_.dtype.itemsize)


def lower(
    graph: Graph,
    prefix: str = "",
    carried: Mapping[int, int] | None = None,
    symbols: tuple[str, ...] | None = None,
) -> Program:
    """Lower a prepared graph; raises LoweringError for an op that has no lowering.

    `prefix` begins the names of its kernels; `carried` says of inputs which output takes their
    place in the next step of a loop, so that it may take their memory; `symbols` are the lengths
    that the program around it knows.
    """
    fusion = fuse(graph)
    known = _symbols(graph) if symbols is None else symbols
    opens = tuple(dict.fromkeys(node.op.opens for node in graph.nodes if node.op.opens))
    # Scheduling may add stored values, so it is done for all regions before any kernel is built.
    plans = [(region, schedule(fusion, region)) for region in fusion.regions]
    labels = Labels(graph, fusion)
    jobs: list[tuple[int, int, Step]] = []
    for i, (region, plan) in enumerate(plans):
        name = f"{prefix}kernel{i}"
        builder = functools.partial(KernelBuilder, fusion, plan, name, labels.names)
        once = builder(once=True).build if plan.can_compute_once else None
        kernel_step = KernelStep(builder().build(), plan, once=once)
        jobs.append((region.level, len(jobs), kernel_step))
    for i, node in enumerate(fusion.own, len(plans)):
        name = f"{prefix}kernel{i}"
        if isinstance(node.op, HoldsGraphs):
            held = _control_step(fusion, node, name, labels.names, (*known, *opens))
            jobs.append((fusion.level[node], len(jobs), held))
            continue
        for part, own in enumerate(library_steps(fusion, node, name, labels.names)):
            is_copy = isinstance(node.op, Scatter) and not part
            step = KernelStep(own, None, node, is_copy) if isinstance(own, BuiltKernel) else own
            jobs.append((fusion.level[node], len(jobs), step))
    steps = [step for _, _, step in sorted(jobs, key=lambda job: job[:2])]
    program = Program(graph, fusion, steps, symbols=known, opens=opens, carried=carried or {})
    _assign_places(program, symbols is not None)
    return program


def _control_step(
    fusion: Fusion, node: Node, name: str, labels: Mapping[Node, str], symbols: tuple[str, ...]
) -> ControlStep | LaneStep | EndingStep:
    sources, results = [fusion.root_of(x) for x in node.inputs], results_read(fusion, node)
    given = (name, node, sources, dict(results), labels)
    one_kernel = lane_step(*given) or ending_step(*given)
    if one_kernel is not None:
        return one_kernel
    if isinstance(node.op, Scan) and isinstance(blocks := blocks_of(node.op), Blocks):
        body = lower(prepare(blocks.body), f"{name}_", carried_inputs(node.op, 0), symbols)
        return BlockStep(name, node, tuple(sources), tuple(results), (body,), symbols, blocks)
    bodies = []
    for i, graph in enumerate(held_graphs(node.op)):
        carried = carried_inputs(node.op, i)
        bodies.append(lower(graph, f"{name}_{i}_", carried, symbols))
    return control_step(name, node, sources, results, bodies, symbols)


def _symbols(graph: Graph) -> tuple[str, ...]:
    """Return the names of the symbolic lengths of the inputs."""
    found = {
        s for x in graph.inputs for e in x.type.shape if isinstance(e, Extent) for s in e.symbols()
    }
    return tuple(sorted(found))


def _assign_places(program: Program, is_body: bool = False) -> None:
    """Give each value its memory; a body makes that of values of symbolic size itself."""
    places = program.places
    for i, node in enumerate(program.graph.inputs):
        places[node] = Place("input", i)
    for i, node in enumerate(program.graph.outputs):
        root = program.fusion.root_of(node)
        if root in places:
            raise InternalError(f"lower: output {i} has no memory of its own.")
        if _mentions(node.type, program.opens):
            places[root] = _open_place(program, node.type, is_body)
            program.handed_over[i] = places[root].number
        else:
            places[root] = Place("output", i)
    last_use: dict[Node, int] = {}
    in_place = program.overwritten = _update_in_place(program)
    # Views of one value under several shapes are one stretch of memory.
    touched = [
        [in_place.get(root, root) for root in map(program.fusion.root_of, s.reads_and_writes)]
        for s in program.steps
    ]
    for i, nodes in enumerate(touched):
        for node in nodes:
            last_use[node] = i
    dying: list[list[Node]] = [[] for _ in touched]
    for node, i in last_use.items():
        dying[i].append(node)
    arena = _Arena()
    for i, (step, nodes) in enumerate(zip(program.steps, touched, strict=True)):
        for node in nodes:
            if node in places:
                continue
            if any(isinstance(extent, Extent) for extent in node.type.shape):
                places[node] = _open_place(program, node.type, is_body)
            else:
                places[node] = Place("arena", arena.take(_nbytes(node.type)))
        if isinstance(step, SortStep | LapackStep | ControlStep | LaneStep | EndingStep):
            nbytes = step.scratch_bytes
            if isinstance(nbytes, Extent):
                type_ = ArrayType(uint8, (nbytes,))
                program.scratch[step] = _open_place(program, type_, is_body)
            else:
                program.scratch[step] = Place("arena", arena.take(nbytes))
                arena.give(program.scratch[step].number, nbytes)
        for node in dying[i]:
            if places[node].kind == "arena":
                arena.give(places[node].number, _nbytes(node.type))
    for old, new in in_place.items():
        places[old] = places[new]
    program.arena_bytes = arena.size


def _mentions(type_: ArrayType, names: Sequence[str]) -> bool:
    """Say whether a length in a type depends on one of these symbols."""
    lengths = [n for n in type_.shape if isinstance(n, Extent)]
    return any(name in n.symbols() for n in lengths for name in names)


def _open_place(program: Program, type_: ArrayType, is_body: bool) -> Place:
    """Return a place for what is of symbolic size.

    The caller makes it, if it knows the size; else the program does while it runs.
    """
    if is_body or _mentions(type_, program.opens):
        program.growing.append(type_)
        return Place("open", len(program.growing) - 1)
    number = len(program.graph.outputs) + len(program.open_temporaries)
    program.open_temporaries.append(type_)
    return Place("output", number)


def _update_in_place(program: Program) -> dict[Node, Node]:
    """Let results take the memory of values that nothing else reads; returns who gets whose.

    Only that of a value that the program made, or one that a loop carries to the same place:
    nothing else that it was given is to change.  A copy is dropped then, and a kernel built again.
    """
    root_of, graph = program.fusion.root_of, program.graph
    carried = {graph.inputs[i]: k for i, k in program.carried.items()}
    fixed = {*graph.inputs, *map(root_of, graph.outputs)}
    last_use: dict[Node, int] = {}
    for i, step in enumerate(program.steps):
        last_use.update(dict.fromkeys(map(root_of, step.reads_and_writes), i))
    found: dict[Node, Node] = {}

    def give(old: Node, new: Node) -> bool:
        """Give `new` the memory of `old`, if that may be."""
        last, number = found.get(new, new), carried.get(old)
        if number is not None and last is root_of(graph.outputs[number]):
            program.in_place.add(number)
            return True
        if old in fixed or old in found:
            return False
        found[old] = last
        return True

    steps: list[Step] = []
    for i, step in reversed(list(enumerate(program.steps))):
        if isinstance(step, KernelStep):
            values = [root_of(x) for x in step.built.values]
            if step.is_copy and len(values) == 2:
                if last_use[values[0]] == i and give(*values):
                    continue
                program.copied[values[1]] = _why_copied(values[0], last_use[values[0]] == i)
            dying = [last_use[x] == i for x in values]
            step = _overwriting(step, values, dying, give)
        if isinstance(step, ControlStep):
            operands = list(map(root_of, step.operands))
            for old, new in step.overwrites:
                is_last = last_use[root_of(old)] == i and operands.count(root_of(old)) == 1
                if not (is_last and give(root_of(old), root_of(new))):
                    program.copied[root_of(new)] = _why_copied(root_of(old), is_last)
        steps.append(step)
    program.steps = steps[::-1]
    return found


def _why_copied(x: Node, is_last: bool) -> str:
    """Say why a value that is updated is copied first."""
    if isinstance(x.op, Input):
        return "it is an argument, which keeps its value"
    return "its memory is taken" if is_last else "its old value is read again"


def _overwriting(
    step: KernelStep,
    values: Sequence[Node],
    dying: Sequence[bool],
    give: Callable[[Node, Node], bool],
) -> KernelStep:
    """Return a step whose kernel writes results over operands that are read for the last time."""
    kernel = step.built.kernel
    if step.once is None:
        return step
    accesses = Accesses(kernel)
    pairs: list[tuple[str, str]] = []
    for new, result in zip(kernel.params, values, strict=True):
        for old, operand, is_last in zip(kernel.params, values, dying, strict=True):
            is_taken = any(old.name == name for name, _ in pairs) or values.count(operand) > 1
            may = is_last and not is_taken and accesses.may_overwrite(old.name, new.name)
            if may and give(operand, result):
                pairs.append((old.name, new.name))
                break
    if not pairs:
        return step
    built = step.once()
    again = replace(built.kernel, aliases=tuple(pairs))
    return replace(step, built=replace(built, kernel=again))


class _Arena:
    """Hands out aligned stretches of one block of memory: the best fitting free one."""

    def __init__(self) -> None:
        self.size = 0
        self.free: list[tuple[int, int]] = []  # offset, length; sorted by offset, never adjacent

    def take(self, nbytes: int) -> int:
        """Return the offset of a stretch of at least `nbytes`."""
        nbytes = max(ALIGNMENT, aligned(nbytes))
        fitting = [stretch for stretch in self.free if stretch[1] >= nbytes]
        if fitting:
            offset, length = min(fitting, key=lambda stretch: stretch[1])
            self.free.remove((offset, length))
            if length > nbytes:
                self.give(offset + nbytes, length - nbytes)
            return offset
        if self.free and sum(self.free[-1]) == self.size:
            offset, _ = self.free.pop()
        else:
            offset = self.size
        self.size = offset + nbytes
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        """Take a stretch back and join it to free neighbours."""
        nbytes = max(ALIGNMENT, aligned(nbytes))
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self.free, (offset, nbytes)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = merged[-1][0], merged[-1][1] + length
            else:
                merged.append((start, length))
        self.free = merged
