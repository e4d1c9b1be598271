"""The driver of a program: the small function that calls kernels, the thread pool and libraries.

It is text of LLVM.  Where a program makes memory while it runs, of a size that a loop finds, the
driver is two functions: the steps, and around them one that gives the memory back however they end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from stax.errors import InternalError
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.alike import table_of
from stax.lowering.bounds import RECORD
from stax.lowering.build import BuiltKernel
from stax.lowering.element import ALIGNMENT, SYMBOL_PREFIX, THREADS, length_of, runs_alone
from stax.lowering.host import HostStep
from stax.lowering.program import STACK_ARENA, KernelStep, Place, Program, Step
from stax.lowering.vector_math.external import POINTER, REPORTING, SLOT_PREFIX


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
        host_numbers: Mapping[HostStep, int] | None = None,
        has_checks: bool = False,
        tables: Collection[str] = (),
    ) -> None:
        self.name = name
        self.tables = tables  # the kernels that are given a table of numbers
        self.has_checks = has_checks  # of the bounds of what kernels read and write
        self.host_numbers = host_numbers or {}  # of ops in the table of those left to Python
        self.program = program
        self.functions = functions  # names of kernels to those of the functions that hold them
        self.slot = slot
        self.attributes = attributes
        self.externals = externals  # C functions that kernels call through global pointers
        self.lines: list[str] = []
        self.count = 0
        self.slots: dict[str, str] = {}
        self.loaded: dict[Place, str] = {}
        self.made: set[Place] = set()  # open places that have memory

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
        """Append what gives a status, and return that if it is an error."""
        status = self.new(line)
        failed = self.new(f"icmp ne i32 {status}, 0")
        self.count += 1
        stop, go = f"stop{self.count}", f"go{self.count}"
        self.do(f"br i1 {failed}, label %{stop}, label %{go}")
        self.lines += [f"{stop}:", f"  ret i32 {status}", f"{go}:"]

    def check_where(self, flag: str, line: str) -> None:
        """Append a call that returns a status, to be made if the byte at `flag` is not 0."""
        byte = self.new(f"load i8, ptr {flag}")
        holds = self.new(f"icmp ne i8 {byte}, 0")
        self.count += 1
        then, after = f"then{self.count}", f"after{self.count}"
        self.do(f"br i1 {holds}, label %{then}, label %{after}")
        self.lines.append(f"{then}:")
        self.check(line)
        self.do(f"br label %{after}")
        self.lines.append(f"{after}:")

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

    def slot_of(self, node: Node) -> str:
        """Return where the address of a value stands whose memory grows while a step runs."""
        place = self.program.places[self.program.fusion.root_of(node)]
        self.made.add(place)
        return self._slot(place)

    def _slot(self, place: Place) -> str:
        return self.new(f"getelementptr ptr, ptr %open, i64 {place.number}")

    def _make(self, place: Place) -> None:
        """Write the instructions that make the memory of an open place."""
        type_ = self.program.growing[place.number]
        size: ir.Expr = ir.index(int(type_.dtype.itemsize))
        for extent in type_.shape:
            size = ir.mul(size, ir.index(length_of(extent)))
        grow = self.from_context("grow")
        self.check(f"call i32 {grow}(ptr {self._slot(place)}, i64 0, i64 {self.number(size)})")
        self.made.add(place)

    def _address(self, place: Place) -> str:
        if place not in self.loaded:
            if place.kind == "arena":
                self.loaded[place] = self.new(f"getelementptr i8, ptr %arena, i64 {place.number}")
            elif place.kind == "open":
                if place not in self.made:
                    self._make(place)
                self.loaded[place] = self.new(f"load ptr, ptr {self._slot(place)}")
            else:
                at = self.new(f"getelementptr ptr, ptr %{place.kind}s, i64 {place.number}")
                self.loaded[place] = self.new(f"load ptr, ptr {at}")
                if place.offset:
                    start = f"ptr {self.loaded[place]}, i64 {place.offset}"
                    self.loaded[place] = self.new(f"getelementptr i8, {start}")
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
            case ir.Var() if e == THREADS:
                at = f"ptr {self.from_context('threads')}"
                count = self.new(f"load atomic i32, {at} monotonic, align 4")
                return self.new(f"sext i32 {count} to i64")
            case ir.Var(name, _):
                names = (*self.program.symbols, *self.program.opens)
                position = names.index(name.removeprefix(SYMBOL_PREFIX))
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
        if self.has_checks and self.name == "program":
            self.do(f"store i64 0, ptr {RECORD}")
        for step in self.program.steps:
            if isinstance(step, KernelStep):
                self._kernel(step.built, step.may_be_done)
            else:
                step.call(self)
        if REPORTING.intersection(self.externals):
            state = self.new(f"call i32 {self.from_context('PyGILState_Ensure')}()")
            self.do(f"call void {self.from_context('PyErr_Clear')}()")
            self.do(f"call void {self.from_context('PyGILState_Release')}(i32 {state})")
        self._look_at_record()
        self.do("ret i32 0")
        if self.program.growing or self.program.opens:
            inner = self._function(f"{self.name}.steps", "internal ", self.lines, ", ptr %open")
            return inner + self._function(self.name, self._linkage, self._making_memory())
        return self._function(self.name, self._linkage, self.lines)

    @property
    def _linkage(self) -> str:
        return "" if self.name == "program" else "internal "

    def _function(self, name: str, linkage: str, lines: Sequence[str], more: str = "") -> str:
        given = f"ptr %context, ptr %inputs, ptr %outputs, ptr %extents{more}"
        # What runs once is loads, stores and calls in a row, which are not worth LLVM's time.
        quick = " noinline optnone" if self.name == "program" else ""
        head = f"define {linkage}i32 @{name}({given}){quick}"
        return f"{head} {self.attributes} {{\n" + "\n".join(lines) + "\n}\n"

    def _making_memory(self) -> list[str]:
        """Return the function around the steps: it has the table of memory that they make, and of
        lengths that they find, and gives that memory back however they end."""
        count, known = len(self.program.growing), len(self.program.symbols)
        outer = DriverWriter(self.program, {}, self.slot, self.attributes)
        lengths = max(known + len(self.program.opens), 1)
        outer.do(f"%lengths = alloca [{lengths} x i64], align 16")
        outer.do(f"%open = alloca [{max(count, 1)} x ptr], align 16")
        outer.do(f"store [{max(count, 1)} x ptr] zeroinitializer, ptr %open")
        copied = f"ptr %lengths, ptr %extents, i64 {8 * known}, i1 false"
        outer.do(f"call void @llvm.memmove.p0.p0.i64({copied})")
        given = "ptr %context, ptr %inputs, ptr %outputs, ptr %lengths, ptr %open"
        status = outer.new(f"call i32 @{self.name}.steps({given})")
        self._hand_over(outer, status)
        release = outer.from_context("release")
        for number in range(count):
            at = outer.new(f"getelementptr ptr, ptr %open, i64 {number}")
            data = outer.new(f"load ptr, ptr {at}")
            is_none = outer.new(f"icmp eq ptr {data}, null")
            outer.do(f"br i1 {is_none}, label %kept{number}, label %made{number}")
            outer.lines.append(f"made{number}:")
            outer.do(f"call void {release}(ptr {data})")
            outer.do(f"br label %kept{number}")
            outer.lines.append(f"kept{number}:")
        outer.do(f"ret i32 {status}")
        self.slots.update(outer.slots)
        return outer.lines

    def _hand_over(self, outer: DriverWriter, status: str) -> None:
        """Give the caller the results whose memory was made, and the lengths, if all went well."""
        if not self.program.handed_over:
            return
        outer.do(f"%fine = icmp eq i32 {status}, 0")
        outer.do("br i1 %fine, label %hand.over, label %give.back")
        outer.lines.append("hand.over:")
        for i, number in self.program.handed_over.items():
            slot = outer.new(f"getelementptr ptr, ptr %open, i64 {number}")
            at = outer.new(f"getelementptr ptr, ptr %outputs, i64 {i}")
            cell, data = outer.new(f"load ptr, ptr {at}"), outer.new(f"load ptr, ptr {slot}")
            outer.do(f"store ptr {data}, ptr {cell}")
            outer.do(f"store ptr null, ptr {slot}")
        first = len(self.program.symbols)
        for i in range(first, first + len(self.program.opens)):
            source = outer.new(f"getelementptr i64, ptr %lengths, i64 {i}")
            target = outer.new(f"getelementptr i64, ptr %extents, i64 {i}")
            found = outer.new(f"load i64, ptr {source}")
            outer.do(f"store i64 {found}, ptr {target}")
        outer.do("br label %give.back")
        outer.lines.append("give.back:")

    def _kernel(self, built: BuiltKernel, may_be_done: bool) -> None:
        """Call a kernel; one that may be done copies its first buffer to the second."""
        kernel = built.kernel
        numbers = [table_of(kernel.name)] if kernel.name in self.tables else []
        buffers = self.kernel_table([*(self.pointer(n) for n in built.values), *numbers])
        extents = self.table("i64", [self.number(v) for v in kernel.extents])
        count, n = ir.static(built.extent), self.number(built.extent)
        alone = count is not None and runs_alone(count, built.grain)
        if may_be_done:
            source, target = map(self.pointer, built.values)
            is_done = self.new(f"icmp eq ptr {source}, {target}")
            n = self.new(f"select i1 {is_done}, i64 0, i64 {n}")
        self.run_kernel(kernel, buffers, extents, n, None if alone else built.grain)

    def kernel_table(self, pointers: Sequence[str]) -> str:
        """Return the address of a table of the buffers of a kernel."""
        return self.table("ptr", [*pointers, RECORD] if self.has_checks else pointers)

    def run_kernel(
        self, kernel: ir.Kernel, buffers: str, extents: str, count: str, grain: int | None
    ) -> None:
        """Append the call of a kernel, by the thread pool if there is a `grain`."""
        function = self.functions[kernel.name]
        if grain is None:
            self.do(f"call void @{function}(ptr {buffers}, ptr {extents}, i64 0, i64 {count})")
        else:
            parallel = self.from_context("parallel_for")
            arguments = f"ptr @{function}, ptr {buffers}, ptr {extents}, i64 {count}, i64 {grain}"
            self.do(f"call void {parallel}({arguments})")
        self._look_at_record()

    def _look_at_record(self) -> None:
        """End the program if a kernel has left a place outside of a buffer in the record."""
        if self.has_checks:
            found = self.new(f"load i64, ptr {RECORD}")
            self.check(f"trunc i64 {found} to i32")
