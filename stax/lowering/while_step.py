"""The step of a program that runs a small loop that ends by a condition, as one kernel.

The carry, some numbers, stays in registers; step and condition are written out, so a step costs
what its arithmetic costs.  The kernel returns after some steps in any case, with the carry in
memory, so that the program can look whether Ctrl-C was pressed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stax.control import While
from stax.graph import Node
from stax.lowering import loop_ir as ir
from stax.lowering.element import Index, aligned, static_size
from stax.lowering.lane_kernel import LaneBuilder, LaneKernel
from stax.lowering.lanes import Ending, ending_of
from stax.types import ArrayType, bool_

if TYPE_CHECKING:
    from stax.lowering.driver import DriverWriter

# Operations of one call at most, some milliseconds.
POLL_AFTER = 1 << 23

_GOING = ir.Var("going0", ir.BOOL)
_FLAG = ir.Buffer("flag0", bool_, ())


class EndingBuilder(LaneBuilder):
    """Builds the kernel: results hold the carry, before and after; a flag says if it goes on."""

    def __init__(
        self, ending: Ending, node: Node, sources: Sequence[Node], name: str,
        labels: Mapping[Node, str],
    ) -> None:  # fmt: skip
        most = max(1, POLL_AFTER // ending.lanes.operations)
        super().__init__(ending.step, node, ending.lanes, sources, {}, name, labels, most)
        self.ending = ending
        self.depth[_GOING.name] = self.step_level

    def registers(self) -> None:
        locals_: dict[tuple[int, Index], ir.Var] = {}
        start: dict[tuple[int, Index], ir.Expr] = {}
        for n, (k, index) in enumerate(self.moving()):
            var = locals_[k, index] = ir.Var(f"c{n}", self.op.body.outputs[k].type.dtype)
            self.depth[var.name] = self.step_level
            start[k, index] = self.let(ir.Load(*self.access(~k, self.node.type.items[k], index)))
            self.scopes[self.lane_level].append(ir.Init(var, start[k, index]))
        going = self.asked(start)
        self.scopes[self.lane_level].append(ir.Init(_GOING, going))
        assert self.steps is not None
        count = ir.apply("select", going, ir.index(self.steps), ir.index(0))
        self.state = locals_
        self.compute(self.op.body, self.lanes.demands)
        after = {(k, index): self.after(k, index) for k, index in locals_}
        named = {key: self.let(x) if x in locals_.values() else x for key, x in after.items()}
        going = self.asked(named)
        inner = self.scopes[self.step_level]
        inner += [ir.Set(var, named[key]) for key, var in locals_.items()]
        inner.append(ir.Set(_GOING, going))
        loop = self.loop_over_steps()
        level = self.scopes[self.lane_level]
        level.append(ir.For(loop.var, self.let(count), "serial", loop.body, _GOING))
        for (k, index), var in locals_.items():
            buffer, place = self.access(~k, self.node.type.items[k], index)
            self.stored.add(buffer.name)
            level.append(ir.Store(buffer, place, var))
        flag = ~len(self.node.type.items)
        self.buffers["flag"] = _FLAG, flag
        self.stored.add(_FLAG.name)
        level.append(ir.Store(_FLAG, (), _GOING))
        self.scopes[1] += level

    def asked(self, state: Mapping[tuple[int, Index], ir.Expr]) -> ir.Expr:
        """Return whether the loop goes on from a state."""
        self.state = state
        self.compute(self.ending.cond, self.ending.demands)
        return self.named(self.operand(self.ending.cond.outputs[0])(()))


@dataclass(frozen=True, eq=False)
class EndingStep:
    """Run a loop by its kernel until the flag says that it ended."""

    node: Node
    built: LaneKernel
    sources: tuple[Node, ...]
    results: dict[int, Node]
    carried_from: int

    @property
    def reads_and_writes(self) -> tuple[Node, ...]:
        roles = self.built.roles
        read = [self.sources[role] for role in roles if role >= 0]
        return tuple(
            dict.fromkeys([*read, *self.sources[self.carried_from :], *self.results.values()])
        )

    @property
    def result_types(self) -> tuple[ArrayType, ...]:
        """The types of what is carried."""
        types: tuple[ArrayType, ...] = self.node.type.items
        return types

    @property
    def scratch_bytes(self) -> int:
        """Memory for the flag, and for results that nobody reads."""
        unread = [t for k, t in enumerate(self.result_types) if k not in self.results]
        return aligned(1) + sum(map(_nbytes, unread))

    def call(self, driver: DriverWriter) -> None:
        """Write the loop of calls."""
        scratch, start = driver.scratch(self), aligned(1)
        homes = []
        for k, t in enumerate(self.result_types):
            if k in self.results:
                homes.append(driver.pointer(self.results[k]))
            else:
                homes.append(driver.new(f"getelementptr i8, ptr {scratch}, i64 {start}"))
                start += _nbytes(t)
            first = driver.pointer(self.sources[self.carried_from + k])
            size = static_size(t.shape) * int(t.dtype.itemsize)
            given = f"ptr {homes[k]}, ptr {first}, i64 {size}, i1 false"
            driver.do(f"call void @llvm.memmove.p0.p0.i64({given})")
        places = [*homes, scratch]
        pointers = [
            driver.pointer(self.sources[role]) if role >= 0 else places[~role]
            for role in self.built.roles
        ]
        buffers, poll = driver.kernel_table(pointers), driver.from_context("poll")
        name = driver.new("add i64 0, 0")[1:]
        driver.do(f"br label %{name}.loop")
        driver.lines.append(f"{name}.loop:")
        driver.run_kernel(self.built.kernel, buffers, "null", "1", None)
        flag = driver.new(f"load i8, ptr {scratch}")
        ended = driver.new(f"icmp eq i8 {flag}, 0")
        driver.do(f"br i1 {ended}, label %{name}.end, label %{name}.poll")
        driver.lines.append(f"{name}.poll:")
        asked = driver.new(f"call i32 {poll}()")
        driver.branch(driver.new(f"icmp ne i32 {asked}, 0"), "ret i32 -1")
        driver.do(f"br label %{name}.loop")
        driver.lines.append(f"{name}.end:")


def _nbytes(type_: ArrayType) -> int:
    return aligned(static_size(type_.shape) * int(type_.dtype.itemsize))


def ending_step(
    name: str,
    node: Node,
    sources: Sequence[Node],
    results: Mapping[int, Node],
    labels: Mapping[Node, str],
) -> EndingStep | None:
    """Return the step that runs a while loop as one kernel, or None where it is large."""
    if not isinstance(node.op, While):
        return None
    ending = ending_of(node.op)
    if isinstance(ending, str):
        return None
    kernel = EndingBuilder(ending, node, sources, name, labels).build()
    return EndingStep(node, kernel, tuple(sources), dict(results), ending.step.consts)
