"""The program of a jitted function: kernels and library calls in order, and where each value lives.

A value lies in an input, in an output or in the arena, scratch memory of one call.  Values in the
arena share memory when one is dead before the other is born.  The driver is one small LLVM
function, `program(context, inputs, outputs, extents)`, that fills in buffer pointers and calls the
kernels, the thread pool and BLAS through the context table; it never goes back to Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stax.control import HoldsGraphs
from stax.errors import InternalError
from stax.extent import Extent
from stax.graph import Graph, Node, held_graphs
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel, KernelBuilder
from stax.lowering.element import ALIGNMENT, SYMBOL_PREFIX, aligned, static_size
from stax.lowering.fuse import Fusion, Region, fuse
from stax.lowering.labels import Labels
from stax.lowering.lapack import LapackStep
from stax.lowering.library import LibraryStep, library_steps, results_read
from stax.lowering.loops import ControlStep, carried_inputs, control_step
from stax.lowering.prepare import prepare
from stax.lowering.schedule import schedule
from stax.lowering.sorting import SortStep
from stax.lowering.updates import small_updates_as_scatters
from stax.lowering.vector_math.external import POINTER, REPORTING, SLOT_PREFIX
from stax.operators.index import Scatter
from stax.types import ArrayType, uint8

STACK_ARENA = 4096
MANY_STEPS = 8


@dataclass(frozen=True, eq=False)
class KernelStep:
    """Run a kernel over its parallel loop; it computes a region, or one op by itself.

    `is_copy` says that it only copies the first of its values to the second, so that it need not
    run where both have the same memory.
    """

    built: BuiltKernel
    region: Region | None = None
    is_copy: bool = False

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return self.built.values


Step = KernelStep | LibraryStep | ControlStep


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
    symbols: tuple[str, ...] = ()
    # Of the body of a loop: inputs, and the outputs that take their place in the next step.
    carried: Mapping[int, int] = field(default_factory=dict)
    # Outputs that are written where the input lies that they take the place of.
    in_place: set[int] = field(default_factory=set)
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
        return [s.built.kernel for s in steps if isinstance(s, KernelStep)]

    @property
    def is_long(self) -> bool:
        """Say whether a call may take long however little it reads: many steps, or a loop."""
        return len(self.steps) > MANY_STEPS or any(isinstance(s, ControlStep) for s in self.steps)

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


def lower(graph: Graph, prefix: str = "", carried: Mapping[int, int] | None = None) -> Program:
    """Lower a prepared graph; raises LoweringError for an op that has no lowering.

    `prefix` begins the names of its kernels; `carried` says of inputs which output takes their
    place in the next step of a loop, so that it may take their memory.
    """
    fusion = fuse(graph)
    # Scheduling may add stored values, so it is done for all regions before any kernel is built.
    plans = [(region, schedule(fusion, region)) for region in fusion.regions]
    labels = Labels(graph, fusion)
    jobs: list[tuple[int, int, Step]] = []
    for i, (region, plan) in enumerate(plans):
        name = f"{prefix}kernel{i}"
        built = KernelBuilder(fusion, plan, name, labels.names).build()
        jobs.append((region.level, len(jobs), KernelStep(built, region)))
    for i, node in enumerate(fusion.own, len(plans)):
        name = f"{prefix}kernel{i}"
        if isinstance(node.op, HoldsGraphs):
            jobs.append((fusion.level[node], len(jobs), _control_step(fusion, node, name)))
            continue
        for part, own in enumerate(library_steps(fusion, node, name, labels.names)):
            is_copy = isinstance(node.op, Scatter) and not part
            step = KernelStep(own, None, is_copy) if isinstance(own, BuiltKernel) else own
            jobs.append((fusion.level[node], len(jobs), step))
    steps = [step for _, _, step in sorted(jobs, key=lambda job: job[:2])]
    program = Program(graph, fusion, steps, symbols=_symbols(graph), carried=carried or {})
    _assign_places(program)
    return program


def _control_step(fusion: Fusion, node: Node, name: str) -> ControlStep:
    bodies = []
    for i, graph in enumerate(held_graphs(node.op)):
        carried = carried_inputs(node.op, i)
        body = prepare(small_updates_as_scatters(graph, carried))
        bodies.append(lower(body, f"{name}_{i}_", carried))
    sources = [fusion.root_of(x) for x in node.inputs]
    return control_step(name, node, sources, results_read(fusion, node), bodies)


def _symbols(graph: Graph) -> tuple[str, ...]:
    """Return the names of the symbolic lengths of the inputs."""
    found = {
        s for x in graph.inputs for e in x.type.shape if isinstance(e, Extent) for s in e.symbols()
    }
    return tuple(sorted(found))


def _assign_places(program: Program) -> None:
    places = program.places
    for i, node in enumerate(program.graph.inputs):
        places[node] = Place("input", i)
    for i, node in enumerate(program.graph.outputs):
        root = program.fusion.root_of(node)
        if root in places:
            raise InternalError(f"lower: output {i} has no memory of its own.")
        places[root] = Place("output", i)
    last_use: dict[Node, int] = {}
    in_place = _update_in_place(program)
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
                places[node] = _open_place(program, node.type)
            else:
                places[node] = Place("arena", arena.take(_nbytes(node.type)))
        if isinstance(step, SortStep | LapackStep | ControlStep):
            nbytes = step.scratch_bytes
            if isinstance(nbytes, Extent):
                program.scratch[step] = _open_place(program, ArrayType(uint8, (nbytes,)))
            else:
                program.scratch[step] = Place("arena", arena.take(nbytes))
                arena.give(program.scratch[step].number, nbytes)
        for node in dying[i]:
            if places[node].kind == "arena":
                arena.give(places[node].number, _nbytes(node.type))
    for old, new in in_place.items():
        places[old] = places[new]
    program.arena_bytes = arena.size


def _open_place(program: Program, type_: ArrayType) -> Place:
    """Return a place that the caller makes, because its size is symbolic."""
    number = len(program.graph.outputs) + len(program.open_temporaries)
    program.open_temporaries.append(type_)
    return Place("output", number)


def _update_in_place(program: Program) -> dict[Node, Node]:
    """Drop copies of values that nothing else reads; returns whose memory such a value gets.

    Only a value that the program made, or one that a loop carries to the same place: nothing else
    that it was given is to change.
    """
    root_of, graph = program.fusion.root_of, program.graph
    carried = {graph.inputs[i]: k for i, k in program.carried.items()}
    fixed = {*program.graph.inputs, *map(program.fusion.root_of, program.graph.outputs)}
    last_use: dict[Node, int] = {}
    for i, step in enumerate(program.steps):
        last_use.update(dict.fromkeys(map(program.fusion.root_of, step.reads_and_writes), i))
    found: dict[Node, Node] = {}
    steps: list[Step] = []
    for i, step in reversed(list(enumerate(program.steps))):
        if isinstance(step, KernelStep) and step.is_copy and len(step.built.values) == 2:
            old, new = map(program.fusion.root_of, step.built.values)
            last = found.get(new, new)
            number = carried.get(old)
            if number is not None and last is root_of(graph.outputs[number]):
                if last_use[old] == i:
                    program.in_place.add(number)
                    continue
            elif old not in fixed and last_use[old] == i:
                found[old] = last
                continue
        steps.append(step)
    program.steps = steps[::-1]
    return found


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


# --- the driver ---


class DriverWriter:
    """Writes the driver of a program as LLVM text."""

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, str],
        slot: Callable[[str], int],
        attributes: str,
        externals: Sequence[str] = (),
        name: str = "program",
    ) -> None:
        self.name = name
        self.program = program
        self.functions = functions  # names of kernels to those of the functions that hold them
        self.slot = slot
        self.attributes = attributes
        self.externals = externals  # C functions that kernels call through global pointers
        self.lines: list[str] = []
        self.count = 0
        self.slots: dict[str, str] = {}
        self.loaded: dict[Place, str] = {}

    def new(self, line: str) -> str:
        """Append an instruction and return the name of its result."""
        self.count += 1
        name = f"%t{self.count}"
        self.lines.append(f"  {name} = {line}")
        return name

    def do(self, line: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {line}")

    def check(self, line: str) -> None:
        """Append a call that returns a status, and return that if it is an error."""
        status = self.new(line)
        failed = self.new(f"icmp ne i32 {status}, 0")
        self.count += 1
        stop, go = f"stop{self.count}", f"go{self.count}"
        self.do(f"br i1 {failed}, label %{stop}, label %{go}")
        self.lines += [f"{stop}:", f"  ret i32 {status}", f"{go}:"]

    def branch(self, condition: str, line: str) -> None:
        """Append an instruction that ends the program if `condition` holds."""
        self.count += 1
        ending, going = f"end{self.count}", f"go{self.count}"
        self.do(f"br i1 {condition}, label %{ending}, label %{going}")
        self.lines += [f"{ending}:", f"  {line}", f"{going}:"]

    def from_context(self, name: str) -> str:
        """Return the function pointer in a slot of the context table."""
        if name not in self.slots:
            at = self.new(f"getelementptr ptr, ptr %context, i64 {self.slot(name)}")
            self.slots[name] = self.new(f"load ptr, ptr {at}")
        return self.slots[name]

    def pointer(self, node: Node) -> str:
        """Return the address of a value."""
        return self._address(self.program.places[self.program.fusion.root_of(node)])

    def scratch(self, step: Step) -> str:
        """Return the address of the memory that a step needs while it runs."""
        return self._address(self.program.scratch[step])

    def _address(self, place: Place) -> str:
        if place not in self.loaded:
            if place.kind == "arena":
                self.loaded[place] = self.new(f"getelementptr i8, ptr %arena, i64 {place.number}")
            else:
                at = self.new(f"getelementptr ptr, ptr %{place.kind}s, i64 {place.number}")
                self.loaded[place] = self.new(f"load ptr, ptr {at}")
        return self.loaded[place]

    def table(self, kind: str, values: Sequence[str]) -> str:
        """Return the address of an array of pointers or integers on the stack."""
        if not values:
            return "null"
        array = self.new(f"alloca [{len(values)} x {kind}], align 16")
        for i, value in enumerate(values):
            at = self.new(f"getelementptr {kind}, ptr {array}, i64 {i}")
            self.do(f"store {kind} {value}, ptr {at}")
        return array

    def number(self, e: ir.Expr) -> str:
        """Return the value of an index expression over the symbols of the program."""
        match e:
            case ir.Const(value, _):
                return str(int(value))
            case ir.Var(name, _):
                position = self.program.symbols.index(name.removeprefix(SYMBOL_PREFIX))
                at = self.new(f"getelementptr i64, ptr %extents, i64 {position}")
                return self.new(f"load i64, ptr {at}")
            case ir.Apply(name, (x, y), _):
                spelling = {
                    "add": "add",
                    "sub": "sub",
                    "mul": "mul",
                    "floordiv": "sdiv",
                    "mod": "srem",
                }
                return self.new(f"{spelling[name]} i64 {self.number(x)}, {self.number(y)}")
        raise InternalError(f"driver: no index expression: {e!r}")

    def write(self) -> str:
        """Return the text of the driver."""
        size = self.program.arena_bytes
        if 0 < size <= STACK_ARENA:
            self.do(f"%arena = alloca [{size} x i8], align {ALIGNMENT}")
        elif size:
            # Whoever calls the program hands over a larger arena behind the outputs.
            position = len(self.program.graph.outputs) + len(self.program.open_temporaries)
            self.do(f"%arena.at = getelementptr ptr, ptr %outputs, i64 {position}")
            self.do("%arena = load ptr, ptr %arena.at")
        for name in self.externals:
            # Calls that run at the same time store the same address.
            function = self.from_context(SLOT_PREFIX + name)
            self.do(
                f"store atomic ptr {function}, ptr {POINTER.format(name=name)} unordered, align 8"
            )
        for step in self.program.steps:
            if isinstance(step, KernelStep):
                self._kernel(step.built)
            else:
                step.call(self)
        if REPORTING.intersection(self.externals):
            state = self.new(f"call i32 {self.from_context('PyGILState_Ensure')}()")
            self.do(f"call void {self.from_context('PyErr_Clear')}()")
            self.do(f"call void {self.from_context('PyGILState_Release')}(i32 {state})")
        self.do("ret i32 0")
        linkage = "" if self.name == "program" else "internal "
        given = "ptr %context, ptr %inputs, ptr %outputs, ptr %extents"
        head = f"define {linkage}i32 @{self.name}({given})"
        return f"{head} {self.attributes} {{\n" + "\n".join(self.lines) + "\n}\n"

    def _kernel(self, built: BuiltKernel) -> None:
        kernel, function = built.kernel, self.functions[built.kernel.name]
        buffers = self.table("ptr", [self.pointer(n) for n in built.values])
        extents = self.table("i64", [self.number(v) for v in kernel.extents])
        count = ir.static(built.extent)
        n = self.number(built.extent)
        if count is not None and count <= built.grain:
            self.do(f"call void @{function}(ptr {buffers}, ptr {extents}, i64 0, i64 {n})")
            return
        parallel = self.from_context("parallel_for")
        arguments = f"ptr @{function}, ptr {buffers}, ptr {extents}, i64 {n}, i64 {built.grain}"
        self.do(f"call void {parallel}({arguments})")
