"""Steps of a program that run other programs: loops and choices.

The body of a loop is a program like the one that holds it, with a driver of its own, so a step
costs what its kernels cost.  A carried value is read where the last step wrote it: from the initial
value, then in turns from the result's memory and from scratch, so that nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.control import Scan, Switch, While
from stax.errors import LoweringError
from stax.graph import Node
from stax.lowering.element import aligned
from stax.op import Op
from stax.types import ArrayType

if TYPE_CHECKING:
    from stax.lowering.program import DriverWriter, Program

POLL_EVERY = 256  # steps of a loop; a power of two


def nbytes(type_: ArrayType) -> int:
    """Return the size of an array in memory; raises LoweringError for symbolic lengths."""
    if not all(isinstance(n, int) for n in type_.shape):
        raise LoweringError(
            f"a loop over {type_!r}: symbolic lengths are not compiled in loops.",
            advice="Compile it for each length: leave out dynamic=.",
        )
    return int(math.prod(type_.shape) * type_.dtype.itemsize)


@dataclass(frozen=True, eq=False)
class ControlStep:
    """Run programs: what is read, which results are wanted, and the programs by name."""

    name: str
    node: Node
    operands: tuple[Node, ...]
    results: tuple[tuple[int, Node], ...]
    bodies: tuple[Program, ...]

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
    def scratch_bytes(self) -> int:
        """Memory for results that nobody reads, for carried values, and for the bodies."""
        unread = {*range(len(self.result_types))} - {i for i, _ in self.results}
        sizes = [nbytes(self.result_types[i]) for i in (*unread, *range(self.carried))]
        return sum(map(aligned, sizes)) + self.arena_bytes

    @property
    def arena_bytes(self) -> int:
        """The scratch memory of a body, of which one runs at a time."""
        return aligned(max((body.call_arena_bytes for body in self.bodies), default=0))

    def body_name(self, number: int) -> str:
        """Return the name of the driver of a body."""
        return f"{self.name}_body{number}"

    def call(self, driver: DriverWriter) -> None:
        """Write the call: tables of operands, of results and of scratch memory."""
        places = dict(self.results)
        scratch, start = driver.scratch(self) if self.scratch_bytes else "null", self.arena_bytes
        outs, spare = [], []
        for i, t in enumerate(self.result_types):
            if i in places:
                outs.append(driver.pointer(places[i]))
            else:
                outs.append(driver.new(f"getelementptr i8, ptr {scratch}, i64 {start}"))
                start += aligned(nbytes(t))
        for t in self.result_types[: self.carried]:
            spare.append(driver.new(f"getelementptr i8, ptr {scratch}, i64 {start}"))
            start += aligned(nbytes(t))
        tables = [
            driver.table("ptr", [driver.pointer(x) for x in self.operands]),
            driver.table("ptr", outs),
            driver.table("ptr", spare),
        ]
        given = ", ".join(f"ptr {x}" for x in ("%context", *tables, scratch, "%extents"))
        poll = driver.from_context("poll")
        driver.check(f"call i32 @{self.name}({given}, ptr {poll})")

    def write(self, w: _Writer) -> None:
        """Write the instructions of the function."""
        raise NotImplementedError

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield the function that runs the bodies."""
        yield self.name, _Writer(self, attributes).text()


class ScanStep(ControlStep):
    """Run a body once for each element along the leading axis."""

    @property
    def carried(self) -> int:
        return self._op.carry

    @property
    def _op(self) -> Scan:
        assert isinstance(self.node.op, Scan)
        return self.node.op

    def write(self, w: _Writer) -> None:
        op = self._op
        n = int(op.length)
        first, count = op.consts, op.carry
        xs = [nbytes(x.type) // max(n, 1) for x in self.node.inputs[first + count :]]
        ys = [nbytes(t) // max(n, 1) for t in self.result_types[count:]]
        w.tables(len(self.node.inputs), len(self.result_types))
        w.copy_pointers("inputs", "operands", range(first))
        starts = [w.load("operands", first + k) for k in range(count)]
        bases = [w.load("operands", first + count + j) for j in range(len(xs))]
        outs = [w.load("results", i) for i in range(len(self.result_types))]
        spare = [w.load("spare", k) for k in range(count)]
        moving = w.begin(starts, outs, self.bodies[0].in_place)
        for k in moving:
            w.do(f"%c{k} = phi ptr [{starts[k]}, %entry], [%t{k}, %next]")
        w.do(f"%left = sub i64 {n - 1}, %i")
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
        return len(self.result_types)

    def write(self, w: _Writer) -> None:
        op = self.node.op
        assert isinstance(op, While)
        count, of_cond, of_body = self.carried, op.cond_consts, op.body_consts
        w.tables(max(of_cond, of_body) + count, count)
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
        moving = w.begin(starts, outs, self.bodies[1].in_place)
        for k in moving:
            w.do(f"%c{k} = phi ptr [{starts[k]}, %entry], [%t{k}, %next]")
        for k in range(count):
            w.store("asked", of_cond + k, f"%c{k}" if k in moving else outs[k])
        w.run(self.body_name(0), "asked", "answers", "asked")
        w.do("%answer = load i8, ptr %flag")
        w.do("%goes = icmp ne i8 %answer, 0")
        w.do("br i1 %goes, label %step, label %end")
        w.label("step")
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
        for k in moving:
            w.copy(outs[k], f"%c{k}", nbytes(self.result_types[k]))
        w.do("ret i32 0")


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
            return {op.body_consts + k: k for k in range(len(op.body.outputs))}
    return {}


STEPS = {Scan: ScanStep, While: WhileStep, Switch: SwitchStep}


def control_step(
    name: str,
    node: Node,
    operands: Sequence[Node],
    results: Sequence[tuple[int, Node]],
    bodies: Sequence[Program],
) -> ControlStep:
    """Return the step that runs the graphs of a node, which are lowered to `bodies`."""
    for x in node.inputs:
        nbytes(x.type)
    kind = STEPS[type(node.op)]
    return kind(name, node, tuple(operands), tuple(results), tuple(bodies))


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
        given = "ptr %context, ptr %operands, ptr %results, ptr %spare, ptr %arena, ptr %extents"
        body = "\n".join(self.lines)
        return (
            f"define internal i32 @{self.step.name}({given}, ptr %poll) {self.attributes} {{\n"
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

    def copy(self, to: str, source: str, size: int) -> None:
        """Copy `size` bytes."""
        self.do(f"call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 false)")

    def begin(self, starts: Sequence[str], outs: Sequence[str], in_place: set[int]) -> list[int]:
        """Begin the block of the loop; returns which carried values change their memory.

        The others are updated in place: their result starts as a copy of the initial value.
        """
        for k in sorted(in_place):
            self.copy(outs[k], starts[k], nbytes(self.step.result_types[k]))
        self.do("br label %loop")
        self.label("loop")
        self.do("%i = phi i64 [0, %entry], [%i.next, %next]")
        return [k for k in range(len(starts)) if k not in in_place]

    def element(self, base: str, number: str, size: int) -> str:
        """Return the address of an element of `size` bytes."""
        offset = self.new(f"mul i64 {number}, {size}")
        return self.new(f"getelementptr i8, ptr {base}, i64 {offset}")

    def run(self, body: str, inputs: str, outputs: str, name: str) -> None:
        """Call a body; if it fails, so does the step."""
        given = f"ptr %context, ptr %{inputs}, ptr %{outputs}, ptr %extents"
        status = self.new(f"call i32 @{body}({given})")
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
