"""The program of a jitted function: kernels and library calls in order, and where each value lives.

A value lies in an input, in an output or in the arena, scratch memory of one call.  Values in the
arena share memory when one is dead before the other is born.  The driver is one small LLVM
function, `program(context, inputs, outputs, extents)`, that fills in buffer pointers and calls the
kernels, the thread pool and BLAS through the context table; it never goes back to Python.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stax.control import HoldsGraphs, Scan
from stax.errors import InternalError
from stax.extent import Dimension, Extent
from stax.graph import Graph, Input, Node, held_graphs
from stax.lowering import loop_ir as ir
from stax.lowering.block_step import BlockStep
from stax.lowering.blocks import Blocks, blocks_of
from stax.lowering.build import BuiltKernel, KernelBuilder
from stax.lowering.donated import Donated, ReturnStep
from stax.lowering.element import static_size
from stax.lowering.fuse import Fusion, Region, fuse
from stax.lowering.host import HostStep
from stax.lowering.labels import Labels
from stax.lowering.lane_step import LaneStep, lane_step
from stax.lowering.lapack import LapackStep
from stax.lowering.library import LibraryStep, library_steps, results_read
from stax.lowering.loops import ControlStep, carried_inputs, control_step
from stax.lowering.overwriting import Accesses
from stax.lowering.packing import Life, packed
from stax.lowering.prepare import prepare
from stax.lowering.schedule import Schedule, schedule
from stax.lowering.sinking import sunk
from stax.lowering.sorting import SortStep
from stax.lowering.streaming import MUCH_WORK, streaming
from stax.lowering.while_step import EndingStep, ending_step
from stax.operators.index import Scatter
from stax.types import ArrayType, uint8

STACK_ARENA = 4096
MANY_STEPS = 8


@dataclass(frozen=True, eq=False)
class KernelStep:
    """Run a kernel over its parallel loop; it computes what `plan` is for, or `node` by itself.

    `is_copy` says that it only copies the first of its values to the second, so that it need not
    run where both have the same memory; whether they do is seen when it runs if it `may_be_done`.
    `once` builds it to compute each element once.
    """

    built: BuiltKernel
    plan: Schedule | None = None
    node: Node | None = None
    is_copy: bool = False
    once: Callable[[], BuiltKernel] | None = None
    may_be_done: bool = False

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
    """Where a value lives: in `inputs[number]`, in `outputs[number]`, or in the arena.

    A value that is dead before a result is written may live in it, `offset` bytes from its start.
    """

    kind: str
    number: int
    offset: int = 0


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
    # Inputs that are given up; and results, by number, with those whose memory they may take: the
    # caller hands over the same address for both, or two, and the input is left alone.
    donated: Donated = field(default_factory=Donated)
    taken: dict[int, int] = field(default_factory=dict)
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
    def plain_kernels(self) -> set[str]:
        """The names of kernels that steps of their own run, not steps made of a loop."""
        steps = itertools.chain.from_iterable(part.steps for part in self.parts)
        return {s.built.kernel.name for s in steps if isinstance(s, KernelStep)}

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

    def why_taken(self, number: int) -> str:
        """Say which result is written over a donated input, or why none is."""
        x, donated = self.graph.inputs[number], self.donated
        name = f"donated {x.op.label or f'input {number}'}"  # type: ignore[attr-defined]
        results = [k for k in range(len(donated.output_types)) if donated.fits(number, k)]
        for k in results:
            if self.taken.get(k) == number:
                return f"{name}: result {k} takes its memory, where nobody else sees that"
        if not results:
            return f"{name}: not written over, no result is {donated.input_types[number]!r}"
        if all(k in self.taken for k in results):
            return f"{name}: not written over, the results of its type are over other arguments"
        return f"{name}: not written over, it is read while results of its type are written"

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
    donated: Donated | None = None,
) -> Program:
    """Lower a prepared graph; raises LoweringError for an op that has no lowering.

    `prefix` begins the names of its kernels; `carried` says of inputs which output takes their
    place in the next step of a loop, so that it may take their memory; `symbols` are the lengths
    that the program around it knows; results may take the memory of `donated` inputs.
    """
    donated = donated or Donated()
    fusion = sunk(fuse(graph))
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
    program = Program(
        graph, fusion, steps, symbols=known, opens=opens, carried=carried or {}, donated=donated
    )
    _assign_places(program, symbols is not None)
    if symbols is None:
        _stream_results(program)
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
    in_place = program.overwritten = _update_in_place(program)
    # Views of one value under several shapes are one stretch of memory.
    touched = [
        [in_place.get(root, root) for root in map(program.fusion.root_of, s.reads_and_writes)]
        for s in program.steps
    ]
    lives: dict[Node | Step, Life] = {}
    for i, (step, nodes) in enumerate(zip(program.steps, touched, strict=True)):
        for node in nodes:
            known = lives.get(node)
            first = i if known is None else known.first
            is_open = any(isinstance(extent, Extent) for extent in node.type.shape)
            if is_open and node not in places:
                places[node] = _open_place(program, node.type, is_body)
            elif not is_open:
                lives[node] = Life(first, i, _nbytes(node.type))
        nbytes = _scratch_bytes(step)
        if isinstance(nbytes, Extent):
            program.scratch[step] = _open_place(program, ArrayType(uint8, (nbytes,)), is_body)
        elif nbytes is not None:
            lives[step] = Life(i, i, nbytes)
    _take_over(program, lives)
    _pack(program, lives, is_body)
    for old, new in in_place.items():
        places[old] = places[new]


def _scratch_bytes(step: Step) -> Dimension | None:
    """Return what a step needs for itself while it runs, or None."""
    if isinstance(step, SortStep):
        return step.scratch_bytes or None  # nothing where it is on the stack
    if isinstance(step, LapackStep | ControlStep | LaneStep | EndingStep):
        return step.scratch_bytes
    return None


def _pack(program: Program, lives: Mapping[Node | Step, Life], is_body: bool) -> None:
    """Give the values and steps that have none yet memory in the arena, or in a later result.

    The results of a body may be where its inputs are, so they are left alone.
    """
    places = program.places
    waiting = [x for x in lives if isinstance(x, Step) or x not in places]
    results = []
    for k, node in () if is_body else enumerate(map(program.fusion.root_of, program.graph.outputs)):
        # Not written by a step, of a size that is not known, or the memory of an input.
        unknown = Life(0, 0, 0)
        is_free = places[node].kind == "output" and k not in program.taken
        results.append(lives.get(node, unknown) if is_free else unknown)
    spots, program.arena_bytes = packed([lives[x] for x in waiting], results)
    for x, spot in zip(waiting, spots, strict=True):
        in_arena = Place("arena", spot.offset)
        place = in_arena if spot.result < 0 else Place("output", spot.result, spot.offset)
        if isinstance(x, Step):
            program.scratch[x] = place
        else:
            places[x] = place


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


class _Heirs:
    """Who gets whose memory, found from the last step to the first.

    A result may take that of a value that the program made, of an input that a loop carries to the
    same place, or of a donated one: nothing else that a program was given is to change.
    """

    def __init__(self, program: Program) -> None:
        root_of, graph = program.fusion.root_of, program.graph
        self.program = program
        self.outputs = {root_of(x): k for k, x in enumerate(graph.outputs)}
        self.carried = {graph.inputs[i]: k for i, k in program.carried.items()}
        self.donated = {graph.inputs[i]: i for i in program.donated.inputs}
        self.given = {*graph.inputs, *self.outputs}
        self.last_use = _last_uses(program)
        self.found: dict[Node, Node] = {}
        for step in program.steps:
            if isinstance(step, ReturnStep):  # whose memory may be read until the end
                self.give(*map(root_of, step.reads_and_writes))

    def may_die(self, x: Node, step: int) -> bool:
        """Say whether the memory of a value may be taken by what a step writes."""
        is_kept = x in self.given and x not in self.carried and x not in self.donated
        return self.last_use[x] == step and not is_kept

    def give(self, old: Node, new: Node) -> bool:
        """Give `new` the memory of `old`, if that may be."""
        last = self.found.get(new, new)
        number = self.outputs.get(last)
        if number is not None and self.carried.get(old) == number:
            self.program.in_place.add(number)
            return True
        if old in self.donated:
            given, taken = self.donated[old], self.program.taken
            if number is None or number in taken or not self.program.donated.fits(given, number):
                return False
            taken[number] = self.donated.pop(old)
            return True
        if old in self.given or old in self.found:
            return False
        self.found[old] = last
        return True


def _update_in_place(program: Program) -> dict[Node, Node]:
    """Let results take the memory of values that nothing else reads; returns who gets whose.

    A copy is dropped then, and a kernel built again.
    """
    root_of, heirs = program.fusion.root_of, _Heirs(program)
    last_use, give = heirs.last_use, heirs.give
    steps: list[Step] = []
    for i, step in reversed(list(enumerate(program.steps))):
        if isinstance(step, KernelStep):
            values = [root_of(x) for x in step.built.values]
            if step.is_copy and len(values) == 2:
                is_donated = values[0] in heirs.donated
                if last_use[values[0]] == i and give(*values):
                    steps += [replace(step, may_be_done=True)] if is_donated else []
                    continue
                why = _why_copied(values[0], last_use[values[0]] == i, is_donated)
                program.copied[values[1]] = why
            step = _overwriting(step, i, values, heirs)
        if isinstance(step, ControlStep):
            operands = list(map(root_of, step.operands))
            for old, new in step.overwrites:
                is_last = last_use[root_of(old)] == i and operands.count(root_of(old)) == 1
                is_donated = root_of(old) in heirs.donated
                if not (is_last and give(root_of(old), root_of(new))):
                    why = _why_copied(root_of(old), is_last, is_donated)
                    program.copied[root_of(new)] = why
        steps.append(step)
    program.steps = steps[::-1]
    return heirs.found


def _last_uses(program: Program) -> dict[Node, int]:
    """Return the last step that touches each value in memory."""
    found: dict[Node, int] = {}
    for i, step in enumerate(program.steps):
        found.update(dict.fromkeys(map(program.fusion.root_of, step.reads_and_writes), i))
    return found


def _take_over(program: Program, lives: Mapping[Node | Step, Life]) -> None:
    """Let further results take the memory of donated inputs that were read before."""
    graph, root_of = program.graph, program.fusion.root_of
    free = program.donated.inputs.difference(program.taken.values())
    if not free:
        return
    last_use = _last_uses(program)
    roots = {k: root_of(x) for k, x in enumerate(graph.outputs) if k not in program.taken}
    written = {k: lives[x].first for k, x in roots.items() if x in lives}
    read = {i: last_use.get(graph.inputs[i], -1) for i in free}
    program.taken.update(program.donated.matched(read, written))


def _stream_results(program: Program) -> None:
    """Write large results that no step reads past the caches."""
    root_of = program.fusion.root_of
    uses = Counter(root_of(x) for s in program.steps for x in {*s.reads_and_writes})
    results = {x for x, place in program.places.items() if place.kind == "output"}
    unread = {x for x in results if uses[x] == 1 and x not in program.overwritten.values()}
    for i, step in enumerate(program.steps):
        if isinstance(step, KernelStep) and (step.plan is None or step.plan.work < MUCH_WORK):
            program.steps[i] = replace(step, built=streaming(step.built, root_of, unread))


def _why_copied(x: Node, is_last: bool, is_donated: bool) -> str:
    """Say why a value that is updated is copied first."""
    if isinstance(x.op, Input) and not is_donated:
        return "it is an argument, which keeps its value"
    return "its memory is taken" if is_last else "its old value is read again"


def _overwriting(
    step: KernelStep, number: int, values: Sequence[Node], heirs: _Heirs
) -> KernelStep:
    """Return a step whose kernel writes results over operands that are read for the last time.

    Donated ones come first: the memory of a result that takes theirs is not made at all.
    """
    kernel, over = step.built.kernel, step.built.over
    if step.once is None and not over:
        return step
    counts = Counter(values)
    params = list(zip(kernel.params, values, strict=True))
    written = [(new.name, x) for new, x in params if new.name in kernel.outputs]
    dying = [(old, x) for old, x in params if heirs.may_die(x, number) and counts[x] == 1]
    dying.sort(key=lambda pair: pair[1] not in heirs.donated)
    spare = {old.name: x for old, x in dying}
    if not spare:
        return step
    accesses = None if over else Accesses(kernel)
    pairs: list[tuple[str, str]] = []
    for new, result in written:
        for old, operand in spare.items():
            may = accesses.may_overwrite(old, new) if accesses else (old, new) in over
            if may and heirs.give(operand, result):
                pairs.append((old, new))
                del spare[old]
                break
    if not pairs:
        return step
    built = step.once() if step.once else step.built
    again = replace(built.kernel, aliases=tuple(pairs))
    return replace(step, built=replace(built, kernel=again))
