"""The step of a program that runs a loop over blocks of rows (see `blocks`).

Its function is a kernel of the thread pool: a task is all steps of one block, or some of them if
the loop is long, so that the program looks now and then whether Ctrl-C was pressed.  Every block
has scratch memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.control import Scan
from stax.lowering.blocks import Blocks
from stax.lowering.element import aligned, static_size
from stax.lowering.lanes import steps_of
from stax.lowering.loops import ControlStep
from stax.operators.contract import DotGeneral
from stax.types import ArrayType

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# Operations of all blocks after which a call looks whether Ctrl-C was pressed.
POLL_AFTER = 1 << 26


@dataclass(frozen=True, eq=False)
class BlockStep(ControlStep):
    """Run a loop over blocks of rows: its body for one block is the one of `bodies`."""

    blocks: Blocks

    @property
    def op(self) -> Scan:
        assert isinstance(self.node.op, Scan)
        return self.node.op

    @property
    def arena_bytes(self) -> int:
        """The scratch memory of the body of one block."""
        return aligned(self.bodies[0].call_arena_bytes)

    @property
    def scratch_bytes(self) -> int:
        """Memory for the bodies, for what is carried, and for results that nobody reads."""
        types = self.result_types
        unread = {*range(len(types))} - {i for i, _ in self.results}
        sizes = [_nbytes(types[i]) for i in (*range(self.op.carry), *unread)]
        return self.arena_bytes * self.blocks.count + sum(map(aligned, sizes))

    @property
    def chunk(self) -> int:
        """How many steps one call of the pool does."""
        work = 1
        for node in self.bodies[0].graph.nodes:
            terms = 1
            if isinstance(node.op, DotGeneral):
                lhs = node.inputs[0].type.shape
                terms = math.prod(lhs[a] for a in node.op.contracting[0])
            work += math.prod(node.type.shape) * terms
        return max(1, POLL_AFTER // (work * self.blocks.count))

    def call(self, driver: DriverWriter) -> None:
        """Write the calls of the pool."""
        scratch, start = driver.scratch(self), self.arena_bytes * self.blocks.count
        types, results = self.result_types, dict(self.results)

        def taken(type_: ArrayType) -> str:
            nonlocal start
            address = driver.new(f"getelementptr i8, ptr {scratch}, i64 {start}")
            start += aligned(_nbytes(type_))
            return address

        outs = [
            driver.pointer(results[i]) if i in results else taken(t) for i, t in enumerate(types)
        ]
        spare = [taken(t) for t in types[: self.op.carry]]
        operands = [driver.pointer(x) for x in self.operands]
        table = driver.table("ptr", ["%context", "%extents", scratch, *operands, *outs, *spare])
        steps, calls = steps_of(self.op), -(-steps_of(self.op) // self.chunk)
        parallel, poll = driver.from_context("parallel_for"), driver.from_context("poll")
        extents, name = driver.table("i64", ["0", "0"]), driver.new("add i64 0, 0")[1:]
        driver.do(f"br label %{name}.begin")
        driver.lines.append(f"{name}.begin:")
        driver.do(f"br label %{name}.loop")
        driver.lines.append(f"{name}.loop:")
        driver.do(f"%{name}.n = phi i64 [0, %{name}.begin], [%{name}.after, %{name}.next]")
        first = driver.new(f"mul i64 %{name}.n, {self.chunk}")
        last = driver.new(f"add i64 {first}, {self.chunk}")
        last = driver.new(f"call i64 @llvm.smin.i64(i64 {last}, i64 {steps})")
        driver.do(f"store i64 {first}, ptr {extents}")
        at = driver.new(f"getelementptr i64, ptr {extents}, i64 1")
        driver.do(f"store i64 {last}, ptr {at}")
        given = f"ptr @{self.name}, ptr {table}, ptr {extents}, i64 {self.blocks.count}, i64 1"
        driver.do(f"call void {parallel}({given})")
        asked = driver.new(f"call i32 {poll}()")
        driver.branch(driver.new(f"icmp ne i32 {asked}, 0"), "ret i32 -1")
        driver.do(f"br label %{name}.next")
        driver.lines.append(f"{name}.next:")
        driver.do(f"%{name}.after = add i64 %{name}.n, 1")
        more = driver.new(f"icmp slt i64 %{name}.after, {calls}")
        driver.do(f"br i1 {more}, label %{name}.loop, label %{name}.end")
        driver.lines.append(f"{name}.end:")

    def functions(self, attributes: str) -> Iterator[tuple[str, str]]:
        """Yield the function that runs blocks."""
        yield self.name, _Writer(self, attributes).text()


def _nbytes(type_: ArrayType) -> int:
    return static_size(type_.shape) * int(type_.dtype.itemsize)


class _Writer:
    """Writes the function of the pool: for each block, its steps."""

    def __init__(self, step: BlockStep, attributes: str) -> None:
        self.step, self.attributes = step, attributes
        self.lines: list[str] = []
        self.count = 0

    def do(self, line: str) -> None:
        self.lines.append(f"  {line}")

    def new(self, line: str) -> str:
        self.count += 1
        self.do(f"%v{self.count} = {line}")
        return f"%v{self.count}"

    def given(self, number: int) -> str:
        """Return an entry of the table that the pool hands over."""
        return self.new(
            f"load ptr, ptr {self.new(f'getelementptr ptr, ptr %buffers, i64 {number}')}"
        )

    def part(self, base: str, nbytes: int, number: str = "%b") -> str:
        """Return where a block, or a step, has its part of an array."""
        return self.new(
            f"getelementptr i8, ptr {base}, i64 {self.new(f'mul i64 {number}, {nbytes}')}"
        )

    def put(self, table: str, number: int, pointer: str) -> None:
        at = self.new(f"getelementptr ptr, ptr %{table}, i64 {number}")
        self.do(f"store ptr {pointer}, ptr {at}")

    def text(self) -> str:
        """Return the function."""
        step, op = self.step, self.step.op
        n, first = steps_of(op), op.consts
        body, count = step.blocks.body, len(step.operands)
        inputs, outputs = body.input_types, body.output_types
        self.do(f"%inputs = alloca [{count} x ptr], align 16")
        self.do(f"%outputs = alloca [{len(outputs) + 1} x ptr], align 16")
        context, known, scratch = (self.given(i) for i in range(3))
        tables = [self.given(3 + i) for i in range(count + len(outputs) + op.carry)]
        self.do("%from.p = getelementptr i64, ptr %extents, i64 0")
        self.do("%first = load i64, ptr %from.p")
        self.do("%to.p = getelementptr i64, ptr %extents, i64 1")
        self.do("%last = load i64, ptr %to.p")
        self.do("%is.begin = icmp eq i64 %first, 0")
        self.do(f"%behind = sub i64 {n}, %first")
        self.do("%behind.bit = and i64 %behind, 1")
        self.do("%was.even = icmp eq i64 %behind.bit, 0")
        self.do("br label %blocks")
        self.lines.append("blocks:")
        self.do("%b = phi i64 [%begin, %entry], [%b.next, %done]")
        places = [
            self.part(tables[i], _nbytes(t)) if cut else tables[i]
            for i, (t, cut) in enumerate(zip(inputs, step.blocks.is_cut, strict=True))
        ]
        outs = [self.part(tables[count + i], _nbytes(t)) for i, t in enumerate(outputs)]
        spare = [
            self.part(tables[count + len(outputs) + k], _nbytes(outputs[k]))
            for k in range(op.carry)
        ]
        self.put("outputs", len(outputs), self.part(scratch, step.arena_bytes))
        for i in range(first):
            self.put("inputs", i, places[i])
        starts = []
        for k in range(op.carry):
            before = self.new(f"select i1 %was.even, ptr {outs[k]}, ptr {spare[k]}")
            starts.append(self.new(f"select i1 %is.begin, ptr {places[first + k]}, ptr {before}"))
        for k in sorted(step.bodies[0].in_place):
            # It is updated where it lies: in the result, which begins as a copy.
            size = self.new(f"select i1 %is.begin, i64 {_nbytes(outputs[k])}, i64 0")
            given = f"ptr {outs[k]}, ptr {places[first + k]}, i64 {size}, i1 false"
            self.do(f"call void @llvm.memmove.p0.p0.i64({given})")
            starts[k] = spare[k] = outs[k]
        self._steps(starts, places, outs, spare, context, known)
        self.do("%b.next = add i64 %b, 1")
        self.do("%b.more = icmp slt i64 %b.next, %end")
        self.do("br i1 %b.more, label %blocks, label %exit")
        self.lines += ["exit:", "  ret void"]
        given = "ptr %buffers, ptr %extents, i64 %begin, i64 %end"
        head = f"define internal void @{step.name}({given}) {self.attributes} {{\nentry:\n"
        return head + "\n".join(self.lines) + "\n}\n"

    def _steps(
        self, starts: Sequence[str], places: Sequence[str], outs: Sequence[str],
        spare: Sequence[str], context: str, known: str,
    ) -> None:  # fmt: skip
        """Write the loop over the steps of a block."""
        step, op = self.step, self.step.op
        first, carry = op.consts, op.carry
        self.do("br label %loop")
        # The block that the loop is entered from begins where the offsets of a block are computed.
        self.lines.append("loop:")
        self.do("%i = phi i64 [%first, %blocks], [%i.next, %loop]")
        for k in range(carry):
            self.do(f"%c{k} = phi ptr [{starts[k]}, %blocks], [%t{k}, %loop]")
        self.do(f"%left = sub i64 {steps_of(op) - 1}, %i")
        self.do("%bit = and i64 %left, 1")
        self.do("%even = icmp eq i64 %bit, 0")
        for k in range(carry):
            self.do(f"%t{k} = select i1 %even, ptr {outs[k]}, ptr {spare[k]}")
            self.put("inputs", first + k, f"%c{k}")
            self.put("outputs", k, f"%t{k}")
        at = "%left" if op.reverse else "%i"
        whole = [x.type for x in op.body.inputs[first + carry :]]
        for j, t in enumerate(whole, first + carry):
            self.put("inputs", j, self.part(places[j], _nbytes(t), at))
        for j, x in enumerate(op.body.outputs[carry:], carry):
            self.put("outputs", j, self.part(outs[j], _nbytes(x.type), at))
        given = f"ptr {context}, ptr %inputs, ptr %outputs, ptr {known}"
        self.do(f"call i32 @{step.body_name(0)}({given})")
        self.do("%i.next = add i64 %i, 1")
        self.do("%more = icmp slt i64 %i.next, %last")
        self.do("br i1 %more, label %loop, label %done")
        self.lines.append("done:")
