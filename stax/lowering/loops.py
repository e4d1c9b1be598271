"""Steps of a program that run other programs: loops and choices.

The body of a loop is a program like the one that holds it, with a driver of its own, so a step
costs what its kernels cost.  A carried value is read where the last step wrote it: from the initial
value, then in turns from the result's memory and from scratch, so that nothing is copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.control import Scan, Switch, While
from stax.extent import Dimension, Extent, product
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import ALIGNMENT, aligned, length_of
from stax.op import Op
from stax.types import ArrayType

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter
    from stax.lowering.program import Program

POLL_EVERY = 256  # steps of a loop; a power of two


# Bytes of a stack at first, and the number of its elements.
FIRST_BYTES = 1 << 16
FIRST_STEPS = 8, 1024


def nbytes(type_: ArrayType) -> Dimension:
    """Return the size of an array in memory."""
    return product(type_.shape) * int(type_.dtype.itemsize)


def _room(type_: ArrayType) -> Dimension:
    """Return the memory that an array needs at any offset that is aligned, itself and padding."""
    size = nbytes(type_)
    return size + ALIGNMENT if isinstance(size, Extent) else aligned(size)


@dataclass(frozen=True, eq=False)
class ControlStep:
    """Run programs: what is read, which results are wanted, and the programs by name."""

    name: str
    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]
    bodies: tuple[Program, ...]
    symbols: tuple[str, ...]  # of the lengths in the table of extents

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        return (*self.operands, *(node for _, node in self.results))

    @property
    def result_types(self) -> tuple[ArrayType, ...]:
        """The types of all results, also of those that nobody reads."""
        types: tuple[ArrayType, ...] = self.node.type.items
        return types

    @property
    def carried(self) -> int:
        """How many of the results go round a loop."""
        return 0

    @property
    def recorded(self) -> dict[int, Node]:
        """The results whose memory grows while the step runs."""
        return {}

    def unread(self, number: int) -> ArrayType:
        """Return what a result that nobody reads needs memory for."""
        return self.result_types[number]

    @property
    def moving(self) -> list[int]:
        """Which carried results change their memory in each step: those not updated in place."""
        return [k for k in range(self.carried) if k not in self.bodies[-1].in_place]

    @property
    def overwrites(self) -> list[tuple[Node, Node]]:
        """Initial values and results that may share memory: carried ones updated in place."""
        results, first = dict(self.results), len(self.operands) - self.after_carried - self.carried
        kept = [k for k in range(self.carried) if k not in self.moving and k in results]
        return [(self.operands[first + k], results[k]) for k in kept]

    @property
    def after_carried(self) -> int:
        """How many operands come after the initial values of what is carried."""
        return 0

    @property
    def scratch_bytes(self) -> Dimension:
        """Memory for results that nobody reads, for carried values, and for the bodies."""
        unread = {*range(len(self.result_types))} - {i for i, _ in self.results}
        types = [*map(self.unread, unread), *(self.result_types[k] for k in self.moving)]
        total: Dimension = self.arena_bytes
        for t in types:
            total = _room(t) + total
        return total

    @property
    def arena_bytes(self) -> int:
        """The scratch memory of a body, of which one runs at a time."""
        return aligned(max((body.call_arena_bytes for body in self.bodies), default=0))

    def body_name(self, number: int) -> str:
        """Return the name of the driver of a body."""
        return f"{self.name}_body{number}"

    def call(self, driver: DriverWriter) -> None:
        """Write the call: tables of operands, of results and of scratch memory."""
        places, recorded = dict(self.results), self.recorded
        has_scratch = isinstance(self.scratch_bytes, Extent) or self.scratch_bytes > 0
        stretches = _Stretches(driver, driver.scratch(self) if has_scratch else "null")
        stretches.start = str(self.arena_bytes)
        outs, spare = [], []
        for i in range(len(self.result_types)):
            if i in recorded:
                outs.append(driver.slot_of(recorded[i]))
            elif i in places:
                outs.append(driver.pointer(places[i]))
            else:
                outs.append(stretches.take(self.unread(i)))
        for k, t in enumerate(self.result_types[: self.carried]):
            spare.append(stretches.take(t) if k in self.moving else "null")
        tables = [
            driver.table("ptr", [driver.pointer(x) for x in self.operands]),
            driver.table("ptr", outs),
            driver.table("ptr", spare),
        ]
        needs = map(driver.from_context, self.needs)
        own = ("%context", *tables, stretches.base, "%extents", *needs)
        driver.check(f"call i32 @{self.name}({', '.join(f'ptr {x}' for x in own)})")

    @property
    def needs(self) -> tuple[str, ...]:
        """The functions of the run time that the step calls, by their slots."""
        return ("poll",)

    def write(self, w: _Writer) -> None:
        """Write the instructions of the function."""
        raise NotImplementedError

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield the function that runs the bodies."""
        yield self.name, _Writer(self, attributes).text()


class _Stretches:
    """Hands out a block of memory piece by piece; their sizes may be symbolic."""

    def __init__(self, driver: DriverWriter, base: str) -> None:
        self.driver, self.base, self.start = driver, base, "0"

    def take(self, type_: ArrayType) -> str:
        """Return the address of memory for an array."""
        new, size = self.driver.new, nbytes(type_)
        address = new(f"getelementptr i8, ptr {self.base}, i64 {self.start}")
        if isinstance(size, int) and self.start.isdigit():
            self.start = str(int(self.start) + aligned(size))
        else:
            end = new(f"add i64 {self.start}, {self.driver.number(ir.index(length_of(size)))}")
            up = new(f"add i64 {end}, {ALIGNMENT - 1}")
            self.start = new(f"and i64 {up}, {-ALIGNMENT}")
        return address


class ScanStep(ControlStep):
    """Run a body once for each element along the leading axis."""

    @property
    def carried(self) -> int:
        return self._op.carry

    @property
    def after_carried(self) -> int:
        return len(self.operands) - self._op.consts - self._op.carry

    @property
    def _op(self) -> Scan:
        assert isinstance(self.node.op, Scan)
        return self.node.op

    def write(self, w: _Writer) -> None:
        op = self._op
        length = op.steps([x.type for x in self.node.inputs])
        first, count = op.consts, op.carry
        n = w.length(length)
        xs = [w.size(x.type.without_leading()) for x in self.node.inputs[first + count :]]
        ys = [w.size(t.without_leading()) for t in self.result_types[count:]]
        last = str(int(n) - 1) if n.isdigit() else w.new(f"sub i64 {n}, 1")
        w.tables(len(self.node.inputs), len(self.result_types))
        w.copy_pointers("inputs", "operands", range(first))
        starts = [w.load("operands", first + k) for k in range(count)]
        bases = [w.load("operands", first + count + j) for j in range(len(xs))]
        outs = [w.load("results", i) for i in range(len(self.result_types))]
        spare = [w.load("spare", k) for k in range(count)]
        if isinstance(length, Extent) or not length:
            w.return_if_none(n, starts, outs)
        moving = w.begin(starts, outs, self.bodies[0].in_place)
        for k in moving:
            w.do(f"%c{k} = phi ptr [{starts[k]}, %first], [%t{k}, %next]")
        w.do(f"%left = sub i64 {last}, %i")
        w.do("%bit = and i64 %left, 1")
        w.do("%even = icmp eq i64 %bit, 0")
        at = "%left" if op.reverse else "%i"
        for k in range(count):
            if k in moving:
                w.do(f"%t{k} = select i1 %even, ptr {outs[k]}, ptr {spare[k]}")
            w.store("inputs", first + k, f"%c{k}" if k in moving else outs[k])
            w.store("outputs", k, f"%t{k}" if k in moving else outs[k])
        for j, size in enumerate(xs):
            w.store("inputs", first + count + j, w.element(bases[j], at, size))
        for j, size in enumerate(ys):
            w.store("outputs", count + j, w.element(outs[count + j], at, size))
        w.run(self.body_name(0), "inputs", "outputs", "ran")
        w.poll("%i", "next")
        w.do("%i.next = add i64 %i, 1")
        w.do(f"%more = icmp slt i64 %i.next, {n}")
        w.do("br i1 %more, label %loop, label %end")
        w.label("end")
        w.do("ret i32 0")


class WhileStep(ControlStep):
    """Run the second body as long as the first says so."""

    @property
    def carried(self) -> int:
        return self._op.carry

    @property
    def recorded(self) -> dict[int, Node]:
        return {i: node for i, node in self.results if i >= self.carried}

    def unread(self, number: int) -> ArrayType:
        t = self.result_types[number]
        return t if number < self.carried else t.without_leading()

    @property
    def needs(self) -> tuple[str, ...]:
        grow = ("grow",) if self.recorded else ()
        return ("poll", *grow, *(() if self._op.limit is None else ("step_limit",)))

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        if self._op.limit is not None:
            text = "".join(f"\\{byte:02X}" for byte in self._where)
            kind = f"[{len(self._where)} x i8]"
            yield f"{self.name}_where", f'@{self.name}_where = internal constant {kind} c"{text}"\n'
        yield from super().functions(attributes)

    @property
    def _where(self) -> bytes:
        """The user's line, for the error of a loop that takes too many steps."""
        source = self.node.source
        return (source.shown() if source else "").encode() + b"\0"

    @property
    def _op(self) -> While:
        assert isinstance(self.node.op, While)
        return self.node.op

    def write(self, w: _Writer) -> None:
        op = self._op
        count, of_cond, of_body = self.carried, op.cond_consts, op.body_consts
        stacks = [i + 1 for i in range(count, len(op.body.outputs))]  # their places among results
        w.tables(max(of_cond, of_body) + count, count + len(stacks))
        w.table("asked", of_cond + count)
        w.table("answers", 2)
        w.do("%flag = alloca i8")
        w.copy_pointers("asked", "operands", range(of_cond))
        w.copy_pointers("inputs", "operands", range(of_cond, of_cond + of_body), -of_cond)
        starts = [w.load("operands", of_cond + of_body + k) for k in range(count)]
        outs = [w.load("results", k) for k in range(count)]
        spare = [w.load("spare", k) for k in range(count)]
        w.store("answers", 0, "%flag")
        w.store("answers", 1, "%arena")
        grown = self._stacks(w)
        moving = w.begin(starts, outs, self.bodies[1].in_place)
        for k in moving:
            w.do(f"%c{k} = phi ptr [{starts[k]}, %first], [%t{k}, %next]")
        for k in range(count):
            w.store("asked", of_cond + k, f"%c{k}" if k in moving else outs[k])
        w.run(self.body_name(0), "asked", "answers", "asked")
        w.do("%answer = load i8, ptr %flag")
        w.do("%goes = icmp ne i8 %answer, 0")
        w.do("br i1 %goes, label %step, label %end")
        w.label("step")
        if op.limit is not None:
            w.stop_at(op.limit.steps, op.limit.shown)
        if grown:
            self._grow(w, grown)
        for position, i in enumerate(stacks, count):
            to = w.in_stack(*grown[i]) if i in grown else w.load("results", i)
            w.store("outputs", position, to)
        for k in range(count):
            if k in moving:
                w.do(f"%in.out{k} = icmp eq ptr %c{k}, {outs[k]}")
                w.do(f"%t{k} = select i1 %in.out{k}, ptr {spare[k]}, ptr {outs[k]}")
            w.store("inputs", of_body + k, f"%c{k}" if k in moving else outs[k])
            w.store("outputs", k, f"%t{k}" if k in moving else outs[k])
        w.run(self.body_name(1), "inputs", "outputs", "ran")
        w.poll("%i", "next")
        w.do("%i.next = add i64 %i, 1")
        w.do("br label %loop")
        w.label("end")
        if op.opens:
            position = self.symbols.index(op.opens)
            w.do(f"store i64 %i, ptr {w.new(f'getelementptr i64, ptr %extents, i64 {position}')}")
        for k in moving:
            w.copy(outs[k], f"%c{k}", w.size(self.result_types[k]))
        w.do("ret i32 0")

    def _stacks(self, w: _Writer) -> dict[int, tuple[str, str]]:
        """Return where the pointer to each stack lies, and the size of its elements."""
        found = {}
        for i in self.recorded:
            found[i] = w.load("results", i), w.size(self.result_types[i].without_leading())
        if found:
            w.do("%capacity = alloca i64")
            w.do("store i64 0, ptr %capacity")
        return found

    def _grow(self, w: _Writer, stacks: dict[int, tuple[str, str]]) -> None:
        """Double the stacks if they are full."""
        op, sizes = self._op, [int(size) for _, size in stacks.values() if size.isdigit()]
        least, most = FIRST_STEPS
        first = min(most, max(least, FIRST_BYTES // max([*sizes, 1])))
        w.do("%had = load i64, ptr %capacity")
        w.do("%full = icmp eq i64 %i, %had")
        w.do("br i1 %full, label %enlarge, label %roomy")
        w.label("enlarge")
        w.do("%twice = shl i64 %had, 1")
        w.do(f"%wanted = call i64 @llvm.smax.i64(i64 %twice, i64 {first})")
        if op.limit is not None:
            steps = max(op.limit.steps, 1)
            w.do(f"%room = call i64 @llvm.smin.i64(i64 %wanted, i64 {steps})")
        else:
            w.do("%room = add i64 %wanted, 0")
        for i, (slot, size) in stacks.items():
            used, new = w.new(f"mul i64 %had, {size}"), w.new(f"mul i64 %room, {size}")
            w.check(f"call i32 %grow(ptr {slot}, i64 {used}, i64 {new})", f"grown{i}")
        w.do("store i64 %room, ptr %capacity")
        w.do("br label %roomy")
        w.label("roomy")
        if op.carry in stacks:
            at = w.in_stack(*stacks[op.carry])
            w.do(f"store i8 1, ptr {at}")


class SwitchStep(ControlStep):
    """Run the body of a number."""

    def write(self, w: _Writer) -> None:
        assert isinstance(self.node.op, Switch)
        w.tables(len(self.operands), len(self.result_types))
        w.copy_pointers("inputs", "operands", range(1, len(self.node.inputs)), -1)
        w.copy_pointers("outputs", "results", range(len(self.result_types)))
        at = w.load("operands", 0)
        w.do(f"%index = load i32, ptr {at}")
        last = len(self.bodies) - 1
        w.do("%low = call i32 @llvm.smax.i32(i32 %index, i32 0)")
        w.do(f"%number = call i32 @llvm.smin.i32(i32 %low, i32 {last})")
        cases = " ".join(f"i32 {k}, label %case{k}" for k in range(1, last + 1))
        w.do(f"switch i32 %number, label %case0 [{cases}]")
        for k in range(last + 1):
            w.label(f"case{k}")
            w.run(self.body_name(k), "inputs", "outputs", f"ran{k}")
            w.do("ret i32 0")


def carried_inputs(op: Op, number: int) -> dict[int, int]:
    """Return which inputs of a graph that `op` holds are carried, and the results they become."""
    match op:
        case Scan():
            return {op.consts + k: k for k in range(op.carry)}
        case While() if number:
            return {op.body_consts + k: k for k in range(op.carry)}
    return {}


STEPS = {Scan: ScanStep, While: WhileStep, Switch: SwitchStep}


def control_step(
    name: str,
    node: Node,
    operands: Sequence[Node],
    results: Sequence[tuple[int, Node]],
    bodies: Sequence[Program],
    symbols: Sequence[str],
) -> ControlStep:
    """Return the step that runs the graphs of a node, which are lowered to `bodies`."""
    kind = STEPS[type(node.op)]
    return kind(name, node, tuple(operands), tuple(results), tuple(bodies), tuple(symbols))


class _Writer:
    """Writes the function of a step.

    It is given tables of pointers to operands and to results, to spare memory for what is carried,
    and the arena of the bodies.
    """

    def __init__(self, step: ControlStep, attributes: str) -> None:
        self.step = step
        self.attributes = attributes
        self.lines: list[str] = []
        self.count = 0

    def text(self) -> str:
        """Return the function."""
        self.step.write(self)
        own = ("context", "operands", "results", "spare", "arena", "extents", *self.step.needs)
        given = ", ".join(f"ptr %{name.replace('step_', '')}" for name in own)
        body = "\n".join(self.lines)
        return (
            f"define internal i32 @{self.step.name}({given}) {self.attributes} {{\n"
            f"entry:\n{body}\n}}\n"
        )

    def do(self, line: str) -> None:
        """Append an instruction."""
        self.lines.append(f"  {line}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")

    def new(self, line: str) -> str:
        """Append an instruction and return the name of its result."""
        self.count += 1
        self.do(f"%v{self.count} = {line}")
        return f"%v{self.count}"

    def table(self, name: str, length: int) -> None:
        """Make room for a table of pointers."""
        self.do(f"%{name} = alloca [{max(length, 1)} x ptr], align 16")

    def tables(self, inputs: int, outputs: int) -> None:
        """Make the tables that a body is given; the arena comes after its outputs."""
        self.table("inputs", inputs)
        self.table("outputs", outputs + 1)
        self.store("outputs", outputs, "%arena")

    def at(self, table: str, position: int) -> str:
        """Return the address of an entry of a table."""
        return self.new(f"getelementptr ptr, ptr %{table}, i64 {position}")

    def load(self, table: str, position: int) -> str:
        """Return an entry of a table."""
        return self.new(f"load ptr, ptr {self.at(table, position)}")

    def store(self, table: str, position: int, pointer: str) -> None:
        """Set an entry of a table."""
        self.do(f"store ptr {pointer}, ptr {self.at(table, position)}")

    def copy_pointers(self, to: str, source: str, positions: range, shift: int = 0) -> None:
        """Copy entries of one table to another, `shift` places on."""
        for i in positions:
            self.store(to, i + shift, self.load(source, i))

    def length(self, extent: Dimension) -> str:
        """Return a length, or a number of bytes, that may be symbolic."""
        if not isinstance(extent, Extent):
            return str(extent)
        total = "0"
        for names, coefficient in extent.terms:
            term = str(coefficient)
            for name in names:
                position = self.step.symbols.index(name)
                at = self.new(f"getelementptr i64, ptr %extents, i64 {position}")
                term = self.new(f"mul i64 {term}, {self.new(f'load i64, ptr {at}')}")
            total = self.new(f"add i64 {total}, {term}")
        return total

    def size(self, type_: ArrayType) -> str:
        """Return the size of an array."""
        return self.length(nbytes(type_))

    def copy(self, to: str, source: str, size: str) -> None:
        """Copy `size` bytes, unless they are there already."""
        same = self.new(f"icmp eq ptr {to}, {source}")
        size = self.new(f"select i1 {same}, i64 0, i64 {size}")
        self.do(f"call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def begin(self, starts: Sequence[str], outs: Sequence[str], in_place: set[int]) -> list[int]:
        """Begin the block of the loop; returns which carried values change their memory.

        The others are updated in place: their result starts as a copy of the initial value.
        """
        for k in sorted(in_place):
            self.copy(outs[k], starts[k], self.size(self.step.result_types[k]))
        self.do("br label %first")
        self.label("first")
        self.do("br label %loop")
        self.label("loop")
        self.do("%i = phi i64 [0, %first], [%i.next, %next]")
        return [k for k in range(len(starts)) if k not in in_place]

    def return_if_none(self, n: str, starts: Sequence[str], outs: Sequence[str]) -> None:
        """End a loop of no step, whose results are the initial values."""
        self.do(f"%some = icmp sgt i64 {n}, 0")
        self.do("br i1 %some, label %steps, label %no.step")
        self.label("no.step")
        for k, (start, out) in enumerate(zip(starts, outs, strict=False)):
            self.copy(out, start, self.size(self.step.result_types[k]))
        self.do("ret i32 0")
        self.label("steps")

    def stop_at(self, limit: int, shown: int) -> None:
        """End the program with an error where the loop has taken `limit` steps."""
        self.do(f"%over = icmp eq i64 %i, {limit}")
        self.do("br i1 %over, label %exceeded, label %allowed")
        self.label("exceeded")
        self.do(f"%refused = call i32 %limit(i64 {shown}, ptr @{self.step.name}_where)")
        self.do("ret i32 %refused")
        self.label("allowed")

    def in_stack(self, slot: str, size: str) -> str:
        """Return the address of the element of this step in a stack."""
        return self.element(self.new(f"load ptr, ptr {slot}"), "%i", size)

    def element(self, base: str, number: str, size: str) -> str:
        """Return the address of an element of `size` bytes."""
        offset = self.new(f"mul i64 {number}, {size}")
        return self.new(f"getelementptr i8, ptr {base}, i64 {offset}")

    def run(self, body: str, inputs: str, outputs: str, name: str) -> None:
        """Call a body; if it fails, so does the step."""
        given = f"ptr %context, ptr %{inputs}, ptr %{outputs}, ptr %extents"
        self.check(f"call i32 @{body}({given})", name)

    def check(self, call: str, name: str) -> None:
        """Make a call that returns a status; if it is an error, it is that of the step."""
        status = self.new(call)
        failed = self.new(f"icmp ne i32 {status}, 0")
        self.do(f"br i1 {failed}, label %{name}.failed, label %{name}.fine")
        self.label(f"{name}.failed")
        self.do(f"ret i32 {status}")
        self.label(f"{name}.fine")

    def poll(self, step: str, then: str) -> None:
        """Look now and then whether Ctrl-C was pressed, and go on at the block `then`."""
        low = self.new(f"and i64 {step}, {POLL_EVERY - 1}")
        due = self.new(f"icmp eq i64 {low}, {POLL_EVERY - 1}")
        self.do(f"br i1 {due}, label %poll.now, label %{then}")
        self.label("poll.now")
        asked = self.new("call i32 %poll()")
        stop = self.new(f"icmp ne i32 {asked}, 0")
        self.do(f"br i1 {stop}, label %stopped, label %{then}")
        self.label("stopped")
        self.do("ret i32 -1")
        self.label(then)
