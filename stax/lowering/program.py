"""The program of a jitted function: kernels and library calls in order, and where each value lives.

A value lies in an input, in an output or in the arena, scratch memory of one call.  Values in the
arena share memory when one is dead before the other is born.  The driver is one small LLVM
function, `program(context, inputs, outputs, extents)`, that fills in buffer pointers and calls the
kernels, the thread pool and BLAS through the context table; it never goes back to Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from stax.errors import InternalError
from stax.extent import Extent
from stax.graph import Graph, Node
from stax.lowering import loop_ir as ir
from stax.lowering.build import BuiltKernel, KernelBuilder
from stax.lowering.element import SYMBOL_PREFIX, static_size
from stax.lowering.fuse import Fusion, Region, fuse
from stax.lowering.labels import Labels
from stax.lowering.library import LibraryStep, library_steps
from stax.lowering.schedule import schedule
from stax.lowering.sorting import SortStep
from stax.operators.index import Scatter
from stax.types import ArrayType

ALIGNMENT = 64
STACK_ARENA = 4096


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


Step = KernelStep | LibraryStep


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
    # Temporaries of symbolic size, which the caller makes for each call: places behind the outputs.
    open_temporaries: list[ArrayType] = field(default_factory=list)

    @property
    def kernels(self) -> list[ir.Kernel]:
        """The kernels in the order in which they run."""
        return [s.built.kernel for s in self.steps if isinstance(s, KernelStep)]

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


def lower(graph: Graph) -> Program:
    """Lower a prepared graph; raises LoweringError for an op that has no lowering."""
    fusion = fuse(graph)
    # Scheduling may add stored values, so it is done for all regions before any kernel is built.
    plans = [(region, schedule(fusion, region)) for region in fusion.regions]
    labels = Labels(graph, fusion)
    jobs: list[tuple[int, int, Step]] = []
    for i, (region, plan) in enumerate(plans):
        name = f"kernel{i}"
        built = KernelBuilder(fusion, plan, name, labels.names).build()
        jobs.append((region.level, len(jobs), KernelStep(built, region)))
    for i, node in enumerate(fusion.own, len(plans)):
        for part, own in enumerate(library_steps(fusion, node, f"kernel{i}", labels.names)):
            is_copy = isinstance(node.op, Scatter) and not part
            step = KernelStep(own, None, is_copy) if isinstance(own, BuiltKernel) else own
            jobs.append((fusion.level[node], len(jobs), step))
    steps = [step for _, _, step in sorted(jobs, key=lambda job: job[:2])]
    program = Program(graph, fusion, steps, symbols=_symbols(graph))
    _assign_places(program)
    return program


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
                number = len(program.graph.outputs) + len(program.open_temporaries)
                places[node] = Place("output", number)
                program.open_temporaries.append(node.type)
            else:
                places[node] = Place("arena", arena.take(_nbytes(node.type)))
        if isinstance(step, SortStep):
            program.scratch[step] = Place("arena", arena.take(step.scratch_bytes))
            arena.give(program.scratch[step].number, step.scratch_bytes)
        for node in dying[i]:
            if places[node].kind == "arena":
                arena.give(places[node].number, _nbytes(node.type))
    for old, new in in_place.items():
        places[old] = places[new]
    program.arena_bytes = arena.size


def _update_in_place(program: Program) -> dict[Node, Node]:
    """Drop copies of values that nothing else reads; returns whose memory such a value gets.

    Only a value that the program made: what it was given is not to change.
    """
    fixed = {*program.graph.inputs, *map(program.fusion.root_of, program.graph.outputs)}
    last_use: dict[Node, int] = {}
    for i, step in enumerate(program.steps):
        last_use.update(dict.fromkeys(map(program.fusion.root_of, step.reads_and_writes), i))
    found: dict[Node, Node] = {}
    steps: list[Step] = []
    for i, step in reversed(list(enumerate(program.steps))):
        if isinstance(step, KernelStep) and step.is_copy and len(step.built.values) == 2:
            old, new = map(program.fusion.root_of, step.built.values)
            if old not in fixed and last_use[old] == i:
                found[old] = found.get(new, new)
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
        nbytes = _aligned(nbytes)
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
        nbytes = _aligned(nbytes)
        merged: list[tuple[int, int]] = []
        for start, length in sorted([*self.free, (offset, nbytes)]):
            if merged and sum(merged[-1]) == start:
                merged[-1] = merged[-1][0], merged[-1][1] + length
            else:
                merged.append((start, length))
        self.free = merged


def _aligned(nbytes: int) -> int:
    return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)


# --- the driver ---


class DriverWriter:
    """Writes the driver of a program as LLVM text."""

    def __init__(
        self,
        program: Program,
        functions: Mapping[str, str],
        slot: Callable[[str], int],
        attributes: str,
    ) -> None:
        self.program = program
        self.functions = functions  # names of kernels to those of the functions that hold them
        self.slot = slot
        self.attributes = attributes
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
        for step in self.program.steps:
            if isinstance(step, KernelStep):
                self._kernel(step.built)
            else:
                step.call(self)
        self.do("ret i32 0")
        head = "define i32 @program(ptr %context, ptr %inputs, ptr %outputs, ptr %extents)"
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
