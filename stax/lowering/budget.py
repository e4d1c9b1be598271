"""Meeting a budget of memory, `jit(..., memory_budget=bytes)`, by computing values again.

The budget is one of temporary memory, the arena of a program.  Where the program as it stands needs
more, work that was taken out of loops is left in them; where that is not enough, plans are tried,
those that repeat little first; a plan is one or two rounds of computing values again behind the
peak (`recompute`), of the program as it stands or of that other one.  Of the first plan that meets
the budget, the price of a byte is then lowered in a binary search, so that no more is computed
again than has to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stax.errors import ArgumentValueError, Value
from stax.extent import Extent
from stax.graph import Graph, Node
from stax.interpreters.recompute import peak_bytes, recomputing
from stax.interpreters.remat import STANDARD, Prices, nbytes
from stax.lowering.decisions import decided
from stax.lowering.donated import Donated
from stax.lowering.program import Program, lower
from stax.lowering.unread import without_unread
from stax.operators.bits import Late

# The price of a byte, as a power of two: from where saving is as dear as it is, to where all else
# is nothing beside it.
LEAST, MOST = 1.0, 20.0
SEARCHES = 4
SEGMENTS = (2, 4, 8, 16, 32)
# How much more than the budget a plan may seem to need and be tried, and how many more are.
HOPE = 1.25
LAST_RESORTS = 4


class Round(NamedTuple):
    """One pass of computing again: whether all that is pure may be, and in how many segments."""

    dear: bool = False
    segments: int = 1


Plan = tuple[Round, ...]
CHEAP = Round()
PLANS: tuple[Plan, ...] = (
    (CHEAP,),
    *(
        plan
        for n in SEGMENTS
        for plan in ((Round(True, n),), (CHEAP, Round(True, n)), (Round(True, n), CHEAP))
    ),
    (Round(True),),
)


def lower_within(
    graph: Graph, budget: int, inside: Graph | None = None, donated: Donated | None = None
) -> Program:
    """Lower a prepared graph to a program with an arena of at most `budget` bytes.

    `inside` is the same function with all work of loops done inside of them; results may take the
    memory of `donated` inputs.  Raises ArgumentValueError if no plan meets the budget, which says
    the smallest arena that was found.
    """
    program = lower(graph, donated=donated)
    if program.symbols or any(part.opens for part in program.parts):
        raise ArgumentValueError(
            f"jit: memory_budget={budget} needs lengths that are known before {graph.name} runs.",
            values=[(x.label, repr(x.type), "") for x in graph.inputs],
            advice="Leave out dynamic=, and give loops of unknown length max_steps=.",
        )
    if program.arena_bytes <= budget:
        decided(f"memory_budget={budget}: {program.arena_bytes} bytes are enough as it stands")
        return program
    least = program.arena_bytes
    versions = {graph: least}
    if inside is not None and inside.structural_hash != graph.structural_hash:
        plain = lower(inside, donated=donated)
        if plain.arena_bytes <= budget:
            what = f"{least} bytes as it stands, {plain.arena_bytes} with all work inside of loops"
            decided(f"memory_budget={budget}: {what}")
            return plain
        versions[inside] = plain.arena_bytes
        least = min(least, plain.arena_bytes)
    for version, arena_bytes in versions.items():
        for plan in _promising(version, budget, arena_bytes):
            found = lower(_planned(version, plan, MOST), donated=donated)
            if found.arena_bytes <= budget:
                found = _with_less_again(version, plan, budget, found)
                decided(_again(program, found, budget))
                return found
            least = min(least, found.arena_bytes)
    raise _not_met(program, budget, least)


def _again(before: Program, after: Program, budget: int) -> str:
    """Say what a program computes again to meet a budget."""
    more = Counter(node.op.name for node in after.graph.nodes)
    more -= Counter(node.op.name for node in before.graph.nodes)
    names = ", ".join(f"{n} x {name}" for name, n in more.most_common() if name != Late.name)
    return (
        f"memory_budget={budget}: {before.arena_bytes} bytes as it stands, {after.arena_bytes} "
        f"where some is computed again: {names}"
    )


def _planned(graph: Graph, plan: Plan, exponent: float) -> Graph:
    for dear, segments in plan:
        prices = Prices(2**exponent, STANDARD.operation, dear)
        graph = without_unread(recomputing(graph, prices, segments))
    return graph


def _promising(graph: Graph, budget: int, arena_bytes: int) -> Iterator[Plan]:
    """Yield the plans that are likely to meet the budget, then some that need least."""
    scale = arena_bytes / max(peak_bytes(graph), 1)
    needs = {plan: scale * peak_bytes(_planned(graph, plan, MOST)) for plan in PLANS}
    likely = [plan for plan in PLANS if needs[plan] <= HOPE * budget]
    yield from likely
    others = [plan for plan in PLANS if plan not in likely]
    yield from sorted(others, key=needs.__getitem__)[:LAST_RESORTS]


def _with_less_again(graph: Graph, plan: Plan, budget: int, found: Program) -> Program:
    """Return the program of a plan that meets the budget with bytes as cheap as they can be."""
    low, high = LEAST, MOST
    for _ in range(SEARCHES):
        middle = (low + high) / 2
        program = lower(_planned(graph, plan, middle), donated=found.donated)
        if program.arena_bytes <= budget:
            high, found = middle, program
        else:
            low = middle
    return found


def _not_met(program: Program, budget: int, least: int) -> ArgumentValueError:
    name = program.graph.name
    return ArgumentValueError(
        f"jit: memory_budget={budget} cannot be met: {name} needs at least {least} bytes of "
        f"temporary memory, {program.arena_bytes} where nothing is computed again.",
        values=_largest(program),
        advice=(
            f"Give it memory_budget={least} or more, or smaller arguments; scan takes "
            "checkpoint_every=, vmap takes chunk=."
        ),
    )


def _largest(program: Program) -> list[Value]:
    """Return the largest temporary values as rows of an error."""
    lying: list[Node] = [
        node
        for node, place in program.places.items()
        if place.kind == "arena" and not any(isinstance(n, Extent) for n in node.type.shape)
    ]
    lying.sort(key=lambda node: nbytes(node.type), reverse=True)
    return [(n.op.name, repr(n.type), n.source.shown() if n.source else "") for n in lying[:3]]
