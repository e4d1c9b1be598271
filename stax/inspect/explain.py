"""`explain`: how the compiled program of a function computes, and why it does it that way."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from stax.api.compiled import JitFunction, jit
from stax.api.residuals import shown_size
from stax.api.tracing import check_callable
from stax.config import config
from stax.errors import LoweringError
from stax.extent import Extent
from stax.graph import Graph
from stax.inspect.explanation import Explanation
from stax.inspect.steps import Steps
from stax.interpreters.remat import nbytes
from stax.lowering.decisions import Decision, deciding
from stax.lowering.program import Program
from stax.runtime.compiler import lowered
from stax.source import unplaced
from stax.types import ArrayType


def explain(
    fun: Callable[..., Any], *, memory_budget: int | None = None
) -> Callable[..., Explanation]:
    """Return a function of the arguments of `fun` that prints how its compiled program computes.

    By which route; what was rewritten before; then the steps in order: kernels with all that is
    fused in them and the user's lines, library calls, loops and how they run, calls back to
    Python; for each what it reads and writes, whether threads share it, and why it is as it is.
    In the end the copies that are made and the memory of a call.

    `fun` may be jitted; then its options hold, else `memory_budget` is for it what it is for
    `jit`.  Arguments may be ShapeDtypeStructs; nothing is compiled or computed.  What is printed
    is also returned, as an object whose `str()` it is.
    """
    check_callable("explain", fun)
    jitted = fun if isinstance(fun, JitFunction) else jit(fun, memory_budget=memory_budget)

    @functools.wraps(fun)
    def explained(*args: Any, **kwargs: Any) -> Explanation:
        lowered = jitted.lower(*args, **kwargs)
        budget = lowered.memory_budget if memory_budget is None else memory_budget
        found = explanation(lowered.graph, budget, lowered.donate_argnums)
        print(found)
        return found

    return explained


def explanation(
    graph: Graph, memory_budget: int | None = None, donated: Sequence[int] = ()
) -> Explanation:
    """Return how the program of a graph computes, some of whose inputs are donated."""
    shown = ", ".join(f"{x.label} {x.type!r}".strip() for x in graph.inputs)
    title = f"{graph.name}({shown})"
    with deciding() as decisions, unplaced():
        try:
            program = lowered(graph, memory_budget, donated).program
        except LoweringError as error:
            return Explanation(title, _no_program(graph, error))
    steps = Steps(program)
    return Explanation(
        title,
        _route(program),
        tuple(dict.fromkeys(map(_shown, decisions))),
        steps.entries,
        tuple(dict.fromkeys(steps.copies)),
        tuple(dict.fromkeys(steps.host_calls)),
        tuple(_memory(program)),
    )


def _no_program(graph: Graph, error: LoweringError) -> str:
    why = "\n    ".join(str(error).splitlines())
    is_open = any(isinstance(n, Extent) for t in graph.input_types for n in t.shape)
    if is_open or config.strict:
        return f"none, a call raises: {why}"
    return f"the reference evaluator, op by op in NumPy, with a FallbackWarning: {why}"


def _route(program: Program) -> str:
    count, kernels = sum(len(part.steps) for part in program.parts), len(program.kernels)
    text = f"a native program, {_number(count, 'step')}, {_number(kernels, 'kernel')}"
    if program.symbols:
        text += f", for any lengths {', '.join(program.symbols)}"
    if config.disable_jit:
        text += "; it is not run while the setting disable_jit is on, but every op by itself"
    return text


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _shown(decision: Decision) -> str:
    line = decision.source.shown() if decision.source else ""
    return f"{decision.what}  {line}".rstrip()


def _memory(program: Program) -> list[str]:
    """Return what a call needs besides its arguments, and in all."""
    graph, arena = program.graph, program.arena_bytes
    facts = []
    old = program.overwritten
    lying = [x for x, place in program.places.items() if place.kind == "arena" and x not in old]
    room = sum(nbytes(x.type) for x in lying)
    scratch = sum(bool(step.scratch_bytes) for step in program.scratch)  # type: ignore[union-attr]
    if lying or scratch:
        parts = [f"{_number(len(lying), 'temporary value')} of {shown_size(room)}"] if lying else []
        parts += [f"scratch memory of {_number(scratch, 'step')}"] if scratch else []
        facts.append(f"arena of {shown_size(arena)}: {' and '.join(parts)}")
    facts += map(program.why_taken, sorted(program.donated.inputs))
    given, made = _bytes(graph.input_types), _bytes(graph.output_types)
    over = _bytes([graph.outputs[k].type for k in program.taken])
    shown = f"{shown_size(made - over)} beside donated arguments" if over else shown_size(made)
    facts.append(
        f"peak of {shown_size(given + made - over + arena)}: arguments {shown_size(given)}, "
        f"results {shown}, arena {shown_size(arena)}"
    )
    if program.open_temporaries:
        facts.append(f"{len(program.open_temporaries)} temporary values whose lengths are symbolic")
    if any(part.growing for part in program.parts):
        facts.append("memory whose size is found while the program runs")
    return facts


def _bytes(types: Sequence[ArrayType]) -> int:
    static = [t for t in types if not any(isinstance(n, Extent) for n in t.shape)]
    return sum(map(nbytes, static))
