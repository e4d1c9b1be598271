"""Programs as `explain` speaks of them, step by step."""

from __future__ import annotations

from typing import Any

from stax.control import Scan, Switch, While
from stax.inspect.explanation import Entry, Part
from stax.inspect.kernels import fused_entry, own_entry, shared_out
from stax.inspect.values import Values, lines_of, where
from stax.lowering.block_step import BlockStep
from stax.lowering.blocks import blocks_of
from stax.lowering.donated import ReturnStep
from stax.lowering.gemm import Laid
from stax.lowering.host import HostStep
from stax.lowering.lane_step import LaneStep
from stax.lowering.lanes import counted_of, ending_of, lanes_of
from stax.lowering.lapack import LapackStep
from stax.lowering.library import GemmStep
from stax.lowering.loops import ControlStep
from stax.lowering.paired import library_op
from stax.lowering.program import KernelStep, Program, Step
from stax.lowering.selecting import SelectStep
from stax.lowering.sorting import SortStep
from stax.lowering.while_step import EndingStep
from stax.operators.callback import HostOp

PER_STEP = "ONCE PER STEP"


class Steps:
    """The steps of one program; `within` says of one in a loop or a branch how often it runs."""

    def __init__(self, program: Program, within: str = "") -> None:
        self.program, self.within = program, within
        self.values = Values(program)
        self.copies = [f"{within}{': ' if within else ''}{copy}" for copy in self.values.copies()]
        self.host_calls: list[str] = []
        begun: set[Any] = set()
        entries = []
        for step in program.steps:
            entries.append(self._entry(step, begun))
            if isinstance(step, KernelStep) and step.is_copy:
                begun.add(step.node)
        self.entries = tuple(entries)

    def _entry(self, step: Step, begun: set[Any]) -> Entry:
        match step:
            case KernelStep(plan=None):
                return own_entry(self.values, step, step.node in begun)
            case KernelStep(plan=plan):
                assert plan is not None
                return fused_entry(self.values, step, plan)
            case GemmStep():
                return self._product(step)
            case HostStep():
                return self._host(step)
            case ReturnStep():
                traffic = self.values.traffic(*([x] for x in step.reads_and_writes))
                facts = [where(step.node), traffic, "not copied where both are one memory"]
                return _entry("return of a donated argument", facts)
            case SortStep() | LapackStep():
                return self._library(step)
            case LaneStep() | EndingStep():
                return self._one_kernel(step)
            case ControlStep():
                return self._control(step)
        raise AssertionError(step)

    # --- libraries ---

    def _product(self, step: GemmStep) -> Entry:
        found, operands = step.product.gemm, [step.product.first, step.product.second]
        batch = f"{found.batch} times " if found.batch > 1 else ""
        sizes = f"{batch}[{found.m}, {found.k}] by [{found.k}, {found.n}]"
        flags = (found.transpose_a, found.transpose_b)
        turned = [self.values.name(x) for x, f in zip(operands, flags, strict=True) if f]
        facts = [where(step.node), self.values.traffic(operands, [step.node])]
        if turned:
            facts.append(f"reads {' and '.join(turned)} transposed where it lies, not copied")
        if isinstance(step.node.op, Laid):
            facts.append(f"writes axes in the order {step.node.op.order}, a transpose not copied")
        return _entry(f"matrix product by BLAS, {sizes}", facts)

    def _library(self, step: SortStep | LapackStep) -> Entry:
        name, node = library_op(step.node.op).name, step.node
        if isinstance(step, SortStep):
            kind = "native selection" if isinstance(step, SelectStep) else "native sort"
            title = f"{name}, {kind} of rows of {step.length}"
        else:
            title = f"{name} by LAPACK"
        written = [x for _, x in step.results]
        tasks = step.tasks if isinstance(step, SortStep) else step.kernel.tasks
        shared = f"parallel: in {tasks} tasks" if tasks > 1 else "one thread"
        return _entry(title, [where(node), self.values.traffic(step.operands, written), shared])

    def _host(self, step: HostStep) -> Entry:
        op = library_op(step.node.op)
        called = getattr(op, "called", None)
        name = f"{op.name} of {called.name}" if called is not None else op.name
        why = "" if isinstance(op, HostOp) else "no native code does it"
        often = f", {PER_STEP}" if PER_STEP in self.within else ""
        guard = ", if the first operand holds" if isinstance(op, HostOp) and op.guarded else ""
        text = f"HOST CALL{often}: {name}, back to Python with its lock{guard}"
        shown = f"{name}: {self.within or 'once'}  {where(step.node)}".rstrip()
        self.host_calls.append(shown)
        written = [x for _, x in step.results]
        return _entry(text, [why, where(step.node), self.values.traffic(step.operands, written)])

    # --- loops ---

    def _one_kernel(self, step: LaneStep | EndingStep) -> Entry:
        node, kernel = step.node, step.built
        written = list(step.results.values())
        read = [x for x in step.reads_and_writes if not any(x is y for y in written)]
        facts = [where(node), self.values.traffic(read, written)]
        if isinstance(step, EndingStep):
            how, op = "one kernel with an end condition: the carry stays in registers", node.op
            assert isinstance(op, While)
            facts += [f"asks {line}" for line in lines_of(op.cond)]
            facts += [f"computes {line}" for line in lines_of(op.body)]
            return _entry(f"{node.op.name} loop, {how}", facts)
        lanes = step.lanes
        facts += [f"computes {line}" for line in lines_of(step.op.body)]
        if lanes.lengths:
            how = f"by lanes: {lanes.count} side by side, each through all steps"
        else:
            how = "one kernel does all steps: a step is written out"
        facts.append("the carry stays in " + ("the first cache" if lanes.streams else "registers"))
        facts.append(f"{lanes.operations} operations for each lane and step")
        facts.append(shared_out(kernel.tasks, kernel.grain))
        if step.chunk is not None:
            facts.append(f"{step.chunk} steps a call, and between calls it looks for Ctrl-C")
        steps = "counted at run time" if step.counted is not None else f"{step.op.length} steps"
        return _entry(f"{node.op.name} loop of {steps}, {how}", facts)

    def _control(self, step: ControlStep) -> Entry:
        op = step.node.op
        facts = [where(step.node)]
        facts.append(self.values.traffic(step.operands, [x for _, x in step.results]))
        match op:
            case Switch(branches):
                title = f"choice between {len(branches)} branches, of which one runs"
                names = [f"branch {i}" for i in range(len(branches))]
            case While():
                title, names = "while loop, step by step", ["condition", "step"]
                facts.append(f"not by lanes: {counted_of(op)}")
                facts.append(f"not one kernel with an end condition: {ending_of(op)}")
            case Scan() if isinstance(step, BlockStep):
                rows = f"{step.blocks.count} blocks of {step.blocks.rows} rows side by side"
                title, names = f"scan loop of {op.length} steps, over {rows}", ["step of a block"]
                facts.append(f"not by lanes: {lanes_of(op)}")
                facts.append("threads take blocks, and a block is computed by one thread")
            case Scan():
                count = "as many steps as given" if op.length is None else f"{op.length} steps"
                title, names = f"scan loop of {count}, step by step", ["step"]
                facts.append(f"not by lanes: {lanes_of(op)}")
                facts.append(f"not over blocks of rows: {blocks_of(op)}")
            case _:
                raise AssertionError(op)
        facts += self._carried(step)
        parts = [self._part(b, name, step) for b, name in zip(step.bodies, names, strict=True)]
        return Entry(title, tuple(filter(None, facts)), tuple(parts))

    def _carried(self, step: ControlStep) -> list[str]:
        """Say of what is carried whether a step updates it where it lies."""
        body, moving, root = step.bodies[-1], set(step.moving), self.values.fusion.root_of
        overwritten = self.program.overwritten
        pairs = [(root(old), root(new)) for old, new in step.overwrites]
        over = {new for old, new in pairs if overwritten.get(old) is overwritten.get(new, new)}
        over -= self.program.copied.keys()
        results = dict(step.results)
        first = {k: i for i, k in body.carried.items()}
        facts = []
        for k in range(step.carried):
            x = body.graph.inputs[first[k]]
            how = "in turns in two places" if k in moving else "updated in place"
            result = root(results[k]) if k in results else None
            if result in over:
                how += ", where its initial value was"
            elif result in self.program.copied:
                how += f", in a copy of its initial value: {self.program.copied[result]}"
            facts.append(f"carries {x.label or f'number {k}'} {x.type!r}: {how}")
        return facts

    def _part(self, body: Program, name: str, step: ControlStep) -> Part:
        op = step.node.op
        length = op.length if isinstance(op, Scan) else None
        often = f"{PER_STEP}{f', {length} times' if length is not None else ''}"
        within = "in a branch" if isinstance(op, Switch) else often
        if self.within and within != self.within:
            within = f"{self.within}; {within}"
        inner = Steps(body, within)
        self.copies += inner.copies
        self.host_calls += inner.host_calls
        return Part(name, inner.entries)


def _entry(title: str, facts: list[str]) -> Entry:
    return Entry(title, tuple(filter(None, facts)))
